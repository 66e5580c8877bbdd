//! Random lives of mirrors that crash, with moves, copies and caches beside undecided spans: concurrent
//! readers, sectors of 512 bytes, memory, extra copies, moves, bad places, and devices that leave and
//! return.

use crate::rig::{Rig, open_with, options, seeds, sound, sound_one};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Readahead, Zeroing, create};
use braid_policy::{ByteRange, DeviceView, Home, Move, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime, join_all};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, StoredDisk, World};
use std::cell::RefCell;
use std::rc::Rc;

const SECTOR: Bytes = Bytes(512);

type Content = Rc<[u8]>;

/// Knowledge of guests about a sector.
#[derive(Clone)]
struct Known {
    /// Contents that a crash may leave.
    legal: Vec<Content>,
    /// Present content, once a guest has read or written the sector.
    now: Option<Content>,
}

#[derive(Clone, Default)]
struct Told {
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        let Occasion::New { extent, .. } = occasion else {
            return match occasion {
                Occasion::ReadMiss(_) if view.devices.len() > 2 => Placement::cached(Some(DeviceId(2))),
                _ => Placement::KEEP,
            };
        };
        let mut free: Vec<DeviceId> = view.devices.iter().filter(|d| d.free > 0).map(|d| d.id).collect();
        if free.is_empty() {
            free.push(DeviceId(0));
        }
        let spread = (extent.0.wrapping_mul(2_654_435_761) >> 16) as usize;
        let home = free[spread % free.len()];
        let second = free[(spread + 1) % free.len()];
        let second = if second == home { Second::None } else { Second::Sync(second) };
        Placement { home: Home::On(home), second, extra: None }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == DeviceId(2) { device.slots / 4 } else { 0 }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Variant {
    three: bool,
    moves: bool,
    bad: bool,
    caches: bool,
}

struct Life {
    rt: World,
    rng: Rng,
    arena: Arena,
    sectors: Rc<RefCell<Vec<Known>>>,
    volume: Rig,
    disks: Vec<Disk>,
    told: Told,
    what: String,
    variant: Variant,
    extent_size: Bytes,
    /// The device that is lost, and has bad places.
    weak: usize,
    refused: u64,
}

async fn opened(rt: &World, rng: &mut Rng, disks: &[Disk], caches: bool) -> braid_engine::Result<Rig> {
    let cached = if caches && rng.chance(0.6) { 1 + rng.below(16) as usize } else { 0 };
    let ahead = if caches && rng.chance(0.5) { MIB } else { Bytes::ZERO };
    let change = |options: &mut braid_engine::OpenOptions| {
        (options.cache_extents, options.readahead, options.ahead) = (cached, Readahead::First, ahead);
    };
    open_with(rt.clone(), sound(disks), change).await.map(|(volume, _)| volume)
}

impl Life {
    async fn begin(rt: &World, seed: u64, variant: Variant) -> Life {
        let mut rng = Rng::new(seed ^ 0x6752_5564);
        let kinds = [DiskOptions::hdd(MIB * 40), DiskOptions::hdd(MIB * 40), DiskOptions::ssd(MIB * 40)];
        let count = if variant.three { 3 } else { 2 };
        let disks: Vec<Disk> = kinds.into_iter().take(count).map(|kind| Disk::new(rt, kind)).collect();
        let extent_size = [KIB * 16, KIB * 64, KIB * 256, MIB * 2][rng.below(4) as usize];
        let how = CreateOptions {
            copies: 2,
            policy: if variant.three { "ssd-first,cache=30%" } else { "raid1" }.to_owned(),
            extent_size,
            span_size: extent_size * [1, 2, 64][rng.below(3) as usize],
            size: Some(MIB * 12),
            ..options(1)
        };
        create(&sound(&disks), &how).await.expect("the disks are fit");
        let volume = opened(rt, &mut rng, &disks, variant.caches).await.expect("it is new");
        let told = Told::default();
        volume.replace_policy(Box::new(told.clone()));
        let zeros: Content = vec![0; SECTOR.0 as usize].into();
        let known = Known { legal: vec![zeros.clone()], now: Some(zeros) };
        let sectors = Rc::new(RefCell::new(vec![known; (volume.size() / SECTOR) as usize]));
        let weak = rng.below(count as u64) as usize;
        Life {
            rt: rt.clone(),
            rng,
            arena: Arena::new(MIB * 16),
            sectors,
            volume,
            disks,
            told,
            what: format!("seed {seed}, {variant:?}, extents of {extent_size}"),
            variant,
            extent_size,
            weak,
            refused: 0,
        }
    }

