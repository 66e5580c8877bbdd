//! The systems as published in their papers, without Braid's default additions.

use super::{dirty, run, run_behind};
use crate::engine_subject::{Engine, campaign};

/// Nothing bounds the lag, no gap is written, and ranges stay in the window until the window is full.
#[test]
fn a_mirror_that_is_behind_without_a_bound_loses_nothing_flushed() {
    let test = "published::a_mirror_that_is_behind_without_a_bound_loses_nothing_flushed";
    run_behind(campaign("pass-published", test, 7), "pass,as-published,window=64KiB,threshold=2,base=100us");
}

/// Blocks stay dirty until the purge, and all of the tier is assigned.
#[test]
fn tier_and_cache_that_write_back_at_purge_lose_nothing_flushed() {
    let test = "published::tier_and_cache_that_write_back_at_purge_lose_nothing_flushed";
    let mut campaign = dirty(campaign("exclusive-published", test, 4));
    campaign.states.go_on = 0.5;
    let policy = "exclusive,as-published,cache=40%,page=64KiB,period=15ms,rate=100MB".to_owned();
    run(&campaign, &Engine { policy, cache_extents: 2, ..Engine::wardrop() });
}
