//! The load: one guest with three changes of its pattern. fio generates the load over NBD, without page
//! cache, with the same seed under each policy.
//!
//! The loop is closed, with a constant number of requests in flight, so throughput and mean latency are
//! equivalent.

use super::super::fio::common;
use braid_base::{Bytes, MIB};
use std::process::Command;
use std::time::Duration;

/// A phase of the load.
pub struct Phase {
    /// Name of the phase.
    pub name: &'static str,
    /// Description of the requests.
    pub about: &'static str,
    /// Bytes of a request.
    block: u32,
    options: &'static [&'static str],
}

const PAGE: u32 = 4 << 10;
const PIECE: u32 = 128 << 10;

/// All phases, in order. The hot set is larger than the volume's memory cache of 100 extents, so requests
/// reach the devices.
pub const PHASES: [Phase; 4] = [
    Phase {
        name: "hot set",
        about: "4 KiB at random, 70 % reads, 90 % of requests in a fifth of the volume, 4 at a time",
        block: PAGE,
        options: &["--rw=randrw", "--rwmixread=70", "--random_distribution=zoned:90/20:10/80", "--iodepth=4"],
    },
    Phase {
        name: "moved",
        about: "like the hot set, with another fifth hot",
        block: PAGE,
        options: &["--rw=randrw", "--rwmixread=70", MOVED, "--iodepth=4"],
    },
    Phase {
        name: "stream",
        about: "128 KiB written in order, 4 at a time, from the start again after the end",
        block: PIECE,
        options: &["--rw=write", "--iodepth=4"],
    },
    Phase {
        name: "ten times",
        about: "like moved, 40 at a time",
        block: PAGE,
        options: &["--rw=randrw", "--rwmixread=70", MOVED, "--iodepth=40"],
    },
];

const MOVED: &str = "--random_distribution=zoned:5/50:90/20:5/30";

impl Phase {
    /// Command that runs fio for `time` on a volume of `size`.
    pub fn command(&self, uri: &str, size: Bytes, time: Duration) -> Command {
        let mut command = Command::new("fio");
        command.args(common(uri)).args(self.options);
        command.args(["--time_based", "--randseed=1", "--output-format=json"]);
        command.arg(format!("--bs={}", self.block)).arg(format!("--size={}M", size / MIB));
        command.arg(format!("--runtime={}ms", time.as_millis()));
        command
    }

    /// Unit of the phase's figure.
    pub fn unit(&self) -> &'static str {
        if self.block == PIECE { "MB/s" } else { "IOPS" }
    }

    /// Figure of the phase, from bytes per second.
    pub fn figure(&self, bytes_per_second: f64) -> String {
        let figure = if self.block == PIECE {
            bytes_per_second / 1e6
        } else {
            bytes_per_second / f64::from(self.block)
        };
        format!("{figure:.0}")
    }
}
