//! Extra copies that survive: dirty copies survive a power cut, and so do clean copies in spans without
//! writes.

use crate::rig::cached::{Cache, HDD, SSD, all_hold, bench, caching, make_dirty, make_warm};
use crate::rig::{filled, holds, make, open};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, Status};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::Features;
use braid_runtime::Arena;
use braid_sim::{Disk, Faults, Faulty, World};

/// The limit was the number of dirty blocks that the batch at the end of a checkpoint could repeat: 6,036
/// with a journal of 1 MiB. Further dirty blocks went to the disk.
#[test]
fn fully_dirty_cache_survives_kill_and_shutdown() {
    let (size, bench) = (MIB * 40, bench(1, MIB * 96, MIB * 64));
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let forks: Vec<Disk> = bench.disks.clone();
    let sound = bench.faults.clone();
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &caching(1, size)).await;
        make_dirty(&volume, &arena, size).await;
        let blocks = (size / (KIB * 4)) as usize;
        assert_eq!(volume.status().extra_blocks, (blocks, blocks));
        volume.checkpoint().await.unwrap();
        volume.checkpoint().await.unwrap();
        assert!(volume.status().journal <= KIB * 8, "the journal forgets what the cache table has");
        let killed = forks.iter().zip(&sound).map(|(disk, f)| Faulty::new(disk.fork(&world), f)).collect();
        volume.close().await.unwrap();
        for devices in [killed, all] {
            let volume = open(world.clone(), devices).await.unwrap();
            assert_eq!(volume.status().extra_blocks, (blocks, blocks));
            assert!(all_hold(&volume, &arena, size, 2).await);
            volume.audit().await.unwrap();
        }
    });
}

fn guest_reads(status: &Status, device: DeviceId) -> u64 {
    status.devices[device.index()].stats.guest_reads
}

#[test]
fn cache_stays_warm_and_current_after_shutdown() {
    let bench = bench(2, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 2).await;
        volume.discard(MIB, MIB).await.unwrap();
        volume.close().await.unwrap();
        for round in 1..4 {
            let volume = open(world.clone(), all.clone()).await.unwrap();
            assert_eq!(volume.status().extra_blocks, (256, 0), "round {round}");
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, round).await.unwrap());
            let status = volume.status();
            assert_eq!(guest_reads(&status, HDD), 0, "all is read from the SSD");
            assert!(guest_reads(&status, SSD) > 0);
            volume.write(Bytes::ZERO, &filled(&arena, MIB, round + 1), Durability::Volatile).await.unwrap();
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        }
    });
}

/// Waits until the latest cached copies are durable without a flush, and spans without writes are called
/// clean.
async fn settle(world: &World) {
    braid_runtime::Runtime::sleep(world, Nanos::from_secs(120)).await;
}

/// Cached copies after a kill at this moment, after a check of all bytes read.
async fn cached_after_kill(world: &World, disks: &[Disk], faults: &[Faults], arena: &Arena) -> (usize, u64) {
    let volume =
        open(world.clone(), sound(&killed(world, disks), faults)).await.expect("a kill damages nothing");
    let cached = volume.status().extra_blocks;
    assert_eq!(cached.1, 0);
    assert!(all_hold(&volume, arena, MIB * 2, 1).await);
    volume.audit().await.expect("extra copies are like their homes");
    let from_disk = guest_reads(&volume.status(), HDD);
    volume.close().await.expect("the devices are sound");
    (cached.0, from_disk)
}

#[test]
fn cache_stays_warm_after_kill_except_in_written_spans() {
    let bench = bench(3, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 3).await;
        let cached = async || cached_after_kill(&world, &disks, &faults, &arena).await;
        assert_eq!(cached().await.0, 0, "nothing of it is durable yet");
        settle(&world).await;
        assert_eq!(cached().await, (512, 0), "all is read from the SSD");
        // A span is an extent here.
        volume.write(KIB * 128 * 3, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
        assert_eq!(cached().await.0, 480, "the span's 32 blocks are forgotten");
        volume.flush().await.unwrap();
        assert_eq!(cached().await.0, 480, "the flush does not wait for the span to be called clean");
        settle(&world).await;
        assert_eq!(cached().await, (512, 0));
        volume.close().await.unwrap();
        drop(open(world.clone(), all.clone()).await.unwrap());
        assert_eq!(cached().await, (512, 0), "a shutdown before the kill changes nothing");
    });
}

/// Copies of the disks after a kill at this moment.
fn killed(world: &World, disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(|disk| disk.fork(world)).collect()
}

fn sound(disks: &[Disk], faults: &[Faults]) -> Vec<Faulty<Disk>> {
    disks.iter().zip(faults).map(|(disk, f)| Faulty::new(disk.clone(), f)).collect()
}

