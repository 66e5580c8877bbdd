//! A resize is refused with a remedy, or does what was asked: sizes, data beyond the end, devices that are
//! not in use, room for metadata.

use crate::resize::{Resizable, disks, is_filled, is_sound, open_disks, open_resizable};
use crate::rig::{filled, options, refused, sound};
use braid_base::{Bytes, DeviceId, GIB, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, create};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, World};

fn run(seed: u64, size: Bytes, test: impl AsyncFnOnce(World, Vec<Disk>) + 'static) {
    let world = World::new(seed);
    let (rt, disks) = (world.clone(), disks(&world, size));
    world.block_on(async move { test(rt, disks).await });
    world.halt();
}

async fn make(rt: &World, disks: &[Disk], options: &CreateOptions) -> Resizable {
    create(&sound(disks), options).await.expect("the devices are fit");
    open_disks(rt, disks).await
}

async fn write(volume: &Resizable, at: Bytes, len: Bytes, value: u8) {
    let buf = filled(&Arena::new(len), len, value);
    volume.write(at, &buf, Durability::Fua).await.expect("a write succeeds");
}

#[test]
fn volume_grows_to_the_largest_size_and_not_beyond() {
    for (copies, policy) in [(1, "equi"), (1, "cache"), (2, "raid1"), (1, "most"), (1, "ssd-first")] {
        run(1, MIB * 64, async move |rt, disks| {
            let made = CreateOptions { copies, policy: policy.to_owned(), ..options(1) };
            let volume = make(&rt, &disks, &made).await;
            let largest = volume.volume().largest();
            assert!(largest > MIB * 16, "{policy}: {largest}");
            let error = refused(volume.resize(largest + KIB * 128).await);
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{policy}: {error}");
            assert_eq!(volume.size(), MIB * 4);
            volume.resize(largest).await.unwrap_or_else(|error| panic!("{policy}: {error}"));
            // Every byte has room.
            let mut at = Bytes::ZERO;
            while at < largest {
                let len = MIB.min(largest - at);
                write(&volume, at, len, 9).await;
                at += len;
            }
            volume.volume().audit().await.unwrap_or_else(|error| panic!("{policy}: {error}"));
            volume.volume().close().await.expect("the volume closes");
            is_sound(&rt, &disks, policy).await;
            let volume = open_disks(&rt, &disks).await;
            is_filled(&volume, Bytes::ZERO, largest, 9, policy).await;
        });
    }
}

/// A write up to the end of the volume counts as a write up to the end of the extent, where the device holds
/// old bytes.
#[test]
fn bytes_behind_an_unaligned_end_read_as_zeros_after_growth() {
    for policy in ["equi", "ssd-first,cache=50%", "cache"] {
        for odd in [Bytes(512), KIB * 4, KIB * 100, KIB * 127 + Bytes(512)] {
            run(2, MIB * 32, async move |rt, disks| {
                let size = MIB * 4 + odd;
                let made = CreateOptions { size: Some(size), policy: policy.to_owned(), ..options(1) };
                let volume = make(&rt, &disks, &made).await;
                write(&volume, MIB * 4, odd, 7).await;
                let buf = filled(&Arena::new(odd), odd, 0);
                volume.read(MIB * 4, &buf).await.expect("a read succeeds");
                volume.resize(MIB * 6).await.expect("the volume grows");
                is_filled(&volume, MIB * 4, size, 7, policy).await;
                is_filled(&volume, size, MIB * 6, 0, policy).await;
                // Again, with written bytes behind the old end.
                volume.resize(size).await.expect("nothing is beyond");
                write(&volume, MIB * 4, odd, 8).await;
                volume.resize(MIB * 6).await.expect("the volume grows");
                is_filled(&volume, size, MIB * 6, 0, policy).await;
                volume.volume().audit().await.expect("all copies are alike");
            });
        }
    }
}

