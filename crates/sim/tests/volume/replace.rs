//! A new device in the place of a lost device.

use crate::rig::{Bench, bench, bench_in, filled, holds, is_all, make, open, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{
    CreateOptions, Durability, ErrorKind, Export, OpenOptions, Replacement, Volume, check, replace,
};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::Runtime;
use braid_sim::{Blank, Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

fn mirror(layouts: &[Layout]) -> CreateOptions {
    CreateOptions { copies: 2, layouts: layouts.to_vec(), ..options(1) }
}

pub fn replacement(device: u16) -> Replacement {
    Replacement {
        device: DeviceId(device),
        name: "the new disk".to_owned(),
        identity: Uuid([7; 16]),
        model: String::new(),
        outdated: Vec::new(),
        overwrite: true,
    }
}

/// A new device of the same class as the device in `place`, with other content.
fn new_disk(world: &World, place: usize, size: Bytes) -> Disk {
    let options = if place == 0 { DiskOptions::ssd(size) } else { DiskOptions::hdd(size) };
    Disk::new(world, options.with_blank(Blank::Garbage(99)))
}

fn sound(world: &World, disk: Disk) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

fn new_device(bench: &Bench, place: usize, size: Bytes) -> Faulty<Disk> {
    sound(&bench.world, new_disk(&bench.world, place, size))
}

/// After a shutdown and after a crash, whichever device is lost, whatever its layout: once the new device
/// has been rebuilt, it serves alone.
#[test]
fn replacement_device_is_rebuilt_and_serves_alone() {
    for (place, layout, closes) in
        [(0, Layout::Head, true), (1, Layout::Head, false), (1, Layout::Tail, true), (0, Layout::Tail, false)]
    {
        let bench = bench(1);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        // Slightly larger than the old device.
        let new = new_device(&bench, place, MIB * 8 + KIB * 100);
        let disks = bench.disks.clone();
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &mirror(&[layout, layout])).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.write(MIB * 2, &filled(&arena, KIB * 700, 2), Durability::Fua).await.unwrap();
            if closes {
                volume.close().await.unwrap();
            }
            // The disks with all writes of the software at its kill.
            let all: Vec<_> = disks.iter().map(|disk| sound(&world, disk.fork(&world))).collect();
            let rest = vec![all[1 - place].clone()];
            let names = ["the survivor".to_owned()];
            replace(&world, rest.clone(), &names, &new, &replacement(place as u16)).await.unwrap();
            // The old device is no longer a member of the volume.
            let error = refused(open(world.clone(), all.clone()).await);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let both = vec![rest[0].clone(), new.clone()];
            let volume = open(world.clone(), both.clone()).await.unwrap();
            assert_eq!(volume.status().devices[place].state, DeviceState::Returning);
            volume.write(MIB, &filled(&arena, MIB, 3), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(volume.status().devices[place].state, DeviceState::Active);
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world.clone(), vec![new]).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
            assert!(holds(&volume, &arena, MIB, MIB, 3).await.unwrap());
            assert!(holds(&volume, &arena, MIB * 2, KIB * 700, 2).await.unwrap());
        });
    }
}

/// The SSD alone holds data that `pass` has not copied yet: a new device must not make the loss final
/// without a request.
#[test]
fn device_with_sole_copies_is_replaced_only_after_exclusion() {
    let bench = bench(2);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let new = new_device(&bench, 0, MIB * 8);
    let disks = bench.disks.clone();
    bench.run(async move {
        let options =
            CreateOptions { policy: "pass,max-lag=4MiB,window=4MiB,idle=1h".to_owned(), ..mirror(&[]) };
        let volume = make(world.clone(), all.clone(), &options).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let rest = vec![sound(&world, disks[1].fork(&world))];
        let names = ["the disk".to_owned()];
        let error = refused(replace(&world, rest.clone(), &names, &new, &replacement(0)).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        let report = check(&world, rest.clone(), &names, None).await.unwrap();
        let only: Vec<u32> = report.only_on_missing.iter().map(|(_, extent)| extent.0).collect();
        assert_eq!(only, (0..8).collect::<Vec<_>>(), "of 128 KiB each");
        let given_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
        let (volume, _) = crate::rig::open_with(world.clone(), rest.clone(), given_up).await.unwrap();
        volume.close().await.unwrap();
        replace(&world, rest.clone(), &names, &new, &replacement(0)).await.unwrap();
        let volume = open(world.clone(), vec![rest[0].clone(), new]).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(60)).await;
        assert_eq!(volume.status().devices[0].state, DeviceState::Active);
        volume.audit().await.unwrap();
    });
}

