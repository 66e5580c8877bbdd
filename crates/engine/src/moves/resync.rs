//! Resync: brings stale copies up to date, span after span, beside guests. The same job serves an unclean
//! stop, a write that failed on one copy, and a device that returned.
//!
//! Pieces near each other on the stale device are one *run*: they are copied in one turn, so that a disk
//! seeks once for all pieces. A piece is copied under its extent's lock, and is no longer behind afterwards.
//! Guests write to both copies meanwhile. A span is therefore done after one pass, unless a copy missed
//! another write.

use crate::copier::{IN_A_ROW, LONGEST_RUN, MOST_IN_RUN, Mover, RUNS_AT_ONCE};
use crate::copies::OnBadPlace;
use crate::core::{Store, Upkeep};
use crate::devices::{LARGEST_BUFFER, Member};
use crate::map::Other;
use crate::shape::Piece;
use crate::{ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::{SlotNumber, SpanId};
use braid_policy::{ByteRange, DeviceView, Move, Origin, Outcome};
use braid_runtime::{Buf, Device, Runtime, join_all, yield_now};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Pause of a resync without progress.
const REST: Nanos = Nanos::from_secs(5);
/// Time without guests' writes after which a span becomes clean.
const IDLE: Nanos = Nanos::from_secs(5);
/// Idle spans cleared per second while guests write elsewhere. Each cleared span costs a batch of the journal
/// at its next write.
const CLEARED_AT_ONCE: usize = 16;
/// Period of clearing with one required copy. Such a volume has no resync: clearing a span only saves a part
/// of a cache from a crash, and flushes all devices.
const REST_OF_CACHE: Nanos = Nanos::from_secs(30);
/// Idle spans cleared in one such period.
const CLEARED_OF_CACHE: usize = 256;

/// Bytes copied around a bad sector, one sector after the other, before guests of the extent get their turn.
const PART: Bytes = Bytes(16 << 10);

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Resynchronises stale copies until the volume closes.
    pub(super) async fn resync(&self) {
        while !self.jobs.are_ending() {
            let mut failed = false;
            // While epochs are kept, only epochs write to the image disk.
            let spans = match self.extents.active_epochs() {
                None if self.store.devices.can_resync() => self.store.state.borrow().behind.behind_spans(),
                _ => Vec::new(),
            };
            for result in self.resync_spans(&spans).await {
                // The device that failed counts the error. The next try follows after a pause.
                failed |= result.is_err();
            }
            if self.jobs.are_ending() {
                return;
            }
            let is_behind = |span: &SpanId| self.store.state.borrow().behind.is_any_behind(*span);
            let progress = !spans.iter().all(is_behind) || self.has_drain_settled();
            if progress {
                // The commit proves the sources, which may then fail. A failed commit is remembered: every
                // later flush fails.
                let caught_up = self.store.state.borrow().behind.caught_up();
                failed |= self.durable.commit(Origin::Background).await.is_err();
                failed |= !failed && self.record_ended_lapses(&caught_up).await.is_err();
            }
            if !failed && let Err(error) = self.durable.welcome_returned().await {
                tracing::warn!(%error, "returned devices stay out of use");
            }
            failed |= self.complete_all().await.is_err();
            let waits = failed || !progress;
            let begin = if waits { self.rt.now() + REST } else { self.rt.now() };
            let any = || !waits && self.store.state.borrow().behind.any_behind();
            self.durable.pause(begin.max(self.rt.now() + Nanos::from_millis(1)), any).await;
        }
    }

    /// Resynchronises a range that a policy left stale, in address order, over gaps shorter than `gap`.
    pub async fn resync_range(&self, range: ByteRange, gap: Bytes) -> Result<Outcome> {
        let end = range.end.min(self.store.shape.volume_size);
        if self.extents.active_epochs().is_some() {
            return Ok(Outcome::Stopped);
        }
        if range.start >= end {
            return Ok(Outcome::Finished);
        }
        let all = self.resync_within(range.start..end, gap, Mover::Plan).await?;
        // A commit proves the sources. One after each range would keep the target from sorting writes.
        self.moves.resynced.set(true);
        Ok(if all { Outcome::Finished } else { Outcome::Stopped })
    }

    /// Resynchronises the second copy of an extent. Ranges that guests write meanwhile stay behind, as do
    /// ranges whose older durable map entry a crash would restore.
    pub async fn resync_extent(&self, extent: ExtentId) -> Result<()> {
        self.resync_within(self.store.shape.bytes_of(extent), Move::GAP, Mover::Engine).await?;
        self.moves.resynced.set(true);
        Ok(())
    }

    /// Resynchronises spans in address order. Several runs at the same time keep both sources and targets
    /// busy. After a failed run, no other run of the span begins, unless the target had no room.
    async fn resync_spans(&self, spans: &[SpanId]) -> Vec<Result<()>> {
        let left: RefCell<VecDeque<Range<Bytes>>> =
            RefCell::new(spans.iter().map(|&span| self.store.shape.bytes_of_span(span)).collect());
        let is_over = || self.jobs.are_ending() || self.extents.active_epochs().is_some();
        let next = || if is_over() { None } else { self.store.next_run(&mut left.borrow_mut()) };
        let work = async || {
            let mut result = Ok(());
            while let Some(run) = next() {
                // A run without copies waits for nothing, and must let other tasks run.
                yield_now().await;
                let Err(error) = self.resync_run(&run, Mover::Engine).await else { continue };
                if error.kind() == ErrorKind::NoSpace {
                    // Overwritten bytes of the target need no new room.
                    for piece in &run {
                        let _counted = self.resync_run(std::slice::from_ref(piece), Mover::Engine).await;
                    }
                } else {
                    let failed = self.store.shape.span_at(run[0].start);
                    left.borrow_mut().retain(|rest| self.store.shape.span_at(rest.start) != failed);
                }
                result = Err(error);
            }
            result
        };
        join_all((0..RUNS_AT_ONCE).map(|_| work())).await
    }

    /// Resynchronises a range in address order. False if some bytes are left.
    async fn resync_within(&self, range: Range<Bytes>, gap: Bytes, mover: Mover) -> Result<bool> {
        let (mut at, mut all) = (range.start, true);
        while let Some(next) = self.store.next_behind(at..range.end) {
            if self.jobs.are_ending() {
                return Ok(false);
            }
            let piece = self.store.piece_at(&next, gap);
            // As in `resync_spans`: plans may name any number of ranges of any length.
            yield_now().await;
            all &= self.resync_run(std::slice::from_ref(&piece), mover).await?;
            at = piece.end;
        }
        Ok(all)
    }

    /// Records that a commit has flushed the bytes copied to these spans.
    async fn record_ended_lapses(&self, spans: &[(SpanId, u32)]) -> Result<()> {
        self.store.state.borrow_mut().behind.end_lapses(spans);
        self.durable.record_spans().await
    }

    /// Drops clean extra copies in a suspect span: perhaps read from a device that had lost writes.
    pub async fn drop_suspects(&self, span: SpanId) -> Result<()> {
        if !self.store.state.borrow().suspect.contains(&span) {
            return Ok(());
        }
        let doubts = self.store.state.borrow().behind.doubts(span);
        for extent in self.store.shape.extents_of(span) {
            for block in self.store.shape.blocks_of(extent) {
                if self.store.state.borrow().extras.get(block).is_none() {
                    continue;
                }
                let _room = self.durable.reserve(1).await?;
                let _guard = self.locks.exclusive(extent).await;
                self.store.drop_extra(&self.policy, block);
            }
        }
        // Another device may have failed meanwhile.
        if self.store.state.borrow().behind.doubts(span) == doubts {
            self.store.state.borrow_mut().suspect.remove(&span);
        }
        Ok(())
    }

    /// Copies stale pieces, in one turn of their devices. False if bytes are left, as without a device.
    async fn resync_run(&self, pieces: &[Range<Bytes>], mover: Mover) -> Result<bool> {
        let mut devices = BTreeSet::new();
        for piece in pieces {
            self.drop_suspects(self.store.shape.span_at(piece.start)).await?;
            let extent = self.store.shape.extent_of(piece.start);
            let entry = self.store.state.borrow().map.get(extent);
            if let Other::Behind(_) = self.store.copies_of(extent, &entry).other {
                self.rest(mover, &self.moves.budget.limited_of_extent(&self.store, extent)).await;
                devices.extend([entry.home, entry.second].map(|slot| self.store.device_of(slot)));
            }
        }
        let len = pieces.iter().fold(Bytes::ZERO, |sum, piece| sum + (piece.end - piece.start));
        let bytes = self.extents.buffer(&self.extents.buffers.runs, len).await?;
        let devices: Vec<DeviceId> = devices.into_iter().collect();
        let _turn = self.take_turn(mover, &devices, pieces.len() as u32, len).await;
        let mut place = Bytes::ZERO;
        let works = pieces.iter().map(|piece| {
            let len = piece.end - piece.start;
            place += len;
            self.resync_in_parts(piece, bytes.slice(place - len..place), mover)
        });
        let mut all = true;
        for done in join_all(works).await {
            all &= done?;
        }
        Ok(all)
    }

    /// Like [`Upkeep::resync_piece`]. A device may take seconds to report a bad sector, so after an error
    /// guests of the extent get their turn every few sectors.
    async fn resync_in_parts(&self, piece: &Range<Bytes>, bytes: Buf, mover: Mover) -> Result<bool> {
        let error = match self.resync_piece(piece, bytes.clone(), mover, OnBadPlace::Fail).await {
            Err(error) if self.store.is_left_undecided(piece) => error,
            done => return done,
        };
        let (mut at, mut all) = (piece.start, Ok(true));
        while at < piece.end {
            if self.jobs.are_ending() {
                return Ok(false);
            }
            let entry = self.store.state.borrow().map.get(self.store.shape.extent_of(piece.start));
            if self.store.is_any_copy_late(&entry) {
                // Each request would have to wait, and a late write may still use the buffer.
                return Err(error);
            }
            let part = at..(at + PART).min(piece.end);
            let bytes = bytes.slice(at - piece.start..part.end - piece.start);
            at = part.end;
            match self.resync_piece(&part, bytes, mover, OnBadPlace::GoOn).await {
                Ok(is_alike) => all = all.map(|all| all && is_alike),
                Err(_) => all = Err(error.clone()),
            }
        }
        all
    }

    /// Copies the stale ranges in a piece of an extent. False if some bytes are left.
    pub async fn resync_piece(
        &self,
        piece: &Range<Bytes>,
        bytes: Buf,
        mover: Mover,
        on_bad_place: OnBadPlace,
    ) -> Result<bool> {
        let extent = self.store.shape.extent_of(piece.start);
        let (span, start) = (self.store.shape.span_of(extent), self.store.shape.bytes_of(extent).start);
        // The lock is necessary: a first write to the extent may be in flight, and in no map yet.
        let _guard = self.locks.exclusive(extent).await;
        let (mut at, mut all, mut failed) = (piece.start, true, None);
        while at < piece.end {
            if self.store.state.borrow().suspect.contains(&span) {
                // Another device has failed since: extra copies of its bytes go first.
                return Ok(false);
            }
            let doubts = self.store.state.borrow().behind.doubts(span);
            let entry = self.store.state.borrow().map.get(extent);
            let mut done = at..piece.end;
            if entry.home != SlotNumber::NONE && entry.home != SlotNumber::LOST {
                let copies = self.store.copies_of(extent, &entry);
                let (valid, end) = self.store.shape.run(entry.valid, done.start - start, done.end - start);
                done.end = start + end;
                done.end = self.store.state.borrow().behind.alike_undecided(&done);
                let end = done.end - start;
                let (is_behind, is_undecided) = {
                    let behind = &self.store.state.borrow().behind;
                    (behind.ranges().intersects(&done), behind.is_all_undecided(&done))
                };
                match copies.other {
                    // Another task has copied the range.
                    _ if !is_behind => {}
                    _ if self.moves.reproduced.contains(extent) => return Ok(false),
                    Other::Away => return Ok(false),
                    // Epochs have begun since.
                    Other::Behind(target) if self.extents.is_image(self.store.device_of(target)) => {
                        return Ok(false);
                    }
                    Other::Behind(target) if valid => {
                        let part = bytes.slice(Bytes::ZERO..done.end - done.start);
                        let piece = Piece { extent, range: done.start - start..end };
                        let copied = match is_undecided {
                            true => self.extents.copy_undecided(&piece, entry, &part, on_bad_place).await,
                            false => self.copy_behind(&piece, copies.current, target, &part, mover).await,
                        };
                        if let Err(error) = copied {
                            if on_bad_place == OnBadPlace::Fail || self.store.is_any_copy_late(&entry) {
                                return Err(error);
                            }
                            (at, failed) = (done.end, failed.or(Some(error)));
                            continue;
                        }
                    }
                    Other::None | Other::Equal(_) | Other::Behind(_) => {}
                }
            }
            // A crash before the next commit may restore the durable map entry, with other copies that are
            // still stale. The range is behind until the map change is durable.
            let is_alike = !self.store.is_older_needed(extent, &(done.start - start..done.end - start));
            if is_alike {
                self.store.state.borrow_mut().behind.copied(span, done.clone(), doubts);
            }
            (at, all) = (done.end, all && is_alike);
        }
        failed.map_or(Ok(all), Err)
    }

    /// Copies a range from the current copy of an extent to the other. The caller holds the extent's lock.
    async fn copy_behind(
        &self,
        piece: &Piece,
        source: SlotNumber,
        target: SlotNumber,
        bytes: &Buf,
        mover: Mover,
    ) -> Result<()> {
        let &Piece { extent, ref range } = piece;
        self.read_locked(extent, source, range.clone(), bytes, mover).await?;
        self.store.note_source(extent, source);
        self.write_locked(target, range.clone(), bytes, u16::MAX, mover).await?;
        self.durable.background.borrow_mut().resynced_bytes += (range.end - range.start).0;
        Ok(())
    }

    /// Makes the second copies that a missing device prevented.
    async fn complete_all(&self) -> Result<()> {
        if !self.store.incomplete.get() || self.store.devices.iter().any(Member::is_lacking) {
            return Ok(());
        }
        self.store.incomplete.set(false);
        for extent in (0..self.store.shape.extents()).map(ExtentId) {
            if self.jobs.are_ending() || self.moves.auditing.get() {
                self.store.incomplete.set(true);
                return Ok(());
            }
            if extent.0.is_multiple_of(IN_A_ROW) {
                yield_now().await;
            }
            let entry = self.store.state.borrow().map.get(extent);
            let single = entry.second == SlotNumber::NONE
                && self.store.state.borrow().space.locate(entry.home).is_some();
            if !single {
                continue;
            }
            // A failed extent is tried again with the next search.
            self.complete(extent, entry.home).await.inspect_err(|_| self.store.incomplete.set(true))?;
            // A guest's write wins over the copy; the extent is then tried again.
            let entry = self.store.state.borrow().map.get(extent);
            let still = entry.second == SlotNumber::NONE && entry.home != SlotNumber::NONE;
            self.store.incomplete.set(self.store.incomplete.get() || still);
        }
        Ok(())
    }

    /// Makes the second copy of an extent, if possible now. While epochs are kept, an epoch makes the copy in
    /// the image.
    async fn complete(&self, extent: ExtentId, home: SlotNumber) -> Result<()> {
        if let Some(epochs) = self.extents.active_epochs() {
            return self.extents.complete_by_epoch(epochs, extent).await;
        }
        let not = self.store.device_of(home);
        let room = |device: &&DeviceView| device.id != not && device.free > 0;
        let roomiest =
            self.store.state.borrow().views.iter().filter(room).max_by_key(|d| d.free).map(|d| d.id);
        if let Some(target) = roomiest {
            self.run_move(Move::Mirror { extent, target }, Mover::Engine).await?;
        }
        Ok(())
    }

    /// Clears spans that guests have left alone, a few at a time: the next commit flushes both copies and
    /// records the spans as clean.
    pub(super) async fn clear_idle_spans(&self) {
        while !self.jobs.are_ending() {
            let (rest, at_once) = match self.store.shape.copies {
                1 => (REST_OF_CACHE, CLEARED_OF_CACHE),
                _ => (Nanos::from_secs(1), CLEARED_AT_ONCE),
            };
            self.durable.pause(self.rt.now() + rest, || false).await;
            let before = self.rt.now().saturating_sub(IDLE);
            let mut state = self.store.state.borrow_mut();
            let most = if state.behind.is_idle_since(before) { usize::MAX } else { at_once };
            // Cleared spans are records of the next commit, without journal room reserved by a request.
            let room = self.durable.journal.unreserved().saturating_sub(state.pending());
            let idle = state.behind.idle_since(before, most.min(room));
            if !idle.is_empty() {
                state.clear_spans(idle);
            }
        }
    }
}

