//! Cost of generating a request: `cargo bench -p braid-workload [-- NAME,key=value…]`, all workloads by
//! default.

use braid_workload::{Load, Step, names, parse};
use std::hint::black_box;
use std::time::Instant;

const REQUESTS: usize = 2_000_000;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|text| !text.starts_with("--")).collect();
    let all = names().map(|about| about.name.to_owned());
    let texts: Vec<String> = if asked.is_empty() { all.collect() } else { asked };
    for text in texts {
        let workload = parse(&text, 1).unwrap_or_else(|error| panic!("{error}"));
        let times = (0..3).map(|_| cost(workload.start()));
        println!("{text:40} {:6.1} ns per request", times.fold(f64::INFINITY, f64::min));
    }
}

/// Nanoseconds per request: of the only stream of an open loop, or of all clients of a closed loop, one
/// client after the other.
fn cost(load: Load) -> f64 {
    let start = Instant::now();
    let made = match load {
        Load::Open(arrivals) => arrivals.take(REQUESTS).map(black_box).count(),
        Load::Closed(clients) => {
            let each = REQUESTS / clients.len() + 1;
            let steps = clients.into_iter().flat_map(|client| client.take(each));
            steps.map(black_box).filter(|step| matches!(step, Step::Request { .. })).count()
        }
    };
    start.elapsed().as_nanos() as f64 / made as f64
}
