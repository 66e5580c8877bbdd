//! Working set over time: distinct blocks of 4 KiB touched within each of up to 128 equal windows of the
//! trace.
//!
//! The length of a trace is unknown before its end, and so is the length of its windows. So windows of 4.2 ms
//! (2^22 ns) and of each larger power of two are counted in parallel. Windows too small for the elapsed time
//! are dropped. A block counts for a window if its last reference was in another window: a comparison of the
//! leading bits of two times.

use super::BLOCK_BYTES;
use super::blocks::Touch;
use braid_base::Nanos;

/// Distinct blocks touched within windows of time.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct WorkingSet {
    /// Length of a window.
    pub window_seconds: f64,
    /// Bytes touched in each window, in order of time.
    pub touched_bytes: Vec<u64>,
    /// Mean over all windows but the last, which is incomplete.
    pub touched_bytes_mean: u64,
    /// Maximum over all windows.
    pub touched_bytes_max: u64,
}

const SMALLEST_LOG: u32 = 22;
const MOST_WINDOWS: usize = 128;
/// 208 days of windows. Later requests count for the last window.
const LEVELS: usize = 32;

/// Returns the number of the smallest window that contains a time.
pub(super) fn window(at: Nanos) -> u32 {
    u32::try_from(at.0 >> SMALLEST_LOG).unwrap_or(u32::MAX)
}

pub(super) struct Counting {
    /// Blocks by window, for each length of windows. Lengths below `first` are dropped.
    levels: Vec<Vec<u64>>,
    first: usize,
}

impl Default for Counting {
    fn default() -> Counting {
        Counting { levels: vec![Vec::new(); LEVELS], first: 0 }
    }
}

impl Counting {
    pub(super) fn add(&mut self, touch: &Touch, now: u32) {
        while (now >> self.first) as usize >= MOST_WINDOWS {
            self.levels[self.first] = Vec::new();
            self.first += 1;
        }
        let differing = match &touch.before {
            Some(before) => (u32::BITS - (before.window ^ now).leading_zeros()) as usize,
            None => LEVELS,
        };
        for (level, windows) in self.levels.iter_mut().enumerate().take(differing).skip(self.first) {
            let window = (now >> level) as usize;
            if window >= windows.len() {
                windows.resize(window + 1, 0);
            }
            windows[window] += touch.weight;
        }
    }

    pub(super) fn finish(mut self) -> WorkingSet {
        let blocks = std::mem::take(&mut self.levels[self.first]);
        let touched_bytes: Vec<u64> = blocks.iter().map(|blocks| blocks * BLOCK_BYTES).collect();
        let whole = &touched_bytes[..touched_bytes.len().saturating_sub(1).max(touched_bytes.len().min(1))];
        WorkingSet {
            window_seconds: Nanos(1 << (SMALLEST_LOG + self.first as u32)).as_secs_f64(),
            touched_bytes_mean: whole.iter().sum::<u64>() / (whole.len() as u64).max(1),
            touched_bytes_max: touched_bytes.iter().copied().max().unwrap_or(0),
            touched_bytes,
        }
    }
}
