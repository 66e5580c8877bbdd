//! Faults of a disk: each fault of a plan, alone.

#![allow(clippy::unwrap_used)]

use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_runtime::{Arena, Buf, Device, Runtime};
use braid_sim::{Disk, DiskOptions, Ended, FaultPlan, World};
use std::cell::Cell;
use std::rc::Rc;

const LEN: Bytes = Bytes(4096);

fn filled(arena: &Arena, fill: u8) -> Buf {
    let buf = arena.try_alloc(LEN).unwrap();
    buf.with_bytes_mut(|bytes| bytes.fill(fill));
    buf
}

/// Runs `test` with a new disk in a new world.
fn with_disk<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    test: impl FnOnce(World, Disk, Arena) -> F,
) -> T {
    let world = World::new(seed);
    let disk = Disk::new(&world, DiskOptions::ssd(MIB));
    let result = world.block_on(test(world.clone(), disk, Arena::new(MIB)));
    world.halt();
    result
}

async fn first_byte(disk: &Disk, arena: &Arena, offset: Bytes) -> u8 {
    let into = filled(arena, 99);
    disk.read(offset, &into).await.unwrap();
    into.with_bytes(|bytes| bytes[0])
}

/// The kernel reports a failed flush once; a second flush succeeds, and the pages are gone (fsyncgate).
#[test]
fn lossy_flush_drops_writes_and_next_flush_succeeds() {
    let lost = (0..50).filter(|seed| {
        with_disk(*seed, async |_, disk, arena| {
            let losses = Rc::new(Cell::new(0));
            let counted = losses.clone();
            disk.write(Bytes::ZERO, &filled(&arena, 7)).await.unwrap();
            disk.faults().set(FaultPlan {
                flushes: 1.0,
                flushes_lose: true,
                on_loss: Some(Rc::new(move || counted.set(counted.get() + 1))),
                ..FaultPlan::default()
            });
            disk.flush().await.unwrap_err();
            disk.faults().set(FaultPlan::default());
            disk.flush().await.unwrap();
            assert_eq!(losses.get(), 1);
            first_byte(&disk, &arena, Bytes::ZERO).await == 0
        })
    });
    assert!((5..50).contains(&lost.count()));
}

#[test]
fn hung_disk_answers_after_recovery() {
    let took = with_disk(1, async |world, disk, arena| {
        disk.faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
        let (clock, faults) = (world.clone(), disk.faults());
        world.spawn(async move {
            clock.sleep(Nanos::from_secs(20)).await;
            faults.set(FaultPlan::default());
        });
        disk.write(Bytes::ZERO, &filled(&arena, 1)).await.unwrap();
        world.now()
    });
    assert!((Nanos::from_secs(20)..Nanos::from_secs(21)).contains(&took), "{took}");
}

#[test]
fn permanently_hung_disk_is_reported_as_deadlock() {
    let world = World::new(1);
    let disk = Disk::new(&world, DiskOptions::ssd(MIB));
    disk.faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
    let ended = world.run_until(async move { disk.flush().await.is_ok() });
    assert!(matches!(ended, Ended::Deadlock(_)), "{ended:?}");
    world.halt();
}

#[test]
fn a_stall_takes_as_long_as_planned() {
    let took = with_disk(1, async |world, disk, arena| {
        let stall = Nanos::from_secs(3)..Nanos::from_secs(4);
        disk.faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        disk.write(Bytes::ZERO, &filled(&arena, 1)).await.unwrap();
        world.now()
    });
    assert!((Nanos::from_secs(3)..Nanos::from_secs(5)).contains(&took), "{took}");
}

#[test]
fn request_in_flight_fails_when_disk_vanishes() {
    with_disk(1, async |world, disk, arena| {
        let faults = disk.faults();
        let clock = world.clone();
        world.spawn(async move {
            clock.sleep(Nanos::from_micros(10)).await;
            faults.vanish();
        });
        disk.write(Bytes::ZERO, &filled(&arena, 1)).await.unwrap_err();
        disk.faults().set(FaultPlan::default());
        disk.flush().await.unwrap();
    });
}

#[test]
fn lost_writes_affect_only_metadata() {
    with_disk(1, async |_, disk, arena| {
        let metadata = [Bytes::ZERO..KIB * 64].into();
        disk.faults().set(FaultPlan { lost_writes: 1.0, metadata, ..FaultPlan::default() });
        for offset in [Bytes::ZERO, KIB * 64] {
            disk.write(offset, &filled(&arena, 7)).await.unwrap();
        }
        assert_eq!(first_byte(&disk, &arena, Bytes::ZERO).await, 0);
        assert_eq!(first_byte(&disk, &arena, KIB * 64).await, 7);
        assert_eq!(disk.faults().injected(), 1);
    });
}

#[test]
fn a_misdirected_write_goes_elsewhere_in_the_metadata() {
    with_disk(3, async |_, disk, arena| {
        let metadata = [KIB * 64..KIB * 128].into();
        disk.faults().set(FaultPlan { misdirected_writes: 1.0, metadata, ..FaultPlan::default() });
        disk.write(KIB * 64, &filled(&arena, 7)).await.unwrap();
        disk.faults().set(FaultPlan::default());
        let mut all = Vec::new();
        for at in 0..32 {
            all.push(first_byte(&disk, &arena, KIB * 64 + KIB * 2 * at).await);
        }
        assert!(all[0] == 0 && all.contains(&7), "{all:?}");
    });
}

#[test]
fn stored_disk_keeps_writes_in_flight() {
    let world = World::new(1);
    let disk = Disk::new(&world, DiskOptions::ssd(MIB));
    let (owned, arena) = (disk.clone(), Arena::new(MIB));
    world.spawn(async move { owned.write(Bytes::ZERO, &filled(&arena, 7)).await.unwrap() });
    world.run_for(Nanos(1));
    let (mut killed, mut cut) = (disk.store(), disk.store());
    killed.kill();
    let outcomes: Vec<u8> = (0..40)
        .map(|seed| {
            let mut other = cut.clone();
            other.power_cut(&mut Rng::new(seed));
            let mut byte = [0];
            other.attach(&world).peek_durable(Bytes::ZERO, &mut byte);
            byte[0]
        })
        .collect();
    cut.power_cut(&mut Rng::new(0));
    assert!(outcomes.contains(&0) && outcomes.contains(&7), "{outcomes:?}");
    let next = World::new(2);
    let disk = killed.attach(&next);
    assert_eq!(next.block_on(async move { first_byte(&disk, &Arena::new(MIB), Bytes::ZERO).await }), 7);
    next.halt();
    world.halt();
}
