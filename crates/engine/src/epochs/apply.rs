//! From the journal into the image, with the bytes of the segments: at an opening, and before anything but
//! epochs writes to the image. While guests work, [`super::sweep`] applies the journal; after the loss of the
//! SSDs, [`super::recovered`] does.

use super::journal::{read_segments, write_state};
use super::{EpochRegion, Epochs};
use crate::core::{Extents, Upkeep};
use crate::devices::{Deadline, Member};
use crate::map::Ranges;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, Result};
use braid_base::Bytes;
use braid_format::epoch_journal::{LONGEST_SEGMENT, Run, SegmentEntry, StatePage};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime, join_all};
use std::ops::Range;

/// Most bytes of segments that are sorted together: bounds the memory for applying.
const SORTED: Bytes = Bytes(64 << 20);
/// Divisor: segments that are sorted together are at most this part of the ring.
const PARTS: u64 = 4;
/// Concurrent writes to the image: enough for a disk to sort.
pub(super) const AT_ONCE: usize = 16;
/// Longest write, in bytes.
const LONGEST_WRITE: Bytes = LONGEST_SEGMENT;

/// The first segments of a run that fit into memory together.
struct Batch {
    /// Rest of the run after this batch.
    left: Run,
    /// Bytes to write to the image, in the order of addresses.
    parts: Vec<JournaledRange>,
}

/// Range of the image with its bytes from the journal; `None` for zeros.
pub(super) type JournaledRange = (Range<Bytes>, Option<Buf>);

/// Adjacent parts that are written together.
struct Write {
    range: Range<Bytes>,
    parts: Vec<JournaledRange>,
}

impl Batch {
    /// Reads the first segments of a run.
    async fn read<D: Device>(
        member: &Member<D>,
        place: &EpochRegion,
        shape: &Shape,
        run: Run,
    ) -> Result<Batch> {
        let pieces = (place.ring() / PARTS).min(SORTED) / LONGEST_SEGMENT + 1;
        let arena = Arena::new(LONGEST_SEGMENT * pieces);
        let end = shape.extent_size * u64::from(shape.extents());
        let (mut left, mut parts) = (run, Vec::new());
        for _ in 0..pieces {
            if left.segments > 0 {
                let (read, rest) = read_segments(member, place, left, &arena, end).await?;
                for segment in read {
                    parts.extend(segment.parts()?);
                }
                left = rest;
            }
        }
        Ok(Batch { left, parts: sort(parts) })
    }
}

