//! In steady state a request of a guest allocates nothing in the engine.

#![allow(unsafe_code)]

use braid_base::{DeviceClass, KIB, MIB, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_runtime::Arena;
use braid_uring::{MemoryDevice, Ring};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of this thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn guest_io_within_one_extent_does_not_allocate() {
    let arena = Arena::new(MIB * 4);
    let ring = Ring::new(64, &arena).expect("io_uring is here");
    let rt = ring.clone();
    let [reads, writes] = ring.block_on(async move {
        let device = |class| MemoryDevice::new(MIB * 256, class).expect("memory is here");
        let devices = vec![device(DeviceClass::Ssd), device(DeviceClass::Hdd)];
        let mut options = CreateOptions::new("steady", Uuid([2; 16]));
        options.size = Some(MIB * 64);
        create(&devices, &options).await.expect("the devices are fit");
        let open = OpenOptions { cache_extents: 100, ..OpenOptions::new(vec!["a".into(), "b".into()]) };
        let (volume, _) = Volume::open(rt, devices, open).await.expect("it was just made");
        let large = arena.alloc(MIB).await;
        for i in 0..64 {
            volume.write(MIB * i, &large, Durability::Volatile).await.expect("nothing fails here");
        }
        volume.flush().await.expect("nothing fails here");
        let (buf, mut rng) = (arena.alloc(KIB * 16).await, Rng::new(1));
        let mut counts = [0; 2];
        // The first round lets tables grow to the needs of the load.
        for round in 0..2 {
            for (writing, count) in counts.iter_mut().enumerate() {
                let before = ALLOCATIONS.with(Cell::get);
                for _ in 0..20_000 {
                    let at = KIB * 16 * rng.below(MIB * 64 / (KIB * 16));
                    match writing {
                        0 => volume.read(at, &buf).await.expect("nothing fails here"),
                        _ => volume.write(at, &buf, Durability::Volatile).await.expect("nothing fails here"),
                    }
                }
                if round == 1 {
                    *count = ALLOCATIONS.with(Cell::get) - before;
                }
            }
        }
        counts
    });
    ring.clear();
    assert_eq!((reads, writes), (0, 0), "allocations in 20,000 reads and as many writes");
}
