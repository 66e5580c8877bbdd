//! Mirrors between a crash and the end of the resync. Either device may be lost then: while the volume is
//! served, by another crash, or after a shutdown. All flushed data is there, and blocks that a guest has
//! read and flushed since the crash do not change.

use crate::rig::{Rig, open, options, seeds, sound};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, StoredDisk, World};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCK: Bytes = Bytes(4 << 10);

/// Knowledge of a guest about a block.
#[derive(Clone, Default)]
struct Known {
    /// Contents that a crash may leave: the last flushed content, the content before, and later writes.
    legal: Vec<Vec<u8>>,
    /// Present content, once the guest has written or read the block.
    now: Option<Vec<u8>>,
}

type Blocks = Rc<RefCell<Vec<Known>>>;

impl Known {
    fn is_legal(&self, bytes: &[u8]) -> bool {
        match &self.now {
            Some(now) => now == bytes,
            // A write in flight may be torn anywhere.
            None => bytes.iter().enumerate().all(|(i, byte)| self.legal.iter().any(|l| l[i] == *byte)),
        }
    }

    fn crash(&mut self) {
        self.legal.extend(self.now.take());
    }
}

/// One volume, the guest with its knowledge, and a random life.
struct Life {
    rt: World,
    rng: Rng,
    arena: Arena,
    blocks: Blocks,
    volume: Rig,
    disks: Vec<Disk>,
    what: String,
    variant: Variant,
    /// A flush failed: the volume promises nothing any more.
    broken: bool,
    crashes: u32,
}

/// Random events besides reads and writes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Variant {
    discards: bool,
    /// Policies that defer, and changes of the policy.
    defers: bool,
    /// Number of the lost device, with bad places.
    bad: Option<usize>,
    /// Number of the lost device, with single failing requests.
    faults: Option<usize>,
    three: bool,
    /// Devices are drained.
    drains: bool,
    /// Number of the device whose flushes fail now and then, and lose the writes that they cover.
    flushes: Option<usize>,
}

impl Variant {
    /// True if the loss of a device may be refused.
    fn may_refuse(&self) -> bool {
        self.defers || self.bad.is_some() || self.faults.is_some() || self.flushes.is_some() || self.drains
    }
}

impl Life {
    async fn begin(rt: &World, seed: u64, variant: Variant) -> Life {
        let mut rng = Rng::new(seed ^ 0x04DE_C1DE);
        let kinds = [[true, true], [true, false], [false, true]];
        let disk = |is_ssd| {
            let options = if is_ssd { DiskOptions::ssd(MIB * 40) } else { DiskOptions::hdd(MIB * 48) };
            Disk::new(rt, options)
        };
        let kind = if variant.defers { 1 } else { rng.below(3) as usize };
        let mut disks = kinds[kind].map(disk).to_vec();
        if variant.three {
            disks.push(Disk::new(rt, DiskOptions::hdd(MIB * 48)));
        }
        let policies = match variant.defers {
            true => ["raid1,write-behind", "pass,max-lag=256KiB,window=128KiB", "pass,idle=100ms", "raid1"],
            false => ["raid1", "ssd-first", "equi", "stripe"],
        };
        let extent_size = [KIB * 16, KIB * 128, MIB * 2][rng.below(3) as usize];
        let create_options = CreateOptions {
            copies: 2,
            policy: policies[rng.below(4) as usize].to_owned(),
            extent_size,
            span_size: extent_size * [1, 2, 16][rng.below(3) as usize],
            ..options(1)
        };
        create(&sound(&disks), &create_options).await.expect("the disks are fit");
        let volume = open(rt.clone(), sound(&disks)).await.expect("it is new");
        let zeros = Known { legal: vec![vec![0; BLOCK.0 as usize]], now: Some(vec![0; BLOCK.0 as usize]) };
        let blocks = Rc::new(RefCell::new(vec![zeros; (volume.size() / BLOCK) as usize]));
        let what = format!("seed {seed}");
        Life {
            rt: rt.clone(),
            rng,
            arena: Arena::new(MIB * 2),
            blocks,
            volume,
            disks,
            what,
            variant,
            broken: false,
            crashes: 0,
        }
    }

