//! Turns a failing trial into a simpler failing trial: fewer disturbances, lives, clients and requests, and
//! an earlier point.
//!
//! The search is greedy and bounded. Each step tries the simpler neighbours of the shortest trial so far, in
//! this order, and takes the first that fails too, whatever the failure. A change that leads to another run
//! or another life tries a few outcomes.

use crate::campaign::{Campaign, Failure, Report, Subject, TrialId};

/// Outcomes tried of each simpler trial, beside the trial's own outcome.
const OUTCOMES: u64 = 3;

impl Campaign {
    /// Returns the shortest failing trial that a bounded search finds.
    pub(super) fn shorten<S: Subject>(&self, subject: &S, failure: Box<Failure>) -> Box<Failure> {
        let (found_by, mut shortest, mut left) = (failure.trial.clone(), failure, self.shortening);
        loop {
            let simpler = self.simpler(&shortest).into_iter();
            let tried = simpler.take(left as usize).inspect(|_| left -= 1);
            let failing =
                tried.filter_map(|trial| self.run_trial(subject, &trial, &mut Report::default()).err());
            match { failing }.next() {
                Some(next) => shortest = next,
                None => break,
            }
        }
        let found_by = (shortest.trial != found_by).then_some(found_by);
        Box::new(Failure { found_by, ..*shortest })
    }

    /// Simpler neighbours, the most promising first.
    fn simpler(&self, failure: &Failure) -> Vec<TrialId> {
        let trial = &failure.trial;
        let mut simpler = Vec::new();
        for fewer in (1..=failure.life).filter(|lives| trial.lives.is_none_or(|before| *lives < before)) {
            simpler.extend(outcomes(&TrialId { lives: Some(fewer), ..trial.clone() }));
        }
        let kinds = &self.setup.disturbances;
        for kind in kinds.iter().filter(|kind| !trial.without.contains(kind)) {
            let without = [&trial.without[..], &[*kind]].concat();
            simpler.push(TrialId { without, ..trial.clone() });
        }
        if trial.span != Some(1) && self.setup.spans != [1] {
            simpler.extend(outcomes(&TrialId { span: Some(1), ..trial.clone() }));
        }
        let requests = trial.requests.unwrap_or(self.setup.workload.requests);
        for fewer in shares(requests) {
            simpler.push(TrialId { requests: Some(fewer), ..trial.clone() });
        }
        let clients = trial.clients.unwrap_or(self.setup.workload.clients);
        for fewer in [1, clients / 2].into_iter().filter(|fewer| (1..clients).contains(fewer)) {
            simpler.extend(outcomes(&TrialId { clients: Some(fewer), ..trial.clone() }));
        }
        for earlier in trial.point.into_iter().flat_map(shares) {
            simpler.extend(outcomes(&TrialId { point: Some(earlier), ..trial.clone() }));
        }
        simpler
    }
}

/// Smaller numbers, smallest first.
fn shares(number: u64) -> impl Iterator<Item = u64> {
    let all = [number / 8, number / 2, number * 3 / 4, number * 7 / 8, number.saturating_sub(1)];
    all.into_iter().filter(move |share| (1..number).contains(share))
}

/// Returns the trial with its own outcome and with the first few outcomes.
fn outcomes(trial: &TrialId) -> impl Iterator<Item = TrialId> {
    let others = (0..OUTCOMES).filter(|outcome| *outcome != trial.outcome);
    let all = std::iter::once(trial.outcome).chain(others);
    all.map(|outcome| TrialId { outcome, ..trial.clone() })
}
