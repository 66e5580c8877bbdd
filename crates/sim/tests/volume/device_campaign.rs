//! A campaign of devices that arrive, leave, fail, return and are replaced, in any order, under a guest that
//! meets no error. Crashes come at any instant on the way; after each, the noted devices must open as the
//! volume.
//!
//! One life gives many crash states: at random instants the disks and the oracle are copied, and several
//! outcomes are drawn from each copy. `BRAID_CRASH_SEEDS=n` runs n lives of each plan; a failure prints the
//! command that replays its crash alone.

use crate::rig::life::{Known, Oracle, SIZE, disk, names, work};
use crate::rig::{Rig, options, seeds, sound, sound_one};
use braid_base::{Bytes, DeviceId, MIB, Nanos, Rng};
use braid_engine::{
    Addition, CreateOptions, Durability, ErrorKind, Export, OpenOptions, Volume, create, identify,
};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Layout, Region, RegionKind};
use braid_runtime::{Arena, LastingMemory, Runtime};
use braid_sim::{Disk, FaultPlan, LastingBytes, StoredDisk, StoredMemory, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

#[derive(Clone, Copy, Debug)]
struct Plan {
    policy: &'static str,
    copies: u8,
    seed: u64,
}

impl Plan {
    /// True if any device may be lost at any time. Under `pass` an SSD alone holds the newest writes.
    fn may_lose(self) -> bool {
        self.copies == 2 && !self.policy.starts_with("pass")
    }
}

/// Changes of devices in one life.
const CHANGES: u32 = 8;
/// Copies of the disks taken in one life, and outcomes of each copy.
const COPIED: u64 = 24;
const OUTCOMES: u64 = 3;
/// Distance between the seeds of two plans.
const LIVES: u64 = 1000;
/// Maximum number of devices at a time.
const MOST: usize = 5;

/// The administrator's knowledge: the disk in each place, as the daemon notes paths, and the disks that are
/// pulled out.
#[derive(Clone, Default)]
struct Shelf {
    noted: Rc<RefCell<BTreeMap<DeviceId, Disk>>>,
    pulled: Rc<Cell<Option<DeviceId>>>,
    /// A device that is being lost: the other devices may know or not.
    leaving: Rc<Cell<Option<DeviceId>>>,
}

/// A moment of a life.
struct Moment {
    disks: BTreeMap<DeviceId, StoredDisk>,
    pulled: Option<DeviceId>,
    leaving: Option<DeviceId>,
    oracle: Vec<Known>,
    under_way: Range<usize>,
    memory: StoredMemory,
    doing: String,
}

struct Life {
    world: World,
    volume: Rig,
    shelf: Shelf,
    plan: Plan,
    rng: Rng,
    doing: Rc<RefCell<String>>,
}

impl Life {
    fn state(&self, device: DeviceId) -> DeviceState {
        self.volume.status().devices[device.index()].state
    }

    fn in_use(&self) -> Vec<DeviceId> {
        let all = self.volume.status().devices.len() as u16;
        let is_used = |&id: &DeviceId| matches!(self.state(id), DeviceState::Active | DeviceState::Slow);
        (0..all).map(DeviceId).filter(is_used).collect()
    }

    async fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..3000 {
            if holds() {
                return;
            }
            self.world.sleep(Nanos::from_millis(100)).await;
        }
        let status = self.volume.status();
        panic!("five minutes are enough: {what}, {}: {:#?}", self.doing.borrow(), status.devices);
    }

    /// Waits until no lag is left except by the policy's intent, and all devices are in use.
    async fn wait_until_whole(&self) {
        let is_whole = || {
            let status = self.volume.status();
            let is_well =
                |state| matches!(state, DeviceState::Active | DeviceState::Slow | DeviceState::Removed);
            let is_alike = status.behind == Bytes::ZERO || !self.plan.may_lose();
            is_alike && status.devices.iter().all(|device| is_well(device.state))
        };
        self.wait_until("the volume is whole", is_whole).await;
        // The latest copies count once a flush has proved that their source had the data.
        self.volume.flush().await.expect("the devices in use are sound");
    }

    fn begin(&self, doing: String) {
        *self.doing.borrow_mut() = doing;
    }

    async fn change(&mut self) {
        self.wait_until_whole().await;
        let used = self.in_use();
        let device = used[self.rng.below(used.len() as u64) as usize];
        match self.rng.below(if self.plan.may_lose() { 6 } else { 3 }) {
            0 => {
                self.add().await;
            }
            1 => self.remove(device).await,
            2 => self.cancel(device).await,
            3 | 4 => self.fail_and_return(device).await,
            _ => self.replace(device).await,
        }
    }

    async fn add(&mut self) -> Option<DeviceId> {
        if self.in_use().len() >= MOST {
            return None;
        }
        self.begin("add".to_owned());
        let disk = disk(&self.world, self.rng.chance(0.5));
        let mut identity = [0; 16];
        self.rng.fill(&mut identity);
        let addition = Addition {
            name: "the new disk".to_owned(),
            identity: Uuid(identity),
            model: String::new(),
            layout: Layout::Head,
            overwrite: true,
        };
        let (noted, new) = (self.shelf.noted.clone(), disk.clone());
        let note = move |id| {
            noted.borrow_mut().insert(id, new);
            Ok(())
        };
        Some(self.volume.add_device(sound_one(&disk), &addition, note).await.expect("a device is added"))
    }

    /// False if the other devices cannot do without the device.
    async fn begin_removal(&self, device: DeviceId) -> bool {
        match self.volume.remove_device(device).await {
            Ok(()) => true,
            Err(error) => {
                let expected = [ErrorKind::NoSpace, ErrorKind::Invalid];
                assert!(expected.contains(&error.kind()), "{device}: {error}");
                false
            }
        }
    }

    async fn end_removal(&self, device: DeviceId) {
        let is_removed = || self.volume.removed_devices().contains(&device);
        self.wait_until("it is removed", is_removed).await;
        self.shelf.noted.borrow_mut().remove(&device);
        if self.shelf.pulled.get() == Some(device) {
            self.shelf.pulled.set(None);
        }
        // A dead device cannot be erased.
        let _erased = self.volume.erase_removed(device).await;
    }

    async fn remove(&mut self, device: DeviceId) {
        self.begin(format!("remove {device}"));
        if self.begin_removal(device).await {
            self.end_removal(device).await;
        }
    }

    async fn cancel(&mut self, device: DeviceId) {
        self.begin(format!("begin to remove {device}"));
        if self.begin_removal(device).await {
            self.world.sleep(Nanos::from_millis(self.rng.below(200))).await;
            self.begin(format!("keep {device}"));
            match self.state(device) {
                DeviceState::Removed => self.end_removal(device).await,
                _ if self.volume.cancel_removal(device).await.is_err() => self.end_removal(device).await,
                _ => {}
            }
        }
    }

    /// A device dies, or is taken out of use.
    async fn lose(&mut self, device: DeviceId) {
        self.begin(format!("lose {device}"));
        let disk = self.shelf.noted.borrow()[&device].clone();
        self.shelf.leaving.set(Some(device));
        if self.rng.chance(0.5) {
            self.volume.fail_device(device).await.expect("all is elsewhere");
        } else {
            disk.faults().vanish();
            let is_noticed = || self.state(device) == DeviceState::Failed;
            self.wait_until("the loss is noticed", is_noticed).await;
            // Now the other devices durably know of the loss; a crash before may leave data there alone.
            self.volume.flush().await.expect("the others are sound");
        }
        self.shelf.pulled.set(Some(device));
        self.shelf.leaving.set(None);
        self.world.sleep(Nanos::from_millis(self.rng.below(3000))).await;
    }

    async fn fail_and_return(&mut self, device: DeviceId) {
        self.lose(device).await;
        self.begin(format!("return {device}"));
        let disk = self.shelf.noted.borrow()[&device].clone();
        if self.rng.chance(0.5) {
            disk.lose_cache();
        }
        disk.faults().set(FaultPlan::default());
        self.world.sleep(Nanos::from_millis(100)).await;
        self.volume.return_device(sound_one(&disk), "the disk").await.expect("a device is back");
        self.shelf.pulled.set(None);
    }

    /// Replaces a device, which may be lost, by a new device: its data goes to the new device and elsewhere.
    async fn replace(&mut self, device: DeviceId) {
        let is_lost = self.rng.chance(0.5);
        if is_lost {
            self.lose(device).await;
        }
        self.add().await;
        self.begin(format!("replace {device}, lost: {is_lost}"));
        if self.begin_removal(device).await {
            self.end_removal(device).await;
        } else if is_lost {
            let disk = self.shelf.noted.borrow()[&device].clone();
            disk.faults().set(FaultPlan::default());
            self.world.sleep(Nanos::from_millis(100)).await;
            self.volume.return_device(sound_one(&disk), "the disk").await.expect("a device is back");
            self.shelf.pulled.set(None);
        }
    }
}

