//! From the journal into the image while guests work: like PASS, in the order of addresses and with bytes
//! from the SSDs.
//!
//! A journaled range equals the same range on the SSDs, unless guests have changed the range since. The whole
//! journal is therefore one set of ranges, and the sweep passes over the volume from end to end, however
//! large the journal is. Segments need not be read. Ranges that guests changed again are skipped: the next
//! epoch has these ranges, and then replaces the older segment.

use super::apply::AT_ONCE;
use super::turn::REST;
use super::{Epochs, Lacks};
use crate::Result;
use crate::core::{Extents, Upkeep};
use crate::devices::LARGEST_BUFFER;
use crate::planted::{Bug, planted};
use braid_base::{Bytes, Nanos};
use braid_runtime::{Buf, Device, Runtime, join_all};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// How the disk is written between two flushes: duration, and concurrent writes. An epoch that ends
/// meanwhile, and a commit, whose journal may lie on this disk, too, wait until the disk's cache is flushed.
struct Burst(Nanos, usize);

/// For a journal that is nearly empty: guests first.
const GENTLE: Burst = Burst(Nanos::from_millis(25), 4);
/// If more than a sixteenth of the ring is in use: as fast as the disk can.
const FAST: Burst = Burst(Nanos::from_millis(250), AT_ONCE);
/// Parts of the ring in which room is freed. Each part costs a state page and two flushes.
const PARTS: u64 = 16;

