//! `refill`: reads and discards go to existing data, writes to empty space.

use crate::measure::{assert_near, requests};
use braid_base::{Bytes, KIB, Op};
use braid_workload::parse;

const PIECE: Bytes = Bytes(16 << 10);

/// Replays the requests with a map of existing data. Returns the share of existing data after each request,
/// and the requests.
fn shares(text: &str, most: usize) -> Vec<(f64, Op)> {
    let workload = parse(text, 1).expect(text);
    let mut there = vec![false; (workload.span() / PIECE) as usize];
    let mut count = 0.0;
    let mut shares = Vec::new();
    for (_, client, request) in requests(&workload, most) {
        let pieces = (request.offset / PIECE) as usize..((request.offset + request.len) / PIECE) as usize;
        for piece in &mut there[pieces] {
            assert_eq!(*piece, request.op != Op::Write, "client {client}: {request:?}");
            match request.op {
                Op::Write => (*piece, count) = (true, count + 1.0),
                Op::Discard => (*piece, count) = (false, count - 1.0),
                Op::Read | Op::Flush => {}
            }
        }
        shares.push((count / there.len() as f64, request.op));
    }
    shares
}

#[test]
fn refill_fills_the_span_then_keeps_a_share_empty() {
    for clients in [1, 3] {
        let text = format!("refill,span=48MiB,unit=256KiB,size=16KiB,empty=25%,read=50%,clients={clients}");
        let shares = shares(&text, 40_000);
        let full = shares.iter().position(|(share, _)| *share == 1.0).expect("it becomes full");
        // Clients alternate: the last client finishes shortly after the first.
        assert!((3_072..3_300).contains(&(full + 1)), "full after {full} requests of 48 MiB / 16 KiB");
        let later = &shares[full + 2_000..];
        let (least, most) = later
            .iter()
            .fold((1.0_f64, 0.0_f64), |(low, high), (share, _)| (low.min(*share), high.max(*share)));
        assert!(0.72 <= least && most <= 0.76, "{least} to {most} is there");
        let count = |op| later.iter().filter(|(_, of)| *of == op).count() as f64;
        assert_near("writes per discard of 16 pieces", count(Op::Write) / count(Op::Discard), 16.0, 0.02);
        assert_near("reads per write", count(Op::Read) / count(Op::Write), 1.0, 0.05);
    }
}

#[test]
fn most_reads_go_to_new_data() {
    let workload = parse("refill,span=64MiB,unit=256KiB,size=16KiB,read=90%", 1).expect("sound");
    let unit = KIB * 256;
    let mut written = vec![0_usize; (workload.span() / unit) as usize];
    let (mut reads, mut new, mut number) = (0.0, 0.0, 0);
    for (_, _, request) in requests(&workload, 100_000) {
        let at = (request.offset / unit) as usize;
        match request.op {
            Op::Write => (written[at], number) = (number, number + 1),
            // A fifth of 230 units, of 16 writes each.
            Op::Read => {
                (reads, new) = (reads + 1.0, new + f64::from(u8::from(number - written[at] < 46 * 16)))
            }
            Op::Discard | Op::Flush => {}
        }
    }
    // A fifth of the remaining reads also goes to new data.
    assert_near("share of reads of the newest fifth", new / reads, 0.8 + 0.2 * 0.2, 0.03);
}
