//! Halves of a mirror that were used apart: refused until one half is excluded, and only until then.

use crate::deadlines::no_faults;
use crate::openings::{made_mirror, mentions, parts};
use crate::rig::{bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Error, ErrorKind, Export, identify};
use braid_format::superblock::{DeviceState, Header, Phase};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faulty, StoredDisk, World};
use std::cell::Cell;
use std::rc::Rc;

/// Each half was opened without the other and written: no rule can tell which bytes are right.
#[test]
fn mirror_halves_used_apart_are_refused_until_exclusion() {
    for keep in 0..2u16 {
        let bench = bench(6);
        let (world, arena) = parts(&bench);
        let (both, all) = (parts(&bench), bench.devices());
        bench.run(async move {
            made_mirror(&both, &all).await;
            for (i, one) in all.iter().enumerate() {
                let volume = open(world.clone(), vec![one.clone()]).await.unwrap();
                volume.write(MIB, &filled(&arena, MIB, 10 + i as u8), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
            }
            let error = refused(open(world.clone(), all.clone()).await);
            assert!(error.kind() == ErrorKind::Degraded && mentions(&error, &["device d"]), "{error}");
            let give_up = DeviceId(1 - keep);
            let (volume, _) =
                open_with(world.clone(), all.clone(), |o| o.distrust = vec![give_up]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 10 + keep as u8).await.unwrap());
            world.sleep(braid_base::Nanos::from_secs(60)).await;
            assert!(volume.status().devices.iter().all(|d| d.state == DeviceState::Active));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world.clone(), vec![all[usize::from(give_up.0)].clone()]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 10 + keep as u8).await.unwrap());
        });
    }
}

