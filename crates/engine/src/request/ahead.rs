//! Bytes read ahead of streams: parts of extents, in separate memory.
//!
//! A read-ahead begins while no task holds the extent's lock, and takes no lock. As a guest's change begins,
//! under the lock, the change drops the bytes in its range. If the read is still in flight, the change drops
//! the whole part. Memory therefore always equals the extent, and a read with the shared lock may use the
//! bytes. Parts stay until read to the end, or until their memory is needed.

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

/// Default memory for read-ahead. Enough for most loads: runs of 256 KiB to 1 MiB for sixteen streams on a
/// few devices.
pub const READ_AHEAD: Bytes = Bytes(32 << 20);

/// Parts of extents that were read ahead, at most one part for each extent.
pub(crate) struct Ahead {
    /// Size of the memory.
    pub most: Bytes,
    /// `None` if read-ahead is off.
    arena: Option<Arena>,
    parts: HashMap<ExtentId, AheadPart, FixedState>,
    /// Parts in order of arrival: the oldest part is evicted first.
    came: Lru<ExtentId>,
}

struct AheadPart {
    range: Range<Bytes>,
    request: Rc<AheadRequest>,
    /// `None` until the device has read the bytes.
    bytes: Option<Buf>,
}

/// A read-ahead request to a device.
pub(crate) struct AheadRequest {
    pub device: DeviceId,
    len: Bytes,
    /// Latency of the request; `None` until the device has answered.
    took: Cell<Option<Nanos>>,
    answered: Event,
}

impl AheadRequest {
    /// Returns a request without an answer yet.
    pub fn new(device: DeviceId, len: Bytes) -> AheadRequest {
        AheadRequest { device, len, took: Cell::new(None), answered: Event::default() }
    }

    /// Records the answer of the device.
    pub fn end(&self, took: Nanos) {
        self.took.set(Some(took));
        self.answered.notify();
    }

    /// Waits for the answer of the device.
    pub async fn answer(&self) {
        self.answered.wait_for(|| self.took.get()).await;
    }

    /// Returns the share of the request's time for `len` bytes.
    pub fn share(&self, len: Bytes) -> Nanos {
        let took = self.took.get().unwrap_or_default();
        Nanos((u128::from(took.0) * u128::from(len.0) / u128::from(self.len.0)) as u64)
    }
}

impl Ahead {
    /// Allocates memory of `most` bytes.
    ///
    /// # Errors
    /// `Invalid` if the machine does not have the memory.
    pub fn new(most: Bytes) -> Result<Ahead> {
        let no_memory = || {
            let problem = format!("{most} to read ahead of streams exceed this machine's memory: use less");
            Error::new(ErrorKind::Invalid, problem)
        };
        let arena = match most {
            Bytes::ZERO => None,
            most => Some(Arena::try_new(most).ok_or_else(no_memory)?),
        };
        Ok(Ahead { most, arena, parts: HashMap::default(), came: Lru::default() })
    }

