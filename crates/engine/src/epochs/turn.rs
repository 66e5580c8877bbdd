//! The end of an epoch: frozen, in the journal, and from then on what the disk is.

use super::apply::apply_all;
use super::journal::{fitting, write_state};
use super::{Captured, Epochs, Lacks, Stage, next_within};
use crate::copies::Member;
use crate::core::Core;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Nanos};
use braid_format::epoch_journal::{LONGEST_SEGMENT, Run, State, StatePage, next_place};
use braid_policy::{Origin, Outcome};
use braid_runtime::{Device, Mode, Runtime, join_all};
use std::cell::Cell;
use std::iter;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

/// Reads from the SSDs at the same time.
const AT_ONCE: usize = 8;
/// How long it rests after an epoch that could not end.
pub(super) const REST: Nanos = Nanos::from_secs(1);
/// How often it looks whether the policy wants epochs.
const LOOK: Nanos = Nanos::from_millis(100);

/// An epoch that is in the journal and does not count yet.
struct Written {
    segments: u32,
    /// Where these lie, and where the next one will.
    places: Vec<Bytes>,
    next: Bytes,
    /// What is in it, and in which segment.
    ranges: Vec<(Range<Bytes>, u64)>,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Keeps the image of the volume by epochs while the policy wants that, until the volume closes.
    pub async fn keep_epochs(self: &Rc<Self>) {
        let Some(epochs) = &self.epochs else { return };
        while !self.jobs.are_ending() {
            let is_wanted = self.are_epochs_wanted();
            let done = match (epochs.active.get(), is_wanted) {
                (false, false) => {
                    self.pause(self.rt.now() + LOOK, || self.are_epochs_wanted()).await;
                    Ok(())
                }
                (false, true) => {
                    self.begin_epochs(epochs);
                    Ok(())
                }
                (true, false) => self.stop_epochs(epochs).await,
                (true, true) => self.keep_image(epochs).await,
            };
            let is_troubled = done.is_err();
            if let Err(error) = done {
                if !epochs.troubled.get() {
                    tracing::error!(%error, "an epoch could not end: the disk is as far behind as it gets");
                }
                epochs.wanted.set(true);
            }
            epochs.troubled.set(is_troubled);
            epochs.event.notify();
            if is_troubled {
                self.pause(self.rt.now() + REST, || false).await;
            }
        }
    }

    fn are_epochs_wanted(&self) -> bool {
        let wants = self.policy.borrow().keeps_epochs();
        let all_there = !self.devices.iter().any(Member::is_lacking);
        wants && all_there && !self.journal.commits.have_failed()
    }

    /// From now on all changes are noted. What the image lacks so far is not known.
    fn begin_epochs(&self, epochs: &Epochs) {
        let mut lacks = epochs.lacks.borrow_mut();
        lacks.unknown.insert(Bytes::ZERO..self.image_len());
        epochs.stage.set(Stage::Void);
        epochs.active.set(true);
    }

    /// From now on the image may be written like any other copy: it must not pass for a state of the volume any more.
    async fn stop_epochs(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        if self.member(epochs.device()).is_current() && !self.journal.commits.have_failed() {
            self.void_image(epochs).await?;
        }
        epochs.event.wait_for(|| (!epochs.applying.get()).then_some(())).await;
        epochs.active.set(false);
        epochs.given_up.set(epochs.given_up.get() + 1);
        *epochs.lacks.borrow_mut() = Lacks::default();
        epochs.captured.borrow_mut().clear();
        Ok(())
    }

    /// The image is no state of the volume from now on, durably. What is in the journal is applied before: others may write to the image then.
    async fn void_image(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        self.drain_journal(epochs).await?;
        if epochs.disk.get().state != State::Void {
            self.set_disk(epochs, |page| StatePage { state: State::Void, ..page }).await?;
        }
        Ok(())
    }

