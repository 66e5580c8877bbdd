//! Devices that vanish, so that every request fails: guests meet no error while a copy is left.

use crate::rig::busy::{busy_under, end};
use braid_base::Nanos;
use braid_runtime::Runtime;
use braid_sim::World;

/// A write whose block had a clean extra copy on the SSD failed with the SSD, though both required copies had been written.
#[test]
fn a_cache_that_vanishes_costs_no_guest_an_error() {
    for seed in 0..12 {
        let policy = ["ssd-first,cache=50%", "ssd-first,cache=90%", "cache"][seed as usize % 3];
        let world = World::new(800 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy_under(policy, &rt, seed).await;
            rt.sleep(Nanos::from_secs(5 + seed)).await;
            busy.faults[0].vanish();
            rt.sleep(Nanos::from_secs(20)).await;
            assert_eq!(busy.volume.status().guests.errors, 0);
            end(&rt, busy, &[1, 2]).await;
        });
        world.halt();
    }
}
