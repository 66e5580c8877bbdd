//! Neighbouring blocks with extra copies are one request: to the SSD, if the blocks are neighbours there,
//! and to the disk across clean blocks.

use crate::rig::cached::{HDD, SSD, bench, caching};
use crate::rig::{Bench, Rig, filled, holds, open_with};
use braid_base::{Bytes, DeviceId, ExtentId, MIB, Nanos};
use braid_engine::{Durability, Export, create};
use braid_policy::{Completion, DeviceView, Direction, Occasion, Origin, Placement, Plan, Policy, View};
use braid_runtime::Runtime;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const BLOCK: Bytes = Bytes(4 << 10);
const EXTENT: Bytes = Bytes(128 << 10);
const SIZE: Bytes = Bytes(2 << 20);

/// A policy that directs writes and reads as the test says. Records guests' requests to the devices, and the
/// lengths of requests that copy read blocks.
#[derive(Clone, Default)]
struct Told {
    to_extra: Rc<Cell<bool>>,
    admits: Rc<Cell<bool>>,
    requests: Rc<RefCell<Vec<(DeviceId, Direction, Bytes)>>>,
    copied: Rc<RefCell<Vec<Bytes>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(HDD),
            Occasion::Write(_) if self.to_extra.get() => Placement::write_back(SSD),
            Occasion::ReadMiss(_) if self.admits.get() => Placement::cached(Some(SSD)),
            _ => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let (is_flush, of_guest) = (io.direction == Direction::Flush, io.origin == Origin::Guest);
        self.requests.borrow_mut().extend((of_guest && !is_flush).then_some((
            io.device,
            io.direction,
            io.len,
        )));
        let is_copy = self.admits.get() && io.device == SSD && !of_guest && !is_flush;
        self.copied.borrow_mut().extend(is_copy.then_some(io.len));
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(1)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

struct Case {
    bench: Bench,
    volume: Rig,
    told: Told,
}

/// Runs a test on a volume on the disk, filled with 1, without a memory cache.
fn on_disk(test: impl AsyncFn(&Case) + Copy + 'static) {
    for seed in 0..8 {
        let bench = bench(seed, MIB * 8, MIB * 8);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let devices = bench.devices();
            create(&devices, &caching(seed as u8, SIZE)).await.expect("the devices are fit");
            let opened = open_with(world, devices, |options| options.cache_extents = 0).await;
            let volume = opened.expect("what was just made can be opened").0;
            let told = Told::default();
            volume.replace_policy(Box::new(told.clone()));
            let case = Case { bench, volume, told };
            case.write(Bytes::ZERO, MIB, 1).await;
            case.write(MIB, MIB, 1).await;
            case.told.requests.take();
            test(&case).await;
        });
    }
}

impl Case {
    async fn write(&self, at: Bytes, len: Bytes, value: u8) {
        let bytes = filled(&self.bench.arena, len, value);
        self.volume.write(at, &bytes, Durability::Volatile).await.expect("there is room");
    }

    async fn write_extra(&self, at: Bytes, len: Bytes, value: u8) {
        self.told.to_extra.set(true);
        self.write(at, len, value).await;
        self.told.to_extra.set(false);
    }

    /// Gives the blocks of a range clean extra copies.
    async fn admit(&self, at: Bytes, len: Bytes) {
        self.told.admits.set(true);
        assert!(self.holds(at, len, 1).await);
        self.bench.world.sleep(Nanos::from_millis(100)).await;
        self.told.admits.set(false);
    }

    /// Requests so far, in no order.
    fn requests(&self) -> Vec<(DeviceId, Direction, Bytes)> {
        let mut all = self.told.requests.take();
        all.sort_unstable_by_key(|(device, direction, len)| (*device, *direction as u8, *len));
        all
    }

    async fn holds(&self, at: Bytes, len: Bytes, value: u8) -> bool {
        holds(&self.volume, &self.bench.arena, at, len, value).await.expect("the devices are sound")
    }
}

