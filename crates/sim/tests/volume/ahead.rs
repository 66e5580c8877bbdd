//! Read-ahead of streams, while devices hang or cannot read, extents move, and a policy observes.

use crate::rig::{self, filled, sound_one};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_policy::{Completion, Direction, Move, Occasion, Origin, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Operation, Step, Trace, World};
use std::cell::RefCell;
use std::rc::Rc;

const SSD: DeviceId = DeviceId(0);
const HDD: DeviceId = DeviceId(1);
const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 64;

/// Places new extents on these devices in turn, by address; performs the given moves once.
struct Told {
    homes: Vec<DeviceId>,
    moves: Vec<Move>,
    /// Guests' reads, as reported by the engine.
    reads: Rc<RefCell<Vec<(Bytes, Nanos)>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { extent, .. } => Placement::on(self.homes[extent.index() % self.homes.len()]),
            _ => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        if io.origin == Origin::Guest && io.direction == Direction::Read {
            self.reads.borrow_mut().push((io.len, io.latency));
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = std::mem::take(&mut self.moves);
        view.now + Nanos::from_secs(3600)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

/// A volume that reads ahead. Each extent is full of its number.
#[derive(Clone)]
struct Rig {
    world: World,
    volume: Rc<rig::Rig>,
    disks: Vec<Disk>,
    traces: Vec<Trace>,
    arena: Arena,
    reads: Rc<RefCell<Vec<(Bytes, Nanos)>>>,
}

impl Rig {
    /// A policy with these homes and moves.
    fn told(&self, homes: &[DeviceId], moves: Vec<Move>) -> Box<dyn Policy> {
        Box::new(Told { homes: homes.to_vec(), moves, reads: self.reads.clone() })
    }

    /// Reads an extent, or the first part of an extent; returns the byte that fills the range.
    async fn read(&self, extent: u64) -> Option<u8> {
        let buf = filled(&self.arena, EXTENT, 0xff);
        self.volume.read(EXTENT * extent, &buf).await.ok()?;
        buf.with_bytes(|bytes| bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0]))
    }

    async fn write(&self, extent: u64, value: u8) {
        let buf = filled(&self.arena, EXTENT, value);
        self.volume.write(EXTENT * extent, &buf, Durability::Volatile).await.expect("the devices are sound");
    }

    /// Begins to read an extent beside the caller.
    fn begin_read(&self, extent: u64) -> Rc<RefCell<Option<Option<u8>>>> {
        let (rig, done) = (self.clone(), Rc::new(RefCell::new(None)));
        let told = done.clone();
        self.world.spawn(async move {
            let value = rig.read(extent).await;
            told.replace(Some(value));
        });
        done
    }

    async fn sleep(&self, millis: u64) {
        self.world.sleep(Nanos::from_millis(millis)).await;
    }
}

/// Runs `guest` on such a volume; `written` of its extents lie on these devices in turn.
fn ahead(homes: &'static [DeviceId], written: u64, guest: impl AsyncFnOnce(Rig) + 'static) {
    ahead_in(World::new(7), homes, written, guest);
}

fn ahead_in(world: World, homes: &'static [DeviceId], written: u64, guest: impl AsyncFnOnce(Rig) + 'static) {
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 16)), Disk::new(&world, DiskOptions::hdd(MIB * 16))];
    let traces = vec![Trace::default(), Trace::default()];
    let rt = world.clone();
    world.block_on(async move {
        let mut options = CreateOptions::new("ahead", Uuid([9; 16]));
        (options.size, options.extent_size) = (Some(EXTENT * EXTENTS), EXTENT);
        let devices = || disks.iter().zip(&traces).map(|(disk, trace)| sound_one(disk).traced(trace));
        create(&devices().collect::<Vec<_>>(), &options).await.expect("the devices are fit");
        let names = vec!["ssd".to_owned(), "hdd".to_owned()];
        let options = OpenOptions { cache_extents: 0, ahead: MIB * 16, ..OpenOptions::new(names) };
        let (volume, _) =
            Volume::open(rt.clone(), devices().collect(), options).await.expect("it was just made");
        let (volume, arena) = (Rc::new(volume), Arena::new(MIB * 4));
        let rig = Rig { world: rt, volume, disks, traces, arena, reads: Rc::default() };
        rig.volume.replace_policy(rig.told(homes, Vec::new()));
        for extent in 0..written {
            rig.write(extent, extent as u8).await;
        }
        rig.volume.flush().await.expect("the devices are sound");
        rig.traces.iter().for_each(|trace| _ = trace.take());
        guest(rig).await;
    });
    world.halt();
}

/// A read-ahead run held the locks of extents that no guest had asked for: changes of these extents waited
/// for a hung device.
#[test]
fn discard_does_not_wait_for_hung_read_ahead() {
    ahead(&[HDD], 16, async |rig| {
        assert_eq!((rig.read(0).await, rig.read(1).await), (Some(0), Some(1)));
        rig.disks[1].faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
        let asked = rig.begin_read(2);
        rig.sleep(1).await;
        let began = rig.world.now();
        rig.volume.discard(EXTENT * 4, EXTENT).await.unwrap();
        assert!(rig.world.now() - began < Nanos::from_millis(1), "a discard asks no device");
        assert_eq!(rig.read(4).await, Some(0), "nor does a read of what was discarded");
        assert!(asked.borrow().is_none());
        rig.disks[1].faults().set(FaultPlan::default());
        rig.sleep(1000).await;
        assert_eq!(*asked.borrow(), Some(Some(2)));
        for (extent, expected) in [(3, 3), (4, 0), (5, 5)] {
            assert_eq!(rig.read(extent).await, Some(expected));
        }
    });
}

