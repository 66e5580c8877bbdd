//! Mirrors between a crash and the end of its resync: either device may be lost then, while the volume is served, by another crash, or after
//! a shutdown. What was flushed is there, and what a guest has read and flushed since stays what it was.

use crate::deadlines::hang;
use crate::rig::{Rig, bench, filled, holds, open, options, sound};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_format::superblock::Features;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, StoredDisk, World};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCK: Bytes = Bytes(4 << 10);

/// What a guest knows of a block.
#[derive(Clone, Default)]
struct Known {
    /// What a crash may leave: what was flushed last, and what was there or was written since.
    legal: Vec<Vec<u8>>,
    /// What it is, since the guest has written or read it.
    now: Option<Vec<u8>>,
}

type Blocks = Rc<RefCell<Vec<Known>>>;

impl Known {
    fn is_legal(&self, bytes: &[u8]) -> bool {
        match &self.now {
            Some(now) => now == bytes,
            // A write under way may be torn anywhere.
            None => bytes.iter().enumerate().all(|(i, byte)| self.legal.iter().any(|l| l[i] == *byte)),
        }
    }

    fn crash(&mut self) {
        self.legal.extend(self.now.take());
    }
}

/// One volume, the guest that knows it, and a drawn life.
struct Life {
    rt: World,
    rng: Rng,
    arena: Arena,
    blocks: Blocks,
    volume: Rig,
    disks: Vec<Disk>,
    what: String,
}

impl Life {
    async fn begin(rt: &World, seed: u64) -> Life {
        let mut rng = Rng::new(seed ^ 0x04DE_C1DE);
        let kinds = [[true, true], [true, false], [false, true]];
        let disk = |is_ssd| {
            let options = if is_ssd { DiskOptions::ssd(MIB * 40) } else { DiskOptions::hdd(MIB * 48) };
            Disk::new(rt, options)
        };
        let disks = kinds[rng.below(3) as usize].map(disk).to_vec();
        let policies = ["raid1", "ssd-first", "equi", "stripe"];
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
        Life { rt: rt.clone(), rng, arena: Arena::new(MIB * 2), blocks, volume, disks, what }
    }