#[test]
fn volume_with_data_beyond_the_end_does_not_shrink() {
    for copies in [1, 2] {
        run(3, MIB * 32, async move |rt, disks| {
            let made = CreateOptions { size: Some(MIB * 10), copies, ..options(1) };
            let volume = make(&rt, &disks, &made).await;
            write(&volume, MIB * 8 + KIB * 40, KIB * 4, 7).await;
            write(&volume, MIB * 5, KIB * 4, 6).await;
            for size in [MIB * 4, MIB * 5, MIB * 8, MIB * 8 + KIB * 43] {
                let error = refused(volume.resize(size).await);
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                assert!(
                    error.to_string().contains("8240KiB") || error.to_string().contains("8236KiB"),
                    "{error}"
                );
                assert_eq!(volume.size(), MIB * 10);
            }
            volume.resize(MIB * 8 + KIB * 44).await.expect("the data ends there");
            is_filled(&volume, MIB * 8 + KIB * 40, volume.size(), 7, "after the data").await;
            volume.discard(MIB * 8, KIB * 44).await.expect("a discard succeeds");
            volume.resize(MIB * 5 + KIB * 4).await.expect("the data ends there");
            is_filled(&volume, MIB * 5, volume.size(), 6, "after the data").await;
            volume.resize(MIB * 10).await.expect("the volume grows");
            is_filled(&volume, MIB * 5 + KIB * 4, MIB * 10, 0, "again").await;
            for size in [Bytes::ZERO, GIB * 1024 * 1024] {
                let error = refused(volume.resize(size).await);
                assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NoSpace), "{error}");
            }
        });
    }
}

/// Cached copies, also dirty ones, fill the SSD: they make room for the metadata of the larger volume.
#[test]
fn full_cache_makes_room_for_metadata() {
    for policy in ["cache,mode=write-back", "cache,mode=write-through", "orthus"] {
        run(4, MIB * 24, async move |rt, disks| {
            let made = CreateOptions {
                size: Some(MIB * 10),
                policy: policy.to_owned(),
                extent_size: KIB * 4,
                ..options(1)
            };
            let volume = make(&rt, &disks, &made).await;
            let volume_end = MIB * 10;
            for round in 0..3 {
                for at in (0..10).map(|at| MIB * at) {
                    write(&volume, at, MIB, 1 + at.0 as u8 % 7 + round).await;
                    let buf = filled(&Arena::new(MIB), MIB, 0);
                    volume.read(at, &buf).await.expect("a read succeeds");
                }
                rt.sleep(Nanos::from_secs(2)).await;
            }
            volume.resize(MIB * 20).await.unwrap_or_else(|error| panic!("{policy}: {error}"));
            for at in (0..10).map(|at| MIB * at) {
                is_filled(&volume, at, at + MIB, 1 + at.0 as u8 % 7 + 2, policy).await;
            }
            is_filled(&volume, volume_end, MIB * 20, 0, policy).await;
            volume.volume().audit().await.unwrap_or_else(|error| panic!("{policy}: {error}"));
        });
    }
}

/// The free slots are scattered: extents make room for the metadata, on both devices.
#[test]
fn scattered_extents_make_room_for_metadata() {
    for copies in [1, 2] {
        run(5, MIB * 24, async move |rt, disks| {
            let made = CreateOptions {
                size: Some(MIB * 18),
                copies,
                policy: if copies == 1 { "stripe" } else { "raid1" }.to_owned(),
                extent_size: KIB * 4,
                ..options(1)
            };
            let volume = make(&rt, &disks, &made).await;
            for at in (0..18).map(|at| MIB * at) {
                write(&volume, at, MIB, 5).await;
            }
            // One free slot in eight.
            for at in (0..18 * 32).map(|at| KIB * 32 * at) {
                volume.discard(at, KIB * 4).await.expect("a discard succeeds");
            }
            volume.flush().await.expect("a flush succeeds");
            volume.resize(MIB * 20).await.unwrap_or_else(|error| panic!("{copies} copies: {error}"));
            for at in (0..18 * 32).map(|at| KIB * 32 * at) {
                is_filled(&volume, at, at + KIB * 4, 0, "a hole").await;
                is_filled(&volume, at + KIB * 4, at + KIB * 32, 5, "data").await;
            }
            volume.volume().audit().await.expect("all copies are alike");
            volume.volume().close().await.expect("the volume closes");
            is_sound(&rt, &disks, "after moves").await;
        });
    }
}

