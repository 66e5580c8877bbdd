//! The SSD of a volume with one copy of everything is lost. The loss of a cache without dirty blocks costs
//! nothing.

use crate::epochs::sound;
use crate::rig::cached::Cache;
use crate::rig::life::{Oracle, disk, work};
use crate::rig::{Rig, filled, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, check, identify};
use braid_format::superblock::{DeviceState, Phase};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

const SSD: DeviceId = DeviceId(0);

async fn made(world: &World, policy: &str) -> (Vec<Disk>, Rig) {
    let disks = vec![disk(world, true), disk(world, false)];
    let how = CreateOptions { policy: policy.to_owned(), ..options(50) };
    let devices = disks.iter().map(|disk| sound(disk, world)).collect();
    let volume = make(world.clone(), devices, &how).await;
    (disks, volume)
}

pub fn run(seed: u64, test: impl AsyncFnOnce(World) + 'static) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move { test(rt).await });
    world.halt();
}

#[test]
fn lost_clean_cache_ssd_is_dispensable_and_removable() {
    for (seed, policy, closes) in [
        (1, "cache,mode=write-through", true),
        (2, "cache,mode=write-through", false),
        (3, "cache,mode=write-back", true),
        (4, "hystor", true),
    ] {
        run(seed, async move |world| {
            let (disks, volume) = made(&world, policy).await;
            let (oracle, stop) = (Oracle::new(), Rc::new(Cell::new(false)));
            world.spawn(work(world.clone(), volume.clone(), oracle.clone(), Rng::new(seed), stop.clone()));
            world.sleep(Nanos::from_secs(2)).await;
            stop.set(true);
            world.sleep(Nanos::from_secs(1)).await;
            volume.set_policy("cache,mode=write-through").await.unwrap();
            while volume.status().extra_blocks.1 > 0 {
                world.sleep(Nanos::from_secs(1)).await;
            }
            volume.flush().await.unwrap();
            oracle.flushed();
            if closes {
                volume.close().await.unwrap();
            }
            let left = disks[1].fork(&world);
            drop(volume);
            let opened = open(world.clone(), vec![sound(&left, &world)]).await;
            if !closes {
                // The SSD had the journal, too.
                assert_eq!(refused(opened).kind(), ErrorKind::Degraded);
                return;
            }
            let volume = opened.unwrap();
            let arena = Arena::new(MIB);
            oracle.check(&volume, &arena, "without the SSD").await;
            assert_eq!(volume.status().devices[0].state, DeviceState::Missing);
            volume.remove_device(SSD).await.unwrap();
            while volume.status().devices[0].state != DeviceState::Removed {
                world.sleep(Nanos::from_secs(1)).await;
            }
            volume.close().await.unwrap();
            let volume = open(world.clone(), vec![sound(&left, &world)]).await.unwrap();
            oracle.check(&volume, &arena, "once it has left").await;
            volume.audit().await.unwrap();
        });
    }
}