    fn len(&self) -> usize {
        self.sectors.borrow().len()
    }

    /// A sector, mostly a sector with possibly different copies.
    fn drawn(&mut self) -> usize {
        let from = self.rng.below(self.len() as u64) as usize;
        if self.rng.chance(0.2) {
            return from;
        }
        let sectors = self.sectors.borrow();
        let unknown = |i: &usize| sectors[*i].now.is_none() && sectors[*i].legal.len() > 1;
        (from..sectors.len()).chain(0..from).find(unknown).unwrap_or(from)
    }

    fn range(&mut self, most: u64) -> (usize, usize) {
        let first = self.drawn();
        let count = 1 + self.rng.below(most) as usize;
        (first, count.min(self.len() - first))
    }

    fn becomes(&self, (first, count): (usize, usize), new: &Content) {
        for known in &mut self.sectors.borrow_mut()[first..first + count] {
            let now = known.now.take();
            known.legal.extend(now);
            known.legal.push(new.clone());
        }
    }

    /// Writes everything once, so that a resync takes its time.
    async fn fill(&mut self) {
        let new: Content = vec![7; SECTOR.0 as usize].into();
        for at in (0..self.volume.size().0).step_by(MIB.0 as usize).map(Bytes) {
            let buf = self.arena.alloc(MIB).await;
            buf.with_bytes_mut(|bytes| bytes.fill(7));
            self.volume.write(at, &buf, Durability::Fua).await.expect("the disks are sound");
        }
        self.sectors.borrow_mut().fill(Known { legal: vec![new.clone()], now: Some(new) });
    }

    async fn write(&mut self, is_left: bool) {
        let most = if self.rng.chance(0.1) { 600 } else { 24 };
        let (first, count) = self.range(most);
        let kind = self.rng.below(8);
        let value = if kind < 2 { 0 } else { self.rng.next_u64() as u8 };
        let new: Content = vec![value; SECTOR.0 as usize].into();
        self.becomes((first, count), &new);
        let (at, len) = (SECTOR * first as u64, SECTOR * count as u64);
        let buf = self.arena.alloc(len).await;
        buf.with_bytes_mut(|bytes| bytes.fill(value));
        let fua = if self.rng.chance(0.04) { Durability::Fua } else { Durability::Volatile };
        let (volume, sectors, what) = (self.volume.clone(), self.sectors.clone(), self.what.clone());
        let write = async move {
            let done = match kind {
                0 => volume.discard(at, len).await,
                1 => volume.write_zeroes(at, len, Zeroing::KeepAllocated, fua).await,
                _ => volume.write(at, &buf, fua).await,
            };
            done.unwrap_or_else(|error| panic!("{what}: write: {error}"));
            for known in &mut sectors.borrow_mut()[first..first + count] {
                known.now = Some(new.clone());
                // Beside other writes, the order is unknown.
                if fua == Durability::Fua && kind > 0 && !is_left {
                    known.legal = vec![new.clone()];
                }
            }
        };
        match is_left {
            true => self.rt.spawn(write),
            false => write.await,
        }
    }

    /// Several guests read concurrently, mostly the same range.
    async fn read(&mut self) {
        let (first, count) = self.range(32);
        let tasks = 1 + self.rng.below(4);
        let drawn: Vec<(usize, usize, Nanos)> = (0..tasks)
            .map(|_| {
                let (first, count) = if self.rng.chance(0.6) { (first, count) } else { self.range(64) };
                (first, count, Nanos(self.rng.below(20_000_000)))
            })
            .collect();
        let reads = drawn.into_iter().map(async |(first, count, rest)| {
            self.rt.sleep(rest).await;
            self.read_now(first, count).await;
        });
        join_all(reads).await;
    }