impl<D: Device> Store<D> {
    /// Takes the next run: stale pieces of one span with second copies near each other.
    fn next_run(&self, left: &mut VecDeque<Range<Bytes>>) -> Option<Vec<Range<Bytes>>> {
        while let Some(rest) = left.front_mut() {
            let (mut run, mut len): (Vec<Range<Bytes>>, Bytes) = (Vec::new(), Bytes::ZERO);
            while let Some(next) = self.next_behind(rest.clone()) {
                let piece = self.piece_at(&next, Move::GAP);
                len += piece.end - piece.start;
                let is_near = |first: &Range<Bytes>| self.are_near(first.start, piece.start);
                if run.len() == MOST_IN_RUN || len > LONGEST_RUN || !run.first().is_none_or(is_near) {
                    break;
                }
                rest.start = piece.end;
                run.push(piece);
            }
            if !run.is_empty() {
                return Some(run);
            }
            left.pop_front();
        }
        None
    }

    /// True if the stale slots of two addresses are near each other on one device.
    fn are_near(&self, a: Bytes, b: Bytes) -> bool {
        let target = |at: Bytes| {
            let extent = self.shape.extent_of(at);
            let entry = self.state.borrow().map.get(extent);
            match self.copies_of(extent, &entry).other {
                Other::Behind(slot) => self.state.borrow().space.locate(slot),
                Other::None | Other::Equal(_) | Other::Away => None,
            }
        };
        match (target(a), target(b)) {
            (Some(a), Some(b)) => {
                let between = self.shape.extent_size * u64::from(a.index.abs_diff(b.index));
                a.device == b.device && between <= LONGEST_RUN
            }
            // Nothing is copied.
            _ => true,
        }
    }

