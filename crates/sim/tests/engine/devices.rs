//! Devices that are missing in turn, given in another order, or twice; an adopted disk without its SSD.

use super::run;
use crate::campaigns;
use crate::engine_subject::Engine;

/// A device used to count as current before its map image was current. The campaign with always the same
/// device missing did not find the bug.
#[test]
fn a_device_that_came_back_serves_alone_when_another_goes() {
    let test = "devices::a_device_that_came_back_serves_alone_when_another_goes";
    let (campaign, engine) = campaigns::in_turn(test, 12);
    run(&campaign, &engine);
}

#[test]
fn two_devices_that_fail_or_are_missing_in_turn_lose_nothing_that_a_flush_promised() {
    let test = "devices::two_devices_that_fail_or_are_missing_in_turn_lose_nothing_that_a_flush_promised";
    let (campaign, engine) = campaigns::in_turn_of_two(test, 14);
    run(&campaign, &engine);
}

/// Map pages in the double-write area were written to their places without a flush of the area. On one disk
/// a page was torn in both places, and the other disk was missing.
#[test]
fn a_device_that_is_missing_after_a_checkpoint_was_cut_costs_no_page_of_the_map() {
    let test = "devices::a_device_that_is_missing_after_a_checkpoint_was_cut_costs_no_page_of_the_map";
    let (campaign, engine) = campaigns::in_turn_of_two_torn(test, 4);
    run(&campaign, &engine);
}

#[test]
fn three_devices_that_are_missing_in_turn_lose_nothing_that_a_flush_promised() {
    let test = "devices::three_devices_that_are_missing_in_turn_lose_nothing_that_a_flush_promised";
    let (campaign, engine) = campaigns::in_turn_of_three(test, 10);
    run(&campaign, &engine);
}

#[test]
fn devices_in_any_order_are_the_volume_and_a_copy_beside_one_is_refused() {
    let test = "devices::devices_in_any_order_are_the_volume_and_a_copy_beside_one_is_refused";
    for copies in [1, 2] {
        let (campaign, engine) = campaigns::clones(test, 5, copies);
        run(&campaign, &engine);
    }
}

#[test]
fn an_old_copy_of_one_of_two_devices_is_refused_or_brought_up_to_date() {
    let test = "devices::an_old_copy_of_one_of_two_devices_is_refused_or_brought_up_to_date";
    let (campaign, engine) = campaigns::old_copies(test, 5);
    run(&campaign, &engine);
}

#[test]
fn an_adopted_disk_without_its_ssd_lacks_nothing_that_was_flushed_or_is_refused() {
    let test = "devices::an_adopted_disk_without_its_ssd_lacks_nothing_that_was_flushed_or_is_refused";
    for engine in [Engine::write_back(), Engine::read_cache()] {
        let (campaign, engine) = campaigns::adopted_in_turn(test, 2, engine);
        run(&campaign, &engine);
    }
}
