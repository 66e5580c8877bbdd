//! A transfer rate.

use braid_base::{Bytes, Nanos};

/// A transfer rate in bytes per second; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rate(pub u64);

impl Rate {
    /// Decimal megabytes per second, as data sheets count.
    pub const fn from_mb(mb: u64) -> Rate {
        Rate(mb * 1_000_000)
    }

    /// The time of `len` at this rate, rounded down.
    ///
    /// # Panics
    /// Beyond 18 GB in one request: more than any interface carries.
    pub fn time_for(self, len: Bytes) -> Nanos {
        Nanos((len * 1_000_000_000).0 / self.0)
    }
}
