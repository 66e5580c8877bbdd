//! The name of a trial: a few numbers decide everything in a trial, and one command replays the trial.

use crate::campaign::{Disturbance, Setup};
use std::fmt;
use std::str::FromStr;

/// Name of a trial: a run, a snapshot, and an outcome, with the omissions of a shortened trial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrialId {
    /// The seed of the run.
    pub seed: u64,
    /// Cut point of the snapshot; `None` for the end of the run.
    pub point: Option<u64>,
    /// Number of the snapshot's outcome.
    pub outcome: u64,
    /// Number of the last life, if limited.
    pub lives: Option<u64>,
    /// Number of guest requests, if different from the campaign's.
    pub requests: Option<u64>,
    /// Number of clients, if different from the campaign's.
    pub clients: Option<u64>,
    /// Extents in a span, if different from the seed's draw.
    pub span: Option<u64>,
    /// Omitted kinds of disturbance.
    pub without: Vec<Disturbance>,
}

/// The environment variable for restricting a campaign to one trial.
const VARIABLE: &str = "BRAID_CRASH_TRIAL";

impl TrialId {
    /// Returns the trial named in the environment.
    pub(super) fn asked_for() -> Option<TrialId> {
        let text = std::env::var(VARIABLE).ok()?;
        Some(text.parse().unwrap_or_else(|error| panic!("{VARIABLE}={text}: {error}")))
    }

    /// Returns the command for a replay of the trial.
    pub(super) fn command(&self, command: &str) -> String {
        format!("{VARIABLE}={self} {command}")
    }

    /// Returns the trials of `campaign` in a list with one trial on each line.
    pub(super) fn listed(list: &str, campaign: &str) -> Vec<TrialId> {
        let lines = list.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        let trials = lines.filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name == campaign);
        let parse = |text: &str| {
            text.trim()
                .parse()
                .unwrap_or_else(|error| panic!("a listed trial of {campaign}: {text}: {error}"))
        };
        trials.map(|(_, text)| parse(text)).collect()
    }

    /// Applies the omissions of the trial to `setup`.
    pub(super) fn shorten(&self, setup: &mut Setup) {
        let workload = &mut setup.workload;
        workload.requests = self.requests.unwrap_or(workload.requests);
        workload.clients = self.clients.unwrap_or(workload.clients);
        setup.disturbances.retain(|kind| !self.without.contains(kind));
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        if let Some(point) = self.point {
            write!(f, ",point={point}")?;
        }
        write!(f, ",outcome={}", self.outcome)?;
        for (name, value) in [
            ("lives", self.lives),
            ("requests", self.requests),
            ("clients", self.clients),
            ("span", self.span),
        ] {
            if let Some(value) = value {
                write!(f, ",{name}={value}")?;
            }
        }
        if self.without.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.without.iter().map(|kind| kind.name()).collect();
        write!(f, ",without={}", names.join("+"))
    }
}

impl FromStr for TrialId {
    type Err = String;

    fn from_str(text: &str) -> Result<TrialId, String> {
        let mut trial = TrialId::default();
        for field in text.split(',') {
            let (name, value) =
                field.split_once('=').ok_or_else(|| format!("'{field}' is not NAME=VALUE"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("'{value}' is not a number"));
            match name {
                "seed" => trial.seed = number()?,
                "point" => trial.point = Some(number()?),
                "outcome" => trial.outcome = number()?,
                "lives" => trial.lives = Some(number()?),
                "requests" => trial.requests = Some(number()?),
                "clients" => trial.clients = Some(number()?),
                "span" => trial.span = Some(number()?),
                "without" => trial.without = value.split('+').map(str::parse).collect::<Result<_, _>>()?,
                _ => return Err(format!("unknown field '{name}'")),
            }
        }
        Ok(trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_id_round_trips_through_text() {
        let whole = TrialId {
            seed: 7,
            point: Some(213),
            outcome: 2,
            lives: Some(1),
            requests: Some(40),
            clients: Some(2),
            span: Some(8),
            without: vec![Disturbance::Rot, Disturbance::Stalls],
        };
        for trial in [TrialId::default(), whole.clone()] {
            assert_eq!(trial.to_string().parse(), Ok(trial));
        }
        assert!("seed=x".parse::<TrialId>().is_err() && "sead=1".parse::<TrialId>().is_err());
        let list = format!("# story\nother seed=1\nmine {whole} # found on a rainy day\n");
        assert_eq!(TrialId::listed(&list, "mine"), [whole]);
    }
}
