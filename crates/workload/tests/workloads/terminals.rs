//! `tpcc-like` against the figures at the head of its file.

use crate::measure::{assert_near, of, requests};
use braid_base::{MIB, Nanos, Op, Request};
use braid_workload::{Load, Step, parse};

fn run(text: &str) -> Vec<(Nanos, u64, Request)> {
    requests(&parse(text, 1).expect(text), usize::MAX)
}

#[test]
fn new_order_rate_matches_the_terminal_cycles() {
    let all = run("tpcc-like,transactions=100K");
    // A New-Order is recognized by its log record. The last seconds, in which terminals end, do not count.
    let seconds = of(&all).seconds * 0.9;
    let is_new_order = |r: &Request| r.op == Op::Write && r.offset >= MIB * 1000 && r.len.0 == 16 << 10;
    let new_orders = all.iter().filter(|(at, _, r)| at.as_secs_f64() < seconds && is_new_order(r)).count();
    assert_near("New-Orders per minute", new_orders as f64 / seconds * 60.0, 128.6, 0.02);
}

#[test]
fn reads_and_request_sizes_match_published_figures() {
    let f = of(&run("tpcc-like,transactions=100K"));
    assert_near("read share", f.read, 0.626, 0.01);
    assert_near("mean size", f.mean, 8532.0, 0.01);
    assert_near("flushes per transaction", f.flushes, 92_000.0, 0.01);
}

/// PASS, table II: at 30 warehouses the 7200 rpm disk fails. The disk serves 80 to 130 random requests a
/// second.
#[test]
fn thirty_warehouses_are_too_much_for_a_disk_and_twenty_are_not() {
    for (warehouses, low, high) in [(20, 80.0, 100.0), (30, 125.0, 145.0)] {
        let all = run(&format!("tpcc-like,warehouses={warehouses},transactions=50K"));
        let half = of(&all).seconds / 2.0;
        let rate = all.iter().filter(|(at, ..)| at.as_secs_f64() < half).count() as f64 / half;
        let flushes = all.iter().filter(|(at, _, r)| at.as_secs_f64() < half && r.op == Op::Flush).count()
            as f64
            / half;
        assert!(
            (low..high).contains(&(rate - flushes)),
            "{warehouses}: {} requests a second",
            rate - flushes
        );
    }
}

/// From memory of published analyses: 20 % of the pages of stock get about 75 % of the accesses to stock.
#[test]
fn some_stock_pages_are_far_more_popular() {
    let all = run("tpcc-like,warehouses=1,transactions=200K,wait=0,cached=0%");
    let mut counts = vec![0_u64; 3847];
    for (_, _, request) in all.iter().filter(|(_, _, r)| r.op == Op::Read) {
        if let Some(count) = counts.get_mut((request.offset.0 >> 13) as usize) {
            *count += 1;
        }
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let share = counts[..769].iter().sum::<u64>() as f64 / counts.iter().sum::<u64>() as f64;
    println!("share {share}");
    assert!((0.5..0.84).contains(&share), "{share}");
}

#[test]
fn log_is_one_sequence_across_terminals() {
    let all = run("tpcc-like,warehouses=2,transactions=2K");
    let log: Vec<_> = all.iter().filter(|(_, _, r)| r.op == Op::Write && r.offset >= MIB * 200).collect();
    assert!(log.windows(2).all(|w| w[0].2.offset + w[0].2.len == w[1].2.offset));
}

#[test]
fn new_orders_are_counted_from_the_end_of_the_keying_time() {
    let Load::Closed(clients) = parse("tpcc-like,transactions=20K", 1).expect("sound").start() else {
        panic!("closed")
    };
    let (mut operations, mut records) = (0, 0);
    for step in clients.into_iter().flatten() {
        match step {
            Step::Operation { bytes, .. } => {
                operations += 1;
                assert!(bytes.0 >= 16 << 10, "its log record is part of it: {bytes}");
            }
            Step::Request { think, request } => {
                assert_eq!(think, Nanos::ZERO);
                let is_log = request.op == Op::Write && request.offset >= MIB * 1000;
                records += usize::from(is_log && request.len.0 == 16 << 10);
            }
            Step::Pause(_) | Step::Meet => {}
        }
    }
    assert_eq!(operations, records);
    assert!((8_500..9_500).contains(&operations), "{operations}");
}
