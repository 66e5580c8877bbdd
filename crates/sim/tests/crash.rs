//! Campaigns of crashes on toy engines: the crash model and the oracle must find every classical mistake, and none in an
//! engine that is right. The real engine's campaigns are in `engine.rs`.

mod toy;

use braid_sim::{Campaign, DiskOptions, Failure, Report, States};
use toy::{DISK, Layout, Mistake, Toy};

const COMMAND: &str = "cargo test -p braid-sim --test crash -- --nocapture";

fn campaign() -> Campaign {
    let states = States { every: 12, outcomes: 2, ..States::default() };
    let disks = vec![DiskOptions::ssd(DISK)];
    Campaign { seeds: 0..6, states, ..Campaign::new("toy", COMMAND, disks) }
}

fn survives(layout: Layout) -> Report {
    let report = campaign().run(&Toy { layout, mistake: Mistake::None });
    let report = report.unwrap_or_else(|failure| panic!("{layout:?}: {failure}"));
    println!("{layout:?}: {report}");
    report
}

fn fails(layout: Layout, mistake: Mistake) -> Failure {
    // The first that is found ends it: a torn page with bytes that matter takes some luck.
    let result = Campaign { seeds: 0..100, ..campaign() }.run(&Toy { layout, mistake });
    let failure = result.expect_err(&format!("{layout:?} with {mistake:?} was taken for right"));
    println!("{layout:?}, {mistake:?}: {failure}\n");
    *failure
}

#[test]
fn an_engine_that_writes_in_place_survives_every_crash_state() {
    let report = survives(Layout::InPlace);
    assert!(report.states > 250 && report.cuts_in_recovery > 5, "{report:?}");
}

#[test]
fn an_engine_that_flushes_data_then_map_survives_every_crash_state() {
    let report = survives(Layout::Mapped);
    assert!(report.states > 250 && report.cuts_in_recovery > 5, "{report:?}");
}

#[test]
fn an_engine_without_a_journal_loses_flushed_data() {
    let failure = fails(Layout::Mapped, Mistake::MapIsNeverWritten);
    assert!(failure.message.contains("durable"), "{failure}");
    assert!(failure.to_string().contains("replay: BRAID_CRASH_TRIAL=seed=0,"), "{failure}");
}

#[test]
fn a_flush_that_does_not_flush_is_found() {
    fails(Layout::InPlace, Mistake::FlushIsNotPassedOn);
}

#[test]
fn a_map_that_is_durable_before_its_data_is_found() {
    fails(Layout::Mapped, Mistake::MapBeforeData);
}

#[test]
fn a_torn_map_that_is_trusted_is_found() {
    fails(Layout::Mapped, Mistake::MapWithoutChecksum);
}

#[test]
fn a_slot_that_is_reused_too_early_is_found() {
    fails(Layout::Mapped, Mistake::SlotIsReusedTooEarly);
}

#[test]
fn fua_that_is_ignored_is_found() {
    fails(Layout::Mapped, Mistake::FuaIsIgnored);
    fails(Layout::InPlace, Mistake::FuaIsIgnored);
}

#[test]
fn a_missing_lock_is_found() {
    fails(Layout::InPlace, Mistake::BlockIsNotLocked);
}

#[test]
fn a_failure_is_found_again_and_shortened_the_same_way() {
    let toy = Toy { layout: Layout::Mapped, mistake: Mistake::MapBeforeData };
    let first = campaign().run(&toy).unwrap_err();
    assert_eq!(campaign().run(&toy), Err(first));
}
