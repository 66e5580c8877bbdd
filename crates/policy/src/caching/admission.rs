//! Admission: which blocks deserve a cached copy. Long sequential streams do not (`bypass=1MiB`; `off` caches
//! streams, too).
//!
//! A disk serves a stream nearly as fast as an SSD, and a stream longer than the cache would evict the whole
//! cache. Worse, the part of a stream on the SSD has to be written to the disk anyway, and the remaining part
//! is no stream any more: caching streams made sequential loads up to 2.7 times slower than the disk alone. A
//! stream is a run of requests, each beginning at the end of an earlier request; several streams may run at
//! the same time. The first bytes of each stream are cached, since the length is not yet known. A single
//! request of that length is a stream from the beginning.
//!
//! Partly written blocks do not deserve a copy either. The rest of the block would have to be read from the
//! disk first, while the guest waits, and a disk takes the write itself into its buffer in much less time. If
//! a flush follows and the block is written again, as by a log of sectors, the block deserves a copy: the
//! disk would have to turn for each write. (On traces without flushes, a copy at the second write made caches
//! 1.6 times slower than the disk alone.) `part-writes=cache` gives all partly written blocks copies.
//!
//! A filter may keep the remaining blocks out until more requests have come (`admit`, [`super::filter`]).

use super::filter::Filter;
use super::ghosts::Ghosts;
use super::written;
use crate::{BadSetting, ByteRange, Piece, Request, Settings, View};
use braid_base::{BlockId, Bytes, GIB, KIB, MIB, Op};

/// Admission to a cache: bypasses streams, partly written blocks, and blocks kept out by the filter.
pub struct Admission {
    /// Length from which a stream bypasses the cache; none without bypass.
    bypass: Option<Bytes>,
    /// True if partly written blocks are cached.
    part_writes: bool,
    streams: [Stream; STREAMS],
    /// Number of requests so far.
    asked: u64,
    /// Blocks partly written since the last flush.
    written_in_part: Vec<BlockId>,
    /// Blocks partly written before a recent flush.
    flushed_in_part: Ghosts,
    filter: Filter,
}

/// Files of users are shorter, and a disk reads as much in a few turns.
const BYPASS: Bytes = MIB;
const SHORT_WRITE: Bytes = Bytes(16 << 10);
/// Streams remembered at the same time: bcache remembers 128 for a whole machine, and a volume of a file
/// server has a few.
const STREAMS: usize = 16;
/// Number of other requests that a stream's request may overtake: several are in flight. With many more,
/// scattered requests in a small range would look like a stream.
const OVERTAKEN: u64 = 2;
/// Partly written blocks remembered: more than there are logs, and far fewer than a database has pages.
const WRITTEN_IN_PART: usize = 1024;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Expected start of the next request.
    next: Bytes,
    len: Bytes,
    /// Number of the last request of the stream.
    asked: u64,
}

impl Admission {
    /// Reads the setting `bypass` (1MiB), the length from which a stream bypasses the cache, or `off`. Fails
    /// if the length is outside the limits.
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

    /// Adds the rule for writes. Setting: `part-writes` (disk), the target of a write that covers only a part
    /// of a block: the disk, or the `cache`. Fails for other values.
    pub fn with_writes(mut self, settings: &mut Settings) -> Result<Admission, BadSetting> {
        self.part_writes = match settings.take_text("part-writes").as_deref() {
            None | Some("disk") => false,
            Some("cache") => true,
            Some(other) => return Err(settings.bad("part-writes", other, "disk or cache")),
        };
        Ok(self)
    }

    /// Adds a filter. Settings: `admit`, and the settings of the filter. Fails if a setting is invalid.
    pub fn with_filter(mut self, settings: &mut Settings) -> Result<Admission, BadSetting> {
        self.filter = Filter::take(settings)?;
        Ok(self)
    }

    /// Returns the settings as text, without defaults.
    pub fn settings(&self) -> Vec<String> {
        let text = self.bypass.map_or("off".to_owned(), |len| format!("{}B", len.0));
        let own = written([
            (self.bypass != Some(BYPASS)).then(|| format!("bypass={text}")),
            self.part_writes.then(|| "part-writes=cache".to_owned()),
        ]);
        [own, self.filter.settings()].concat()
    }

    /// True if a write belongs to a long stream. A short write never does, even if short writes follow each
    /// other. Short writes usually come from a log, with a flush after each write, and each flush costs a
    /// disk a turn.
    ///
    /// Cached copies of the blocks covered by such a write are best dropped: a second write to the cache
    /// costs as much as caching the stream.
    pub fn passes_by(&mut self, write: &Piece) -> bool {
        !self.admits(write) && write.request.len() >= SHORT_WRITE
    }

    /// True if a write outside long streams deserves cached copies. The first write to an extent needs no
    /// read.
    pub fn admits_write(&mut self, write: &Piece, view: &View) -> bool {
        self.part_writes || view.homes.home(write.extent).is_none() || self.needs_no_read(write, view)
    }

    /// True if the filter admits the missing blocks of a piece to a cache of `blocks` blocks. Called once for
    /// each piece that deserves cached copies, in order of arrival.
    pub fn lets_in(&mut self, piece: &Piece, blocks: u64, view: &View) -> bool {
        self.filter.lets_in(piece, blocks, view)
    }

    /// Bytes of memory of the filter.
    pub fn memory(&self) -> usize {
        self.filter.memory()
    }

    /// Observes a request, before the request is split into pieces.
    pub fn observe(&mut self, request: &Request) {
        if request.op == Op::Flush || request.flags.fua {
            self.written_in_part.sort_unstable();
            self.written_in_part.dedup();
            for block in self.written_in_part.drain(..) {
                self.flushed_in_part.remember(block, WRITTEN_IN_PART);
            }
        }
    }

    /// True if the first and the last block of a write are covered whole, are cached, or belong to a log.
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

    /// True if a piece deserves cached copies. Called for every piece missing in memory, in order of arrival.
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
        // An overtaken request does not make the stream longer, nor do further pieces of the same request.
        stream.len += end.saturating_sub(stream.next);
        (stream.next, stream.asked) = (stream.next.max(end), self.asked);
        stream.len < bypass
    }
}
