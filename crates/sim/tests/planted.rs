//! Planted bugs of the engine: campaigns like those of `engine.rs` must find each bug, soon.
//!
//! `cargo test -p braid-sim --features planted --test planted`; with `BRAID_PLANTED=NAME` for one bug.

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
#[path = "volume/bad_regions.rs"]
#[allow(dead_code, reason = "other tests of volumes use parts of it")]
mod bad_regions;
mod campaigns;
mod chaos;
#[path = "volume/cut.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod cut;
#[path = "volume/deadlines.rs"]
#[allow(dead_code, reason = "other tests of volumes use parts of it")]
mod deadlines;
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
mod hunts;
#[path = "volume/lapses.rs"]
#[allow(dead_code, reason = "of its tests these use one life")]
mod lapses;
#[path = "volume/lease.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod lease;
#[path = "volume/lying.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod lying;
#[path = "volume/openings.rs"]
#[allow(dead_code, reason = "other tests of volumes use parts of it")]
mod openings;
#[path = "volume/outlives_ssd.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod outlives_ssd;
#[path = "volume/recovery_campaign.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod recovery_campaign;
#[path = "volume/recovery_damage.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod recovery_damage;
#[path = "volume/replace.rs"]
#[allow(dead_code, reason = "of its tests these use one description")]
mod replace;
#[path = "volume/resize.rs"]
#[allow(dead_code, reason = "of its tests these use one campaign")]
mod resize;
#[path = "volume/rig/mod.rs"]
#[allow(dead_code, reason = "tests of volumes use all of it")]
mod rig;
#[path = "volume/toy_policies/mod.rs"]
#[allow(dead_code, unused_imports, reason = "tests of volumes use all of it")]
mod toy_policies;
#[path = "volume/two_caching_ssds.rs"]
#[allow(dead_code, reason = "of its tests these use one")]
mod two_caching_ssds;
#[path = "volume/undecided.rs"]
#[allow(dead_code, reason = "of its tests these use one life")]
mod undecided;
#[path = "volume/unwritable.rs"]
#[allow(dead_code, reason = "other tests of volumes use parts of it")]
mod unwritable;
#[path = "volume/witness.rs"]
#[allow(dead_code, reason = "of its tests these use two")]
mod witness;

#[path = "volume/unread_journal.rs"]
#[allow(dead_code, reason = "of its tests these use one life")]
mod unread_journal;
#[path = "volume/unrecorded.rs"]
#[allow(dead_code, reason = "of its tests these use the two lives")]
mod unrecorded;

use braid_engine::{Bug, plant};
use braid_sim::{Campaign, Failure};
use hunts::hunt;
use std::panic::catch_unwind;
use std::time::Instant;

/// Number of seeds after which a bug counts as not found.
const SEEDS: u64 = 300;

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

/// Returns all of `bugs`, or the bug named in the environment.
fn chosen(bugs: &'static [Bug]) -> impl Iterator<Item = Bug> {
    let asked = std::env::var("BRAID_PLANTED").ok();
    let is_chosen = move |bug: &Bug| asked.as_ref().is_none_or(|asked| format!("{bug:?}") == *asked);
    bugs.iter().copied().filter(is_chosen)
}

/// Returns the first seed with a failing trial under this bug.
fn found_by(bug: Bug, trial: fn(u64)) -> Option<u64> {
    let start = Instant::now();
    plant(Some(bug));
    let found = (0..SEEDS).find(|&seed| catch_unwind(|| trial(seed)).is_err());
    plant(None);
    println!("{bug:?}: found after {:.1} s by seed {found:?}", start.elapsed().as_secs_f32());
    found
}

