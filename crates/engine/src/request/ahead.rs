//! What was read ahead of streams: parts of extents, in memory of their own.
//!
//! They are read without the lock of their extent, which nobody has when that begins. Each change of a guest
//! drops what it touches as it begins, under the lock, and all of what comes of its extent. So what is here
//! is what the extent holds, and a read that shares the lock may have it. Here they are until they have been
//! read to their end, or until their memory is needed.

use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_policy::Lru;
use braid_runtime::{Arena, Buf, Event};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Memory that is enough to read ahead of most loads: runs of a quarter to a whole MiB for sixteen streams on
/// a few devices.
pub const READ_AHEAD: Bytes = Bytes(32 << 20);

/// Parts of extents that were read ahead, one of an extent.
pub(crate) struct Ahead {
    /// None if nothing is read ahead.
    arena: Option<Arena>,
    parts: HashMap<ExtentId, Part, FixedState>,
    /// The first that came goes first.
    came: Lru<ExtentId>,
}

struct Part {
    range: Range<Bytes>,
    request: Rc<Request>,
    /// None until the device has read it.
    bytes: Option<Buf>,
}

/// A request to a device that reads ahead.
pub(crate) struct Request {
    pub device: DeviceId,
    len: Bytes,
    /// How long it took; none until the device has answered.
    took: Cell<Option<Nanos>>,
    answered: Event,
}

impl Request {
    /// Nothing has been read yet.
    pub fn new(device: DeviceId, len: Bytes) -> Request {
        Request { device, len, took: Cell::new(None), answered: Event::default() }
    }

    /// The device has answered.
    pub fn end(&self, took: Nanos) {
        self.took.set(Some(took));
        self.answered.notify();
    }

    /// Waits for that.
    pub async fn answer(&self) {
        self.answered.wait_for(|| self.took.get()).await;
    }

    /// How much of its time a part of so many bytes took.
    pub fn share(&self, len: Bytes) -> Nanos {
        let took = self.took.get().unwrap_or_default();
        Nanos((u128::from(took.0) * u128::from(len.0) / u128::from(self.len.0)) as u64)
    }
}

impl Ahead {
    /// Room for at most `most` bytes.
    ///
    /// # Errors
    /// `Invalid` if the machine has no such memory.
    pub fn new(most: Bytes) -> Result<Ahead> {
        let no_memory = || {
            let problem =
                format!("{most} to read ahead of streams, which this machine does not give: use less");
            Error::new(ErrorKind::Invalid, problem)
        };
        let arena = match most {
            Bytes::ZERO => None,
            most => Some(Arena::try_new(most).ok_or_else(no_memory)?),
        };
        Ok(Ahead { arena, parts: HashMap::default(), came: Lru::default() })
    }

