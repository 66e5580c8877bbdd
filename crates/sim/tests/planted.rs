//! Bugs that were planted in the engine: campaigns like those of `engine.rs` must find each of them, soon.
//!
//! `cargo test -p braid-sim --features planted --test planted`

#[path = "volume/adopted.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod adopted;
#[path = "volume/adopted_loss.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod adopted_loss;
#[path = "volume/adopted_sums.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod adopted_sums;
#[path = "volume/adopted_two_ssds.rs"]
#[allow(dead_code, reason = "of its tests these use one campaign")]
mod adopted_two_ssds;
#[path = "volume/ahead.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod ahead;
mod campaigns;
mod chaos;
#[path = "volume/cut.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod cut;
#[path = "volume/device_campaign.rs"]
#[allow(dead_code, reason = "of its campaigns these use one life")]
mod device_campaign;
mod engine_subject;
#[path = "volume/epochs.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod epochs;
#[path = "volume/fence.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod fence;
#[path = "volume/recovery_campaign.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod recovery_campaign;
#[path = "volume/recovery_damage.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod recovery_damage;
#[path = "volume/rig/mod.rs"]
#[allow(dead_code, reason = "tests of volumes use all of it")]
mod rig;
#[path = "volume/toy_policies/mod.rs"]
#[allow(dead_code, unused_imports, reason = "tests of volumes use all of it")]
mod toy_policies;
#[path = "volume/witness.rs"]
#[allow(dead_code, reason = "of its tests these use two")]
mod witness;

use braid_base::{KIB, MIB, Nanos};
use braid_engine::{Bug, plant};
use braid_sim::{Campaign, DiskOptions, Disturbance, Errors, Failure, Mix, States};
use engine_subject::{Engine, campaign};
use std::panic::catch_unwind;
use std::time::Instant;

/// Seeds after which a bug counts as not found.
const SEEDS: u64 = 300;

/// Guests that make many batches of the journal.
const BUSY_JOURNAL: Mix = Mix { read: 5, write: 30, fua: 20, flush: 30, discard: 10, zero: 0, prefetch: 0 };