    /// Writes a few blocks to their end, or leaves the write under way.
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
        let write = async move {
            volume.write(BLOCK * first as u64, &buf, Durability::Volatile).await.expect("it is sound");
            blocks.borrow_mut()[first..first + count].iter_mut().for_each(|b| b.now = Some(new.clone()));
        };
        match is_left {
            true => self.rt.spawn(write),
            false => write.await,
        }
    }

    async fn read(&mut self, block: usize) {
        let buf = self.arena.alloc(BLOCK).await;
        let read = self.volume.read(BLOCK * block as u64, &buf).await;
        read.unwrap_or_else(|error| panic!("{}, block {block}: {error}", self.what));
        let known = &mut self.blocks.borrow_mut()[block];
        buf.with_bytes(|bytes| {
            assert!(known.is_legal(bytes), "{}: block {block} holds what it never held", self.what);
            known.now = Some(bytes.to_vec());
        });
    }

    async fn flush(&mut self) {
        let before = self.blocks.borrow().clone();
        self.volume.flush().await.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        for (known, before) in self.blocks.borrow_mut().iter_mut().zip(before) {
            if let Some(now) = before.now {
                known.legal = vec![now];
            }
        }
    }

    /// A guest works for a while: so many of ten requests are reads.
    async fn work(&mut self, steps: u64, reads: u64) {
        for _ in 0..steps {
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

    /// A block, mostly one in which copies may differ.
    fn drawn_block(&mut self) -> usize {
        let blocks = self.blocks.borrow();
        let unknown = |known: &Known| known.now.is_none() && known.legal.len() > 1;
        let unknown: Vec<usize> = (0..blocks.len()).filter(|&block| unknown(&blocks[block])).collect();
        match self.rng.chance(0.8) && !unknown.is_empty() {
            true => unknown[self.rng.below(unknown.len() as u64) as usize],
            false => self.rng.below(blocks.len() as u64) as usize,
        }
    }

    /// Ends the volume in the middle of its work, and gives what its disks hold then.
    async fn crash(&mut self) -> Vec<StoredDisk> {
        let (daemon_alone, left) = (self.rng.chance(0.3), self.rng.below(4));
        for _ in 0..left {
            self.write(true).await;
        }
        self.rt.sleep(Nanos(self.rng.below(20_000_000))).await;
        let mut stored: Vec<StoredDisk> = self.disks.iter().map(Disk::store).collect();
        let blocks = self.blocks.borrow().clone();
        // The old volume goes on for nobody.
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

    /// Serves the volume from these of its disks, all of which answer slowly, so that a resync takes its time.
    async fn open(&mut self, stored: Vec<StoredDisk>) {
        self.disks = stored.into_iter().map(|disk| disk.attach(&self.rt)).collect();
        let opened = open(self.rt.clone(), sound(&self.disks)).await;
        self.volume = opened.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let stall = Nanos::from_millis(1)..Nanos::from_millis(2 + self.rng.below(200));
        let plan = FaultPlan { stalls: 0.7, stall, ..FaultPlan::default() };
        self.disks.iter().for_each(|disk| disk.faults().set(plan.clone()));
    }

    /// Shuts the volume down, and gives what its disks hold then.
    async fn close(&mut self) -> Vec<StoredDisk> {
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        self.volume.close().await.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        self.disks.iter().map(Disk::store).collect()
    }

    async fn read_all(&mut self) {
        let blocks = self.blocks.borrow().len();
        for block in 0..blocks {
            self.read(block).await;
        }
    }
}

/// A mirror that crashes, loses one of its devices before or after the end of the resync, and gets it back.
/// Whether it was before.
pub fn loses_a_device(seed: u64) -> bool {
    let world = World::new(seed);
    let rt = world.clone();
    let was_behind = world.block_on(async move {
        let mut life = Life::begin(&rt, seed).await;
        life.work(60, 4).await;
        for _ in 0..1 + life.rng.below(3) {
            let stored = life.crash().await;
            life.open(stored).await;
            let (steps, reads) = (life.rng.below(20), life.rng.between(4, 9));
            life.work(steps, reads).await;
        }
        let (lost, was_behind) = (life.rng.below(2) as usize, life.volume.status().behind > Bytes::ZERO);
        let how = life.rng.below(3);
        let away = if how == 0 {
            let failed = life.volume.fail_device(DeviceId(lost as u16)).await;
            failed.unwrap_or_else(|error| panic!("{}: d{lost} is lost live: {error}", life.what));
            None
        } else {
            let mut stored = if how == 1 { life.crash().await } else { life.close().await };
            let away = stored.remove(lost);
            life.open(stored).await;
            Some(away)
        };
        life.read_all().await;
        life.flush().await;
        let steps = life.rng.below(20);
        life.work(steps, 4).await;
        let mut stored = if life.rng.chance(0.5) { life.crash().await } else { life.close().await };
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

/// With the journal calling such spans behind, the loss of the device with the homes was refused without `--distrust`, though
/// both had all that was flushed.
#[test]
fn either_device_may_be_lost_before_the_resync_after_a_crash_has_ended() {
    let seeds = std::env::var("BRAID_CRASH_SEEDS").map_or(60, |count| count.parse().unwrap());
    let met = (0..seeds).filter(|&seed| loses_a_device(seed)).count();
    assert!(met as u64 > seeds / 4, "{met} of {seeds} were lost before the end of a resync");
}

/// A mirror whose span of four extents was written to when its daemon died, and its disks after that. The resync does not
/// get far while they answer slowly.
async fn crashed(rt: &World, arena: &Arena, disks: &[Disk]) -> (Rig, Vec<Disk>) {
    let how =
        CreateOptions { copies: 2, policy: "ssd-first".to_owned(), span_size: EXTENT * 4, ..options(7) };
    create(&sound(disks), &how).await.expect("the disks are fit");
    let volume = open(rt.clone(), sound(disks)).await.expect("it is new");
    for extent in 0..4 {
        let bytes = filled(arena, EXTENT, 1 + extent as u8);
        volume.write(EXTENT * extent, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(rt)).collect();
    let slow = Nanos::from_millis(500)..Nanos::from_millis(501);
    let volume = open(rt.clone(), sound(&disks)).await.expect("the disks are sound");
    disks.iter().for_each(|disk| {
        disk.faults().set(FaultPlan { stalls: 1.0, stall: slow.clone(), ..FaultPlan::default() });
    });
    assert_eq!(volume.status().behind, EXTENT * 4);
    (volume, disks)
}

const EXTENT: Bytes = Bytes(128 << 10);

/// A place of the home that cannot be read: the other copy is as good, and answers.
#[test]
fn a_bad_place_of_a_home_costs_nothing_before_the_resync_has_ended() {
    for bad in [Bad::UntilWritten, Bad::ForEver] {
        let bench = bench(71);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let (volume, disks) = crashed(&world, &arena, &disks).await;
            let (home, at) = volume.explain(EXTENT * 3).unwrap().home.unwrap();
            disks[home.index()].spoil(at + KIB * 4..at + KIB * 8, bad);
            assert!(holds(&volume, &arena, EXTENT * 3, EXTENT, 4).await.unwrap());
            let bytes = filled(&arena, KIB * 4, 9);
            volume.write(EXTENT * 3 + KIB * 4, &bytes, Durability::Fua).await.unwrap();
            disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
            world.sleep(Nanos::from_secs(30)).await;
            assert!(holds(&volume, &arena, EXTENT * 3 + KIB * 4, KIB * 4, 9).await.unwrap());
            for extent in 0..3 {
                assert!(holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8).await.unwrap());
            }
            volume.audit().await.unwrap();
        });
    }
}

/// Reads of the home do not wait again and again for a second copy whose device does not answer.
#[test]
fn a_device_that_does_not_answer_holds_up_reads_of_the_other_one_once() {
    let bench = bench(72);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed(&world, &arena, &disks).await;
        let home = volume.explain(Bytes::ZERO).unwrap().home.unwrap().0;
        disks[home.index()].faults().set(FaultPlan::default());
        hang(&disks[1 - home.index()]);
        assert!(holds(&volume, &arena, EXTENT * 3, EXTENT, 4).await.unwrap());
        assert!(world.now() < Nanos::from_secs(30), "{}", world.now());
        let since = world.now();
        for extent in (0..4).rev() {
            assert!(holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8).await.unwrap());
        }
        assert!(world.now() - since < Nanos::from_secs(1), "{}", world.now() - since);
    });
}

/// What a shutdown leaves undecided no older version takes for alike, and the next shutdown after the resync calls all alike.
#[test]
fn a_shutdown_before_the_end_of_a_resync_is_told_to_older_versions() {
    let bench = bench(73);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed(&world, &arena, &disks).await;
        volume.close().await.unwrap();
        assert_eq!(volume.superblock().features.incompat & Features::UNDECIDED, Features::UNDECIDED);
        disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        let volume = open(world.clone(), sound(&disks)).await.unwrap();
        world.sleep(Nanos::from_secs(30)).await;
        assert_eq!(volume.status().behind, Bytes::ZERO);
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
        assert_eq!(volume.superblock().features.incompat & Features::UNDECIDED, 0);
    });
}