    /// Whether anything is read ahead at all.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.arena.is_some()
    }

    /// Whether a piece is here, or comes.
    pub fn covers(&self, piece: &Piece) -> bool {
        self.parts.get(&piece.extent).is_some_and(|part| holds(&part.range, &piece.range))
    }

    /// The request by which a piece comes, if it does.
    #[inline]
    pub fn coming(&self, piece: &Piece) -> Option<Rc<Request>> {
        if self.parts.is_empty() {
            return None;
        }
        let part = self.parts.get(&piece.extent).filter(|part| holds(&part.range, &piece.range))?;
        part.bytes.is_none().then(|| part.request.clone())
    }

    /// Copies a piece out, if it is here; the request that brought it.
    #[inline]
    pub fn read(&self, piece: &Piece, into: &Buf) -> Option<Rc<Request>> {
        if self.parts.is_empty() {
            return None;
        }
        let Part { range, request, bytes } = self.parts.get(&piece.extent)?;
        let bytes = bytes.as_ref().filter(|_| holds(range, &piece.range))?;
        let start = piece.range.start - range.start;
        into.copy_from(Bytes::ZERO, &bytes.slice(start..start + piece.len()));
        Some(request.clone())
    }

    /// All of an extent, if it is here.
    pub fn whole(&self, extent: ExtentId, size: Bytes) -> Option<&Buf> {
        let part = self.parts.get(&extent).filter(|part| part.range == (Bytes::ZERO..size))?;
        part.bytes.as_ref()
    }

    /// A piece was read: if nothing follows it, its part is not needed any more.
    pub fn pass(&mut self, piece: &Piece) {
        if self.parts.get(&piece.extent).is_some_and(|part| part.range.end == piece.range.end) {
            self.drop_part(piece.extent);
        }
    }

    /// Memory for so many bytes, if what came first goes for it.
    pub fn room(&mut self, len: Bytes) -> Option<Buf> {
        loop {
            if let Some(buf) = self.arena.as_ref()?.try_alloc(len) {
                return Some(buf);
            }
            let oldest = self.came.pop_oldest()?;
            self.parts.remove(&oldest);
        }
    }

    /// A piece comes.
    pub fn expect(&mut self, piece: &Piece, request: &Rc<Request>) {
        self.drop_part(piece.extent);
        let (range, request) = (piece.range.clone(), request.clone());
        self.parts.insert(piece.extent, Part { range, request, bytes: None });
    }

    /// What a request was to bring of an extent has come; nothing if it was not to be read. It is dropped if
    /// nothing comes of it any more.
    pub fn end(&mut self, piece: &Piece, request: &Rc<Request>, read: Option<Buf>) {
        let Some(part) = self.parts.get_mut(&piece.extent) else { return };
        if !Rc::ptr_eq(&part.request, request) || part.range != piece.range || part.bytes.is_some() {
            return;
        }
        match read {
            Some(bytes) => {
                part.bytes = Some(bytes);
                self.came.touch(piece.extent);
            }
            None => _ = self.parts.remove(&piece.extent),
        }
    }

    /// A piece changes: what is here of it goes, and of the rest of its part the shorter end; what comes of
    /// its extent goes whole.
    #[inline]
    pub fn cut(&mut self, piece: &Piece) {
        if self.parts.is_empty() {
            return;
        }
        let Some(Part { range, bytes, .. }) = self.parts.get_mut(&piece.extent) else { return };
        let Some(bytes) = bytes else { return self.drop_part(piece.extent) };
        let (before, after) = (range.start..piece.range.start, piece.range.end..range.end);
        let len = |part: &Range<Bytes>| part.end.saturating_sub(part.start);
        let touches = piece.range.start < range.end && range.start < piece.range.end;
        let rest = if len(&after) >= len(&before) { after } else { before };
        if !touches {
        } else if len(&rest) == Bytes::ZERO {
            self.drop_part(piece.extent);
        } else {
            *bytes = bytes.slice(rest.start - range.start..rest.end - range.start);
            *range = rest;
        }
    }

    /// Forgets what is here of an extent.
    pub fn drop_part(&mut self, extent: ExtentId) {
        if !self.parts.is_empty() && self.parts.remove(&extent).is_some() {
            self.came.remove(extent);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        while self.came.pop_oldest().is_some() {}
        self.parts.clear();
    }
}

