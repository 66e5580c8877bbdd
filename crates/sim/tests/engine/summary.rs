//! Maps of several groups of pages, with a summary of the written groups.

use super::{fail, run};
use crate::campaigns;
use crate::engine_subject::{Engine, campaign};
use braid_sim::Errors;

/// The first page of a group is written with the whole group, then the summary records the group, then the
/// journal forgets. A power cut at any instant in between loses nothing flushed.
#[test]
fn power_cut_during_first_checkpoint_keeps_flushed_data() {
    let test = "summary::power_cut_during_first_checkpoint_keeps_flushed_data";
    for copies in [1, 2] {
        let engine = Engine { copies, ..Engine::of_large_map() };
        let (mut campaign, engine) = campaigns::checkpoints(test, 1, engine);
        // Each state costs a read of 3 MiB in extents of 4 KiB.
        campaign.states.every *= 8;
        run(&campaign, &engine);
    }
}

#[test]
fn summarized_map_on_failing_disks_keeps_flushed_data() {
    let test = "summary::summarized_map_on_failing_disks_keeps_flushed_data";
    for (name, copies) in [("summary", 1), ("summary-of-two-copies", 2)] {
        let mut campaign = campaign(name, test, 6);
        campaign.states.every = 120;
        fail(&mut campaign, Errors::Tolerated);
        run(&campaign, &Engine { copies, ..Engine::of_large_map() });
    }
}
