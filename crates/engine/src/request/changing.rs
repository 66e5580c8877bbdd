//! Extents that guests are changing. Bytes that were read beside a change may be older than the change, so
//! they must not become an extra copy.
//!
//! A read shares its extent's lock with other reads and with writes, so that the device has all requests to
//! one extent at the same time. Two counts, of begun and of ended changes, tell whether a guest changed the
//! bytes between the read and the copy. Counts are kept for groups of extents. A change of an extent also
//! prevents copies of the other extents in its group, which costs only speed.

use crate::planted::{Bug, planted};
use braid_base::ExtentId;
use std::cell::Cell;

/// Number of groups, 32 KiB of memory. With a thousand requests in flight, one read in four meets a change in
/// its group.
const GROUPS: usize = 4096;

/// Changes of guests, counted by groups of extents.
pub(crate) struct Changing {
    /// By group of extents.
    counts: Box<[ChangeCounts]>,
}

#[derive(Default)]
struct ChangeCounts {
    begun: Cell<u32>,
    ended: Cell<u32>,
}

/// Mark of a change under way; the change ends when the mark is dropped.
pub(crate) struct ChangeMark<'a>(&'a ChangeCounts);

impl Default for Changing {
    fn default() -> Changing {
        Changing { counts: (0..GROUPS).map(|_| ChangeCounts::default()).collect() }
    }
}

impl Changing {
    /// Marks the beginning of a guest's change of an extent. Called before the first byte, under the extent's
    /// lock.
    #[inline]
    pub fn begin(&self, extent: ExtentId) -> ChangeMark<'_> {
        let counts = self.counts(extent);
        counts.begun.set(counts.begun.get().wrapping_add(1));
        ChangeMark(counts)
    }

    /// Returns the number of changes so far, or `None` while a change is in flight. Equal answers before and
    /// after a read prove that the bytes did not change.
    pub fn settled(&self, extent: ExtentId) -> Option<u32> {
        let ChangeCounts { begun, ended } = self.counts(extent);
        (begun == ended).then(|| begun.get())
    }

    /// True if no guest has changed the extent since `changes` was counted.
    pub fn is_as_read(&self, extent: ExtentId, changes: u32) -> bool {
        self.settled(extent) == Some(changes) || planted(Bug::OlderBytesPromoted)
    }

    fn counts(&self, extent: ExtentId) -> &ChangeCounts {
        &self.counts[extent.0 as usize % GROUPS]
    }
}

impl Drop for ChangeMark<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.ended.set(self.0.ended.get().wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_count_differs_after_changes_end() {
        let (changing, extent) = (Changing::default(), ExtentId(7));
        let before = changing.settled(extent);
        let first = changing.begin(extent);
        let second = changing.begin(extent);
        assert_eq!(changing.settled(extent), None);
        drop(first);
        assert_eq!(changing.settled(extent), None, "the second one is under way");
        drop(second);
        let after = changing.settled(extent);
        assert!(before.is_some() && after.is_some() && before != after);
        let _elsewhere = changing.begin(ExtentId(8));
        assert_eq!(changing.settled(extent), after);
    }
}