fn holds(range: &Range<Bytes>, piece: &Range<Bytes>) -> bool {
    range.start <= piece.start && piece.end <= range.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB};

    const EXTENT: ExtentId = ExtentId(7);

    fn piece(range: Range<u64>) -> Piece {
        Piece { extent: EXTENT, range: KIB * range.start..KIB * range.end }
    }

    /// All of an extent of 128 KiB: each KiB is full of its number.
    fn whole() -> Ahead {
        let mut ahead = Ahead::new(MIB).unwrap();
        let buf = ahead.room(KIB * 128).unwrap();
        buf.with_bytes_mut(|bytes| bytes.iter_mut().zip(0..).for_each(|(byte, at)| *byte = (at >> 10) as u8));
        let request = request();
        ahead.expect(&piece(0..128), &request);
        ahead.end(&piece(0..128), &request, Some(buf));
        ahead
    }

    fn request() -> Rc<Request> {
        Rc::new(Request::new(DeviceId(0), KIB * 128))
    }

    /// The first byte of a piece, if it is here.
    fn read(ahead: &Ahead, range: Range<u64>) -> Option<u8> {
        let into = Arena::new(MIB).try_alloc(KIB * (range.end - range.start)).unwrap();
        ahead.read(&piece(range), &into).map(|_| into.with_bytes(|bytes| bytes[0]))
    }

    #[test]
    fn a_change_takes_what_it_touches_and_the_longer_rest_stays() {
        let mut ahead = whole();
        ahead.cut(&piece(20..24));
        assert_eq!([0..4, 16..20, 20..24, 22..30].map(|range| read(&ahead, range)), [None; 4]);
        assert_eq!([24..28, 124..128].map(|range| read(&ahead, range)), [Some(24), Some(124)]);
        ahead.cut(&piece(100..101));
        assert_eq!([24..100, 99..100].map(|range| read(&ahead, range)), [Some(24), Some(99)]);
        assert_eq!([100..101, 101..128, 99..101].map(|range| read(&ahead, range)), [None; 3]);
        ahead.cut(&piece(0..20));
        ahead.cut(&piece(110..128));
        assert_eq!(read(&ahead, 24..100), Some(24), "what it does not touch stays");
        ahead.cut(&piece(0..128));
        assert_eq!(read(&ahead, 24..25), None);
        assert!(ahead.parts.is_empty() && ahead.came.is_empty());
    }

    #[test]
    fn what_comes_of_an_extent_that_changes_is_dropped() {
        let mut ahead = Ahead::new(MIB).unwrap();
        let (first, second) = (request(), request());
        ahead.expect(&piece(0..128), &first);
        assert!(ahead.coming(&piece(64..128)).is_some());
        ahead.cut(&piece(0..4));
        assert!(ahead.coming(&piece(64..128)).is_none());
        ahead.expect(&piece(0..128), &second);
        let buf = ahead.room(KIB * 128).unwrap();
        ahead.end(&piece(0..128), &first, Some(buf.clone()));
        assert_eq!(read(&ahead, 64..128), None, "the second one is on its way");
        ahead.end(&piece(0..128), &second, Some(buf));
        assert!(read(&ahead, 64..128).is_some());
    }

    /// Two pieces of an extent came by one request: the second got the bytes of the first.
    #[test]
    fn a_piece_gets_its_own_bytes_alone() {
        let (mut ahead, request) = (Ahead::new(MIB).unwrap(), request());
        ahead.expect(&piece(0..64), &request);
        ahead.expect(&piece(64..128), &request);
        let half = |ahead: &mut Ahead, value: u8| {
            let buf = ahead.room(KIB * 64).unwrap();
            buf.with_bytes_mut(|bytes| bytes.fill(value));
            Some(buf)
        };
        let (first, second) = (half(&mut ahead, 1), half(&mut ahead, 2));
        ahead.end(&piece(0..64), &request, first);
        assert_eq!(read(&ahead, 64..128), None);
        ahead.end(&piece(64..128), &request, second);
        assert_eq!(read(&ahead, 64..128), Some(2));
    }

    #[test]
    fn what_was_read_to_its_end_goes() {
        let mut ahead = whole();
        ahead.pass(&piece(0..64));
        assert_eq!(read(&ahead, 0..64), Some(0));
        ahead.pass(&piece(64..128));
        assert_eq!(read(&ahead, 0..64), None);
    }

    #[test]
    fn if_memory_is_short_what_came_first_goes() {
        let mut ahead = whole();
        assert!(ahead.room(MIB - KIB * 512).is_some_and(|_| read(&ahead, 0..4).is_some()));
        assert!(ahead.room(MIB).is_some());
        assert_eq!(read(&ahead, 0..4), None);
        let _all = ahead.room(MIB).unwrap();
        assert!(ahead.room(KIB * 4).is_none());
    }
}
