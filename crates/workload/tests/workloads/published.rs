//! IOmeter's access specifications, TPC-H's scan, the parallel program and the large file, against the tables
//! at the head of their files.

use crate::measure::{assert_near, figures, requests};
use braid_base::{Bytes, GIB, KIB, MIB, Nanos, Op};
use braid_workload::{Load, Step, Workload, parse};

#[test]
fn iometer_specifications_have_published_shares_and_sizes() {
    // Name, share of reads, share of sequential requests, mean size by the table.
    let specs = [
        ("file-server", 0.8, 0.0, 11_366.4),
        ("web-server", 1.0, 0.0, 16_035.8),
        ("workstation", 0.8, 0.2, 8192.0),
        ("database", 0.67, 0.0, 8192.0),
        ("pass-50", 0.5, 0.5, 4096.0),
        ("pass-90", 0.9, 0.5, 4096.0),
    ];
    for (spec, read, sequential, mean) in specs {
        let f = figures(&format!("iometer-like,spec={spec}"), 500_000);
        assert_near(&format!("{spec}: read share"), f.read, read, 0.01);
        assert_near(&format!("{spec}: mean size"), f.mean, mean, 0.015);
        assert!((f.sequential - sequential).abs() < 0.005, "{spec}: {} sequential", f.sequential);
    }
}

#[test]
fn file_server_has_the_published_common_sizes() {
    let all = requests(&parse("iometer-like", 1).expect("sound"), 200_000);
    let share = |len: Bytes| all.iter().filter(|(_, _, r)| r.len == len).count() as f64 / all.len() as f64;
    assert_near("4 KiB", share(KIB * 4), 0.6, 0.02);
    assert_near("64 KiB", share(KIB * 64), 0.1, 0.03);
    assert_near("512 B", share(Bytes(512)), 0.1, 0.03);
}

#[test]
fn a_scan_reads_the_table_once_in_sequence_and_is_bound_by_the_processor() {
    let workload = parse("tpch-q1-like,scans=1", 1).expect("sound");
    let all = requests(&workload, usize::MAX);
    assert_eq!(all.len() as u64, GIB / (KIB * 128));
    assert!(all.iter().all(|(_, _, r)| r.op == Op::Read));
    let in_sequence = all.windows(2).filter(|w| w[0].2.offset + w[0].2.len == w[1].2.offset).count();
    assert_eq!(in_sequence, all.len() - 1);
    let seconds = all.iter().map(|(at, ..)| at.as_secs_f64()).fold(0.0, f64::max);
    assert_near("seconds if devices took no time", seconds, GIB.0 as f64 / 60e6, 0.001);
}

#[test]
fn checkpoint_is_written_whole_before_being_read() {
    for layout in ["own", "shared"] {
        let text = format!("checkpoint,clients=4,state=4MiB,rounds=2,layout={layout}");
        let workload = parse(&text, 1).expect("sound");
        assert!(workload.filled().is_empty() && workload.span() == MIB * 32);
        let all = requests(&workload, usize::MAX);
        assert_eq!(workload.requests(), Some(all.len() as u64));
        // Each round covers one half of the span once by writes, then once by reads.
        for (round, half) in all.chunks(all.len() / 2).enumerate() {
            let first_read = half.iter().position(|(_, _, r)| r.op == Op::Read).expect("a round reads");
            for (part, op) in [(&half[..first_read], Op::Write), (&half[first_read..], Op::Read)] {
                let mut at: Vec<u64> =
                    part.iter().filter(|(_, _, r)| r.op == op).map(|(_, _, r)| r.offset / MIB).collect();
                at.sort_unstable();
                let expected: Vec<u64> = (0..16).map(|piece| piece + 16 * round as u64).collect();
                assert_eq!(at, expected, "{text}: {op:?} of round {round}");
            }
        }
    }
}

