//! The working set over time: distinct blocks of 4 KiB touched within each of up to 128 equal windows of the
//! trace.
//!
//! How long a trace is, and so how long its windows are to be, is known only at its end. So windows of 4.2 ms
//! (2^22 ns) and of each larger power of two are counted side by side, and those too small for the time that
//! has passed are given up. A block counts for a window if its last reference was in another one: that is a
//! matter of the leading bits of two times.

use super::BLOCK_BYTES;
use super::blocks::Touch;
use braid_base::Nanos;

/// What is touched within a time.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct WorkingSet {
    /// The length of a window.
    pub window_seconds: f64,
    /// What was touched in each window, the first one first.
    pub touched_bytes: Vec<u64>,
    /// The mean of these, but for the last, which is not whole.
    pub touched_bytes_mean: u64,
    /// The largest of these.
    pub touched_bytes_max: u64,
}

const SMALLEST_LOG: u32 = 22;
const MOST_WINDOWS: usize = 128;
/// 208 days; later requests count as of the last window.
const LEVELS: usize = 32;

/// The smallest window that a time belongs to.
pub(super) fn window(at: Nanos) -> u32 {
    u32::try_from(at.0 >> SMALLEST_LOG).unwrap_or(u32::MAX)
}

pub(super) struct Counting {
    /// Blocks by window, for each length of windows; those below `first` are given up.
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
