//! Which blocks deserve an extra copy: not those of long sequential streams (`bypass=1MiB`; `off` caches them, too).
//!
//! A disk serves a stream nearly as fast as an SSD does, and a stream longer than the cache would leave nothing of what was in it. Worse, a part of it that
//! goes to the SSD has to be written to the disk all the same, and what remains is no stream any more: caching streams made sequential loads up to 2.7 times
//! slower than the disk alone. A stream is a run of requests each of which begins where an earlier one ended; there may be several at the same time. The first bytes of each are cached, since
//! its length is not known yet.

use super::written;
use crate::{BadSetting, Piece, Settings, View};
use braid_base::{Bytes, GIB, KIB, MIB};

/// Passes streams by.
pub struct Admission {
    /// How long a stream is that is passed by, if any is.
    bypass: Option<Bytes>,
    streams: [Stream; STREAMS],
    /// Requests so far.
    asked: u64,
}

/// The file of a user is shorter, and a disk reads that much in a few turns.
const BYPASS: Bytes = MIB;
const SHORT_WRITE: Bytes = Bytes(16 << 10);
/// Streams that are known at the same time: bcache knows 128 of a whole machine, and a volume of a file server has a few.
const STREAMS: usize = 16;
/// Requests of a stream may overtake so many others: several are under way. With many more, requests here and there in a small range would
/// look like a stream.
const OVERTAKEN: u64 = 2;

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
        Ok(Admission { bypass, streams: [Stream::default(); STREAMS], asked: 0 })
    }

    /// The setting as text, if it is not the default.
    pub fn settings(&self) -> Vec<String> {
        let text = self.bypass.map_or("off".to_owned(), |len| len.to_string());
        written([(self.bypass != Some(BYPASS)).then(|| format!("bypass={text}"))])
    }

    /// Whether what a guest writes deserves extra copies: likewise, but that short writes do though they follow each other. They are those of a log
    /// more often than not, with a flush behind each, for which a disk waits a turn.
    pub fn admits_write(&mut self, write: &Piece, view: &View) -> bool {
        self.admits(write, view) || piece_len(write) < SHORT_WRITE
    }

    /// Whether a piece deserves extra copies. To be asked of every piece that memory does not hold, in the order in which they come.
    pub fn admits(&mut self, piece: &Piece, view: &View) -> bool {
        let Some(bypass) = self.bypass else { return true };
        self.asked += 1;
        let start = view.range_of_extent(piece.extent).start;
        let (start, end) = (start + piece.range.start, start + piece.range.end);
        let slack = piece_len(piece) * OVERTAKEN;
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
        // One that was overtaken does not make it longer.
        stream.len += end.saturating_sub(stream.next);
        (stream.next, stream.asked) = (stream.next.max(end), self.asked);
        stream.len < bypass
    }
}

fn piece_len(piece: &Piece) -> Bytes {
    piece.range.end - piece.range.start
}
