//! The content of an SSD's write buffer, and its pending programs.
//!
//! Only amounts are stored. Buffered bytes become room in proportion to the bytes programmed for them, so a
//! write that costs five times its bytes stays five times as long.

use braid_base::Bytes;

/// The amounts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BufferAmounts {
    /// Buffered bytes.
    taken: Bytes,
    /// Buffered bytes whose programs have not begun.
    waiting: Bytes,
    /// Bytes to program for the waiting bytes.
    owed: Bytes,
    /// Room for each programmed byte, in 2^-20.
    room: u64,
    /// Bytes to merge before the programs.
    merges: Bytes,
    /// Programs in flight.
    programs: u32,
}

impl BufferAmounts {
    /// Takes a write of `len`, with its bytes to program and to merge.
    #[inline]
    pub fn insert(&mut self, len: Bytes, owed: Bytes, merges: Bytes) {
        self.taken += len;
        self.waiting += len;
        self.owed += owed;
        self.merges += merges;
        self.room = (self.waiting.0 << 20) / self.owed.0.max(1);
    }

    /// The buffered bytes.
    pub fn taken(&self) -> Bytes {
        self.taken
    }

    /// True if all data is in the flash.
    pub fn is_drained(&self) -> bool {
        self.taken == Bytes::ZERO && self.merges == Bytes::ZERO && self.programs == 0
    }

    /// True if a whole flash page or a merge is pending.
    pub fn has_page(&self, flash_page: Bytes) -> bool {
        self.owes_merge() || self.owed >= flash_page
    }

    /// True if a merge is pending. Merges come before pages.
    pub fn owes_merge(&self) -> bool {
        self.merges > Bytes::ZERO
    }

    /// True if a page or merge is pending, or a part of a page without a program in flight.
    pub fn is_due(&self, flash_page: Bytes) -> bool {
        self.has_page(flash_page) || self.waiting > Bytes::ZERO && self.programs == 0
    }

    /// Begins at most `share` of the merges.
    pub fn take_merge(&mut self, share: Bytes) -> Bytes {
        let merged = share.min(self.merges);
        self.merges -= merged;
        self.programs += 1;
        merged
    }

    /// Begins to program at most `flash_page` of the owed bytes. Returns the room at the end of the program.
    pub fn take_page(&mut self, flash_page: Bytes) -> Bytes {
        let owed = self.owed.min(flash_page);
        let room = if owed == self.owed { self.waiting } else { self.room_of(owed) };
        self.owed -= owed;
        self.waiting -= room;
        self.programs += 1;
        room
    }

    /// Begins to program whole pages with equal room. Returns their number and the room of each. Excludes the
    /// last owed page, which frees the remaining room, and begins none before a merge.
    pub fn take_pages(&mut self, flash_page: Bytes) -> (u64, Bytes) {
        let room = self.room_of(flash_page);
        let pages = if self.owes_merge() { 0 } else { self.owed.saturating_sub(Bytes(1)) / flash_page };
        self.owed -= flash_page * pages;
        self.waiting -= room * pages;
        self.programs += pages as u32;
        (pages, room)
    }

    /// Gives back `pages` pages that do not begin after all.
    pub fn give_back(&mut self, pages: u64, flash_page: Bytes) {
        self.owed += flash_page * pages;
        self.waiting += self.room_of(flash_page) * pages;
        self.programs -= pages as u32;
    }

    /// The room of `owed` programmed bytes, if more are owed.
    fn room_of(&self, owed: Bytes) -> Bytes {
        Bytes((owed.0 * self.room) >> 20)
    }

    /// Ends a program or merge that makes this room.
    pub fn programmed(&mut self, room: Bytes) {
        self.taken -= room;
        self.programs -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::KIB;

    #[test]
    fn taking_pages_together_equals_taking_pages_singly() {
        let page = KIB * 4;
        for owed in [KIB, KIB * 4, KIB * 5, KIB * 31, KIB * 32] {
            let mut singly = BufferAmounts::default();
            singly.insert(KIB * 4, owed, Bytes::ZERO);
            let (before, mut together) = (singly.clone(), singly.clone());
            let (pages, room) = together.take_pages(page);
            assert_eq!(pages, (owed.0 - 1) / page.0);
            (0..pages).for_each(|_| assert_eq!(singly.take_page(page), room));
            assert_eq!(together, singly, "{owed}");
            together.give_back(pages, page);
            assert_eq!(together, before, "{owed}");
        }
        let mut merging = BufferAmounts::default();
        merging.insert(KIB * 64, KIB * 64, KIB * 512);
        assert_eq!(merging.take_pages(page).0, 0, "merges come first");
    }
}