    /// Returns the first piece of a range: up to the end of its extent or of a buffer, over gaps shorter than
    /// `gap`.
    fn piece_at(&self, range: &Range<Bytes>, gap: Bytes) -> Range<Bytes> {
        let end = self.shape.bytes_of(self.shape.extent_of(range.start)).end;
        let most = end.min(range.start + LARGEST_BUFFER);
        range.start..self.filled(range.end.min(most), most, gap)
    }

    /// Returns the first stale part of a range.
    fn next_behind(&self, range: Range<Bytes>) -> Option<Range<Bytes>> {
        let next = self.state.borrow().behind.next(range.start)?;
        (next.start < range.end).then(|| next.start..next.end.min(range.end))
    }

    /// True if the durable map entry of an extent names other slots for a range, or valid parts that are now
    /// invalid.
    pub fn is_older_needed(&self, extent: ExtentId, range: &Range<Bytes>) -> bool {
        let state = self.state.borrow();
        let (durable, now) = (state.durable_entry(extent), state.map.get(extent));
        let needed = durable.valid & self.shape.parts_touched(range);
        let moved = (durable.home, durable.second) != (now.home, now.second);
        let lacks = if moved { needed } else { needed & !now.valid };
        durable.second != SlotNumber::NONE && lacks != 0
    }

    /// Returns the end of a copy that continues over gaps shorter than `gap` to the next stale range, up to
    /// `most`.
    fn filled(&self, mut end: Bytes, most: Bytes, gap: Bytes) -> Bytes {
        let state = self.state.borrow();
        while let Some(next) = state.behind.next(end).filter(|next| next.start < most.min(end + gap)) {
            end = next.end.min(most);
            if end == most {
                break;
            }
        }
        end
    }
}
