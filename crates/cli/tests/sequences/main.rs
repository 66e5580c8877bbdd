//! Random sequences of the whole program: volumes are created, served, written and killed; files are renamed,
//! swapped, lost, copied and restored; the state directory is lost or old; devices are added and removed. A
//! model predicts the volumes that must be served, and the values of each block.
//!
//! `BRAID_SEQUENCES=n` runs `n` sequences, from seed `BRAID_SEQUENCE_SEED` on. A failing sequence is
//! shortened, and printed with its commands. `BRAID_SEQUENCE='mirror; serve v- 0; …'` repeats a printed
//! sequence, and `BRAID_SEQUENCE=seed` the sequence of a seed. `BRAID_SEQUENCE_BINARY=path` selects another
//! `braid`.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod blocks;
mod client;
mod host;
mod opening;
mod plan;
mod state;
mod volume;
mod world;

use plan::Plan;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use world::{Counts, World};

/// Number of sequences in `make test`.
const USUAL: u64 = 120;

/// Sequences that failed once, shortened.
const FOUND: &[&str] = &[
    // Files in shared memory were taken for block devices, and not found under another name.
    "ssd-first; swap ma 0; serve w- 0; serve v- 0",
    "cache; save-state v- 0; serve v- 0; add v- 1; stop v- 0; load-state v- 0; serve v- 0",
    // A missing device was reported as draining while its removal became durable.
    "three; force v- 0; kill v- 0; away ba 0; serve v- 0; replace v- 19; settle v- 0; stop v- 0",
];

#[test]
fn random_sequences_lose_nothing_and_mostly_serve() {
    if let Ok(text) = std::env::var("BRAID_SEQUENCE") {
        let plan = match text.parse() {
            Ok(seed) => Plan::draw(seed),
            Err(_) => text.parse().unwrap(),
        };
        let (outcome, world) = run(&plan);
        println!("{plan}\n{}", world.map(|world| world.host.script.join("\n")).unwrap_or_default());
        outcome.unwrap_or_else(|fault| panic!("{fault}"));
        return;
    }
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, count) = (number("BRAID_SEQUENCE_SEED", 1), number("BRAID_SEQUENCES", USUAL));
    let (next, begun) = (AtomicU64::new(first), Instant::now());
    let all = Mutex::new((Counts::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 * std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || all.lock().unwrap().1.len() >= MOST_FAILURES {
                        return;
                    }
                    let (outcome, world) = run(&Plan::draw(seed));
                    let counts = world.map(|world| world.counts).unwrap_or_default();
                    let failure = outcome.err().map(|fault| shorten(seed, fault));
                    let mut all = all.lock().unwrap();
                    all.0.add(counts);
                    if let Some(failure) = failure {
                        println!("{failure}\n");
                        all.1.push(seed);
                    }
                }
            });
        }
    });
    let (counts, failed) = all.into_inner().unwrap();
    println!("{count} sequences in {} s: {counts:?}", begun.elapsed().as_secs());
    assert!(failed.is_empty(), "seeds {failed:?} failed");
    assert!(counts.served * 3 > counts.refused * 4, "most volumes are not served: {counts:?}");
}

#[test]
fn formerly_failing_sequences_pass() {
    for text in FOUND {
        run(&text.parse().unwrap()).0.unwrap_or_else(|fault| panic!("{text}: {fault}"));
    }
}

#[test]
fn printed_sequence_parses_to_the_same_plan() {
    for seed in 0..200 {
        let plan = Plan::draw(seed);
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }
}

/// Number of failing sequences after which no further sequence starts.
const MOST_FAILURES: usize = 4;

fn run(plan: &Plan) -> (Result<(), String>, Option<World>) {
    match World::new(plan.kind) {
        Ok(mut world) => (world.run(plan), Some(world)),
        Err(fault) => (Err(fault), None),
    }
}

/// Removes steps while the sequence still fails in the same way. Returns the shortened sequence and its
/// commands.
fn shorten(seed: u64, fault: String) -> String {
    let mut plan = Plan::draw(seed);
    let same = |one: &str, other: &str| one.split_whitespace().take(4).eq(other.split_whitespace().take(4));
    let mut left = plan.steps.len();
    while left > 0 {
        left -= 1;
        let mut shorter = plan.clone();
        shorter.steps.remove(left);
        if run(&shorter).0.is_err_and(|found| same(&found, &fault)) {
            plan = shorter;
        }
    }
    let (outcome, world) = run(&plan);
    let again = outcome.err().unwrap_or_else(|| "it passed the last time".into());
    let script = world.map(|world| world.host.script.join("\n")).unwrap_or_default();
    format!(
        "seed {seed} failed: {fault}\n\nshortened: {again}\n{script}\n\nto run it again:\n\
         BRAID_SEQUENCE='{plan}' cargo test --workspace --test sequences random -- --nocapture"
    )
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.served += other.served;
        self.refused += other.refused;
        self.verified += other.verified;
        self.errors += other.errors;
        self.recovered += other.recovered;
    }
}
