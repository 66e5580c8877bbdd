//! A mirror with a read cache on a third device. The home's device fails a flush and is failed. From then on
//! clean extra copies of extents with their home on the device do not count. The copies must not count again
//! later if a write bypassed them.

use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::rig::{Rig, filled, holds, make, options, sound_one};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::DeviceState;
use braid_policy::{DeviceView, Home, Move, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, World};
use std::cell::RefCell;
use std::rc::Rc;

const HOME: DeviceId = DeviceId(0);
const SECOND: DeviceId = DeviceId(1);
const CACHE: DeviceId = DeviceId(2);
const BLOCK: Bytes = Bytes(4 << 10);

/// A policy with fixed devices for homes and second copies. Reads make extra copies. A test names the moves.
#[derive(Clone, Default)]
struct Told {
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => {
                Placement { home: Home::On(HOME), second: Second::Sync(SECOND), extra: None }
            }
            Occasion::ReadMiss(_) => Placement::cached(Some(CACHE)),
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == CACHE { device.slots / 2 } else { 0 }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

struct Mirror {
    world: World,
    arena: Arena,
    disks: Vec<Disk>,
    volume: Rig,
    told: Told,
}

impl Mirror {
    async fn write(&self, at: Bytes, len: Bytes, value: u8) {
        let bytes = filled(&self.arena, len, value);
        self.volume.write(at, &bytes, Durability::Volatile).await.expect("the mirror goes on");
    }

    async fn holds(&self, at: Bytes, value: u8) -> bool {
        holds(&self.volume, &self.arena, at, BLOCK, value).await.expect("the mirror goes on")
    }

    async fn sleep(&self, millis: u64) {
        self.world.sleep(Nanos::from_millis(millis)).await;
    }

    /// The home's device fails a flush. Then a block is read, receives an extra copy, and is written.
    async fn write_past_an_extra(&self) {
        self.write(Bytes::ZERO, MIB, 1).await;
        self.volume.flush().await.expect("the devices are sound");
        self.disks[HOME.index()].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        // The flush of the map, not of the journal.
        self.volume.checkpoint().await.expect("the mirror goes on");
        assert_eq!(state(&self.volume, HOME.index()), DeviceState::Failed);
        assert!(self.holds(Bytes::ZERO, 1).await);
        self.sleep(100).await;
        assert!(self.volume.status().extra_blocks.0 > 0, "what was read has an extra copy");
        self.write(Bytes::ZERO, BLOCK, 2).await;
        assert!(self.holds(Bytes::ZERO, 2).await);
    }
}

fn on_mirror(test: impl AsyncFn(Mirror) + Copy + 'static) {
    for seed in 0..4 {
        let world = World::new(seed);
        let rt = world.clone();
        world.block_on(async move {
            let ssd = || Disk::new(&rt, DiskOptions::ssd(MIB * 8));
            let disks = vec![ssd(), Disk::new(&rt, DiskOptions::hdd(MIB * 8)), ssd()];
            let made = CreateOptions {
                copies: 2,
                policy: "ssd-first,cache=60%".to_owned(),
                extent_size: KIB * 128,
                ..options(seed as u8)
            };
            let devices = disks.iter().map(sound_one).collect();
            let volume = make(rt.clone(), devices, &made).await;
            let told = Told::default();
            volume.replace_policy(Box::new(told.clone()));
            test(Mirror { world: rt, arena: Arena::new(MIB * 4), disks, volume, told }).await;
        });
        world.halt();
    }
}

/// The write neither updated nor dropped the hidden copy. After the return of the device, guests read the
/// older bytes of the cache.
#[test]
fn the_return_of_the_homes_device_brings_no_older_cached_bytes() {
    on_mirror(async |mirror| {
        mirror.write_past_an_extra().await;
        mirror.disks[HOME.index()].faults().set(FaultPlan::default());
        let back = plugged_in(&mirror.world, &mirror.disks[HOME.index()]);
        mirror.volume.return_device(back, "it").await.expect("the device is sound again");
        assert!(mirror.holds(Bytes::ZERO, 2).await, "while the device is brought up to date");
        wait_until_active(&mirror.world, &mirror.volume, HOME.index()).await;
        assert!(mirror.holds(Bytes::ZERO, 2).await, "once the device is up to date");
        mirror.volume.audit().await.expect("all copies are alike");
    });
}

/// The same when the home moved away from the failed device.
#[test]
fn migration_off_failed_device_revives_no_stale_copies() {
    on_mirror(async |mirror| {
        mirror.write_past_an_extra().await;
        mirror.told.moves.borrow_mut().push(Move::Migrate { extent: ExtentId(0), target: CACHE });
        mirror.sleep(1000).await;
        let home = mirror.volume.explain(Bytes::ZERO).expect("the extent exists").home;
        assert_eq!(home.map(|(device, ..)| device), Some(CACHE));
        assert!(mirror.holds(Bytes::ZERO, 2).await);
        mirror.volume.audit().await.expect("all copies are alike");
    });
}
