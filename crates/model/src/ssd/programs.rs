//! What an SSD has to program, piece by piece: what its write buffer owes, with the copies, merges and
//! erasures for it.
//!
//! A piece of work keeps one channel for a time. It is a flash page, or a channel's share of a merge, which
//! runs on all channels at once; blocks are erased at the end of a piece, once there is as much to erase.

use crate::ssd::params::{Mapping, Params};
use crate::ssd::spread::Spread;
use crate::ssd::translation::Cost;
use crate::ssd::write_buffer::WriteBuffer;
use braid_base::{Bytes, Nanos, Rng};

/// The write buffer, and how long it takes to program what it owes.
#[derive(Clone, Debug)]
pub struct Programs {
    buffer: WriteBuffer,
    page: Bytes,
    /// The transfer of the page included.
    time: Spread,
    erase: Nanos,
    erase_block: Bytes,
    /// Bytes for which blocks have not yet been erased.
    unerased: Bytes,
    /// The programs that one copy takes the time of.
    copy: f64,
    /// A channel's share of a merge.
    merge_share: Bytes,
    rng: Rng,
}

impl Programs {
    /// None yet.
    pub fn new(params: &Params, rng: Rng) -> Programs {
        let transfer = params.channel.time_for(params.flash_page);
        let (program, copy) = (params.program + transfer, params.read + transfer * 2 + params.program);
        let merge = match params.mapping {
            Mapping::Blocks(blocks) => blocks.merge,
            Mapping::Pages(_) => Bytes::ZERO,
        };
        Programs {
            buffer: WriteBuffer::default(),
            page: params.flash_page,
            time: Spread::around(params.program).and(transfer),
            erase: params.erase,
            erase_block: params.erase_block,
            unerased: Bytes::ZERO,
            copy: copy.0 as f64 / program.0 as f64,
            merge_share: (merge / u64::from(params.channels)).max(params.flash_page),
            rng,
        }
    }

    /// The buffer, as far as pieces have ended.
    pub fn buffer(&self) -> &WriteBuffer {
        &self.buffer
    }

    /// Takes a write into the buffer.
    #[inline]
    pub fn insert(&mut self, len: Bytes, cost: Cost) {
        let copies = Bytes((cost.copied.0 as f64 * self.copy) as u64);
        self.buffer.insert(len, cost.own + copies, cost.merged);
        self.unerased += cost.own + cost.copied + cost.merged;
    }

    /// Whether there is a whole flash page to program, or a merge.
    pub fn has_page(&self) -> bool {
        self.buffer.has_page(self.page)
    }

    /// Whether a piece should begin where a channel is free: that, or a part of a page that no more will come
    /// to.
    pub fn is_due(&self) -> bool {
        self.buffer.is_due(self.page)
    }

    /// Begins a piece: how long it takes, and the room that it makes at its end.
    #[inline(always)]
    pub fn begin(&mut self) -> (Nanos, Bytes) {
        let mut time = self.time.draw(&mut self.rng);
        let room = match self.buffer.owes_merge() {
            true => self.merge(&mut time),
            false => self.buffer.take_page(self.page),
        };
        if self.unerased >= self.erase_block {
            self.unerased -= self.erase_block;
            time += self.erase;
        }
        (time, room)
    }

    /// Begins pages that are all alike, as many as can come before any other piece: how many, how long each
    /// takes, and the room that it makes at its end. Like those of one read, they take the same time, which
    /// is drawn once.
    pub fn take_pages(&mut self) -> (u64, (Nanos, Bytes)) {
        let (pages, room) = match self.unerased >= self.erase_block {
            true => (0, Bytes::ZERO),
            false => self.buffer.take_pages(self.page),
        };
        let time = if pages == 0 { Nanos::ZERO } else { self.time.draw(&mut self.rng) };
        (pages, (time, room))
    }

    /// So many of them do not begin after all.
    pub fn give_back(&mut self, pages: u64) {
        self.buffer.give_back(pages, self.page);
    }

    /// A share of a merge takes as many times as long as a program as it has pages. It makes no room.
    #[inline(never)]
    fn merge(&mut self, time: &mut Nanos) -> Bytes {
        *time = *time * (self.buffer.take_merge(self.merge_share).align_up(self.page) / self.page);
        Bytes::ZERO
    }

    /// A piece has ended that makes this room.
    pub fn end(&mut self, room: Bytes) {
        self.buffer.programmed(room);
    }
}
