//! Pending programs of an SSD, piece by piece: the write buffer's content, with its copies, merges and
//! erasures.
//!
//! A piece of work keeps one channel busy for a time. A piece is a flash page, or a channel's share of a
//! merge, which runs on all channels at once. Blocks are erased at the end of a piece, once a whole block of
//! erasure is pending.

use crate::ssd::params::{Mapping, Params};
use crate::ssd::spread::Spread;
use crate::ssd::translation::Cost;
use crate::ssd::write_buffer::BufferAmounts;
use braid_base::{Bytes, Nanos, Rng};

/// The write buffer, and the time of its pending programs.
#[derive(Clone, Debug)]
pub struct Programs {
    buffer: BufferAmounts,
    page: Bytes,
    /// The time of a program, including the transfer of the page.
    time: Spread,
    erase: Nanos,
    erase_block: Bytes,
    /// Programmed bytes without erased blocks yet.
    unerased: Bytes,
    /// Time of a copy, in programs.
    copy: f64,
    /// A channel's share of a merge.
    merge_share: Bytes,
    rng: Rng,
}

/// A begun piece.
#[derive(Clone, Copy)]
pub struct Piece {
    pub time: Nanos,
    /// The room at its end.
    pub room: Bytes,
}

impl Programs {
    /// No pending programs.
    pub fn new(params: &Params, rng: Rng) -> Programs {
        let transfer = params.channel.time_for(params.flash_page);
        let (program, copy) = (params.program + transfer, params.read + transfer * 2 + params.program);
        let merge = match params.mapping {
            Mapping::Blocks(blocks) => blocks.merge,
            Mapping::Pages(_) => Bytes::ZERO,
        };
        Programs {
            buffer: BufferAmounts::default(),
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
    pub fn buffer(&self) -> &BufferAmounts {
        &self.buffer
    }

    /// Takes a write into the buffer.
    #[inline]
    pub fn insert(&mut self, len: Bytes, cost: Cost) {
        let copies = Bytes((cost.copied.0 as f64 * self.copy) as u64);
        self.buffer.insert(len, cost.own + copies, cost.merged);
        self.unerased += cost.own + cost.copied + cost.merged;
    }

    /// True if a whole flash page or a merge is pending.
    pub fn has_page(&self) -> bool {
        self.buffer.has_page(self.page)
    }

    /// True if a piece should begin on a free channel: a page, a merge, or the last part of a page without
    /// programs in flight.
    pub fn is_due(&self) -> bool {
        self.buffer.is_due(self.page)
    }

    /// Begins a piece.
    #[inline(always)]
    pub fn begin(&mut self) -> Piece {
        let mut time = self.time.draw(&mut self.rng);
        let room = match self.buffer.owes_merge() {
            true => self.merge(&mut time),
            false => self.buffer.take_page(self.page),
        };
        if self.unerased >= self.erase_block {
            self.unerased -= self.erase_block;
            time += self.erase;
        }
        Piece { time, room }
    }

    /// Begins equal pages, as many as can come before any other piece. Returns their number, and each page.
    /// Like the pages of one read, the pages take the same time, drawn once.
    pub fn take_pages(&mut self) -> (u64, Piece) {
        let (pages, room) = match self.unerased >= self.erase_block {
            true => (0, Bytes::ZERO),
            false => self.buffer.take_pages(self.page),
        };
        let time = if pages == 0 { Nanos::ZERO } else { self.time.draw(&mut self.rng) };
        (pages, Piece { time, room })
    }

    /// Gives back `pages` pages that do not begin after all.
    pub fn give_back(&mut self, pages: u64) {
        self.buffer.give_back(pages, self.page);
    }

    /// Adds the time of a share of a merge: one program for each page of the share. A merge makes no room.
    #[inline(never)]
    fn merge(&mut self, time: &mut Nanos) -> Bytes {
        *time = *time * (self.buffer.take_merge(self.merge_share).align_up(self.page) / self.page);
        Bytes::ZERO
    }

    /// Ends a piece that makes this room.
    pub fn end(&mut self, room: Bytes) {
        self.buffer.programmed(room);
    }
}
