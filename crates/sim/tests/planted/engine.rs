//! Planted bugs that campaigns like those of `engine.rs` must find, each soon.

#[path = "chosen.rs"]
mod chosen;
#[path = "hunts.rs"]
mod hunts;

use braid_engine::{Bug, plant};
use braid_sim::{Campaign, Failure};
use chosen::chosen;
use hunts::hunt;
use std::time::Instant;

/// Returns the failure caused by the bug; `None` if the bug escapes.
fn find(bug: Bug) -> Option<Failure> {
    let (campaign, engine) = hunt(bug);
    plant(Some(bug));
    let start = Instant::now();
    let found = campaign.run(&engine).err();
    plant(None);
    let seconds = start.elapsed().as_secs_f32();
    match &found {
        Some(failure) => println!("{bug:?}: found after {seconds:.1} s by {}", failure.trial),
        None => println!("{bug:?}: NOT found in {seconds:.1} s"),
    }
    found.map(|failure| *failure)
}

#[test]
fn every_planted_bug_is_found() {
    let escaped: Vec<Bug> = chosen(Bug::ALL).filter(|&bug| find(bug).is_none()).collect();
    assert!(escaped.is_empty(), "no campaign finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_the_pending_log_is_found() {
    let escaped: Vec<Bug> = chosen(Bug::OF_DEATH).filter(|&bug| find(bug).is_none()).collect();
    assert!(escaped.is_empty(), "no death of the software finds {escaped:?}");
}

/// Otherwise a hunt could find the engine's own mistakes.
#[test]
fn hunts_without_planted_bug_find_nothing() {
    for bug in [
        Bug::FlushSkipped,
        Bug::FailedFlushForgotten,
        Bug::PaddingForgotten,
        Bug::SecondCopyNotWritten,
        Bug::StaleDeviceTaken,
        Bug::IntentTooLate,
        Bug::CleanExtrasTrusted,
        Bug::GoneExtraForgotten,
        Bug::SummaryBeforeGroups,
        Bug::PageWrittenOnce,
        Bug::MoveWithoutIntent,
        Bug::LostWritesRead,
        Bug::LateWriteForgotten,
        Bug::ShrinkingDropsDirty,
        Bug::FirstExtentBehind,
        Bug::LogPublishedLate,
        Bug::AreaNotFlushed,
        Bug::ReturnedWithoutCheckpoint,
        Bug::ClearedWhileWriting,
        Bug::LossNotDoubted,
        Bug::OlderReturnTaken,
        Bug::FirstOfTwoTaken,
        Bug::BehindRangeShort,
        Bug::WriteBackErrorIgnored,
    ] {
        let (campaign, engine) = hunt(bug);
        let result = Campaign { seeds: 0..1, ..campaign }.run(&engine);
        assert!(result.is_ok(), "a hunt for {bug:?} finds something else: {}", result.unwrap_err());
    }
}
