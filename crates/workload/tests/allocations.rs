//! Memory: a request allocates nothing, and no setting takes a workload above its bound.

#![allow(unsafe_code)]

use braid_workload::{Load, Step, names, parse};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocator that counts the allocations of this thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system allocator does all the work. The counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        BYTES.with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn workload_requests_do_not_allocate() {
    for about in names() {
        let workload = parse(about.name, 1).expect(about.name);
        match workload.start() {
            Load::Open(mut arrivals) => {
                let before = ALLOCATIONS.get();
                assert_eq!(arrivals.by_ref().take(20_000).count(), 20_000);
                assert_eq!(ALLOCATIONS.get(), before, "{}", about.name);
            }
            Load::Closed(mut clients) => {
                let before = ALLOCATIONS.get();
                let mut made = 0;
                for client in clients.iter_mut() {
                    let steps = client.by_ref().take(20_000);
                    made += steps.filter(|step| matches!(step, Step::Request { .. })).count();
                }
                assert!(made > 1000, "{}: {made} requests", about.name);
                assert_eq!(ALLOCATIONS.get(), before, "{}", about.name);
            }
        }
    }
}

/// Workloads with the largest tables: the limits of clients, files and clusters.
#[test]
fn the_largest_workloads_start_within_half_a_gib_or_are_refused() {
    let mut started = 0;
    for text in [
        "random,clients=65536",
        "hot-cold,clients=65536,span=256TiB,unit=4KiB",
        "netapp-like,clients=65536,files=64MiB",
        "netapp-like,clients=4,files=1TiB",
        "tpcc-like,warehouses=6000",
        "checkpoint,clients=65536,state=1KiB,size=512B",
        "tpch-q1-like,streams=10000,scale=1000",
        "ext3-file-like,file=2TiB,cache=1TiB,clients=64",
        "postmark-like,files=4M,low=1,high=1",
        "postmark-like,files=60,clients=65536,low=1,high=1",
        "postmark-like,files=100K,low=1MB,high=1MB",
        "email-like,mailboxes=1M,filled=100B",
        "email-like,clients=8000,mailboxes=1",
        "postmark-like,files=4M,clients=16,low=1,high=1",
        "email-like,clients=60,mailboxes=1M,filled=1",
        "netapp-like,clients=65536,files=1TiB",
    ] {
        let before = BYTES.get();
        if let Ok(workload) = parse(text, 1) {
            let load = workload.start();
            let mib = (BYTES.get() - before) >> 20;
            assert!(mib <= 512, "{text} takes {mib} MiB");
            drop(load);
            started += 1;
        }
    }
    assert!(started >= 10, "only {started} started");
}
