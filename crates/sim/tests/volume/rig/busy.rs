//! Three disks with two copies of everything. Each disk may be lost, and a guest at work meets no error.

use super::life::{Oracle, disk, names, open, work};
use braid_base::{MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

pub struct Busy {
    pub volume: Volume<World, Faulty<Disk>>,
    pub oracle: Oracle,
    pub faults: Vec<Faults>,
    pub disks: Vec<Disk>,
    pub stop: Rc<Cell<bool>>,
    pub arena: Arena,
}

/// The volume with its guest, a second old.
pub async fn busy(world: &World, seed: u64) -> Busy {
    busy_under(&super::options(1).policy, world, seed).await
}

/// As [`busy`], under a policy.
pub async fn busy_under(policy: &str, world: &World, seed: u64) -> Busy {
    let disks = vec![disk(world, true), disk(world, false), disk(world, false)];
    let faults: Vec<Faults> =
        disks.iter().map(|_| Faults::new(FaultPlan::default(), world.fork_rng())).collect();
    let all: Vec<Faulty<Disk>> =
        disks.iter().zip(&faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults)).collect();
    create(&all, &CreateOptions { copies: 2, policy: policy.to_owned(), ..super::options(1) })
        .await
        .expect("the devices are fit");
    let opened = Volume::open(world.clone(), all, OpenOptions::new(names(3))).await;
    let volume = opened.expect("the volume opens").0;
    let arena = Arena::new(MIB * 2);
    for at in 0..4 {
        let zeros = super::filled(&arena, MIB, 0);
        volume.write(MIB * at, &zeros, Durability::Fua).await.expect("a write succeeds");
    }
    let (oracle, stop) = (Oracle::new(), Rc::new(Cell::new(false)));
    world.spawn(work(world.clone(), volume.clone(), oracle.clone(), Rng::new(seed), stop.clone()));
    world.sleep(Nanos::from_secs(1)).await;
    Busy { volume, oracle, faults, disks, stop, arena }
}

/// Stops the guest, and checks the volume; also after a crash, with these devices alone.
pub async fn end(world: &World, busy: Busy, left: &[usize]) {
    let Busy { volume, oracle, disks, stop, arena, .. } = busy;
    stop.set(true);
    world.sleep(Nanos::from_secs(1)).await;
    volume.flush().await.expect("a flush succeeds");
    oracle.flushed();
    volume.audit().await.expect("all copies are alike");
    oracle.check(&volume, &arena, "at the end").await;
    let left = left.iter().map(|&i| disks[i].fork(world)).collect();
    let volume = open(world, left).await;
    oracle.check(&volume, &arena, "after a crash").await;
}