/// Options of an opening with the memory of a dead daemon.
fn with_memory(count: usize, memory: &LastingBytes) -> OpenOptions {
    let memory = Rc::new(memory.clone()) as Rc<dyn LastingMemory>;
    OpenOptions { memory: Some(memory), ..OpenOptions::new(names(count)) }
}

/// Names the failed life.
struct Replay(Plan);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(plan) = self;
            eprintln!(
                "replay: BRAID_DEVICES_TRIAL={},0 cargo test --workspace --test volume device_campaign\n{plan:?}",
                plan.seed
            );
        }
    }
}

/// Runs a life to its end: returns the moments copied on the way, and whether metadata moved.
fn live(plan: Plan) -> (Vec<Moment>, bool) {
    let _replay = Replay(plan);
    let world = World::new(plan.seed);
    let (rt, moments) = (world.clone(), Rc::new(RefCell::new(Vec::new())));
    let taken = moments.clone();
    let has_moved = world.block_on(async move {
        let mut rng = Rng::new(plan.seed ^ 0xD1CE);
        let disks: Vec<Disk> = (0..3).map(|i| disk(&rt, i == 0)).collect();
        // In half of the lives the map has a summary.
        let map_group = (plan.seed % 2 == 1).then_some(1);
        let policy = plan.policy.to_owned();
        let create_options = CreateOptions { copies: plan.copies, policy, map_group, ..options(1) };
        create(&sound(&disks), &create_options).await.expect("the devices are fit");
        let memory = rt.give_memory(StoredMemory::default());
        let opened = Volume::open(rt.clone(), sound(&disks), with_memory(3, &memory)).await;
        let volume = opened.expect("the volume opens").0;
        let zeros = Arena::new(MIB).alloc(MIB).await;
        zeros.fill_zero();
        for at in 0..SIZE / MIB {
            volume.write(MIB * at, &zeros, Durability::Fua).await.expect("a write succeeds");
        }
        let shelf = Shelf::default();
        shelf.noted.borrow_mut().extend((0..).map(DeviceId).zip(disks));
        let (oracle, stop) = (Oracle::new(), Rc::new(Cell::new(false)));
        rt.spawn(work(rt.clone(), volume.clone(), oracle.clone(), rng.fork(), stop.clone()));
        let doing = Rc::new(RefCell::new(String::new()));
        rt.spawn(copy_moments(rt.clone(), shelf.clone(), oracle.clone(), rng.fork(), doing.clone(), taken));
        let mut life = Life { world: rt.clone(), volume: volume.clone(), shelf, plan, rng, doing };
        for _ in 0..CHANGES {
            life.change().await;
            rt.sleep(Nanos::from_millis(life.rng.below(1000))).await;
        }
        life.wait_until_whole().await;
        stop.set(true);
        rt.sleep(Nanos::from_secs(1)).await;
        volume.flush().await.expect("a flush succeeds");
        oracle.flushed();
        volume.audit().await.expect("all copies are alike");
        oracle.check(&volume, &Arena::new(MIB), "at the end").await;
        volume.close().await.expect("the volume closes");
        let is_new = |region: &Region| region.kind != RegionKind::CacheTable && region.device.0 > 1;
        volume.superblock().regions.iter().any(is_new)
    });
    world.halt();
    (moments.take(), has_moved)
}

