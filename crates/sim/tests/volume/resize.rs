//! A volume grows and shrinks while a guest works, with a power cut at any instant: afterwards it has the old
//! or the new size, with all flushed data.
//!
//! `BRAID_CRASH_SEEDS=n` runs n seeds of each campaign.

use crate::rig::life::{BLOCK, Oracle, SIZE, names, work};
use crate::rig::{Rig, filled, is_all, options, sound};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, ResizableVolume, Volume, check, create};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Blank, Disk, DiskOptions, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

pub type Resizable = ResizableVolume<World, Faulty<Disk>>;

/// A resize, and the volume before.
#[derive(Clone, Debug)]
pub struct Plan {
    pub copies: u8,
    pub policy: &'static str,
    pub extent_size: Bytes,
    /// Pages of a group of the map's summary.
    pub group: Option<u32>,
    pub before: Bytes,
    pub after: Bytes,
    pub seed: u64,
}

/// Extents of 4 KiB: the map has several pages.
pub const PLAN: Plan = Plan {
    copies: 1,
    policy: "equi",
    extent_size: Bytes(4 << 10),
    group: None,
    before: Bytes(5 << 20),
    after: Bytes(12 << 20),
    seed: 1,
};

impl Plan {
    fn options(&self) -> CreateOptions {
        let Plan { copies, extent_size, group, .. } = *self;
        CreateOptions {
            size: Some(self.before),
            copies,
            policy: self.policy.to_owned(),
            extent_size,
            map_group: group,
            span_size: extent_size,
            ..options(3)
        }
    }

    fn smaller(&self) -> Bytes {
        self.before.min(self.after)
    }
}

pub fn disks(world: &World, size: Bytes) -> Vec<Disk> {
    let options = [DiskOptions::ssd(size), DiskOptions::hdd(size)];
    options.map(|options| Disk::new(world, options.with_blank(Blank::Garbage(7)))).to_vec()
}

pub async fn open_disks(world: &World, disks: &[Disk]) -> Resizable {
    open_resizable(world, sound(disks)).await
}

pub async fn open_resizable(world: &World, devices: Vec<Faulty<Disk>>) -> Resizable {
    let options = OpenOptions::new(names(devices.len()));
    let opened = Volume::open(world.clone(), devices, options.clone()).await;
    ResizableVolume::new(world.clone(), opened.expect("the volume opens").0, options)
}

/// The volume before the resize: data up to its last byte, and data in the last extent of the smaller size.
async fn fill(volume: &Resizable, plan: &Plan, arena: &Arena) {
    let last = plan.smaller() - MIB;
    volume.write(last, &filled(arena, MIB, 0xaa), Durability::Volatile).await.expect("a write succeeds");
    if plan.after < plan.before {
        for at in (0..(plan.before - plan.after) / MIB).map(|at| plan.after + MIB * at) {
            volume.write(at, &filled(arena, MIB, 0xbb), Durability::Fua).await.expect("a write succeeds");
        }
        // Pages in the double-write areas name these extents.
        volume.volume().checkpoint().await.expect("a checkpoint succeeds");
        volume.discard(plan.after, plan.before - plan.after).await.expect("a discard succeeds");
    }
    volume.flush().await.expect("a flush succeeds");
}

async fn live(world: World, disks: Vec<Disk>, plan: Plan, oracle: Oracle, span: Rc<Cell<(u64, u64)>>) {
    create(&sound(&disks), &plan.options()).await.expect("the devices are fit");
    let (volume, arena) = (open_disks(&world, &disks).await, Arena::new(MIB * 16));
    fill(&volume, &plan, &arena).await;
    let stop = Rc::new(Cell::new(false));
    let guest = work(world.clone(), volume.clone(), oracle.clone(), Rng::new(plan.seed), stop.clone());
    let ended = Rc::new(Cell::new(false));
    let told = ended.clone();
    world.spawn(async move {
        guest.await;
        told.set(true);
    });
    world.sleep(Nanos::from_secs(2)).await;
    let begin = world.power().points();
    volume.resize(plan.after).await.expect("the size changes");
    span.set((begin, world.power().points()));
    assert_eq!(volume.size(), plan.after);
    world.sleep(Nanos::from_secs(1)).await;
    stop.set(true);
    while !ended.get() {
        world.sleep(Nanos::from_millis(10)).await;
    }
    verify(&volume, &plan, &oracle, "without a cut").await;
    volume.volume().close().await.expect("the volume closes");
}

