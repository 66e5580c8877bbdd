//! A campaign of a mirror with one half on another machine: the network is cut, the server stops or dies, a
//! connection ends, and the host is killed, under a guest that meets no error while the host lives.
//!
//! The test returns the remote device as the daemon does. `BRAID_REMOTE_SEEDS=n` runs n lives; a failure
//! prints its seed, for `BRAID_REMOTE_SEED=s`.

use crate::rig::life::{BLOCK, Oracle, SIZE, disk, names, state};
use crate::rig::{Rig, is_all, options, seeds};
use braid_base::{DeviceId, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Connection, Disk, FaultPlan, Faults, Faulty, LATE_REQUESTS, Server, World};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Incidents in one life.
const INCIDENTS: u32 = 12;
/// Lives in a usual run, and the most that the search for a known mistake takes.
const LIVES: u64 = 40;
const MOST_LIVES: u64 = 200;
/// A life that fails without the wait for late requests: the search begins there.
const FAILING_LIFE: u64 = 85;
/// Reads of the guest after each write.
const READS: u32 = 4;
/// Distance of two attempts to return the device, as of the daemon.
const PERIOD: Nanos = Nanos::from_secs(2);

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    returns: u64,
    kills: u64,
    late: u64,
}

/// A host with an open volume, from its start to its end.
struct Host {
    volume: Rig,
    /// Faults of the local device for this host alone: a killed host reaches nothing.
    near: Faults,
    connection: Rc<RefCell<Connection>>,
    is_killed: Rc<Cell<bool>>,
}

/// What hosts come and go over.
#[derive(Clone)]
struct Site {
    world: World,
    near: Disk,
    far: Disk,
    server: Server,
    /// Place of the remote device in the volume.
    place: DeviceId,
    /// Time between a new connection and the first request.
    wait: Nanos,
    oracle: Oracle,
    returns: Rc<Cell<u64>>,
}

impl Site {
    fn remote(&self, connection: &Connection) -> Faulty<Disk> {
        Faulty::new(self.far.clone(), &Faults::new(FaultPlan::default(), Rng::new(1))).behind(connection)
    }

    /// Opens the volume, and lets a guest work and the remote device return by itself.
    async fn start(&self, rng: &mut Rng) -> Host {
        let connection = self.server.connect().await;
        self.world.sleep(self.wait).await;
        let near = Faults::new(FaultPlan::default(), Rng::new(1));
        let mut devices = vec![Faulty::new(self.near.clone(), &near)];
        devices.insert(self.place.index(), self.remote(&connection));
        let opened = Volume::open(self.world.clone(), devices, OpenOptions::new(names(2))).await;
        let volume = opened.expect("the volume opens").0;
        let (connection, is_killed) = (Rc::new(RefCell::new(connection)), Rc::<Cell<bool>>::default());
        self.agree(&volume).await;
        let host = Host { volume, near, connection, is_killed };
        self.world.spawn(guest(self.clone(), host.volume.clone(), host.is_killed.clone(), rng.fork()));
        self.world.spawn(self.clone().return_device(
            host.volume.clone(),
            host.connection.clone(),
            host.is_killed.clone(),
        ));
        host
    }

    async fn return_device(
        self,
        volume: Rig,
        connection: Rc<RefCell<Connection>>,
        is_killed: Rc<Cell<bool>>,
    ) {
        while !is_killed.get() {
            self.world.sleep(PERIOD).await;
            if state(&volume, self.place) != DeviceState::Failed {
                continue;
            }
            connection.borrow().end();
            let new = self.server.connect().await;
            self.world.sleep(self.wait).await;
            if is_killed.get() {
                return new.end();
            }
            connection.replace(new.clone());
            let released = volume.release_device(self.place).await;
            // The connection may have been lost again.
            if released.is_ok() && volume.return_device(self.remote(&new), "the export").await.is_ok() {
                self.returns.set(self.returns.get() + 1);
            }
        }
    }

    /// Checks the content after a start, and writes the blocks that may hold one of several values.
    async fn agree(&self, volume: &Rig) {
        let arena = Arena::new(MIB);
        self.oracle.check(volume, &arena, "after a start").await;
        let open: Vec<usize> = (0..)
            .zip(&*self.oracle.0.borrow())
            .filter(|(_, (_, later))| !later.is_empty())
            .map(|(i, _)| i)
            .collect();
        for block in open {
            let buf = arena.alloc(BLOCK).await;
            buf.with_bytes_mut(|bytes| bytes.fill(self.oracle.newest(block)));
            volume.write(BLOCK * block as u64, &buf, Durability::Volatile).await.expect("a write succeeds");
        }
        volume.flush().await.expect("a flush succeeds");
        self.oracle.flushed();
    }

    async fn wait_until_whole(&self, volume: &Rig) {
        for _ in 0..3000 {
            let is_whole = volume.status().devices.iter().all(|device| device.state == DeviceState::Active);
            if is_whole && volume.status().behind.0 == 0 {
                return;
            }
            self.world.sleep(Nanos::from_millis(100)).await;
        }
        panic!("five minutes are enough: {:#?}", volume.status().devices);
    }
}

