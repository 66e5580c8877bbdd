//! `db2-like` and `webserver-like` against the working-set paper's description of its workloads.

use crate::measure::{assert_near, of, requests};
use braid_base::{Bytes, Nanos, Op};
use braid_workload::parse;
use std::collections::HashMap;

#[test]
fn webserver_like_returns_36_gb_of_fixed_size_files() {
    let workload = parse("webserver-like,pause=1s", 1).expect("it is right");
    let all = requests(&workload, usize::MAX);
    let f = of(&all);
    assert_near("requests", f.requests, 1_500_000.0, 0.0);
    // One request in forty writes the log, and the sizes of a few files dominate.
    assert_near("bytes returned", f.mean_read * f.read * f.requests, 36e9, 0.05);
    assert_near("written for the log", 1.0 - f.read, 1.0 / 40.0, 0.001);
    assert_near("pauses", f.seconds, 14.0, 0.0);
    let mut files: HashMap<Bytes, Bytes> = HashMap::new();
    for (_, _, request) in all.into_iter().filter(|(_, _, request)| request.op == Op::Read) {
        assert_eq!(*files.entry(request.offset).or_insert(request.len), request.len);
    }
    assert!(files.len() > 100_000, "of 131,072 files, {} are read", files.len());
}

#[test]
fn db2_like_asks_five_queries_of_five_gigabytes_with_pauses() {
    let workload = parse("db2-like", 1).expect("it is right");
    assert_near("filled", workload.filled()[0].end.0 as f64, 5.2e9, 0.001);
    let all = requests(&workload, usize::MAX);
    assert_eq!(workload.requests(), Some(all.len() as u64));
    let mut begins: Vec<Nanos> = all.iter().map(|(at, _, _)| *at).collect();
    begins.dedup();
    assert_eq!(begins, [0, 10, 20, 30, 40].map(Nanos::from_secs));
    let count = |op, len: u64| all.iter().filter(|(_, _, r)| r.op == op && r.len == Bytes(len << 10)).count();
    assert_eq!(count(Op::Read, 4), 8 * 5 * 4_000, "lookups");
    let scanned = count(Op::Read, 64) - count(Op::Write, 64);
    assert_near("bytes scanned", (scanned << 16) as f64, 5.0 * 0.1 * 0.8 * 5.2e9, 0.01);
    assert_near("bytes of temporary tables", (count(Op::Write, 64) << 16) as f64, 2.0 * 5.2e9 / 20.0, 0.01);
    // Written data lies behind the database and is read again.
    let written = all.iter().filter(|(_, _, r)| r.op == Op::Write);
    assert!(written.map(|(_, _, r)| r.offset).all(|offset| offset >= workload.filled()[0].end));
}

#[test]
fn settings_with_no_work_are_rejected_or_end() {
    for text in
        ["db2-like,lookups=0,scan=0%,repeat=3", "webserver-like,requests=7,clients=4,burst=1,pause=0s"]
    {
        let workload = parse(text, 1).expect(text);
        assert_eq!(workload.requests(), Some(requests(&workload, usize::MAX).len() as u64), "{text}");
    }
    for text in
        ["db2-like,index=0%", "db2-like,span=1MiB", "webserver-like,clients=100K", "webserver-like,burst=0"]
    {
        assert!(parse(text, 1).is_err(), "{text}");
    }
}