    /// If a bad place kept copies from being alike, another crash leaves all of the span stale: then the
    /// first copies alone count, with their bad places.
    fn may_lack(&self) -> bool {
        self.variant.bad.is_some() && self.crashes > 1
    }

    /// Writes a few blocks to their end, or leaves the write in flight.
    async fn write(&mut self, is_left: bool) {
        let count = 1 + self.rng.below(16) as usize;
        let first = self.rng.below((self.blocks.borrow().len() - count) as u64) as usize;
        let buf = self.arena.alloc(BLOCK * count as u64).await;
        let value = self.rng.next_u64() as u8;
        buf.with_bytes_mut(|bytes| bytes.fill(value));
        let new = vec![value; BLOCK.0 as usize];
        for known in &mut self.blocks.borrow_mut()[first..first + count] {
            let now = known.now.take();
            known.legal.extend(now);
            known.legal.push(new.clone());
        }
        let (volume, blocks) = (self.volume.clone(), self.blocks.clone());
        let may_fail = self.variant.flushes.is_some() || self.may_lack();
        let write = async move {
            let written = volume.write(BLOCK * first as u64, &buf, Durability::Volatile).await;
            if written.is_err() && may_fail {
                return;
            }
            written.expect("it is sound");
            blocks.borrow_mut()[first..first + count].iter_mut().for_each(|b| b.now = Some(new.clone()));
        };
        match is_left {
            true => self.rt.spawn(write),
            false => write.await,
        }
    }

    async fn discard(&mut self) {
        let count = 1 + self.rng.below(if self.rng.clone().chance(0.3) { 600 } else { 40 }) as usize;
        let first = self.rng.below((self.blocks.borrow().len() - count) as u64) as usize;
        let new = vec![0; BLOCK.0 as usize];
        for known in &mut self.blocks.borrow_mut()[first..first + count] {
            let now = known.now.take();
            known.legal.extend(now);
            known.legal.push(new.clone());
        }
        self.volume.discard(BLOCK * first as u64, BLOCK * count as u64).await.expect("it is sound");
        self.blocks.borrow_mut()[first..first + count].iter_mut().for_each(|b| b.now = Some(new.clone()));
    }

    async fn read(&mut self, block: usize) {
        let buf = self.arena.alloc(BLOCK).await;
        let read = self.volume.read(BLOCK * block as u64, &buf).await;
        if read.is_err() && (self.broken || self.may_lack()) {
            return;
        }
        read.unwrap_or_else(|error| panic!("{}, block {block}: {error}", self.what));
        let known = &mut self.blocks.borrow_mut()[block];
        buf.with_bytes(|bytes| {
            assert!(known.is_legal(bytes), "{}: block {block} holds what it never held", self.what);
            known.now = Some(bytes.to_vec());
        });
    }

    async fn flush(&mut self) {
        let before = self.blocks.borrow().clone();
        if let Err(error) = self.volume.flush().await {
            assert!(self.variant.flushes.is_some(), "{}: {error}", self.what);
            self.broken = true;
            return;
        }
        for (known, before) in self.blocks.borrow_mut().iter_mut().zip(before) {
            if let Some(now) = before.now {
                known.legal = vec![now];
            }
        }
    }

