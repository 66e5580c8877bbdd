//! Ranges of a volume in reports: lost bytes, and bytes on a missing device alone.

use braid_base::{Bytes, ExtentId};
use braid_engine::Status;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A range of a volume whose bytes have no proved copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostRange {
    /// Start of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub length_bytes: u64,
}

impl LostRange {
    pub(crate) fn of(range: &Range<Bytes>) -> LostRange {
        LostRange { offset_bytes: range.start.0, length_bytes: (range.end - range.start).0 }
    }
}

/// A range of a volume whose newest bytes are on a missing device alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingRange {
    /// The device: `d0`.
    pub device: String,
    /// Start of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub length_bytes: u64,
}

/// Converts runs of extents to ranges.
pub(crate) fn ranges(extents: &[ExtentId], extent_size: Bytes) -> Vec<LostRange> {
    let runs = extents.chunk_by(|a, b| a.0 + 1 == b.0);
    let range = |run: &[ExtentId]| LostRange {
        offset_bytes: (extent_size * u64::from(run[0].0)).0,
        length_bytes: (extent_size * run.len() as u64).0,
    };
    runs.map(range).collect()
}

/// Returns the ranges of the volume that read as errors, sorted.
pub(crate) fn lost_ranges(status: &Status) -> Vec<LostRange> {
    let mut lost = ranges(&status.lost, status.shape.extent_size);
    lost.extend(status.damaged.iter().map(LostRange::of));
    lost.sort_unstable_by_key(|range| range.offset_bytes);
    lost
}
