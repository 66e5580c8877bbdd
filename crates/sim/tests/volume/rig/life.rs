//! Volumes with three disks, of which the last joins or leaves, and a guest that knows its writes.

use super::{Rig, is_all, sound};
use braid_base::{Bytes, DeviceId, MIB, Nanos, Rng};
use braid_engine::{Addition, Durability, Export, OpenOptions, Volume};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Blank, Disk, DiskOptions, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

pub const SIZE: Bytes = Bytes(4 << 20);
pub const BLOCK: Bytes = Bytes(4 << 10);
pub const LAST: DeviceId = DeviceId(2);

/// Legal contents of blocks: the flushed value, or a later written value; and the blocks with a write in
/// flight.
#[derive(Clone)]
pub struct Oracle(pub Rc<RefCell<Vec<Known>>>, pub Rc<RefCell<Range<usize>>>);

/// The flushed value, and the later written values.
pub type Known = (u8, Vec<u8>);

impl Oracle {
    pub fn new() -> Oracle {
        Oracle::of(vec![(0, Vec::new()); (SIZE / BLOCK) as usize])
    }

    /// An oracle with this knowledge, without a write in flight.
    pub fn of(known: Vec<Known>) -> Oracle {
        Oracle(Rc::new(RefCell::new(known)), Rc::default())
    }

    /// The software dies, and all acknowledged writes are read again.
    pub fn die(&self) {
        let under_way = self.1.borrow().clone();
        for (block, (kept, later)) in self.0.borrow_mut().iter_mut().enumerate() {
            let newest = later.pop();
            if under_way.contains(&block) {
                *kept = later.pop().unwrap_or(*kept);
                *later = newest.into_iter().collect();
            } else {
                *kept = newest.unwrap_or(*kept);
                later.clear();
            }
        }
    }

    /// True if nothing was written since the last flush.
    pub fn is_flushed(&self) -> bool {
        self.0.borrow().iter().all(|(_, later)| later.is_empty())
    }

    pub fn flushed(&self) {
        for (flushed, later) in self.0.borrow_mut().iter_mut() {
            *flushed = later.pop().unwrap_or(*flushed);
            later.clear();
        }
    }

    pub fn newest(&self, block: usize) -> u8 {
        let blocks = self.0.borrow();
        let (flushed, later) = &blocks[block];
        *later.last().unwrap_or(flushed)
    }

    /// Checks that all bytes of a volume are legal.
    pub async fn check(&self, volume: &impl Export, arena: &Arena, what: &str) {
        let buf = arena.alloc(BLOCK).await;
        for block in 0..(SIZE / BLOCK) as usize {
            volume.read(BLOCK * block as u64, &buf).await.expect("a read succeeds");
            let (flushed, later) = self.0.borrow()[block].clone();
            let mut is_legal = [false; 256];
            later.iter().chain([&flushed]).for_each(|&value| is_legal[usize::from(value)] = true);
            // A write in flight at the power cut may be torn anywhere.
            buf.with_bytes(|bytes| {
                let are_legal = bytes.iter().fold(true, |all, &byte| all & is_legal[usize::from(byte)]);
                assert!(are_legal, "{what}: block {block} holds neither {flushed} nor any of {later:?}");
            });
        }
    }
}

/// A guest that writes, reads and flushes until stopped, and meets no error.
pub async fn work(world: World, volume: impl Export, oracle: Oracle, mut rng: Rng, stop: Rc<Cell<bool>>) {
    let arena = Arena::new(MIB);
    while !stop.get() {
        let first = rng.below((SIZE / BLOCK) - 16) as usize;
        let count = 1 + rng.below(16) as usize;
        let value = 1 + rng.below(250) as u8;
        let buf = arena.alloc(BLOCK * count as u64).await;
        buf.with_bytes_mut(|bytes| bytes.fill(value));
        oracle.0.borrow_mut()[first..first + count].iter_mut().for_each(|(_, later)| later.push(value));
        oracle.1.replace(first..first + count);
        volume.write(BLOCK * first as u64, &buf, Durability::Volatile).await.expect("a write succeeds");
        oracle.1.replace(0..0);
        let place = rng.below(SIZE / BLOCK) as usize;
        let block = arena.alloc(BLOCK).await;
        volume.read(BLOCK * place as u64, &block).await.expect("a read succeeds");
        let newest = oracle.newest(place);
        assert!(is_all(&block, newest), "block {place}");
        if rng.below(4) == 0 {
            volume.flush().await.expect("a flush succeeds");
            oracle.flushed();
        }
        world.sleep(Nanos::from_millis(1 + rng.below(20))).await;
    }
}

pub fn disk(world: &World, ssd: bool) -> Disk {
    let options = if ssd { DiskOptions::ssd(MIB * 8) } else { DiskOptions::hdd(MIB * 10) };
    Disk::new(world, options.with_blank(Blank::Garbage(5)))
}

pub fn addition(layout: Layout) -> Addition {
    Addition {
        name: "the new disk".to_owned(),
        identity: Uuid([9; 16]),
        model: String::new(),
        layout,
        overwrite: true,
    }
}

pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("disk {i}")).collect()
}

pub async fn open(world: &World, disks: Vec<Disk>) -> Rig {
    let options = OpenOptions::new(names(disks.len()));
    let opened = Volume::open(world.clone(), sound(&disks), options).await;
    opened.expect("the volume opens").0
}

pub fn state(volume: &Rig, device: DeviceId) -> DeviceState {
    volume.status().devices[device.index()].state
}

/// Waits until the last device is removed.
pub async fn wait_until_removed(world: &World, volume: &Rig) {
    for _ in 0..600_000 {
        if state(volume, LAST) == DeviceState::Removed {
            return;
        }
        world.sleep(Nanos::from_micros(100)).await;
    }
    panic!("a minute is enough: {:?}", volume.status().devices[2].drain);
}

pub const ADDED: [(bool, Layout); 3] = [(false, Layout::Head), (true, Layout::Head), (false, Layout::Tail)];