/// Since runs hold no locks, an extent may move while it is read ahead. Its slot may hold another extent by
/// the time of the device's answer.
#[test]
fn read_ahead_of_moved_extent_is_dropped() {
    (0..8).for_each(move_while_reading_ahead);
}

/// The durations of device operations decide when the run begins, and which slots are taken.
pub fn move_while_reading_ahead(seed: u64) {
    ahead_in(World::new(seed), &[HDD], 16, async |rig| {
        assert_eq!((rig.read(0).await, rig.read(1).await), (Some(0), Some(1)));
        let stall = Nanos::from_secs(3)..Nanos::from_secs(3) + Nanos(1);
        rig.disks[1].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        let asked = rig.begin_read(2);
        rig.sleep(1).await;
        rig.disks[1].faults().set(FaultPlan::default());
        let moves = (3..6).map(|extent| Move::Migrate { extent: ExtentId(extent), target: SSD }).collect();
        rig.volume.replace_policy(rig.told(&[HDD], moves));
        rig.sleep(500).await;
        rig.volume.flush().await.expect("the devices are sound");
        rig.volume.checkpoint().await.expect("the devices are sound");
        rig.sleep(100).await;
        // The extents take the free slots.
        for extent in 16..EXTENTS {
            rig.write(extent, 0xee).await;
        }
        assert!(asked.borrow().is_none(), "the device has not answered yet");
        rig.sleep(4000).await;
        assert_eq!(*asked.borrow(), Some(Some(2)));
        for extent in 3..6 {
            assert_eq!(rig.read(extent).await, Some(extent as u8), "extent {extent}");
        }
    });
}

/// Each run that held a bad sector met the sector again, and each read cost the disk its retries.
#[test]
fn bad_sector_interrupts_only_one_read_ahead_run() {
    ahead(&[HDD, SSD, SSD], 60, async |rig| {
        // The SSD stalls and has no time, and the stream meets the same extents many times.
        let stall = Nanos::from_millis(50)..Nanos::from_millis(51);
        rig.disks[0].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        let mut bad = None;
        let mut failed = Vec::new();
        for extent in 0..60 {
            if extent == 3 {
                // All sectors of the disk beyond this place are bad.
                let first = rig.traces[1].take().into_iter().find_map(|step| match step {
                    Step::Begin(Operation::Read(at, _)) => Some(at),
                    _ => None,
                });
                let start = first.expect("extent 0 was read") + EXTENT * 8;
                bad = Some(start..start + KIB * 4);
                rig.disks[1].faults().set(FaultPlan { bad_reads: bad.clone(), ..FaultPlan::default() });
            }
            if rig.read(extent).await != Some(extent as u8) {
                failed.push(extent);
            }
        }
        assert_eq!(failed, [24], "the extent with the bad sector, {bad:?}");
        let steps = rig.traces[1].take();
        let met = steps.iter().filter(|step| matches!(step, Step::Fail(Operation::Read(..)))).count();
        assert!((1..=2).contains(&met), "the run and the guest meet it, but {met} reads did");
    });
}

/// Each guest's request began a run, even on a busy device: sixteen streams caused as many long reads of one
/// disk, and each other guest waited for all of these reads.
#[test]
fn device_runs_one_read_ahead_at_a_time() {
    ahead(&[HDD], EXTENTS, async |rig| {
        let streams = (0..4).map(async |stream| {
            for extent in stream * 16..(stream + 1) * 16 {
                assert_eq!(rig.read(extent).await, Some(extent as u8));
            }
        });
        braid_runtime::join_all(streams).await;
        let (mut runs, mut most, mut all) = (0_u32, 0, 0);
        for step in rig.traces[1].take() {
            match step {
                Step::Begin(Operation::Read(_, len)) if len > EXTENT => (runs, all) = (runs + 1, all + 1),
                Step::End(Operation::Read(_, len)) if len > EXTENT => runs -= 1,
                _ => {}
            }
            most = most.max(runs);
        }
        assert!(most == 1 && all >= 4, "{most} of {all} at the same time");
    });
}

/// To policies, a run was one long read: policies saw a slow device, and requests that no guest had made.
#[test]
fn policies_observe_guest_reads_but_not_read_ahead() {
    ahead(&[HDD], EXTENTS, async |rig| {
        for extent in 0..30 {
            assert_eq!(rig.read(extent).await, Some(extent as u8));
        }
        let long = |operation| matches!(operation, Operation::Read(_, len) if len > EXTENT);
        assert!(rig.traces[1].count(long) > 0, "something was read ahead");
        let reads = rig.reads.take();
        assert_eq!(reads.iter().map(|(len, _)| *len).collect::<Vec<_>>(), [EXTENT; 30]);
        let (all, disk) = (reads.iter().map(|(_, took)| took.0).sum::<u64>(), rig.world.now().0);
        assert!(0 < all && all < disk, "{all} of {disk} ns");
    });
}
