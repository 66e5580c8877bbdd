//! Devices that join and leave an open volume while guests work, with a power cut on the way.
//!
//! `BRAID_CRASH_SEEDS=n` runs n seeds of each campaign.

use crate::rig::life::{ADDED, LAST, Oracle, addition, disk, open, state, wait_until_removed, work};
use crate::rig::{options, seeds, sound, sound_one};
use braid_base::{KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, create, identify};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, World};
use std::cell::Cell;
use std::rc::Rc;

/// The change of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    /// A third device joins.
    Add { ssd: bool, layout: Layout },
    /// The third device leaves.
    Remove { ssd: bool },
    /// The third device begins to leave, and stays.
    Cancel,
}

#[derive(Clone)]
struct Plan {
    change: Change,
    copies: u8,
    policy: &'static str,
    seed: u64,
}

impl Plan {
    fn options(&self) -> CreateOptions {
        let (copies, policy) = (self.copies, self.policy.to_owned());
        CreateOptions { copies, policy, ..options(1) }
    }
}

/// Knowledge outside of the volume about the volume's devices.
#[derive(Clone, Default)]
struct Noted {
    /// True if the last device is a member.
    has_last: Rc<Cell<bool>>,
    /// Points between which the change happened.
    begin: Rc<Cell<u64>>,
    end: Rc<Cell<u64>>,
    /// Point of the first report that the last device has left.
    reported: Rc<Cell<Option<u64>>>,
}

/// The life up to the cut: a volume with data, a guest at work, the change.
async fn live(world: World, disks: Vec<Disk>, plan: Plan, oracle: Oracle, noted: Noted) {
    let change = plan.change;
    let at_first = if matches!(change, Change::Add { .. }) { 2 } else { 3 };
    noted.has_last.set(at_first == 3);
    create(&sound(&disks[..at_first]), &plan.options()).await.expect("the devices are fit");
    let volume = open(&world, disks[..at_first].to_vec()).await;
    let all = Arena::new(MIB).alloc(MIB).await;
    all.fill_zero();
    for at in 0..4 {
        volume.write(MIB * at, &all, Durability::Fua).await.expect("a write succeeds");
    }
    let stop = Rc::new(Cell::new(false));
    let guest = work(world.clone(), volume.clone(), oracle.clone(), Rng::new(plan.seed ^ 77), stop.clone());
    let ended = Rc::new(Cell::new(false));
    let told = ended.clone();
    world.spawn(async move {
        guest.await;
        told.set(true);
    });
    world.sleep(Nanos::from_secs(2)).await;
    noted.begin.set(world.power().points());
    match change {
        Change::Add { layout, .. } => {
            let has_last = noted.has_last.clone();
            let record = |id| {
                assert_eq!(id, LAST);
                has_last.set(true);
                Ok(())
            };
            volume
                .add_device(sound_one(&disks[2]), &addition(layout), record)
                .await
                .expect("a device is added");
            assert_eq!(state(&volume, LAST), DeviceState::Active);
        }
        Change::Remove { .. } => {
            volume.remove_device(LAST).await.expect("a device can leave");
            wait_until_removed(&world, &volume).await;
            // From the first report of the removal on, no opening may need the device.
            noted.has_last.set(false);
            noted.reported.set(Some(world.power().points()));
            assert_eq!(volume.removed_devices(), [LAST]);
            volume.erase_removed(LAST).await.expect("a device is erased");
            assert!(volume.removed_devices().is_empty());
        }
        Change::Cancel => {
            volume.remove_device(LAST).await.expect("a device can leave");
            // Some data has moved by then, but not all.
            if volume.status().devices[2].drain.is_some_and(|drain| drain.left_bytes > KIB * 512) {
                world.sleep(Nanos::from_millis(2)).await;
            }
            volume.cancel_removal(LAST).await.expect("a device can stay");
            assert_eq!(state(&volume, LAST), DeviceState::Active);
        }
    }
    noted.end.set(world.power().points());
    world.sleep(Nanos::from_secs(3)).await;
    stop.set(true);
    while !ended.get() {
        world.sleep(Nanos::from_millis(10)).await;
    }
    volume.audit().await.expect("all copies are alike");
    oracle.check(&volume, &Arena::new(MIB), "at the end").await;
    volume.flush().await.expect("a flush succeeds");
    oracle.flushed();
    volume.close().await.expect("the volume closes");
}

/// Runs a plan with a cut at a point; returns what was noted.
fn run(plan: &Plan, cut: Option<u64>) -> Noted {
    let world = World::new(plan.seed);
    let third = match plan.change {
        Change::Add { ssd, .. } | Change::Remove { ssd } => ssd,
        Change::Cancel => false,
    };
    let disks = vec![disk(&world, true), disk(&world, false), disk(&world, third)];
    let (oracle, noted) = (Oracle::new(), Noted::default());
    if let Some(cut) = cut {
        world.power().cut_at(cut);
    }
    let life = live(world.clone(), disks.clone(), plan.clone(), oracle.clone(), noted.clone());
    let done = world.block_on_until_cut(life);
    assert_eq!(done.is_none(), cut.is_some(), "{:?}", plan.change);
    world.halt();
    let mut rng = Rng::new(plan.seed ^ cut.unwrap_or(0));
    if cut.is_some() {
        disks.iter().for_each(|disk| disk.power_cut(&mut rng));
    }
    let others: &[bool] = if noted.has_last.get() { &[true] } else { &[false, true] };
    for &with_last in others {
        recover(plan, cut, &disks, &oracle, with_last, rng.next_u64());
    }
    noted
}

