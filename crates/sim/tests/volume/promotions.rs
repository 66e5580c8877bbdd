//! Extra copies of blocks that guests have just read.

use crate::rig::cached::{Cache, HDD, bench, caching};
use crate::rig::{Bench, Rig, filled, holds, make};
use braid_base::{Bytes, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_runtime::Runtime;
use std::cell::Cell;
use std::rc::Rc;

const SIZE: Bytes = Bytes(2 << 20);
const BLOCK: Bytes = Bytes(4 << 10);
const BLOCKS: u64 = SIZE.0 / BLOCK.0;

/// Runs a test on a volume filled with 1 on the disk, with admission of reads.
fn on_cold(test: impl AsyncFn(&Bench, &Rig) + 'static) {
    let bench = bench(7, MIB * 8, MIB * 8);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let volume = make(world.clone(), bench.devices(), &caching(1, SIZE)).await;
        volume.replace_policy(Box::new(Cache { writes: false }));
        for at in [Bytes::ZERO, MIB] {
            volume
                .write(at, &filled(&bench.arena, MIB, 1), Durability::Volatile)
                .await
                .expect("there is room");
        }
        volume.flush().await.expect("the devices are sound");
        test(&bench, &volume).await;
        volume.audit().await.expect("all copies are alike");
        world.halt();
    });
}

/// Begins to read a block; the cell is true once the read has ended.
fn read(bench: &Bench, volume: &Rig, block: u64) -> Rc<Cell<bool>> {
    let (into, volume, done) = (filled(&bench.arena, BLOCK, 0), volume.clone(), Rc::new(Cell::new(false)));
    let told = done.clone();
    bench.world.spawn(async move {
        volume.read(BLOCK * block, &into).await.expect("the devices are sound");
        told.set(true);
    });
    done
}

/// Random reads of a hot extent went one after the other, and took twice as long as from a disk without a
/// cache.
#[test]
fn admitted_reads_of_one_extent_run_concurrently() {
    on_cold(async |bench, volume| {
        let reads = [1, 9, 20, 30].map(|block| read(bench, volume, block));
        let most = Cell::new(0);
        while reads.iter().any(|done| !done.get()) {
            most.set(most.get().max(volume.status().devices[HDD.index()].in_flight));
            bench.world.sleep(Nanos::from_micros(10)).await;
        }
        bench.world.sleep(Nanos::from_millis(10)).await;
        assert_eq!((most.get(), volume.status().extra_blocks), (4, (4, 0)));
    });
}

#[test]
fn concurrent_write_and_read_leave_no_stale_copy() {
    on_cold(async |bench, volume| {
        for block in 0..BLOCKS {
            let bytes = filled(&bench.arena, BLOCK, 5);
            // The two begin in alternating order, with growing distance.
            let first = (block % 2 == 0).then(|| read(bench, volume, block));
            let after = Nanos::from_micros(25 * (block / 2));
            if first.is_some() {
                bench.world.sleep(after).await;
            }
            let (written, told, guest) = (Rc::new(Cell::new(false)), volume.clone(), bench.world.clone());
            let done = written.clone();
            guest.spawn(async move {
                told.write(BLOCK * block, &bytes, Durability::Volatile).await.expect("there is room");
                done.set(true);
            });
            let read = match first {
                Some(read) => read,
                None => {
                    bench.world.sleep(after).await;
                    read(bench, volume, block)
                }
            };
            while !read.get() || !written.get() {
                bench.world.sleep(Nanos::from_micros(50)).await;
            }
            bench.world.sleep(Nanos::from_millis(1)).await;
            assert!(holds(volume, &bench.arena, BLOCK * block, BLOCK, 5).await.unwrap(), "block {block}");
        }
        assert!(volume.status().extra_blocks.0 > 0);
    });
}
