//! Choice between change, keep and undecided. A change costs moves and attention: it is recommended only if
//! the gain is large enough, and greater than its uncertainty.

use crate::estimate::Estimate;
use serde::Serialize;

/// A recommendation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// Change, keep or undecided.
    pub ruling: ChoiceRuling,
    /// The recommended policy: the present policy unless the ruling is to change.
    pub advised_policy: String,
    /// Expected reduction of the mean latency by a change; for `undecided`, by the policy that may be better.
    pub gain_ns_mean: Option<f64>,
    /// Lower end of the 95 % confidence interval of the gain.
    pub gain_ns_low: Option<f64>,
    /// Upper end of the interval.
    pub gain_ns_high: Option<f64>,
    /// For `undecided`: the policy that may be better.
    pub undecided_policy: Option<String>,
}

/// Ruling of a recommendation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceRuling {
    /// Another policy is better: the interval of its gain is above zero.
    Change,
    /// No policy is better by enough.
    Keep,
    /// A policy may be better by enough, but the recording is too short to tell.
    Undecided,
}

/// Least worthwhile gain, as a share of the present latency.
const WORTH: f64 = 0.05;
/// A candidate for the choice.
pub(crate) struct Candidate<'a> {
    pub policy: &'a str,
    pub mean: f64,
    /// Mean latency minus the present policy's; `None` if unknown, or for the present policy itself.
    pub difference: Option<Estimate>,
    pub keeps_up: bool,
}

/// Chooses among candidates, including the present policy.
pub(crate) fn choose(candidates: &[Candidate], present: usize) -> Choice {
    let now = &candidates[present];
    let others = candidates.iter().enumerate().filter(|(place, _)| *place != present).map(|(_, other)| other);
    // A policy that does not keep up is never recommended instead of a policy that keeps up.
    let mut better: Vec<&Candidate> = others
        .filter(|other| other.keeps_up || !now.keeps_up)
        .filter(|other| now.mean - other.mean >= WORTH * now.mean && now.mean > 0.0)
        .collect();
    better.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let is_sure = |other: &&&Candidate| other.difference.is_some_and(|by| by.high < 0.0);
    let (ruling, other) = match (better.iter().find(is_sure), better.first()) {
        (Some(sure), _) => (ChoiceRuling::Change, Some(*sure)),
        (None, Some(perhaps)) => (ChoiceRuling::Undecided, Some(*perhaps)),
        (None, None) => (ChoiceRuling::Keep, None),
    };
    let by = other.and_then(|other| other.difference);
    let policy = |ruled| other.filter(|_| ruling == ruled).map(|other| other.policy.to_owned());
    Choice {
        ruling,
        advised_policy: policy(ChoiceRuling::Change).unwrap_or_else(|| now.policy.to_owned()),
        gain_ns_mean: other.map(|other| now.mean - other.mean),
        gain_ns_low: by.map(|by| -by.high),
        gain_ns_high: by.map(|by| -by.low),
        undecided_policy: policy(ChoiceRuling::Undecided),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(policy: &str, mean: f64, half_width: f64) -> Candidate<'_> {
        let by = mean - 100.0;
        let difference = Some(Estimate { mean: by, low: by - half_width, high: by + half_width });
        Candidate { policy, mean, difference, keeps_up: true }
    }

    fn present() -> Candidate<'static> {
        Candidate { policy: "now", mean: 100.0, difference: None, keeps_up: true }
    }

    fn ruled(others: Vec<Candidate>) -> (ChoiceRuling, String) {
        let all: Vec<Candidate> = std::iter::once(present()).chain(others).collect();
        let choice = choose(&all, 0);
        (choice.ruling, choice.advised_policy)
    }

    #[test]
    fn change_requires_a_large_and_certain_gain() {
        let now = || "now".to_owned();
        assert_eq!(ruled(vec![candidate("a", 60.0, 10.0)]), (ChoiceRuling::Change, "a".into()));
        assert_eq!(
            ruled(vec![candidate("a", 96.0, 0.1)]),
            (ChoiceRuling::Keep, now()),
            "4 % is not worth it"
        );
        assert_eq!(
            ruled(vec![candidate("a", 60.0, 45.0)]),
            (ChoiceRuling::Undecided, now()),
            "40 ± 45 is too little"
        );
        assert_eq!(ruled(vec![candidate("a", 130.0, 1.0)]), (ChoiceRuling::Keep, now()));
        assert_eq!(ruled(vec![]), (ChoiceRuling::Keep, now()));
    }

    #[test]
    fn fastest_certain_candidate_is_advised() {
        let others =
            vec![candidate("a", 80.0, 2.0), candidate("b", 70.0, 2.0), candidate("lucky", 50.0, 60.0)];
        assert_eq!(ruled(others), (ChoiceRuling::Change, "b".into()));
    }

    #[test]
    fn unknown_difference_leaves_choice_undecided() {
        let unknown = Candidate { difference: None, ..candidate("a", 50.0, 0.0) };
        assert_eq!(ruled(vec![unknown]).0, ChoiceRuling::Undecided);
    }

    #[test]
    fn overloaded_candidate_replaces_only_overloaded_setup() {
        let slow = || Candidate { keeps_up: false, ..candidate("a", 60.0, 1.0) };
        assert_eq!(ruled(vec![slow()]).0, ChoiceRuling::Keep);
        let overloaded = Candidate { keeps_up: false, ..present() };
        assert_eq!(choose(&[overloaded, slow()], 0).ruling, ChoiceRuling::Change);
    }

    #[test]
    fn choice_reports_the_interval_of_the_gain() {
        let choice = choose(&[present(), candidate("a", 60.0, 10.0)], 0);
        let gain = (choice.gain_ns_mean, choice.gain_ns_low, choice.gain_ns_high);
        assert_eq!(gain, (Some(40.0), Some(30.0), Some(50.0)));
    }
}
