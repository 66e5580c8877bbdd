//! What the write buffer of an SSD holds, and what it owes to the flash.
//!
//! Only amounts are kept. Buffered bytes become room in proportion to what has been programmed for them, so that a write
//! that costs five times its bytes stays five times as long.

use braid_base::Bytes;

/// The amounts.
#[derive(Clone, Debug, Default)]
pub struct WriteBuffer {
    /// Buffered.
    taken: Bytes,
    /// Of that, not yet being programmed.
    waiting: Bytes,
    /// Bytes to program for what is waiting.
    owed: Bytes,
    /// Room for each byte that is programmed, in 2^-20.
    room: u64,
    /// Bytes to merge before that.
    merges: Bytes,
    /// Programs under way.
    programs: u32,
}

impl WriteBuffer {
    /// Takes a write of `len`, for which so much is to be programmed and merged.
    #[inline]
    pub fn insert(&mut self, len: Bytes, owed: Bytes, merges: Bytes) {
        self.taken += len;
        self.waiting += len;
        self.owed += owed;
        self.merges += merges;
        self.room = (self.waiting.0 << 20) / self.owed.0.max(1);
    }

    /// How much of the buffer is taken.
    pub fn taken(&self) -> Bytes {
        self.taken
    }

    /// Whether everything is in the flash.
    pub fn is_drained(&self) -> bool {
        self.taken == Bytes::ZERO && self.merges == Bytes::ZERO && self.programs == 0
    }

    /// Whether there is a whole flash page to program, or a merge.
    pub fn has_page(&self, flash_page: Bytes) -> bool {
        self.owes_merge() || self.owed >= flash_page
    }

    /// Whether there is a merge, which comes before pages.
    pub fn owes_merge(&self) -> bool {
        self.merges > Bytes::ZERO
    }

    /// Whether there is that, or a part of a page and no program under way that more could come after.
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

    /// Begins to program at most `flash_page` of what is owed; returns the room that this will make.
    pub fn take_page(&mut self, flash_page: Bytes) -> Bytes {
        let owed = self.owed.min(flash_page);
        let room = if owed == self.owed { self.waiting } else { Bytes((owed.0 * self.room) >> 20) };
        self.owed -= owed;
        self.waiting -= room;
        self.programs += 1;
        room
    }

    /// A program or merge is over that makes this room.
    pub fn programmed(&mut self, room: Bytes) {
        self.taken -= room;
        self.programs -= 1;
    }
}