    async fn read_now(&self, first: usize, count: usize) {
        let buf = self.arena.alloc(SECTOR * count as u64).await;
        let read = self.volume.read(SECTOR * first as u64, &buf).await;
        read.unwrap_or_else(|error| panic!("{}: sector {first}: {error}", self.what));
        let mut sectors = self.sectors.borrow_mut();
        buf.with_bytes(|bytes| {
            for (i, bytes) in bytes.chunks(SECTOR.0 as usize).enumerate() {
                let known = &mut sectors[first + i];
                match &known.now {
                    Some(now) => assert!(
                        now[..] == *bytes,
                        "{}: sector {} changed from {} to {} without a write",
                        self.what,
                        first + i,
                        now[0],
                        bytes[0]
                    ),
                    None => {
                        let is_legal = bytes
                            .iter()
                            .enumerate()
                            .all(|(i, byte)| known.legal.iter().any(|l| l[i] == *byte));
                        assert!(is_legal, "{}: sector {} is {}, not legal", self.what, first + i, bytes[0]);
                        known.now = Some(bytes.to_vec().into());
                    }
                }
            }
        });
    }

    async fn flush(&mut self) {
        let before: Vec<Option<Content>> =
            self.sectors.borrow().iter().map(|known| known.now.clone()).collect();
        self.volume.flush().await.unwrap_or_else(|error| panic!("{}: flush: {error}", self.what));
        for (known, before) in self.sectors.borrow_mut().iter_mut().zip(before) {
            if let Some(now) = before {
                known.legal = vec![now];
            }
        }
    }

    fn spoil(&mut self) {
        let sector = self.drawn() as u64;
        let at = (SECTOR * sector).align_down(KIB * 4);
        let Ok(place) = self.volume.explain(at) else { return };
        let second = place.second.map(|(device, at, _)| (device, at));
        let found =
            [place.home, second].into_iter().flatten().find(|(device, _)| device.index() == self.weak);
        if let Some((_, start)) = found
            && self.weak < self.disks.len()
        {
            self.disks[self.weak].spoil(start..start + KIB * 4, Bad::UntilWritten);
        }
    }

    fn tell_move(&mut self) {
        let sector = self.drawn() as u64;
        let range = ByteRange::new((SECTOR * sector).align_down(KIB * 4), KIB * 4);
        let extent = ExtentId((SECTOR * sector / self.extent_size) as u32);
        let target = DeviceId(self.rng.below(3) as u16);
        let what = match self.rng.below(6) {
            0 => Move::Promote { range, target: DeviceId(2) },
            1 => Move::Demote { range },
            _ => Move::Migrate { extent, target },
        };
        self.told.moves.borrow_mut().push(what);
    }

    async fn work(&mut self, steps: u64, reads: u64, is_whole: bool) {
        for _ in 0..steps {
            if self.variant.moves && self.variant.three && is_whole && self.rng.chance(0.4) {
                self.tell_move();
            }
            if self.variant.bad && is_whole && self.rng.chance(0.15) {
                self.spoil();
            }
            if self.rng.chance(0.1) {
                self.rt.sleep(Nanos(self.rng.below(100_000_000))).await;
            }
            match self.rng.below(10) {
                step if step < reads => self.read().await,
                9 if self.rng.chance(0.3) => self.flush().await,
                _ => self.write(false).await,
            }
        }
    }

    async fn crash(&mut self) -> Vec<StoredDisk> {
        for _ in 0..self.rng.below(8) {
            self.write(true).await;
        }
        self.rt.sleep(Nanos(self.rng.below(20_000_000))).await;
        let mut stored: Vec<StoredDisk> = self.disks.iter().map(Disk::store).collect();
        let sectors = self.sectors.borrow().clone();
        self.sectors = Rc::new(RefCell::new(sectors));
        for known in self.sectors.borrow_mut().iter_mut() {
            let now = known.now.take();
            known.legal.extend(now);
        }
        let is_daemon = self.rng.chance(0.3);
        for disk in &mut stored {
            match is_daemon {
                true => disk.kill(),
                false => disk.power_cut(&mut self.rng),
            }
        }
        stored
    }

    async fn close(&mut self) -> Vec<StoredDisk> {
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        self.volume.close().await.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        self.disks.iter().map(Disk::store).collect()
    }

    async fn open(&mut self, stored: &[StoredDisk]) -> bool {
        let disks: Vec<Disk> = stored.iter().map(|disk| disk.clone().attach(&self.rt)).collect();
        let Ok(volume) = opened(&self.rt, &mut self.rng, &disks, self.variant.caches).await else {
            return false;
        };
        (self.volume, self.disks, self.told) = (volume, disks, Told::default());
        self.volume.replace_policy(Box::new(self.told.clone()));
        let stall = Nanos::from_millis(1)..Nanos::from_millis(2 + self.rng.below(3000));
        let plan = FaultPlan { stalls: 0.9, stall, ..FaultPlan::default() };
        self.disks.iter().for_each(|disk| disk.faults().set(plan.clone()));
        true
    }

