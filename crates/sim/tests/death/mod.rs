//! Crashes of the software alone: devices keep their content, lasting memory keeps the pending log, and all
//! acknowledged writes are read again. Power cuts, lives without a log, and openings that die half-way come
//! in between.

use super::{Engine, adopted, adopting, campaign, campaigns, dirty, fail, hystor, run};
use braid_base::{DeviceClass, KIB, MIB};
use braid_sim::{Blank, Campaign, DiskOptions, Disturbance, Errors, Mix, States};

/// Most lives end with a death of the software, the others with a power cut.
pub fn deaths(mut campaign: Campaign) -> Campaign {
    campaign.states = States { killed: 0.0, deaths: 0.75, go_on: 0.5, every: 90, ..campaign.states };
    campaign.setup.workload.mix = Mix { flush: 3, fua: 1, ..campaign.setup.workload.mix };
    campaign
}

#[test]
fn acknowledged_writes_survive_daemon_crash_under_wardrop() {
    let campaign = campaign("death", "death::acknowledged_writes_survive_daemon_crash_under_wardrop", 6);
    run(&deaths(campaign), &Engine::wardrop());
}

#[test]
fn acknowledged_writes_survive_daemon_crash_under_random_policy() {
    let test = "death::acknowledged_writes_survive_daemon_crash_under_random_policy";
    let mut campaign = deaths(campaign("death-chaos", test, 4));
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    run(&campaign, &Engine { chaos: true, ..Engine::wardrop() });
}

#[test]
fn acknowledged_writes_survive_daemon_crash_with_two_copies() {
    let test = "death::acknowledged_writes_survive_daemon_crash_with_two_copies";
    let campaign = deaths(campaign("death-copies", test, 3));
    run(&campaign, &Engine { chaos: true, copies: 2, ..Engine::wardrop() });
}

/// The software dies, and at its return a device is missing, or fails.
#[test]
fn acknowledged_writes_survive_daemon_crash_and_device_loss() {
    let test = "death::acknowledged_writes_survive_daemon_crash_and_device_loss";
    let mut campaign = deaths(campaign("death-missing", test, 4));
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disturbances = vec![Disturbance::MissingDevice, Disturbance::WriteErrors];
    run(&campaign, &Engine { copies: 2, ..Engine::random(4) });
}

/// The halves of a mirror are missing in turn, and openings die. An opening recorded on one half alone that
/// the other half was outdated, and died. The two halves then counted as used apart.
#[test]
fn crashed_openings_of_one_half_do_not_split_mirror() {
    let test = "death::crashed_openings_of_one_half_do_not_split_mirror";
    let (mut campaign, engine) = campaigns::idle_spans_in_turn(test, 4);
    (campaign.name, campaign.states.deaths) = ("death-in-turn", 0.6);
    run(&campaign, &engine);
}

#[test]
fn dirty_blocks_outlive_the_software() {
    let campaign = campaign("death-dirty", "death::dirty_blocks_outlive_the_software", 2);
    run(&deaths(dirty(campaign)), &Engine::write_back());
}

#[test]
fn writes_beside_clean_blocks_outlive_the_software() {
    let campaign = campaign("death-clean", "death::writes_beside_clean_blocks_outlive_the_software", 3);
    run(&deaths(campaign), &Engine::read_cache());
}

#[test]
fn writes_to_a_cache_in_either_mode_outlive_the_software() {
    let test = "death::writes_to_a_cache_in_either_mode_outlive_the_software";
    for (name, policy) in [
        ("death-back", "cache,cache=5%,mode=write-back,dirty-high=20%,dirty-low=5%"),
        ("death-past", "cache,cache=20%,mode=write-back,bypass=64KiB,dirty-high=40%,dirty-low=20%"),
    ] {
        let mut campaign = deaths(campaign(name, test, 3));
        campaign.setup.workload.largest = KIB * 64;
        run(&campaign, &Engine { policy: policy.to_owned(), cache_extents: 2, ..Engine::wardrop() });
    }
}

#[test]
fn acknowledged_writes_survive_daemon_crash_under_hystor() {
    let campaign =
        hystor(campaign("death-hystor", "death::acknowledged_writes_survive_daemon_crash_under_hystor", 2));
    run(&deaths(campaign), &Engine::hystor());
}

#[test]
fn acknowledged_writes_survive_daemon_crash_under_exclusive() {
    let test = "death::acknowledged_writes_survive_daemon_crash_under_exclusive";
    let campaign = deaths(dirty(campaign("death-exclusive", test, 2)));
    let policy = "exclusive,cache=40%,page=64KiB,period=15ms,rate=100MB".to_owned();
    run(&campaign, &Engine { policy, cache_extents: 2, ..Engine::wardrop() });
}

#[test]
fn a_window_outlives_the_software() {
    let mut campaign = deaths(campaign("death-pass", "death::a_window_outlives_the_software", 3));
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    let policy = "pass,window=64KiB,max-lag=160KiB,idle=2ms,base=100us".to_owned();
    run(&campaign, &Engine { copies: 2, policy, ..Engine::wardrop() });
}

#[test]
fn acknowledged_writes_on_adopted_disk_survive_daemon_crash() {
    let test = "death::acknowledged_writes_on_adopted_disk_survive_daemon_crash";
    run(&deaths(adopted("death-adopted", test, 3)), &adopting(Engine::write_back()));
}

#[test]
fn acknowledged_writes_survive_daemon_crash_in_random_setup() {
    let test = "death::acknowledged_writes_survive_daemon_crash_in_random_setup";
    let mut campaign = deaths(campaign("death-configurations", test, 5));
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    run(&campaign, &Engine::random(5));
}

/// A failed flush may have lost data that the log refers to: then the log is no better than the journal.
#[test]
fn daemon_crash_after_failed_flush_restores_no_lost_bytes() {
    let test = "death::daemon_crash_after_failed_flush_restores_no_lost_bytes";
    let mut campaign = deaths(campaign("death-lossy", test, 6));
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disturbances = vec![Disturbance::LossyFlushes];
    campaign.setup.workload.mix.flush = 8;
    run(&campaign, &Engine { chaos: true, past: false, ..Engine::wardrop() });
}

/// The same with two copies and a third device, so that a device with a failed flush is failed.
#[test]
fn daemon_crash_after_device_failure_restores_no_lost_bytes() {
    let test = "death::daemon_crash_after_device_failure_restores_no_lost_bytes";
    let mut campaign = deaths(campaign("death-given-up", test, 4));
    fail(&mut campaign, Errors::Tolerated);
    // A disk that loses power while the machine continues has lost data that the log refers to. An engine
    // that dies before the first failed request leaves no sign of the loss.
    let unknown = [Disturbance::Deaths];
    campaign.setup.disturbances.retain(|kind| !unknown.contains(kind));
    campaign.setup.disks.push(DiskOptions::ssd(MIB * 5).with_blank(Blank::Garbage(1)));
    campaign.setup.workload.mix.flush = 8;
    let classes = vec![DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Ssd];
    run(&campaign, &Engine { chaos: true, past: false, copies: 2, classes, ..Engine::wardrop() });
}
