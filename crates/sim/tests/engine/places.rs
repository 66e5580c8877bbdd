//! Bad places, failing discards, devices that stall under a cache, checkpoint after checkpoint, and very
//! large extents.

use super::run;
use crate::campaigns;
use crate::engine_subject::Engine;

/// A power cut tore a map page both in the double-write area and in the image, so that no copy survived.
#[test]
fn power_cut_during_checkpoint_keeps_flushed_data() {
    let test = "places::power_cut_during_checkpoint_keeps_flushed_data";
    for engine in [Engine { copies: 2, ..Engine::wardrop() }, Engine::write_back(), Engine::read_cache()] {
        let (mut campaign, engine) = campaigns::checkpoints(test, 1, engine);
        campaign.states.every *= 20;
        run(&campaign, &engine);
    }
}

#[test]
fn temporarily_bad_metadata_region_keeps_flushed_data() {
    let test = "places::temporarily_bad_metadata_region_keeps_flushed_data";
    for copies in [1, 2] {
        let (campaign, engine) = campaigns::bad_regions(test, 1, copies);
        run(&campaign, &engine);
    }
}

#[test]
fn failed_or_hung_discards_keep_flushed_data() {
    let test = "places::failed_or_hung_discards_keep_flushed_data";
    for copies in [1, 2] {
        let (campaign, engine) = campaigns::discards(test, 1, copies);
        run(&campaign, &engine);
    }
}

#[test]
fn cache_on_stalling_devices_keeps_flushed_data() {
    let test = "places::cache_on_stalling_devices_keeps_flushed_data";
    for engine in [Engine::write_back(), Engine::read_cache(), Engine::hystor()] {
        let (campaign, engine) = campaigns::stalled_caches(test, 1, engine);
        run(&campaign, &engine);
    }
}

/// Only in this campaign guests leave a span idle until the span is called clean.
#[test]
fn idle_mirror_keeps_flushed_data() {
    let test = "places::idle_mirror_keeps_flushed_data";
    let (campaign, engine) = campaigns::idle_spans(test, 3);
    run(&campaign, &engine);
}

/// The stale spans of a missing or failed disk are not forgotten when the spans are called clean.
#[test]
fn idle_mirror_without_one_disk_keeps_flushed_data() {
    let test = "places::idle_mirror_without_one_disk_keeps_flushed_data";
    let (campaign, engine) = campaigns::idle_spans_in_turn(test, 4);
    run(&campaign, &engine);
}

#[test]
fn huge_extents_keep_flushed_data() {
    let test = "places::huge_extents_keep_flushed_data";
    for engine in [Engine::wardrop(), Engine::write_back(), Engine { copies: 2, ..Engine::wardrop() }] {
        let (campaign, engine) = campaigns::huge_extents(test, 1, engine);
        run(&campaign, &engine);
    }
}
