//! Epochs of volumes of other shapes: extents of the smallest and the largest size, and volumes of one
//! extent.

use crate::epochs::{epochs, wait_for_image};
use crate::epochs_campaign::History;
use crate::epochs_failing::{DISK, Rigged};
use crate::rig::{Rig, make, open_with};
use braid_base::{Bytes, DeviceId, GIB, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, World};

async fn content(volume: &Rig, size: Bytes) -> Vec<u8> {
    let (arena, mut bytes, mut at) = (Arena::new(MIB), Vec::new(), Bytes::ZERO);
    while at < size {
        let buf = arena.alloc((size - at).min(MIB)).await;
        volume.read(at, &buf).await.expect("the devices are sound");
        buf.with_bytes(|part| bytes.extend_from_slice(part));
        at += buf.len();
    }
    bytes
}

/// The SSD is lost at some instants while a guest writes and discards, among others whole extents.
fn lose_ssds(extent: Bytes, size: Bytes, seed: u64) {
    let world = World::new(seed);
    let disks = vec![Disk::new(&world, DiskOptions::ssd(GIB)), Disk::new(&world, DiskOptions::hdd(GIB))];
    let rigged = Rigged::of(&world, disks);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let policy = "pass,order=epoch,max-lag=1MiB,idle=20ms".to_owned();
        let block_size = extent.min(KIB * 4);
        let options =
            CreateOptions { extent_size: extent, size: Some(size), policy, block_size, ..epochs(1) };
        let volume = make(world.clone(), rigged.devices(), &options).await;
        wait_for_image(&world, &volume).await;
        let (arena, history) = (Arena::new(MIB), History::default());
        let blocks = size / (KIB * 4);
        // Each comparison covers the whole volume, after each change.
        for loss in 0..if size > MIB * 16 { 8 } else { 20 } {
            for _ in 0..rng.between(1, 20) {
                let first = rng.below(blocks);
                let (at, most) = (KIB * 4 * first, blocks - first);
                let longest = if rng.chance(0.2) { 128 } else { 8 };
                let len = KIB * 4 * rng.between(1, most.min(longest) + 1);
                let (at, len, value) = match rng.below(8) {
                    // Longer discards are several changes, between which an epoch may end.
                    0 => (at, len.min(at.align_down(extent) + extent - at), 0),
                    1 => (at.align_down(extent), extent.min(size - at.align_down(extent)), 0),
                    _ => (at, len, rng.between(1, 250) as u16),
                };
                if value == 0 {
                    volume.discard(at, len).await.expect("the devices are sound");
                } else {
                    let buf = arena.alloc(len).await;
                    buf.with_bytes_mut(|bytes| bytes.fill(value as u8));
                    volume.write(at, &buf, Durability::Volatile).await.expect("the devices are sound");
                }
                history.add(at, len, value);
            }
            world.sleep(Nanos::from_micros(rng.below(60_000))).await;
            let mut cut = rng.fork();
            let left = rigged.left_of(DISK, rng.chance(0.5).then_some(&mut cut));
            let lost =
                |options: &mut OpenOptions| (options.distrust, options.recover) = (vec![DeviceId(0)], true);
            let recovered = open_with(world.clone(), vec![rigged.sound(&left)], lost).await;
            let place = format!("extents of {extent}, {size}, loss {loss}");
            let (alone, _) = recovered.unwrap_or_else(|error| panic!("{place}: {error}"));
            let instant = history.instant_of(&content(&alone, size).await, usize::MAX);
            assert!(instant.is_some(), "{place}: the volume never was this");
            alone.close().await.expect("the disk is sound");
        }
        volume.close().await.expect("the devices are sound");
    });
}

#[test]
fn epochs_are_kept_whatever_the_size_of_extents_and_volume() {
    for (seed, (extent, size)) in [
        (KIB * 4, KIB * 64),
        (KIB * 4, MIB * 3),
        (KIB * 128, KIB * 128),
        (MIB, MIB * 5),
        (MIB * 16, MIB * 64),
        (MIB * 64, MIB * 64),
    ]
    .into_iter()
    .enumerate()
    {
        lose_ssds(extent, size, seed as u64);
    }
}