/// Under PostMark hystor took 1.8 times as long as the disk alone: each block of a write was a separate
/// request to the SSD.
#[test]
fn cached_run_is_written_and_read_in_one_request() {
    on_disk(async |case| {
        case.write_extra(EXTENT * 3, EXTENT, 2).await;
        assert_eq!(case.requests(), [(SSD, Direction::Write, EXTENT)]);
        assert_eq!(case.volume.status().extra_blocks, (32, 32));
        assert!(case.holds(EXTENT * 3, EXTENT, 2).await);
        assert_eq!(case.requests(), [(SSD, Direction::Read, EXTENT)]);
        // Over existing copies, and beyond.
        case.write_extra(EXTENT * 3 + BLOCK * 4, BLOCK * 6, 3).await;
        assert_eq!(case.requests(), [(SSD, Direction::Write, BLOCK * 6)]);
        case.admit(EXTENT * 5, EXTENT).await;
        assert_eq!(case.requests(), [(HDD, Direction::Read, EXTENT)]);
        assert!(case.told.copied.take().contains(&EXTENT));
        // To the home, and to the copies.
        case.write(EXTENT * 5 + BLOCK, BLOCK * 3, 4).await;
        assert_eq!(case.requests(), [(SSD, Direction::Write, BLOCK * 3), (HDD, Direction::Write, BLOCK * 3)]);
        for (at, len, value) in [(0, 4, 2), (4, 6, 3), (10, 22, 2), (64, 1, 1), (65, 3, 4), (68, 28, 1)] {
            assert!(case.holds(EXTENT * 3 + BLOCK * at, BLOCK * len, value).await, "block {at}");
        }
    });
}

/// The disk received a request for the blocks before a clean copy, and another for the blocks behind, with a
/// turn of the disk in between.
#[test]
fn disk_read_spans_clean_copies_between_uncached_blocks() {
    on_disk(async |case| {
        for block in [0, 7, 20] {
            case.admit(BLOCK * block, BLOCK).await;
        }
        case.told.requests.take();
        assert!(case.holds(Bytes::ZERO, EXTENT, 1).await);
        let expected = [(SSD, Direction::Read, BLOCK), (HDD, Direction::Read, BLOCK * 31)];
        assert_eq!(case.requests(), expected, "the first block does not lie between");
        // A dirty copy is newer than the disk.
        case.write_extra(BLOCK * 10, BLOCK, 2).await;
        case.told.requests.take();
        assert!(case.holds(BLOCK, BLOCK * 9, 1).await && case.holds(BLOCK * 11, BLOCK * 21, 1).await);
        case.told.requests.take();
        let whole = filled(&case.bench.arena, EXTENT, 9);
        case.volume.read(Bytes::ZERO, &whole).await.expect("the devices are sound");
        let expected = [(SSD, BLOCK), (SSD, BLOCK), (HDD, BLOCK * 9), (HDD, BLOCK * 21)];
        assert_eq!(case.requests(), expected.map(|(device, len)| (device, Direction::Read, len)));
        let values: Vec<u8> = whole.with_bytes(|bytes| bytes.iter().step_by(4096).copied().collect());
        assert!(values.iter().enumerate().all(|(block, &value)| value == if block == 10 { 2 } else { 1 }));
        // Nor is a long clean run read over: 17 blocks of 4 KiB.
        case.admit(EXTENT * 2 + BLOCK * 4, BLOCK * 17).await;
        case.told.requests.take();
        assert!(case.holds(EXTENT * 2, EXTENT, 1).await);
        let expected = [(SSD, BLOCK * 17), (HDD, BLOCK * 4), (HDD, BLOCK * 11)];
        assert_eq!(case.requests(), expected.map(|(device, len)| (device, Direction::Read, len)));
    });
}

#[test]
fn partial_block_writes_keep_surrounding_bytes() {
    on_disk(async |case| {
        let (start, len) = (EXTENT + BLOCK * 2 + Bytes(512), BLOCK * 5);
        case.write_extra(start, len, 2).await;
        assert_eq!(case.volume.status().extra_blocks, (6, 6));
        assert!(case.holds(EXTENT, start - EXTENT, 1).await);
        assert!(case.holds(start, len, 2).await);
        assert!(case.holds(start + len, EXTENT * 2 - start - len, 1).await);
        case.write_extra(start + Bytes(100), Bytes(10_000), 3).await;
        assert!(case.holds(start, Bytes(100), 2).await);
        assert!(case.holds(start + Bytes(100), Bytes(10_000), 3).await);
        assert!(case.holds(start + Bytes(10_100), len - Bytes(10_100), 2).await);
    });
}

/// Eviction must not take the block slots of the blocks being written.
#[test]
fn writes_to_full_cache_read_back_correctly() {
    on_disk(async |case| {
        // Clean copies of everything, as far as there is room.
        for extent in 0..16 {
            case.admit(EXTENT * extent, EXTENT).await;
        }
        for round in 0..40u64 {
            let at = BLOCK * (round * 13 % 480);
            case.write_extra(at, BLOCK * 24, 2 + round as u8).await;
            assert!(case.holds(at, BLOCK * 24, 2 + round as u8).await, "round {round}");
        }
        case.volume.flush().await.expect("the devices are sound");
    });
}
