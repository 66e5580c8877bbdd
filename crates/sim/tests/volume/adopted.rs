//! An adopted disk with earlier data: its bytes stay in place, the SSD before the disk may leave, and
//! nothing else is written to the disk.

use crate::chaos::Chaos;
use crate::rig::{Rig, filled, refused, sound};
use crate::toy_policies::WriteBackCache;
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{
    AdoptedDisk, Adoption, CreateOptions, Durability, ErrorKind, Export, Noted, OpenOptions, Recovery,
    Result, Volume, Zeroing, create, identify,
};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Phase};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Blank, Disk, DiskOptions, World};
use std::rc::Rc;

pub type Adopted = Rig;

/// Places of the devices.
pub const SSD: DeviceId = DeviceId(0);
pub const DISK: usize = 1;
const IDENTITY: Uuid = Uuid([9; 16]);
/// Neither whole extents nor whole blocks.
pub const SIZE: Bytes = Bytes((5 << 20) + (100 << 10) + 512);

/// An SSD, a disk with content, and a record.
pub fn disks(world: &World, size: Bytes) -> Vec<Disk> {
    let garbage = Blank::Garbage(7);
    let options = [
        DiskOptions::ssd(MIB * 8).with_blank(garbage),
        DiskOptions::hdd(size).with_blank(garbage),
        DiskOptions::hdd(MIB * 5),
    ];
    options.map(|options| Disk::new(world, options)).to_vec()
}

fn options() -> CreateOptions {
    CreateOptions {
        policy: "hdd-only".to_owned(),
        adoption: Some(Adoption { disk: DISK, identity: IDENTITY, record: 2 }),
        overwrite: true,
        span_size: KIB * 128,
        ..CreateOptions::new("adopted", Uuid([1; 16]))
    }
}

/// Opens the volume; the adopted disk is recognised by its size.
pub async fn try_open(
    world: &World,
    disks: &[Disk],
    change: impl FnOnce(&mut OpenOptions),
) -> Result<(Adopted, Recovery)> {
    let mut options = OpenOptions::new((0..disks.len()).map(|i| format!("disk {i}")).collect());
    let place = disks.iter().position(|disk| ![MIB * 8, MIB * 5].contains(&disk.geometry().size));
    options.adopted = place.map(|place| AdoptedDisk { place, identity: IDENTITY, force: false });
    change(&mut options);
    Volume::open(world.clone(), sound(disks), options).await
}

pub async fn open(world: &World, disks: &[Disk]) -> Adopted {
    try_open(world, disks, |_| ()).await.expect("the devices are the volume's").0
}

pub async fn make(world: &World, disks: &[Disk]) -> Adopted {
    create(&sound(disks), &options()).await.expect("the disk can be adopted");
    open(world, disks).await
}

/// All bytes of a disk, read past the engine.
pub async fn raw(disk: &Disk) -> Vec<u8> {
    let buf = Arena::new(MIB).alloc(MIB).await;
    let (mut all, size) = (Vec::new(), disk.geometry().size);
    while Bytes::of_len(all.len()) < size {
        let at = Bytes::of_len(all.len());
        let part = buf.slice(Bytes::ZERO..MIB.min(size - at));
        disk.read(at, &part).await.expect("the disk is sound");
        part.with_bytes(|bytes| all.extend_from_slice(bytes));
    }
    all
}

/// All bytes of a volume, as guests read.
pub async fn seen(volume: &Adopted) -> Vec<u8> {
    let buf = Arena::new(MIB).alloc(MIB).await;
    let mut all = Vec::new();
    while Bytes::of_len(all.len()) < volume.size() {
        let at = Bytes::of_len(all.len());
        let part = buf.slice(Bytes::ZERO..MIB.min(volume.size() - at));
        volume.read(at, &part).await.expect("the devices are sound");
        part.with_bytes(|bytes| all.extend_from_slice(bytes));
    }
    all
}

/// Writes in several places, including the end of the volume, both to the volume and to `expected`.
pub async fn scribble(volume: &Adopted, expected: &mut [u8], seed: u64) {
    let (mut rng, arena) = (Rng::new(seed), Arena::new(MIB));
    for i in 0..60 {
        let len = 1 + rng.below(KIB.0 * 20);
        let at = if i % 6 == 0 { SIZE.0 - len } else { rng.below(SIZE.0 - len) };
        let value = rng.below(256) as u8;
        let buf = filled(&arena, Bytes(len), value);
        volume.write(Bytes(at), &buf, Durability::Volatile).await.expect("the devices are sound");
        expected[at as usize..(at + len) as usize].fill(value);
    }
}

