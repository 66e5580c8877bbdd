//! A disk that keeps epochs. After the loss of the SSD at any instant, the disk alone is the volume as of
//! one recent instant, byte for byte.

use crate::rig::{Rig, make, open, open_with, options, refused, seeds};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::epoch_journal;
use braid_format::superblock::{Layout, RegionKind};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

pub const SSD: DeviceId = DeviceId(0);
pub const SIZE: Bytes = Bytes(2 << 20);
pub const EXTENT: Bytes = Bytes(32 << 10);
pub const BLOCK: Bytes = Bytes(4 << 10);
pub const BOUND: Bytes = Bytes(512 << 10);

/// Guests' changes, in the order of their ends: a range, and its content since then.
pub struct History {
    /// Initial content of the volume.
    base: Vec<u8>,
    pub ops: RefCell<Vec<(Range<usize>, u8)>>,
}

impl History {
    pub fn from(base: Vec<u8>) -> Rc<History> {
        Rc::new(History { base, ops: RefCell::default() })
    }

    fn add(&self, offset: Bytes, len: Bytes, value: u8) {
        self.ops.borrow_mut().push((offset.as_usize()..(offset + len).as_usize(), value));
    }

    /// Returns the latest of the first `most` instants at which the volume had this content, and the number
    /// of blocks changed later.
    pub fn instant_of(&self, content: &[u8], most: usize) -> Option<(usize, u64)> {
        let mut compared = Compared::new(&self.base, content);
        let mut latest = compared.is_equal().then_some(0);
        for (i, (range, value)) in self.ops.borrow()[..most].iter().enumerate() {
            compared.change(range, Some(*value));
            latest = if compared.is_equal() { Some(i + 1) } else { latest };
        }
        latest.map(|latest| (latest, compared.differing_blocks()))
    }
}

/// A changing volume compared with a fixed content, sector by sector. Differences are updated, not counted
/// again after each change.
pub struct Compared {
    /// The byte that fills each sector of the content, if there is such a byte.
    content: Vec<Option<u8>>,
    equal: Vec<bool>,
    differing: usize,
}

impl Compared {
    const SECTOR: usize = 512;

    pub fn new(volume: &[u8], content: &[u8]) -> Compared {
        let sectors = content.chunks(Self::SECTOR);
        let byte = |sector: &[u8]| sector.iter().all(|byte| *byte == sector[0]).then_some(sector[0]);
        let equal: Vec<bool> =
            sectors.clone().zip(volume.chunks(Self::SECTOR)).map(|(a, b)| a == b).collect();
        let differing = equal.iter().filter(|equal| !**equal).count();
        Compared { content: sectors.map(byte).collect(), equal, differing }
    }

    /// Whole sectors hold this byte from now on; `None` for anything.
    pub fn change(&mut self, range: &Range<usize>, value: Option<u8>) {
        assert_eq!(
            (range.start % Self::SECTOR, range.end % Self::SECTOR),
            (0, 0),
            "guests write whole sectors"
        );
        for sector in range.start / Self::SECTOR..range.end / Self::SECTOR {
            let equal = value.is_none() || value == self.content[sector];
            self.differing -= usize::from(!self.equal[sector]);
            self.differing += usize::from(!equal);
            self.equal[sector] = equal;
        }
    }

    pub fn is_equal(&self) -> bool {
        self.differing == 0
    }

    pub fn differing_blocks(&self) -> u64 {
        let blocks = self.equal.chunks(BLOCK.as_usize() / Self::SECTOR);
        blocks.filter(|sectors| sectors.contains(&false)).count() as u64
    }
}

pub fn sound(disk: &Disk, world: &World) -> Faulty<Disk> {
    Faulty::new(disk.clone(), &Faults::new(FaultPlan::default(), world.fork_rng()))
}

pub fn epochs(identity: u8) -> CreateOptions {
    CreateOptions {
        copies: 2,
        size: Some(SIZE),
        extent_size: EXTENT,
        layouts: vec![Layout::Head, Layout::Tail],
        policy: format!("pass,order=epoch,window={},max-lag={},idle=20ms", KIB * 128, BOUND),
        // Half of the volumes have a map with a summary.
        map_group: (identity % 2 == 1).then_some(1),
        ..options(identity)
    }
}

