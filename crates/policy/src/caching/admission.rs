//! Which blocks deserve an extra copy: not those of long sequential streams (`bypass=1MiB`; `off` caches
//! them, too).
//!
//! A disk serves a stream nearly as fast as an SSD does, and a stream longer than the cache would leave
//! nothing of what was in it. Worse, a part of it that goes to the SSD has to be written to the disk all the
//! same, and what remains is no stream any more: caching streams made sequential loads up to 2.7 times slower
//! than the disk alone. A stream is a run of requests each of which begins where an earlier one ended; there
//! may be several at the same time. The first bytes of each are cached, since its length is not known yet; a
//! single request of that length is a stream from its beginning.
//!
//! Nor blocks of which a guest writes only a part: the rest would have to be read from the disk before, while
//! the guest waits, and a disk takes the write itself into its buffer in much less time. If a flush follows
//! and such a block is written again, as by a log of sectors, it deserves a copy: there the disk would have
//! to turn for each write. (On traces without flushes, a copy at the second write made caches 1.6 times
//! slower than the disk alone.) `part-writes=cache` gives all such blocks copies.
//!
//! What is left, a filter may keep out until it has been asked for more often (`admit`, [`super::filter`]).

use super::filter::Filter;
use super::ghosts::Ghosts;
use super::written;
use crate::{BadSetting, ByteRange, Piece, Request, Settings, View};
use braid_base::{BlockId, Bytes, GIB, KIB, MIB, Op};

/// Passes streams by.
pub struct Admission {
    /// How long a stream is that is passed by, if any is.
    bypass: Option<Bytes>,
    /// Whether blocks of which a guest writes only a part are cached.
    part_writes: bool,
    streams: [Stream; STREAMS],
    /// Requests so far.
    asked: u64,
    /// Blocks of which a part has been written since the last flush.
    written_in_part: Vec<BlockId>,
    /// Those of which a part was written before a flush, not long ago.
    flushed_in_part: Ghosts,
    filter: Filter,
}

/// The file of a user is shorter, and a disk reads that much in a few turns.
const BYPASS: Bytes = MIB;
const SHORT_WRITE: Bytes = Bytes(16 << 10);
/// Streams that are known at the same time: bcache knows 128 of a whole machine, and a volume of a file
/// server has a few.
const STREAMS: usize = 16;
/// Requests of a stream may overtake so many others: several are under way. With many more, requests here and
/// there in a small range would look like a stream.
const OVERTAKEN: u64 = 2;
/// So many blocks that were written in part are known: more than logs there are, and far fewer than a
/// database has pages.
const WRITTEN_IN_PART: usize = 1024;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Where the next request is expected.
    next: Bytes,
    len: Bytes,
    /// Its last request.
    asked: u64,
}

impl Admission {
    /// Setting: `bypass` (1MiB), the length from which on a stream is passed by, or `off`.
    pub fn take(settings: &mut Settings) -> Result<Admission, BadSetting> {
        let off = settings.is("bypass", "off");
        let bypass = if off { None } else { Some(settings.take_bytes("bypass", BYPASS, KIB * 64..=GIB)?) };
        let streams = [Stream::default(); STREAMS];
        let (written_in_part, flushed_in_part) = (Vec::new(), Ghosts::default());
        let filter = Filter::All;
        Ok(Admission {
            bypass,
            part_writes: false,
            streams,
            asked: 0,
            written_in_part,
            flushed_in_part,
            filter,
        })
    }

    /// The same for a cache that is written. Setting: `part-writes` (disk), where a write goes that covers
    /// only a part of a block: to the disk, or to the `cache`.
    pub fn with_writes(mut self, settings: &mut Settings) -> Result<Admission, BadSetting> {
        self.part_writes = match settings.take_text("part-writes").as_deref() {
            None | Some("disk") => false,
            Some("cache") => true,
            Some(other) => return Err(settings.bad("part-writes", other, "disk or cache")),
        };
        Ok(self)
    }

