//! Limits of runs (pieces near each other on a device, copied in one turn) and of searches.

use braid_base::Bytes;

/// Longest run, and longest distance of its pieces.
pub(crate) const LONGEST_RUN: Bytes = Bytes(1 << 20);
/// Longest run, and longest request, of a plan that yields to guests.
pub(super) const LONGEST_YIELDING: Bytes = Bytes(256 << 10);
/// Most pieces in a run: guests wait behind the run.
pub(crate) const MOST_IN_RUN: usize = 8;
/// Runs in flight: a run is read while another is written.
pub(crate) const RUNS_AT_ONCE: usize = 4;
/// Extents, or blocks, that a search passes before other tasks run.
pub(crate) const IN_A_ROW: u32 = 4096;
