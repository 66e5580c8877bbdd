//! The SSD split between tier and cache, and split again while the volume runs.

use super::rig::cached::{HDD, SSD, all_hold, bench};
use super::rig::{Rig, filled, open_with, options};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_runtime::{Arena, Runtime};
use braid_sim::World;

const SIZE: Bytes = Bytes(16 << 20);
const SETTINGS: &str = "page=256KiB,period=2s,rate=1GiB,bypass=off";

/// Extent slots of the SSD that homes or the cache use.
fn used(volume: &Rig) -> u32 {
    let device = &volume.status().devices[SSD.index()];
    device.slots - device.free
}

fn homes_on_disk(volume: &Rig) -> usize {
    let extents = (0..SIZE / KIB / 128).map(|i| KIB * 128 * i);
    let home = |at| volume.explain(at).expect("it is within the volume").home.map(|(device, _)| device);
    extents.filter(|&at| home(at) == Some(HDD)).count()
}

/// A volume with half of its extents on the SSD tier, and a cache full of blocks of the other half; `dirty`
/// if these blocks were written.
async fn in_use(world: &World, volume: &Rig, arena: &Arena, dirty: bool) {
    let all = (0..SIZE / MIB).map(|i| MIB * i);
    for at in all.clone() {
        volume.write(at, &filled(arena, MIB, 1), Durability::Volatile).await.expect("there is room");
    }
    world.sleep(Nanos::from_secs(3)).await;
    for at in (0..SIZE / KIB / 4).map(|i| KIB * 4 * i) {
        match dirty {
            true => volume.write(at, &filled(arena, KIB * 4, 1), Durability::Volatile).await,
            false => volume.read(at, &filled(arena, KIB * 4, 0)).await,
        }
        .expect("the devices are sound");
    }
    volume.flush().await.expect("the devices are sound");
}

async fn split(world: &World, volume: &Rig, cache: &str, time: Nanos) {
    volume.set_policy(&format!("exclusive,cache={cache},{SETTINGS}")).await.expect("all fits on the disk");
    world.sleep(time).await;
}

fn with_split(identity: u8, test: impl AsyncFnOnce(World, Rig, Arena) + 'static) {
    let bench = bench(u64::from(identity), MIB * 16, MIB * 32);
    let (rt, all, arena) = (bench.world.clone(), bench.devices(), Arena::new(MIB * 4));
    bench.run(async move {
        let policy = format!("exclusive,cache=50%,{SETTINGS}");
        let options = CreateOptions { size: Some(SIZE), policy, ..options(identity) };
        create(&all, &options).await.expect("the devices are fit");
        // Requests that memory answers do not count.
        let (volume, _) =
            open_with(rt.clone(), all, |options| options.cache_extents = 0).await.expect("it was just made");
        test(rt, volume, arena).await;
    });
}

#[test]
fn shrunk_cache_gives_slots_to_tier_within_seconds() {
    with_split(11, async |world, volume, arena| {
        in_use(&world, &volume, &arena, false).await;
        let (before, (blocks, _)) = (homes_on_disk(&volume), volume.status().extra_blocks);
        assert!(blocks > 500, "{blocks}");
        split(&world, &volume, "0%", Nanos::from_secs(1)).await;
        assert_eq!(volume.status().extra_blocks, (0, 0));
        for _ in 0..3 {
            for at in (0..SIZE / KIB / 128).map(|i| KIB * 128 * i) {
                volume.read(at, &filled(&arena, KIB * 4, 0)).await.expect("the devices are sound");
            }
            world.sleep(Nanos::from_secs(1)).await;
        }
        assert!(homes_on_disk(&volume) + 16 < before, "{} of {before}", homes_on_disk(&volume));
        assert!(all_hold(&volume, &arena, SIZE, 1).await);
    });
}

#[test]
fn shrunk_cache_writes_back_dirty_blocks() {
    with_split(12, async |world, volume, arena| {
        in_use(&world, &volume, &arena, true).await;
        assert!(volume.status().extra_blocks.1 > 100, "{:?}", volume.status().extra_blocks);
        split(&world, &volume, "10%", Nanos::from_secs(20)).await;
        let blocks = volume.status().extra_blocks.0;
        let slots = f64::from(volume.status().devices[SSD.index()].slots) * 0.1;
        assert!(blocks > 0 && blocks <= slots as usize * 32, "{blocks} in {slots} slots");
        assert!(all_hold(&volume, &arena, SIZE, 1).await);
    });
}

#[test]
fn shrunk_tier_moves_all_homes_to_disk() {
    with_split(13, async |world, volume, arena| {
        in_use(&world, &volume, &arena, false).await;
        let (before, in_use) = (homes_on_disk(&volume), used(&volume));
        split(&world, &volume, "100%", Nanos::from_secs(20)).await;
        let mapped = volume.status().mapped_extents as usize;
        assert!(before < mapped && homes_on_disk(&volume) == mapped, "{before} to {mapped}");
        assert!(used(&volume) < in_use);
        assert!(all_hold(&volume, &arena, SIZE, 1).await);
    });
}
