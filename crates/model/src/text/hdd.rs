//! The fields of a disk.

use super::fields::Fields;
use crate::hdd::{Curve, Params, SEGMENTS};
use crate::library::InvalidModel;
use braid_base::{Bytes, GIB, Nanos};
use std::ops::RangeInclusive;

pub(super) fn fields(params: &mut Params, f: &mut impl Fields) {
    mechanics(params, f);
    electronics(params, f);
}

const SEEKS: RangeInclusive<Nanos> = Nanos(1_000)..=Nanos::from_secs(1);

fn mechanics(params: &mut Params, f: &mut impl Fields) {
    let turns = Nanos::from_millis(2)..=Nanos::from_millis(100);
    params.revolution = f.time(
        "revolution",
        params.revolution,
        turns,
        "One turn of the spindle: 60 s / revolutions per minute",
    );
    params.heads = f.count("heads", params.heads.into(), 1..=64, "Surfaces with a head") as u32;
    params.outer = f.rate("outer", params.outer, "Sustained rate at the outer edge");
    params.inner =
        f.rate("inner", params.inner, "Sustained rate at the inner edge; at most the outer, at least 5MB/s");
    let seek = &mut params.seek;
    seek.track_read = f.time("track_read", seek.track_read, SEEKS, "To the next cylinder, for a read");
    seek.track_write = f.time("track_write", seek.track_write, SEEKS, "To the next cylinder, for a write");
    seek.settle = f.time(
        "settle",
        seek.settle,
        SEEKS,
        "Constant part of every longer seek: the seek curve's value at distance zero",
    );
    seek.average =
        f.time("average", seek.average, SEEKS, "Mean seek over all pairs of cylinders, for a read");
    seek.full = f.time("full", seek.full, SEEKS, "From the first cylinder to the last, for a read");
    seek.write_settle = f.time(
        "write_settle",
        seek.write_settle,
        Nanos::ZERO..=*SEEKS.end(),
        "Additional time of a write for a seek of more than one cylinder",
    );
    params.head_switch = f.time(
        "head_switch",
        params.head_switch,
        Nanos::ZERO..=*SEEKS.end(),
        "From one head to the next on a cylinder",
    );
}

fn electronics(params: &mut Params, f: &mut impl Fields) {
    params.interface = f.rate("interface", params.interface, "Rate of the host interface");
    params.command = f.time(
        "command",
        params.command,
        Nanos(1)..=*SEEKS.end(),
        "The overhead of a command on the interface and in the controller",
    );
    params.queue_depth = f.count(
        "queue_depth",
        params.queue_depth as u64,
        1..=65_536,
        "Number of requests in the drive; the others wait outside",
    ) as usize;
    params.weighed = f.count(
        "weighed",
        params.weighed as u64,
        1..=65_536,
        "Number of these, the oldest first, in the search for the nearest",
    ) as usize;
    let memory = Bytes::ZERO..=GIB * 16;
    params.buffer =
        f.size("buffer", params.buffer, memory.clone(), "Memory for writes while the write cache is on");
    params.write_cache =
        f.flag("write_cache", params.write_cache, "Whether writes complete when they are buffered");
    params.buffered_runs = f.count(
        "buffered_runs",
        params.buffered_runs as u64,
        1..=65_536,
        "Number of separate runs of sectors in the write cache",
    ) as usize;
    params.segments = f.later_count(
        "segments",
        params.segments as u64,
        SEGMENTS as u64,
        1..=1_024,
        "Number of cache segments: separate ranges of read data in the buffer",
    ) as usize;
    params.read_ahead = f.size("read_ahead", params.read_ahead, memory, "Length of the disk's read-ahead");
}

/// Verifies rules between the fields.
pub(super) fn check(params: &Params) -> Result<(), InvalidModel> {
    let Params { outer, inner, seek, .. } = params;
    if inner > outer || inner.0 < 5_000_000 {
        let problem = format!(
            "inner = {} MB/s with outer = {} MB/s: the inner edge is at most as fast as the outer, and at least 5 MB/s",
            inner.0 / 1_000_000,
            outer.0 / 1_000_000
        );
        return Err(InvalidModel(problem));
    }
    match Curve::solve(*seek) {
        Some(_) => Ok(()),
        None => Err(InvalidModel(format!(
            "settle = {}, average = {}, full = {}: no seek curve rises from the first over the second to the third; \
             the average is usually near 0.55 times the full stroke",
            seek.settle, seek.average, seek.full
        ))),
    }
}