/// Reads all of a volume.
pub async fn content(volume: &Rig) -> Vec<u8> {
    let (arena, mut bytes) = (Arena::new(MIB), Vec::new());
    for at in (0..SIZE / EXTENT).map(|i| EXTENT * i) {
        let buf = arena.alloc(EXTENT).await;
        volume.read(at, &buf).await.expect("the devices are sound");
        buf.with_bytes(|part| bytes.extend_from_slice(part));
    }
    bytes
}

/// A guest with a part of the volume of its own.
async fn use_part(volume: &Rig, world: &World, history: &History, part: Range<Bytes>, stop: &Cell<bool>) {
    let (arena, mut rng) = (Arena::new(MIB), world.fork_rng());
    while !stop.get() {
        // Some places are written again and again.
        let hot = rng.chance(0.5);
        let extents = (part.end - part.start) / EXTENT;
        let extent = part.start + EXTENT * rng.below(if hot { 2 } else { extents });
        match rng.below(20) {
            0 => volume.flush().await.expect("the devices are sound"),
            1 | 2 => {
                let start = BLOCK * rng.below(8);
                let len = BLOCK * rng.between(1, 9 - start / BLOCK);
                volume.discard(extent + start, len).await.expect("the devices are sound");
                history.add(extent + start, len, 0);
            }
            3 => world.sleep(Nanos::from_millis(rng.below(60))).await,
            _ => {
                let start = Bytes(512) * rng.below(48);
                let longest = if rng.chance(0.2) { 80 } else { 12 };
                let len = Bytes(512) * rng.between(1, longest);
                let at = extent + start;
                let len = len.min(part.end - at);
                let buf = arena.alloc(len).await;
                let value = rng.between(1, 250) as u8;
                buf.with_bytes_mut(|bytes| bytes.fill(value));
                volume.write(at, &buf, Durability::Volatile).await.expect("the devices are sound");
                history.add(at, len, value);
            }
        }
    }
}

/// Content of the disk alone after the loss of the SSD; with `cut`, after a power cut.
pub async fn recovered(world: &World, disk: &Disk, cut: Option<&mut Rng>) -> Vec<u8> {
    let left = disk.fork(world);
    if let Some(rng) = cut {
        left.power_cut(rng);
    }
    let left = left.restart(world);
    let alone = |options: &mut braid_engine::OpenOptions| {
        (options.distrust, options.recover) = (vec![SSD], true);
    };
    let (volume, recovery) =
        open_with(world.clone(), vec![sound(&left, world)], alone).await.expect("it is an image");
    assert!(recovery.adopted.is_some());
    let bytes = content(&volume).await;
    volume.close().await.expect("the disk is sound");
    bytes
}

pub fn check(history: &History, content: &[u8], most: usize, seed: u64) {
    let (_, blocks) =
        history.instant_of(content, most).unwrap_or_else(|| panic!("seed {seed}: the volume never was this"));
    assert!(BLOCK * blocks <= BOUND, "seed {seed}: {blocks} blocks were lost");
}

pub async fn wait_for_image(world: &World, volume: &Rig) {
    for _ in 0..100_000 {
        if volume.status().epoch.is_some() {
            return;
        }
        world.sleep(Nanos::from_millis(10)).await;
    }
    panic!("the disk never is a state of the volume");
}

pub fn disks(world: &World) -> [Disk; 2] {
    [DiskOptions::ssd(MIB * 12), DiskOptions::hdd(MIB * 14)].map(|options| Disk::new(world, options))
}

/// Guests at work, each on a part of the volume.
pub struct Guests {
    history: Rc<History>,
    stop: Rc<Cell<bool>>,
    running: Rc<Cell<u64>>,
}

