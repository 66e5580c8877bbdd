//! Extents that were new while a device of a mirror was lost have one copy. On the return of the device their
//! second copies are made, and until then no move takes the only copy to the device: it may be lost again.

use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::rig::{bench, filled, make, options};
use crate::toy_policies::{HDD, SSD};
use braid_base::{Bytes, ExtentId, KIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::DeviceState;
use braid_policy::{Move, Occasion, Placement, Plan, Policy, View};
use braid_runtime::Runtime;

/// Extents that the guest writes.
const EXTENTS: u32 = 16;

/// Wants every extent on the disk, at once.
struct Eager;

impl Policy for Eager {
    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::on(SSD)
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let migrate = |extent| Move::Migrate { extent: ExtentId(extent), target: HDD };
        plan.moves.extend((0..EXTENTS).map(migrate));
        view.now + Nanos::from_millis(1)
    }

    fn name(&self) -> &'static str {
        "eager"
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "the disk is preferred".to_owned()
    }
}

#[test]
fn only_copy_stays_on_the_survivor_until_it_has_a_second() {
    for seed in 0..8 {
        let bench = bench(4_100 + seed);
        let (world, devices, arena) = (bench.world.clone(), bench.devices(), bench.arena.clone());
        let (disk, faults) = (bench.disks[HDD.index()].clone(), bench.faults[HDD.index()].clone());
        bench.run(async move {
            let volume = make(world.clone(), devices, &CreateOptions { copies: 2, ..options(1) }).await;
            volume.replace_policy(Box::new(Eager));
            faults.vanish();
            let bytes = filled(&arena, KIB * 128, 7);
            for extent in 0..u64::from(EXTENTS) {
                volume.write(KIB * 128 * extent, &bytes, Durability::Fua).await.expect("the SSD has it");
            }
            assert_eq!(state(&volume, HDD.index()), DeviceState::Failed);
            volume.return_device(plugged_in(&world, &disk), "the disk").await.expect("it is back");
            let mut alone = EXTENTS;
            for _ in 0..60_000 {
                alone = 0;
                for extent in 0..u64::from(EXTENTS) {
                    let place = volume.explain(KIB * 128 * extent).expect("within the volume");
                    let home = place.home.expect("written").0;
                    alone += u32::from(place.second.is_none());
                    let on_ssd = home == SSD || place.second.is_some_and(|(device, ..)| device == SSD);
                    assert!(on_ssd, "seed {seed}: extent {extent} left the survivor");
                }
                assert!(volume.status().behind >= KIB * 128 * u64::from(alone), "{alone} extents are behind");
                if alone == 0 {
                    break;
                }
                world.sleep(Nanos::from_millis(1)).await;
            }
            assert_eq!(alone, 0, "second copies are made within a minute");
            wait_until_active(&world, &volume, HDD.index()).await;
            assert_eq!(volume.status().behind, Bytes::ZERO);
            volume.close().await.expect("the volume closes");
        });
    }
}
