//! The journal of epochs on the disk: state pages, and segments with the changes of an epoch.

use super::{Captured, EpochRegion};
use crate::core::Extents;
use crate::devices::{Deadline, Member};
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::Uuid;
use braid_format::epoch_journal::{
    LONGEST_SEGMENT, MOST_ENTRIES, PAGE, Run, STATE_PAGES, SegmentEntry, State, StatePage, decode_index,
    decode_state, encode_index, encode_state, newest_applied, newest_state, next_place,
};
use braid_format::superblock::{Features, Superblock};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::fmt::Display;

/// Returns the newest state page of a disk. A disk without a valid state page is no state of the volume.
///
/// # Errors
/// `Io` if a page cannot be read and might change the answer. `Corrupt` if both pages of a recovered disk are
/// damaged (part of the journal is not yet applied, and the bytes in place are older), or if the run begins
/// beyond the ring.
pub(crate) async fn state_of<D: Device>(
    member: &Member<D>,
    place: &EpochRegion,
    superblock: &Superblock,
) -> Result<StatePage> {
    let (buf, unread) = read_states(member, place).await;
    let is_recovering = superblock.features.incompat & Features::UNAPPLIED != 0;
    let page = match (buf.with_bytes(|bytes| newest_state(bytes, superblock.volume)), unread) {
        // One page has said "adopting" since before the superblock was marked. The valid page does not say
        // "adopting": the damaged page did.
        (Some(page), _)
            if is_recovering && page.state == State::Image && is_one_lost(&buf, superblock.volume) =>
        {
            // The next page overwrites the damaged page.
            StatePage { state: State::Adopting, ..page }
        }
        // While guests use a recovered disk, both pages are equal. If either page says "adopting", guests
        // have not begun. If either page says "void", everything has been applied.
        (Some(page), Some(_)) if is_recovering && page.state != State::Image => page,
        (_, Some(error)) => return Err(error),
        (None, None) if is_recovering => return Err(lost_state(member, place)),
        (page, None) => page.unwrap_or(StatePage::NOTHING),
    };
    if page.run.at >= place.ring() {
        let text =
            format!("the run of epochs begins at byte {} of a ring of {}", page.run.at.0, place.ring());
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    Ok(page)
}

/// As [`state_of`], for an opening that may copy every missing range to the image. A disk that was not being
/// recovered, and whose unreadable page might say otherwise, is no state of the volume.
pub(super) async fn state_or_void<D: Device>(
    member: &Member<D>,
    place: &EpochRegion,
    superblock: &Superblock,
) -> Result<StatePage> {
    let error = match state_of(member, place, superblock).await {
        Err(error)
            if error.kind() == ErrorKind::Io && superblock.features.incompat & Features::UNAPPLIED == 0 =>
        {
            error
        }
        known => return known,
    };
    let (buf, _) = read_states(member, place).await;
    match buf.with_bytes(|bytes| newest_state(bytes, superblock.volume)) {
        // The other page may be newer by one, and is the page that is written next.
        Some(page) if page.state != State::Adopting => {
            tracing::warn!(%error, "the disk alone is not an image");
            Ok(StatePage { sequence: page.sequence + 2, state: State::Void, run: page.run.emptied(), ..page })
        }
        _ => Err(error),
    }
}

/// True if only the newest page says "void": the other page says that the disk is a state of the volume, or
/// is damaged or unreadable and may say so.
pub(super) async fn is_void_alone<D: Device>(
    member: &Member<D>,
    place: &EpochRegion,
    newest: &StatePage,
) -> bool {
    let (buf, _) = read_states(member, place).await;
    let at = PAGE * ((newest.sequence + 1) % STATE_PAGES);
    let other = buf.slice(at..at + PAGE).with_bytes(|page| decode_state(page, place.volume));
    let is_void = other.map_or(newest.sequence < STATE_PAGES, |other| other.state == State::Void);
    newest.state == State::Void && !is_void
}

fn is_one_lost(pages: &Buf, volume: Uuid) -> bool {
    pages.with_bytes(|bytes| {
        bytes.chunks_exact(PAGE.as_usize()).any(|page| decode_state(page, volume).is_err())
    })
}

fn lost_state<D: Device>(member: &Member<D>, place: &EpochRegion) -> Error {
    let text = format!(
        "device {} was recovered, and both of its state pages at byte {} are damaged: only these pages \
         record the applied part of the journal of epochs; restore the volume from a backup, or copy the \
         device with a program that retries bad places (ddrescue), and use the copy",
        member.id, place.offset.0
    );
    Error::new(ErrorKind::Corrupt, text)
}

/// Returns the bits of a recovered disk's state page: extents of the run that have been applied. Empty for
/// any other disk.
pub(super) async fn applied_of<D: Device>(member: &Member<D>, place: &EpochRegion) -> Result<Vec<u8>> {
    let (buf, unread) = read_states(member, place).await;
    match (buf.with_bytes(|bytes| newest_applied(bytes, place.volume).map(<[u8]>::to_vec)), unread) {
        (None, Some(error)) => Err(error),
        (applied, _) => Ok(applied.unwrap_or_default()),
    }
}

/// Reads both state pages. An unreadable page is zeros, and the error is returned with the pages.
async fn read_states<D: Device>(member: &Member<D>, place: &EpochRegion) -> (Buf, Option<Error>) {
    let both = Arena::new(PAGE * STATE_PAGES).alloc(PAGE * STATE_PAGES).await;
    let mut unread = None;
    for at in (0..STATE_PAGES).map(|i| PAGE * i) {
        match read_exactly(member, place.offset + at, PAGE).await {
            Ok(page) => both.slice(at..at + PAGE).copy_from(Bytes::ZERO, &page),
            Err(error) => {
                both.slice(at..at + PAGE).fill_zero();
                let page = place.offset + at;
                let text = format_args!(
                    "the state page at byte {} of device {}, which records whether the disk alone is an \
                     image, could not be read (if the error persists, copy the device with a program that \
                     retries bad places, ddrescue, and use the copy)",
                    page.0, member.id
                );
                unread = Some(Error::io(text, &error));
            }
        }
    }
    (both, unread)
}

/// Writes a state page, with the bits of applied extents if the disk is recovered. Not durable yet.
pub(super) async fn write_state<D: Device>(
    member: &Member<D>,
    place: &EpochRegion,
    page: &StatePage,
    applied: &[u8],
) -> Result<()> {
    let buf = Arena::new(PAGE).alloc(PAGE).await;
    buf.copy_from_slice(Bytes::ZERO, &encode_state(place.volume, page, applied));
    let at = place.offset + PAGE * (page.sequence % STATE_PAGES);
    let written = member.write(at, &buf, Deadline::Only).await;
    member.note_write();
    let text = format_args!(
        "the state page at byte {} of device {}, which records the epoch of the disk, could not be written",
        at.0, member.id
    );
    written.map_err(|e| Error::io(text, &e))
}

/// A segment that was read.
pub(super) struct Segment {
    /// Byte of the ring at which the segment begins.
    pub at: Bytes,
    /// Ranges, in the order in which their bytes lie in the segment.
    pub entries: Vec<SegmentEntry>,
    /// Bytes of the ranges that are not zeros, back to back. One checksum covers all bytes: if a part is
    /// missing, nothing can be verified.
    pub content: Result<Buf>,
}

impl Segment {
    /// Returns the ranges, with the bytes of ranges that are not zeros.
    ///
    /// # Errors
    /// The damage, if the bytes are not as written.
    pub fn parts(self) -> Result<Vec<(SegmentEntry, Buf)>> {
        let (content, mut from) = (self.content?, Bytes::ZERO);
        let part = |entry: SegmentEntry| {
            let start = from;
            from += entry.stored();
            (entry, content.slice(start..from))
        };
        Ok(self.entries.into_iter().map(part).collect())
    }
}

/// Reads the first segments of a run for an image that ends at `end`, and returns the rest of the run, too.
/// Reads at least one segment, and as many as lie in one piece of the ring. An unreadable place between or
/// behind segments does no harm.
///
/// # Errors
/// If an index page cannot be read or is damaged: only the index page names the ranges of the segment, and
/// the start of the next segment.
pub(super) async fn read_segments<D: Device>(
    member: &Member<D>,
    place: &EpochRegion,
    run: Run,
    arena: &Arena,
    end: Bytes,
) -> Result<(Vec<Segment>, Run)> {
    let piece = run.at..place.ring().min(run.at + LONGEST_SEGMENT);
    let buf = arena.alloc(piece.end - piece.start).await;
    let read = member.read(place.ring_offset() + piece.start, &buf, Deadline::Only).await;
    let (mut left, mut segments) = (run, Vec::new());
    while left.segments > 0 && piece.contains(&left.at) {
        let rest = buf.slice(left.at - piece.start..buf.len());
        let index = match &read {
            Ok(()) if rest.len() < PAGE && !segments.is_empty() => break,
            Ok(()) => rest.with_bytes(|bytes| decode_index(bytes, place.volume, left.first, end)),
            Err(_) => {
                let page = read_exactly(member, place.ring_offset() + left.at, PAGE).await;
                let page = page.map_err(|error| lost_index(member, place, left, &error))?;
                page.with_bytes(|bytes| decode_index(bytes, place.volume, left.first, end))
            }
        };
        let index = index.map_err(|invalid| lost_index(member, place, left, &invalid))?;
        let (content, stored) = (left.at + PAGE, index.stored());
        if content + stored > place.ring() {
            return Err(lost_index(member, place, left, &"it is longer than the journal"));
        }
        let bytes = match &read {
            // The next read begins with this segment.
            Ok(()) if content + stored > piece.end => break,
            Ok(()) => Ok(rest.slice(PAGE..PAGE + stored)),
            Err(_) if stored == Bytes::ZERO => Ok(rest.slice(PAGE..PAGE)),
            Err(_) => read_exactly(member, place.ring_offset() + content, stored.align_up(PAGE))
                .await
                .map(|bytes| bytes.slice(Bytes::ZERO..stored))
                .map_err(|error| lost_content(left, &error)),
        };
        let content = bytes.and_then(|bytes| {
            let verified = bytes.with_bytes(|bytes| index.verify(place.volume, bytes));
            verified.map(|()| bytes).map_err(|invalid| lost_content(left, &invalid))
        });
        segments.push(Segment { at: left.at, entries: index.entries, content });
        let at = next_place(left.at + PAGE + stored.align_up(PAGE), place.ring());
        left = Run { at, first: left.first + 1, segments: left.segments - 1 };
    }
    Ok((segments, left))
}

async fn read_exactly<D: Device>(member: &Member<D>, at: Bytes, len: Bytes) -> std::io::Result<Buf> {
    let buf = Arena::new(len).alloc(len).await;
    member.read(at, &buf, Deadline::Only).await?;
    Ok(buf)
}

/// The error for a segment without a valid index page, with the remedy: only another try of each bad place is
/// left.
fn lost_index<D: Device>(member: &Member<D>, place: &EpochRegion, run: Run, why: &dyn Display) -> Error {
    let text = format!(
        "segment {} in the journal of epochs, at byte {} of device {}, is damaged: {why}: the ranges of the \
         volume in the segment are unknown: bring the other devices back if they are not lost, or copy {} \
         with a program that retries bad places (ddrescue), and use the copy",
        run.first,
        (place.ring_offset() + run.at).0,
        member.id,
        member.id
    );
    Error::new(ErrorKind::Corrupt, text)
}

fn lost_content(run: Run, why: &dyn Display) -> Error {
    let text = format!("the bytes of segment {} in the journal of epochs are damaged: {why}", run.first);
    Error::new(ErrorKind::Corrupt, text)
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Writes a segment at a byte of the ring. Returns its length.
    pub(super) async fn write_segment(
        &self,
        place: &EpochRegion,
        number: u64,
        at: Bytes,
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
        let entry = |c: &Captured| SegmentEntry { range: c.range.clone(), zeros: c.bytes.is_none() };
        let entries: Vec<SegmentEntry> = captured.iter().map(entry).collect();
        let index = buf
            .slice(PAGE..PAGE + stored)
            .with_bytes(|bytes| encode_index(place.volume, number, &entries, bytes));
        buf.copy_from_slice(Bytes::ZERO, &index);
        let at = place.ring_offset() + at;
        self.durable.device_write(self.store.member(place.device), at, &buf, Origin::Background).await?;
        Ok(len)
    }
}

/// Number of captured ranges, from the first on, that fit into one segment.
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