/// The disks after the cut open, hold all required bytes, and continue.
fn recover(plan: &Plan, cut: Option<u64>, disks: &[Disk], oracle: &Oracle, with_last: bool, seed: u64) {
    let world = World::new(seed);
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.restart(&world)).collect();
    let (rt, oracle, change) = (world.clone(), oracle.clone(), plan.change);
    let what = format!(
        "{change:?}, {} copies, {}, seed {}, cut {cut:?}, with the last: {with_last}",
        plan.copies, plan.policy, plan.seed
    );
    world.block_on(async move {
        let arena = Arena::new(MIB);
        // A device without a superblock of its own belongs to no volume.
        let belongs = identify(&rt, Rc::new(disks[2].clone()), "it").await.is_ok();
        let count = if with_last && belongs { 3 } else { 2 };
        let volume = open(&rt, disks[..count].to_vec()).await;
        oracle.check(&volume, &arena, &what).await;
        let devices = volume.status().devices.len();
        if matches!(change, Change::Remove { .. }) && state(&volume, LAST) == DeviceState::Draining {
            wait_until_removed(&rt, &volume).await;
        }
        if matches!(change, Change::Remove { .. }) && state(&volume, LAST) == DeviceState::Removed {
            for device in volume.removed_devices() {
                volume.erase_removed(device).await.expect("a device is erased");
            }
        }
        rt.sleep(Nanos::from_secs(30)).await;
        volume.audit().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        oracle.check(&volume, &arena, &what).await;
        volume.close().await.expect("the volume closes");
        let left = if devices == 3 && state(&volume, LAST) != DeviceState::Removed { 3 } else { 2 };
        let volume = open(&rt, disks[..left].to_vec()).await;
        oracle.check(&volume, &arena, &what).await;
    });
    world.halt();
}

/// A policy that moves nearly all extents, in every pause, while a device joins or leaves.
const WORKING_SET: &str = "working-set,stripe=even,window=500ms,threshold-h=1,threshold-l=1,water-mark=80%,idle=1ms,new-data=128KiB,change=1%";

/// Runs each plan, with several seeds, first without a cut and then with `cuts` cuts at points during the
/// change.
fn campaign(plan: &Plan, cuts: u64) {
    let seeds = seeds("BRAID_CRASH_SEEDS", 1);
    for more in 0..seeds {
        cut_often(&Plan { seed: plan.seed + 1000 * more, ..plan.clone() }, cuts);
    }
}

fn cut_often(plan: &Plan, cuts: u64) {
    let noted = run(plan, None);
    let (begin, end) = (noted.begin.get(), noted.end.get());
    assert!(end > begin, "{:?}", plan.change);
    if let Some(reported) = noted.reported.get() {
        run(plan, Some(reported + 1));
    }
    let mut rng = Rng::new(plan.seed);
    for i in 0..cuts {
        let (first, len) = (begin + 1, (end + 4 - begin).max(1));
        let part = len.div_ceil(cuts);
        run(plan, Some(first + i * len / cuts + rng.below(part)));
    }
}

#[test]
fn flushed_data_survives_power_cut_during_addition() {
    for (i, (ssd, layout)) in ADDED.into_iter().enumerate() {
        for (copies, policy) in [(1, "equi"), (2, "equi"), (1, WORKING_SET)] {
            let plan = Plan { change: Change::Add { ssd, layout }, copies, policy, seed: 100 + i as u64 };
            campaign(&plan, 10);
        }
    }
}

#[test]
fn flushed_data_survives_power_cut_during_removal() {
    let pass = "pass,max-lag=2MiB,window=1MiB,idle=1h";
    let policies = [
        ("equi", 1),
        ("equi", 2),
        ("wardrop", 1),
        ("wardrop", 2),
        ("raid1", 2),
        (pass, 2),
        (pass, 2),
        (WORKING_SET, 1),
        (WORKING_SET, 2),
    ];
    for (i, (policy, copies)) in policies.into_iter().enumerate() {
        let plan = Plan { change: Change::Remove { ssd: i % 2 == 0 }, copies, policy, seed: 200 + i as u64 };
        campaign(&plan, 10);
    }
}

#[test]
fn cancelled_removal_keeps_device_in_use() {
    for (copies, policy) in [(1, "equi"), (2, "wardrop")] {
        let plan = Plan { change: Change::Cancel, copies, policy, seed: 300 };
        campaign(&plan, 12);
    }
}

/// The SSD holds only extra copies, clean and dirty.
#[test]
fn a_cache_drains() {
    let plan =
        Plan { change: Change::Remove { ssd: true }, copies: 1, policy: "ssd-first,cache=50%", seed: 400 };
    campaign(&plan, 10);
}
