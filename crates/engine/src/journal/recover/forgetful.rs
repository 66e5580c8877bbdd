//! Forgetful devices, with two required copies: their journal ends before a batch that they acknowledged as
//! durable.
//!
//! A batch is promised once the journals of all current devices have the batch. The next batch is written
//! only then. Therefore only the newest batch of all may lie in a single journal; if the proof or the host
//! names the newest batch, both journals must have it.
//!
//! A device whose journal ends earlier has lost acknowledged flushes: the device lies about flushes, or was
//! restored to an older state of the same opening. Further losses on the device are unknown, so the device
//! counts as lacking everything.
//!
//! Devices that failed or were missing are not judged: a device is current again only after a checkpoint
//! whose last batch is in its journal. A journal that cannot be read whole is not judged either.

use crate::planted::{Bug, planted};
use braid_base::DeviceId;

/// A device that lost acknowledged flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forgetful {
    pub device: DeviceId,
    /// Newest batch in its journal; 0 for none.
    ends: u64,
    /// A batch that the journal had.
    had: u64,
}

/// End of the journal of one current device.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingEnd {
    pub device: DeviceId,
    /// Newest batch in the journal; 0 for none.
    pub newest: u64,
    /// True if the whole ring could be read.
    pub is_whole: bool,
}

impl Forgetful {
    /// Returns a sentence for the administrator.
    pub fn describe(&self, name: &str, volume: &str) -> String {
        let Forgetful { device, ends, had } = self;
        format!(
            "{name} (device {device} of volume '{volume}') lost writes that it had flushed: its journal \
             ends with batch {ends}, and had batch {had}; the device acknowledges flushes without executing \
             them, or was restored to an older state: disable its write cache, or replace the device"
        )
    }
}

/// Returns the devices that lack a batch they had. Each batch of `known`, in order, lies in at least one
/// journal. All batches up to `promised` were promised.
pub(super) fn forgetful(ends: &[RingEnd], known: &[u64], promised: u64) -> Vec<Forgetful> {
    let followed = known.iter().rev().nth(1);
    let proved = known.iter().rev().find(|batch| **batch <= promised);
    let Some(&had) = followed.max(proved).filter(|_| !planted(Bug::ForgetfulTaken)) else {
        return Vec::new();
    };
    let lacks = |end: &&RingEnd| end.is_whole && end.newest < had;
    let found = |end: &RingEnd| Forgetful { device: end.device, ends: end.newest, had };
    ends.iter().filter(lacks).map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(newest: [u64; 2], known: &[u64], promised: u64) -> Vec<u16> {
        let end = |(id, newest)| RingEnd { device: DeviceId(id), newest, is_whole: true };
        let ends: Vec<RingEnd> = (0..).zip(newest).map(end).collect();
        forgetful(&ends, known, promised).iter().map(|found| found.device.0).collect()
    }

    #[test]
    fn unpromised_newest_batch_may_lie_in_one_journal() {
        assert_eq!(judged([0, 0], &[], 0), []);
        assert_eq!(judged([9, 9], &[7, 8, 9], 9), []);
        assert_eq!(judged([9, 8], &[7, 8, 9], 8), []);
        assert_eq!(judged([0, 1], &[1], 0), [], "the first batch of all");
    }

    #[test]
    fn journal_ending_before_promised_batch_is_forgetful() {
        assert_eq!(judged([9, 8], &[7, 8, 9], 9), [1]);
        assert_eq!(judged([0, 9], &[9], 9), [0], "a checkpoint has left one batch");
    }

    #[test]
    fn journal_lacking_two_newest_batches_is_forgetful() {
        assert_eq!(judged([7, 9], &[7, 8, 9], 0), [0]);
        assert_eq!(judged([0, 9], &[8, 9], 0), [0]);
    }

    /// After a loss of both journals, numbers are left out. A promised number that no journal has accuses no
    /// device.
    #[test]
    fn skipped_batch_numbers_accuse_no_device() {
        assert_eq!(judged([10, 21], &[9, 10, 21], 20), []);
        assert_eq!(judged([10, 21], &[9, 10, 21], 21), [0]);
        assert_eq!(judged([10, 10], &[9, 10], 20), []);
    }

    #[test]
    fn partly_unreadable_journal_is_not_judged() {
        let end = |id, newest, is_whole| RingEnd { device: DeviceId(id), newest, is_whole };
        assert_eq!(forgetful(&[end(0, 3, false), end(1, 9, true)], &[3, 8, 9], 9), []);
    }
}