    async fn end(&mut self) {
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        self.rt.sleep(Nanos::from_secs(200)).await;
        for first in (0..self.len()).step_by(128) {
            self.read_now(first, 128.min(self.len() - first)).await;
        }
        self.rt.sleep(Nanos::from_secs(100)).await;
        assert_eq!(self.volume.status().behind, Bytes::ZERO, "{}: the resync does not end", self.what);
        let audited = self.volume.audit().await;
        // A bad place that no request has met is no fault.
        let is_met = |error: &braid_engine::Error| !self.variant.bad || error.kind() == ErrorKind::Corrupt;
        if let Some(error) = audited.err().filter(is_met) {
            panic!("{}: audit: {error}", self.what);
        }
    }
}

/// Returns the number of refused losses of the device, and the number of refusals before the end of a
/// resync.
fn live(seed: u64, variant: Variant) -> (u64, u64) {
    let world = World::new(seed);
    let rt = world.clone();
    let told = world.block_on(async move {
        let mut life = Life::begin(&rt, seed, variant).await;
        life.fill().await;
        life.work(40, 3, true).await;
        for _ in 0..1 + life.rng.below(3) {
            let stored = match life.rng.chance(0.8) {
                true => life.crash().await,
                false => life.close().await,
            };
            assert!(life.open(&stored).await, "{}: it is whole", life.what);
            let (steps, reads) = (life.rng.below(10), life.rng.between(6, 10));
            life.work(steps, reads, true).await;
        }
        if life.rng.chance(0.7) {
            life.flush().await;
        }
        let is_met = life.volume.status().behind > Bytes::ZERO;
        let weak = life.weak;
        let mut away = None;
        match life.rng.below(4) {
            0 => {}
            1 => match life.volume.fail_device(DeviceId(weak as u16)).await {
                Ok(()) => {
                    let steps = life.rng.below(20);
                    life.work(steps, 6, false).await;
                    let back = sound_one(&life.disks[weak]);
                    life.disks[weak].lose_cache();
                    life.volume.return_device(back, "it").await.unwrap_or_else(|error| {
                        panic!("{}: return: {error}", life.what);
                    });
                    let steps = life.rng.below(20);
                    life.work(steps, 6, false).await;
                }
                Err(_) => life.refused += 1,
            },
            how => {
                let stored = if how == 2 { life.crash().await } else { life.close().await };
                let mut left = stored.clone();
                let gone = left.remove(weak);
                if life.open(&left).await {
                    let steps = life.rng.below(30);
                    life.work(steps, 6, false).await;
                    away = Some(gone);
                } else {
                    life.refused += 1;
                    assert!(life.open(&stored).await, "{}: it is whole", life.what);
                }
            }
        }
        if away.is_some() || life.rng.chance(0.5) {
            let mut stored = if life.rng.chance(0.5) { life.crash().await } else { life.close().await };
            if let Some(away) = away {
                stored.insert(weak, away);
            }
            assert!(life.open(&stored).await, "{}: it is whole", life.what);
            let steps = life.rng.below(20);
            life.work(steps, 6, false).await;
        }
        life.end().await;
        (life.refused, u64::from(is_met))
    });
    world.halt();
    told
}

fn lives(usual: u64, variant: Variant) {
    let seeds = seeds("BRAID_CRASH_SEEDS", usual);
    let (mut refused, mut met, mut failed) = (0, 0, Vec::new());
    for seed in 0..seeds {
        match std::panic::catch_unwind(|| live(seed, variant)) {
            Ok((count, is_met)) => (refused, met) = (refused + count, met + is_met),
            Err(_) => failed.push(seed),
        }
    }
    println!("{refused} of {seeds} refused, {met} before the end of a resync");
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn two_disks_and_guests_side_by_side() {
    lives(10, Variant { caches: true, ..Variant::default() });
}

#[test]
fn two_disks_and_bad_places() {
    lives(10, Variant { bad: true, caches: true, ..Variant::default() });
}

#[test]
fn three_disks_and_moves() {
    lives(10, Variant { three: true, moves: true, caches: true, ..Variant::default() });
}

#[test]
fn three_disks_moves_and_bad_places() {
    lives(10, Variant { three: true, moves: true, bad: true, caches: true });
}