/// Copies the disks now and then until the life ends; more often during a change.
async fn copy_moments(
    world: World,
    shelf: Shelf,
    oracle: Oracle,
    mut rng: Rng,
    doing: Rc<RefCell<String>>,
    moments: Rc<RefCell<Vec<Moment>>>,
) {
    while (moments.borrow().len() as u64) < COPIED {
        let before = doing.borrow().clone();
        let wait = if rng.chance(0.7) { rng.below(120) } else { rng.below(3000) };
        world.sleep(Nanos(wait * 1_000_000 + rng.below(1_000_000))).await;
        if *doing.borrow() == before && rng.chance(0.5) {
            continue;
        }
        let disks = shelf.noted.borrow().iter().map(|(&id, disk)| (id, disk.store())).collect();
        moments.borrow_mut().push(Moment {
            disks,
            pulled: shelf.pulled.get(),
            leaving: shelf.leaving.get(),
            oracle: oracle.0.borrow().clone(),
            under_way: oracle.1.borrow().clone(),
            memory: world.memory().expect("it was given").store_away(),
            doing: doing.borrow().clone(),
        });
    }
}

/// Counts of the outcomes.
#[derive(Default, Debug)]
struct Count {
    states: u64,
    lives: u64,
    metadata_moved: u64,
    without_one: u64,
    refused: u64,
}

