//! Every target with valid bytes and with bytes damaged by seed.
//!
//! `BRAID_FUZZ_SECONDS=n` goes on for n seconds with seeds never tried before (`make fuzz SECONDS=n`), `BRAID_FUZZ_SEED=n`
//! tries one seed alone.

use braid_base::Rng;
use braid_fuzz::{Target, mutate, target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

fn torture(name: &str) {
    let target = target(name);
    let valid = (target.valid)();
    if let Some(seed) = variable("BRAID_FUZZ_SEED") {
        return attempt(target, &valid, seed);
    }
    valid.iter().for_each(|bytes| (target.run)(bytes));
    let Some(seconds) = variable("BRAID_FUZZ_SECONDS") else {
        return (0..target.tries).for_each(|seed| attempt(target, &valid, seed));
    };
    let start = Instant::now();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is past 1970");
    let first = now.as_nanos() as u64;
    let tries = (first..).take_while(|_| start.elapsed() < Duration::from_secs(seconds));
    println!("{name}: {} inputs", tries.inspect(|&seed| attempt(target, &valid, seed)).count());
}

/// One input; says how to see it again where it fails.
fn attempt(target: &Target, valid: &[Vec<u8>], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut bytes = valid[rng.below(valid.len() as u64) as usize].clone();
    mutate(&mut bytes, &mut rng);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))) {
        let name = target.name;
        eprintln!(
            "replay: BRAID_FUZZ_SEED={seed} cargo test -p braid-fuzz --test mutations {name}\n{bytes:02x?}"
        );
        std::panic::resume_unwind(panic);
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// A test for each target, of the target's name.
macro_rules! targets {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            torture(stringify!($name));
        })*

        #[test]
        fn every_target_has_its_test() {
            let tested = [$(stringify!($name)),*];
            assert!(braid_fuzz::TARGETS.iter().map(|target| target.name).eq(tested));
        }
    };
}

targets!(
    superblock,
    device_table,
    policy_state,
    journal,
    proof,
    map_page,
    intent_page,
    cache_page,
    volume,
    nbd_handshake,
    nbd_request,
    fuse_request,
    quantity,
    policy,
    model,
    trace,
    command_line,
    admin_request
);
