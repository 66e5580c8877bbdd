//! How many claims of a paper hold: one table that says it for all papers.

use crate::judge::{Judged, Ruling};
use crate::study::Study;

/// What became of a claim, for the system as published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// It holds.
    Held,
    /// It holds, by another margin.
    OtherMargin,
    /// It does not hold, and another run with the reason changed shows the reason.
    FailedWithReason,
    /// It does not hold, and no run shows why.
    FailedWithoutReason,
    /// Within 1 % of the bound, or seeds do not agree.
    Open,
    /// The paper's devices alone were not reproduced, or a parameter was chosen for the claim.
    Untestable,
    /// One seed, or runs that were too short.
    NoVerdict,
}

impl Standing {
    /// All of them, in the order of columns.
    pub const ALL: [Standing; 7] = [
        Standing::Held,
        Standing::OtherMargin,
        Standing::FailedWithReason,
        Standing::FailedWithoutReason,
        Standing::Open,
        Standing::Untestable,
        Standing::NoVerdict,
    ];

    /// Of a claim; none if its numbers are only shown.
    pub fn of(judged: &Judged) -> Option<Standing> {
        Some(match judged.verdicts.first()?.ruling? {
            Ruling::Holds => Standing::Held,
            Ruling::OtherMargin => Standing::OtherMargin,
            Ruling::Fails if !judged.instead.is_empty() => Standing::FailedWithReason,
            Ruling::Fails => Standing::FailedWithoutReason,
            Ruling::Tie | Ruling::Undecided => Standing::Open,
            Ruling::Untestable => Standing::Untestable,
            Ruling::OneSeed | Ruling::TooShort => Standing::NoVerdict,
        })
    }

    /// The heading of its column.
    pub fn words(self) -> &'static str {
        match self {
            Standing::Held => "hold",
            Standing::OtherMargin => "hold by another margin",
            Standing::FailedWithReason => "fail, reason measured",
            Standing::FailedWithoutReason => "fail, reason not measured",
            Standing::Open => "tie or undecided",
            Standing::Untestable => "untestable",
            Standing::NoVerdict => "no verdict",
        }
    }

    /// A word for programs.
    pub fn key(self) -> &'static str {
        match self {
            Standing::Held => "held",
            Standing::OtherMargin => "margin",
            Standing::FailedWithReason => "failed",
            Standing::FailedWithoutReason => "unexplained",
            Standing::Open => "open",
            Standing::Untestable => "untestable",
            Standing::NoVerdict => "none",
        }
    }
}

/// The claims of a paper, counted.
pub(crate) struct Tally<'a> {
    /// The system, as in `wardrop`.
    pub system: &'a str,
    /// Any study of the paper: it names authors, year and title.
    pub study: &'a Study,
    /// Of the paper's claims, by [`Standing::ALL`].
    pub of_paper: [usize; Standing::ALL.len()],
    /// Of Braid's own aims and of repeated claims.
    pub others: [usize; Standing::ALL.len()],
}

/// Papers in the order of their first study.
pub(crate) fn tally(studies: &[Study]) -> Vec<Tally<'_>> {
    let mut tallies: Vec<Tally> = Vec::new();
    for study in studies {
        let place = tallies.iter().position(|tally| tally.study.paper == study.paper).unwrap_or_else(|| {
            tallies.push(Tally {
                system: system(study),
                study,
                of_paper: Default::default(),
                others: Default::default(),
            });
            tallies.len() - 1
        });
        for judged in &study.claims {
            let Some(standing) = Standing::of(judged) else { continue };
            let counts = &mut tallies[place];
            let counts = if judged.is_of_paper() { &mut counts.of_paper } else { &mut counts.others };
            counts[standing as usize] += 1;
        }
    }
    tallies
}

/// The first part of the id.
pub(crate) fn system(study: &Study) -> &str {
    study.id.split('/').next().unwrap_or(&study.id)
}