#[test]
fn every_planted_bug_of_epochs_is_found() {
    let bugs = chosen(Bug::OF_EPOCHS);
    let escaped: Vec<Bug> = bugs.filter(|&bug| found_by(bug, epochs::lose_ssd).is_none()).collect();
    assert!(escaped.is_empty(), "no loss of an SSD finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_recovery_is_found() {
    let bugs = chosen(Bug::OF_RECOVERY);
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, recovery_campaign::recover_at_work).is_none()).collect();
    assert!(escaped.is_empty(), "no power cut during a recovery finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_damaged_journals_is_found() {
    let bugs = chosen(Bug::OF_DAMAGE);
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
    let bugs = chosen(Bug::OF_ADOPTION);
    let escaped: Vec<Bug> = bugs.filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no loss of an SSD finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_streams_is_found() {
    let bugs = chosen(Bug::OF_STREAMS);
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, ahead::move_while_reading_ahead).is_none()).collect();
    assert!(escaped.is_empty(), "no extent that moves finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_resync_is_found() {
    let bugs = chosen(Bug::OF_RESYNC);
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::ClearedBesideBatch => lapses::end_of_resync,
            _ => |seed| {
                undecided::loses_a_device(seed, undecided::Variant::default());
            },
        }
    };
    let escaped: Vec<Bug> = bugs.filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no end of a resync finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_records_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::MissedWriteUnrecorded => unrecorded::a_copy_misses_a_write,
            _ => unrecorded::a_flush_loses_idle_spans,
        }
    };
    let escaped: Vec<Bug> =
        chosen(Bug::OF_RECORDS).filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no crash after a failure of one copy finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_devices_is_found() {
    let bugs = chosen(Bug::OF_DEVICES);
    let escaped: Vec<Bug> =
        bugs.filter(|&bug| found_by(bug, device_campaign::live_and_crash).is_none()).collect();
    assert!(escaped.is_empty(), "no life of devices finds {escaped:?}");
    // Without a planted bug the trials find nothing.
    (0..6).for_each(device_campaign::live_and_crash);
}

#[test]
fn every_planted_bug_of_resize_is_found() {
    let trial = |seed| resize::campaign(&resize::Plan { seed, ..resize::PLAN }, 16);
    let escaped: Vec<Bug> = chosen(Bug::OF_RESIZE).filter(|&bug| found_by(bug, trial).is_none()).collect();
    assert!(escaped.is_empty(), "no power cut during a resize finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_loss_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::DirtyCopiesNotListed => |seed| {
                let _counts = two_caching_ssds::lives_end_with_one_of_two_ssds(seed);
            },
            Bug::ListNamedEarly => outlives_ssd::power_fails_while_a_list_is_written,
            _ => |seed| {
                outlives_ssd::lives_end_with_the_ssd(seed..seed + 1);
            },
        }
    };
    let escaped: Vec<Bug> = chosen(Bug::OF_LOSS).filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no power cut that takes the SSD finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_unread_journals_is_found() {
    let trial = unread_journal::one_journal_is_not_read;
    let escaped: Vec<Bug> = chosen(Bug::OF_UNREAD).filter(|&bug| found_by(bug, trial).is_none()).collect();
    assert!(escaped.is_empty(), "no journal that cannot be read finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_lies_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::WitnessIgnored => |_| witness::an_ssd_that_forgot_promised_batches_is_refused(),
            Bug::ForgetfulTaken => |_| lying::a_half_that_lost_acknowledged_flushes_is_made_again(),
            Bug::ChangesNotListed => {
                |_| witness::what_was_flushed_to_the_disk_does_not_read_as_zeros_without_its_map()
            }
            Bug::FenceSkipped => |_| fence::no_flush_succeeds_once_another_opening_has_been_noticed(),
            _ => |_| cut::a_disk_of_a_mirror_that_was_cut_gets_its_copies_anew(),
        }
    };
    let escaped: Vec<Bug> = chosen(Bug::OF_LIES).filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no device that lies finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_leases_is_found() {
    let trial = lease::second_host_is_refused_while_owner_is_idle;
    let escaped: Vec<Bug> = chosen(Bug::OF_LEASES).filter(|&bug| found_by(bug, trial).is_none()).collect();
    assert!(escaped.is_empty(), "no opening on a second host finds {escaped:?}");
    trial(0);
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
        let result = Campaign { seeds: 0..6, ..campaign }.run(&engine);
        assert!(result.is_ok(), "a hunt for {bug:?} finds something else: {}", result.unwrap_err());
    }
}
