//! Devices that are missing in turn, given in another order, or twice; an adopted disk without its SSD.

use super::run;
use crate::campaigns;
use crate::engine_subject::{Engine, campaign};
use braid_sim::Disturbance;

/// A device used to count as current before its map image was current. The campaign with always the same
/// device missing did not find the bug.
#[test]
fn returned_device_serves_alone_when_devices_alternate() {
    let test = "devices::returned_device_serves_alone_when_devices_alternate";
    let (campaign, engine) = campaigns::in_turn(test, 6);
    run(&campaign, &engine);
}

#[test]
fn two_devices_failing_in_turn_keep_flushed_data() {
    let test = "devices::two_devices_failing_in_turn_keep_flushed_data";
    let (campaign, engine) = campaigns::in_turn_of_two(test, 7);
    run(&campaign, &engine);
}

/// Map pages in the double-write area were written to their places without a flush of the area. On one disk
/// a page was torn in both places, and the other disk was missing.
#[test]
fn torn_checkpoint_and_missing_device_lose_no_map_page() {
    let test = "devices::torn_checkpoint_and_missing_device_lose_no_map_page";
    let (campaign, engine) = campaigns::in_turn_of_two_torn(test, 2);
    run(&campaign, &engine);
}

#[test]
fn three_devices_missing_in_turn_keep_flushed_data() {
    let test = "devices::three_devices_missing_in_turn_keep_flushed_data";
    let (campaign, engine) = campaigns::in_turn_of_three(test, 5);
    run(&campaign, &engine);
}

#[test]
fn device_order_is_free_and_cloned_device_is_refused() {
    let test = "devices::device_order_is_free_and_cloned_device_is_refused";
    for copies in [1, 2] {
        let (campaign, engine) = campaigns::clones(test, 3, copies);
        run(&campaign, &engine);
    }
}

#[test]
fn outdated_device_copy_is_refused_or_resynced() {
    let test = "devices::outdated_device_copy_is_refused_or_resynced";
    let (campaign, engine) = campaigns::old_copies(test, 3);
    run(&campaign, &engine);
}

#[test]
fn adopted_disk_without_ssd_is_complete_or_refused() {
    let test = "devices::adopted_disk_without_ssd_is_complete_or_refused";
    for engine in [Engine::write_back(), Engine::read_cache()] {
        let (campaign, engine) = campaigns::adopted_in_turn(test, 1, engine);
        run(&campaign, &engine);
    }
}

/// A device that missed one opening holds older bytes than the other devices know of.
#[test]
fn an_old_copy_of_a_device_is_refused() {
    let mut campaign = campaign("stale", "devices::an_old_copy_of_a_device_is_refused", 6);
    campaign.setup.disturbances = vec![Disturbance::StaleDevice];
    campaign.states.go_on = 1.0;
    run(&campaign, &Engine::wardrop());
}
