//! The cost of losing each device: exact bytes, for one copy, dirty blocks, two copies, and a stale second
//! copy.

use crate::adopted;
use crate::rig::cached::{Cache, SSD, caching};
use crate::rig::{Bench, Rig, bench, filled, make, open, options};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_policy::{ByteRange, Move, Occasion, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::World;

const EXTENT: Bytes = Bytes(128 << 10);
const BLOCK: Bytes = Bytes(4 << 10);

/// The cost of losing the SSD, and of losing the disk.
fn losses(volume: &Rig) -> (Bytes, Bytes) {
    let devices = volume.status().devices;
    (devices[0].loss, devices[1].loss)
}

async fn write(bench: &Bench, volume: &Rig, at: Bytes, len: Bytes) {
    volume.write(at, &filled(&bench.arena, len, 7), Durability::Fua).await.expect("there is room");
}

/// Leaves homes where they are, and makes these moves.
struct Moves(Vec<Move>);

impl Policy for Moves {
    fn name(&self) -> &'static str {
        "moves"
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::KEEP
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = std::mem::take(&mut self.0);
        view.now + Nanos::from_millis(1)
    }

    fn extra_slots(&self, device: &braid_policy::DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

async fn carry_out(world: &World, volume: &Rig, job: Move) {
    volume.replace_policy(Box::new(Moves(vec![job])));
    world.sleep(Nanos::from_secs(2)).await;
}

#[test]
fn loss_counts_homes_and_dirty_blocks_with_one_copy() {
    let bench = bench(1);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let volume = make(world.clone(), bench.devices(), &caching(1, MIB * 2)).await;
        assert_eq!(losses(&volume), (Bytes::ZERO, Bytes::ZERO), "nothing was written");
        volume.replace_policy(Box::new(Cache { writes: false }));
        write(&bench, &volume, Bytes::ZERO, EXTENT * 2).await;
        write(&bench, &volume, EXTENT * 4, BLOCK * 3).await;
        // An extent has parts of 8 KiB.
        let homes = EXTENT * 2 + KIB * 16;
        assert_eq!(losses(&volume), (Bytes::ZERO, homes));
        let into = filled(&bench.arena, EXTENT, 0);
        volume.read(Bytes::ZERO, &into).await.expect("the devices are sound");
        world.sleep(Nanos::from_millis(100)).await;
        assert_eq!(volume.status().extra_blocks, (32, 0));
        assert_eq!(losses(&volume), (Bytes::ZERO, homes), "clean copies cost nothing");
        // Dirty blocks: over blocks with a clean copy, over blocks without, and in an empty extent.
        volume.replace_policy(Box::new(Cache { writes: true }));
        write(&bench, &volume, BLOCK, BLOCK * 2).await;
        write(&bench, &volume, EXTENT, BLOCK).await;
        assert_eq!(losses(&volume), (BLOCK * 3, homes));
        write(&bench, &volume, EXTENT * 8, EXTENT).await;
        write(&bench, &volume, EXTENT * 8, BLOCK * 5).await;
        let homes = homes + EXTENT;
        assert_eq!(volume.status().extra_blocks, (38, 8));
        assert_eq!(losses(&volume), (BLOCK * 8, homes));
        volume.audit().await.expect("the counters are those of the map");
        // A home that moves to the SSD takes the disk's share of the loss along; dirty blocks of the extent
        // cost nothing in addition.
        carry_out(&world, &volume, Move::Migrate { extent: ExtentId(0), target: SSD }).await;
        assert_eq!(volume.explain(Bytes::ZERO).unwrap().home.unwrap().0, SSD);
        assert_eq!(losses(&volume), (EXTENT + BLOCK * 6, homes - EXTENT));
        volume.audit().await.expect("the counters are those of the map");
        volume.close().await.expect("the devices are sound");
        let volume = open(world.clone(), bench.devices()).await.expect("it was closed");
        assert_eq!(losses(&volume), (EXTENT + BLOCK * 6, homes - EXTENT), "as before");
        let all = ByteRange::new(Bytes::ZERO, MIB * 2);
        carry_out(&world, &volume, Move::WriteBack { range: all }).await;
        assert_eq!(losses(&volume), (EXTENT, homes - EXTENT));
        volume.discard(Bytes::ZERO, MIB * 2).await.expect("the devices are sound");
        assert_eq!(losses(&volume), (Bytes::ZERO, Bytes::ZERO));
        volume.audit().await.expect("the counters are those of the map");
        world.halt();
    });
}

