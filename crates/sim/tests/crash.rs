//! Crash campaigns on toy engines: the crash model and the oracle must find every classical mistake, and no
//! mistake in a correct engine. The campaigns of the real engine are in `engine.rs`.

mod toy;

use braid_base::{Nanos, Rng};
use braid_engine::Export;
use braid_runtime::Arena;
use braid_sim::{
    Campaign, Disk, DiskOptions, Disturbance, Errors, Failure, Mix, Oracle, Report, States, Subject,
    Workload, World,
};
use std::cell::RefCell;
use std::rc::Rc;
use toy::{DISK, Layout, Mistake, Toy, VOLUME};

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
    // The first failure ends the campaign: a torn page with bytes that matter takes some luck.
    let result = Campaign { seeds: 0..100, ..campaign() }.run(&Toy { layout, mistake });
    let failure = result.expect_err(&format!("{layout:?} with {mistake:?} was taken for right"));
    println!("{layout:?}, {mistake:?}: {failure}\n");
    *failure
}

#[test]
fn in_place_engine_survives_crash_states() {
    let report = survives(Layout::InPlace);
    assert!(report.states > 250 && report.cuts_in_recovery > 5, "{report:?}");
}

#[test]
fn mapped_engine_survives_crash_states() {
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
fn unforwarded_flush_is_detected() {
    fails(Layout::InPlace, Mistake::FlushIsNotPassedOn);
}

#[test]
fn map_durable_before_data_is_detected() {
    fails(Layout::Mapped, Mistake::MapBeforeData);
}

#[test]
fn trusted_torn_map_is_detected() {
    fails(Layout::Mapped, Mistake::MapWithoutChecksum);
}

#[test]
fn early_slot_reuse_is_detected() {
    fails(Layout::Mapped, Mistake::SlotIsReusedTooEarly);
}

#[test]
fn ignored_fua_is_detected() {
    fails(Layout::Mapped, Mistake::FuaIsIgnored);
    fails(Layout::InPlace, Mistake::FuaIsIgnored);
}

#[test]
fn a_missing_lock_is_found() {
    fails(Layout::InPlace, Mistake::BlockIsNotLocked);
}

#[test]
fn failing_campaign_reproduces_same_shortened_failure() {
    let toy = Toy { layout: Layout::Mapped, mistake: Mistake::MapBeforeData };
    let first = campaign().run(&toy).unwrap_err();
    assert_eq!(campaign().run(&toy), Err(first));
}

/// Disks that fail, and guests that tolerate errors.
fn failing() -> Campaign {
    let mut campaign = campaign();
    campaign.setup.workload.errors = Errors::Tolerated;
    // The toys have no deadlines: they wait for a hung device.
    campaign.setup.workload.limit = Nanos::from_secs(600);
    campaign.setup.disturbances = Disturbance::OF_FAILING_DISKS.to_vec();
    Campaign { seeds: 0..10, ..campaign }
}

fn fails_on_failing_disks(mistake: Mistake) -> Failure {
    let result = failing().run(&Toy { layout: Layout::Mapped, mistake });
    let failure = result.expect_err(&format!("{mistake:?} was taken for right"));
    println!("{mistake:?}: {failure}\n");
    *failure
}

fn survives_failing_disks(layout: Layout) -> Report {
    let report = failing().run(&Toy { layout, mistake: Mistake::None });
    let report = report.unwrap_or_else(|failure| panic!("{layout:?}: {failure}"));
    println!("{layout:?}: {report}");
    report
}

#[test]
fn in_place_engine_survives_failing_disks() {
    let report = survives_failing_disks(Layout::InPlace);
    let struck = failing().setup.disturbances.iter().all(|kind| report.disturbances.contains_key(kind));
    assert!(struck, "{report}");
}

#[test]
fn mapped_engine_survives_failing_disks() {
    let report = survives_failing_disks(Layout::Mapped);
    assert!(report.refused_for_a_while > 0, "{report}");
}

#[test]
fn forgotten_flush_failure_is_detected() {
    fails_on_failing_disks(Mistake::FailedFlushIsForgotten);
}

/// After a kill the newest map may lie only in the disk's cache. Slots that this map calls free still belong
/// to the previous map.
#[test]
fn reliance_on_volatile_map_is_detected() {
    let toy = Toy { layout: Layout::Mapped, mistake: Mistake::FoundMapIsNotFlushed };
    let states = States { killed: 0.5, go_on: 1.0, ..campaign().states };
    let failure = Campaign { seeds: 0..100, states, ..campaign() }.run(&toy);
    println!("{}", failure.expect_err("it was taken for right"));
}

#[test]
fn acknowledged_failed_write_is_detected() {
    fails_on_failing_disks(Mistake::FailedWriteIsAcknowledged);
}

#[test]
fn endless_request_fails_campaign_after_600_seconds() {
    let failure = fails_on_failing_disks(Mistake::ErrorIsWaitedOut);
    assert!(failure.message.contains("600 s"), "{failure}");
}

#[test]
fn a_panic_is_a_failure_with_a_command() {
    let failure = fails_on_failing_disks(Mistake::ErrorPanics);
    assert!(failure.message.contains("no write ever fails"), "{failure}");
}

#[test]
fn listed_regression_runs_with_empty_seed_range() {
    let toy = Toy { layout: Layout::Mapped, mistake: Mistake::MapBeforeData };
    let found = campaign().run(&toy).unwrap_err();
    let list: &'static str = format!("# a story\ntoy {}\n", found.trial).leak();
    let again = Campaign { seeds: 0..0, regressions: list, ..campaign() }.run(&toy).unwrap_err();
    assert_eq!((again.trial, again.message), (found.trial, found.message));
}

/// Flush state of a toy after a crash: all guests have ended, and the fate of unflushed writes is random.
fn flush_after_a_crash(layout: Layout, seed: u64) -> (Option<u64>, u64) {
    let (toy, world) = (Toy { layout, mistake: Mistake::None }, World::new(seed));
    let disks = vec![Disk::new(&world, DiskOptions::ssd(DISK))];
    let oracle = Rc::new(RefCell::new(Oracle::new(VOLUME)));
    oracle.borrow_mut().keep_flush_states(20);
    let mix = Mix { read: 10, write: 60, fua: 0, flush: 10, discard: 10, zero: 0, prefetch: 0 };
    let (clock, owned, truth) = (world.clone(), disks.clone(), oracle.clone());
    world.block_on(async move {
        let volume = toy.create(clock.clone(), owned).await.expect("nothing fails");
        let (arena, workload) =
            (Arena::new(VOLUME), Workload { mix, ..Workload::default() }.with_requests(60));
        let mut rng = clock.fork_rng();
        workload.run(&clock, &volume, &truth, &arena, &mut rng).await.expect("the toy is right");
    });
    let mut stored = disks[0].store();
    world.halt();
    stored.power_cut(&mut Rng::new(seed));
    let world = World::new(seed);
    let disk = stored.attach(&world);
    let found = {
        let clock = world.clone();
        world.block_on(async move {
            let volume = toy.open(clock, vec![disk]).await.expect("nothing fails");
            let all = Arena::new(VOLUME).alloc(VOLUME).await;
            volume.read(braid_base::Bytes::ZERO, &all).await.expect("nothing fails");
            all.to_vec()
        })
    };
    world.halt();
    let oracle = oracle.borrow();
    (oracle.flush_of(&found), oracle.newest_flush())
}

#[test]
fn mapped_engine_recovers_newest_flush_state() {
    for seed in 0..20 {
        let (found, newest) = flush_after_a_crash(Layout::Mapped, seed);
        assert_eq!(found, Some(newest), "seed {seed}");
    }
}

#[test]
fn in_place_engine_often_recovers_no_flush_state() {
    let lost = (0..20).filter(|seed| flush_after_a_crash(Layout::InPlace, *seed).0.is_none()).count();
    assert!(lost > 5, "{lost} of 20");
}
