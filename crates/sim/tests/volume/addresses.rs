//! Devices that keep addresses: an extent lies on such a device at its own address, whatever the moves.

use crate::deadlines::no_faults;
use crate::openings::mentions;
use crate::rig::{Rig, bench, filled, holds, make, open, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, Layout, Superblock};
use braid_runtime::{Arena, Device};
use braid_sim::{Disk, DiskOptions, Faulty};

/// An SSD, and a disk that keeps addresses.
fn kept(identity: u8) -> CreateOptions {
    CreateOptions { layouts: vec![Layout::Head, Layout::Tail], ..options(identity) }
}

/// Bytes of a device, read past the engine.
async fn bytes_of(device: &Faulty<Disk>, offset: Bytes, len: Bytes) -> Vec<u8> {
    let buf = Arena::new(len).alloc(len).await;
    device.read(offset, &buf).await.expect("the disk is sound");
    buf.with_bytes(<[u8]>::to_vec)
}

async fn write(volume: &Rig, arena: &Arena, offset: Bytes, len: Bytes, value: u8) {
    volume.write(offset, &filled(arena, len, value), Durability::Fua).await.expect("the disks are sound");
}

#[test]
fn mirror_on_address_preserving_disk_equals_volume() {
    let bench = bench(1);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &CreateOptions { copies: 2, ..kept(1) }).await;
        // Not in the order of addresses.
        for (at, value) in [(3, 3), (0, 7), (2, 9), (1, 2)] {
            write(&volume, &arena, MIB * at, MIB, value).await;
        }
        write(&volume, &arena, KIB * 1000, KIB * 40, 5).await;
        volume.discard(MIB * 3, MIB).await.unwrap();
        write(&volume, &arena, MIB * 3, MIB, 4).await;
        volume.close().await.unwrap();
        let volume = open(world, all.clone()).await.unwrap();
        for at in (0..4).map(|at| MIB * at) {
            let (raw, seen) = (bytes_of(&all[1], at, MIB).await, filled(&arena, MIB, 0));
            volume.read(at, &seen).await.unwrap();
            assert!(seen.with_bytes(|seen| seen == raw.as_slice()), "the MiB at {at}");
        }
    });
}

/// Whatever a guest writes, no guest's bytes pass for a superblock in the place of the other layout's
/// superblock.
#[test]
fn forged_superblock_in_guest_data_is_ignored() {
    for layout in [Layout::Head, Layout::Tail] {
        let bench = bench(2);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let all = vec![bench.devices()[0].clone()];
        bench.run(async move {
            let options = CreateOptions {
                extent_size: KIB * 16,
                layouts: vec![layout],
                policy: "ssd-only".to_owned(),
                ..options(2)
            };
            let volume = make(world.clone(), all.clone(), &options).await;
            let known = volume.superblock();
            volume.close().await.unwrap();
            // A superblock of the other layout, newer than all others, in every place with guests' bytes.
            let forged = filled(&arena, superblock::SIZE, 0);
            forged.copy_from_slice(Bytes::ZERO, &forged_superblock(&known, layout));
            let slots = known.devices[0].slots_area(known.extent_size).unwrap();
            let places = superblock_offsets(known.devices[0].size, other(layout));
            let open_to_guests = places.into_iter().filter(|at| slots.contains(at)).collect::<Vec<_>>();
            assert_eq!(open_to_guests.len(), 2, "{layout:?}");
            for place in open_to_guests {
                all[0].write(place, &forged).await.unwrap();
            }
            let volume = open(world, all).await.unwrap();
            assert_eq!(volume.superblock().volume, known.volume);
            volume.close().await.unwrap();
        });
    }
}

fn other(layout: Layout) -> Layout {
    if layout == Layout::Head { Layout::Tail } else { Layout::Head }
}

/// A superblock of the same device that claims the other layout, and is newer than all others.
fn forged_superblock(known: &Superblock, layout: Layout) -> Vec<u8> {
    let mut forged = known.clone();
    forged.sequence = 1 << 59;
    let device = &mut forged.devices[0];
    device.layout = other(layout);
    device.slots_offset = if layout == Layout::Head { Bytes::ZERO } else { MIB };
    device.slots = 200;
    forged.encode(DeviceId(0))
}

#[test]
fn volume_may_fill_but_not_exceed_address_preserving_device() {
    let bench = bench(3);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let all_of_it = CreateOptions { size: None, policy: "hdd-only".to_owned(), ..kept(3) };
        let size = braid_engine::create(&all, &all_of_it).await.unwrap().volume_size;
        let larger = CreateOptions { size: Some(size + KIB * 128), ..kept(3) };
        let error = refused(braid_engine::create(&all, &larger).await.map(drop));
        assert_eq!(error.kind(), ErrorKind::Invalid);
        // The disk has room for everything, and extents return there from the SSD.
        let options = CreateOptions { size: Some(size), policy: "hdd-only".to_owned(), ..kept(3) };
        let volume = make(world, all, &options).await;
        let mut at = Bytes::ZERO;
        while at < size {
            write(&volume, &arena, at, KIB * 128, 1).await;
            at += KIB * 128;
        }
        for policy in ["ssd-only", "hdd-only"] {
            volume.set_policy(policy).await.unwrap_or_else(|error| panic!("{policy}: {error}"));
            volume.discard(Bytes::ZERO, MIB).await.unwrap();
            write(&volume, &arena, Bytes::ZERO, MIB, 2).await;
        }
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 2).await.unwrap());
        assert!(holds(&volume, &arena, size - MIB, MIB, 1).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// A partition was enlarged: the superblocks of a disk that keeps addresses were no longer at its end. The
/// disk was refused as a member of no volume.
#[test]
fn grown_tail_layout_disk_is_refused_with_original_size() {
    let bench = bench(6);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let small = bench.disks[1].clone();
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &CreateOptions { copies: 2, ..kept(6) }).await;
        write(&volume, &arena, Bytes::ZERO, MIB, 3).await;
        volume.close().await.unwrap();
        let (had, has) = (small.geometry().size, small.geometry().size + MIB * 3);
        let mut bytes = vec![0; had.as_usize()];
        small.peek_durable(Bytes::ZERO, &mut bytes);
        let of_size = |size| {
            let disk = Disk::new(&world, DiskOptions::hdd(size));
            disk.poke(Bytes::ZERO, &bytes);
            Faulty::new(disk, &no_faults(&world))
        };
        let error = refused(open(world.clone(), vec![all[0].clone(), of_size(has)]).await);
        assert!(
            error.kind() == ErrorKind::Invalid && mentions(&error, &["disk 1", &had.to_string()]),
            "{error}"
        );
        let alone = refused(open(world.clone(), vec![of_size(has)]).await);
        assert!(alone.kind() == ErrorKind::Invalid && mentions(&alone, &["layout=tail"]), "{alone}");
        let volume = open(world.clone(), vec![all[0].clone(), of_size(had)]).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 3).await.unwrap());
        volume.close().await.unwrap();
    });
}