/// The first write to an extent may go to an extra copy alone: the home lies on the disk, and reads as zeros
/// until the write-back of the block.
#[test]
fn dirty_block_without_home_is_lost_with_either_device() {
    let bench = bench(2);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let volume = make(world.clone(), bench.devices(), &caching(2, MIB * 2)).await;
        volume.replace_policy(Box::new(crate::toy_policies::WriteBackCache::default()));
        let bytes = filled(&bench.arena, BLOCK * 3, 7);
        volume.write(EXTENT, &bytes, Durability::Volatile).await.expect("there is room");
        assert_eq!(volume.status().extra_blocks, (3, 3));
        assert_eq!(losses(&volume), (BLOCK * 3, BLOCK * 3));
        world.sleep(Nanos::from_secs(2)).await;
        assert_eq!(losses(&volume), (Bytes::ZERO, KIB * 16), "the home has two parts");
        volume.audit().await.expect("the counters are those of the map");
        world.halt();
    });
}

#[test]
fn bytes_behind_the_end_of_the_volume_are_nobodys_loss() {
    let bench = bench(3);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let policy = "ssd-only".to_owned();
        let size = MIB + KIB * 12;
        let volume =
            make(world.clone(), bench.devices(), &CreateOptions { size: Some(size), policy, ..options(3) })
                .await;
        write(&bench, &volume, MIB, KIB * 12).await;
        assert_eq!(losses(&volume), (KIB * 12, Bytes::ZERO));
        write(&bench, &volume, Bytes::ZERO, MIB).await;
        assert_eq!(losses(&volume), (size, Bytes::ZERO));
        world.halt();
    });
}

#[test]
fn mirror_has_no_loss_until_one_device_remains() {
    // Write-back needs a copy on one device alone: with two required copies each write goes to both.
    for policy in ["equi", "stripe", "cache,cache=50%,mode=write-back", "exclusive", "raid1"] {
        let bench = crate::rig::cached::bench(4, MIB * 32, MIB * 32);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let options = CreateOptions { copies: 2, size: Some(MIB), ..options(4) };
            let volume = make(world.clone(), bench.devices(), &options).await;
            volume.set_policy(policy).await.expect("the devices are there");
            for _ in 0..2 {
                write(&bench, &volume, Bytes::ZERO, MIB).await;
                write(&bench, &volume, KIB * 8, BLOCK).await;
                assert_eq!(
                    (losses(&volume), volume.status().extra_blocks.1),
                    ((Bytes::ZERO, Bytes::ZERO), 0)
                );
            }
            bench.faults[1].vanish();
            write(&bench, &volume, Bytes::ZERO, BLOCK).await;
            assert_eq!(losses(&volume), (MIB, Bytes::ZERO), "{policy}: the disk is lost already");
            world.halt();
        });
    }
}

#[test]
fn stale_second_copy_costs_missing_bytes() {
    let bench = bench(5);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let policy = "pass,max-lag=4MiB,window=4MiB,idle=1s".to_owned();
        let options = CreateOptions { copies: 2, size: Some(MIB * 2), policy, ..options(5) };
        let volume = make(world.clone(), bench.devices(), &options).await;
        write(&bench, &volume, Bytes::ZERO, MIB).await;
        assert_eq!((losses(&volume), volume.status().behind), ((MIB, Bytes::ZERO), MIB));
        world.sleep(Nanos::from_secs(5)).await;
        assert_eq!(losses(&volume), (Bytes::ZERO, Bytes::ZERO));
        for extent in [1, 4] {
            write(&bench, &volume, EXTENT * extent + BLOCK * 2, BLOCK * 3).await;
        }
        assert_eq!(losses(&volume), (BLOCK * 6, Bytes::ZERO));
        world.halt();
    });
}