#[test]
fn size_stays_while_a_device_is_not_in_use() {
    run(6, MIB * 32, async |rt, disks| {
        let made = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(1) };
        let volume = make(&rt, &disks, &made).await;
        write(&volume, Bytes::ZERO, MIB, 7).await;
        volume.volume().fail_device(DeviceId(1)).await.expect("the other device has everything");
        let error = refused(volume.resize(MIB * 6).await);
        assert!(error.kind() == ErrorKind::Degraded && error.to_string().contains("device d1"), "{error}");
        write(&volume, MIB, MIB, 8).await;
        volume.volume().close().await.expect("the volume closes");
        // The device is behind after the next opening, and up to date a little later.
        let volume = open_disks(&rt, &disks).await;
        while volume.volume().status().devices[1].state != DeviceState::Active {
            let error = refused(volume.resize(MIB * 6).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            rt.sleep(Nanos::from_millis(100)).await;
        }
        volume.resize(MIB * 6).await.expect("both devices are active");
        is_filled(&volume, Bytes::ZERO, MIB, 7, "returned").await;
        is_filled(&volume, MIB, MIB * 2, 8, "returned").await;
        // Extents that were new while the device was away get their second copies in the background.
        rt.sleep(Nanos::from_secs(300)).await;
        volume.volume().close().await.expect("the volume closes");
        let volume = open_resizable(&rt, sound(&disks[1..])).await;
        is_filled(&volume, MIB, MIB * 2, 8, "the returned device alone").await;
        assert_eq!(volume.size(), MIB * 6);
    });
}

/// Each extent lies at its own address on the second disk, and metadata behind all addresses.
#[test]
fn disk_that_keeps_addresses_grows_up_to_its_metadata() {
    run(7, MIB * 32, async |rt, disks| {
        let made = CreateOptions {
            copies: 2,
            policy: "pass".to_owned(),
            layouts: vec![Layout::Head, Layout::Tail],
            extent_size: KIB * 4,
            size: Some(MIB * 6),
            ..options(1)
        };
        let volume = make(&rt, &disks, &made).await;
        write(&volume, MIB * 5, MIB, 7).await;
        for size in [Some(MIB * 9), Some(MIB * 12), None] {
            let size = size.unwrap_or_else(|| volume.volume().largest());
            volume.resize(size).await.unwrap_or_else(|error| panic!("{size}: {error}"));
            write(&volume, size - MIB, MIB, 8).await;
            is_filled(&volume, MIB * 5, MIB * 6, 7, "the old end").await;
            let superblock = volume.volume().superblock();
            let metadata = superblock.regions.iter().filter(|region| region.device == DeviceId(1));
            assert!(metadata.into_iter().all(|region| region.offset >= size), "{size}");
        }
        let error = refused(volume.resize(volume.volume().largest() + MIB).await);
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        volume.volume().audit().await.expect("all copies are alike");
        volume.volume().close().await.expect("the volume closes");
        is_sound(&rt, &disks, "with addresses").await;
    });
}

