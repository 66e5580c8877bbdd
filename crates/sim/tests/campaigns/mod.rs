//! Campaigns shared by several test programs: run on the sound engine, and to find planted bugs.
#![allow(dead_code, reason = "each programme of tests uses a part of it")]

use crate::engine_subject::{Engine, campaign};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_sim::{Blank, Campaign, DiskOptions, Disturbance, Errors, Mix, States};

/// A disk with earlier content.
fn hdd() -> DiskOptions {
    DiskOptions::hdd(MIB * 6).with_blank(Blank::Garbage(1))
}

/// Two copies on two disks, with another disk missing each time: a disk that has returned is soon the only
/// disk.
pub fn in_turn(test: &str, seeds: u64) -> (Campaign, Engine) {
    let mut campaign = campaign("in-turn", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::MissingInTurn];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states = States { every: 100, go_on: 1.0, ..campaign.states };
    (campaign, Engine { copies: 2, checkpoints: false, ..Engine::wardrop() })
}

/// The same, and one disk fails now and then: the disk is failed, and resynchronised from the other.
pub fn in_turn_of_two(test: &str, seeds: u64) -> (Campaign, Engine) {
    let (mut campaign, engine) = in_turn(test, seeds);
    campaign.name = "in-turn-of-two";
    campaign.setup.disturbances =
        vec![Disturbance::MissingInTurn, Disturbance::WriteErrors, Disturbance::FlushErrors];
    (campaign, engine)
}

/// The same with checkpoint after checkpoint, of map pages with changes in all sectors. A power cut tears a
/// page, and then the disk with the other copy of the page is missing.
pub fn in_turn_of_two_torn(test: &str, seeds: u64) -> (Campaign, Engine) {
    let (mut campaign, engine) = in_turn_of_two(test, seeds);
    campaign.name = "in-turn-torn";
    campaign.states = States { every: 60, outcomes: 4, ..campaign.states };
    campaign.setup.workload.largest = KIB * 8;
    let engine = Engine { extent_size: KIB * 4, size: KIB * 800, checkpoints: true, ..engine };
    (campaign, Engine { checkpoint_pause: Nanos::from_millis(2), ..engine })
}

/// The same on three disks. One disk fails now and then: the disk is failed, and resynchronised from the
/// others.
pub fn in_turn_of_three(test: &str, seeds: u64) -> (Campaign, Engine) {
    let (mut campaign, engine) = in_turn(test, seeds);
    campaign.name = "in-turn-of-three";
    campaign.setup.disks.push(hdd());
    campaign.setup.disturbances =
        vec![Disturbance::MissingInTurn, Disturbance::WriteErrors, Disturbance::LossyFlushes];
    (campaign, Engine { chaos: true, past: false, ..engine })
}

/// Checkpoint after checkpoint, with power cuts at many moments of each.
pub fn checkpoints(test: &str, seeds: u64, engine: Engine) -> (Campaign, Engine) {
    let mut campaign = campaign("checkpoints", test, seeds);
    campaign.states = States { every: 4, outcomes: 8, killed: 0.0, deaths: 0.0, go_on: 0.0 };
    campaign.setup.workload.requests = 60;
    (campaign, Engine { checkpoint_pause: Nanos(100_000), ..engine })
}

/// A place in the metadata of one disk is unreadable, or unwritable, for a while: also during an opening.
pub fn bad_regions(test: &str, seeds: u64, copies: u8) -> (Campaign, Engine) {
    let mut campaign = campaign("bad-regions", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::BadRegions];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states = States { every: 80, go_on: 1.0, ..campaign.states };
    (campaign, Engine { chaos: true, past: false, copies, ..Engine::wardrop() })
}

/// Discards fail, or get no answer for a while.
pub fn discards(test: &str, seeds: u64, copies: u8) -> (Campaign, Engine) {
    let mut campaign = campaign("discards", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::DiscardErrors, Disturbance::DiscardHangs];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.workload.mix =
        Mix { read: 20, write: 40, fua: 5, flush: 15, discard: 20, zero: 0, prefetch: 0 };
    campaign.states = States { every: 80, go_on: 0.5, ..campaign.states };
    (campaign, Engine { chaos: true, past: false, copies, ..Engine::wardrop() })
}

/// The disks are given in another order, or with a copy of one disk.
pub fn clones(test: &str, seeds: u64, copies: u8) -> (Campaign, Engine) {
    let mut campaign = campaign("clones", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::ClonedDevice, Disturbance::ShuffledDevices];
    campaign.setup.disks.push(hdd());
    campaign.states = States { every: 150, go_on: 1.0, ..campaign.states };
    (campaign, Engine { copies, ..Engine::random(5) })
}

