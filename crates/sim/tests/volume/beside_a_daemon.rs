//! Commands on one host beside a daemon on another host. If the daemon opens the volume or writes meanwhile,
//! the bytes read are inconsistent, but are no damage.

use crate::fence::{HALF, busy_in, handles};
use crate::rig::{bench, make, open_with, options};
use braid_base::{Nanos, Rng};
use braid_engine::{CreateOptions, ErrorKind, Noted, OpenOptions, check};
use braid_runtime::{Runtime, join_all};
use braid_sim::{Disk, FaultPlan, Faults, Faulty};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

const SECOND: Nanos = Nanos::from_secs(1);

/// A check beside a daemon of another host reported that a sound volume was damaged, or that a device had
/// lost writes.
#[test]
fn check_beside_active_daemon_reports_no_damage() {
    let mut sound = 0;
    for seed in 0..40 {
        let bench = bench(700 + seed);
        let (world, disks) = (bench.world.clone(), bench.disks.clone());
        sound += bench.run(async move {
            let made = CreateOptions { copies: 1 + (seed % 2) as u8, ..options(77) };
            let volume = make(world.clone(), handles(&world, &disks), &made).await;
            let stop = Rc::new(Cell::new(false));
            let pause = [Nanos::from_millis(3), Nanos::from_millis(60)][seed as usize / 2 % 2];
            let told = [0, HALF].map(|start| busy_in(&world, &volume, (start, pause), &stop));
            world.sleep(SECOND).await;
            let stall = Nanos::from_millis(1)..Nanos::from_millis(150);
            let slow = FaultPlan { stalls: 0.05, stall, ..FaultPlan::default() };
            disks.iter().for_each(|disk| disk.faults().set(slow.clone()));
            let mut sound = 0;
            for _ in 0..10 {
                match check(&world, handles(&world, &disks), &names_of(&disks), None).await {
                    Ok(report) => {
                        let damage = [&report.repairable[..], &report.fatal].concat();
                        assert!(damage.is_empty() && report.cut.is_empty(), "seed {seed}: {report:?}");
                        sound += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}"),
                }
            }
            stop.set(true);
            world.sleep(SECOND).await;
            assert!(told.iter().all(|told| told.borrow().len() > 10), "seed {seed}");
            volume.close().await.unwrap();
            sound
        });
    }
    assert!(sound > 300, "{sound} checks");
}

/// A check, or an opening on another host, began on a volume after shutdown, and a daemon opened the volume
/// meanwhile. The message was "is damaged", or "old copy of a device", with the advice to exclude a device.
#[test]
fn volume_being_opened_is_not_reported_as_damaged() {
    for seed in 0..200 {
        let bench = bench(800 + seed);
        let (world, disks) = (bench.world.clone(), bench.disks.clone());
        bench.run(async move {
            let mut rng = Rng::new(seed);
            let made = CreateOptions { copies: 1 + (seed % 2) as u8, ..options(78) };
            make(world.clone(), handles(&world, &disks), &made).await.close().await.unwrap();
            // The other host reaches the disks by a slow network.
            let stall = Nanos::from_millis(1)..Nanos::from_millis(100);
            let slow = FaultPlan { stalls: 0.5, stall, ..FaultPlan::default() };
            let far = |disk: &Disk| Faulty::new(disk.clone(), &Faults::new(slow.clone(), world.fork_rng()));
            let devices: Vec<_> = disks.iter().map(far).collect();
            let delay = Nanos::from_millis(rng.below(400));
            let stop = Rc::new(Cell::new(false));
            let opened = async |devices, owner| {
                let how = |o: &mut OpenOptions| {
                    (o.noted, o.owner) = (Some(Noted { epoch: 1, owner: 5, batch: 0 }), owner)
                };
                match open_with(world.clone(), devices, how).await {
                    Ok((volume, _)) => drop(busy_in(&world, &volume, (0, Nanos::from_micros(200)), &stop)),
                    // The other host has come first, or comes while this opening begins.
                    Err(error) => {
                        let expected = [ErrorKind::Busy, ErrorKind::Io];
                        assert!(expected.contains(&error.kind()), "seed {seed}: {error}");
                    }
                }
            };
            let first = async {
                world.sleep(delay).await;
                opened(handles(&world, &disks), 7).await;
                None
            };
            let second = async {
                if seed / 2 % 2 == 1 {
                    opened(devices, 8).await;
                    return None;
                }
                match check(&world, devices, &names_of(&disks), None).await {
                    Ok(report) => Some(report),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}");
                        None
                    }
                }
            };
            let both: [Pin<Box<dyn Future<Output = _>>>; 2] = [Box::pin(first), Box::pin(second)];
            let found = join_all(both.into_iter()).await;
            stop.set(true);
            for report in found.into_iter().flatten() {
                let damage = [&report.repairable[..], &report.fatal].concat();
                assert!(damage.is_empty() && report.cut.is_empty(), "seed {seed}: {report:?}");
            }
        });
    }
}

fn names_of(disks: &[Disk]) -> Vec<String> {
    (0..disks.len()).map(|place| format!("disk {place}")).collect()
}
