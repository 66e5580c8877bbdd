//! Results of `braid demo`: one table with a row for each policy and a column for each phase, and the default
//! policy's distance from the best policy of each phase.

use super::super::dbench::Outcome;
use super::super::late::{MARK, mark, too_slow};
use super::super::measure::Interval;
use super::load::{PHASES, Phase};
use crate::table::Table;
use braid_lab::DEFAULT_POLICY;
use serde::Serialize;

/// One policy in one phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseRun {
    /// The policy with its settings, as given by the user.
    pub policy: String,
    /// Name of the phase.
    pub phase: &'static str,
    /// 10^6 bytes per second, by fio's count.
    pub throughput_mb_per_second: f64,
    /// Throughput as a share of the best policy's throughput in this phase.
    pub share_of_best: f64,
    /// Mean latency of fio's requests.
    pub operation_ms_mean: f64,
    /// Longest latency of fio's requests.
    pub operation_ms_max: f64,
    /// Figures of the volume and its devices during the phase.
    pub volume: Interval,
}

/// All runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Conditions of the runs.
    pub conditions: Vec<String>,
    /// Reason why figures do not count, and the remedy; `None` if all count.
    pub too_slow: Option<String>,
    /// Runs by policy, and for each policy by phase.
    pub runs: Vec<PhaseRun>,
    /// Time from the start of the first run to the end of the last.
    pub wall_seconds: f64,
}

impl PhaseRun {
    /// Combines fio's result with the daemon's figures.
    pub fn new(policy: &str, phase: &Phase, outcome: Outcome, volume: Interval) -> PhaseRun {
        let Outcome { throughput_mb_per_second, operation_ms_mean, operation_ms_max } = outcome;
        let (policy, phase) = (policy.to_owned(), phase.name);
        let share_of_best = 1.0;
        PhaseRun {
            policy,
            phase,
            throughput_mb_per_second,
            share_of_best,
            operation_ms_mean,
            operation_ms_max,
            volume,
        }
    }
}

/// Run with the highest throughput in this phase.
pub fn best<'a>(runs: &'a [PhaseRun], phase: &Phase) -> Option<&'a PhaseRun> {
    let runs = runs.iter().filter(|run| run.phase == phase.name);
    runs.max_by(|a, b| a.throughput_mb_per_second.total_cmp(&b.throughput_mb_per_second))
}

impl Report {
    /// Creates the report: fills in shares of the best, and warns if devices were too late.
    pub fn new(conditions: Vec<String>, mut runs: Vec<PhaseRun>, wall_seconds: f64) -> Report {
        for phase in &PHASES {
            let highest = best(&runs, phase).map_or(0.0, |run| run.throughput_mb_per_second);
            for run in runs.iter_mut().filter(|run| run.phase == phase.name && highest > 0.0) {
                run.share_of_best = run.throughput_mb_per_second / highest;
            }
        }
        let named = runs.iter().map(|run| (format!("{} in '{}'", run.policy, run.phase), &run.volume));
        Report { conditions, too_slow: too_slow(named), runs, wall_seconds }
    }

    /// The table, with the meaning of its figures beneath.
    pub fn text(&self) -> String {
        let heads = PHASES.iter().map(|phase| format!(">{}, {}", phase.name, phase.unit()));
        let heads: Vec<String> = std::iter::once("policy".to_owned()).chain(heads).collect();
        let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for runs in self.runs.chunks(PHASES.len()) {
            let cells = runs.iter().zip(&PHASES).map(|(run, phase)| self.cell(run, phase));
            table.row(std::iter::once(runs[0].policy.clone()).chain(cells).collect());
        }
        let mut lines = vec![table.render("").trim_end().to_owned()];
        lines.extend(self.compares().then(|| "* best of the phase".to_owned()));
        lines.extend(self.beside_best());
        lines.extend(self.too_slow.clone());
        lines.extend(self.conditions.iter().cloned());
        lines.join("\n")
    }

