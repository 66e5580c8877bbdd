//! The engine against the crash model: power cuts, kills and disturbances, then every byte against the oracle.
//!
//! `BRAID_CRASH_SEEDS=n` runs n seeds of each campaign (`make crash SEEDS=n`).

mod chaos;
mod engine_subject;

use braid_base::KIB;
use braid_sim::{Campaign, Disturbance, Errors, Mix, States};
use engine_subject::{Engine, campaign};

fn run(campaign: &Campaign, engine: &Engine) {
    let asked =
        std::env::var("BRAID_CRASH_SEEDS").ok().map(|n| n.parse().expect("BRAID_CRASH_SEEDS is a number"));
    let seeds = 0..asked.unwrap_or(campaign.seeds.end);
    match (Campaign { seeds, ..campaign.clone() }).run(engine) {
        Ok(report) => println!("campaign {}: {report}", campaign.name),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn wardrop_loses_nothing_flushed() {
    run(&campaign("wardrop", "wardrop_loses_nothing_flushed", 100), &Engine::wardrop());
}

#[test]
fn any_legal_decision_of_a_policy_loses_nothing_flushed() {
    let campaign = campaign("chaos", "any_legal_decision_of_a_policy_loses_nothing_flushed", 100);
    run(&campaign, &Engine { chaos: true, ..Engine::wardrop() });
}

#[test]
fn two_required_copies_lose_nothing_flushed() {
    let campaign = campaign("two-copies", "two_required_copies_lose_nothing_flushed", 80);
    run(&campaign, &Engine { chaos: true, copies: 2, ..Engine::wardrop() });
}

#[test]
fn large_extents_with_small_writes_lose_nothing_flushed() {
    // Parts of 16 KiB: every first write to a part must make zeros of the rest.
    let mut campaign = campaign("large-extents", "large_extents_with_small_writes_lose_nothing_flushed", 60);
    campaign.setup.workload.largest = KIB * 9;
    run(&campaign, &Engine { extent_size: KIB * 256, ..Engine::wardrop() });
}

#[test]
fn a_journal_that_goes_round_many_times_loses_nothing_flushed() {
    let mut campaign = campaign("journal", "a_journal_that_goes_round_many_times_loses_nothing_flushed", 10);
    campaign.states = States { every: 100, ..campaign.states };
    let workload = &mut campaign.setup.workload;
    (workload.requests, workload.largest) = (2_000, KIB * 8);
    workload.mix = Mix { read: 5, write: 20, fua: 30, flush: 40, discard: 15, zero: 0, prefetch: 0 };
    run(&campaign, &Engine { checkpoints: false, ..Engine::wardrop() });
}

#[test]
fn any_configuration_loses_nothing_flushed() {
    let mut campaign = campaign("configurations", "any_configuration_loses_nothing_flushed", 600);
    campaign.setup.disturbances = vec![Disturbance::PolicyChanges];
    run(&campaign, &Engine::random(2));
}

#[test]
fn one_copy_on_disks_that_fail_loses_nothing_that_a_flush_promised() {
    let mut campaign =
        campaign("faults", "one_copy_on_disks_that_fail_loses_nothing_that_a_flush_promised", 100);
    campaign.setup.workload.errors = Errors::Tolerated;
    campaign.setup.disturbances = vec![
        Disturbance::ReadErrors,
        Disturbance::WriteErrors,
        Disturbance::BadSectors,
        Disturbance::FlushErrors,
        Disturbance::LossyFlushes,
        Disturbance::Stalls,
        Disturbance::Hangs,
        Disturbance::Deaths,
    ];
    run(&campaign, &Engine::wardrop());
}