    /// A guest works for a while: `reads` of ten requests are reads.
    async fn work(&mut self, steps: u64, reads: u64) {
        for _ in 0..steps {
            if let Some(at) =
                self.variant.flushes.filter(|_| self.disks.len() > 1 + usize::from(self.variant.three))
            {
                let flushes = if self.rng.chance(0.1) { 1.0 } else { 0.0 };
                let stall = Nanos::from_millis(1)..Nanos::from_millis(60);
                let plan =
                    FaultPlan { flushes, flushes_lose: true, stalls: 0.7, stall, ..FaultPlan::default() };
                self.disks[at].faults().set(plan);
            }
            if self.broken {
                return;
            }
            if self.variant.drains && self.rng.chance(0.03) {
                let device = DeviceId(self.rng.below(3) as u16);
                let _refused = match self.rng.chance(0.6) {
                    true => self.volume.remove_device(device).await,
                    false => self.volume.cancel_removal(device).await,
                };
            }
            if let Some(at) = self.variant.faults.filter(|_| self.disks.len() > 1) {
                let p = if self.rng.chance(0.2) { 0.3 } else { 0.0 };
                let stall = Nanos::from_millis(1)..Nanos::from_millis(60);
                let plan =
                    FaultPlan { reads: p, writes: p / 4.0, stalls: 0.7, stall, ..FaultPlan::default() };
                self.disks[at].faults().set(plan);
            }
            if let Some(at) = self.variant.bad.filter(|_| self.disks.len() > 1)
                && self.rng.chance(0.2)
            {
                let block = self.drawn_block() as u64;
                let place = self.volume.explain(BLOCK * block).expect("it is sound");
                let (home, second) = (place.home, place.second.map(|(device, at, _)| (device, at)));
                let found = [home, second].into_iter().flatten().find(|(device, _)| device.index() == at);
                if let Some((_, start)) = found {
                    let bad = if self.rng.chance(0.5) { Bad::ForEver } else { Bad::UntilWritten };
                    self.disks[at].spoil(start..start + BLOCK, bad);
                }
            }
            if self.variant.discards && self.rng.chance(0.15) {
                self.discard().await;
            }
            if self.variant.defers && self.rng.chance(0.03) {
                let policies =
                    ["raid1,write-behind", "pass,max-lag=256KiB,window=128KiB", "pass,idle=100ms", "raid1"];
                let _refused = self.volume.set_policy(policies[self.rng.below(4) as usize]).await;
            }
            match self.rng.below(10) {
                step if step < reads => {
                    let block = self.drawn_block();
                    self.read(block).await;
                }
                9 => self.flush().await,
                _ => self.write(false).await,
            }
        }
    }

    /// A block, mostly a block with possibly different copies.
    fn drawn_block(&mut self) -> usize {
        let blocks = self.blocks.borrow();
        let unknown = |known: &Known| known.now.is_none() && known.legal.len() > 1;
        let unknown: Vec<usize> = (0..blocks.len()).filter(|&block| unknown(&blocks[block])).collect();
        match self.rng.chance(0.8) && !unknown.is_empty() {
            true => unknown[self.rng.below(unknown.len() as u64) as usize],
            false => self.rng.below(blocks.len() as u64) as usize,
        }
    }

    /// Ends the volume in the middle of its work, and returns the content of its disks.
    async fn crash(&mut self) -> Vec<StoredDisk> {
        self.crashes += 1;
        let (daemon_alone, left) = (self.rng.chance(0.3), self.rng.below(4));
        for _ in 0..left {
            self.write(true).await;
        }
        self.rt.sleep(Nanos(self.rng.below(20_000_000))).await;
        let mut stored: Vec<StoredDisk> = self.disks.iter().map(Disk::store).collect();
        let blocks = self.blocks.borrow().clone();
        // No client uses the old volume any more.
        self.blocks = Rc::new(RefCell::new(blocks));
        self.blocks.borrow_mut().iter_mut().for_each(|known| known.crash());
        for disk in &mut stored {
            match daemon_alone {
                true => disk.kill(),
                false => disk.power_cut(&mut self.rng),
            }
        }
        stored
    }

    /// Serves the volume from these disks. All disks answer slowly, so that a resync takes its time.
    async fn open(&mut self, stored: Vec<StoredDisk>) {
        self.broken = false;
        self.disks = stored.into_iter().map(|disk| disk.attach(&self.rt)).collect();
        let opened = open(self.rt.clone(), sound(&self.disks)).await;
        self.volume = opened.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let stall = Nanos::from_millis(1)..Nanos::from_millis(2 + self.rng.below(200));
        let plan = FaultPlan { stalls: 0.7, stall, ..FaultPlan::default() };
        self.disks.iter().for_each(|disk| disk.faults().set(plan.clone()));
    }

    /// True if the volume can be served from these disks.
    async fn opens(&self, stored: &[StoredDisk]) -> bool {
        let disks: Vec<Disk> = stored.iter().map(|disk| disk.clone().attach(&self.rt)).collect();
        open(self.rt.clone(), sound(&disks)).await.is_ok()
    }