impl Guests {
    pub fn begin(volume: &Rig, world: &World, history: &Rc<History>, guests: u64) -> Guests {
        let (stop, running) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(guests)));
        for guest in 0..guests {
            let len = (SIZE / guests).align_down(EXTENT);
            let part = len * guest..len * (guest + 1);
            let (volume, world, history) = (volume.clone(), world.clone(), history.clone());
            let (stop, running) = (stop.clone(), running.clone());
            world.clone().spawn(async move {
                use_part(&volume, &world, &history, part, &stop).await;
                running.set(running.get() - 1);
            });
        }
        Guests { history: history.clone(), stop, running }
    }

    pub async fn end(self, world: &World) -> Rc<History> {
        self.stop.set(true);
        while self.running.get() > 0 {
            world.sleep(Nanos::from_millis(1)).await;
        }
        self.history
    }
}

/// Checks that the volume holds the latest writes of guests.
async fn check_volume(volume: &Rig, history: &History, seed: u64) {
    let (bytes, all) = (content(volume).await, history.ops.borrow().len());
    assert_eq!(history.instant_of(&bytes, all).map(|(instant, _)| instant), Some(all), "seed {seed}");
}

/// Guests at work, while the SSD is lost 24 times.
pub fn lose_ssd(seed: u64) {
    let world = World::new(seed);
    let [ssd, disk] = disks(&world);
    world.clone().block_on(async move {
        let all = vec![sound(&ssd, &world), sound(&disk, &world)];
        let volume = make(world.clone(), all, &epochs(seed as u8)).await;
        let mut rng = world.fork_rng();
        // Some trials begin before the disk is an image.
        if rng.chance(0.7) {
            wait_for_image(&world, &volume).await;
        }
        let history = History::from(vec![0; SIZE.as_usize()]);
        let guests = Guests::begin(&volume, &world, &history, rng.between(1, 4));
        wait_for_image(&world, &volume).await;
        for _ in 0..24 {
            world.sleep(Nanos::from_micros(rng.between(1_000, 400_000))).await;
            let mut cut = rng.fork();
            let cut = rng.chance(0.6).then_some(&mut cut);
            // Guests continue while the lost volume is inspected.
            let until = history.ops.borrow().len();
            let bytes = recovered(&world, &disk, cut).await;
            check(&history, &bytes, until, seed);
        }
        check_volume(&volume, &*guests.end(&world).await, seed).await;
        volume.close().await.expect("the devices are sound");
    });
}

#[test]
fn image_disk_holds_past_state_whenever_ssd_is_lost() {
    let seeds = seeds("BRAID_EPOCH_SEEDS", 2);
    (0..seeds).for_each(lose_ssd);
}

/// After a power cut the SSD may lack blocks of an epoch that the disk has, and the disk may lack blocks
/// that the SSD has. The disk keeps its state until the next epoch.
#[test]
fn image_disk_holds_past_state_after_full_power_cut() {
    for seed in 1000..1030 {
        let world = World::new(seed);
        let [ssd, disk] = disks(&world);
        world.clone().block_on(async move {
            let mut rng = world.fork_rng();
            let mut lives = vec![History::from(vec![0; SIZE.as_usize()])];
            let volume =
                make(world.clone(), vec![sound(&ssd, &world), sound(&disk, &world)], &epochs(1)).await;
            wait_for_image(&world, &volume).await;
            let (mut all, mut volume) = ([ssd, disk], volume);
            for _ in 0..4 {
                let history = lives.last().expect("there is one").clone();
                let guests = Guests::begin(&volume, &world, &history, rng.between(1, 4));
                world.sleep(Nanos::from_micros(rng.between(1_000, 700_000))).await;
                let is_cut = rng.chance(0.7);
                let left = all.each_ref().map(|disk| {
                    let left = disk.fork(&world);
                    if is_cut {
                        left.power_cut(&mut rng);
                    }
                    left.restart(&world)
                });
                // Later changes of the life that continues elsewhere do not count.
                let until = history.ops.borrow().len();
                guests.end(&world).await;
                history.ops.borrow_mut().truncate(until);
                volume.close().await.expect("the devices are sound");
                volume = open(world.clone(), left.iter().map(|disk| sound(disk, &world)).collect())
                    .await
                    .expect("both are there");
                all = left;
                lives.push(History::from(content(&volume).await));
                let guests = Guests::begin(&volume, &world, lives.last().expect("there is one"), 2);
                world.sleep(Nanos::from_micros(rng.between(1_000, 300_000))).await;
                let bytes = recovered(&world, &all[1], None).await;
                let was = lives.iter().any(|life| life.instant_of(&bytes, life.ops.borrow().len()).is_some());
                assert!(was, "seed {seed}: the volume never was this");
                check_volume(&volume, &*guests.end(&world).await, seed).await;
            }
        });
    }
}