    /// True if read-ahead is on.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.arena.is_some()
    }

    /// True if a piece is in memory or in flight.
    pub fn covers(&self, piece: &Piece) -> bool {
        self.parts.get(&piece.extent).is_some_and(|part| holds(&part.range, &piece.range))
    }

    /// Returns the request in flight for a piece, if any.
    #[inline]
    pub fn coming(&self, piece: &Piece) -> Option<Rc<AheadRequest>> {
        if self.parts.is_empty() {
            return None;
        }
        let part = self.parts.get(&piece.extent).filter(|part| holds(&part.range, &piece.range))?;
        part.bytes.is_none().then(|| part.request.clone())
    }

    /// Copies a piece to `into`, if in memory. Returns the request that read the piece.
    #[inline]
    pub fn read(&self, piece: &Piece, into: &Buf) -> Option<Rc<AheadRequest>> {
        if self.parts.is_empty() {
            return None;
        }
        let AheadPart { range, request, bytes } = self.parts.get(&piece.extent)?;
        let bytes = bytes.as_ref().filter(|_| holds(range, &piece.range))?;
        let start = piece.range.start - range.start;
        into.copy_from(Bytes::ZERO, &bytes.slice(start..start + piece.len()));
        Some(request.clone())
    }

    /// Returns the bytes of a whole extent, if in memory.
    pub fn whole(&self, extent: ExtentId, size: Bytes) -> Option<&Buf> {
        let part = self.parts.get(&extent).filter(|part| part.range == (Bytes::ZERO..size))?;
        part.bytes.as_ref()
    }

    /// Notes a read of a piece. A part that was read to its end is dropped.
    pub fn pass(&mut self, piece: &Piece) {
        if self.parts.get(&piece.extent).is_some_and(|part| part.range.end == piece.range.end) {
            self.drop_part(piece.extent);
        }
    }

    /// Returns memory for `len` bytes. The oldest parts are evicted if necessary.
    pub fn room(&mut self, len: Bytes) -> Option<Buf> {
        loop {
            if let Some(buf) = self.arena.as_ref()?.try_alloc(len) {
                return Some(buf);
            }
            let oldest = self.came.pop_oldest()?;
            self.parts.remove(&oldest);
        }
    }

    /// Notes that a request in flight will bring a piece.
    pub fn expect(&mut self, piece: &Piece, request: &Rc<AheadRequest>) {
        self.drop_part(piece.extent);
        let (range, request) = (piece.range.clone(), request.clone());
        self.parts.insert(piece.extent, AheadPart { range, request, bytes: None });
    }

    /// Stores the bytes of a piece at the end of its request; `None` drops the part. Ignored if the part was
    /// dropped or replaced meanwhile.
    pub fn end(&mut self, piece: &Piece, request: &Rc<AheadRequest>, read: Option<Buf>) {
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

    /// Drops the bytes of a piece that changes. Of the rest of the part, the longer end stays. A part in
    /// flight is dropped whole.
    #[inline]
    pub fn cut(&mut self, piece: &Piece) {
        if self.parts.is_empty() {
            return;
        }
        let Some(AheadPart { range, bytes, .. }) = self.parts.get_mut(&piece.extent) else { return };
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

    /// Drops the part of an extent.
    pub fn drop_part(&mut self, extent: ExtentId) {
        if !self.parts.is_empty() && self.parts.remove(&extent).is_some() {
            self.came.remove(extent);
        }
    }

    /// Drops all parts.
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

    /// Returns memory with all of an extent of 128 KiB: the bytes of each KiB are its number.
    fn whole() -> Ahead {
        let mut ahead = Ahead::new(MIB).unwrap();
        let buf = ahead.room(KIB * 128).unwrap();
        buf.with_bytes_mut(|bytes| bytes.iter_mut().zip(0..).for_each(|(byte, at)| *byte = (at >> 10) as u8));
        let request = request();
        ahead.expect(&piece(0..128), &request);
        ahead.end(&piece(0..128), &request, Some(buf));
        ahead
    }

    fn request() -> Rc<AheadRequest> {
        Rc::new(AheadRequest::new(DeviceId(0), KIB * 128))
    }

    /// Returns the first byte of a piece, if in memory.
    fn read(ahead: &Ahead, range: Range<u64>) -> Option<u8> {
        let into = Arena::new(MIB).try_alloc(KIB * (range.end - range.start)).unwrap();
        ahead.read(&piece(range), &into).map(|_| into.with_bytes(|bytes| bytes[0]))
    }

    #[test]
    fn change_drops_touched_bytes_and_keeps_longer_rest() {
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
    fn read_ahead_in_flight_is_dropped_when_extent_changes() {
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

    /// One request brought two pieces of an extent, and the second piece got the bytes of the first.
    #[test]
    fn each_piece_of_shared_request_gets_own_bytes() {
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
    fn read_ahead_is_dropped_when_read_to_end() {
        let mut ahead = whole();
        ahead.pass(&piece(0..64));
        assert_eq!(read(&ahead, 0..64), Some(0));
        ahead.pass(&piece(64..128));
        assert_eq!(read(&ahead, 0..64), None);
    }

    #[test]
    fn read_ahead_is_evicted_if_memory_is_short() {
        let mut ahead = whole();
        assert!(ahead.room(MIB - KIB * 512).is_some_and(|_| read(&ahead, 0..4).is_some()));
        assert!(ahead.room(MIB).is_some());
        assert_eq!(read(&ahead, 0..4), None);
        let _all = ahead.room(MIB).unwrap();
        assert!(ahead.room(KIB * 4).is_none());
    }
}
