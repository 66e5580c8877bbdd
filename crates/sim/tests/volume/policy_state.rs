//! Learned state of a policy survives a restart; a loss of the state costs nothing else.

use crate::rig::{self, sound};
use braid_base::{KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_format::policy_state::{self, HALF};
use braid_format::superblock::{Region, RegionKind};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, World};

type Sim = rig::Rig;

/// An SSD and a disk, large enough for a region.
struct Rig {
    disks: Vec<Disk>,
    rng: Rng,
}

/// The share of each device that `wardrop` wants, then the response time of each device that `wardrop`
/// remembers; −1 if unknown.
type Learned = Vec<f64>;

impl Rig {
    /// A volume, created and not open.
    fn new(change: impl FnOnce(&mut CreateOptions)) -> Rig {
        Rig::on([DiskOptions::ssd(MIB * 64), DiskOptions::hdd(MIB * 64)], change)
    }

    fn on(disks: [DiskOptions; 2], change: impl FnOnce(&mut CreateOptions)) -> Rig {
        let world = World::new(1);
        let disks = disks.map(|options| Disk::new(&world, options)).to_vec();
        let mut options = CreateOptions::new("learned", Uuid([9; 16]));
        options.policy = "wardrop".to_owned();
        options.size = Some(MIB * 16);
        change(&mut options);
        let devices = disks.clone();
        world.block_on(async move { create(&sound(&devices), &options).await.expect("the disks are fit") });
        world.halt();
        Rig { disks, rng: Rng::new(1) }
    }

    /// Opens the volume in a new world and runs `life`. The disks keep their final state.
    fn life<T: 'static>(&mut self, life: impl AsyncFnOnce(World, Sim) -> T + 'static) -> T {
        self.life_until_cut(life).expect("nothing cuts the power")
    }

    /// As [`Rig::life`], but gives `None` if the power is cut first.
    fn life_until_cut<T: 'static>(&mut self, life: impl AsyncFnOnce(World, Sim) -> T + 'static) -> Option<T> {
        let world = World::new(self.rng.next_u64());
        self.disks = self.disks.iter().map(|disk| disk.restart(&world)).collect();
        let (rt, disks) = (world.clone(), self.disks.clone());
        let result = world.block_on_until_cut(async move {
            let names = (0..disks.len()).map(|i| format!("disk {i}")).collect();
            let (volume, _) = Volume::open(rt.clone(), sound(&disks), OpenOptions::new(names))
                .await
                .expect("a lost state is no error");
            life(rt, volume).await
        });
        world.halt();
        result
    }

    fn cut_power(&mut self) {
        self.disks.iter().for_each(|disk| disk.power_cut(&mut self.rng));
    }

    /// The halves of a device's region on the device: the sequence of each, if valid.
    fn sequences(&mut self, device: usize) -> [Option<u64>; 2] {
        let disk = self.disks[device].clone();
        let regions = self.life(async |_, volume| volume.superblock().regions);
        let state = regions.iter().find(|r| r.kind == RegionKind::PolicyState && r.device.index() == device);
        let offset = state.expect("the device has a region").offset;
        [offset, offset + HALF].map(|at| {
            let mut bytes = vec![0; HALF.as_usize()];
            disk.peek_durable(at, &mut bytes);
            policy_state::decode(&bytes, Uuid([9; 16])).ok().map(|state| state.sequence)
        })
    }

    /// Rots the beginning of a half.
    fn rot(&mut self, half: u64) {
        let region = self.life(async |_, volume| {
            *volume.superblock().region(RegionKind::PolicyState, 0).expect("it has one")
        });
        let disk = &self.disks[region.device.index()];
        disk.poke(region.offset + HALF * half, &[0xaa; 512]);
    }
}

fn learned(volume: &Sim) -> Learned {
    let devices = volume.status().devices;
    let figures = |wanted: &'static str| {
        let of =
            move |figures: &[(&str, f64)]| figures.iter().find(|(name, _)| *name == wanted).map(|(_, f)| *f);
        devices.iter().map(move |device| of(&device.figures).unwrap_or(-1.0))
    };
    figures("target_share").chain(figures("response_ms")).collect()
}

/// True if equal within the precision of the saved state.
fn alike(a: &Learned, b: &Learned) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6)
}

/// Guests for some periods: `busy` of them at a time.
async fn heat(rt: &World, volume: &Sim, seconds: u64, busy: u64) -> Learned {
    let arena = Arena::new(MIB);
    let until = rt.now() + Nanos::from_secs(seconds);
    let mut turn = 0;
    while rt.now() < until {
        let buf = arena.alloc(KIB * 4).await;
        let writes =
            (0..busy).map(|i| volume.write(KIB * 132 * ((turn + i) % 100), &buf, Durability::Volatile));
        for written in braid_runtime::join_all(writes).await {
            written.expect("there is room");
        }
        turn += busy;
        rt.sleep(Nanos::from_millis(5)).await;
    }
    learned(volume)
}

async fn heat_and_close(rt: World, volume: Sim) -> Learned {
    heat(&rt, &volume, 9, 4).await;
    volume.close().await.expect("no disk fails");
    learned(&volume)
}