/// Recovery forgot the block of a block slot. The slot must not receive another block while the table or the
/// journal still names the first block.
#[test]
fn blocks_forgotten_after_kill_do_not_return() {
    let bench = bench(13, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (mut disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 13).await;
        settle(&world).await;
        volume.write(KIB * 128 * 3, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
        for _ in 0..3 {
            // Killed before any activity.
            disks = killed(&world, &disks);
            let volume = open(world.clone(), sound(&disks, &faults)).await.unwrap();
            assert_eq!(volume.status().extra_blocks, (480, 0));
        }
        disks = killed(&world, &disks);
        let volume = open(world.clone(), sound(&disks, &faults)).await.unwrap();
        volume.replace_policy(Box::new(Cache { writes: false }));
        assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
        settle(&world).await;
        assert_eq!(cached_after_kill(&world, &disks, &faults, &arena).await, (512, 0));
    });
}

/// An earlier version recorded no clean copy: after a crash of that version, its table says nothing of clean
/// copies.
#[test]
fn after_a_kill_of_an_earlier_version_the_cache_is_cold_once() {
    let bench = bench(14, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 14).await;
        settle(&world).await;
        volume.checkpoint().await.unwrap();
        let mut earlier = volume.superblock();
        assert_eq!(earlier.features.incompat, Features::CLEAN_EXTRAS);
        earlier.features.incompat = 0;
        let disks = killed(&world, &disks);
        for (id, (disk, entry)) in (0..).map(DeviceId).zip(disks.iter().zip(&earlier.devices)) {
            let places = superblock_offsets(entry.size, entry.layout);
            places.into_iter().for_each(|at| disk.poke(at, &earlier.encode(id)));
        }
        let volume = open(world.clone(), sound(&disks, &faults)).await.unwrap();
        assert_eq!(volume.status().extra_blocks, (0, 0));
        assert_eq!(volume.superblock().features.incompat, Features::CLEAN_EXTRAS);
        assert_eq!(cached_after_kill(&world, &disks, &faults, &arena).await.0, 0);
        volume.replace_policy(Box::new(Cache { writes: false }));
        assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
        settle(&world).await;
        assert_eq!(cached_after_kill(&world, &disks, &faults, &arena).await, (512, 0));
    });
}

/// A block of 4 KiB is half a part: if the part is not valid, a write to the other half fills this block
/// with zeros too. No intent covered this block. After a kill, its extra copy was trusted beside a home of
/// zeros.
#[test]
fn padding_zeros_and_cached_neighbour_agree_after_kill() {
    let bench = bench(11, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let (block, part) = (KIB * 4, KIB * 8);
        let volume = make(world.clone(), all.clone(), &caching(11, MIB * 2)).await;
        volume.replace_policy(Box::new(Cache { writes: false }));
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, block, 1).await.unwrap());
        settle(&world).await;
        assert_eq!(volume.status().extra_blocks, (1, 0));
        volume.discard(Bytes::ZERO, part).await.unwrap();
        volume.write(block, &filled(&arena, block, 2), Durability::Volatile).await.unwrap();
        let volume = open(world.clone(), sound(&killed(&world, &disks), &faults)).await.unwrap();
        volume.audit().await.expect("extra copies are like their homes");
        volume.close().await.unwrap();
    });
}

#[test]
fn cached_block_takes_at_most_24_bytes_of_memory() {
    let (size, bench) = (MIB * 40, bench(9, MIB * 32, MIB * 64));
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let made = CreateOptions { policy: "ssd-first,cache=50%,bypass=off".to_owned(), ..caching(9, size) };
        let volume = make(world.clone(), all.clone(), &made).await;
        for at in (0..size / MIB).map(|i| MIB * i) {
            volume.write(at, &filled(&arena, MIB, 1), Durability::Volatile).await.unwrap();
        }
        let before = volume.status().map_memory;
        for _ in 0..2 {
            assert!(all_hold(&volume, &arena, size, 1).await);
            braid_runtime::Runtime::sleep(&world, Nanos::from_millis(100)).await;
            let status = volume.status();
            let blocks = status.extra_blocks.0;
            assert!(blocks >= 3_750, "the cache is full, but for block slots that are spare: {blocks}");
            let bytes = status.map_memory - before + status.policy_memory;
            assert!(bytes <= 24 * blocks, "{} bytes a block", bytes as f64 / blocks as f64);
        }
        assert!(volume.status().background.promotions > 5_000, "blocks have been evicted for others");
        volume.audit().await.unwrap();
    });
}

/// A discard of an extent of 64 MiB with 16,384 dirty blocks needed more room than the journal has, and
/// ended the daemon.
#[test]
fn fully_dirty_large_extent_can_be_discarded() {
    let bench = bench(7, MIB * 512, MIB * 512);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let made = CreateOptions { extent_size: MIB * 64, ..caching(7, MIB * 64) };
        let volume = make(world.clone(), all.clone(), &made).await;
        make_dirty(&volume, &arena, MIB * 64).await;
        assert_eq!(volume.status().extra_blocks, (16_384, 16_384));
        volume.discard(Bytes::ZERO, MIB * 64).await.unwrap();
        volume.flush().await.unwrap();
        assert_eq!(volume.status().extra_blocks, (0, 0));
        assert_eq!(volume.status().mapped_extents, 0);
        volume.audit().await.unwrap();
    });
}
