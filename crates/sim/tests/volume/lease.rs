//! Two hosts that reach the same disks over networks of their own: the owner's lease, and a takeover.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::adopted;
use crate::epochs;
use crate::fence::{HALF, Told, busy_in};
use crate::replace::replacement;
use crate::rig::{Bench, Rig, bench, filled, holds, open_with, options, refused, sound};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_engine::{
    AdoptedDisk, CreateOptions, Durability, ErrorKind, Export, Noted, OpenOptions, Result, check, create,
    replace,
};
use braid_format::Uuid;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Connection, Disk, DiskOptions, FaultPlan, Faults, Faulty, Operation, Server, Trace, World};
use std::cell::Cell;
use std::rc::Rc;

pub const SECOND: Nanos = Nanos::from_secs(1);
pub const BLOCK: Bytes = Bytes(4 << 10);

/// A host: its network to each disk, and its connections.
pub struct Host {
    world: World,
    pub paths: Vec<Server>,
    connections: Vec<Connection>,
    traces: Vec<Trace>,
    pub devices: Vec<Faulty<Disk>>,
}

impl Host {
    pub async fn new(world: &World, disks: &[Disk]) -> Host {
        let paths: Vec<Server> = disks.iter().map(|_| Server::new(world)).collect();
        let (mut connections, mut devices, mut traces) = (Vec::new(), Vec::new(), Vec::new());
        for (disk, path) in disks.iter().zip(&paths) {
            let connection = path.connect().await;
            let faults = Faults::new(FaultPlan::default(), world.fork_rng());
            let trace = Trace::default();
            devices.push(Faulty::new(disk.clone(), &faults).behind(&connection).traced(&trace));
            connections.push(connection);
            traces.push(trace);
        }
        Host { world: world.clone(), paths, connections, traces, devices }
    }

    /// Opens the volume with these notes of the last opening. Returns the duration, too.
    pub async fn open(&self, noted: Option<Noted>, owner: u64, take_over: bool) -> (Nanos, Result<Rig>) {
        let start = self.world.now();
        let how = |o: &mut OpenOptions| (o.noted, o.owner, o.take_over) = (noted, owner, take_over);
        let opened = open_with(self.world.clone(), self.devices.clone(), how).await;
        (self.world.now() - start, opened.map(|(volume, _)| volume))
    }

    /// Opens the volume without notes of it.
    pub async fn open_strange(&self, take_over: bool) -> (Nanos, Result<Rig>) {
        self.open(Some(Noted::default()), 8, take_over).await
    }

    /// The host dies: what it has sent may arrive, and nothing follows.
    pub fn kill(&self) {
        self.connections.iter().for_each(Connection::end);
    }

    pub fn writes(&self) -> Vec<usize> {
        let count = |trace: &Trace| trace.count(|operation| matches!(operation, Operation::Write(..)));
        self.traces.iter().map(count).collect()
    }
}

/// Creates a volume, and opens it on a first host.
pub async fn first_host(world: &World, disks: &[Disk], seed: u64) -> (Host, Rig) {
    let policy = if seed % 4 < 2 { "stripe" } else { "equi" }.to_owned();
    let made = CreateOptions { copies: 1 + (seed % 2) as u8, policy, ..options(90) };
    create(&sound(disks), &made).await.unwrap();
    let host = Host::new(world, disks).await;
    let volume = host.open(Some(Noted::default()), 7, false).await.1.unwrap();
    (host, volume)
}

pub fn parts(bench: &Bench) -> (World, Arena, Vec<Disk>) {
    (bench.world.clone(), bench.arena.clone(), bench.disks.clone())
}