    /// Shuts the volume down, and returns the content of its disks.
    async fn close(&mut self) -> Vec<StoredDisk> {
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        if let Err(error) = self.volume.close().await {
            assert!(self.variant.flushes.is_some(), "{}: {error}", self.what);
            return self.crash().await;
        }
        self.disks.iter().map(Disk::store).collect()
    }

    async fn read_all(&mut self) {
        let blocks = self.blocks.borrow().len();
        for block in 0..blocks {
            self.read(block).await;
        }
    }
}

/// A mirror crashes, loses one of its devices before or after the end of the resync, and receives the device
/// back. True if the loss came before the end.
pub fn loses_a_device(seed: u64, variant: Variant) -> bool {
    let world = World::new(seed);
    let rt = world.clone();
    let was_behind = world.block_on(async move {
        let mut life = Life::begin(&rt, seed, variant).await;
        life.work(60, 4).await;
        for _ in 0..1 + life.rng.below(3) {
            let stored = life.crash().await;
            life.open(stored).await;
            let (steps, reads) = (life.rng.below(20), life.rng.between(4, 9));
            life.work(steps, reads).await;
        }
        let was_behind = life.volume.status().behind > Bytes::ZERO;
        let drawn = life.rng.below(life.disks.len() as u64) as usize;
        let lost = variant.bad.or(variant.faults).or(variant.flushes).unwrap_or(drawn);
        let how = if life.broken { 1 } else { life.rng.below(3) };
        let away = if how == 0 {
            let failed = life.volume.fail_device(DeviceId(lost as u16)).await;
            if !variant.may_refuse() {
                failed.unwrap_or_else(|error| panic!("{}: d{lost} is lost live: {error}", life.what));
            }
            None
        } else {
            let mut stored = if how == 1 { life.crash().await } else { life.close().await };
            let away = stored.remove(lost);
            if variant.may_refuse() && !life.opens(&stored).await {
                stored.insert(lost, away);
                life.open(stored).await;
                None
            } else {
                life.open(stored).await;
                Some(away)
            }
        };
        life.read_all().await;
        life.flush().await;
        let steps = life.rng.below(20);
        life.work(steps, 4).await;
        let mut stored =
            if life.broken || life.rng.chance(0.5) { life.crash().await } else { life.close().await };
        if let Some(away) = away {
            stored.insert(lost, away);
        }
        life.open(stored).await;
        life.read_all().await;
        was_behind
    });
    world.halt();
    was_behind
}

/// Returns the number of lives that lose a device before the end of a resync, and the number of all lives:
/// `usual`, or as many as requested.
fn lives(usual: u64, variant: impl Fn(u64) -> Variant) -> (u64, u64) {
    let seeds = seeds("BRAID_CRASH_SEEDS", usual);
    ((0..seeds).map(|seed| u64::from(loses_a_device(seed, variant(seed)))).sum(), seeds)
}

/// When the journal still called such spans behind, the loss of the device with the homes was refused
/// without `--distrust`, though both devices had all flushed data.
#[test]
fn either_device_may_be_lost_before_the_resync_after_a_crash_has_ended() {
    let (met, seeds) = lives(60, |_| Variant::default());
    assert!(met > seeds / 4, "{met} of {seeds} were lost before the end of a resync");
}

#[test]
fn mirror_survives_loss_of_any_of_three_devices() {
    lives(40, |_| Variant { three: true, discards: true, ..Variant::default() });
}

#[test]
fn discards_and_policy_changes_do_not_change_read_data() {
    lives(20, |_| Variant { discards: true, ..Variant::default() });
    lives(20, |_| Variant { defers: true, discards: true, ..Variant::default() });
}

#[test]
fn bad_sectors_and_failed_requests_change_no_read_data() {
    lives(40, |seed| Variant { bad: Some((seed % 2) as usize), ..Variant::default() });
    lives(20, |seed| Variant { faults: Some((seed % 2) as usize), ..Variant::default() });
}

#[test]
fn failed_flushes_do_not_change_read_data() {
    lives(20, |seed| Variant { flushes: Some((seed % 2) as usize), ..Variant::default() });
    let three = |seed: u64| Some((seed % 3) as usize);
    lives(20, |seed| Variant { flushes: three(seed), three: true, drains: true, ..Variant::default() });
}
