//! Bounds of sequences and epochs, counters that only go up.
//!
//! An absurdly large count was never reached by counting, and is rejected. Code can therefore count on from
//! an accepted number without overflow.

use crate::Invalid;

/// Bound of sequences and epochs: reached after 36,000 years at a million counts a second.
pub const LARGEST_COUNT: u64 = 1 << 60;

/// Verifies a sequence or an epoch; `what` names the count in the error.
pub(crate) fn verify(count: u64, what: &str) -> Result<(), Invalid> {
    if count < LARGEST_COUNT {
        return Ok(());
    }
    Err(Invalid::Value(format!("{what} is {count}: no volume counts to {LARGEST_COUNT}")))
}
