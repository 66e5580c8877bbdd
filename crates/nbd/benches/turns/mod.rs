//! Measurements of servers by turns, so that a busy neighbour hits all.
#![allow(dead_code, reason = "each benchmark uses its part")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

#[derive(Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    pub cpu_micros: f64,
}

pub fn report(name: &str, results: &[(Sample, Sample)]) {
    let speeds: Vec<f64> = results.iter().map(|(ours, theirs)| ours.per_second / theirs.per_second).collect();
    let costs: Vec<f64> = results.iter().map(|(ours, theirs)| ours.cpu_micros / theirs.cpu_micros).collect();
    let median_of = |value: &dyn Fn(&(Sample, Sample)) -> f64| median(results.iter().map(value).collect()).0;
    let (speed, slowest, fastest) = median(speeds);
    let (cost, cheapest, dearest) = median(costs);
    println!(
        "{name:20}  speed {speed:.2} ({slowest:.2}..{fastest:.2})  cpu {cost:.2} ({cheapest:.2}..{dearest:.2})   \
         {:.0}/s {:.2} us against {:.0}/s {:.2} us",
        median_of(&|r| r.0.per_second),
        median_of(&|r| r.0.cpu_micros),
        median_of(&|r| r.1.per_second),
        median_of(&|r| r.1.cpu_micros),
    );
}

/// Median, least and greatest.
pub fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// A server in a process of its own.
pub struct Daemon {
    pub child: Child,
    pub socket: PathBuf,
}

impl Daemon {
    pub fn start(program: &str, socket: PathBuf, arguments: impl Fn(&str) -> Vec<String>) -> Daemon {
        let text = socket.to_str().expect("a path in UTF-8");
        let mut child = Command::new(program).args(arguments(text)).spawn().expect("the server starts");
        while !socket.exists() {
            let ended = child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "{program} has ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Daemon { child, socket }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the server ends");
    }
}

/// Processor time of one of our threads.
pub fn thread_seconds(thread: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).expect("schedstat");
    stat.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

/// Processor time of a process, with its threads that have ended: hundredths of a second.
pub fn process_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    (ticks(11) + ticks(12)) / 100.0
}