/// Range that was written to the image, and the newest segment at the time.
type Done = (Range<Bytes>, u64);

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Applies the journal to the image until the volume closes.
    pub async fn sweep_image(&self) {
        let Some(epochs) = &self.extents.epochs else { return };
        let has_work = || {
            let any = epochs.active.get() && epochs.disk.get().run.segments > 0;
            let may = any && self.store.member(epochs.device()).is_current() && !epochs.writing.get();
            may && !self.durable.journal.commits.have_failed()
        };
        let is_swept = || epochs.swept.get() == epochs.counting.get();
        // Every journaled range has been changed since, and the next epoch, which would replace these
        // segments, has no room. Segments must be applied from the journal.
        let is_stuck = || is_swept() && epochs.wanted.get() && epochs.lacks.borrow().known() > epochs.room();
        let is_due = || has_work() && (!is_swept() || is_stuck());
        while !self.jobs.are_ending() {
            if is_due() {
                let done = match is_stuck() {
                    true => self.extents.alone(epochs, self.apply_batch(epochs)).await,
                    false => self.extents.alone(epochs, self.sweep(epochs)).await,
                };
                // On failure the image disk is excluded, and epochs end.
                if let Err(error) = done {
                    tracing::error!(%error, "an epoch could not be applied");
                }
            }
            if !is_due() {
                self.durable.pause(self.rt.now() + REST, is_due).await;
            }
        }
    }

    /// Writes to the image for a while, then flushes. The sweep rests while an epoch is on its way to the
    /// journal: guests may wait for the epoch.
    async fn sweep(&self, epochs: &Epochs) -> Result<()> {
        let Burst(time, at_once) = if epochs.used() * 16 < epochs.place.ring() { GENTLE } else { FAST };
        let until = self.rt.now() + time;
        let (epoch, done) = (epochs.counting.get(), RefCell::default());
        let (passed, unreadable) = (Cell::new(Bytes::ZERO), Cell::new(false));
        let workers =
            (0..at_once).map(|_| self.extents.sweep_until(epochs, until, &passed, &unreadable, &done));
        join_all(workers).await.into_iter().collect::<Result<()>>()?;
        let done: Vec<Done> = done.into_inner();
        if done.is_empty() && passed.get() >= self.store.shape.image_len() {
            // All remaining ranges were changed by guests: the next epoch has these ranges.
            epochs.swept.set(epoch);
        }
        if !done.is_empty() && !planted(Bug::SegmentsReusedEarly) {
            self.extents.flush_image(epochs).await?;
        }
        // A commit proves that the sources of these reads were durable.
        self.moves.resynced.set(true);
        done.iter().for_each(|(range, newest)| epochs.has_image(range, *newest));
        self.settle_image(epochs, done.into_iter().map(|(range, _)| range));
        if unreadable.get() {
            // The journal has the bytes that the SSDs cannot deliver.
            return self.apply_batch(epochs).await;
        }
        let run = epochs.disk.get().run;
        let first = epochs.lacks.borrow().journaled.lowest().unwrap_or(run.first + u64::from(run.segments));
        let freed = first.saturating_sub(run.first);
        if freed > 0 && (freed == u64::from(run.segments) || freed >= u64::from(run.segments) / PARTS) {
            self.extents.free_segments(epochs, first).await?;
        }
        Ok(())
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Writes one piece after another. Several such workers share the hand, and each takes the next piece.
    async fn sweep_until(
        &self,
        epochs: &Epochs,
        until: Nanos,
        passed: &Cell<Bytes>,
        unreadable: &Cell<bool>,
        done: &RefCell<Vec<Done>>,
    ) -> Result<()> {
        let end = self.store.shape.image_len();
        let member = self.store.member(epochs.device());
        let is_late =
            || self.rt.now() >= until || unreadable.get() || self.durable.journal.commits.have_failed();
        let is_over = || epochs.writing.get() || is_late() || !member.is_current();
        while !is_over() && passed.get() < end {
            let from = epochs.hand.get();
            let next = epochs.lacks.borrow().journaled.next(from);
            let Some(next) = next else {
                passed.set(passed.get() + (end - from));
                epochs.hand.set(Bytes::ZERO);
                continue;
            };
            let extent = self.store.shape.bytes_of(self.store.shape.extent_of(next.start));
            passed.set(passed.get() + (extent.end - from));
            epochs.hand.set(extent.end);
            let mut at = next.start;
            loop {
                let (range, bytes, newest) = match self.read_piece(epochs, &(at..extent.end)).await {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    // The failing device counts the error.
                    Err(_) => {
                        unreadable.set(true);
                        break;
                    }
                };
                self.write_image(epochs, range.start, &bytes).await?;
                at = range.end;
                done.borrow_mut().push((range, newest));
            }
        }
        Ok(())
    }

    /// Reads the first piece within a range of an extent that is journaled and unchanged since. The result
    /// includes the number of the newest segment.
    async fn read_piece(
        &self,
        epochs: &Epochs,
        within: &Range<Bytes>,
    ) -> Result<Option<(Range<Bytes>, Buf, u64)>> {
        let first = epochs.lacks.borrow().next_piece(within);
        let Some(first) = first else { return Ok(None) };
        let within = first.start..within.end.min(first.start + LARGEST_BUFFER / 2);
        // Allocates before the lock: guests must not wait for memory that the disk has to free.
        let memory = self.buffer(&epochs.arena, super::len(&within)).await?;
        let extent = self.store.shape.extent_of(within.start);
        // The lock keeps these bytes unchanged.
        let _guard = self.locks.exclusive(extent).await;
        if self.durable.journal.commits.have_failed() {
            // Changes are not recorded any more.
            return Ok(None);
        }
        let piece = epochs.lacks.borrow().next_piece(&within);
        let Some(piece) = piece else { return Ok(None) };
        let newest = epochs.newest_segment();
        let bytes = memory.slice(piece.start - within.start..piece.end - within.start);
        self.read_image_bytes(&piece, &bytes).await?;
        Ok(Some((piece, bytes, newest)))
    }
}

impl Lacks {
    /// Returns the first part of a range that is journaled and unchanged since. Gaps between two parts are
    /// not written along: a power cut might tear a gap, and the journal lacks its bytes.
    fn next_piece(&self, within: &Range<Bytes>) -> Option<Range<Bytes>> {
        let mut from = within.start;
        let mut piece: Option<Range<Bytes>> = None;
        while let Some(next) = self.journaled.next(from).filter(|next| next.start < within.end) {
            let next = next.start..next.end.min(within.end);
            if piece.as_ref().is_some_and(|piece| piece.end < next.start) {
                break;
            }
            let start = piece.as_ref().map_or(next.start, |piece| piece.start);
            match self.next_changed(&next) {
                Some(changed) if changed.start > start => return Some(start..changed.start),
                Some(changed) => from = changed.end,
                None => {
                    from = next.end;
                    piece = Some(start..next.end);
                }
            }
        }
        piece
    }

    /// Returns the first part of a range that guests changed since the last epoch that counts.
    fn next_changed(&self, range: &Range<Bytes>) -> Option<Range<Bytes>> {
        let sets = [&self.open, &self.frozen, &self.leaving];
        sets.iter().filter_map(|set| super::next_within(set, range)).min_by_key(|next| next.start)
    }
}