    fn cell(&self, run: &PhaseRun, phase: &Phase) -> String {
        let best = if self.is_best(run) { '*' } else { ' ' };
        format!("{}{best}{}", phase.figure(run.throughput_mb_per_second * 1e6), mark(&run.volume))
    }

    fn is_best(&self, run: &PhaseRun) -> bool {
        self.compares() && run.share_of_best >= 1.0
    }

    /// True if there is more than one policy.
    fn compares(&self) -> bool {
        self.runs.len() > PHASES.len()
    }

    /// Line about the default policy's distance from the best of each phase; `None` without the default
    /// policy or without another policy.
    fn beside_best(&self) -> Option<String> {
        let of_default = |run: &&PhaseRun| run.policy == DEFAULT_POLICY;
        let compared: Vec<&PhaseRun> = self.runs.iter().filter(of_default).take(PHASES.len()).collect();
        if compared.is_empty() || !self.compares() {
            return None;
        }
        let each = compared.iter().zip(&PHASES).filter_map(|(run, phase)| {
            let best = best(&self.runs, phase)?;
            let counts = !self.runs.iter().any(|other| other.phase == run.phase && other.volume.too_late);
            let said = match (self.is_best(run), run.share_of_best * 100.0) {
                (true, _) => "the best".to_owned(),
                (false, percent) => format!("{percent:.0} % of {}", best.policy),
            };
            Some(format!("{} {said}{}", phase.name, if counts { String::new() } else { format!(" {MARK}") }))
        });
        Some(format!("{} beside the best: {}.", compared[0].policy, each.collect::<Vec<_>>().join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::measure::tests::interval;
    use super::*;

    /// Runs of a policy in each phase, with the given throughput and lateness.
    fn runs(policy: &str, figures: [(f64, u64); 4]) -> Vec<PhaseRun> {
        let run = |(phase, (throughput, late)): (&Phase, (f64, u64))| {
            let outcome = Outcome {
                throughput_mb_per_second: throughput,
                operation_ms_mean: 0.1,
                operation_ms_max: 1.0,
            };
            PhaseRun::new(policy, phase, outcome, interval(late))
        };
        PHASES.iter().zip(figures).map(run).collect()
    }

    fn report() -> Report {
        let disk = runs("hdd-only", [(2.0, 10), (2.0, 10), (100.0, 10), (4.0, 900)]);
        let default = runs(DEFAULT_POLICY, [(8.0, 10), (1.0, 10), (70.0, 10), (8.0, 10)]);
        Report::new(vec!["what it is".to_owned()], [disk, default].concat(), 1.0)
    }

    #[test]
    fn report_marks_best_policy_and_default_share_per_phase() {
        let report = report();
        let shares: Vec<f64> = report.runs.iter().map(|run| run.share_of_best).collect();
        assert_eq!(shares, [0.25, 1.0, 1.0, 0.5, 1.0, 0.5, 0.7, 1.0]);
        let text = report.text();
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1), ["hdd-only", "488", "488*", "100*", "977", "?"], "{text}");
        assert_eq!(words(2), [DEFAULT_POLICY, "1953*", "244", "70", "1953*"], "{text}");
        let line = "hot set the best, moved 50 % of hdd-only, stream 70 % of hdd-only, ten times the best ?.";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn late_figures_are_reported_and_lone_policy_is_uncompared() {
        let report = report();
        assert!(report.too_slow.as_ref().is_some_and(|told| told.contains("1 of 8")), "{report:?}");
        assert!(report.text().contains(report.too_slow.as_deref().unwrap()));
        let alone = Report::new(Vec::new(), runs(DEFAULT_POLICY, [(8.0, 10); 4]), 1.0);
        assert!(!alone.text().contains('*'), "{}", alone.text());
        assert_eq!((alone.beside_best(), alone.too_slow), (None, None));
    }
}
