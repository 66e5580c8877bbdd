//! Statistics of a stream of requests, as printed in papers.

use braid_base::{Bytes, Nanos, Op, Request};
use braid_workload::{Load, Step, Workload, parse};
use std::collections::BTreeMap;

/// Returns the first requests of a workload. The clients of a closed loop alternate, as if requests took no
/// time.
pub fn requests(workload: &Workload, most: usize) -> Vec<(Nanos, u64, Request)> {
    match workload.start() {
        Load::Open(arrivals) => arrivals.take(most).map(|a| (a.at, 0, a.request)).collect(),
        Load::Closed(clients) => in_turn(clients, most),
    }
}

fn in_turn(clients: Vec<braid_workload::Client>, most: usize) -> Vec<(Nanos, u64, Request)> {
    let mut clients: Vec<_> = clients.into_iter().map(|client| (client, Nanos::ZERO, State::Runs)).collect();
    let mut all = Vec::new();
    loop {
        for (number, (client, now, state)) in clients.iter_mut().enumerate() {
            if *state != State::Runs {
                continue;
            }
            match client.next() {
                None => *state = State::Ended,
                Some(Step::Meet) => *state = State::Waits,
                Some(Step::Operation { think, .. }) => *now += think,
                Some(Step::Pause(time)) => *now += time,
                Some(Step::Request { think, request }) => {
                    *now += think;
                    all.push((*now, number as u64, request));
                    if all.len() == most {
                        return all;
                    }
                }
            }
        }
        if clients.iter().all(|(_, _, state)| *state == State::Ended) {
            return all;
        }
        if clients.iter().all(|(_, _, state)| *state != State::Runs) {
            let latest = clients.iter().map(|(_, now, _)| *now).max().unwrap_or_default();
            for (_, now, state) in clients.iter_mut().filter(|(_, _, state)| *state == State::Waits) {
                (*now, *state) = (latest, State::Runs);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Waits,
    Ended,
}

/// Statistics of requests.
#[derive(Debug)]
pub struct Figures {
    pub requests: f64,
    pub flushes: f64,
    /// Share of reads among reads and writes.
    pub read: f64,
    pub mean: f64,
    pub mean_read: f64,
    pub mean_write: f64,
    /// Share of requests that begin at the end of any of the client's last 32 requests.
    pub sequential: f64,
    /// Seconds to the last request.
    pub seconds: f64,
}

/// Returns the statistics of the first requests of a workload.
pub fn figures(text: &str, most: usize) -> Figures {
    let workload = parse(text, 1).expect(text);
    of(&requests(&workload, most))
}

/// Returns the statistics of the given requests.
pub fn of(requests: &[(Nanos, u64, Request)]) -> Figures {
    let mut ends: BTreeMap<u64, (usize, [u64; 32])> = BTreeMap::new();
    let (mut counts, mut bytes, mut follows) = ([0.0; 3], [0.0; 2], 0.0);
    for (_, client, request) in requests {
        let kind = match request.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush | Op::Discard => {
                counts[2] += 1.0;
                continue;
            }
        };
        counts[kind] += 1.0;
        bytes[kind] += request.len.0 as f64;
        let (at, last) = ends.entry(*client).or_insert((0, [u64::MAX; 32]));
        follows += f64::from(u8::from(last.contains(&request.offset.0)));
        last[*at % 32] = (request.offset + request.len).0;
        *at += 1;
    }
    let all = counts[0] + counts[1];
    Figures {
        requests: all,
        flushes: counts[2],
        read: counts[0] / all,
        mean: (bytes[0] + bytes[1]) / all,
        mean_read: bytes[0] / counts[0],
        mean_write: bytes[1] / counts[1],
        sequential: follows / all,
        seconds: requests.iter().map(|(at, ..)| at.as_secs_f64()).fold(0.0, f64::max),
    }
}

/// Returns the share of requests that begin in the busiest `part` of all units of the span.
pub fn share_of_busiest(requests: &[(Nanos, u64, Request)], span: Bytes, unit: Bytes, part: f64) -> f64 {
    let mut counts = vec![0_u64; (span.align_up(unit) / unit) as usize];
    let moved = requests.iter().filter(|(_, _, request)| request.len > Bytes::ZERO);
    moved.for_each(|(_, _, request)| counts[(request.offset / unit) as usize] += 1);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = counts.iter().sum();
    let busiest = (counts.len() as f64 * part).round() as usize;
    counts[..busiest].iter().sum::<u64>() as f64 / all as f64
}

/// Asserts that `value` differs from `expected` by at most the share `tolerance`.
#[track_caller]
pub fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value - expected).abs() <= tolerance * expected.abs(),
        "{what} is {value}, not {expected} within {} %",
        tolerance * 100.0
    );
}
