//! Number of claims that hold, in one table for all papers.

use crate::judge::{Judged, Ruling};
use crate::study::Study;

/// Result of a claim, for the system as published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// Holds.
    Held,
    /// Holds, by another margin.
    OtherMargin,
    /// Fails, and another run with the reason changed shows the reason.
    FailedWithReason,
    /// Fails, and no run shows the reason.
    FailedWithoutReason,
    /// Within 1 % of the bound, or the seeds do not agree.
    Open,
    /// The paper's devices alone were not reproduced, or a parameter was chosen for the claim.
    Untestable,
    /// One seed, or too short runs.
    NoVerdict,
}

impl Standing {
    /// All results, in the order of columns.
    pub const ALL: [Standing; 7] = [
        Standing::Held,
        Standing::OtherMargin,
        Standing::FailedWithReason,
        Standing::FailedWithoutReason,
        Standing::Open,
        Standing::Untestable,
        Standing::NoVerdict,
    ];

    /// Result of a claim; `None` if its numbers are only shown.
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

    /// Heading of the column.
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

    /// Key for programs.
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

/// Counts of a paper's claims.
pub(crate) struct Tally<'a> {
    /// The system, as in `wardrop`.
    pub system: &'a str,
    /// Any study of the paper, for authors, year and title.
    pub study: &'a Study,
    /// Counts of the paper's claims, in the order of [`Standing::ALL`].
    pub of_paper: [usize; Standing::ALL.len()],
    /// Counts of Braid's own aims and of repeated claims.
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

/// System of a study: the first part of the id.
pub(crate) fn system(study: &Study) -> &str {
    study.id.split('/').next().unwrap_or(&study.id)
}
