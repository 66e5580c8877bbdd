//! The baselines of later papers: a cache that leaves hits to the disks, tiers that balance latencies, and a
//! mirrored class beside tiers.

use super::{dirty, run};
use crate::engine_subject::{Engine, campaign};
use braid_sim::{Disturbance, Errors, Mix};

/// A window has a hundred reads, and a share is measured for a millisecond: the cache fills and is tuned
/// several times.
#[test]
fn orthus_keeps_flushed_data() {
    let test = "heirs::orthus_keeps_flushed_data";
    let tuned = "window=10ms,stable=100%,interval=1ms,margin=0%,step=20%,change=100%";
    for (name, mode) in
        [("orthus-through", ""), ("orthus-back", ",mode=write-back,dirty-high=20%,dirty-low=5%")]
    {
        let mut campaign = dirty(campaign(name, test, 1));
        campaign.states.every = 200;
        let workload = &mut campaign.setup.workload;
        workload.requests = 1_000;
        workload.mix = Mix { read: 60, write: 25, fua: 3, flush: 6, discard: 4, zero: 2, prefetch: 0 };
        let policy = format!("orthus,cache=5%,target=latency,{tuned}{mode}");
        run(&campaign, &Engine { policy, cache_extents: 2, ..Engine::wardrop() });
    }
}

#[test]
fn colloid_keeps_flushed_data() {
    let test = "heirs::colloid_keeps_flushed_data";
    let policy = "colloid,round=10ms,weight=1,delta=0,latency=all".to_owned();
    run(&campaign("colloid", test, 6), &Engine { policy, ..Engine::wardrop() });
}

/// The ratio reaches its limit after a round: extents are mirrored, cleaned, and lose their mirrors.
#[test]
fn most_policy_keeps_flushed_data() {
    let test = "heirs::most_policy_keeps_flushed_data";
    for (name, failing) in [("most", false), ("most-failing", true)] {
        let mut campaign = campaign(name, test, 8);
        if failing {
            campaign.setup.workload.errors = Errors::Tolerated;
            campaign.setup.disturbances = Disturbance::OF_FAILING_DISKS.to_vec();
        }
        let policy = "most,round=10ms,weight=1,theta=0,step=30%,offload=30%,mirror=5%,clean=0".to_owned();
        run(&campaign, &Engine { policy, ..Engine::wardrop() });
    }
}
