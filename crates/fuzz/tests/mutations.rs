//! Every target with valid bytes and with bytes damaged by seed.
//!
//! `BRAID_FUZZ_SECONDS=n` goes on for n seconds with seeds never tried before (`make fuzz SECONDS=n`),
//! `BRAID_FUZZ_SEED=n` tries one seed alone. No input may make its reader hold more than [`MOST_MEMORY`].

#![allow(unsafe_code)]

use braid_base::Rng;
use braid_fuzz::{Target, mutate, target};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

/// What reading one input may hold at the same time: a volume of the target `volume` takes a tenth.
const MOST_MEMORY: isize = 256 << 20;

/// Counts what this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads one input, and panics if that took too much memory.
fn read(target: &Target, bytes: &[u8]) {
    let before = HELD.get();
    PEAK.set(before);
    (target.run)(bytes);
    let peak = PEAK.get() - before;
    assert!(peak <= MOST_MEMORY, "{} held {peak} bytes at once: {MOST_MEMORY} at most", target.name);
}

fn torture(name: &str) {
    let target = target(name);
    let valid = (target.valid)();
    if let Some(seed) = variable("BRAID_FUZZ_SEED") {
        return attempt(target, &valid, seed);
    }
    valid.iter().for_each(|bytes| read(target, bytes));
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
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| read(target, &bytes))) {
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
        fn every_target_has_a_test() {
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
    witness,
    recent_entries,
    epoch_journal,
    map_page,
    map_summary,
    intent_page,
    cache_page,
    dirty_spans,
    pending_log,
    sums,
    volume,
    nbd_handshake,
    nbd_request,
    nbd_server_handshake,
    nbd_reply,
    nbd_tls,
    fuse_request,
    vhost_request,
    ublk_request,
    quantity,
    policy,
    file_systems,
    model,
    trace,
    command_line,
    admin_request
);
