//! Segments: what an epoch changed, in the journal on the disk, and from there in its place.

use super::{Captured, Place};
use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::Uuid;
use braid_format::epoch_journal::{
    Entry, LONGEST_SEGMENT, MOST_ENTRIES, PAGE, SEGMENTS, STATE_PAGES, StatePage, decode_index, encode_index,
    encode_state,
};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime, join_all};

/// Writes to the image at the same time: enough for a disk to sort.
const AT_ONCE: usize = 16;

/// Writes what the disk is from now on. Not durable yet.
pub(super) async fn write_state<D: Device>(
    member: &Member<D>,
    place: &Place,
    volume: Uuid,
    page: &StatePage,
) -> Result<()> {
    let buf = Arena::new(PAGE).alloc(PAGE).await;
    buf.copy_from_slice(Bytes::ZERO, &encode_state(volume, page));
    let at = place.offset + PAGE * (page.sequence % STATE_PAGES);
    let written = member.write(at, &buf, Deadline::Only).await;
    member.note_write();
    written.map_err(|e| Error::io(format_args!("the state of the epochs could not be written"), &e))
}

/// Applies the segments of a committed epoch to the image. It can be done again.
pub(super) async fn apply<D: Device>(
    member: &Member<D>,
    place: &Place,
    shape: &Shape,
    volume: Uuid,
    (epoch, segments): (u64, u32),
) -> Result<()> {
    let arena = Arena::new(LONGEST_SEGMENT * 2);
    let failed = |error: std::io::Error| Error::io(format_args!("an epoch could not be applied"), &error);
    let mut at = SEGMENTS;
    for number in 0..segments {
        let len = LONGEST_SEGMENT.min(place.len.saturating_sub(at));
        if len < PAGE {
            return Err(damaged(epoch, number, "it would lie behind the end of the journal"));
        }
        let buf = arena.alloc(len).await;
        member.read(place.offset + at, &buf, Deadline::Only).await.map_err(failed)?;
        let end = shape.extent_size * u64::from(shape.extents());
        let index = buf
            .with_bytes(|bytes| decode_index(bytes, volume, (epoch, number), end))
            .map_err(|e| damaged(epoch, number, &e.to_string()))?;
        let stored = index.stored();
        if PAGE + stored > len {
            return Err(damaged(epoch, number, "it is longer than the journal"));
        }
        buf.slice(PAGE..PAGE + stored)
            .with_bytes(|bytes| index.verify(volume, bytes))
            .map_err(|e| damaged(epoch, number, &e.to_string()))?;
        let mut places: Vec<(Entry, Bytes)> = Vec::with_capacity(index.entries.len());
        let mut from = PAGE;
        for entry in index.entries {
            let stored = entry.stored();
            places.push((entry, from));
            from += stored;
        }
        places.sort_unstable_by_key(|(entry, _)| entry.range.start);
        for some in places.chunks(AT_ONCE) {
            let writes = some.iter().map(async |(entry, from)| match entry.zeros {
                true => write_zeros(member, entry).await,
                false => {
                    let part = buf.slice(*from..*from + entry.stored());
                    let written =
                        member.write(member.entry.slots_offset + entry.range.start, &part, Deadline::Only);
                    let written = written.await;
                    member.note_write();
                    written
                }
            });
            join_all(writes).await.into_iter().collect::<std::io::Result<()>>().map_err(failed)?;
        }
        at += PAGE + stored.align_up(PAGE);
    }
    Ok(())
}

async fn write_zeros<D: Device>(member: &Member<D>, entry: &Entry) -> std::io::Result<()> {
    let zeros =
        Arena::new(LONGEST_SEGMENT).alloc(LONGEST_SEGMENT.min(entry.range.end - entry.range.start)).await;
    zeros.fill_zero();
    let mut at = entry.range.start;
    while at < entry.range.end {
        let part = zeros.slice(Bytes::ZERO..zeros.len().min(entry.range.end - at));
        let written = member.write(member.entry.slots_offset + at, &part, Deadline::Only).await;
        member.note_write();
        written?;
        at += part.len();
    }
    Ok(())
}

#[cold]
fn damaged(epoch: u64, number: u32, why: &str) -> Error {
    let text = format!(
        "segment {number} of epoch {epoch} in the journal of the disk is damaged: {why}; the disk alone is no state of the volume"
    );
    Error::new(ErrorKind::Corrupt, text)
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes a segment at a place of the journal. Gives its length.
    pub(super) async fn write_segment(
        &self,
        place: &Place,
        (epoch, number): (u64, u32),
        at: Bytes,
        captured: &[Captured],
    ) -> Result<Bytes> {
        let stored: Bytes = captured.iter().filter_map(|c| c.bytes.as_ref()).map(Buf::len).sum();
        let len = PAGE + stored.align_up(PAGE);
        if at + len > place.len {
            let text = format!("an epoch needs more than the {} of its journal", place.len);
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
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
        let index = buf
            .slice(PAGE..PAGE + stored)
            .with_bytes(|bytes| encode_index(volume, epoch, number, &entries, bytes));
        buf.copy_from_slice(Bytes::ZERO, &index);
        self.device_write(self.member(place.device), place.offset + at, &buf, Origin::Background).await?;
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