/// Verifies the bytes of the guest, the bytes before the smaller end, and zeros in the grown area.
async fn verify(volume: &Resizable, plan: &Plan, oracle: &Oracle, what: &str) {
    let arena = Arena::new(MIB * 2);
    oracle.check(volume, &arena, what).await;
    is_filled(volume, SIZE.max(plan.smaller() - MIB), plan.smaller(), 0xaa, what).await;
    is_filled(volume, plan.smaller(), volume.size(), 0, what).await;
    volume.volume().audit().await.unwrap_or_else(|error| panic!("{what}: {error}"));
}

pub async fn is_filled(volume: &impl Export, start: Bytes, end: Bytes, value: u8, what: &str) {
    let arena = Arena::new(MIB);
    let mut at = start;
    while at < end {
        let buf = filled(&arena, (KIB * 256).min(end - at), !value);
        volume.read(at, &buf).await.expect("a read succeeds");
        let is_right = is_all(&buf, value);
        assert!(is_right, "{what}: the bytes at {} are not {value:#x}", at.0);
        at += buf.len();
    }
}

/// Runs a plan with a cut at a point; returns the points between which the size changed.
pub fn run(plan: &Plan, cut: Option<u64>) -> (u64, u64) {
    let world = World::new(plan.seed);
    let disks = disks(&world, (plan.before.max(plan.after) + MIB * 8) * u64::from(plan.copies));
    let (oracle, span) = (Oracle::new(), Rc::new(Cell::new((0, 0))));
    if let Some(cut) = cut {
        world.power().cut_at(cut);
    }
    let life = live(world.clone(), disks.clone(), plan.clone(), oracle.clone(), span.clone());
    let done = world.block_on_until_cut(life);
    assert_eq!(done.is_none(), cut.is_some(), "{plan:?}");
    world.halt();
    let mut rng = Rng::new(plan.seed ^ cut.unwrap_or(0));
    if cut.is_some() {
        disks.iter().for_each(|disk| disk.power_cut(&mut rng));
    }
    recover(plan, cut, &disks, &oracle, &mut rng);
    span.get()
}

/// The disks after the cut open with one of the two sizes, hold all required bytes, and the resize can be
/// repeated. With two copies, so does each disk alone.
fn recover(plan: &Plan, cut: Option<u64>, disks: &[Disk], oracle: &Oracle, rng: &mut Rng) {
    let world = World::new(rng.next_u64());
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.restart(&world)).collect();
    let (rt, oracle, plan) = (world.clone(), oracle.clone(), plan.clone());
    world.block_on(async move {
        let what = format!("{plan:?}, cut {cut:?}");
        for lost in (0..2).filter(|_| plan.copies == 2) {
            let left = disks[1 - lost].fork(&rt);
            let volume = open_disks(&rt, &[left]).await;
            verify_size(&volume, &plan, &what);
            oracle.check(&volume, &Arena::new(MIB), &format!("{what}, without disk {lost}")).await;
            volume.volume().close().await.expect("the volume closes");
        }
        let volume = open_disks(&rt, &disks).await;
        verify_size(&volume, &plan, &what);
        verify(&volume, &plan, &oracle, &what).await;
        volume.resize(plan.after).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(volume.size(), plan.after, "{what}");
        verify(&volume, &plan, &oracle, &what).await;
        let end = filled(&Arena::new(MIB), BLOCK, 0xcc);
        volume.write(plan.after - BLOCK, &end, Durability::Volatile).await.expect("a write succeeds");
        volume.volume().close().await.expect("the volume closes");
        is_sound(&rt, &disks, &what).await;
        let volume = open_disks(&rt, &disks).await;
        is_filled(&volume, plan.after - BLOCK, plan.after, 0xcc, &what).await;
        oracle.check(&volume, &Arena::new(MIB), &what).await;
        volume.volume().audit().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    });
    world.halt();
}

fn verify_size(volume: &Resizable, plan: &Plan, what: &str) {
    assert!([plan.before, plan.after].contains(&volume.size()), "{what}: {}", volume.size());
}

pub async fn is_sound(rt: &World, disks: &[Disk], what: &str) {
    let report = check(rt, sound(disks), &names(disks.len()), None).await.expect("the disks are readable");
    assert!(report.repairable.is_empty() && report.fatal.is_empty(), "{what}: {report:?}");
}