/// Data on the SSD alone is not lost silently: the volume is refused. Once the SSD is excluded, possibly
/// older ranges are named.
#[test]
fn an_ssd_with_dirty_blocks_is_missed() {
    for closes in [true, false] {
        run(10, async move |world| {
            let (disks, volume) = made(&world, "cache,mode=write-back").await;
            let arena = Arena::new(MIB);
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.replace_policy(Box::new(Cache { writes: true }));
            volume.write(KIB * 64, &filled(&arena, KIB * 64, 2), Durability::Fua).await.unwrap();
            assert!(volume.status().extra_blocks.1 > 0);
            if closes {
                volume.close().await.unwrap();
            }
            let left = vec![sound(&disks[1].fork(&world), &world)];
            let names = ["the disk".to_owned()];
            let report = check(&world, left.clone(), &names, None).await.unwrap();
            assert_eq!(report.older, [(SSD, Bytes::ZERO..MIB * 4)]);
            let error = refused(open(world.clone(), left.clone()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            let give_up = |o: &mut OpenOptions| o.distrust = vec![SSD];
            // An interrupted opening without the SSD is followed by an opening that names the same ranges.
            let begun = interrupted_without(&world, &disks[1].fork(&world)).await;
            let (volume, recovery) = open_with(world.clone(), vec![begun], |_| ()).await.unwrap();
            assert_eq!(recovery.older, vec![Bytes::ZERO..MIB * 4]);
            volume.close().await.unwrap();
            let (volume, recovery) = open_with(world.clone(), left.clone(), give_up).await.unwrap();
            assert_eq!(recovery.older, vec![Bytes::ZERO..MIB * 4]);
            volume.close().await.unwrap();
            // The ranges are named once, and the content of the SSD does not count any more.
            let (_, recovery) = open_with(world.clone(), left, |_| ()).await.unwrap();
            assert_eq!(recovery.older, Vec::new());
        });
    }
}

/// The disk after an interrupted opening. The opening was told to exclude the SSD, and was killed as soon as
/// the disk had recorded the exclusion.
async fn interrupted_without(world: &World, disk: &Disk) -> Faulty<Disk> {
    let (rt, device) = (world.clone(), sound(disk, world));
    world.spawn(async move {
        let give_up = |o: &mut OpenOptions| o.distrust = vec![SSD];
        open_with(rt, vec![device], give_up).await.expect("the SSD is given up");
    });
    loop {
        let left = disk.store();
        let left = sound(&left.attach(world), world);
        let header = identify(world, Rc::new(left.clone()), "it").await.expect("a superblock is whole");
        if header.phase == Phase::Opening {
            return left;
        }
        world.sleep(Nanos::from_micros(100)).await;
    }
}

/// The same with an SSD without the journal, lost after a crash: no other sign shows that blocks on the SSD
/// were newer.
#[test]
fn a_second_ssd_with_dirty_blocks_is_missed() {
    run(12, async |world| {
        let disks = [disk(&world, true), disk(&world, false), disk(&world, true)];
        let how = CreateOptions { policy: "cache,mode=write-back".to_owned(), ..options(51) };
        let devices = |of: &[usize]| of.iter().map(|&i| sound(&disks[i], &world)).collect::<Vec<_>>();
        let volume = make(world.clone(), devices(&[0, 1, 2]), &how).await;
        let arena = Arena::new(MIB);
        for at in (0..4 * 256).step_by(3).map(|block| KIB * 4 * block) {
            volume.write(at, &filled(&arena, KIB * 4, 2), Durability::Fua).await.unwrap();
        }
        assert!(volume.status().extra_blocks.1 > 0);
        let killed: Vec<_> = [0, 1].map(|i: usize| sound(&disks[i].fork(&world), &world)).into();
        assert_eq!(refused(open(world.clone(), killed.clone()).await).kind(), ErrorKind::Degraded);
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(2)];
        let (_, recovery) = open_with(world.clone(), killed, give_up).await.unwrap();
        assert_eq!(recovery.older, vec![Bytes::ZERO..MIB * 4]);
    });
}

/// A disk with the journal is lost after a crash, and the first opening without the disk is interrupted.
#[test]
fn a_lost_journal_is_told_of_though_an_opening_was_interrupted() {
    run(13, async |world| {
        let disks = [disk(&world, false), disk(&world, false)];
        let how = CreateOptions { policy: "stripe".to_owned(), ..options(52) };
        let devices = disks.iter().map(|disk| sound(disk, &world)).collect();
        let volume = make(world.clone(), devices, &how).await;
        volume.write(Bytes::ZERO, &filled(&Arena::new(MIB), MIB, 1), Durability::Fua).await.unwrap();
        let begun = interrupted_without(&world, &disks[1].fork(&world)).await;
        let (volume, recovery) = open_with(world.clone(), vec![begun], |_| ()).await.unwrap();
        assert_eq!(recovery.older, vec![Bytes::ZERO..MIB * 4]);
        volume.close().await.unwrap();
    });
}

#[test]
fn an_ssd_with_homes_is_missed() {
    run(11, async |world| {
        let (disks, volume) = made(&world, "ssd-only").await;
        let arena = Arena::new(MIB);
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let error = refused(open(world.clone(), vec![sound(&disks[1], &world)]).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
    });
}

/// At any instant of a shutdown: a disk that opens without the SSD has all flushed data.
#[test]
fn disk_opened_without_cache_has_flushed_data() {
    let mut outcomes = [0, 0];
    for (seed, writes) in [(0, true), (1, false), (2, true), (3, false)] {
        let world = World::new(60 + seed);
        let rt = world.clone();
        let found = world.block_on(async move {
            let world = rt;
            let mode = if writes { "write-back" } else { "write-through" };
            let (disks, volume) = made(&world, &format!("cache,mode={mode}")).await;
            let (oracle, stop) = (Oracle::new(), Rc::new(Cell::new(false)));
            world.spawn(work(world.clone(), volume.clone(), oracle.clone(), Rng::new(seed), stop.clone()));
            world.sleep(Nanos::from_secs(1)).await;
            if writes {
                volume.replace_policy(Box::new(Cache { writes }));
            }
            world.sleep(Nanos::from_secs(1)).await;
            stop.set(true);
            world.sleep(Nanos::from_millis(500)).await;
            let is_closed = Rc::new(Cell::new(false));
            let (closing, closed) = (volume.clone(), is_closed.clone());
            world.spawn(async move {
                closing.close().await.unwrap();
                closed.set(true);
            });
            let (mut rng, arena, mut found) = (world.fork_rng(), Arena::new(MIB), [0, 0]);
            let mut is_last = false;
            while !is_last {
                is_last = is_closed.get();
                let left = disks[1].fork(&world);
                left.power_cut(&mut rng);
                let left = left.restart(&world);
                let opened = open(world.clone(), vec![sound(&left, &world)]).await;
                found[usize::from(opened.is_ok())] += 1;
                if let Ok(volume) = opened {
                    oracle.check(&volume, &arena, "without the SSD").await;
                }
                world.sleep(Nanos::from_micros(200)).await;
            }
            found
        });
        world.halt();
        outcomes = [outcomes[0] + found[0], outcomes[1] + found[1]];
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}
