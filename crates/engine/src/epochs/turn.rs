//! The end of an epoch: freeze, write to the journal, then count.

use super::journal::{fitting, write_state};
use super::{Captured, Epochs, PATIENCE, Stage};
use crate::core::{Extents, Upkeep};
use crate::devices::{LARGEST_BUFFER, Member};
use crate::map::Ranges;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Nanos};
use braid_format::epoch_journal::{LONGEST_SEGMENT, Run, State, StatePage, next_place};
use braid_policy::{Origin, Outcome};
use braid_runtime::{Device, Runtime, join_all};
use std::cell::Cell;
use std::iter;
use std::ops::Range;
use std::pin::Pin;

/// Concurrent reads from the SSDs.
const AT_ONCE: usize = 8;
/// Pause after a failed epoch.
pub(super) const REST: Nanos = Nanos::from_secs(1);
/// Interval between checks whether the policy wants epochs.
const LOOK: Nanos = Nanos::from_millis(100);

/// An epoch that is in the journal and does not count yet.
struct JournaledEpoch {
    segments: u32,
    /// Ring offsets of the segments, and of the segment after the last.
    places: Vec<Bytes>,
    next: Bytes,
    /// Ranges of the epoch, each with the number of its segment.
    ranges: Vec<(Range<Bytes>, u64)>,
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Keeps the image by epochs while the policy wants epochs, until the volume closes.
    pub async fn keep_epochs(&self) {
        let Some(epochs) = &self.extents.epochs else { return };
        while !self.jobs.are_ending() {
            let is_wanted = self.extents.are_epochs_wanted();
            let done = match (epochs.active.get(), is_wanted) {
                (false, false) => {
                    self.durable.pause(self.rt.now() + LOOK, || self.extents.are_epochs_wanted()).await;
                    Ok(())
                }
                (false, true) => {
                    self.extents.begin_epochs(epochs).await;
                    Ok(())
                }
                // No flush succeeds any more, and writes from here on are not promised. The disk stays as it
                // is: nothing else writes to the disk.
                (true, false) if self.durable.journal.commits.have_failed() => break,
                (true, false) => self.extents.stop_epochs(epochs).await,
                (true, true) => self.keep_image(epochs).await,
            };
            let Err(error) = done else {
                epochs.failures.set(0);
                epochs.failure.take();
                continue;
            };
            epochs.failures.set(epochs.failures.get().saturating_add(1));
            if epochs.failures.get() == PATIENCE {
                tracing::error!(%error, "no epoch can end: the disk may come to lack more than its bound");
            }
            epochs.failure.replace(Some(error));
            epochs.wanted.set(true);
            epochs.event.notify();
            self.durable.pause(self.rt.now() + REST, || false).await;
        }
        // No epoch ends any more: no task may wait for an epoch.
        epochs.event.notify();
    }

