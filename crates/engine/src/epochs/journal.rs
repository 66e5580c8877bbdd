//! The journal on the disk: what the disk is, and segments of what an epoch changed.

use super::{Captured, Place};
use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::Uuid;
use braid_format::epoch_journal::{
    Entry, LONGEST_SEGMENT, MOST_ENTRIES, PAGE, Run, STATE_PAGES, StatePage, decode_index, encode_index,
    encode_state, newest_applied, newest_state, next_place,
};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};

/// What a disk says that it is. One that says nothing is not a state of the volume.
pub(crate) async fn state_of<D: Device>(
    member: &Member<D>,
    place: &Place,
    volume: Uuid,
) -> Result<StatePage> {
    let buf = read_states(member, place).await?;
    let page = buf.with_bytes(|bytes| newest_state(bytes, volume)).unwrap_or(StatePage::NOTHING);
    if page.run.at >= place.ring() {
        let text =
            format!("the run of epochs begins at byte {} of a ring of {}", page.run.at.0, place.ring());
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    Ok(page)
}

/// What a disk that has been recovered says that has been applied of its run, as bits; none for any other.
pub(super) async fn applied_of<D: Device>(
    member: &Member<D>,
    place: &Place,
    volume: Uuid,
) -> Result<Vec<u8>> {
    let buf = read_states(member, place).await?;
    Ok(buf.with_bytes(|bytes| newest_applied(bytes, volume).unwrap_or_default().to_vec()))
}

async fn read_states<D: Device>(member: &Member<D>, place: &Place) -> Result<Buf> {
    let len = PAGE * STATE_PAGES;
    let buf = Arena::new(len).alloc(len).await;
    let read = member.read(place.offset, &buf, Deadline::Only).await;
    read.map_err(|e| Error::io(format_args!("the state of the epochs could not be read"), &e))?;
    Ok(buf)
}

/// Writes what the disk is from now on, with the bits of what has been applied of a disk that has been recovered. Not durable yet.
pub(super) async fn write_state<D: Device>(
    member: &Member<D>,
    place: &Place,
    volume: Uuid,
    (page, applied): (&StatePage, &[u8]),
) -> Result<()> {
    let buf = Arena::new(PAGE).alloc(PAGE).await;
    buf.copy_from_slice(Bytes::ZERO, &encode_state(volume, page, applied));
    let at = place.offset + PAGE * (page.sequence % STATE_PAGES);
    let written = member.write(at, &buf, Deadline::Only).await;
    member.note_write();
    written.map_err(|e| Error::io(format_args!("the state of the epochs could not be written"), &e))
}

/// A segment that was read.
pub(super) struct Segment {
    /// The byte of the ring at which it lies.
    pub at: Bytes,
    /// Its ranges, with the bytes of those that are not zeros.
    pub parts: Vec<(Entry, Buf)>,
}

/// Reads some segments of a run, one behind the other, for an image that ends at `end`: as many as lie in one piece of the ring. At least one, and
/// what is left of the run.
pub(super) async fn read_segments<D: Device>(
    member: &Member<D>,
    (place, volume): (&Place, Uuid),
    run: Run,
    arena: &Arena,
    end: Bytes,
) -> Result<(Vec<Segment>, Run)> {
    let len = LONGEST_SEGMENT.min(place.ring() - run.at);
    let buf = arena.alloc(len).await;
    let read = member.read(place.ring_offset() + run.at, &buf, Deadline::Only).await;
    read.map_err(|e| Error::io(format_args!("the journal of epochs could not be read"), &e))?;
    let (mut left, mut segments) = (run, Vec::new());
    while left.segments > 0 && left.at >= run.at {
        let rest = buf.slice(left.at - run.at..len);
        let damaged = |why: &dyn std::fmt::Display| {
            let text = format!("segment {} in the journal of epochs is damaged: {why}", left.first);
            Error::new(ErrorKind::Corrupt, text)
        };
        if rest.len() < PAGE && !segments.is_empty() {
            break;
        }
        let index = rest.with_bytes(|bytes| decode_index(bytes, volume, left.first, end));
        let index = index.map_err(|e| damaged(&e))?;
        let stored = index.stored();
        if PAGE + stored > rest.len() {
            match segments.is_empty() {
                true => return Err(damaged(&"it is longer than the journal")),
                // The next reading begins with it.
                false => break,
            }
        }
        let content = rest.slice(PAGE..PAGE + stored);
        content.with_bytes(|bytes| index.verify(volume, bytes)).map_err(|e| damaged(&e))?;
        let mut from = Bytes::ZERO;
        let part = |entry: Entry| {
            let start = from;
            from += entry.stored();
            (entry, content.slice(start..from))
        };
        segments.push(Segment { at: left.at, parts: index.entries.into_iter().map(part).collect() });
        let at = next_place(left.at + PAGE + stored.align_up(PAGE), place.ring());
        left = Run { at, first: left.first + 1, segments: left.segments - 1 };
    }
    Ok((segments, left))
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes a segment at a byte of the ring. Gives its length.
    pub(super) async fn write_segment(
        &self,
        place: &Place,
        (number, at): (u64, Bytes),
        captured: &[Captured],
    ) -> Result<Bytes> {
        let stored: Bytes = captured.iter().filter_map(|c| c.bytes.as_ref()).map(Buf::len).sum();
        let len = PAGE + stored.align_up(PAGE);
        let buf = Arena::new(LONGEST_SEGMENT).alloc(len).await;
        buf.fill_zero();
        let mut from = PAGE;
        for bytes in captured.iter().filter_map(|c| c.bytes.as_ref()) {
            buf.slice(from..from + bytes.len()).copy_from(Bytes::ZERO, bytes);
            from += bytes.len();
        }
        let entry = |c: &Captured| Entry { range: c.range.clone(), zeros: c.bytes.is_none() };
        let entries: Vec<Entry> = captured.iter().map(entry).collect();
        let volume = self.devices.superblock().volume;
        let index =
            buf.slice(PAGE..PAGE + stored).with_bytes(|bytes| encode_index(volume, number, &entries, bytes));
        buf.copy_from_slice(Bytes::ZERO, &index);
        let at = place.ring_offset() + at;
        self.device_write(self.member(place.device), at, &buf, Origin::Background).await?;
        Ok(len)
    }
}

/// How many of these one segment holds, from the first on.
pub(super) fn fitting(captured: &[Captured]) -> usize {
    let mut left = LONGEST_SEGMENT - PAGE;
    let fits = |c: &&Captured| {
        let len = c.bytes.as_ref().map_or(Bytes::ZERO, Buf::len);
        let fits = len <= left;
        left = left.saturating_sub(len);
        fits
    };
    captured.iter().take(MOST_ENTRIES).take_while(fits).count()
}
