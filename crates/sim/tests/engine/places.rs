//! Bad places, failing discards, devices that stall under a cache, checkpoint after checkpoint, and very
//! large extents.

use super::run;
use crate::campaigns;
use crate::engine_subject::Engine;

/// A power cut tore a map page both in the double-write area and in the image, so that no copy survived.
#[test]
fn a_power_cut_at_any_moment_of_a_checkpoint_loses_nothing_flushed() {
    let test = "places::a_power_cut_at_any_moment_of_a_checkpoint_loses_nothing_flushed";
    for engine in [Engine { copies: 2, ..Engine::wardrop() }, Engine::write_back(), Engine::read_cache()] {
        let (mut campaign, engine) = campaigns::checkpoints(test, 1, engine);
        campaign.states.every *= 2;
        run(&campaign, &engine);
    }
}

#[test]
fn metadata_that_cannot_be_read_for_a_while_loses_nothing_that_a_flush_promised() {
    let test = "places::metadata_that_cannot_be_read_for_a_while_loses_nothing_that_a_flush_promised";
    for copies in [1, 2] {
        let (campaign, engine) = campaigns::bad_regions(test, 2, copies);
        run(&campaign, &engine);
    }
}

#[test]
fn discards_that_fail_or_hang_lose_nothing_that_a_flush_promised() {
    let test = "places::discards_that_fail_or_hang_lose_nothing_that_a_flush_promised";
    for copies in [1, 2] {
        let (campaign, engine) = campaigns::discards(test, 2, copies);
        run(&campaign, &engine);
    }
}

#[test]
fn devices_that_stall_under_a_cache_lose_nothing_that_a_flush_promised() {
    let test = "places::devices_that_stall_under_a_cache_lose_nothing_that_a_flush_promised";
    for engine in [Engine::write_back(), Engine::read_cache(), Engine::hystor()] {
        let (campaign, engine) = campaigns::stalled_caches(test, 2, engine);
        run(&campaign, &engine);
    }
}

/// Only in this campaign guests leave a span idle until the span is called clean.
#[test]
fn a_mirror_whose_guests_rest_for_long_loses_nothing_flushed() {
    let test = "places::a_mirror_whose_guests_rest_for_long_loses_nothing_flushed";
    let (campaign, engine) = campaigns::idle_spans(test, 6);
    run(&campaign, &engine);
}

/// The stale spans of a missing or failed disk are not forgotten when the spans are called clean.
#[test]
fn a_mirror_whose_guests_rest_while_a_disk_is_away_loses_nothing_that_a_flush_promised() {
    let test = "places::a_mirror_whose_guests_rest_while_a_disk_is_away_loses_nothing_that_a_flush_promised";
    let (campaign, engine) = campaigns::idle_spans_in_turn(test, 8);
    run(&campaign, &engine);
}

#[test]
fn extents_of_thousands_of_blocks_lose_nothing_flushed() {
    let test = "places::extents_of_thousands_of_blocks_lose_nothing_flushed";
    for engine in [Engine::wardrop(), Engine::write_back(), Engine { copies: 2, ..Engine::wardrop() }] {
        let (campaign, engine) = campaigns::huge_extents(test, 2, engine);
        run(&campaign, &engine);
    }
}