/// Without the SSD, and without a request to recover, the volume is refused while the disk is stale.
#[test]
fn volume_without_ssd_is_refused_until_recovery() {
    let world = World::new(7);
    let [ssd, disk] = disks(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), vec![sound(&ssd, &world), sound(&disk, &world)], &epochs(7)).await;
        let given_up = |options: &mut braid_engine::OpenOptions| {
            (options.distrust, options.recover) = (vec![SSD], true);
        };
        let alone_of = |disk: &Disk| vec![sound(&disk.fork(&world).restart(&world), &world)];
        let error = refused(open_with(world.clone(), alone_of(&disk), given_up).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "it is no image yet: {error}");
        wait_for_image(&world, &volume).await;
        let buf = Arena::new(MIB).alloc(EXTENT).await;
        buf.with_bytes_mut(|bytes| bytes.fill(9));
        // No epoch contains this write.
        let policy = volume.policy().replace("idle=20ms", "idle=1h");
        volume.set_policy(&policy.replace("max-lag-time=5s", "max-lag-time=none")).await.unwrap();
        volume.write(EXTENT, &buf, Durability::Fua).await.unwrap();
        let (disk, ssd) = (disk.fork(&world), ssd.fork(&world));
        let alone = || alone_of(&disk);
        let error = refused(open(world.clone(), alone()).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        let error = refused(
            open_with(
                world.clone(),
                vec![sound(&ssd.fork(&world).restart(&world), &world), alone().remove(0)],
                |o| o.recover = true,
            )
            .await,
        );
        assert_eq!(error.kind(), ErrorKind::Degraded, "the SSD is there: {error}");
        let left = alone();
        let (recovered, _) = open_with(world.clone(), left.clone(), given_up).await.unwrap();
        assert!(content(&recovered).await.iter().all(|&byte| byte == 0), "as before the write");
        recovered.write(EXTENT * 2, &buf, Durability::Fua).await.unwrap();
        recovered.close().await.unwrap();
        // From then on the volume is an ordinary volume with a missing device.
        let again = open(world.clone(), left).await.unwrap();
        let bytes = content(&again).await;
        let expected =
            |at: usize| if (EXTENT.as_usize() * 2..EXTENT.as_usize() * 3).contains(&at) { 9 } else { 0 };
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
        assert_eq!(again.status().epoch, None);
        again.close().await.unwrap();
    });
}

/// True if the journal of epochs has valid segments. Data that a volume calls journaled may still be in
/// flight.
async fn has_segments(volume: &Rig, disk: &Disk) -> bool {
    let superblock = volume.superblock();
    let region = superblock.region(RegionKind::EpochJournal, 0).expect("the disk keeps epochs");
    let len = epoch_journal::SEGMENTS;
    let buf = Arena::new(len).alloc(len).await;
    disk.read(region.offset, &buf).await.expect("the disk is sound");
    let page = buf.with_bytes(|bytes| epoch_journal::newest_state(bytes, superblock.volume));
    page.is_some_and(|page| page.run.segments > 0)
}

/// Overwrites the index pages of all segments.
async fn damage_segments(disk: &Disk) {
    const PAGE: Bytes = Bytes(4096);
    let buf = Arena::new(PAGE).alloc(PAGE).await;
    for at in (0..disk.geometry().size / PAGE).map(|page| PAGE * page) {
        disk.read(at, &buf).await.expect("the disk is sound");
        if buf.with_bytes(|bytes| bytes.starts_with(b"BRAIDEPI")) {
            buf.with_bytes_mut(|bytes| bytes[100..200].fill(0x5a));
            disk.write(at, &buf).await.expect("the disk is sound");
        }
    }
    disk.flush().await.expect("the disk is sound");
}

