//! The engine against the crash model: power cuts, kills, disturbances, then every byte against the oracle.
//!
//! Each campaign has as many seeds as some five seconds of a processor allow. `BRAID_CRASH_SEEDS=n` runs n
//! seeds of each (`make crash SEEDS=n`).

mod campaigns;
mod chaos;
mod death;
#[path = "engine/devices.rs"]
mod devices;
mod engine_subject;
#[path = "engine/heirs.rs"]
mod heirs;
#[path = "engine/places.rs"]
mod places;
#[cfg(debug_assertions)]
#[path = "planted/engine.rs"]
mod planted;
#[path = "engine/published.rs"]
mod published;
#[path = "engine/summary.rs"]
mod summary;

use braid_base::{DeviceClass, KIB, MIB, Nanos};
use braid_engine::ErrorKind;
use braid_sim::{Blank, Campaign, DiskOptions, Disturbance, Errors, Mix, States};
use campaigns::{adopted, adopting};
use engine_subject::{Engine, campaign};

fn run(campaign: &Campaign, engine: &Engine) {
    let asked =
        std::env::var("BRAID_CRASH_SEEDS").ok().map(|n| n.parse().expect("BRAID_CRASH_SEEDS is a number"));
    let seeds = 0..asked.unwrap_or(campaign.seeds.end);
    match (Campaign { seeds, ..campaign.clone() }).run(engine) {
        Ok(report) => println!("campaign {}: {report}", campaign.name),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn wardrop_keeps_flushed_data() {
    run(&campaign("wardrop", "wardrop_keeps_flushed_data", 13), &Engine::wardrop());
}

#[test]
fn any_legal_policy_decision_keeps_flushed_data() {
    let campaign = campaign("chaos", "any_legal_policy_decision_keeps_flushed_data", 7);
    run(&campaign, &Engine { chaos: true, ..Engine::wardrop() });
}

#[test]
fn two_required_copies_keep_flushed_data() {
    let campaign = campaign("two-copies", "two_required_copies_keep_flushed_data", 2);
    run(&campaign, &Engine { chaos: true, copies: 2, ..Engine::wardrop() });
}

#[test]
fn large_extents_with_small_writes_keep_flushed_data() {
    // Parts of 16 KiB: every first write to a part must fill the rest with zeros.
    let mut campaign = campaign("large-extents", "large_extents_with_small_writes_keep_flushed_data", 20);
    campaign.setup.workload.largest = KIB * 9;
    run(&campaign, &Engine { extent_size: KIB * 256, ..Engine::wardrop() });
}

#[test]
fn wrapped_journal_keeps_flushed_data() {
    let mut campaign = campaign("journal", "wrapped_journal_keeps_flushed_data", 3);
    campaign.states = States { every: 100, ..campaign.states };
    let workload = &mut campaign.setup.workload;
    (workload.requests, workload.largest) = (2_000, KIB * 8);
    workload.mix = Mix { read: 5, write: 20, fua: 30, flush: 40, discard: 15, zero: 0, prefetch: 0 };
    run(&campaign, &Engine { checkpoints: false, ..Engine::wardrop() });
}

/// Some clients read streams, others write: bytes read ahead are dropped in time, even with little memory.
#[test]
fn read_ahead_of_streams_is_never_stale() {
    let test = "read_ahead_of_streams_is_never_stale";
    let mut campaign = campaign("streams", test, 3);
    campaign.setup.workload.streams = 0.6;
    (campaign.setup.workload.requests, campaign.setup.workload.pause) = (400, Nanos::from_micros(300));
    run(&campaign, &Engine { ahead: MIB, cache_extents: 0, chaos: true, ..Engine::wardrop() });
}

/// The same in any configuration, with failing devices.
#[test]
fn read_ahead_is_never_stale_in_any_configuration() {
    let test = "read_ahead_is_never_stale_in_any_configuration";
    let mut campaign = campaign("streams-configurations", test, 8);
    campaign.setup.workload.streams = 0.5;
    campaign.setup.disturbances = Disturbance::OF_FAILING_DISKS.to_vec();
    campaign.setup.workload.errors = Errors::Tolerated;
    run(&campaign, &Engine { ahead: MIB, ..Engine::random(5) });
}

#[test]
fn any_configuration_keeps_flushed_data() {
    let mut campaign = campaign("configurations", "any_configuration_keeps_flushed_data", 9);
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    // Many configurations matter more than many states of each.
    campaign.states.every = 90;
    run(&campaign, &Engine::random(5));
}

#[test]
fn one_copy_on_failing_disks_keeps_flushed_data() {
    let test = "one_copy_on_failing_disks_keeps_flushed_data";
    let mut campaign = campaign("faults", test, 16);
    fail(&mut campaign, Errors::Tolerated);
    run(&campaign, &Engine { checkpoints: false, ..Engine::wardrop() });
}

/// A moved extent without a flush was read from a slot with another extent's bytes after a failed flush.
#[test]
fn lost_writes_of_failed_flush_are_never_read() {
    let mut campaign = campaign("lost-writes", "lost_writes_of_failed_flush_are_never_read", 8);
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disturbances = vec![Disturbance::LossyFlushes];
    campaign.states.go_on = 0.5;
    run(&campaign, &Engine { chaos: true, past: false, ..Engine::wardrop() });
}

/// Many dirty or clean blocks, and some writes past these to the home, on disks that fail in every way.
#[test]
fn bypass_writes_on_failing_disks_keep_flushed_data() {
    let test = "bypass_writes_on_failing_disks_keep_flushed_data";
    for (name, engine) in [("past-dirty", Engine::write_back()), ("past-clean", Engine::read_cache())] {
        let mut campaign = dirty(campaign(name, test, 4));
        fail(&mut campaign, Errors::Tolerated);
        run(&campaign, &engine);
    }
}

/// Lets disks fail in every way possible for a disk by itself.
fn fail(campaign: &mut Campaign, errors: Errors) {
    campaign.setup.workload.errors = errors;
    campaign.setup.disturbances = Disturbance::OF_FAILING_DISKS.to_vec();
}

/// Two SSDs and two disks, with moves of extents in every pause of some milliseconds. The marks and
/// thresholds of the policy always call for a move.
fn reorganized(mut campaign: Campaign, engine: Engine) -> (Campaign, Engine) {
    let disk = |class| match class {
        DeviceClass::Ssd => DiskOptions::ssd(MIB * 6).with_blank(Blank::Garbage(1)),
        DeviceClass::Hdd => DiskOptions::hdd(MIB * 6).with_blank(Blank::Garbage(1)),
    };
    let classes = vec![DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Ssd, DeviceClass::Hdd];
    campaign.setup.disks = classes.iter().map(|&class| disk(class)).collect();
    campaign.states.go_on = 0.5;
    let policy = "working-set,stripe=even,window=200ms,threshold-h=1,threshold-l=1,water-mark=80%,idle=1ms,new-data=32KiB,change=1%";
    (campaign, Engine { policy: policy.to_owned(), classes, ..engine })
}

#[test]
fn working_set_keeps_flushed_data() {
    let campaign = campaign("working-set", "working_set_keeps_flushed_data", 6);
    let (mut campaign, engine) = reorganized(campaign, Engine::wardrop());
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    run(&campaign, &engine);
}

/// Devices fail, go missing and return under a policy that moves every movable extent.
#[test]
fn working_set_keeps_flushed_data_after_device_loss() {
    let test = "working_set_keeps_flushed_data_after_device_loss";
    let campaign = campaign("working-set-lost", test, 3);
    let (mut campaign, engine) = reorganized(campaign, Engine { copies: 2, ..Engine::wardrop() });
    fail(&mut campaign, Errors::Tolerated);
    campaign.setup.disturbances.push(Disturbance::MissingDevice);
    run(&campaign, &engine);
}

/// Some devices hold each extent at its own address or not at all.
#[test]
fn address_preserving_devices_keep_flushed_data() {
    let mut campaign = campaign("addresses", "address_preserving_devices_keep_flushed_data", 6);
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    (campaign.states.every, campaign.states.go_on) = (80, 0.3);
    run(&campaign, &Engine { addresses: true, ..Engine::random(4) });
}

/// Two interrupted openings of three devices must leave no device two openings behind, and so refused.
#[test]
fn any_configuration_up_to_five_devices_keeps_flushed_data() {
    let mut campaign = campaign("five-devices", "any_configuration_up_to_five_devices_keeps_flushed_data", 3);
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    (campaign.states.every, campaign.states.go_on) = (80, 0.5);
    run(&campaign, &Engine { past: false, ..Engine::random(5) });
}

/// A kill leaves the new superblock of one device only in the device's cache. Suppose the next opening
/// relied on this superblock and wrote only the superblock of the other device. A power cut would then leave
/// the first device two openings behind, and refused.
#[test]
fn consecutive_interrupted_openings_refuse_no_device() {
    let mut campaign = campaign("early-ends", "consecutive_interrupted_openings_refuse_no_device", 8);
    campaign.states = States { killed: 0.4, go_on: 1.0, ..campaign.states };
    run(&campaign, &Engine::wardrop());
}

/// The flush of an administrator's checkpoint fails and loses data: later flushes must not hide the loss.
#[test]
fn a_failed_flush_of_a_checkpoint_is_remembered() {
    let mut campaign = campaign("failed-checkpoints", "a_failed_flush_of_a_checkpoint_is_remembered", 19);
    fail(&mut campaign, Errors::Tolerated);
    run(&campaign, &Engine::wardrop());
}

/// A device loses a dirty extra copy that is not durable. A write-back that continued would read the remains
/// of the slot, and overwrite durable bytes of the home.
#[test]
fn lost_dirty_block_is_not_written_back_over_home() {
    let test = "lost_dirty_block_is_not_written_back_over_home";
    let mut campaign = campaign("failed-write-backs", test, 14);
    fail(&mut campaign, Errors::Tolerated);
    run(&campaign, &Engine { chaos: true, past: false, checkpoints: false, ..Engine::wardrop() });
}

/// Most of the volume is dirty: checkpoints tear pages of the cache table, and block slots are reused often.
#[test]
fn flushed_data_survives_checkpoints_of_large_dirty_set() {
    let test = "flushed_data_survives_checkpoints_of_large_dirty_set";
    run(&dirty(campaign("dirty", test, 3)), &Engine::write_back());
}

/// Shutdowns in between: clean copies are trusted after a clean shutdown, and never otherwise.
#[test]
fn cached_copies_are_never_stale_after_clean_shutdown() {
    let test = "cached_copies_are_never_stale_after_clean_shutdown";
    let mut campaign = dirty(campaign("warm", test, 2));
    campaign.states.go_on = 1.0;
    run(&campaign, &Engine::write_back());
}

/// Clean copies survive crashes, except in spans with writes, and never as an earlier block of a block slot.
#[test]
fn clean_cached_copies_are_never_stale_after_crash() {
    let test = "clean_cached_copies_are_never_stale_after_crash";
    let mut campaign = campaign("read-cache", test, 3);
    campaign.states.go_on = 0.7;
    run(&campaign, &Engine::read_cache());
}

/// An adopted disk behind a write-back cache: writes reach the disk, and the cache is never older.
#[test]
fn adopted_disk_with_write_back_cache_keeps_flushed_data() {
    let campaign = adopted("adopted", "adopted_disk_with_write_back_cache_keeps_flushed_data", 2);
    run(&campaign, &adopting(Engine::write_back()));
}

#[test]
fn adopted_disk_with_read_cache_keeps_flushed_data() {
    let campaign = adopted("adopted-reads", "adopted_disk_with_read_cache_keeps_flushed_data", 2);
    run(&campaign, &Engine { cache_extents: 4, ..adopting(Engine::read_cache()) });
}

/// With two copies, clean extra copies are trusted if both are alike, and never without one of the devices.
#[test]
fn cached_copies_are_never_stale_beside_two_required_copies() {
    let test = "cached_copies_are_never_stale_beside_two_required_copies";
    let mut campaign = campaign("mirror-cache", test, 6);
    campaign.setup.disturbances = vec![Disturbance::MissingDevice, Disturbance::WriteErrors];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states.go_on = 0.7;
    run(&campaign, &Engine { copies: 2, past: false, ..Engine::read_cache() });
}

/// The second copy is stale on purpose, by a window at most, and guests never read stale ranges. Ranges
/// enter and leave the window while they are copied, a device is away for a while, or another policy takes
/// over.
#[test]
fn mirror_with_lag_window_keeps_flushed_data() {
    let campaign = campaign("pass", "mirror_with_lag_window_keeps_flushed_data", 4);
    run_behind(campaign, "pass,window=64KiB,max-lag=160KiB,idle=2ms,base=100us");
}

/// The same with a disk that is written at once, whatever the order of the writes.
#[test]
fn write_behind_mirror_keeps_flushed_data() {
    let campaign = campaign("write-behind", "write_behind_mirror_keeps_flushed_data", 6);
    run_behind(campaign, "raid1,write-behind,limit=48KiB");
}

/// Extents change tiers; blocks are cached, dirtied and purged; the split of the SSD changes meanwhile.
#[test]
fn tier_and_cache_on_one_ssd_keep_flushed_data() {
    let test = "tier_and_cache_on_one_ssd_keep_flushed_data";
    let mut campaign = dirty(campaign("exclusive", test, 2));
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    campaign.states.go_on = 0.5;
    let split = |name: &str, cache: u32| format!("{name},cache={cache}%,page=64KiB,period=15ms,rate=100MB");
    let changes = ["exclusive", "inclusive"].map(|name| [0, 20, 50, 80, 100].map(|cache| split(name, cache)));
    let changes = changes.into_iter().flatten().collect();
    run(
        &campaign,
        &Engine { policy: split("exclusive", 40), changes, cache_extents: 2, ..Engine::wardrop() },
    );
}

/// From mode to mode, homes leave the SSD for copies of blocks and return, and dirty blocks are written
/// back.
#[test]
fn equi_keeps_flushed_data_across_mode_switches() {
    let test = "equi_keeps_flushed_data_across_mode_switches";
    let mut campaign = dirty(campaign("modes", test, 2));
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    campaign.states.go_on = 0.5;
    let policy = "equi,research.memory=40ms,research.horizon=20ms,mode=auto".to_owned();
    run(&campaign, &Engine { policy, cache_extents: 2, ..Engine::wardrop() });
}

/// With two copies of everything the SSD may be lost: the cache is then clean.
#[test]
fn tier_and_cache_keep_flushed_data_after_ssd_loss() {
    let test = "tier_and_cache_keep_flushed_data_after_ssd_loss";
    let mut campaign = campaign("exclusive-loss", test, 1);
    campaign.setup.disturbances =
        vec![Disturbance::MissingDevice, Disturbance::WriteErrors, Disturbance::PolicyChanges];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disks.push(DiskOptions::hdd(MIB * 6).with_blank(Blank::Garbage(1)));
    campaign.states.go_on = 0.5;
    let policy = "exclusive,cache=50%,page=64KiB,period=15ms,rate=100MB".to_owned();
    let changes =
        vec![policy.clone(), policy.replace("50%", "20%"), policy.replace("exclusive", "inclusive")];
    let classes = vec![DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Hdd];
    run(&campaign, &Engine { policy, changes, classes, copies: 2, ..Engine::wardrop() });
}

fn run_behind(mut campaign: Campaign, policy: &str) {
    campaign.setup.disturbances =
        vec![Disturbance::MissingDevice, Disturbance::WriteErrors, Disturbance::PolicyChanges];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states.go_on = 0.5;
    run(&campaign, &Engine { copies: 2, policy: policy.to_owned(), ..Engine::wardrop() });
}

/// Devices fail under a read cache: lost data must leave the cache.
#[test]
fn read_cache_on_failing_disks_returns_only_written_data() {
    let test = "read_cache_on_failing_disks_returns_only_written_data";
    let mut campaign = campaign("failing-cache", test, 3);
    fail(&mut campaign, Errors::Tolerated);
    campaign.states.go_on = 0.5;
    run(&campaign, &Engine::read_cache());
}

/// Many small writes to an SSD that holds all of the volume.
fn dirty(mut campaign: Campaign) -> Campaign {
    campaign.setup.disks[0] = DiskOptions::ssd(MIB * 8).with_blank(Blank::Garbage(1));
    let workload = &mut campaign.setup.workload;
    (workload.requests, workload.largest) = (400, KIB * 16);
    workload.mix = Mix { read: 25, write: 50, fua: 4, flush: 8, discard: 5, zero: 2, prefetch: 0 };
    campaign
}

/// Blocks are promoted, dirtied, handed between the areas, written back and evicted, also as the policy
/// changes.
#[test]
fn hystor_keeps_flushed_data() {
    let mut campaign = hystor(campaign("hystor", "hystor_keeps_flushed_data", 4));
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    run(&campaign, &Engine::hystor());
}

/// The SSD or the disk fails, for a while or for good, with and without dirty blocks.
#[test]
fn hystor_on_failing_disks_keeps_flushed_data() {
    let test = "hystor_on_failing_disks_keeps_flushed_data";
    let mut campaign = hystor(campaign("failing-hystor", test, 4));
    fail(&mut campaign, Errors::Tolerated);
    run(&campaign, &Engine::hystor());
}

/// Small requests, most of them to a few blocks again and again, so that searches choose these blocks.
fn hystor(mut campaign: Campaign) -> Campaign {
    let workload = &mut campaign.setup.workload;
    (workload.requests, workload.largest) = (300, KIB * 12);
    workload.mix = Mix { read: 40, write: 40, fua: 4, flush: 8, discard: 3, zero: 2, prefetch: 0 };
    campaign.states.go_on = 0.5;
    campaign
}

/// With two copies, no successful flush hides a loss of one device.
#[test]
fn two_copies_on_failing_disks_keep_flushed_data() {
    let test = "two_copies_on_failing_disks_keep_flushed_data";
    let mut campaign = campaign("mirror-faults", test, 15);
    // After a crash one copy alone counts until the other is resynchronised: its errors reach the guests.
    fail(&mut campaign, Errors::Tolerated);
    run(&campaign, &Engine { copies: 2, ..Engine::wardrop() });
}

/// Extents move and are cached beside a failing device: data copied after its loss of writes is stale, too.
#[test]
fn two_copies_on_many_failing_disks_keep_flushed_data() {
    let test = "two_copies_on_many_failing_disks_keep_flushed_data";
    let mut campaign = campaign("many-mirrors-fail", test, 2);
    fail(&mut campaign, Errors::Tolerated);
    run(&campaign, &Engine { copies: 2, ..Engine::random(5) });
}

/// Extents with two copies move to a third device, and are cached there, while flushes lose their writes.
#[test]
fn moving_mirrors_keep_flushed_data_despite_lossy_flushes() {
    let test = "moving_mirrors_keep_flushed_data_despite_lossy_flushes";
    let mut campaign = campaign("mirrors-move", test, 2);
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disturbances = vec![Disturbance::LossyFlushes];
    campaign.setup.disks.push(DiskOptions::ssd(MIB * 5));
    campaign.states.go_on = 1.0;
    run(&campaign, &Engine { chaos: true, past: false, copies: 2, ..Engine::wardrop() });
}

/// Blocks smaller than parts: a write or a discard fills neighbouring blocks with zeros, and so changes
/// untouched blocks and their extra copies.
#[test]
fn blocks_smaller_than_parts_keep_flushed_data() {
    let mut campaign = campaign("small-blocks", "blocks_smaller_than_parts_keep_flushed_data", 3);
    let workload = &mut campaign.setup.workload;
    workload.largest = KIB * 12;
    workload.mix = Mix { read: 40, write: 30, fua: 3, flush: 7, discard: 15, zero: 5, prefetch: 0 };
    campaign.states.go_on = 0.7;
    run(&campaign, &Engine { extent_size: KIB * 256, ..Engine::read_cache() });
    run(&campaign, &Engine { extent_size: KIB * 256, ..Engine::write_back() });
}

/// With two copies a device may be missing, and returns at the next opening.
#[test]
fn two_copies_keep_flushed_data_while_device_is_missing() {
    let mut campaign = campaign("missing", "two_copies_keep_flushed_data_while_device_is_missing", 2);
    campaign.setup.disturbances = vec![Disturbance::MissingDevice, Disturbance::ReadErrors];
    // While a device is missing, or stale after a crash, only one copy can be read.
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states.go_on = 0.5;
    run(&campaign, &Engine { copies: 2, ..Engine::random(5) });
}

/// A returned device is current only once its journal and its map images are: the other device may go next.
#[test]
fn mirror_keeps_flushed_data_while_device_comes_and_goes() {
    let test = "mirror_keeps_flushed_data_while_device_comes_and_goes";
    let mut campaign = campaign("returned", test, 9);
    campaign.setup.disturbances = vec![Disturbance::MissingDevice];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states = States { every: 150, go_on: 1.0, ..campaign.states };
    run(&campaign, &Engine { copies: 2, checkpoints: false, ..Engine::wardrop() });
}

/// Damaged metadata is repaired or refused, and never believed.
#[test]
fn damaged_metadata_is_never_believed() {
    let mut campaign = campaign("damage", "damaged_metadata_is_never_believed", 7);
    campaign.setup.workload.errors = Errors::Tolerated;
    // Rot may hit all copies of a superblock, or the table of devices.
    campaign.setup.refusals = vec![ErrorKind::Corrupt, ErrorKind::Invalid, ErrorKind::Degraded];
    campaign.setup.disturbances =
        vec![Disturbance::Rot, Disturbance::LostWrites, Disturbance::MisdirectedWrites];
    // With one copy, nothing else proves the newest batch.
    run(&campaign, &Engine { copies: 2, ..Engine::wardrop() });
}

/// A device that misses its deadlines costs no data, and no request of a guest waits for ever.
#[test]
fn two_copies_on_unresponsive_disks_keep_flushed_data() {
    let test = "two_copies_on_unresponsive_disks_keep_flushed_data";
    let mut campaign = campaign("mirror-silence", test, 20);
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disturbances = vec![Disturbance::Stalls, Disturbance::Hangs];
    run(&campaign, &Engine { copies: 2, ..Engine::wardrop() });
}

/// All homes on the disk, and room for a part of the blocks on the SSD. Under write-back, much of the
/// written data lies on the SSD alone for a while, and is written back beside guests.
#[test]
fn cache_keeps_flushed_data_in_both_write_modes() {
    let test = "cache_keeps_flushed_data_in_both_write_modes";
    for (name, policy, largest) in [
        ("cache-through", "cache,cache=5%,bypass=64KiB", KIB * 12),
        ("cache-through-s3", "cache,cache=5%,evict=s3-fifo,threshold=1", KIB * 12),
        ("cache-back", "cache,cache=5%,mode=write-back,dirty-high=20%,dirty-low=5%", KIB * 12),
        (
            "cache-back-s3",
            "cache,cache=5%,mode=write-back,evict=s3-fifo,dirty-high=60%,dirty-low=40%",
            KIB * 12,
        ),
        // Some writes bypass the cache, over dirty blocks and clean blocks.
        ("cache-past", "cache,cache=20%,mode=write-back,bypass=64KiB,dirty-high=40%,dirty-low=20%", KIB * 64),
    ] {
        let mut campaign = campaign(name, test, 2);
        campaign.setup.workload.largest = largest;
        campaign.states.go_on = 0.5;
        run(&campaign, &Engine { policy: policy.to_owned(), cache_extents: 2, ..Engine::wardrop() });
    }
}