/// A guest that writes, reads and flushes, and meets no error before its host is killed.
async fn guest(site: Site, volume: Rig, is_killed: Rc<Cell<bool>>, mut rng: Rng) {
    let (arena, oracle) = (Arena::new(MIB), &site.oracle);
    while !is_killed.get() {
        let first = rng.below((SIZE / BLOCK) - 16) as usize;
        let count = 1 + rng.below(16) as usize;
        let value = 1 + rng.below(250) as u8;
        let buf = arena.alloc(BLOCK * count as u64).await;
        buf.with_bytes_mut(|bytes| bytes.fill(value));
        oracle.0.borrow_mut()[first..first + count].iter_mut().for_each(|(_, later)| later.push(value));
        let written = volume.write(BLOCK * first as u64, &buf, Durability::Volatile).await;
        let mut wrong = None;
        let mut read = Ok(());
        for _ in 0..READS {
            let place = rng.below(SIZE / BLOCK) as usize;
            let block = arena.alloc(BLOCK).await;
            read = read.and(volume.read(BLOCK * place as u64, &block).await);
            let newest = oracle.newest(place);
            if read.is_ok() && !is_all(&block, newest) {
                wrong = Some(place);
            }
        }
        let flushed = if rng.chance(0.25) { Some(volume.flush().await) } else { None };
        if is_killed.get() {
            return;
        }
        written.expect("a write succeeds");
        read.expect("a read succeeds");
        assert_eq!(wrong, None, "a block has not its newest bytes");
        if let Some(flushed) = flushed {
            flushed.expect("a flush succeeds");
            oracle.flushed();
        }
        // Slow enough that a wrong block is read before it is overwritten.
        site.world.sleep(Nanos::from_millis(rng.below(100))).await;
    }
}

/// Runs one life; `wait` is the time between a new connection and the first request.
fn live(seed: u64, wait: Nanos) -> Count {
    let world = World::new(seed);
    let rt = world.clone();
    let count = world.block_on(async move {
        let mut rng = Rng::new(seed ^ 0x7E1E);
        let place = DeviceId(rng.below(2) as u16);
        let (near, far) = (disk(&rt, place.0 == 1), disk(&rt, place.0 == 0));
        let mut disks = vec![near.clone()];
        disks.insert(place.index(), far.clone());
        let policy = ["equi", "raid1", "wardrop"][rng.below(3) as usize].to_owned();
        let create_options = CreateOptions { copies: 2, policy, ..options(1) };
        create(&crate::rig::sound(&disks), &create_options).await.expect("the devices are fit");
        let (oracle, returns, server) = (Oracle::new(), Rc::default(), Server::new(&rt));
        let site = Site { world: rt.clone(), near, far, server, place, wait, oracle, returns };
        let mut host = site.start(&mut rng).await;
        let mut kills = 0;
        for _ in 0..INCIDENTS {
            rt.sleep(Nanos::from_millis(rng.below(5_000))).await;
            let time = Nanos::from_millis([300, 3_000, 30_000][rng.below(3) as usize]);
            let time = Nanos(rng.below(time.0));
            match rng.below(5) {
                0 => {
                    site.server.set_cut(true);
                    rt.sleep(time).await;
                    site.server.set_cut(false);
                }
                1 => {
                    site.server.set_stopped(true);
                    rt.sleep(time).await;
                    site.server.set_stopped(false);
                }
                2 => {
                    site.server.die();
                    if rng.chance(0.5) {
                        site.far.lose_cache();
                    }
                }
                3 => host.connection.borrow().end(),
                _ => {
                    host.is_killed.set(true);
                    host.connection.borrow().end();
                    host.near.vanish();
                    kills += 1;
                    rt.sleep(Nanos::from_millis(200)).await;
                    host = site.start(&mut rng).await;
                }
            }
        }
        // The guest meets the last incident meanwhile.
        rt.sleep(Nanos::from_secs(10)).await;
        site.wait_until_whole(&host.volume).await;
        host.is_killed.set(true);
        rt.sleep(Nanos::from_secs(1)).await;
        host.volume.flush().await.expect("a flush succeeds");
        site.oracle.flushed();
        host.volume.audit().await.expect("all copies are alike");
        site.oracle.check(&host.volume, &Arena::new(MIB), "at the end").await;
        host.volume.close().await.expect("the volume closes");
        Count { returns: site.returns.get(), kills, late: site.server.late() }
    });
    world.halt();
    count
}

/// Names the failed life.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(seed) = self;
            eprintln!("replay: BRAID_REMOTE_SEED={seed} cargo test --workspace --test volume remote");
        }
    }
}

#[test]
fn mirror_survives_losses_of_the_network_and_of_both_machines() {
    let asked = std::env::var("BRAID_REMOTE_SEED").map(|seed| seed.parse().expect("a seed"));
    let all = asked.map_or(0..seeds("BRAID_REMOTE_SEEDS", LIVES), |seed: u64| seed..seed + 1);
    let (mut sum, lives) = (Count::default(), all.end - all.start);
    for seed in all {
        let _replay = Replay(seed);
        let Count { returns, kills, late } = live(seed, LATE_REQUESTS);
        sum = Count { returns: sum.returns + returns, kills: sum.kills + kills, late: sum.late + late };
    }
    println!("{lives} lives: {sum:?}");
    assert!(lives == 1 || sum.returns > lives && sum.kills > lives && sum.late > lives, "{sum:?}");
}

/// The wait for late requests is needed: without it, a write of an earlier connection overwrites a newer one.
#[test]
fn device_used_before_late_requests_end_is_found() {
    let is_found = |seed| catch_unwind(AssertUnwindSafe(|| live(seed, Nanos::ZERO))).is_err();
    let found = (FAILING_LIFE..MOST_LIVES).find(|&seed| is_found(seed));
    println!("a life without the wait fails: {found:?}");
    assert!(found.is_some(), "a life without the wait fails");
}