/// The SSD with the journal is lost after a shutdown: the map on the disk has the new size, too.
#[test]
fn resized_volume_opens_without_its_cache() {
    for sizes in [[MIB * 4, MIB * 12], [MIB * 12, MIB * 4]] {
        for group in [None, Some(1)] {
            run(9, MIB * 32, async move |rt, disks| {
                let made = CreateOptions {
                    size: Some(sizes[0]),
                    policy: "cache,mode=write-through".to_owned(),
                    extent_size: KIB * 4,
                    map_group: group,
                    ..options(1)
                };
                let volume = make(&rt, &disks, &made).await;
                write(&volume, MIB * 3, MIB, 7).await;
                volume.resize(sizes[1]).await.expect("the size changes");
                write(&volume, MIB * 2, MIB, 8).await;
                volume.volume().close().await.expect("the volume closes");
                let volume = open_resizable(&rt, sound(&disks[1..])).await;
                assert_eq!(volume.size(), sizes[1]);
                is_filled(&volume, MIB * 3, MIB * 4, 7, "without the SSD").await;
                is_filled(&volume, MIB * 2, MIB * 3, 8, "without the SSD").await;
                volume.volume().close().await.expect("the volume closes");
            });
        }
    }
}

/// The disk that keeps epochs has a slot for each extent of the larger volume, and keeps epochs again.
#[test]
fn volume_with_epochs_grows_under_another_order() {
    run(10, MIB * 48, async |rt, disks| {
        let epochs = "pass,order=epoch";
        let made = CreateOptions {
            copies: 2,
            policy: epochs.to_owned(),
            layouts: vec![Layout::Head, Layout::Tail],
            size: Some(MIB * 6),
            ..options(1)
        };
        let volume = make(&rt, &disks, &made).await;
        write(&volume, MIB * 5, MIB, 7).await;
        let error = refused(volume.resize(MIB * 12).await);
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("braid policy"), "{error}");
        volume.volume().set_policy("pass").await.expect("the policy fits");
        // The epochs end in the background.
        rt.sleep(Nanos::from_secs(60)).await;
        volume.resize(MIB * 12).await.expect("the volume grows");
        volume.volume().set_policy(epochs).await.expect("the policy fits");
        write(&volume, MIB * 11, MIB, 8).await;
        rt.sleep(Nanos::from_secs(60)).await;
        is_filled(&volume, MIB * 5, MIB * 6, 7, "with epochs").await;
        is_filled(&volume, MIB * 6, MIB * 11, 0, "with epochs").await;
        volume.volume().close().await.expect("the volume closes");
        is_sound(&rt, &disks, "with epochs").await;
        let volume = open_disks(&rt, &disks).await;
        is_filled(&volume, MIB * 11, MIB * 12, 8, "with epochs").await;
        // The policy is remembered.
        assert_eq!(refused(volume.resize(MIB * 13).await).kind(), ErrorKind::Invalid);
    });
}

#[test]
fn size_stays_while_a_device_drains() {
    run(11, MIB * 32, async |rt, mut disks| {
        disks.push(crate::resize::disks(&rt, MIB * 32).remove(1));
        let made = CreateOptions { size: Some(MIB * 12), policy: "stripe".to_owned(), ..options(1) };
        let volume = make(&rt, &disks, &made).await;
        for at in (0..12).map(|at| MIB * at) {
            write(&volume, at, MIB, 7).await;
        }
        let largest = volume.volume().largest();
        volume.volume().remove_device(DeviceId(2)).await.expect("the others have room");
        // The device may be empty already.
        if let Err(error) = volume.resize(MIB * 14).await {
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        }
        while volume.volume().status().devices[2].state != DeviceState::Removed {
            rt.sleep(Nanos::from_millis(100)).await;
        }
        assert!(volume.volume().largest() < largest);
        volume.resize(MIB * 14).await.expect("two devices are left");
        is_filled(&volume, Bytes::ZERO, MIB * 12, 7, "without the third").await;
        volume.volume().close().await.expect("the volume closes");
        let volume = open_disks(&rt, &disks[..2]).await;
        assert_eq!(volume.size(), MIB * 14);
        volume.volume().audit().await.expect("all copies are alike");
    });
}
