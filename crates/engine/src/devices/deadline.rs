//! Deadlines of requests to devices.

use braid_base::Nanos;

/// Unit of deadlines.
pub(crate) const TICK: Nanos = Nanos::from_secs(1);

/// When a request counts as late.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Deadline {
    /// After 5 s: another current copy has the bytes.
    Copied,
    /// After 5 s, even if other devices do not answer: nothing depends on the request, and guests may wait
    /// for the requesting task.
    Brief,
    /// After 60 s: no other copy has the bytes.
    #[default]
    Only,
}

impl Deadline {
    /// The longest deadline.
    pub const LONGEST: Nanos = Nanos::from_secs(60);
    /// The briefest deadline.
    pub const BRIEFEST: Nanos = Nanos::from_secs(5);
    /// Limit of the wait for a lock before an extra copy is written. Together with the write's deadline,
    /// guests wait about as long as for a device.
    pub const WARMTH: Nanos = Nanos::from_secs(1);

    /// Deadline in seconds on a device that does not repair itself; the actual wait may be up to one second
    /// longer.
    pub fn seconds(self) -> u32 {
        match self {
            Deadline::Copied | Deadline::Brief => 5,
            Deadline::Only => 60,
        }
    }
}