/// Two hosts served one volume, if the administrator started the second by mistake: the first was fenced, and
/// its guests failed.
pub fn second_host_is_refused_while_owner_is_idle(seed: u64) {
    let bench = bench(1000 + seed);
    let (world, arena, disks) = parts(&bench);
    bench.run(async move {
        let (_host, volume) = first_host(&world, &disks, seed).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(SECOND * 60).await;
        let other = Host::new(&world, &disks).await;
        for attempt in 0..6 {
            let (took, opened) = other.open_strange(false).await;
            assert_eq!(refused(opened).kind(), ErrorKind::Busy, "seed {seed}");
            assert!(took < SECOND * 7, "seed {seed}: {took}");
            world.sleep(Nanos::from_millis(730 * attempt)).await;
        }
        assert_eq!(other.writes(), [0, 0], "a refused opening writes nothing");
        // A check does not watch, and finds no damage.
        let start = world.now();
        let names = ["a", "b"].map(str::to_owned);
        match check(&world, other.devices.clone(), &names, None).await {
            Ok(report) => assert!(report.fatal.is_empty() && report.repairable.is_empty(), "{report:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy),
        }
        assert!(world.now() - start < SECOND * 4);
        volume.write(MIB, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        // A clean shutdown needs no watch.
        let (took, opened) = other.open_strange(false).await;
        let volume = opened.unwrap();
        assert!(took < SECOND * 2, "seed {seed}: {took}");
        assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap());
        volume.close().await.unwrap();
    });
}

#[test]
fn idle_owner_keeps_volume_against_second_host() {
    (0..8).for_each(second_host_is_refused_while_owner_is_idle);
}

#[test]
fn busy_owner_keeps_volume_against_second_host() {
    for seed in 0..8 {
        let bench = bench(1100 + seed);
        let (world, _, disks) = parts(&bench);
        bench.run(async move {
            let (_host, volume) = first_host(&world, &disks, seed).await;
            let stop = Rc::new(Cell::new(false));
            let pause = Nanos::from_millis([2, 40][seed as usize / 2 % 2]);
            let told = busy_in(&world, &volume, (0, pause), &stop);
            world.sleep(SECOND * 3 + Nanos::from_millis(seed * 130)).await;
            let other = Host::new(&world, &disks).await;
            for _ in 0..3 {
                let error = refused(other.open_strange(false).await.1);
                assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}");
            }
            assert_eq!(other.writes(), [0, 0]);
            world.sleep(SECOND * 3).await;
            stop.set(true);
            world.sleep(SECOND).await;
            let (last, _) = *told.borrow().last().unwrap();
            assert!(last + SECOND * 2 > world.now(), "seed {seed}: the guest of the owner has stopped");
            volume.close().await.unwrap();
        });
    }
}

/// A replacement of a device on another host would write superblocks beside the owner.
#[test]
fn device_of_a_volume_in_use_is_not_replaced_on_second_host() {
    let bench = bench(1190);
    let (world, arena, disks) = parts(&bench);
    bench.run(async move {
        let (host, volume) = first_host(&world, &disks, 1).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(SECOND * 40).await;
        let other = Host::new(&world, &disks).await;
        let new = sound(&[Disk::new(&world, DiskOptions::hdd(MIB * 8))]).remove(0);
        let (given, names) = (vec![other.devices[0].clone()], ["a".to_owned()]);
        let replaced = replace(&world, given.clone(), &names, &new, &replacement(1)).await;
        assert_eq!(refused(replaced).kind(), ErrorKind::Busy);
        assert_eq!(other.writes(), [0, 0]);
        host.kill();
        replace(&world, given, &names, &new, &replacement(1)).await.unwrap();
    });
}

/// A volume with epochs, and an adopted disk without a superblock of its own.
#[test]
fn volumes_with_epochs_and_adopted_disks_keep_their_lease() {
    for is_adopted in [false, true] {
        let world = World::new(1195);
        let test = world.clone();
        world.block_on(async move {
            let world = test;
            let disks = match is_adopted {
                true => adopted::disks(&world, adopted::SIZE),
                false => epochs::disks(&world).to_vec(),
            };
            match is_adopted {
                true => adopted::make(&world, &disks).await.close().await.unwrap(),
                false => drop(create(&sound(&disks), &epochs::epochs(92)).await.unwrap()),
            }
            let disk = AdoptedDisk { place: adopted::DISK, identity: Uuid([9; 16]), force: false };
            let open = async |host: &Host, owner| {
                let how = |o: &mut OpenOptions| {
                    (o.noted, o.owner) = (Some(Noted::default()), owner);
                    o.adopted = is_adopted.then_some(disk);
                };
                open_with(world.clone(), host.devices.clone(), how).await.map(|(volume, _)| volume)
            };
            let (host, other) = (Host::new(&world, &disks).await, Host::new(&world, &disks).await);
            let volume = open(&host, 7).await.unwrap();
            let arena = Arena::new(MIB);
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 64, 5), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 30).await;
            assert_eq!(refused(open(&other, 8).await).kind(), ErrorKind::Busy, "adopted: {is_adopted}");
            host.kill();
            let start = world.now();
            let volume = open(&other, 8).await.unwrap();
            // Samples of an adopted disk are read twice.
            let (took, most) = (world.now() - start, SECOND * if is_adopted { 20 } else { 8 });
            assert!(took < most, "adopted: {is_adopted}: {took}");
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 64, 5).await.unwrap());
            volume.close().await.unwrap();
        });
        world.halt();
    }
}

