//! Which blocks deserve an extra copy: not those of long sequential streams, if the setting says so (`bypass=1MiB`).
//!
//! A disk serves a stream nearly as fast as an SSD does, and a stream longer than the cache would leave nothing of what was in it. A stream is
//! recognised by where its requests follow each other; several may go on at the same time. The first bytes of each are cached, for nobody
//! knows yet how long it will be.

use super::written;
use crate::{BadSetting, Piece, Settings, View};
use braid_base::{Bytes, GIB, KIB};

/// Passes streams by.
pub struct Admission {
    /// How long a stream is that is passed by, if any is.
    bypass: Option<Bytes>,
    streams: [Stream; STREAMS],
    /// Requests so far.
    asked: u64,
}

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
    /// Setting: `bypass` (off), the length from which on a stream is passed by.
    pub fn take(settings: &mut Settings) -> Result<Admission, BadSetting> {
        let off = settings.is("bypass", "off");
        let bypass =
            if off { Bytes::ZERO } else { settings.take_bytes("bypass", Bytes::ZERO, KIB * 64..=GIB)? };
        let bypass = (bypass > Bytes::ZERO).then_some(bypass);
        Ok(Admission { bypass, streams: [Stream::default(); STREAMS], asked: 0 })
    }

    /// The setting as text, if it is not the default.
    pub fn settings(&self) -> Vec<String> {
        written([self.bypass.map(|len| format!("bypass={len}"))])
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