    /// The same with a filter. Settings: `admit`, and those of a filter.
    pub fn with_filter(mut self, settings: &mut Settings) -> Result<Admission, BadSetting> {
        self.filter = Filter::take(settings)?;
        Ok(self)
    }

    /// The settings as text, if they are not the default.
    pub fn settings(&self) -> Vec<String> {
        let text = self.bypass.map_or("off".to_owned(), |len| format!("{}B", len.0));
        let own = written([
            (self.bypass != Some(BYPASS)).then(|| format!("bypass={text}")),
            self.part_writes.then(|| "part-writes=cache".to_owned()),
        ]);
        [own, self.filter.settings()].concat()
    }

    /// Whether a write is of a long stream. A short one never is, though they may follow each other: they are
    /// those of a log more often than not, with a flush behind each, for which a disk waits a turn.
    ///
    /// What lies in the cache of the blocks that such a write covers is best dropped: to write it there, too,
    /// costs as much as to cache the stream would.
    pub fn passes_by(&mut self, write: &Piece) -> bool {
        !self.admits(write) && write.request.len() >= SHORT_WRITE
    }

    /// Whether another write deserves extra copies. Nothing has to be read for the first write to an extent.
    pub fn admits_write(&mut self, write: &Piece, view: &View) -> bool {
        self.part_writes || view.homes.home(write.extent).is_none() || self.needs_no_read(write, view)
    }

    /// Whether the filter lets the blocks of a piece in that are not cached, into a cache of so many blocks.
    /// To be asked once of each piece that deserves extra copies, in the order in which they come.
    pub fn lets_in(&mut self, piece: &Piece, blocks: u64, view: &View) -> bool {
        self.filter.lets_in(piece, blocks, view)
    }

    /// Bytes of memory that the filter takes.
    pub fn memory(&self) -> usize {
        self.filter.memory()
    }

    /// Learns of a request, before it is cut into pieces.
    pub fn observe(&mut self, request: &Request) {
        if request.op == Op::Flush || request.flags.fua {
            self.written_in_part.sort_unstable();
            self.written_in_part.dedup();
            for block in self.written_in_part.drain(..) {
                self.flushed_in_part.remember(block, WRITTEN_IN_PART);
            }
        }
    }

    /// Whether the blocks in which a write begins and ends are covered whole or cached, or a log's.
    fn needs_no_read(&mut self, write: &Piece, view: &View) -> bool {
        let last = BlockId(write.first_block.0 + u64::from(write.blocks) - 1);
        let edges = [(write.range.start, write.first_block), (write.range.end, last)];
        let mut all = true;
        for (at, block) in edges {
            if !at.is_aligned(view.block_size)
                && view.homes.extra(block).is_none()
                && !self.flushed_in_part.forget(block, WRITTEN_IN_PART)
            {
                if self.written_in_part.len() < WRITTEN_IN_PART {
                    self.written_in_part.push(block);
                }
                all = false;
            }
        }
        all
    }

    /// Whether a piece deserves extra copies. To be asked of every piece that memory does not hold, in the
    /// order in which they come.
    pub fn admits(&mut self, piece: &Piece) -> bool {
        let Some(bypass) = self.bypass else { return true };
        self.asked += 1;
        let ByteRange { start, end } = piece.request;
        let slack = piece.request.len() * OVERTAKEN;
        let goes_on = |stream: &&mut Stream| {
            stream.asked > 0 && start + slack >= stream.next && start <= stream.next + slack
        };
        let stream = match self.streams.iter_mut().find(goes_on) {
            Some(stream) => stream,
            None => {
                let oldest = self.streams.iter_mut().min_by_key(|stream| stream.asked);
                let oldest = oldest.expect("there are streams");
                *oldest = Stream { next: start, ..Stream::default() };
                oldest
            }
        };
        // One that was overtaken does not make it longer, nor do further pieces of the same request.
        stream.len += end.saturating_sub(stream.next);
        (stream.next, stream.asked) = (stream.next.max(end), self.asked);
        stream.len < bypass
    }
}