/// Asserts that the volume holds the newest acknowledged writes of a guest.
async fn holds_all(volume: &Rig, arena: &Arena, start: u64, told: &Told, seed: u64) {
    let mut newest = [0u8; HALF as usize];
    for &(_, number) in told.borrow().iter() {
        newest[(number * 37 % HALF) as usize] = 1 + (number % 250) as u8;
    }
    for (block, value) in (start..).zip(newest).filter(|(_, value)| *value > 0) {
        let is_there = holds(volume, arena, BLOCK * block, BLOCK, value).await.unwrap();
        assert!(is_there, "seed {seed}: block {block} does not hold {value}");
    }
}

#[test]
fn second_host_takes_over_within_eight_seconds_of_owners_death() {
    for seed in 0..8 {
        let bench = bench(1200 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let (host, volume) = first_host(&world, &disks, seed).await;
            let stop = Rc::new(Cell::new(false));
            let told = busy_in(&world, &volume, (0, Nanos::from_millis(20)), &stop);
            world.sleep(SECOND * 3 + Nanos::from_millis(seed * 170)).await;
            host.kill();
            let other = Host::new(&world, &disks).await;
            let (took, opened) = other.open_strange(false).await;
            assert!(took > SECOND * 6 && took < SECOND * 8, "seed {seed}: {took}");
            let volume = opened.unwrap();
            assert!(told.borrow().len() > 10);
            holds_all(&volume, &arena, 0, &told, seed).await;
            world.sleep(SECOND * 30).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// The notes of the host prove that its own last opening has ended.
#[test]
fn restarted_host_does_not_wait_for_its_own_lease() {
    for seed in 0..4 {
        let bench = bench(1300 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let (host, volume) = first_host(&world, &disks, seed).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            let noted = volume.noted();
            host.kill();
            let again = Host::new(&world, &disks).await;
            let (took, opened) = again.open(Some(noted), 9, false).await;
            assert!(took < SECOND * 2, "seed {seed}: {took}");
            assert!(holds(&opened.unwrap(), &arena, Bytes::ZERO, MIB, 1).await.unwrap());
        });
    }
}

/// The administrator takes the volume over from a living owner, on disks that answer late now and then. The
/// owner acknowledges nothing more than a second after the opening, writes nothing more, and no acknowledged
/// write of either host is lost.
fn owner_alive_is_taken_over(seed: u64) -> usize {
    let bench = bench(1400 + seed);
    let (world, arena, disks) = parts(&bench);
    bench.run(async move {
        let mut rng = Rng::new(seed);
        let (host, first) = first_host(&world, &disks, seed).await;
        let stop = Rc::new(Cell::new(false));
        let pause = [Nanos::from_millis(20), Nanos::from_millis(700), SECOND * 3][seed as usize % 3];
        let told = busy_in(&world, &first, (0, pause), &stop);
        world.sleep(SECOND * 4 + Nanos::from_millis(rng.below(2000))).await;
        if seed % 2 == 1 {
            let stall = Nanos::from_millis(10)..Nanos::from_millis(300);
            let slow = FaultPlan { stalls: 0.05, stall, ..FaultPlan::default() };
            disks.iter().for_each(|disk| disk.faults().set(slow.clone()));
        }
        let other = Host::new(&world, &disks).await;
        let mut refusals = 0;
        let second = loop {
            let (took, opened) = other.open_strange(true).await;
            match opened {
                Ok(volume) => {
                    assert!(took < SECOND * 5, "seed {seed}: {took}");
                    break volume;
                }
                // The owner has written after the announcement, and is stopped now.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}"),
            }
            refusals += 1;
            assert!(refusals < 4, "seed {seed}");
        };
        let opened = world.now();
        let later = busy_in(&world, &second, (HALF, Nanos::from_millis(20)), &stop);
        let writes = host.writes();
        world.sleep(SECOND * 6).await;
        assert_eq!(host.writes(), writes, "seed {seed}: the first host still writes");
        assert!(told.borrow().last().is_none_or(|&(last, _)| last < opened), "seed {seed}");
        assert_eq!(refused(first.flush().await).kind(), ErrorKind::Io, "seed {seed}");
        let write = first.write(BLOCK * HALF, &filled(&arena, KIB * 64, 3), Durability::Volatile).await;
        assert!(write.is_err() && first.close().await.is_err(), "seed {seed}");
        stop.set(true);
        world.sleep(SECOND * 2).await;
        assert_eq!(host.writes(), writes, "seed {seed}: the first host still writes");
        holds_all(&second, &arena, 0, &told, seed).await;
        holds_all(&second, &arena, HALF, &later, seed).await;
        disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        world.sleep(SECOND * 30).await;
        second.audit().await.unwrap();
        second.close().await.unwrap();
        let (_, again) = Host::new(&world, &disks).await.open_strange(false).await;
        let again = again.unwrap();
        holds_all(&again, &arena, 0, &told, seed).await;
        holds_all(&again, &arena, HALF, &later, seed).await;
        refusals
    })
}

#[test]
fn owner_taken_over_alive_is_fenced_and_loses_nothing_acknowledged() {
    let refusals: usize = (0..36).map(owner_alive_is_taken_over).sum();
    println!("{refusals} of 36 openings had to be repeated");
}

/// The network of the owner is cut for longer than its lease, as if its process were stopped: another host
/// takes over. Then the owner's renewals in flight arrive, and the owner continues.
#[test]
fn owner_that_continues_after_its_lease_is_fenced() {
    for seed in 0..12 {
        let bench = bench(1500 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let (host, first) = first_host(&world, &disks, seed).await;
            first.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 40 + Nanos::from_millis(seed * 130)).await;
            host.paths.iter().for_each(|path| path.set_cut(true));
            world.sleep(Nanos::from_millis(seed * 200)).await;
            let other = Host::new(&world, &disks).await;
            let second = loop {
                match other.open_strange(false).await.1 {
                    Ok(volume) => break volume,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}"),
                }
            };
            second.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            host.paths.iter().for_each(|path| path.set_cut(false));
            if seed % 3 > 0 {
                world.sleep(Nanos::from_millis(seed * 300)).await;
            }
            let write = first.write(BLOCK, &filled(&arena, KIB * 64, 3), Durability::Fua).await;
            assert_eq!(refused(write).kind(), ErrorKind::Io, "seed {seed}");
            world.sleep(SECOND * 10).await;
            assert!(first.flush().await.is_err());
            second.flush().await.unwrap();
            assert!(holds(&second, &arena, Bytes::ZERO, MIB, 2).await.unwrap(), "seed {seed}");
            second.close().await.unwrap();
            let (_, again) = Host::new(&world, &disks).await.open_strange(false).await;
            assert!(holds(&again.unwrap(), &arena, Bytes::ZERO, MIB, 2).await.unwrap(), "seed {seed}");
        });
    }
}

