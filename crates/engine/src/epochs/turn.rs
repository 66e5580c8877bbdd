//! The end of an epoch: frozen, in the journal, committed, applied.

use super::journal::{apply, fitting, write_state};
use super::{Captured, Epochs, Stage, next_within};
use crate::Result;
use crate::copies::Member;
use crate::core::Core;
use crate::shape::Piece;
use braid_base::{Bytes, Nanos};
use braid_format::epoch_journal::{SEGMENTS, State, StatePage};
use braid_policy::{Origin, Outcome};
use braid_runtime::{Device, Mode, Runtime, join_all};
use std::cell::Cell;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

/// Reads from the SSDs at the same time.
const AT_ONCE: usize = 8;
/// How long it rests after an epoch that could not end.
const REST: Nanos = Nanos::from_secs(1);
/// How often it looks whether the policy wants epochs.
const LOOK: Nanos = Nanos::from_millis(100);

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
    async fn stop_epochs(&self, epochs: &Epochs) -> Result<()> {
        if self.member(epochs.device()).is_current() && !self.journal.commits.have_failed() {
            self.void_image(epochs).await?;
        }
        epochs.active.set(false);
        epochs.given_up.set(epochs.given_up.get() + 1);
        *epochs.lacks.borrow_mut() = super::Lacks::default();
        epochs.captured.borrow_mut().clear();
        Ok(())
    }

    /// The image is no state of the volume from now on, durably.
    pub(super) async fn void_image(&self, epochs: &Epochs) -> Result<()> {
        if epochs.disk.get().state != State::Void {
            self.set_disk_state(epochs, epochs.disk.get().epoch, State::Void).await?;
        }
        Ok(())
    }

    async fn set_disk_state(&self, epochs: &Epochs, epoch: u64, state: State) -> Result<()> {
        let page = StatePage { sequence: epochs.disk.get().sequence + 1, epoch, state };
        let (member, volume) = (self.member(epochs.device()), self.devices.superblock().volume);
        write_state(member, &epochs.place, volume, &page).await?;
        self.flush_image(epochs).await?;
        epochs.disk.set(page);
        Ok(())
    }

    async fn flush_image(&self, epochs: &Epochs) -> Result<()> {
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
            self.settle_image(epochs);
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
        if epochs.wanted.get() || epochs.disk.get().state != State::Applied {
            self.end_epoch(epochs).await?;
        }
        let until = || epochs.wanted.get() || !self.are_epochs_wanted();
        self.pause(self.rt.now() + LOOK, until).await;
        Ok(())
    }

    /// A policy wants the disk to be as new as possible. Waits for that.
    pub async fn wait_for_epoch(&self) -> Result<Outcome> {
        let Some(epochs) = self.active_epochs() else { return Ok(Outcome::Stopped) };
        epochs.wanted.set(true);
        self.jobs.wake();
        let over = || {
            let over = !epochs.wanted.get() || !epochs.active.get() || epochs.troubled.get();
            (over || self.jobs.are_ending()).then_some(!epochs.wanted.get())
        };
        match epochs.event.wait_for(over).await {
            true => Ok(Outcome::Finished),
            false => Ok(Outcome::Stopped),
        }
    }

    /// Ends an epoch: the image becomes the volume as it is in a moment without a change under way.
    async fn end_epoch(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        epochs.closed.set(true);
        epochs.event.wait_for(|| (epochs.changing.get() == 0).then_some(())).await;
        {
            let mut lacks = epochs.lacks.borrow_mut();
            let open = std::mem::take(&mut lacks.open);
            // What an epoch left that could not end.
            open.iter().for_each(|range| lacks.frozen.insert(range));
        }
        epochs.closed.set(false);
        epochs.wanted.set(false);
        epochs.event.notify();
        let epoch = epochs.disk.get().epoch + 1;
        let written = self.write_epoch(epochs, epoch).await;
        let segments = match written {
            Ok(segments) => segments,
            Err(error) => {
                self.reopen(epochs);
                return Err(error);
            }
        };
        // Everything from here on can be done again, and only the image has a part in it.
        let done = self.commit_epoch(epochs, epoch, segments).await;
        if let Err(error) = done {
            self.give_up(epochs.device(), error.clone()).await?;
            return Err(error);
        }
        epochs.lacks.borrow_mut().leaving = crate::map::Ranges::default();
        self.settle_image(epochs);
        Ok(())
    }

    async fn commit_epoch(&self, epochs: &Epochs, epoch: u64, segments: u32) -> Result<()> {
        let (member, volume) = (self.member(epochs.device()), self.devices.superblock().volume);
        self.flush_image(epochs).await?;
        self.set_disk_state(epochs, epoch, State::Committed(segments)).await?;
        apply(member, &epochs.place, &self.shape, volume, (epoch, segments)).await?;
        self.flush_image(epochs).await?;
        self.set_disk_state(epochs, epoch, State::Applied).await
    }

    /// An epoch could not end: what it was to have is part of the next one.
    fn reopen(&self, epochs: &Epochs) {
        epochs.given_up.set(epochs.given_up.get() + 1);
        epochs.captured.borrow_mut().clear();
        let mut lacks = epochs.lacks.borrow_mut();
        for set in [std::mem::take(&mut lacks.frozen), std::mem::take(&mut lacks.leaving)] {
            set.iter().for_each(|range| lacks.open.insert(range));
        }
        epochs.event.notify();
    }

    /// Writes what is frozen into the journal. Gives the number of segments.
    async fn write_epoch(self: &Rc<Self>, epochs: &Epochs, epoch: u64) -> Result<u32> {
        let (next, reading) = (Cell::new(Bytes::ZERO), Cell::new(AT_ONCE));
        let segments = Cell::new(0);
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
            segments.set(self.write_captured(epochs, epoch, &reading).await?);
            Ok(())
        }));
        join_all(work.into_iter()).await.into_iter().collect::<Result<()>>()?;
        Ok(segments.get())
    }

    /// Reads what is frozen, from the first address on, as one of several.
    async fn capture_frozen(self: &Rc<Self>, epochs: &Epochs, next: &Cell<Bytes>) -> Result<()> {
        loop {
            let part = epochs.next_of(|lacks| &lacks.frozen, &(next.get()..self.image_len()));
            let Some(part) = part else { return Ok(()) };
            let extent = self.shape.extent_of(part.start);
            let part = part.start..part.end.min(self.shape.bytes_of(extent).end);
            next.set(part.end);
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            self.capture(epochs, &part).await?;
        }
    }

    /// Writes what has been read as segments, until nothing is frozen any more. After an error it goes on taking, so that nobody waits for room.
    async fn write_captured(&self, epochs: &Epochs, epoch: u64, reading: &Cell<usize>) -> Result<u32> {
        let (mut number, mut at, mut result) = (0, SEGMENTS, Ok(()));
        loop {
            let has_work = || {
                let any = !epochs.captured.borrow().is_empty();
                let over = reading.get() == 0
                    && (epochs.lacks.borrow().frozen.total() == Bytes::ZERO || result.is_err());
                (any || over).then_some(any)
            };
            if !epochs.event.wait_for(has_work).await {
                return result.map(|()| number);
            }
            let taken: Vec<Captured> = {
                let mut captured = epochs.captured.borrow_mut();
                captured.sort_unstable_by_key(|c| c.range.start);
                let fitting = fitting(&captured);
                captured.drain(..fitting).collect()
            };
            if result.is_ok() {
                match self.write_segment(&epochs.place, (epoch, number), at, &taken).await {
                    Ok(len) => (number, at) = (number + 1, at + len),
                    Err(error) => result = Err(error),
                }
            }
        }
    }

    /// What the image does not lack any more is not behind.
    fn settle_image(&self, epochs: &Epochs) {
        let lacks = epochs.lacks.borrow();
        let mut at = Bytes::ZERO;
        loop {
            let next = next_within(self.state.borrow().behind.ranges(), &(at..self.image_len()));
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
        if let State::Committed(segments) = page.state {
            apply(member, &epochs.place, &self.shape, volume, (page.epoch, segments)).await?;
            self.flush_image(epochs).await?;
            self.set_disk_state(epochs, page.epoch, State::Applied).await?;
        }
        let holds = epochs.disk.get().state == State::Applied;
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
        Ok(())
    }
}
