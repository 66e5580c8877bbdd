//! What the log says of a device that fails: the first error at once, of those that follow a line every ten
//! seconds. Failed flushes have lines of their own, for they say that data may be lost.

use braid_base::Nanos;
use braid_runtime::{LogLimit, Runtime};
use braid_uring::Ring;
use std::io;

/// The log lines of one device.
pub(crate) struct DeviceLog {
    ring: Ring,
    name: String,
    requests: LogLimit,
    flushes: LogLimit,
}

impl DeviceLog {
    /// Of a device that is called `name` in messages.
    pub fn new(ring: &Ring, name: String) -> DeviceLog {
        let limit = || LogLimit::new(Nanos::from_secs(10));
        DeviceLog { ring: ring.clone(), name, requests: limit(), flushes: limit() }
    }

    /// A read, write or discard has failed.
    #[cold]
    pub fn request_failed(&self, error: &io::Error) {
        if let Some(more) = self.requests.admit(self.ring.now()) {
            tracing::error!("device {}: {error}{}", self.name, and_more(more));
        }
    }

    /// A flush has failed.
    #[cold]
    pub fn flush_failed(&self, error: &io::Error) {
        if let Some(more) = self.flushes.admit(self.ring.now()) {
            let lost = "what was written since the last flush may be lost";
            tracing::error!("device {}: {error}: {lost}{}", self.name, and_more(more));
        }
    }
}

fn and_more(held_back: u64) -> String {
    match held_back {
        0 => String::new(),
        _ => format!(" ({held_back} more errors since the last such line)"),
    }
}
