//! `postmark-like` and `email-like` against the figures at the head of their files.

use crate::measure::{assert_near, of, requests};
use braid_base::{KIB, MIB, Op, Request, Rng};
use braid_workload::{Load, Step, parse};

/// Returns the bytes that the published algorithm reads and writes, from sizes alone: no clusters, no
/// requests.
fn bytes_of_the_algorithm(files: usize, transactions: usize) -> (f64, f64) {
    const LOW: u64 = 4_000;
    const HIGH: u64 = 500_000;
    let mut rng = Rng::new(99);
    let mut sizes: Vec<u64> = (0..files).map(|_| rng.between(LOW, HIGH)).collect();
    let (mut read, mut written) = (0, sizes.iter().sum::<u64>());
    for _ in 0..transactions {
        let at = rng.below(sizes.len() as u64) as usize;
        if rng.chance(0.5) {
            read += sizes[at];
        } else if sizes[at] < HIGH {
            let more = 1 + rng.below(HIGH - sizes[at]);
            (sizes[at], written) = (sizes[at] + more, written + more);
        }
        if rng.chance(0.5) {
            sizes.push(rng.between(LOW, HIGH));
            written += sizes[sizes.len() - 1];
        } else {
            sizes.swap_remove(rng.below(sizes.len() as u64) as usize);
        }
    }
    (read as f64, written as f64)
}

#[test]
fn postmark_like_moves_the_bytes_of_the_algorithm() {
    let all = requests(&parse("postmark-like,attributes=0%", 1).expect("sound"), usize::MAX);
    let sum = |op: Op, part: &[(_, _, Request)]| -> f64 {
        part.iter().filter(|(_, _, r)| r.op == op).map(|(_, _, r)| r.len.0 as f64).sum()
    };
    // Reads begin after the creation of all files. A file takes half a cluster more than its length. An
    // append also writes half a cluster more.
    let first_read = all.iter().position(|(_, _, r)| r.op == Op::Read).expect("files are read");
    assert_near("bytes at the start", sum(Op::Write, &all[..first_read]), 10_000.0 * (252e3 + 2048.0), 0.02);
    let (read, written) = bytes_of_the_algorithm(10_000, 50_000);
    assert_near("bytes read", sum(Op::Read, &all), read + 25_000.0 * 2048.0, 0.02);
    assert_near("bytes written", sum(Op::Write, &all), written + 60_000.0 * 2048.0, 0.02);
}

#[test]
fn all_space_is_discarded_at_the_end_if_requested() {
    let all = requests(
        &parse("postmark-like,files=50,transactions=500,discard=yes", 1).expect("sound"),
        usize::MAX,
    );
    let mut used = std::collections::BTreeSet::new();
    for (_, _, request) in all.iter().filter(|(_, _, r)| r.offset >= KIB * 28) {
        let clusters = request.offset / (KIB * 4)..(request.offset + request.len) / (KIB * 4);
        match request.op {
            Op::Write => used.extend(clusters),
            Op::Discard => {
                clusters.for_each(|cluster| assert!(used.remove(&cluster), "{cluster} was not in use"))
            }
            Op::Read => {
                clusters.for_each(|cluster| assert!(used.contains(&cluster), "{cluster} was never written"))
            }
            Op::Flush => {}
        }
    }
    assert!(used.is_empty(), "{} clusters are left", used.len());
}

#[test]
fn postmark_like_reads_in_large_pieces_while_the_disk_is_fresh() {
    let all = requests(
        &parse("postmark-like,files=2000,transactions=10K,attributes=0%", 1).expect("sound"),
        30_000,
    );
    let f = of(&all);
    assert!(f.mean > 64e3 && f.sequential > 0.4, "{f:?}");
}

#[test]
fn email_like_is_mostly_small_synchronous_writes() {
    let workload = parse("email-like,transactions=20K", 1).expect("sound");
    let all = requests(&workload, usize::MAX);
    let f = of(&all);
    // A delivery is data, journal and flush. 86 % of transactions deliver or rewrite.
    assert_near("flushes", f.flushes, 20_000.0 * 0.86, 0.02);
    // A reading takes two or three pieces, and is rare.
    assert!(f.read < 0.22, "{f:?}");
    let small = all.iter().filter(|(_, _, r)| r.op == Op::Write && r.len <= KIB * 16).count() as f64;
    let writes = all.iter().filter(|(_, _, r)| r.op == Op::Write).count() as f64;
    assert!(small / writes > 0.9, "{} of writes are small", small / writes);
    // The data takes 125 MiB at the start, and grows.
    assert!((MIB * 280..MIB * 340).contains(&workload.span()), "{}", workload.span());
}

#[test]
fn every_delivery_is_flushed_before_the_next() {
    let all =
        requests(&parse("email-like,read=0%,rewrite=0%,transactions=2000", 1).expect("sound"), usize::MAX);
    let journal = all.iter().filter(|(_, _, r)| r.op == Op::Write && r.offset < MIB * 32);
    let flushes = all.iter().filter(|(_, _, r)| r.op == Op::Flush).count();
    assert_eq!(journal.count(), flushes);
    let after_flush = all.windows(2).filter(|w| w[1].2.op == Op::Flush && w[0].2.offset < MIB * 32).count();
    assert_eq!(after_flush, flushes);
}

/// The bytes are bytes of files, with any share answered by memory. The creation and deletion of all files
/// are not transactions.
#[test]
fn postmark_like_counts_transactions() {
    let (read, written) = bytes_of_the_algorithm(2_000, 20_000);
    let created = 2_000.0 * 252e3;
    for cached in ["0%", "90%"] {
        let text = format!("postmark-like,files=2000,transactions=20K,cached={cached}");
        let Load::Closed(clients) = parse(&text, 1).expect("sound").start() else { panic!("closed") };
        let steps: Vec<Step> = clients.into_iter().flatten().collect();
        let begin = steps.iter().position(|step| matches!(step, Step::Pause(_))).expect("it begins");
        let bytes = |step: &Step| match step {
            Step::Operation { bytes, .. } => Some(bytes.0 as f64),
            _ => None,
        };
        assert_eq!(steps[..begin].iter().filter_map(bytes).count(), 0);
        assert_eq!(steps.iter().filter_map(bytes).count(), 20_000);
        assert_near("bytes", steps.iter().filter_map(bytes).sum(), read + written - created, 0.02);
    }
}