#[test]
fn unfit_replacement_device_is_refused_without_changes() {
    let bench = bench(3);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (small, other_class) = (new_device(&bench, 0, MIB * 7), new_device(&bench, 1, MIB * 8));
    let full = new_device(&bench, 0, MIB * 8);
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &mirror(&[])).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let (rest, names) = (vec![all[1].clone()], ["the survivor".to_owned()]);
        let careful = Replacement { overwrite: false, ..replacement(0) };
        for (new, how) in [(small, replacement(0)), (other_class, replacement(0)), (full.clone(), careful)] {
            let error = refused(replace(&world, rest.clone(), &names, &new, &how).await);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        for wrong in [1, 2] {
            let error = refused(replace(&world, rest.clone(), &names, &full, &replacement(wrong)).await);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        let volume = open(world, all).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// With one copy, a new device has no source for its copies.
#[test]
fn replacement_is_refused_with_one_copy() {
    let bench = bench(4);
    let (world, all) = (bench.world.clone(), bench.devices());
    let new = new_device(&bench, 0, MIB * 8);
    bench.run(async move {
        make(world.clone(), all.clone(), &options(1)).await.close().await.unwrap();
        let names = ["the survivor".to_owned()];
        let error = refused(replace(&world, vec![all[1].clone()], &names, &new, &replacement(0)).await);
        assert!(matches!(error.kind(), ErrorKind::Degraded | ErrorKind::Unsupported), "{error}");
    });
}

/// A power cut at any moment: the volume opens without the new device and with the new device, and the
/// replacement can be repeated.
#[test]
fn interrupted_replacement_can_be_repeated() {
    for cut in (1..90).step_by(2) {
        let (place, seed) = (cut as usize / 2 % 2, cut);
        let bench = bench_in(World::new(seed));
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        bench.run(async move {
            let volume = make(world, all, &mirror(&[])).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
        });
        let mut rng = Rng::new(seed);
        let world = World::new(rng.next_u64());
        let survivor = bench.disks[1 - place].restart(&world);
        let new = new_disk(&world, place, MIB * 8);
        world.power().cut_at(cut);
        let (rt, rest, target) = (world.clone(), survivor.clone(), new.clone());
        let done = world.block_on_until_cut(async move {
            replace(&rt, vec![rest], &["the survivor".to_owned()], &target, &replacement(place as u16)).await
        });
        assert!(done.is_none_or(|done| done.is_ok()));
        world.halt();
        for disk in [&survivor, &new] {
            disk.power_cut(&mut rng);
        }
        for with_new in [false, true] {
            let world = World::new(rng.next_u64());
            let (survivor, new) = (survivor.restart(&world), new.restart(&world));
            let rt = world.clone();
            world.block_on(async move {
                let names = ["the survivor".to_owned(), "the new disk".to_owned()];
                // Without a superblock of its own, the new device belongs to no volume yet.
                let belongs = braid_engine::identify(&rt, std::rc::Rc::new(new.clone()), "it").await.is_ok();
                let given = match with_new && belongs {
                    true => vec![survivor.clone(), new.clone()],
                    false => vec![survivor.clone()],
                };
                let options = OpenOptions::new(names[..given.len()].to_vec());
                let (volume, _) = Volume::open(rt.clone(), given, options).await.unwrap();
                let arena = braid_runtime::Arena::new(MIB * 2);
                let buf = arena.alloc(MIB).await;
                volume.read(Bytes::ZERO, &buf).await.unwrap();
                assert!(is_all(&buf, 1), "cut {cut}");
                volume.close().await.unwrap();
                let again = Replacement { identity: Uuid([8; 16]), ..replacement(place as u16) };
                replace(&rt, vec![survivor.clone()], &names[..1], &new, &again).await.unwrap();
                let options = OpenOptions::new(names.to_vec());
                let (volume, _) = Volume::open(rt.clone(), vec![survivor, new], options).await.unwrap();
                rt.sleep(Nanos::from_secs(60)).await;
                assert_eq!(volume.status().devices[place].state, DeviceState::Active, "cut {cut}");
                volume.audit().await.unwrap();
                volume.close().await.unwrap();
            });
            world.halt();
        }
    }
}

/// Taken out of use by hand: the other device continues at once. A device with an only copy is not taken.
#[test]
fn device_can_be_failed_only_without_sole_copies() {
    let bench = bench(5);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let disks = bench.disks.clone();
    bench.run(async move {
        let policy = "pass,max-lag=4MiB,window=4MiB,idle=1s".to_owned();
        let volume = make(world.clone(), all.clone(), &CreateOptions { policy, ..mirror(&[]) }).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let error = refused(volume.fail_device(DeviceId(0)).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "the disk lacks it: {error}");
        assert!(volume.status().devices.iter().all(|device| device.state == DeviceState::Active));
        assert_eq!(refused(volume.fail_device(DeviceId(7)).await).kind(), ErrorKind::Invalid);
        world.sleep(Nanos::from_secs(10)).await;
        volume.fail_device(DeviceId(0)).await.unwrap();
        assert_eq!(volume.status().devices[0].state, DeviceState::Failed);
        volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
        assert_eq!(refused(volume.fail_device(DeviceId(0)).await).kind(), ErrorKind::Invalid);
        // The software is killed: the other device knows that it is alone.
        let killed: Vec<_> = disks.iter().map(|disk| sound(&world, disk.fork(&world))).collect();
        let alone = open(world.clone(), vec![sound(&world, disks[1].fork(&world))]).await.unwrap();
        assert!(holds(&alone, &arena, MIB, MIB, 2).await.unwrap());
        let both = open(world.clone(), killed).await.unwrap();
        assert_eq!(both.status().devices[0].state, DeviceState::Returning);
        assert!(holds(&both, &arena, MIB, MIB, 2).await.unwrap());
        world.sleep(Nanos::from_secs(60)).await;
        assert_eq!(both.status().devices[0].state, DeviceState::Active);
        both.audit().await.unwrap();
    });
}

/// A lost device was to be removed, but was replaced instead. The new device was taken for the old, stayed
/// out of use, and was removed.
#[test]
fn replacement_of_device_in_removal_is_used() {
    let bench = bench(6);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    let mut all = bench.devices();
    all.push(sound(&world, Disk::new(&world, DiskOptions::hdd(MIB * 16))));
    let new = sound(&world, Disk::new(&world, DiskOptions::hdd(MIB * 16)));
    bench.run(async move {
        let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(6) };
        let volume = make(world.clone(), all.clone(), &mirror).await;
        for at in [Bytes::ZERO, MIB] {
            volume.write(at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        volume.fail_device(DeviceId(2)).await.unwrap();
        volume.remove_device(DeviceId(2)).await.unwrap();
        volume.close().await.unwrap();
        all.pop();
        let names = ["one".to_owned(), "another".to_owned()];
        let made = replace(&world, all.clone(), &names, &new, &replacement(2)).await.unwrap();
        assert_eq!(made.devices.len(), 3);
        all.push(new);
        let volume = open(world.clone(), all).await.unwrap();
        world.sleep(Nanos::from_secs(60)).await;
        assert!(volume.status().devices.iter().all(|device| device.state == DeviceState::Active));
        assert_eq!(volume.status().devices.len(), 3);
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
}