/// A crash at a moment: the remaining disks open, hold all required bytes, and complete all changes.
fn crash(plan: Plan, moment: &Moment, outcome: u64, count: &mut Count) {
    let mut rng = Rng::new(plan.seed ^ outcome << 32 ^ 0xC4A5);
    let world = World::new(rng.next_u64());
    let mut stored = moment.disks.clone();
    let (is_cut, mut memory) = (rng.chance(0.7), moment.memory.clone());
    let dies = !is_cut && rng.chance(0.7);
    for disk in stored.values_mut() {
        match (is_cut, dies) {
            (true, _) => disk.power_cut(&mut rng),
            (false, true) => disk.end_in_flight(&mut rng),
            (false, false) => disk.kill(),
        }
    }
    if !dies {
        memory.restart_machine();
    }
    // A disk that was lost may be gone, or present as before; if no disk was lost, one may be lost now.
    let lost_now = plan.may_lose() && moment.pulled.is_none() && rng.chance(0.25);
    let mut gone = moment.pulled.filter(|_| rng.chance(0.5));
    if lost_now {
        // If a device is being lost, the lost disk is this device: of two devices, an older device that
        // returns cannot know that the other was used alone.
        let any = *stored.keys().nth(rng.below(stored.len() as u64) as usize).expect("there are disks");
        gone = Some(moment.leaving.unwrap_or(any));
    }
    let what = format!(
        "replay: BRAID_DEVICES_TRIAL={},{outcome} cargo test --workspace --test volume device_campaign\n{plan:?}, \
         cut: {is_cut}, dies: {dies}, gone: {gone:?}, during '{}'",
        plan.seed, moment.doing
    );
    count.states += 1;
    count.without_one += u64::from(gone.is_some());
    let disks: Vec<Disk> =
        stored.iter().filter(|(id, _)| Some(**id) != gone).map(|(_, disk)| disk.attach(&world)).collect();
    let (rt, oracle) = (world.clone(), Oracle::of(moment.oracle.clone()));
    oracle.1.replace(moment.under_way.clone());
    let memory = world.give_memory(memory);
    let is_refused = world.block_on(async move {
        let mut there = Vec::new();
        for disk in &disks {
            // A device that was being added may have no superblock yet.
            if identify(&rt, Rc::new(disk.clone()), "it").await.is_ok() {
                there.push(disk.clone());
            }
        }
        let arena = Arena::new(MIB);
        let open = async || Volume::open(rt.clone(), sound(&there), with_memory(there.len(), &memory)).await;
        let volume = match open().await {
            Ok((volume, recovery)) => {
                // After a failed flush, writes are in doubt until the survivors know of the failure.
                if dies && !recovery.flush_had_failed {
                    // A closing volume is durable before its log goes.
                    assert!(recovery.has_log || oracle.is_flushed(), "{what}: {recovery:?}");
                    oracle.die();
                }
                volume
            }
            // A device lost just now may hold data alone, or be the second stale device.
            Err(error) if lost_now && error.kind() == ErrorKind::Degraded => return true,
            Err(error) => panic!("{what}: {error}"),
        };
        oracle.check(&volume, &arena, &what).await;
        rt.sleep(Nanos::from_secs(20)).await;
        volume.audit().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        oracle.check(&volume, &arena, &what).await;
        volume.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let volume = open().await.unwrap_or_else(|error| panic!("{what}, again: {error}")).0;
        oracle.check(&volume, &arena, &what).await;
        false
    });
    world.halt();
    count.refused += u64::from(is_refused);
}