/// Runs a plan first without a cut, then with `cuts` cuts during the resize.
pub fn campaign(plan: &Plan, cuts: u64) {
    let seeds = std::env::var("BRAID_CRASH_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for more in 0..seeds {
        let plan = Plan { seed: plan.seed + 1000 * more, ..plan.clone() };
        let (begin, end) = run(&plan, None);
        assert!(end > begin, "{plan:?}");
        let (mut rng, len) = (Rng::new(plan.seed), end + 4 - begin);
        for i in 0..cuts.min(len) {
            run(&plan, Some(begin + 1 + i * len / cuts.min(len) + rng.below(len.div_ceil(cuts))));
        }
    }
}

#[test]
fn volume_grows_through_power_cuts() {
    for copies in [1, 2] {
        campaign(&Plan { copies, seed: 10, ..PLAN }, 12);
        campaign(&Plan { copies, group: Some(1), seed: 20, ..PLAN }, 12);
        // The last extent is not whole, and the last page of the map serves both sizes.
        let (before, after) = (MIB * 5 + KIB * 12, MIB * 6 + KIB * 20);
        campaign(&Plan { copies, extent_size: KIB * 128, before, after, seed: 30, ..PLAN }, 12);
    }
}

#[test]
fn volume_shrinks_through_power_cuts() {
    let (before, after) = (MIB * 12, MIB * 5);
    for copies in [1, 2] {
        campaign(&Plan { copies, before, after, seed: 40, ..PLAN }, 8);
        campaign(&Plan { copies, before, after, group: Some(1), seed: 50, ..PLAN }, 8);
    }
}

#[test]
fn volume_of_cached_copies_grows_through_power_cuts() {
    for (i, policy) in ["cache", "orthus", "exclusive", "ssd-first"].into_iter().enumerate() {
        campaign(&Plan { policy, extent_size: KIB * 64, seed: 60 + i as u64, ..PLAN }, 12);
    }
}

/// More than 65,536 spans: the spans become longer.
#[test]
fn spans_become_longer_through_power_cuts() {
    for copies in [1, 2] {
        let (before, after) = (MIB * 200, MIB * 300);
        campaign(&Plan { copies, before, after, seed: 70, ..PLAN }, 8);
    }
}

/// A map of more than 256 pages gets a summary.
#[test]
fn grown_map_gets_a_summary_through_power_cuts() {
    let (before, after) = (MIB * 600, MIB * 900);
    let plan = Plan { before, after, seed: 80, ..PLAN };
    let world = World::new(1);
    let disks = disks(&world, after + MIB * 64);
    let rt = world.clone();
    let options = plan.options();
    world.block_on(async move {
        create(&sound(&disks), &options).await.expect("the devices are fit");
        let volume = open_disks(&rt, &disks).await;
        assert!(!volume.volume().superblock().has_map_summary());
        volume.resize(after).await.expect("the volume grows");
        assert!(volume.volume().superblock().has_map_summary());
        volume.volume().close().await.expect("the volume closes");
        is_sound(&rt, &disks, "with a summary").await;
    });
    world.halt();
    campaign(&plan, 6);
}

/// Repeats growing and shrinking: no slot is lost.
#[test]
fn old_places_of_metadata_are_free_again() {
    for copies in [1, 2] {
        let world = World::new(9);
        let plan = Plan { copies, ..PLAN };
        let (disks, rt) = (disks(&world, MIB * 40), world.clone());
        world.block_on(async move {
            create(&sound(&disks), &plan.options()).await.expect("the devices are fit");
            let volume = open_disks(&rt, &disks).await;
            let free = |volume: &Rig| -> u64 {
                volume.status().devices.iter().map(|device| u64::from(device.free)).sum()
            };
            let mut all = Vec::new();
            for round in 0..8 {
                volume.resize(plan.after).await.expect("the volume grows");
                let end = filled(&Arena::new(MIB), BLOCK, 1);
                volume.write(plan.after - BLOCK, &end, Durability::Fua).await.expect("a write succeeds");
                volume.discard(plan.after - BLOCK, BLOCK).await.expect("a discard succeeds");
                volume.resize(plan.before).await.expect("the volume shrinks");
                volume.volume().audit().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
                all.push(free(&volume.volume()));
            }
            assert!(all[1..].windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
            volume.volume().close().await.expect("the volume closes");
        });
        world.halt();
    }
}