/// Nearly all writes make dirty extra copies, and little is written back.
pub fn dirty(world: &World, volume: &Adopted) {
    volume.replace_policy(Box::new(Chaos::new(world.fork_rng()).dirtying()));
}

pub fn run<T: 'static>(test: impl AsyncFnOnce(World) -> T + 'static) -> T {
    let world = World::new(1);
    let rt = world.clone();
    let result = world.block_on(async move { test(rt).await });
    world.halt();
    result
}

pub fn state_of(volume: &Adopted) -> DeviceState {
    volume.status().devices[SSD.index()].state
}

/// Waits until the SSD is no longer a member of the volume, and all superblocks say so.
pub async fn until_removed(world: &World, volume: &Adopted) {
    while volume.removed_devices() != [SSD] {
        world.sleep(Nanos::from_millis(1)).await;
    }
}

pub async fn copies_of(world: &World, disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(|disk| disk.fork(world)).collect()
}

#[test]
fn adopted_bytes_are_served_and_left_unchanged() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let before = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        assert_eq!(volume.size(), SIZE);
        dirty(&world, &volume);
        assert!(seen(&volume).await == before);
        volume.prefetch(Bytes::ZERO, SIZE).await.unwrap();
        world.sleep(Nanos::from_secs(60)).await;
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
        assert!(raw(&disks[DISK]).await == before);
        let volume = open(&world, &disks).await;
        assert!(seen(&volume).await == before);
    });
}

#[test]
fn lost_clean_ssd_costs_no_data() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        volume.replace_policy(Box::<WriteBackCache>::default());
        scribble(&volume, &mut expected, 5).await;
        seen(&volume).await;
        while volume.status().extra_blocks.1 > 0 {
            world.sleep(Nanos::from_secs(1)).await;
        }
        volume.flush().await.unwrap();
        // Until the table of dirty spans has forgotten the written-back spans.
        world.sleep(Nanos::from_secs(30)).await;
        assert!(volume.status().extra_blocks.0 > 0);
        let killed = copies_of(&world, &disks).await;
        volume.close().await.unwrap();
        for disks in [disks, killed] {
            let (volume, recovery) = try_open(&world, &disks[1..], |_| ()).await.unwrap();
            assert_eq!((recovery.older, recovery.lost), (Vec::new(), Vec::new()));
            assert!(seen(&volume).await == expected);
            scribble(&volume, &mut expected.clone(), 6).await;
            volume.close().await.unwrap();
            // The SSD returns, and is excluded: its content is older.
            let volume = open(&world, &disks).await;
            assert_eq!(volume.status().devices[0].state, DeviceState::Missing);
            volume.remove_device(SSD).await.unwrap();
            until_removed(&world, &volume).await;
            volume.close().await.unwrap();
        }
    });
}

/// The disk and the record after an interrupted opening. The opening was told to exclude the SSD, and was
/// killed as soon as the record said so.
async fn interrupted_without_ssd(world: &World, disks: &[Disk]) -> Vec<Disk> {
    let left = copies_of(world, &disks[1..]).await;
    let (rt, opened) = (world.clone(), left.clone());
    world.spawn(async move {
        try_open(&rt, &opened, |options| options.distrust = vec![SSD]).await.expect("the SSD is given up");
    });
    loop {
        let now = copies_of(world, &left).await;
        let header = identify(world, Rc::new(now[1].fork(world)), "it").await.expect("a superblock is whole");
        if header.phase == Phase::Opening {
            return now;
        }
        world.sleep(Nanos::from_micros(100)).await;
    }
}

