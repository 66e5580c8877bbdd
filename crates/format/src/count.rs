//! Sequences and epochs: numbers that only ever count up.
//!
//! One that is absurdly large was not reached by counting. It is rejected, so that code that counts on from
//! it cannot overflow.

use crate::Invalid;

/// Sequences and epochs stay below this: at a million a second for 36,000 years.
pub const LARGEST_COUNT: u64 = 1 << 60;

/// Verifies a sequence or an epoch; `what` names it in the error.
pub(crate) fn verify(count: u64, what: &str) -> Result<(), Invalid> {
    if count < LARGEST_COUNT {
        return Ok(());
    }
    Err(Invalid::Value(format!("{what} is {count}: no volume counts to {LARGEST_COUNT}")))
}