/// Where a bug is looked for.
fn hunt(bug: Bug) -> (Campaign, Engine) {
    let mut campaign = campaign("planted", "every_planted_bug_is_found", SEEDS);
    campaign.setup.spans = vec![1];
    (campaign.shortening, campaign.states) = (0, States { go_on: 0.2, ..campaign.states });
    let chaos = Engine { chaos: true, ..Engine::wardrop() };
    let setup = &mut campaign.setup;
    let engine = match bug {
        Bug::FailedFlushForgotten => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::LossyFlushes];
            // Without extra copies: the engine writes back what it lost.
            Engine { checkpoints: false, ..Engine::wardrop() }
        }
        Bug::LostWritesRead => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::LossyFlushes];
            setup.workload.mix = Mix { discard: 10, ..BUSY_JOURNAL };
            campaign.states.go_on = 0.5;
            chaos
        }
        Bug::NumberOfReaderTaken => {
            // Openings that fail after they have read the log.
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::MissingDevice, Disturbance::WriteErrors];
            campaign.states = States { killed: 0.0, deaths: 0.8, go_on: 1.0, ..campaign.states };
            Engine { copies: 2, ..Engine::wardrop() }
        }
        Bug::LogPublishedLate | Bug::LogForgottenEarly | Bug::OlderLogReplayed => {
            campaign.states = States { killed: 0.0, deaths: 0.8, go_on: 1.0, ..campaign.states };
            Engine { checkpoints: false, ..Engine::wardrop() }
        }
        Bug::PaddingForgotten => {
            setup.workload.largest = KIB * 9;
            Engine { extent_size: KIB * 256, ..chaos }
        }
        Bug::FirstExtentBehind => {
            setup.spans = vec![2, 8, 64];
            Engine { copies: 2, ..chaos }
        }
        Bug::OneMapImage => {
            let (shared, engine) = campaigns::in_turn("every_planted_bug_is_found", SEEDS);
            campaign = Campaign { name: "planted", shortening: 0, ..shared };
            Engine { checkpoints: true, ..engine }
        }
        Bug::MissedWriteUnrecorded => {
            let (shared, engine) = campaigns::in_turn_of_two("every_planted_bug_is_found", SEEDS);
            campaign = Campaign { name: "planted", shortening: 0, ..shared };
            engine
        }
        Bug::OpeningNotAnnounced => {
            campaign.states = States { killed: 0.4, go_on: 1.0, ..campaign.states };
            Engine::wardrop()
        }
        Bug::SecondCopyNotWritten => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::ReadErrors];
            Engine { copies: 2, ..chaos }
        }
        Bug::StaleDeviceTaken => {
            (setup.disturbances, setup.stale_openings) = (vec![Disturbance::StaleDevice], 2);
            campaign.states.go_on = 1.0;
            chaos
        }
        Bug::LateWriteForgotten => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::Stalls];
            Engine { checkpoints: false, ..Engine::wardrop() }
        }
        Bug::IntentTooLate | Bug::BehindIsRead | Bug::NoResync => Engine { copies: 2, ..chaos },
        Bug::CacheTableNotWritten | Bug::LeftCacheEntryKept | Bug::CachePageAheadOfJournal => {
            Engine::write_back()
        }
        Bug::CleanExtrasTrusted
        | Bug::CleanExtrasNotSaved
        | Bug::CleanBlockReusedEarly
        | Bug::ForgottenExtrasLeft
        | Bug::OlderBytesPromoted
        | Bug::ExtraIntentSkipped => {
            campaign.states.go_on = 1.0;
            Engine::read_cache()
        }
        Bug::GoneExtraForgotten => {
            // Few blocks, and hardly a batch: writes to those that have just been evicted.
            setup.workload.mix =
                Mix { read: 50, write: 45, fua: 0, flush: 1, discard: 4, zero: 0, prefetch: 0 };
            setup.workload.largest = KIB * 8;
            Engine { size: KIB * 416, checkpoints: false, ..Engine::read_cache() }
        }
        Bug::JournalGapLeft => {
            // One device fails after the other has come through a crash.
            setup.workload.mix = BUSY_JOURNAL;
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances =
                vec![Disturbance::MissingDevice, Disturbance::WriteErrors, Disturbance::LossyFlushes];
            campaign.states.go_on = 1.0;
            Engine { copies: 2, checkpoints: false, ..Engine::wardrop() }
        }
        Bug::SummaryBeforeGroups => {
            let test = "every_planted_bug_of_the_summary_is_found";
            let (shared, engine) = campaigns::checkpoints(test, SEEDS, Engine::of_large_map());
            campaign = Campaign { name: "planted", shortening: 0, ..shared };
            engine
        }
        Bug::PageWrittenOnce => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = Disturbance::OF_FAILING_DISKS.to_vec();
            campaign.states.go_on = 0.5;
            Engine { copies: 2, ..Engine::wardrop() }
        }
        Bug::MoveWithoutIntent => {
            // Extents move only if there is a third device, and it fails before what moved there is flushed. Where a guest has just written, the
            // journal says all the same that copies may differ: so guests leave most spans alone for long.
            setup.workload.errors = Errors::Tolerated;
            (setup.workload.pause, setup.workload.requests) = (Nanos::from_secs(20), 30);
            campaign.states.every = 500;
            setup.disturbances = vec![Disturbance::LossyFlushes];
            setup.disks.push(DiskOptions::ssd(MIB * 5));
            campaign.states.go_on = 1.0;
            Engine { copies: 2, ..chaos }
        }
        Bug::AheadNotDropped => {
            setup.workload.streams = 0.6;
            Engine { ahead: MIB, cache_extents: 0, ..chaos }
        }
        Bug::ShrinkingDropsDirty => {
            // Under one that caches what guests write, and others that allow it less.
            setup.disturbances = vec![Disturbance::PolicyChanges];
            let cache =
                |share: u32| format!("cache,cache={share}%,mode=write-back,dirty-high=90%,dirty-low=80%");
            let changes = vec![cache(2), cache(50), cache(100)];
            Engine { policy: cache(100), changes, ..Engine::wardrop() }
        }
        _ => chaos,
    };
    (campaign, engine)
}