#[test]
pub fn an_ssd_that_is_lost_while_dirty_costs_the_ranges_that_are_named_and_no_others() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        dirty(&world, &volume);
        // The last MiB stays as it is.
        let arena = Arena::new(MIB);
        for at in [KIB * 3, KIB * 200, MIB, MIB * 3 + KIB * 7] {
            volume.write(at, &filled(&arena, KIB * 9, 0xa5), Durability::Fua).await.unwrap();
            expected[at.as_usize()..][..9 << 10].fill(0xa5);
        }
        let killed = copies_of(&world, &disks).await;
        let mut is_any_dirty = volume.status().extra_blocks.1 > 0;
        volume.close().await.unwrap();
        is_any_dirty &= volume.status().extra_blocks.1 > 0;
        assert!(is_any_dirty);
        for disks in [disks, killed] {
            let error = refused(try_open(&world, &disks[1..], |_| ()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded);
            // Nothing was changed: with the SSD all data is there.
            let again = copies_of(&world, &disks).await;
            assert!(seen(&open(&world, &again).await).await == expected);
            // The opening that excludes the SSD is interrupted: the next opening reports the same loss.
            let (_, after) =
                try_open(&world, &interrupted_without_ssd(&world, &disks).await, |_| ()).await.unwrap();
            let left = copies_of(&world, &disks[1..]).await;
            let (volume, recovery) =
                try_open(&world, &disks[1..], |options| options.distrust = vec![SSD]).await.unwrap();
            assert_eq!(after.older, recovery.older);
            // Another daemon may have the volume open: the opening begins again after a wait, and reports no
            // less.
            let elsewhere = copies_of(&world, &left).await;
            let (_, after) = try_open(&world, &elsewhere, |options| {
                (options.distrust, options.noted) = (vec![SSD], Some(Noted::default()));
            })
            .await
            .unwrap();
            assert_eq!(after.older, recovery.older);
            let is_named = |at: usize| {
                recovery
                    .older
                    .iter()
                    .any(|range| (range.start.as_usize()..range.end.as_usize()).contains(&at))
            };
            let now = seen(&volume).await;
            let mut differing = (0..now.len()).filter(|&at| now[at] != expected[at]).peekable();
            assert!(differing.peek().is_some(), "something was dirty");
            assert_eq!(differing.find(|&at| !is_named(at)), None);
            let named: u64 = recovery.older.iter().map(|range| (range.end - range.start).0).sum();
            assert!(named <= 5 * (128 << 10), "{:?}", recovery.older);
            volume.close().await.unwrap();
            let (_, recovery) = try_open(&world, &disks[1..], |_| ()).await.unwrap();
            assert_eq!(recovery.older, Vec::new());
        }
    });
}

#[test]
fn cache_of_externally_changed_disk_is_dropped_or_refused() {
    run(async |world| {
        for is_dirty in [false, true] {
            let disks = disks(&world, SIZE);
            let mut expected = raw(&disks[DISK]).await;
            let volume = make(&world, &disks).await;
            match is_dirty {
                true => dirty(&world, &volume),
                false => volume.replace_policy(Box::new(Chaos::new(world.fork_rng()).caching())),
            }
            if is_dirty {
                scribble(&volume, &mut expected, 8).await;
            }
            seen(&volume).await;
            volume.close().await.unwrap();
            let changed = filled(&Arena::new(MIB), KIB * 4, 0x77);
            disks[DISK].write(KIB * 512, &changed).await.unwrap();
            disks[DISK].flush().await.unwrap();
            let opened = try_open(&world, &disks, |_| ()).await;
            if !is_dirty {
                let (volume, recovery) = opened.unwrap();
                assert!(recovery.changed_elsewhere && recovery.extras_forgotten > 0);
                expected[512 << 10..][..4096].fill(0x77);
                assert!(seen(&volume).await == expected);
                continue;
            }
            assert_eq!(refused(opened).kind(), ErrorKind::Degraded);
            let force = |options: &mut OpenOptions| options.adopted.as_mut().unwrap().force = true;
            let forced = copies_of(&world, &disks).await;
            let (volume, recovery) = try_open(&world, &forced, force).await.unwrap();
            assert!(recovery.changed_elsewhere && volume.status().extra_blocks.1 > 0);
            let distrust = |options: &mut OpenOptions| options.distrust = vec![SSD];
            let (volume, recovery) = try_open(&world, &disks, distrust).await.unwrap();
            assert!(recovery.changed_elsewhere && !recovery.older.is_empty());
            assert!(seen(&volume).await == raw(&disks[DISK]).await);
        }
    });
}