    /// Has the disk say that it is something else, durably.
    pub(super) async fn set_disk(
        &self,
        epochs: &Epochs,
        change: impl FnOnce(StatePage) -> StatePage,
    ) -> Result<()> {
        epochs.event.wait_for(|| (!epochs.updating.replace(true)).then_some(())).await;
        let (member, volume) = (self.member(epochs.device()), self.devices.superblock().volume);
        let now = epochs.disk.get();
        let page = StatePage { sequence: now.sequence + 1, ..change(now) };
        let done = async {
            write_state(member, &epochs.place, volume, &page).await?;
            self.flush_image(epochs).await
        };
        let done = done.await;
        if done.is_ok() {
            epochs.disk.set(page);
        }
        epochs.updating.set(false);
        epochs.event.notify();
        done
    }

    pub(super) async fn flush_image(&self, epochs: &Epochs) -> Result<()> {
        let member = self.member(epochs.device());
        match member.flush(&self.rt).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let error =
                    crate::Error::io(format_args!("{} could not flush", self.describe(member.id)), &error);
                self.give_up(member.id, error.clone()).await?;
                Err(error)
            }
        }
    }

    /// The bytes of the image that belong to the volume, in whole extents.
    pub(super) fn image_len(&self) -> Bytes {
        self.shape.extent_size * u64::from(self.shape.extents())
    }

    async fn keep_image(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        let unknown = epochs.lacks.borrow().unknown.total();
        if unknown > Bytes::ZERO {
            self.examine(epochs).await?;
            self.settle_image(epochs, iter::once(Bytes::ZERO..self.image_len()));
            // Each pass has less to do than the one before, unless guests are as fast.
            epochs.outrun.set(epochs.lacks.borrow().unknown.total() > unknown / 2);
            epochs.event.notify();
        }
        if self.jobs.are_ending() || !self.are_epochs_wanted() {
            return Ok(());
        }
        let (unknown, open) = {
            let lacks = epochs.lacks.borrow();
            (lacks.unknown.total(), lacks.open.total())
        };
        let capacity = epochs.place.capacity();
        match epochs.stage.get() {
            Stage::Void if unknown <= capacity / 2 => {
                // What is left fits into one epoch, with which the image becomes a state of the volume.
                let mut lacks = epochs.lacks.borrow_mut();
                lacks.open = std::mem::take(&mut lacks.unknown);
                epochs.stage.set(Stage::Noted);
            }
            Stage::Void => return Ok(()),
            _ if open > capacity => {
                // More than one epoch holds: it is written in its place.
                self.void_image(epochs).await?;
                let mut lacks = epochs.lacks.borrow_mut();
                lacks.unknown = std::mem::take(&mut lacks.open);
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
            // It is as new as it can be.
            epochs.frozen.set(epochs.frozen.get() + 1);
            epochs.counting.set(epochs.frozen.get());
            epochs.wanted.set(false);
            epochs.event.notify();
        } else if is_wanted {
            self.end_epoch(epochs).await?;
        }
        let until = || {
            epochs.wanted.get() && epochs.lacks.borrow().known() <= epochs.room() || !self.are_epochs_wanted()
        };
        self.pause(self.rt.now() + LOOK, until).await;
        Ok(())
    }

    /// A policy wants the disk to be as new as possible. Waits for that.
    pub async fn wait_for_epoch(&self) -> Result<Outcome> {
        let Some(epochs) = self.active_epochs() else { return Ok(Outcome::Stopped) };
        epochs.wanted.set(true);
        self.jobs.wake();
        // One that is on its way lacks what was written since.
        let epoch = epochs.frozen.get() + 1;
        let over = || {
            let is_there = epochs.counting.get() >= epoch;
            let over = is_there || !epochs.active.get() || epochs.troubled.get() || self.jobs.are_ending();
            over.then_some(is_there)
        };
        match epochs.event.wait_for(over).await {
            true => Ok(Outcome::Finished),
            false => Ok(Outcome::Stopped),
        }
    }

    /// Ends an epoch: the image, with its journal, becomes the volume as it is in a moment without a change under way.
    async fn end_epoch(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        epochs.closed.set(true);
        epochs.event.wait_for(|| (epochs.changing.get() == 0).then_some(())).await;
        epochs.writing.set(true);
        let ended = self.rt.calendar().unwrap_or_default();
        {
            let mut lacks = epochs.lacks.borrow_mut();
            let open = std::mem::take(&mut lacks.open);
            // What an epoch left that could not end.
            open.iter().for_each(|range| lacks.frozen.insert(range));
            lacks.fill_gaps(epochs.room() / 2);
        }
        epochs.closed.set(false);
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

    /// An epoch is in the journal: from now on it counts.
    async fn count_epoch(&self, epochs: &Epochs, written: Written, ended: Nanos) -> Result<()> {
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
            // Only the image has a part in it.
            self.give_up(epochs.device(), error.clone()).await?;
            return Err(error);
        }
        epochs.segments.borrow_mut().extend(written.places);
        epochs.next_segment.set(written.next);
        let mut lacks = epochs.lacks.borrow_mut();
        (lacks.leaving, lacks.filled) = (crate::map::Ranges::default(), Bytes::ZERO);
        written.ranges.into_iter().for_each(|(range, number)| lacks.journaled.insert(range, number));
        Ok(())
    }

    /// An epoch could not end: what it was to have is part of the next one.
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

    /// Writes what is frozen into the journal.
    async fn write_epoch(self: &Rc<Self>, epochs: &Epochs) -> Result<Written> {
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
        join_all(work.into_iter()).await.into_iter().collect::<Result<()>>()?;
        Ok(written.take().expect("it ended without an error"))
    }

    /// Reads what is frozen, from the first address on, as one of several.
    async fn capture_frozen(self: &Rc<Self>, epochs: &Epochs, next: &Cell<Bytes>) -> Result<()> {
        loop {
            let part = epochs.next_of(|lacks| &lacks.frozen, &(next.get()..self.image_len()));
            let Some(part) = part else { return Ok(()) };
            let extent = self.shape.extent_of(part.start);
            let most = (part.start + self.bounce_limit() / 2).min(self.shape.bytes_of(extent).end);
            let part = part.start..part.end.min(most);
            next.set(part.end);
            // Before the lock: guests must not wait for memory that the disk has to free.
            let memory = self.buffer(&epochs.arena, super::len(&part)).await?;
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            self.capture(epochs, &part, Some(&memory)).await?;
        }
    }

    /// Writes what has been read as segments, until nothing is frozen any more. After an error it goes on taking, so that nobody waits for room.
    async fn write_captured(&self, epochs: &Epochs, reading: &Cell<usize>) -> Result<Written> {
        let run = epochs.disk.get().run;
        let (first, mut result) = (run.first + u64::from(run.segments), Ok(()));
        let mut written =
            Written { segments: 0, places: Vec::new(), next: epochs.next_segment.get(), ranges: Vec::new() };
        let mut free = epochs.place.ring() - epochs.used();
        loop {
            let has_work = || {
                let any = !epochs.captured.borrow().is_empty();
                let over = reading.get() == 0
                    && (epochs.lacks.borrow().frozen.total() == Bytes::ZERO || result.is_err());
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
                match self.write_segment(&epochs.place, (number, at), &taken).await {
                    Ok(len) => {
                        let next = next_place(at + len, epochs.place.ring());
                        free -= if next < at { epochs.place.ring() - at } else { len };
                        (written.segments, written.next) = (written.segments + 1, next);
                        written.places.push(at);
                        written.ranges.extend(taken.into_iter().map(|c| (c.range, number)));
                    }
                    Err(error) => result = Err(error),
                }
            }
        }
    }

    /// What the image does not lack any more of some ranges is not behind.
    pub(super) fn settle_image(&self, epochs: &Epochs, within: impl Iterator<Item = Range<Bytes>>) {
        let lacks = epochs.lacks.borrow();
        within.for_each(|within| self.settle_within(&lacks, &within));
    }

    fn settle_within(&self, lacks: &Lacks, within: &Range<Bytes>) {
        let mut at = within.start;
        loop {
            let next = next_within(self.state.borrow().behind.ranges(), &(at..within.end));
            let Some(range) = next else { return };
            let extent = self.shape.extent_of(range.start);
            let range = range.start..range.end.min(self.shape.bytes_of(extent).end);
            at = range.end;
            if !lacks.any(&range) {
                self.is_alike(range);
            } else {
                let step = self.shape.block_size;
                for start in (range.start.0..range.end.0).step_by(step.0 as usize).map(Bytes) {
                    let block = start..(start + step).min(range.end);
                    if !lacks.any(&block) {
                        self.is_alike(block);
                    }
                }
            }
        }
    }

    /// The image has a range of one extent as the home has it.
    fn is_alike(&self, range: Range<Bytes>) {
        let extent = self.shape.extent_of(range.start);
        let start = self.shape.bytes_of(extent).start;
        let piece = Piece { extent, range: range.start - start..range.end - start };
        if !self.is_older_needed(extent, &piece.range) {
            let span = self.shape.span_of(extent);
            let mut state = self.state.borrow_mut();
            let doubts = state.behind.doubts(span);
            state.behind.copied(span, range, doubts);
        }
    }

    /// Has the journal say of a piece that the image lacks it, before a guest changes it otherwise than by a write to its copies; with that the
    /// change has begun, and ends by [`Core::end_differing`].
    pub async fn begin_image_change(self: &Rc<Self>, piece: &Piece) -> Result<Option<braid_format::SpanId>> {
        if self.active_epochs().is_none() {
            return Ok(None);
        }
        let (start, block) = (self.shape.bytes_of(piece.extent).start, self.shape.block_size);
        let range = start + piece.range.start.align_down(block)..start + piece.range.end.align_up(block);
        self.note_change(&range).await?;
        let span = self.shape.span_of(piece.extent);
        self.put_behind(span, range);
        self.record_behind(span).await?;
        self.intend(span).await?;
        Ok(Some(span))
    }

    /// The image lacks a range of a span from now on, as the policy wants it.
    pub fn put_behind(&self, span: braid_format::SpanId, range: Range<Bytes>) {
        let mut state = self.state.borrow_mut();
        if !state.behind.defer(span, range.clone(), Bytes(u64::MAX)) {
            state.behind.mark_behind(span, range);
        }
    }

    /// At the opening: what the image is, before anyone changes anything.
    pub async fn open_epochs(self: &Rc<Self>) -> Result<()> {
        let Some(epochs) = &self.epochs else { return Ok(()) };
        let member = self.member(epochs.device());
        if !member.is_written() {
            return Ok(());
        }
        let volume = self.devices.superblock().volume;
        let page = super::state_of(member, &epochs.place, volume).await?;
        epochs.disk.set(page);
        let applied = apply_all(&self.rt, member, (&epochs.place, volume), &self.shape, page).await;
        match applied {
            Ok(page) => epochs.disk.set(page),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                // The volume has all of it elsewhere.
                tracing::error!(%error, "the disk alone is no state of the volume any more: it is made one again");
                let Run { at, first, segments } = page.run;
                let run = Run { at, first: first + u64::from(segments), segments: 0 };
                self.set_disk(epochs, |page| StatePage { state: State::Void, run, ..page }).await?;
            }
            Err(error) => return Err(error),
        }
        epochs.next_segment.set(epochs.disk.get().run.at);
        let holds = epochs.is_image();
        if !holds || !self.are_epochs_wanted() || member.lacks_all() {
            // Whoever serves from here on may write to it.
            self.void_image(epochs).await?;
            if self.are_epochs_wanted() {
                self.begin_epochs(epochs);
            }
            return Ok(());
        }
        let mut lacks = epochs.lacks.borrow_mut();
        self.state.borrow().behind.ranges().iter().for_each(|range| lacks.unknown.insert(range));
        epochs.stage.set(Stage::Compared);
        epochs.active.set(true);
        Ok(())
    }

    /// Nothing reaches the disk in its place before the next epoch: a commit at the end of a run makes the SSDs as new as what it is.
    pub async fn end_last_epoch(self: &Rc<Self>) -> Result<()> {
        let Some(epochs) = self.active_epochs() else { return Ok(()) };
        if epochs.stage.get() == Stage::Noted && epochs.lacks.borrow().known() > Bytes::ZERO {
            self.commit(Origin::Background).await?;
            self.end_epoch(epochs).await?;
        }
        self.drain_journal(epochs).await
    }
}