    async fn keep_image(&self, epochs: &Epochs) -> Result<()> {
        if self.extents.leave_home_of_image(epochs).await? {
            return Ok(());
        }
        self.extents.read_unreadable(epochs).await?;
        if epochs.unsettled.take() {
            self.settle_image(epochs, iter::once(Bytes::ZERO..self.store.shape.image_len()));
        }
        let unknown = epochs.lacks.borrow().unknown.total();
        if unknown > Bytes::ZERO {
            self.examine(epochs).await?;
            if self.extents.leave_home_of_image(epochs).await? {
                return Ok(());
            }
            self.settle_image(epochs, iter::once(Bytes::ZERO..self.store.shape.image_len()));
            // Each pass has less work than the pass before, unless guests are as fast as the disk.
            epochs.outrun.set(epochs.lacks.borrow().unknown.total() > unknown / 2);
            epochs.event.notify();
        }
        if self.jobs.are_ending() || !self.extents.are_epochs_wanted() {
            return Ok(());
        }
        let (unknown, open) = {
            let lacks = epochs.lacks.borrow();
            (lacks.unknown.total(), lacks.open.total())
        };
        let capacity = epochs.place.capacity();
        match epochs.stage.get() {
            // An extent with a stale second copy keeps its home on the image disk until it is resynchronised:
            // guests write there.
            Stage::Void if self.store.is_home_in_image(epochs) => {
                self.durable.pause(self.rt.now() + LOOK, || false).await;
                return Ok(());
            }
            Stage::Void if unknown <= capacity / 2 => {
                // The rest fits into one epoch. With this epoch the image becomes a state of the volume.
                let mut lacks = epochs.lacks.borrow_mut();
                lacks.open = std::mem::take(&mut lacks.unknown);
                epochs.stage.set(Stage::Noted);
            }
            Stage::Void => return Ok(()),
            _ if open > capacity => {
                // The open set exceeds one epoch: the image becomes void, and the ranges are written in
                // place.
                self.extents.alone(epochs, self.extents.void_image(epochs)).await?;
                let mut lacks = epochs.lacks.borrow_mut();
                std::mem::take(&mut lacks.open).iter().for_each(|range| lacks.unknown.insert(range));
                epochs.stage.set(Stage::Void);
                return Ok(());
            }
            Stage::Compared => epochs.stage.set(Stage::Noted),
            Stage::Noted => {}
        }
        let lacks = epochs.lacks.borrow().known();
        let is_wanted =
            epochs.wanted.get() && lacks <= epochs.room() || epochs.disk.get().state == State::Void;
        if is_wanted && lacks == Bytes::ZERO && epochs.changing.get() == 0 && epochs.is_image() {
            // The image lacks nothing.
            epochs.frozen.set(epochs.frozen.get() + 1);
            epochs.counting.set(epochs.frozen.get());
            epochs.wanted.set(false);
            epochs.event.notify();
        } else if is_wanted {
            self.extents.end_epoch(epochs).await?;
        }
        let until = || {
            epochs.wanted.get() && epochs.lacks.borrow().known() <= epochs.room()
                || !self.extents.are_epochs_wanted()
        };
        self.durable.pause(self.rt.now() + LOOK, until).await;
        Ok(())
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    pub(super) fn are_epochs_wanted(&self) -> bool {
        let wants = self.policy.borrow().keeps_epochs();
        let all_there = !self.store.devices.iter().any(Member::is_lacking);
        wants && all_there && !self.durable.journal.commits.have_failed()
    }

    /// Writes a new state page, durably.
    pub(super) async fn set_disk(
        &self,
        epochs: &Epochs,
        change: impl FnOnce(StatePage) -> StatePage,
    ) -> Result<()> {
        epochs.event.wait_for(|| (!epochs.updating.replace(true)).then_some(())).await;
        let member = self.store.member(epochs.device());
        let now = epochs.disk.get();
        let page = StatePage { sequence: now.sequence + 1, ..change(now) };
        let applied = match (page.state, epochs.unapplied()) {
            (State::Recovered, Some(unapplied)) => unapplied.applied(),
            _ => Vec::new(),
        };
        let done = async {
            write_state(member, &epochs.place, &page, &applied).await?;
            self.flush_image(epochs).await
        };
        let done = done.await;
        if done.is_ok() {
            epochs.disk.set(page);
        }
        epochs.in_doubt.set(done.is_err());
        epochs.updating.set(false);
        epochs.event.notify();
        done
    }

    pub(super) async fn flush_image(&self, epochs: &Epochs) -> Result<()> {
        let member = self.store.member(epochs.device());
        match member.flush(&self.rt).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = crate::Error::io(format_args!("{} could not flush", member.describe()), &error);
                self.durable.give_up(member.id, error.clone()).await?;
                Err(error)
            }
        }
    }

    /// Makes the image void and restarts epochs if the home of an extent lies in the image: guests may have
    /// written there in place. Returns true if the image became void.
    async fn leave_home_of_image(&self, epochs: &Epochs) -> Result<bool> {
        if !epochs.is_home.take() {
            return Ok(false);
        }
        tracing::error!(
            "the disk alone is no longer an image, because it has the home of an extent: the image is being \
             rebuilt"
        );
        self.alone(epochs, self.void_image(epochs)).await?;
        // The open set is compared like everything else.
        epochs.lacks.borrow_mut().open = Ranges::default();
        self.begin_epochs(epochs).await;
        Ok(true)
    }

    /// Waits until the disk is as new as possible, for a policy: until an epoch counts that begins after the
    /// call. Returns `Stopped` if no epoch can end.
    pub async fn wait_for_epoch(&self) -> Result<Outcome> {
        let Some(epochs) = self.active_epochs() else { return Ok(Outcome::Stopped) };
        epochs.wanted.set(true);
        self.jobs.wake();
        // An epoch that is on its way lacks the newest writes.
        let epoch = epochs.frozen.get() + 1;
        let can_none_end = || {
            !epochs.active.get()
                || epochs.failures.get() > 0
                || self.durable.journal.commits.have_failed()
                || self.jobs.are_ending()
        };
        let over = || {
            let is_there = epochs.counting.get() >= epoch;
            (is_there || can_none_end()).then_some(is_there)
        };
        match epochs.event.wait_for(over).await {
            true => Ok(Outcome::Finished),
            false => Ok(Outcome::Stopped),
        }
    }

    /// Ends an epoch: the image, with its journal, becomes the volume at an instant without a change under
    /// way.
    pub(super) async fn end_epoch(&self, epochs: &Epochs) -> Result<()> {
        if epochs.in_doubt.get() {
            // Segments of an epoch that failed to count may count all the same. A new state page rules out
            // their counting before their places in the ring are overwritten.
            self.set_disk(epochs, |page| page).await?;
        }
        if !planted(Bug::EpochEndsWithinChange) {
            epochs.closed.set(true);
            epochs.event.wait_for(|| (epochs.changing.get() == 0).then_some(())).await;
            epochs.closed.set(false);
        }
        if !self.are_epochs_wanted() {
            // Either not every change since has been recorded, or a device is lacking and guests may write to
            // the image directly.
            epochs.event.notify();
            return Ok(());
        }
        epochs.writing.set(true);
        let ended = self.rt.calendar().unwrap_or_default();
        let gaps = {
            let mut lacks = epochs.lacks.borrow_mut();
            let open = std::mem::take(&mut lacks.open);
            // `frozen` may still hold ranges of an epoch that failed.
            open.iter().for_each(|range| lacks.frozen.insert(range));
            lacks.fill_gaps(epochs.room() / 2)
        };
        // Until a gap is applied, the journal would overwrite bytes that others write in place.
        gaps.into_iter().for_each(|gap| self.put_gap_behind(gap));
        epochs.wanted.set(false);
        epochs.frozen.set(epochs.frozen.get() + 1);
        let number = epochs.frozen.get();
        epochs.event.notify();
        let ended = match self.write_epoch(epochs).await {
            Ok(written) => self.count_epoch(epochs, written, ended).await,
            Err(error) => {
                self.reopen(epochs);
                Err(error)
            }
        };
        epochs.writing.set(false);
        if ended.is_ok() {
            epochs.counting.set(number);
        }
        epochs.event.notify();
        self.jobs.wake();
        ended
    }

    /// Makes an epoch count that is in the journal.
    async fn count_epoch(&self, epochs: &Epochs, written: JournaledEpoch, ended: Nanos) -> Result<()> {
        let counts = async {
            if !planted(Bug::EpochNotFlushed) {
                self.flush_image(epochs).await?;
            }
            self.set_disk(epochs, |page| {
                let run = Run { segments: page.run.segments + written.segments, ..page.run };
                StatePage { epoch: page.epoch + 1, state: State::Image, run, ended, ..page }
            })
            .await
        };
        if let Err(error) = counts.await {
            // `give_up` does not always exclude the image.
            self.reopen(epochs);
            // Only the image disk took part in this.
            self.durable.give_up(epochs.device(), error.clone()).await?;
            return Err(error);
        }
        epochs.segments.borrow_mut().extend(written.places);
        epochs.next_segment.set(written.next);
        let mut lacks = epochs.lacks.borrow_mut();
        (lacks.leaving, lacks.filled) = (Ranges::default(), Bytes::ZERO);
        written.ranges.into_iter().for_each(|(range, number)| lacks.journaled.insert(range, number));
        Ok(())
    }

    /// Returns the ranges of a failed epoch to the open set.
    fn reopen(&self, epochs: &Epochs) {
        epochs.given_up.set(epochs.given_up.get() + 1);
        epochs.captured.borrow_mut().clear();
        let mut lacks = epochs.lacks.borrow_mut();
        lacks.filled = Bytes::ZERO;
        for set in [std::mem::take(&mut lacks.frozen), std::mem::take(&mut lacks.leaving)] {
            set.iter().for_each(|range| lacks.open.insert(range));
        }
        epochs.event.notify();
    }

    /// Reads the range that the SSDs could not deliver for the last epoch. No epoch is tried before the read
    /// succeeds.
    pub(super) async fn read_unreadable(&self, epochs: &Epochs) -> Result<()> {
        let unreadable = epochs.unreadable.borrow().clone();
        let Some((range, _)) = unreadable else { return Ok(()) };
        let memory = self.buffer(&epochs.arena, super::len(&range)).await?;
        let extent = self.store.shape.extent_of(range.start);
        let _guard = self.locks.exclusive(extent).await;
        self.read_image_bytes(&range, &memory).await?;
        epochs.unreadable.take();
        Ok(())
    }

    /// Writes the frozen ranges to the journal.
    async fn write_epoch(&self, epochs: &Epochs) -> Result<JournaledEpoch> {
        let (next, reading) = (Cell::new(Bytes::ZERO), Cell::new(AT_ONCE));
        let written = Cell::new(None);
        let mut work: Vec<Pin<Box<dyn Future<Output = Result<()>> + '_>>> = Vec::new();
        for _ in 0..AT_ONCE {
            work.push(Box::pin(async {
                let read = self.capture_frozen(epochs, &next).await;
                reading.set(reading.get() - 1);
                epochs.event.notify();
                read
            }));
        }
        work.push(Box::pin(async {
            written.set(Some(self.write_captured(epochs, &reading).await?));
            Ok(())
        }));
        // A power cut must not remove an epoch's bytes from the SSDs: the disk would then have to revert more
        // than another epoch can hold.
        work.push(Box::pin(self.durable.commit(Origin::Background)));
        join_all(work.into_iter()).await.into_iter().collect::<Result<()>>()?;
        match &*epochs.unreadable.borrow() {
            Some((_, error)) => Err(error.clone()),
            None => Ok(written.take().expect("it ended without an error")),
        }
    }

    /// Reads frozen ranges in the order of addresses; several such tasks share `next`.
    async fn capture_frozen(&self, epochs: &Epochs, next: &Cell<Bytes>) -> Result<()> {
        loop {
            let part = epochs.next_of(|lacks| &lacks.frozen, &(next.get()..self.store.shape.image_len()));
            let Some(part) = part.filter(|_| epochs.unreadable.borrow().is_none()) else { return Ok(()) };
            let extent = self.store.shape.extent_of(part.start);
            let most = (part.start + LARGEST_BUFFER / 2).min(self.store.shape.bytes_of(extent).end);
            let part = part.start..part.end.min(most);
            next.set(part.end);
            // Allocates before the lock: guests must not wait for memory that the disk has to free.
            let memory = self.buffer(&epochs.arena, super::len(&part)).await?;
            let _guard = self.locks.exclusive(extent).await;
            self.capture(epochs, &part, Some(&memory)).await;
        }
    }

    /// Writes captured ranges as segments until the frozen set is empty. After an error the task still takes
    /// captured ranges: no reader waits for memory.
    async fn write_captured(&self, epochs: &Epochs, reading: &Cell<usize>) -> Result<JournaledEpoch> {
        let run = epochs.disk.get().run;
        let (first, mut result) = (run.first + u64::from(run.segments), Ok(()));
        let mut written = JournaledEpoch {
            segments: 0,
            places: Vec::new(),
            next: epochs.next_segment.get(),
            ranges: Vec::new(),
        };
        let mut free = epochs.place.ring() - epochs.used();
        loop {
            let has_work = || {
                let any = !epochs.captured.borrow().is_empty();
                let is_in_vain = result.is_err() || epochs.unreadable.borrow().is_some();
                let over =
                    reading.get() == 0 && (epochs.lacks.borrow().frozen.total() == Bytes::ZERO || is_in_vain);
                (any || over).then_some(any)
            };
            if !epochs.event.wait_for(has_work).await {
                return result.map(|()| written);
            }
            let taken: Vec<Captured> = {
                let mut captured = epochs.captured.borrow_mut();
                captured.sort_unstable_by_key(|c| c.range.start);
                let fitting = fitting(&captured);
                captured.drain(..fitting).collect()
            };
            if result.is_ok() && free < LONGEST_SEGMENT * 2 {
                let text = format!("an epoch needs more than the {} of its journal", epochs.place.len);
                result = Err(Error::new(ErrorKind::NoSpace, text));
            }
            if result.is_ok() {
                let (number, at) = (first + u64::from(written.segments), written.next);
                match self.write_segment(&epochs.place, number, at, &taken).await {
                    Ok(len) => {
                        let next = next_place(at + len, epochs.place.ring());
                        free -= if next < at { epochs.place.ring() - at } else { len };
                        (written.segments, written.next) = (written.segments + 1, next);
                        written.places.push(at);
                        written.ranges.extend(taken.into_iter().map(|c| (c.range, number)));
                    }
                    Err(error) => {
                        // Only the image disk took part in this write.
                        let given_up = self.durable.give_up(epochs.device(), error.clone()).await;
                        result = given_up.and(Err(error));
                    }
                }
            }
        }
    }
}
