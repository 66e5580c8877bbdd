//! Log messages about a failing device: the first error at once, then one line every ten seconds. Failed
//! flushes have their own limit: they mean possible loss of data.

use braid_base::Nanos;
use braid_runtime::{LogLimit, Runtime};
use braid_uring::Ring;
use std::io;

/// Rate-limited log messages of one device.
pub(crate) struct DeviceLog {
    ring: Ring,
    name: String,
    requests: LogLimit,
    flushes: LogLimit,
}

impl DeviceLog {
    /// Makes the log of a device called `name` in messages.
    pub fn new(ring: &Ring, name: String) -> DeviceLog {
        let limit = || LogLimit::new(Nanos::from_secs(10));
        DeviceLog { ring: ring.clone(), name, requests: limit(), flushes: limit() }
    }

    /// Logs a failed read, write or discard.
    #[cold]
    pub fn request_failed(&self, error: &io::Error) {
        if let Some(more) = self.requests.admit(self.ring.now()) {
            let device = &*self.name;
            tracing::error!(code = "device-errors", device, "device {device}: {error}{}", and_more(more));
        }
    }

    /// Logs a failed flush.
    #[cold]
    pub fn flush_failed(&self, error: &io::Error) {
        if let Some(more) = self.flushes.admit(self.ring.now()) {
            let lost = "writes since the last flush may be lost";
            let device = &*self.name;
            tracing::error!(
                code = "flush-failed",
                device,
                "device {device}: {error}: {lost}{}",
                and_more(more)
            );
        }
    }
}

fn and_more(held_back: u64) -> String {
    match held_back {
        0 => String::new(),
        _ => format!(" ({held_back} more errors since the last such line)"),
    }
}