/// The knowledge of the policy right after an opening.
async fn found(_: World, volume: Sim) -> Learned {
    learned(&volume)
}

#[test]
fn learned_state_survives_restart() {
    let mut rig = Rig::new(|_| ());
    let fresh = rig.life(found);
    let known = rig.life(heat_and_close);
    assert!(!alike(&known, &fresh), "{known:?}");
    assert!(alike(&rig.life(found), &known));
}

#[test]
fn power_cut_loses_only_recently_learned_state() {
    let mut rig = Rig::new(|_| ());
    let (saved, lost) = rig.life(async |rt: World, volume: Sim| {
        heat(&rt, &volume, 9, 4).await;
        rt.sleep(Nanos::from_secs(301)).await;
        // Without load nothing has changed since the state was written.
        let saved = learned(&volume);
        (saved, heat(&rt, &volume, 9, 12).await)
    });
    rig.cut_power();
    let found = rig.life(found);
    assert!(alike(&found, &saved) && !alike(&found, &lost), "{found:?} {saved:?} {lost:?}");
}

#[test]
fn power_cut_during_shutdown_leaves_old_or_new_state() {
    let two_lives = |cut: u64| {
        let mut rig = Rig::new(|_| ());
        let before = rig.life(heat_and_close);
        let after = rig.life_until_cut(async move |rt: World, volume: Sim| {
            heat(&rt, &volume, 9, 12).await;
            rt.power().cut_at(rt.power().points() + cut);
            volume.close().await.unwrap();
            learned(&volume)
        });
        rig.cut_power();
        (before, after, rig.life(found))
    };
    let (before, after, _) = two_lives(1_000_000);
    let after = after.expect("a shutdown is shorter");
    assert!(!alike(&before, &after));
    let (mut old, mut new) = (0, 0);
    for cut in 1.. {
        let (_, closed, found) = two_lives(cut);
        match (alike(&found, &before), alike(&found, &after)) {
            (true, _) => old += 1,
            (_, true) => new += 1,
            _ => panic!("cut at {cut}: {found:?}, neither {before:?} nor {after:?}"),
        }
        if closed.is_some() {
            break;
        }
    }
    assert!(old > 10 && new > 10, "{old} {new}");
}

#[test]
fn damaged_state_falls_back_to_older_or_fresh_state() {
    let mut rig = Rig::new(|_| ());
    let fresh = rig.life(found);
    let first = rig.life(heat_and_close);
    let second = rig.life(async |rt, volume| {
        heat(&rt, &volume, 9, 12).await;
        volume.close().await.unwrap();
        learned(&volume)
    });
    assert!(!alike(&first, &second));
    assert_eq!(rig.sequences(0), [Some(2), Some(1)]);
    rig.rot(0);
    assert!(alike(&rig.life(found), &first));
    rig.rot(1);
    assert!(alike(&rig.life(found), &fresh));
    // The next state takes the place of the rotten halves.
    let third = rig.life(heat_and_close);
    assert!(alike(&rig.life(found), &third));
}

#[test]
fn state_survives_new_settings_but_not_new_policy() {
    let mut rig = Rig::new(|_| ());
    let known = rig.life(heat_and_close);
    let (kept, changed) = rig.life(async |_, volume| {
        volume.set_policy("wardrop,beta=50").await.unwrap();
        let kept = learned(&volume);
        volume.set_policy("ssd-first").await.unwrap();
        volume.set_policy("wardrop").await.unwrap();
        volume.close().await.unwrap();
        (kept, learned(&volume))
    });
    assert!(alike(&kept, &known) && !alike(&changed, &known), "{kept:?} {changed:?}");
    assert!(alike(&rig.life(found), &changed));
}

#[test]
fn each_of_two_copies_is_enough() {
    for missing in 0..2 {
        let mut rig = Rig::new(|options| options.copies = 2);
        let known = rig.life(heat_and_close);
        assert_eq!([0, 1].map(|device| rig.sequences(device)), [[None, Some(1)]; 2]);
        rig.disks.remove(missing);
        assert!(alike(&rig.life(found), &known), "without disk {missing}");
    }
}

#[test]
fn policy_without_learned_state_writes_nothing() {
    let mut rig = Rig::new(|options| options.policy = "stripe".to_owned());
    rig.life(async |rt: World, volume: Sim| {
        rt.sleep(Nanos::from_secs(1_000)).await;
        volume.close().await.unwrap();
    });
    assert_eq!(rig.sequences(0), [None, None]);
}

#[test]
fn a_volume_on_small_devices_has_no_region_and_begins_anew() {
    let mut rig = Rig::on([DiskOptions::ssd(MIB * 31), DiskOptions::hdd(MIB * 64)], |_| ());
    let fresh = rig.life(found);
    let (known, regions) = rig.life(async |rt, volume: Sim| {
        let regions = volume.superblock().regions;
        (heat_and_close(rt, volume).await, regions)
    });
    assert!(regions.iter().all(|region: &Region| region.kind != RegionKind::PolicyState));
    assert!(!alike(&known, &fresh) && alike(&rig.life(found), &fresh));
}
