//! The planted bugs to look for, in both programmes of tests: all, or the one in `BRAID_PLANTED=NAME`.

use braid_engine::Bug;
use std::ops::Range;

/// Number of seeds after which a bug counts as not found.
pub const SEEDS: u64 = 300;

/// Seeds of the search for a bug. Searches that take long begin with a seed that found the bug when last
/// looked: from seed 0 on, these took half of the time of all searches. Any change of the engine may make
/// another seed find the bug.
pub fn seeds(bug: Bug) -> Range<u64> {
    let first = match bug {
        Bug::PageWrittenOnce => 10,
        Bug::GoneExtraForgotten => 19,
        Bug::WriteBackIgnoresWrites => 11,
        Bug::JournalGapLeft => 17,
        Bug::MoveWithoutIntent => 21,
        Bug::AheadNotDropped => 89,
        Bug::LateWriteForgotten => 150,
        Bug::NumberOfReaderTaken => 62,
        Bug::OlderReturnTaken => 34,
        Bug::DirtyWithoutJournal => 15,
        Bug::WholeRecordedEarly => 9,
        Bug::OneStatePage => 8,
        Bug::MetadataNamedEarly => 4,
        Bug::EpochNotFlushed => 3,
        Bug::SegmentsReusedEarly => 6,
        Bug::AppliedBeforeFlush => 7,
        Bug::UndecidedNotCopied => 22,
        Bug::UndecidedRead => 38,
        Bug::UndecidedClosed => 63,
        _ => 0,
    };
    first..first + SEEDS
}

/// Returns all of `bugs`, or the bug named in the environment.
pub fn chosen(bugs: &'static [Bug]) -> impl Iterator<Item = Bug> {
    let asked = std::env::var("BRAID_PLANTED").ok();
    let is_chosen = move |bug: &Bug| asked.as_ref().is_none_or(|asked| format!("{bug:?}") == *asked);
    bugs.iter().copied().filter(is_chosen)
}