/// A half was used alone, and was then excluded in favour of the older half. Until its superblock was
/// written too, the excluded half was the newest. After a power cut meanwhile, the older half was
/// resynchronised instead.
#[test]
fn power_cut_during_exclusion_does_not_reverse_choice() {
    for (keep, apart) in [(0, false), (1, false), (0, true), (1, true)] {
        let bench = bench(17);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        let given_up = 1 - keep;
        let used_alone = if apart { vec![keep, given_up, given_up, given_up] } else { vec![given_up; 3] };
        let kept = if apart { 10 + keep as u8 } else { 2 };
        bench.run(async move {
            made_mirror(&both, &all).await;
            for i in used_alone {
                let volume = open(world.clone(), vec![all[i].clone()]).await.unwrap();
                volume.write(MIB, &filled(&arena, MIB, 10 + i as u8), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
            }
            let before = header_of(&world, &disks[keep]).await.sequence;
            let (is_open, rt) = (Rc::new(Cell::new(false)), world.clone());
            let opened = is_open.clone();
            world.spawn(async move {
                let distrust = vec![DeviceId(given_up as u16)];
                let (volume, _) = open_with(rt, all, |o| o.distrust = distrust).await.unwrap();
                opened.set(true);
                volume.close().await.unwrap();
            });
            let mut cuts = Vec::new();
            while !is_open.get() {
                world.sleep(Nanos::from_micros(400)).await;
                let mut left = [disks[0].store(), disks[1].store()];
                left.iter_mut().for_each(StoredDisk::kill);
                cuts.push(left);
            }
            let mut is_chosen = false;
            for cut in cuts {
                let left = cut.iter().map(|disk| disk.attach(&world)).collect::<Vec<_>>();
                // From then on the kept half knows of the choice.
                let is_told = header_of(&world, &left[keep]).await.sequence > before;
                let left = left.into_iter().map(|disk| attached(&world, disk)).collect();
                match open(world.clone(), left).await {
                    Ok(volume) => {
                        is_chosen |= holds(&volume, &arena, MIB, MIB, kept).await.unwrap();
                        let has_other = holds(&volume, &arena, MIB, MIB, 10 + given_up as u8).await.unwrap();
                        assert!(is_chosen || has_other && !apart);
                        assert!(!has_other || !is_chosen && !is_told, "the choice was forgotten");
                        volume.close().await.unwrap();
                    }
                    Err(error) => assert!(error.kind() == ErrorKind::Degraded && !is_told, "{error}"),
                }
            }
            assert!(is_chosen);
        });
    }
}

/// An opening of one half alone was interrupted before writing any data, and the other half was used alone.
/// The first half was refused, as if both halves had been written.
#[test]
fn half_interrupted_while_opening_alone_is_resynced() {
    for i in 0..2 {
        let bench = bench(18);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let (alone, other) = (disks[i].clone(), disks[1 - i].clone());
            let (is_open, rt) = (Rc::new(Cell::new(false)), world.clone());
            let opened = is_open.clone();
            let device = Faulty::new(alone.clone(), &no_faults(&world));
            world.spawn(async move {
                let volume = open(rt, vec![device]).await.unwrap();
                opened.set(true);
                volume.close().await.unwrap();
            });
            let (mut rng, mut both_kinds, mut cuts) = (world.fork_rng(), [0, 0], Vec::new());
            while !is_open.get() {
                world.sleep(Nanos::from_micros(400)).await;
                cuts.push(alone.store());
            }
            for mut cut in cuts {
                cut.power_cut(&mut rng);
                let again = |disk: Disk| Faulty::new(disk, &no_faults(&world));
                let (first, second) = (again(cut.attach(&world)), again(other.fork(&world)));
                let header = identify(&world, Rc::new(first.clone()), "it").await.unwrap();
                let volume = open(world.clone(), vec![second.clone()]).await.unwrap();
                volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
                let mirror = open(world.clone(), vec![first, second]).await;
                if header.phase == Phase::Open {
                    both_kinds[0] += 1;
                    assert_eq!(refused(mirror).kind(), ErrorKind::Degraded);
                    continue;
                }
                both_kinds[1] += usize::from(header.phase == Phase::Opening);
                let volume = mirror.unwrap();
                assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap());
                world.sleep(Nanos::from_secs(60)).await;
                volume.audit().await.unwrap();
                volume.close().await.unwrap();
            }
            assert!(both_kinds[0] > 0 && both_kinds[1] > 0, "{both_kinds:?}");
        });
    }
}

/// A device that is away while the others continue does not record its own absence.
fn away() -> FaultPlan {
    FaultPlan { vanished: true, ..FaultPlan::default() }
}

