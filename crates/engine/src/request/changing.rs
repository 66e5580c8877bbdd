//! Which extents guests are changing: what a read brought beside a change must not become an extra copy, for
//! it may be older.
//!
//! A read shares its extent's lock with other reads and with writes, so that the device has all requests to
//! one extent at the same time. Two counts, of the changes that have begun and of those that have ended, tell
//! whether a guest changed the bytes between the read and the copy. They are kept for groups of extents: if
//! an extent changes, the copies of others in its group are not made either, which costs speed alone.

use braid_base::ExtentId;
use std::cell::Cell;

/// So many groups: with a thousand requests under way, one read in four meets a change in its group. They
/// take 32 KiB of memory.
const GROUPS: usize = 4096;

/// Changes of guests, counted by groups of extents.
pub(crate) struct Changing {
    groups: Box<[Group]>,
}

#[derive(Default)]
struct Group {
    begun: Cell<u32>,
    ended: Cell<u32>,
}

/// A change of an extent, until it is dropped.
pub(crate) struct Change<'a>(&'a Group);

impl Default for Changing {
    fn default() -> Changing {
        Changing { groups: (0..GROUPS).map(|_| Group::default()).collect() }
    }
}

impl Changing {
    /// A guest changes an extent from now on: before the first byte, and under the extent's lock.
    #[inline]
    pub fn begin(&self, extent: ExtentId) -> Change<'_> {
        let group = self.group(extent);
        group.begun.set(group.begun.get().wrapping_add(1));
        Change(group)
    }

    /// How many changes there were, if none is under way. As long as the answer stays the same, the bytes do.
    pub fn settled(&self, extent: ExtentId) -> Option<u32> {
        let Group { begun, ended } = self.group(extent);
        (begun == ended).then(|| begun.get())
    }

    fn group(&self, extent: ExtentId) -> &Group {
        &self.groups[extent.0 as usize % GROUPS]
    }
}

impl Drop for Change<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.ended.set(self.0.ended.get().wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_settled_again_after_a_change_and_the_answer_is_another_one() {
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
