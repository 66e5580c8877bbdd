//! The systems as published in their papers, without Braid's default additions.

use super::{dirty, run, run_behind};
use crate::engine_subject::{Engine, campaign};

/// Nothing bounds the lag, no gap is written, and ranges stay in the window until the window is full.
#[test]
fn published_pass_keeps_flushed_data() {
    let test = "published::published_pass_keeps_flushed_data";
    run_behind(campaign("pass-published", test, 4), "pass,as-published,window=64KiB,threshold=2,base=100us");
}

/// Blocks stay dirty until the purge, and all of the tier is assigned.
#[test]
fn published_exclusive_keeps_flushed_data() {
    let test = "published::published_exclusive_keeps_flushed_data";
    let mut campaign = dirty(campaign("exclusive-published", test, 2));
    campaign.states.go_on = 0.5;
    let policy = "exclusive,as-published,cache=40%,page=64KiB,period=15ms,rate=100MB".to_owned();
    run(&campaign, &Engine { policy, cache_extents: 2, ..Engine::wardrop() });
}