/// One life of a mirror, and the crashes on the way.
#[allow(dead_code, reason = "planted.rs uses it")]
pub fn live_and_crash(seed: u64) {
    lives(Plan { policy: "equi", copies: 2, seed }, &mut Count::default());
}

fn lives(plan: Plan, count: &mut Count) {
    let (moments, has_moved) = live(plan);
    count.lives += 1;
    count.metadata_moved += u64::from(has_moved);
    for (i, moment) in moments.iter().enumerate() {
        for outcome in 0..OUTCOMES {
            crash(plan, moment, i as u64 * OUTCOMES + outcome, count);
        }
    }
}

/// The life and the outcome named in the environment.
fn asked_for() -> Option<(u64, u64)> {
    let text = std::env::var("BRAID_DEVICES_TRIAL").ok()?;
    let (seed, outcome) = text.split_once(',').expect("a seed, a comma, an outcome");
    Some((seed.parse().expect("a seed"), outcome.parse().expect("an outcome")))
}

fn campaign(policy: &'static str, copies: u8, seed: u64) {
    if let Some((asked, outcome)) = asked_for() {
        if asked % LIVES == seed {
            let plan = Plan { policy, copies, seed: asked };
            let moments = live(plan).0;
            crash(plan, &moments[(outcome / OUTCOMES) as usize], outcome, &mut Count::default());
        }
        return;
    }
    let seeds = seeds("BRAID_CRASH_SEEDS", 1);
    let mut count = Count::default();
    for more in 0..seeds {
        lives(Plan { policy, copies, seed: seed + LIVES * more }, &mut count);
    }
    println!("{policy}, {copies} copies: {count:?}");
    assert!(count.states >= seeds * COPIED / 2 && count.refused * 2 <= count.states, "{count:?}");
}

#[test]
fn devices_of_a_mirror_come_and_go() {
    campaign("equi", 2, 1);
    campaign("wardrop", 2, 2);
}

#[test]
fn devices_of_raid_1_and_pass_come_and_go() {
    campaign("raid1", 2, 3);
    campaign("pass,max-lag=2MiB,window=1MiB,idle=1s", 2, 4);
}

#[test]
fn single_copy_volume_survives_device_changes() {
    campaign("stripe", 1, 5);
    campaign("equi", 1, 6);
}

#[test]
fn devices_with_caches_come_and_go() {
    campaign("ssd-first,cache=50%", 1, 7);
    campaign("ssd-first,cache=50%", 2, 8);
}
