//! Planted bugs that power cuts, losses and lives of devices of a volume must find.

#[path = "chosen.rs"]
mod chosen;

use crate::{
    adopted, adopted_loss, adopted_sums, adopted_two_ssds, ahead, cut, device_campaign, epochs, fence,
    lapses, lease, lying, outlives_ssd, recovery_campaign, resize, two_caching_ssds, undecided,
    unread_journal, unrecorded, witness,
};
use braid_engine::{Bug, plant};
use chosen::{chosen, seeds};
use std::panic::catch_unwind;
use std::time::Instant;

/// Returns the first seed with a failing trial under this bug.
fn found_by(bug: Bug, trial: fn(u64)) -> Option<u64> {
    let start = Instant::now();
    plant(Some(bug));
    let found = seeds(bug).find(|&seed| catch_unwind(|| trial(seed)).is_err());
    plant(None);
    println!("{bug:?}: found after {:.1} s by seed {found:?}", start.elapsed().as_secs_f32());
    found
}

/// Checks that the trial of each bug fails for one of the first seeds.
#[track_caller]
fn assert_found(bugs: &'static [Bug], trial: impl Fn(Bug) -> fn(u64)) {
    let escaped: Vec<Bug> = chosen(bugs).filter(|&bug| found_by(bug, trial(bug)).is_none()).collect();
    assert!(escaped.is_empty(), "no trial finds {escaped:?}");
}

#[test]
fn every_planted_bug_of_epochs_is_found() {
    assert_found(Bug::OF_EPOCHS, |_| epochs::lose_ssd);
}

#[test]
fn every_planted_bug_of_recovery_is_found() {
    assert_found(Bug::OF_RECOVERY, |_| recovery_campaign::recover_at_work);
}

#[test]
fn every_planted_bug_of_damaged_journals_is_found() {
    assert_found(Bug::OF_DAMAGE, |_| recovery_campaign::recover_with_bad_places);
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
    assert_found(Bug::OF_ADOPTION, trial);
}

#[test]
fn every_planted_bug_of_streams_is_found() {
    assert_found(Bug::OF_STREAMS, |_| ahead::move_while_reading_ahead);
}

#[test]
fn every_planted_bug_of_resync_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::ClearedBesideBatch => lapses::end_of_resync,
            _ => |seed| {
                undecided::loses_a_device(seed, undecided::Variant::default());
            },
        }
    };
    assert_found(Bug::OF_RESYNC, trial);
}

#[test]
fn every_planted_bug_of_records_is_found() {
    let trial = |bug| -> fn(u64) {
        match bug {
            Bug::MissedWriteUnrecorded => unrecorded::a_copy_misses_a_write,
            _ => unrecorded::a_flush_loses_idle_spans,
        }
    };
    assert_found(Bug::OF_RECORDS, trial);
}

#[test]
fn every_planted_bug_of_devices_is_found() {
    assert_found(Bug::OF_DEVICES, |_| device_campaign::live_and_crash);
    // Without a planted bug the trials find nothing.
    (0..6).for_each(device_campaign::live_and_crash);
}

#[test]
fn every_planted_bug_of_resize_is_found() {
    let trial = |seed| resize::campaign(&resize::Plan { seed, ..resize::PLAN }, 16);
    assert_found(Bug::OF_RESIZE, |_| trial);
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
    assert_found(Bug::OF_LOSS, trial);
}

#[test]
fn every_planted_bug_of_unread_journals_is_found() {
    let trial = unread_journal::one_journal_is_not_read;
    assert_found(Bug::OF_UNREAD, |_| trial);
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
    assert_found(Bug::OF_LIES, trial);
}

#[test]
fn every_planted_bug_of_leases_is_found() {
    let trial = lease::second_host_is_refused_while_owner_is_idle;
    assert_found(Bug::OF_LEASES, |_| trial);
    trial(0);
}