#[test]
fn checkpoint_read_order_does_not_depend_on_layout() {
    for (read, apart) in [("order", 1), ("stride", 4)] {
        for layout in ["own", "shared"] {
            let text =
                format!("checkpoint,clients=4,state=3MiB,rounds=1,layout={layout},read={read},wait=5s");
            let Load::Closed(clients) = parse(&text, 1).expect("sound").start() else { panic!("closed") };
            for client in clients {
                let read = |step| match step {
                    Step::Request { request, think } if request.op == Op::Read => {
                        Some((request.offset / MIB, think.as_secs_f64()))
                    }
                    _ => None,
                };
                let reads: Vec<(u64, f64)> = client.filter_map(read).collect();
                assert!(reads.windows(2).all(|pair| pair[0].0 + apart == pair[1].0), "{text}: {reads:?}");
                assert_eq!(
                    reads.iter().map(|(_, wait)| *wait).collect::<Vec<_>>(),
                    [5.0, 0.0, 0.0],
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn processes_of_a_parallel_program_compute_once_a_round() {
    let workload = parse("checkpoint,clients=2,state=2MiB,rounds=3,compute=7s", 1).expect("sound");
    let Load::Closed(clients) = workload.start() else { panic!("closed") };
    for client in clients {
        let thought: f64 = client
            .filter_map(|step| match step {
                Step::Request { think, .. } => Some(think.as_secs_f64()),
                Step::Meet | Step::Operation { .. } | Step::Pause(_) => None,
            })
            .sum();
        assert_near("seconds", thought, 21.0, 0.0);
    }
}

#[test]
fn large_file_reads_include_uncached_indirect_blocks() {
    let run = "ext3-file-like,file=5GiB,read=4MiB";
    let is_metadata =
        |workload: &Workload, offset: Bytes| workload.metadata().iter().any(|range| range.contains(&offset));
    for (clients, cache) in [(1, "1GiB"), (3, "1GiB"), (3, "64KiB")] {
        let workload = parse(&format!("{run},runs=3,clients={clients},cache={cache}"), 7).expect("sound");
        let all = requests(&workload, usize::MAX);
        assert_eq!(workload.requests(), Some(all.len() as u64));
        assert!(all.iter().all(|(_, _, r)| r.op == Op::Read && r.len == KIB * 4));
        let (indirect, data): (Vec<_>, Vec<_>) =
            all.iter().map(|(.., r)| r.offset).partition(|&offset| is_metadata(&workload, offset));
        assert_eq!(data.len(), 3 * 1024);
        // 1,280 blocks of the first level, two of the second and one of the third.
        let places: Bytes = workload.metadata().iter().map(|range| range.end - range.start).sum();
        assert_eq!((places, workload.span()), (KIB * 4 * 1283, GIB * 5 + KIB * 4 * 1283));
        // The last run reads no block twice if memory has room for all.
        let last = &all[workload.unmeasured() as usize..];
        let mut read: Vec<Bytes> =
            last.iter().map(|(.., r)| r.offset).filter(|&o| is_metadata(&workload, o)).collect();
        let count = read.len();
        read.sort_unstable();
        read.dedup();
        assert_eq!(count == read.len(), cache == "1GiB", "{count} reads of {} indirect blocks", read.len());
        assert_eq!(last.len(), count + 1024);
        // Number of the 1,280 blocks on the paths to 1,024 random places.
        assert_near(
            "indirect blocks",
            read.len() as f64,
            1280.0 * (1.0 - (-1024.0_f64 / 1280.0).exp()),
            0.05,
        );
        assert!(indirect.len() >= 3 * read.len() * 9 / 10);
    }
}

#[test]
fn the_way_to_a_place_of_a_large_file_is_read_from_the_highest_level_down() {
    let workload = parse("ext3-file-like,file=1TiB,read=4KiB,runs=2,pause=3s", 1).expect("sound");
    let all = requests(&workload, usize::MAX);
    assert_eq!((all.len(), workload.unmeasured()), (8, 4));
    for run in all.chunks(4) {
        let offset: Vec<Bytes> = run.iter().map(|(.., r)| r.offset).collect();
        assert!(offset.is_sorted(), "each lies before what it points to: {offset:?}");
        let start = |n: usize| workload.metadata().iter().position(|range| range.contains(&offset[n]));
        assert!((0..3).all(|level| start(level).is_some()) && start(3).is_none());
    }
    assert_eq!(all[4].0, Nanos::from_secs(3), "time between the runs");
    assert_ne!(all[3].2.offset, all[7].2.offset, "places of their own");
}