/// One half was excluded while the volume was open. The next start found only this half, and used the half
/// alone; a later start found both. The other half was of the same opening as at its last agreement, so it
/// was taken for stale. Data written to the other half alone since then was lost in part, or read from that
/// half only.
#[test]
fn halves_used_apart_after_shared_opening_are_refused() {
    for (i, closed) in [(0, true), (1, true), (0, false), (1, false)] {
        let bench = bench(9);
        let (world, arena) = parts(&bench);
        let (all, faults) = (bench.devices(), bench.faults.clone());
        bench.run(async move {
            let mirror = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(9) };
            let volume = make(world.clone(), all.clone(), &mirror).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            faults[usize::from(i)].set(away());
            volume.fail_device(DeviceId(i)).await.unwrap();
            let (given_up, alone) = (all[usize::from(i)].clone(), all[1 - usize::from(i)].clone());
            volume.write(KIB * 512, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_millis(500)).await;
            if closed {
                volume.close().await.unwrap();
            }
            drop(volume);
            faults[usize::from(i)].set(FaultPlan::default());
            let volume = open(world.clone(), vec![given_up]).await.unwrap();
            volume.write(MIB * 3, &filled(&arena, KIB * 4, 3), Durability::Fua).await.unwrap();
            let back = refused(volume.return_device(alone, "it").await);
            assert_eq!(back.kind(), ErrorKind::Degraded, "{back}");
            volume.close().await.unwrap();
            let error = refused(open(world.clone(), all.clone()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            let lost = DeviceId(1 - i);
            let (volume, _) = open_with(world.clone(), all, |o| o.distrust = vec![lost]).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            assert!(volume.status().devices.iter().all(|d| d.state == DeviceState::Active));
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
            volume.audit().await.unwrap();
        });
    }
}

/// Two openings of one half alone were interrupted in a row, each with an opening number of its own; then
/// the other half was used alone. The first half had no data of these openings, and was refused as if it had
/// data. If the first half had the highest number, the other half was refused.
#[test]
fn half_with_interrupted_openings_is_resynced() {
    for (i, interruptions, openings) in [(0, 2, 1), (1, 2, 1), (0, 2, 2), (1, 2, 3), (0, 3, 1), (1, 3, 3)] {
        let bench = bench(19);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let mut half = disks[i].fork(&world);
            for _ in 0..interruptions {
                half = interrupted(&world, &[half], &[Phase::Opening]).await.remove(0);
            }
            let (half, other) = (attached(&world, half), attached(&world, disks[1 - i].clone()));
            go_on(&both, &other, openings).await.unwrap();
            let volume = open(world.clone(), vec![half, other]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, MIB, 8 + openings).await.unwrap());
            world.sleep(Nanos::from_secs(60)).await;
            assert!(volume.status().devices.iter().all(|d| d.state == DeviceState::Active));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// The same, but the last of these openings was an opening of both halves, and only the first half had
/// recorded the opening. The other half was used alone, and was taken for a half about to return: its newer
/// data was overwritten.
#[test]
fn half_used_after_interrupted_joint_opening_loses_nothing() {
    let mut gone_on = 0;
    for (interruptions, openings) in [(0, 1), (0, 3), (1, 1), (2, 1), (2, 2), (2, 4), (4, 1)] {
        let bench = bench(22);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        gone_on += bench.run(async move {
            made_mirror(&both, &all).await;
            let (mut half, other) = (disks[0].fork(&world), disks[1].clone());
            for _ in 0..interruptions {
                half = interrupted(&world, &[half], &[Phase::Opening]).await.remove(0);
            }
            let first_told = [Phase::Opening, Phase::Closed];
            let mut halves = interrupted(&world, &[half, other], &first_told).await;
            let (other, half) = (attached(&world, halves.remove(1)), attached(&world, halves.remove(0)));
            if let Err(error) = go_on(&both, &other, openings).await {
                assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
                return 0;
            }
            match open(world.clone(), vec![half, other]).await {
                Ok(volume) => {
                    assert!(holds(&volume, &arena, MIB, MIB, 8 + openings).await.unwrap());
                    world.sleep(Nanos::from_secs(60)).await;
                    assert!(holds(&volume, &arena, MIB, MIB, 8 + openings).await.unwrap());
                    volume.audit().await.unwrap();
                    volume.close().await.unwrap();
                }
                Err(error) => assert!(error.kind() == ErrorKind::Degraded && interruptions > 0, "{error}"),
            }
            usize::from(interruptions > 0)
        });
    }
    assert!(gone_on > 0);
}

/// The same, but the half had been written alone before its openings were interrupted: no rule can tell
/// which bytes are right.
#[test]
fn half_written_alone_is_refused_despite_interrupted_openings() {
    for (i, interruptions, openings) in [(0, 1, 1), (1, 1, 3), (0, 2, 1), (1, 2, 1), (0, 2, 4), (1, 3, 2)] {
        let bench = bench(20);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let volume = open(world.clone(), vec![all[i].clone()]).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            let mut half = disks[i].fork(&world);
            for _ in 0..interruptions {
                half = interrupted(&world, &[half], &[Phase::Opening]).await.remove(0);
            }
            let (half, other) = (attached(&world, half), attached(&world, disks[1 - i].clone()));
            go_on(&both, &other, openings).await.unwrap();
            let error = refused(open(world.clone(), vec![half, other]).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        });
    }
}

/// One half was failed while the volume was open, and was stale for later writes. The next opening, of both
/// halves, was interrupted before the stale half had recorded its staleness. The stale half was then used
/// alone, and took the other half for a half never written alone.
#[test]
fn stale_half_used_alone_is_refused() {
    let mut refusals = 0;
    for (changes, interruptions, openings) in
        [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 0, 2), (1, 1, 1), (0, 1, 2), (1, 1, 2), (0, 2, 1), (1, 2, 4)]
    {
        let bench = bench(21);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        let faults = bench.faults[1].clone();
        refusals += bench.run(async move {
            made_mirror(&both, &all).await;
            let volume = open(world.clone(), all.clone()).await.unwrap();
            faults.set(away());
            volume.fail_device(DeviceId(1)).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
            // Decides which half of a table of devices is written next: the half that the other half of the
            // mirror needs, or not.
            for _ in 0..changes {
                volume.set_policy("stripe").await.unwrap();
            }
            volume.close().await.unwrap();
            let first_told = [Phase::Opening, Phase::Open];
            let mut halves = interrupted(&world, &disks, &first_told).await;
            let (other, mut half) = (attached(&world, halves.remove(1)), halves.remove(0));
            for _ in 0..interruptions {
                half = interrupted(&world, &[half], &[Phase::Opening]).await.remove(0);
            }
            if let Err(error) = go_on(&both, &other, openings).await {
                assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
                return 0;
            }
            let error = refused(open(world.clone(), vec![attached(&world, half), other]).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            1
        });
    }
    assert!(refusals > 0);
}

/// Opens one half alone `openings` times, and writes each time.
async fn go_on(parts: &(World, Arena), half: &Faulty<Disk>, openings: u8) -> Result<(), Error> {
    for turn in 0..openings {
        let volume = open(parts.0.clone(), vec![half.clone()]).await?;
        volume.write(MIB, &filled(&parts.1, MIB, 9 + turn), Durability::Fua).await?;
        volume.close().await?;
    }
    Ok(())
}

/// Returns the content of `disks` after an opening that only the first disk has recorded is killed, with the
/// disks in these phases.
pub async fn interrupted(world: &World, disks: &[Disk], phases: &[Phase]) -> Vec<Disk> {
    let used: Vec<Disk> = disks.iter().map(|disk| disk.fork(world)).collect();
    let before = header_of(world, &used[0]).await.sequence;
    let (is_open, rt) = (Rc::new(Cell::new(false)), world.clone());
    let devices = used.iter().map(|disk| attached(world, disk.clone())).collect();
    let opened = is_open.clone();
    world.spawn(async move {
        let volume = open(rt, devices).await.expect("the devices are sound");
        opened.set(true);
        volume.close().await.expect("the devices are sound");
    });
    let mut cuts = Vec::new();
    while !is_open.get() {
        world.sleep(Nanos::from_micros(100)).await;
        cuts.push(used.iter().map(Disk::store).collect::<Vec<_>>());
    }
    for mut cut in cuts {
        cut.iter_mut().for_each(StoredDisk::kill);
        let left: Vec<Disk> = cut.iter().map(|disk| disk.attach(world)).collect();
        let mut headers = Vec::new();
        for disk in &left {
            headers.push(header_of(world, disk).await);
        }
        if headers[0].sequence > before
            && headers.iter().map(|header| header.phase).eq(phases.iter().copied())
        {
            return left;
        }
    }
    panic!("no opening was interrupted then");
}

async fn header_of(world: &World, disk: &Disk) -> Header {
    identify(world, Rc::new(attached(world, disk.clone())), "it").await.expect("the devices are sound")
}

fn attached(world: &World, disk: Disk) -> Faulty<Disk> {
    Faulty::new(disk, &no_faults(world))
}