#[test]
fn only_shared_devices_are_written_for_lease() {
    for seed in 0..4 {
        let bench = bench(1800 + seed);
        let (world, arena, disks) = parts(&bench);
        bench.run(async move {
            let (host, volume) = first_host(&world, &disks, seed).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 120).await;
            let before = host.writes();
            world.sleep(SECOND * 30).await;
            for (before, after) in before.into_iter().zip(host.writes()) {
                assert!((18..=20).contains(&(after - before)), "{before} to {after}");
            }
            volume.close().await.unwrap();
            let before = host.writes();
            world.sleep(SECOND * 10).await;
            assert_eq!(host.writes(), before, "a closed volume is written");
            // The same volume on local devices.
            let traces = [Trace::default(), Trace::default()];
            let local = sound(&disks).into_iter().zip(&traces).map(|(device, trace)| device.traced(trace));
            let how = |o: &mut OpenOptions| (o.noted, o.owner) = (Some(Noted::default()), 9);
            let (volume, _) = open_with(world.clone(), local.collect(), how).await.unwrap();
            world.sleep(SECOND * 120).await;
            traces.iter().for_each(|trace| drop(trace.take()));
            world.sleep(SECOND * 30).await;
            for trace in &traces {
                assert_eq!(trace.count(|operation| matches!(operation, Operation::Write(..))), 0);
            }
            volume.close().await.unwrap();
        });
    }
}