#[test]
fn wrong_resized_or_missing_adopted_disk_is_refused() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        make(&world, &disks).await.close().await.unwrap();
        let other = |options: &mut OpenOptions| options.adopted.as_mut().unwrap().identity = Uuid([8; 16]);
        assert_eq!(refused(try_open(&world, &disks, other).await).kind(), ErrorKind::Invalid);
        for size in [SIZE - Bytes(512), SIZE + Bytes(512)] {
            let mut resized = disks.clone();
            resized[DISK] = Disk::new(&world, DiskOptions::hdd(size).with_blank(Blank::Garbage(7)));
            assert_eq!(refused(try_open(&world, &resized, |_| ()).await).kind(), ErrorKind::Invalid);
        }
        // Without the disk there is no volume, and the disk cannot be excluded.
        let without = [disks[0].clone(), disks[2].clone()];
        assert_eq!(refused(try_open(&world, &without, |_| ()).await).kind(), ErrorKind::Degraded);
        let distrust = |options: &mut OpenOptions| options.distrust = vec![DeviceId(1)];
        assert_eq!(refused(try_open(&world, &disks, distrust).await).kind(), ErrorKind::Invalid);
        // Without the record the volume opens if the record is excluded, and no block becomes dirty.
        assert_eq!(refused(try_open(&world, &disks[..2], |_| ()).await).kind(), ErrorKind::Degraded);
        let distrust = |options: &mut OpenOptions| options.distrust = vec![DeviceId(2)];
        let (volume, _) = try_open(&world, &disks[..2], distrust).await.unwrap();
        dirty(&world, &volume);
        let mut expected = raw(&disks[DISK]).await;
        scribble(&volume, &mut expected, 9).await;
        assert_eq!(volume.status().extra_blocks.1, 0);
        assert!(seen(&volume).await == expected);
    });
}

#[test]
fn unsuitable_options_for_adopted_disk_are_refused() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let adoption = options().adoption.unwrap();
        let wrong = [
            CreateOptions { policy: "wardrop".to_owned(), ..options() },
            CreateOptions { copies: 2, ..options() },
            CreateOptions { size: Some(MIB), ..options() },
            CreateOptions { adoption: Some(Adoption { record: 0, ..adoption }), ..options() },
            CreateOptions { adoption: Some(Adoption { record: DISK, ..adoption }), ..options() },
        ];
        for options in wrong {
            assert_eq!(
                refused(create(&sound(&disks), &options).await).kind(),
                ErrorKind::Invalid,
                "{options:?}"
            );
        }
        let error = refused(
            create(&sound(&disks), &CreateOptions { policy: "stripe".to_owned(), ..options() }).await,
        );
        assert!(error.to_string().contains("hdd-only"), "{error}");
        let volume = make(&world, &disks).await;
        assert_eq!(refused(volume.set_policy("equi").await).kind(), ErrorKind::Invalid);
        volume.set_policy("hdd-only").await.unwrap();
    });
}

#[test]
fn zeros_are_written_and_a_discard_reaches_the_disk() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        dirty(&world, &volume);
        scribble(&volume, &mut expected, 11).await;
        for (at, len) in [(KIB * 100 + Bytes(7), KIB * 300), (SIZE - KIB * 9, KIB * 9)] {
            for zeroing in [Zeroing::MayDiscard, Zeroing::KeepAllocated] {
                volume.write_zeroes(at, len, zeroing, Durability::Fua).await.unwrap();
            }
            expected[at.as_usize()..(at + len).as_usize()].fill(0);
        }
        assert!(seen(&volume).await == expected);
        let range = MIB * 2 + KIB..MIB * 3 + KIB;
        volume.discard(range.start, MIB).await.unwrap();
        volume.flush().await.unwrap();
        // Parts of blocks at the ends of the range stay; the rest reads as on the disk.
        let (now, on_disk) = (seen(&volume).await, raw(&disks[DISK]).await);
        for at in 0..now.len() {
            let is_inside = (MIB * 2 + KIB * 4..MIB * 3).contains(&Bytes::of_len(at));
            let wanted = if is_inside { on_disk[at] } else { expected[at] };
            assert_eq!(now[at], wanted, "byte {at}");
        }
        volume.audit().await.unwrap();
    });
}