/// What a hunt for a bug finds; `None` if the bug escapes.
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
    let escaped: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| find(*bug).is_none()).collect();
    assert!(escaped.is_empty(), "no campaign finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_the_pending_log_is_found() {
    let escaped: Vec<Bug> = Bug::OF_DEATH.into_iter().filter(|bug| find(*bug).is_none()).collect();
    assert!(escaped.is_empty(), "no death of the software finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_the_summary_is_found() {
    let escaped: Vec<Bug> = Bug::OF_SUMMARY.into_iter().filter(|bug| find(*bug).is_none()).collect();
    assert!(escaped.is_empty(), "no campaign with a summary of the map finds {escaped:?}");
}

/// The first seed of a trial that fails with this bug.
fn found_by(bug: Bug, trial: fn(u64)) -> Option<u64> {
    plant(Some(bug));
    let found = (0..SEEDS).find(|&seed| catch_unwind(|| trial(seed)).is_err());
    plant(None);
    println!("{bug:?}: found by seed {found:?}");
    found
}

#[test]
fn every_planted_bug_of_epochs_is_found() {
    let bugs = Bug::OF_EPOCHS.into_iter();
    let escaped: Vec<Bug> = bugs.filter(|&bug| found_by(bug, epochs::lose_ssd).is_none()).collect();
    assert!(escaped.is_empty(), "no loss of an SSD finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_recovery_is_found() {
    let bugs = Bug::OF_RECOVERY.into_iter();
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, recovery_campaign::recover_at_work).is_none()).collect();
    assert!(escaped.is_empty(), "no power cut during a recovery finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_damaged_journals_is_found() {
    let bugs = Bug::OF_DAMAGE.into_iter();
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, recovery_campaign::recover_with_bad_places).is_none()).collect();
    assert!(escaped.is_empty(), "no power cut during a recovery with bad places finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_adoption_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::AdoptedNotFlushed => {
                |_| adopted_loss::what_was_written_back_is_durable_before_the_ssd_is_given_up()
            }
            Bug::SumsNotNoted => |_| adopted_sums::a_power_cut_at_any_point_makes_no_disk_look_changed(),
            Bug::DirtyWithoutJournal => adopted_two_ssds::lose_one_of_two_ssds,
            _ => |_| adopted::an_ssd_that_is_lost_while_dirty_costs_the_ranges_that_are_named_and_no_others(),
        }
    };
    let bugs = Bug::OF_ADOPTION.into_iter();
    let escaped: Vec<Bug> = bugs.filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no loss of an SSD finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_streams_is_found() {
    let bugs = Bug::OF_STREAMS.into_iter();
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, ahead::move_while_reading_ahead).is_none()).collect();
    assert!(escaped.is_empty(), "no extent that moves finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_devices_is_found() {
    let bugs = Bug::OF_DEVICES.into_iter();
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, device_campaign::live_and_crash).is_none()).collect();
    assert!(escaped.is_empty(), "no life of devices finds {escaped:?}");
    // Without a planted bug they find nothing.
    (0..6).for_each(device_campaign::live_and_crash);
}

#[test]
fn every_planted_bug_of_lies_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::WitnessIgnored => |_| witness::an_ssd_that_forgot_promised_batches_is_refused(),
            Bug::ChangesNotListed => {
                |_| witness::what_was_flushed_to_the_disk_does_not_read_as_zeros_without_its_map()
            }
            Bug::FenceSkipped => |_| fence::no_flush_succeeds_once_another_opening_has_been_noticed(),
            _ => |_| cut::a_disk_of_a_mirror_that_was_cut_gets_its_copies_anew(),
        }
    };
    let escaped: Vec<Bug> =
        Bug::OF_LIES.into_iter().filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no device that lies finds {escaped:?}");
}

/// Or a hunt would find the engine's own mistakes.
#[test]
fn without_a_planted_bug_the_same_hunts_find_nothing() {
    for bug in [
        Bug::FlushSkipped,
        Bug::FailedFlushForgotten,
        Bug::PaddingForgotten,
        Bug::SecondCopyNotWritten,
        Bug::StaleDeviceTaken,
        Bug::IntentTooLate,
        Bug::CleanExtrasTrusted,
        Bug::GoneExtraForgotten,
        Bug::PageWrittenOnce,
        Bug::MoveWithoutIntent,
        Bug::LostWritesRead,
        Bug::LateWriteForgotten,
        Bug::ShrinkingDropsDirty,
        Bug::FirstExtentBehind,
        Bug::MissedWriteUnrecorded,
        Bug::LogPublishedLate,
    ] {
        let (campaign, engine) = hunt(bug);
        let result = Campaign { seeds: 0..6, ..campaign }.run(&engine);
        assert!(result.is_ok(), "a hunt for {bug:?} finds something else: {}", result.unwrap_err());
    }
}