/// Writes parts, sorted by address, to the image, up to [`AT_ONCE`] writes at a time.
pub(super) async fn write_parts(
    parts: Vec<JournaledRange>,
    write: impl AsyncFn(Bytes, &Buf) -> Result<()>,
) -> Result<()> {
    let arena = Arena::new(LONGEST_WRITE * 4);
    for some in join(parts).chunks(AT_ONCE) {
        let writes = some.iter().map(async |one| {
            let bytes = one.bytes(&arena).await;
            write(one.range.start, &bytes).await
        });
        join_all(writes).await.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

impl Write {
    async fn bytes(&self, arena: &Arena) -> Buf {
        // A guest's bytes may be unaligned in memory.
        if let [(_, Some(bytes))] = &self.parts[..]
            && bytes.is_aligned(Buf::ALIGNMENT)
        {
            return bytes.clone();
        }
        let bytes = arena.alloc(self.range.end - self.range.start).await;
        for (range, part) in &self.parts {
            let at = range.start - self.range.start;
            match part {
                Some(part) => bytes.slice(at..at + part.len()).copy_from(Bytes::ZERO, part),
                None => bytes.slice(at..range.end - self.range.start).fill_zero(),
            }
        }
        bytes
    }
}

/// Merges segments, the oldest first, into parts for the image: the newest bytes of each place count.
fn sort(mut from_old_to_new: Vec<(SegmentEntry, Buf)>) -> Vec<JournaledRange> {
    let mut newer = Ranges::default();
    let mut parts: Vec<JournaledRange> = Vec::new();
    if planted(Bug::OldestSegmentWins) {
        from_old_to_new.reverse();
    }
    for (entry, bytes) in from_old_to_new.into_iter().rev() {
        let mut at = entry.range.start;
        while at < entry.range.end {
            let next = newer.next(at).filter(|next| next.start < entry.range.end);
            let next = next.unwrap_or(entry.range.end..entry.range.end);
            while at < next.start {
                let end = next.start.min(at + LONGEST_WRITE);
                let from = at - entry.range.start;
                let bytes = (!entry.zeros).then(|| bytes.slice(from..from + (end - at)));
                parts.push((at..end, bytes));
                at = end;
            }
            at = next.end;
        }
        newer.insert(entry.range);
    }
    parts.sort_unstable_by_key(|(range, _)| range.start);
    parts
}

/// Joins adjacent parts into writes.
fn join(parts: Vec<JournaledRange>) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    for (range, bytes) in parts {
        match writes.last_mut() {
            Some(last) if last.range.end == range.start && range.end - last.range.start <= LONGEST_WRITE => {
                last.range.end = range.end;
                last.parts.push((range, bytes));
            }
            _ => writes.push(Write { range: range.clone(), parts: vec![(range, bytes)] }),
        }
    }
    writes
}

/// Applies a whole run in batches, before any other task uses the disk. Each batch is flushed, and then
/// dropped from the run by a new state page, durably. `page` is the newest page that was written, or tried in
/// case of an error.
pub(super) async fn apply_all<R: Runtime, D: Device>(
    rt: &R,
    member: &Member<D>,
    place: &EpochRegion,
    shape: &Shape,
    page: &mut StatePage,
) -> Result<()> {
    while page.run.segments > 0 {
        let batch = Batch::read(member, place, shape, page.run).await?;
        let write = async |at, bytes: &Buf| {
            let written = member.write(member.entry.slots_offset + at, bytes, Deadline::Only).await;
            member.note_write();
            written.map_err(|e| Error::io(format_args!("an epoch could not be applied"), &e))
        };
        let left = batch.left;
        write_parts(batch.parts, write).await?;
        flush(rt, member).await?;
        *page = StatePage { sequence: page.sequence + 1, run: left, ..*page };
        write_state(member, place, page, &[]).await?;
        flush(rt, member).await?;
    }
    Ok(())
}

pub(super) async fn flush<R: Runtime, D: Device>(rt: &R, member: &Member<D>) -> Result<()> {
    let flushed = member.flush(rt).await;
    flushed.map(drop).map_err(|e| Error::io(format_args!("device {} could not flush", member.id), &e))
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Applies the whole journal, as long as the disk is current. Changes since the last epoch are not
    /// included.
    pub(super) async fn drain_journal(&self, epochs: &Epochs) -> Result<()> {
        while epochs.disk.get().run.segments > 0 && self.store.member(epochs.device()).is_current() {
            self.extents.alone(epochs, self.apply_batch(epochs)).await?;
        }
        Ok(())
    }

    /// Applies the first segments from their own bytes, and frees their room.
    pub(super) async fn apply_batch(&self, epochs: &Epochs) -> Result<()> {
        let member = self.store.member(epochs.device());
        let run = epochs.disk.get().run;
        let Batch { left, parts } = Batch::read(member, &epochs.place, &self.store.shape, run).await?;
        let newest = left.first.saturating_sub(1);
        let ranges: Vec<Range<Bytes>> = parts.iter().map(|(range, _)| range.clone()).collect();
        // Elsewhere the image has newer bytes, or gets newer bytes from a later segment.
        let needed = {
            let lacks = epochs.lacks.borrow();
            let needed = |(range, bytes): JournaledRange| {
                let slice = move |part: Range<Bytes>| {
                    let within = part.start - range.start..part.end - range.start;
                    let bytes = bytes.as_ref().map(|bytes| bytes.slice(within));
                    (part, bytes)
                };
                let parts: Vec<Range<Bytes>> = lacks.journaled.up_to(&range, newest).collect();
                parts.into_iter().map(slice)
            };
            parts.into_iter().flat_map(needed).collect()
        };
        write_parts(needed, async |at, bytes: &Buf| self.extents.write_image(epochs, at, bytes).await)
            .await?;
        self.extents.flush_image(epochs).await?;
        ranges.iter().for_each(|range| epochs.has_image(range, newest));
        if epochs.active.get() {
            self.settle_image(epochs, ranges.into_iter());
        }
        self.extents.free_segments(epochs, left.first).await
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Runs `work`, which writes to the image: one such task at a time. If `work` fails, the image disk is
    /// excluded.
    pub(super) async fn alone(&self, epochs: &Epochs, work: impl Future<Output = Result<()>>) -> Result<()> {
        epochs.event.wait_for(|| (!epochs.applying.replace(true)).then_some(())).await;
        let done = work.await;
        epochs.applying.set(false);
        epochs.event.notify();
        if let Err(error) = &done {
            self.durable.give_up(epochs.device(), error.clone()).await?;
        }
        done
    }

    /// Drops segments before `first` from the run, durably, and frees their room.
    pub(super) async fn free_segments(&self, epochs: &Epochs, first: u64) -> Result<()> {
        let run = epochs.disk.get().run;
        let freed = (first - run.first) as u32;
        let at = epochs.segments.borrow().get(freed as usize).copied().unwrap_or(epochs.next_segment.get());
        // New segments may have been appended meanwhile.
        self.set_disk(epochs, |page| {
            let run = Run { at, first, segments: page.run.segments - freed };
            StatePage { run, ..page }
        })
        .await?;
        epochs.segments.borrow_mut().drain(..freed as usize);
        epochs.event.notify();
        self.jobs.wake();
        Ok(())
    }

    /// Writes to the image in place; not durable yet.
    pub(super) async fn write_image(&self, epochs: &Epochs, at: Bytes, bytes: &Buf) -> Result<()> {
        let member = self.store.member(epochs.device());
        self.durable.device_write(member, member.entry.slots_offset + at, bytes, Origin::Background).await
    }
}

impl Epochs {
    /// Records that the image has a range as of segment `newest`.
    pub(super) fn has_image(&self, range: &Range<Bytes>, newest: u64) {
        self.lacks.borrow_mut().journaled.remove(range, newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, Rng};

    const VOLUME: u64 = 64;

    /// The writes give the same volume as segments applied in order. Each byte is written once, and
    /// neighbours are written together.
    #[test]
    fn newest_bytes_are_written_once_joined_with_neighbours() {
        let (arena, mut rng) = (Arena::new(LONGEST_WRITE * 8), Rng::new(3));
        for _ in 0..300 {
            let mut expected = [0u8; VOLUME as usize];
            let mut parts = Vec::new();
            for value in 1..=rng.between(1, 9) as u8 {
                let start = rng.below(VOLUME - 1);
                let end = rng.between(start + 1, VOLUME + 1);
                let range = KIB * start..KIB * end;
                let zeros = rng.chance(0.3);
                let bytes = arena.try_alloc(range.end - range.start).expect("there is room");
                bytes.with_bytes_mut(|bytes| bytes.fill(value));
                expected[start as usize..end as usize].fill(if zeros { 0xff } else { value });
                parts.push((SegmentEntry { range, zeros }, bytes));
            }
            let writes = join(sort(parts));
            let mut found = [0u8; VOLUME as usize];
            for write in &writes {
                assert_eq!(write.parts[0].0.start, write.range.start);
                assert_eq!(write.parts[write.parts.len() - 1].0.end, write.range.end);
                assert!(write.parts.windows(2).all(|two| two[0].0.end == two[1].0.start));
                for (range, bytes) in &write.parts {
                    for (i, at) in (range.start / KIB..range.end / KIB).enumerate() {
                        assert_eq!(found[at as usize], 0, "it is written once");
                        let value = bytes
                            .as_ref()
                            .map_or(0xff, |bytes| bytes.with_bytes(|bytes| bytes[i * KIB.as_usize()]));
                        found[at as usize] = value;
                    }
                }
            }
            assert_eq!(found, expected);
            assert!(
                writes.windows(2).all(|two| two[0].range.end < two[1].range.start),
                "neighbours go together"
            );
        }
    }

    #[test]
    fn no_write_is_longer_than_a_segment() {
        let range = KIB..LONGEST_WRITE * 3;
        let zeros =
            Arena::new(KIB * 4).try_alloc(KIB * 4).expect("there is room").slice(Bytes::ZERO..Bytes::ZERO);
        let writes = join(sort(vec![(SegmentEntry { range: range.clone(), zeros: true }, zeros)]));
        assert!(writes.iter().all(|write| write.range.end - write.range.start <= LONGEST_WRITE));
        assert_eq!((writes[0].range.start, writes[writes.len() - 1].range.end), (range.start, range.end));
    }
}
