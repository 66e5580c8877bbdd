//! From the journal into the image while guests work: as PASS does it, in the order of addresses and with the
//! bytes that the SSDs have.
//!
//! What the journal has of a range is what the SSDs have, unless guests have changed it since. So all of the
//! journal is one set of ranges, and the disk passes over the volume from end to end, however large the
//! journal is; its bytes need not be read. What guests have changed since is left: the next epoch will have
//! it, and with that the older segment does not count any more.

use super::apply::AT_ONCE;
use super::turn::REST;
use super::{Epochs, Lacks};
use crate::Result;
use crate::core::Core;
use crate::planted::{Bug, planted};
use braid_base::{Bytes, Nanos};
use braid_runtime::{Buf, Device, Mode, Runtime, join_all};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// How a disk is written to between two flushes: so long, and so many writes at the same time. An epoch that
/// ends meanwhile, and a commit, which is on the disk, too, wait for all that its cache holds.
struct Burst(Nanos, usize);

/// As long as little of the journal is in use: guests first.
const GENTLE: Burst = Burst(Nanos::from_millis(25), 4);
/// With more than a sixteenth of it in use: as the disk is fastest.
const FAST: Burst = Burst(Nanos::from_millis(250), AT_ONCE);
/// Room is made free in so many parts of the ring, each of which costs a state page and two flushes.
const PARTS: u64 = 16;

/// What was written to the image, and the newest segment then.
type Done = (Range<Bytes>, u64);

impl<R: Runtime, D: Device> Core<R, D> {
    /// Applies what is in the journal until the volume closes.
    pub async fn sweep_image(self: &Rc<Self>) {
        let Some(epochs) = &self.epochs else { return };
        let has_work = || {
            let any = epochs.active.get() && epochs.disk.get().run.segments > 0;
            let may = any && self.member(epochs.device()).is_current() && !epochs.writing.get();
            may && !self.journal.commits.have_failed()
        };
        let is_swept = || epochs.swept.get() == epochs.counting.get();
        // All has been changed since, and the next epoch, which would have it, has no room: what the journal
        // has must make way.
        let is_stuck = || is_swept() && epochs.wanted.get() && epochs.lacks.borrow().known() > epochs.room();
        let is_due = || has_work() && (!is_swept() || is_stuck());
        while !self.jobs.are_ending() {
            if is_due() {
                let done = match is_stuck() {
                    true => self.alone(epochs, self.apply_batch(epochs)).await,
                    false => self.alone(epochs, self.sweep(epochs)).await,
                };
                // If that fails the disk is given up, and no epochs are kept any more.
                if let Err(error) = done {
                    tracing::error!(%error, "an epoch could not be applied");
                }
            }
            if !is_due() {
                self.pause(self.rt.now() + REST, is_due).await;
            }
        }
    }

    /// Writes to the image for a while, up to the next flush. It rests while an epoch is on its way to the
    /// journal, since guests may wait for that.
    async fn sweep(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        let Burst(time, at_once) = if epochs.used() * 16 < epochs.place.ring() { GENTLE } else { FAST };
        let until = self.rt.now() + time;
        let (epoch, done) = (epochs.counting.get(), RefCell::default());
        let (passed, unreadable) = (Cell::new(Bytes::ZERO), Cell::new(false));
        let workers = (0..at_once).map(|_| self.sweep_until(epochs, until, (&passed, &unreadable), &done));
        join_all(workers).await.into_iter().collect::<Result<()>>()?;
        let done: Vec<Done> = done.into_inner();
        if done.is_empty() && passed.get() >= self.image_len() {
            // All that is left has been changed: the next epoch will have it.
            epochs.swept.set(epoch);
        }
        if !done.is_empty() && !planted(Bug::SegmentsReusedEarly) {
            self.flush_image(epochs).await?;
        }
        // A commit proves what was read.
        self.moves.resynced.set(true);
        done.iter().for_each(|(range, newest)| epochs.has_image(range, *newest));
        self.settle_image(epochs, done.into_iter().map(|(range, _)| range));
        if unreadable.get() {
            // What the SSDs do not give, the journal has.
            return self.apply_batch(epochs).await;
        }
        let run = epochs.disk.get().run;
        let first = epochs.lacks.borrow().journaled.lowest().unwrap_or(run.first + u64::from(run.segments));
        let freed = first.saturating_sub(run.first);
        if freed > 0 && (freed == u64::from(run.segments) || freed >= u64::from(run.segments) / PARTS) {
            self.free_segments(epochs, first).await?;
        }
        Ok(())
    }

    /// Writes one piece after the other, as one of several, each of which takes what comes next.
    async fn sweep_until(
        self: &Rc<Self>,
        epochs: &Epochs,
        until: Nanos,
        (passed, unreadable): (&Cell<Bytes>, &Cell<bool>),
        done: &RefCell<Vec<Done>>,
    ) -> Result<()> {
        let end = self.image_len();
        let member = self.member(epochs.device());
        let is_late = || self.rt.now() >= until || unreadable.get() || self.journal.commits.have_failed();
        let is_over = || epochs.writing.get() || is_late() || !member.is_current();
        while !is_over() && passed.get() < end {
            let from = epochs.hand.get();
            let next = epochs.lacks.borrow().journaled.next(from);
            let Some(next) = next else {
                passed.set(passed.get() + (end - from));
                epochs.hand.set(Bytes::ZERO);
                continue;
            };
            let extent = self.shape.bytes_of(self.shape.extent_of(next.start));
            passed.set(passed.get() + (extent.end - from));
            epochs.hand.set(extent.end);
            let mut at = next.start;
            loop {
                let (range, bytes, newest) = match self.read_piece(epochs, &(at..extent.end)).await {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    // Their device counts it.
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

    /// Reads the first piece within a range of an extent that is in the journal as the SSDs have it; with the
    /// number of the newest segment.
    async fn read_piece(
        self: &Rc<Self>,
        epochs: &Epochs,
        within: &Range<Bytes>,
    ) -> Result<Option<(Range<Bytes>, Buf, u64)>> {
        let first = epochs.lacks.borrow().next_piece(within);
        let Some(first) = first else { return Ok(None) };
        let within = first.start..within.end.min(first.start + self.bounce_limit() / 2);
        // Before the lock: guests must not wait for memory that the disk has to free.
        let memory = self.buffer(&epochs.arena, super::len(&within)).await?;
        let extent = self.shape.extent_of(within.start);
        // With it nobody changes these bytes.
        let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
        if self.journal.commits.have_failed() {
            // Changes are not noted any more.
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
    /// The first part of a range that the journal has as it is now. What lies between two of them is not
    /// written with them: a power cut might tear it, and the journal does not have it.
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

    /// The first part of a range that guests changed since the last epoch that counts.
    fn next_changed(&self, range: &Range<Bytes>) -> Option<Range<Bytes>> {
        let sets = [&self.open, &self.frozen, &self.leaving];
        sets.iter().filter_map(|set| super::next_within(set, range)).min_by_key(|next| next.start)
    }
}