/// A status examines the homes of 16,384 pieces of extents at most. For the remainder, the loss of each
/// device counts all homes on the device.
#[test]
fn loss_beyond_status_limit_counts_all_homes() {
    const SMALL: Bytes = Bytes(4 << 10);
    let bench = crate::rig::cached::bench(8, MIB * 96, MIB * 96);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let (policy, size) = ("pass,max-lag=100%,window=100%,idle=1h".to_owned(), Some(MIB * 72));
        let options =
            CreateOptions { copies: 2, size, policy, extent_size: SMALL, block_size: SMALL, ..options(8) };
        let volume = make(world.clone(), bench.devices(), &options).await;
        for at in 0..64 {
            volume
                .write(MIB * at, &filled(&bench.arena, MIB, 7), Durability::Volatile)
                .await
                .expect("there is room");
        }
        assert_eq!(losses(&volume), (MIB * 64, Bytes::ZERO), "16,384 extents: exact");
        write(&bench, &volume, MIB * 68, MIB).await;
        assert_eq!(losses(&volume), (MIB * 65, Bytes::ZERO), "all homes lie on the SSD");
        world.halt();
    });
}

#[test]
fn journaled_epochs_do_not_count_as_ssd_loss() {
    use crate::epochs;
    let world = World::new(6);
    world.clone().block_on(async move {
        let devices = epochs::disks(&world).iter().map(|disk| epochs::sound(disk, &world)).collect();
        let volume = make(world.clone(), devices, &epochs::epochs(6)).await;
        epochs::wait_for_image(&world, &volume).await;
        let arena = Arena::new(MIB);
        for at in 0..4 {
            let bytes = filled(&arena, epochs::BLOCK, 3);
            volume.write(epochs::EXTENT * at, &bytes, Durability::Volatile).await.expect("there is room");
        }
        let (mut journaled, mut rounds) = (Bytes::ZERO, 0);
        while rounds < 1_000 {
            let status = volume.status();
            let behind = status.behind - status.journaled;
            assert_eq!((status.devices[0].loss, status.devices[1].loss), (behind, Bytes::ZERO));
            journaled = journaled.max(status.journaled);
            rounds += 1;
            world.sleep(Nanos::from_millis(1)).await;
        }
        assert!(journaled > Bytes::ZERO, "the disk had something in its journal alone");
        world.halt();
    });
}

/// Nothing is dirty on the SSD alone before an adopted disk, unless the owner asks for write-back.
#[test]
fn ssd_before_adopted_disk_costs_nothing_by_default() {
    for (policy, cost) in [("cache", Bytes::ZERO), ("cache,mode=write-back", EXTENT)] {
        let world = World::new(7);
        world.clone().block_on(async move {
            let disks = adopted::disks(&world, adopted::SIZE);
            let volume = adopted::make(&world, &disks).await;
            volume.set_policy(policy).await.expect("it leaves homes where they are");
            let arena = Arena::new(MIB);
            for at in [Bytes::ZERO, EXTENT] {
                let into = filled(&arena, EXTENT, 0);
                volume.read(at, &into).await.expect("the devices are sound");
            }
            world.sleep(Nanos::from_millis(100)).await;
            let bytes = filled(&arena, EXTENT, 7);
            volume.write(Bytes::ZERO, &bytes, Durability::Fua).await.expect("there is room");
            assert!(volume.status().extra_blocks.0 > 0, "{policy}");
            assert_eq!(losses(&volume), (cost, adopted::SIZE), "{policy}");
            volume.audit().await.expect("the counters are those of the map");
            world.halt();
        });
    }
}