/// While the SSD has all data, a damaged journal of epochs costs only the image, which is reproduced.
#[test]
fn volume_with_ssd_survives_damaged_epoch_journal() {
    let world = World::new(17);
    let [ssd, disk] = disks(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), vec![sound(&ssd, &world), sound(&disk, &world)], &epochs(17)).await;
        wait_for_image(&world, &volume).await;
        let history = History::from(vec![0; SIZE.as_usize()]);
        let left = loop {
            let guests = Guests::begin(&volume, &world, &history, 3);
            world.sleep(Nanos::from_millis(200)).await;
            guests.end(&world).await;
            volume.flush().await.expect("the devices are sound");
            let left = [ssd.fork(&world).restart(&world), disk.fork(&world).restart(&world)];
            if has_segments(&volume, &left[1]).await {
                break left;
            }
        };
        volume.close().await.expect("the devices are sound");
        damage_segments(&left[1]).await;
        let alone = vec![sound(&left[1].fork(&world).restart(&world), &world)];
        let error = refused(
            open_with(world.clone(), alone, |options| {
                (options.distrust, options.recover) = (vec![SSD], true);
            })
            .await,
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt, "without the SSD it is lost: {error}");
        let volume = open(world.clone(), left.iter().map(|disk| sound(disk, &world)).collect()).await;
        let volume = volume.expect("the SSD has all of it");
        check_volume(&volume, &history, 17).await;
        wait_for_image(&world, &volume).await;
        let bytes = recovered(&world, &left[1], None).await;
        check(&history, &bytes, history.ops.borrow().len(), 17);
        volume.close().await.expect("the devices are sound");
    });
}

/// A recovery interrupted at any write can be repeated, with the same result.
#[test]
fn interrupted_recovery_gives_same_result_when_repeated() {
    let world = World::new(11);
    let [ssd, disk] = disks(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), vec![sound(&ssd, &world), sound(&disk, &world)], &epochs(11)).await;
        wait_for_image(&world, &volume).await;
        let history = History::from(vec![0; SIZE.as_usize()]);
        let guests = Guests::begin(&volume, &world, &history, 2);
        world.sleep(Nanos::from_millis(700)).await;
        // Writes in flight take effect first, and the flush covers these writes: a power cut would take back
        // an epoch that is only in the disk's cache.
        let lost = disk.fork(&world).restart(&world);
        lost.flush().await.expect("the disk is sound");
        guests.end(&world).await;
        volume.close().await.unwrap();
        let expected = recovered(&world, &lost, None).await;
        let mut rng = world.fork_rng();
        for _ in 0..40 {
            let left = lost.fork(&world).restart(&world);
            let (inner, faulty) = (world.clone(), sound(&left, &world));
            let ended = Rc::new(Cell::new(false));
            let has_ended = ended.clone();
            world.spawn(async move {
                let alone = |options: &mut braid_engine::OpenOptions| {
                    (options.distrust, options.recover) = (vec![SSD], true);
                };
                let (volume, _) = open_with(inner, vec![faulty], alone).await.expect("it is an image");
                volume.close().await.expect("the disk is sound");
                has_ended.set(true);
            });
            world.sleep(Nanos::from_micros(rng.between(100, 900_000))).await;
            let cut = left.fork(&world);
            cut.power_cut(&mut rng);
            let cut = cut.restart(&world);
            while !ended.get() {
                world.sleep(Nanos::from_millis(10)).await;
            }
            // Requested again, or not requested if the recovery has begun.
            let given_up = |options: &mut braid_engine::OpenOptions| options.distrust = vec![SSD];
            let asked = |options: &mut braid_engine::OpenOptions| {
                (options.distrust, options.recover) = (vec![SSD], true);
            };
            let first =
                match open_with(world.clone(), vec![sound(&cut.fork(&world).restart(&world), &world)], asked)
                    .await
                {
                    Ok((volume, _)) => volume,
                    // The recovery had ended.
                    Err(_) => {
                        open_with(world.clone(), vec![sound(&cut, &world)], given_up)
                            .await
                            .expect("it has ended")
                            .0
                    }
                };
            assert!(content(&first).await == expected);
            first.close().await.unwrap();
        }
    });
}
