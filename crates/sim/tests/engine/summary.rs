//! Maps of several groups of pages, with a summary of the written groups.

use super::{fail, run};
use crate::campaigns;
use crate::engine_subject::{Engine, campaign};
use braid_sim::Errors;

/// The first page of a group is written with the whole group, then the summary records the group, then the
/// journal forgets. A power cut at any instant in between loses nothing flushed.
#[test]
fn a_power_cut_at_any_moment_of_a_first_checkpoint_loses_nothing_flushed() {
    let test = "summary::a_power_cut_at_any_moment_of_a_first_checkpoint_loses_nothing_flushed";
    for copies in [1, 2] {
        let engine = Engine { copies, ..Engine::of_large_map() };
        let (mut campaign, engine) = campaigns::checkpoints(test, 1, engine);
        // Each state costs a read of 3 MiB in extents of 4 KiB.
        campaign.states.every *= 4;
        run(&campaign, &engine);
    }
}

#[test]
fn a_map_with_a_summary_on_disks_that_fail_loses_nothing_that_a_flush_promised() {
    let test = "summary::a_map_with_a_summary_on_disks_that_fail_loses_nothing_that_a_flush_promised";
    for (name, copies) in [("summary", 1), ("summary-of-two-copies", 2)] {
        let mut campaign = campaign(name, test, 6);
        campaign.states.every = 120;
        fail(&mut campaign, Errors::Tolerated);
        run(&campaign, &Engine { copies, ..Engine::of_large_map() });
    }
}