/// With two copies, an old copy of a disk is refused or resynchronised, even if the other disks were used
/// without the disk.
pub fn old_copies(test: &str, seeds: u64) -> (Campaign, Engine) {
    let mut campaign = campaign("old-copies", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::StaleDevice, Disturbance::MissingDevice];
    campaign.setup.refuses_stale = false;
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.stale_openings = 2;
    campaign.states = States { every: 150, outcomes: 6, go_on: 1.0, ..campaign.states };
    (campaign, Engine { copies: 2, ..Engine::wardrop() })
}

/// Guests leave a mirror idle until spans are called clean, then all return at the same time.
pub fn idle_spans(test: &str, seeds: u64) -> (Campaign, Engine) {
    let mut campaign = campaign("idle-spans", test, seeds);
    let workload = &mut campaign.setup.workload;
    (workload.clients, workload.largest, workload.bursts_every) = (8, KIB * 16, Nanos::from_secs(7));
    workload.mix = Mix { read: 5, write: 50, fua: 10, flush: 30, discard: 5, zero: 0, prefetch: 0 };
    (campaign.setup.spans, campaign.states.every) = (vec![1, 8], 25);
    let engine = Engine { copies: 2, checkpoints: false, size: KIB * 600, ..Engine::wardrop() };
    (campaign, Engine { policy: "raid1".to_owned(), ..engine })
}

/// The same, while a disk fails, or another disk is missing each time: spans are called clean beside a
/// failed or missing disk.
pub fn idle_spans_in_turn(test: &str, seeds: u64) -> (Campaign, Engine) {
    let (mut campaign, engine) = idle_spans(test, seeds);
    campaign.name = "idle-in-turn";
    campaign.setup.disturbances =
        vec![Disturbance::MissingInTurn, Disturbance::LossyFlushes, Disturbance::WriteErrors];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states = States { every: 60, go_on: 1.0, ..campaign.states };
    (campaign, engine)
}

/// An SSD before an adopted disk of neither whole extents nor whole blocks, and a record. As on a real disk,
/// a discarded range reads as anything.
pub fn adopted(name: &'static str, test: &str, seeds: u64) -> Campaign {
    let mut campaign = campaign(name, test, seeds);
    campaign.setup.disks[1] = DiskOptions::hdd(MIB * 4 + KIB * 17 + Bytes(512));
    campaign.setup.disks.push(DiskOptions::hdd(MIB * 5));
    campaign.setup.workload.mix.discard = 0;
    campaign.states.go_on = 0.5;
    campaign
}

/// The engine before an adopted disk.
pub fn adopting(engine: Engine) -> Engine {
    Engine { adopted: true, policy: "hdd-only".to_owned(), ..engine }
}

/// The SSD before an adopted disk is missing, or another device is: the volume opens if nothing is lost with
/// the device.
pub fn adopted_in_turn(test: &str, seeds: u64, engine: Engine) -> (Campaign, Engine) {
    let mut campaign = adopted("adopted-in-turn", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::MissingInTurn];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states = States { every: 120, go_on: 1.0, ..campaign.states };
    // Time enough for the record to forget written-back ranges.
    campaign.setup.workload.pause = Nanos::from_secs(2);
    (campaign, adopting(engine))
}

/// Extents of thousands of blocks, larger than any request.
pub fn huge_extents(test: &str, seeds: u64, engine: Engine) -> (Campaign, Engine) {
    let mut campaign = campaign("huge-extents", test, seeds);
    campaign.setup.disks = vec![DiskOptions::ssd(MIB * 96), DiskOptions::hdd(MIB * 96)];
    campaign.states = States { every: 250, outcomes: 2, go_on: 0.2, ..campaign.states };
    let workload = &mut campaign.setup.workload;
    (workload.largest, workload.requests) = (MIB, 100);
    let engine =
        Engine { extent_size: MIB * 8, block_size: KIB * 4, size: MIB * 24, cache_extents: 0, ..engine };
    (campaign, engine)
}

/// Devices stall and hang under a cache.
pub fn stalled_caches(test: &str, seeds: u64, engine: Engine) -> (Campaign, Engine) {
    let mut campaign = campaign("stalled-caches", test, seeds);
    campaign.setup.disturbances = vec![Disturbance::Stalls, Disturbance::Hangs, Disturbance::DiscardHangs];
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.states.go_on = 0.5;
    (campaign, Engine { past: false, ..engine })
}
