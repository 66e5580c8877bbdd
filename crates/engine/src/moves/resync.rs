//! Resync: brings the copies that are behind up to date, span after span, while guests work. The same job
//! after an unclean stop, after a write that failed on one copy, and for a device that came back.
//!
//! What lies near each other on the device that lacks it is one *run*: its pieces are copied in one turn, so
//! that a disk moves its heads once for all. A piece is copied under its extent's lock, and is not behind
//! from then on. Guests write to both copies meanwhile, so a span is done after one pass, unless a copy
//! missed another write in it.

use super::Mover;
use crate::copies::{Member, OnBadPlace, Other};
use crate::core::Core;
use crate::{ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_format::{SlotNumber, SpanId};
use braid_policy::{ByteRange, DeviceView, Move, Origin, Outcome};
use braid_runtime::{Buf, Device, Mode, Runtime, join_all, yield_now};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// How long a resync rests that could not do anything.
const REST: Nanos = Nanos::from_secs(5);
/// A span is called clean once guests have left it alone for so long.
const IDLE: Nanos = Nanos::from_secs(5);
/// So many idle spans are called clean in a second while guests write elsewhere: each costs a batch of the
/// journal where they come back.
const CLEARED_AT_ONCE: usize = 16;

/// With one required copy nothing is resynchronised: what is called clean saves a part of a cache from a
/// crash, and flushes all devices.
const REST_OF_CACHE: Nanos = Nanos::from_secs(30);
/// So many spans are called clean then.
const CLEARED_OF_CACHE: usize = 256;

/// Runs that are copied at the same time: one is read while another one is written.
const AT_ONCE: usize = 4;
/// The longest run, and how far apart its pieces lie at most.
const LONGEST: Bytes = Bytes(1 << 20);
/// Bytes copied around a bad place, sector by sector, before guests of the extent get their turn.
const PART: Bytes = Bytes(16 << 10);
/// So many pieces, each a request or more, a run has at most: guests wait behind them.
const MOST_IN_RUN: usize = 8;

/// Extents that a search passes over before it lets others run.
const EXTENTS_IN_A_ROW: u32 = 4096;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Brings what is behind up to date until the volume closes.
    pub(super) async fn resync(self: &Rc<Self>) {
        while !self.jobs.are_ending() {
            let mut failed = false;
            // While epochs are kept, nothing else goes to their disk.
            let spans = match self.active_epochs() {
                None if self.can_resync() => self.state.borrow().behind.behind_spans(),
                _ => Vec::new(),
            };
            for result in self.resync_spans(&spans).await {
                // Counted by the device that failed; tried again after a rest.
                failed |= result.is_err();
            }
            if self.jobs.are_ending() {
                return;
            }
            let is_behind = |span: &SpanId| self.state.borrow().behind.is_any_behind(*span);
            let progress = !spans.iter().all(is_behind);
            if progress {
                // With that the sources are proved, and may fail. A failure is remembered, and told to every
                // flush from now on.
                let caught_up = self.state.borrow().behind.caught_up();
                failed |= self.commit(Origin::Background).await.is_err();
                failed |= !failed && self.end_lapses(&caught_up).await.is_err();
            }
            if !failed && let Err(error) = self.welcome_returned().await {
                tracing::warn!(%error, "devices that came back stay out of use");
            }
            failed |= self.complete_all().await.is_err();
            let waits = failed || !progress;
            let begin = if waits { self.rt.now() + REST } else { self.rt.now() };
            let any = || !waits && self.state.borrow().behind.any_behind();
            self.pause(begin.max(self.rt.now() + Nanos::from_millis(1)), any).await;
        }
    }

    /// Whether stale copies can be brought up to date: not while only one device is there.
    pub fn can_resync(&self) -> bool {
        self.devices.iter().filter(|member| member.is_written()).nth(1).is_some()
    }

    /// Brings what a policy left behind up to date in a range, in the order of addresses, over shorter gaps.
    pub async fn resync_range(self: &Rc<Self>, range: ByteRange, gap: Bytes) -> Result<Outcome> {
        let end = range.end.min(self.shape.volume_size);
        if self.active_epochs().is_some() {
            return Ok(Outcome::Stopped);
        }
        if range.start >= end {
            return Ok(Outcome::Finished);
        }
        let all = self.resync_within(range.start..end, gap, Mover::Plan).await?;
        // A commit proves the sources. One after each range would keep the target from sorting its writes.
        self.moves.resynced.set(true);
        Ok(if all { Outcome::Finished } else { Outcome::Stopped })
    }

    /// Brings the second copy of an extent up to date, but for what guests write meanwhile, and for what a
    /// crash would bring back.
    pub async fn resync_extent(self: &Rc<Self>, extent: ExtentId) -> Result<()> {
        self.resync_within(self.shape.bytes_of(extent), Move::GAP, Mover::Engine).await?;
        self.moves.resynced.set(true);
        Ok(())
    }

    /// Brings what is behind in these spans up to date, in the order of addresses: several runs at the same
    /// time, so that devices that are read and devices that are written all have work. Of a span in which a
    /// run fails nothing more is begun, unless it failed for want of room.
    async fn resync_spans(self: &Rc<Self>, spans: &[SpanId]) -> Vec<Result<()>> {
        let left: RefCell<VecDeque<Range<Bytes>>> =
            RefCell::new(spans.iter().map(|&span| self.shape.bytes_of_span(span)).collect());
        let is_over = || self.jobs.are_ending() || self.active_epochs().is_some();
        let next = || if is_over() { None } else { self.next_run(&mut left.borrow_mut()) };
        let work = async || {
            let mut result = Ok(());
            while let Some(run) = next() {
                // What cannot be copied waits for nothing.
                yield_now().await;
                let Err(error) = self.resync_run(&run, Mover::Engine).await else { continue };
                if error.kind() == ErrorKind::NoSpace {
                    // Where the target has bytes already, it needs no room.
                    for piece in &run {
                        let _counted = self.resync_run(std::slice::from_ref(piece), Mover::Engine).await;
                    }
                } else {
                    let failed = self.span_at(run[0].start);
                    left.borrow_mut().retain(|rest| self.span_at(rest.start) != failed);
                }
                result = Err(error);
            }
            result
        };
        join_all((0..AT_ONCE).map(|_| work())).await
    }

    /// Takes the first pieces that are behind from what is left of some spans: those of one span whose second
    /// copies lie near each other.
    fn next_run(&self, left: &mut VecDeque<Range<Bytes>>) -> Option<Vec<Range<Bytes>>> {
        while let Some(rest) = left.front_mut() {
            let (mut run, mut len): (Vec<Range<Bytes>>, Bytes) = (Vec::new(), Bytes::ZERO);
            while let Some(next) = self.next_behind(rest.clone()) {
                let piece = self.piece_at(&next, Move::GAP);
                len += piece.end - piece.start;
                let is_near = |first: &Range<Bytes>| self.are_near(first.start, piece.start);
                if run.len() == MOST_IN_RUN || len > LONGEST || !run.first().is_none_or(is_near) {
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

    /// Whether a device that writes what is behind at one address passes over little to do so at another one.
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
                a.device == b.device && between <= LONGEST
            }
            // Nothing is copied.
            _ => true,
        }
    }

    fn span_at(&self, at: Bytes) -> SpanId {
        self.shape.span_of(self.shape.extent_of(at))
    }

    /// What is copied at a time at the start of a range: up to the end of its extent, or of a buffer, and
    /// over shorter gaps.
    fn piece_at(&self, range: &Range<Bytes>, gap: Bytes) -> Range<Bytes> {
        let end = self.shape.bytes_of(self.shape.extent_of(range.start)).end;
        let most = end.min(range.start + self.bounce_limit());
        range.start..self.filled(range.end.min(most), most, gap)
    }

    /// Brings what is behind in a range up to date, in the order of addresses. False if something is left.
    async fn resync_within(self: &Rc<Self>, range: Range<Bytes>, gap: Bytes, mover: Mover) -> Result<bool> {
        let (mut at, mut all) = (range.start, true);
        while let Some(next) = self.next_behind(at..range.end) {
            if self.jobs.are_ending() {
                return Ok(false);
            }
            let piece = self.piece_at(&next, gap);
            // As in `resync_spans`: plans name any number of ranges of any length.
            yield_now().await;
            all &= self.resync_run(std::slice::from_ref(&piece), mover).await?;
            at = piece.end;
        }
        Ok(all)
    }

    /// A commit has flushed what was copied to these spans: the journal says so.
    async fn end_lapses(&self, spans: &[(SpanId, u32)]) -> Result<()> {
        self.state.borrow_mut().behind.end_lapses(spans);
        self.record_spans().await
    }

    /// The first part of a range that is behind.
    fn next_behind(&self, range: Range<Bytes>) -> Option<Range<Bytes>> {
        let next = self.state.borrow().behind.next(range.start)?;
        (next.start < range.end).then(|| next.start..next.end.min(range.end))
    }

    /// Drops the clean extra copies in a span that may have been read from a device after it had lost writes.
    pub async fn drop_suspects(&self, span: SpanId) -> Result<()> {
        if !self.state.borrow().suspect.contains(&span) {
            return Ok(());
        }
        let doubts = self.state.borrow().behind.doubts(span);
        for extent in self.shape.extents_of(span) {
            for block in self.shape.blocks_of(extent) {
                if self.state.borrow().extras.get(block).is_none() {
                    continue;
                }
                let _room = self.reserve(1).await?;
                let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
                self.drop_extra(block);
            }
        }
        // Another device may have been given up meanwhile.
        if self.state.borrow().behind.doubts(span) == doubts {
            self.state.borrow_mut().suspect.remove(&span);
        }
        Ok(())
    }

    /// Copies pieces that are behind, in one turn of their devices. False if something of them is left: it is
    /// behind as before if a device is not there.
    async fn resync_run(self: &Rc<Self>, pieces: &[Range<Bytes>], mover: Mover) -> Result<bool> {
        let mut devices = BTreeSet::new();
        for piece in pieces {
            self.drop_suspects(self.span_at(piece.start)).await?;
            let extent = self.shape.extent_of(piece.start);
            let entry = self.state.borrow().map.get(extent);
            if let Other::Behind(_) = self.copies_of(extent, &entry).other {
                self.rest(mover, &self.limited_of_extent(extent)).await;
                devices.extend([entry.home, entry.second].map(|slot| self.device_of(slot)));
            }
        }
        let len = pieces.iter().fold(Bytes::ZERO, |sum, piece| sum + (piece.end - piece.start));
        let bytes = self.buffer(&self.buffers.runs, len).await?;
        let devices: Vec<DeviceId> = devices.into_iter().collect();
        let _turn = self.take_turn(mover, &devices, (pieces.len() as u32, len)).await;
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

    /// As [`Core::resync_piece`]. Where a device has a bad place, which may take it seconds to tell, guests
    /// of the extent get their turn after a few sectors.
    async fn resync_in_parts(
        self: &Rc<Self>,
        piece: &Range<Bytes>,
        bytes: Buf,
        mover: Mover,
    ) -> Result<bool> {
        let error = match self.resync_piece(piece, bytes.clone(), (mover, OnBadPlace::Fail)).await {
            Err(error) if self.is_left_undecided(piece) => error,
            done => return done,
        };
        let (mut at, mut all) = (piece.start, Ok(true));
        while at < piece.end {
            if self.jobs.are_ending() {
                return Ok(false);
            }
            let entry = self.state.borrow().map.get(self.shape.extent_of(piece.start));
            if self.is_any_copy_late(&entry) {
                // Each request would have to wait, and a write that is late may use the buffer still.
                return Err(error);
            }
            let part = at..(at + PART).min(piece.end);
            let bytes = bytes.slice(at - piece.start..part.end - piece.start);
            at = part.end;
            match self.resync_piece(&part, bytes, (mover, OnBadPlace::GoOn)).await {
                Ok(is_alike) => all = all.map(|all| all && is_alike),
                Err(_) => all = Err(error.clone()),
            }
        }
        all
    }

    /// Copies what is behind in a piece of an extent. False if something of it is left.
    pub async fn resync_piece(
        self: &Rc<Self>,
        piece: &Range<Bytes>,
        bytes: Buf,
        (mover, on_bad_place): (Mover, OnBadPlace),
    ) -> Result<bool> {
        let extent = self.shape.extent_of(piece.start);
        let (span, start) = (self.shape.span_of(extent), self.shape.bytes_of(extent).start);
        // Only the lock tells: the first write to an extent may be under way, which is in no map yet.
        let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
        let (mut at, mut all, mut failed) = (piece.start, true, None);
        while at < piece.end {
            if self.state.borrow().suspect.contains(&span) {
                // Another device has failed since: its extra copies go first, or the span would become clean with them.
                return Ok(false);
            }
            let doubts = self.state.borrow().behind.doubts(span);
            let entry = self.state.borrow().map.get(extent);
            let mut done = at..piece.end;
            if entry.home != SlotNumber::NONE && entry.home != SlotNumber::LOST {
                let copies = self.copies_of(extent, &entry);
                let (valid, end) = self.shape.run(entry.valid, done.start - start, done.end - start);
                done.end = start + end;
                done.end = self.state.borrow().behind.alike_undecided(&done);
                let end = done.end - start;
                let (is_behind, is_undecided) = {
                    let behind = &self.state.borrow().behind;
                    (behind.ranges().intersects(&done), behind.is_all_undecided(&done))
                };
                match copies.other {
                    // Another task has copied it.
                    _ if !is_behind => {}
                    Other::Away => return Ok(false),
                    // Epochs have begun since.
                    Other::Behind(target) if self.is_image(self.device_of(target)) => return Ok(false),
                    Other::Behind(target) if valid => {
                        let part = bytes.slice(Bytes::ZERO..done.end - done.start);
                        let within = done.start - start..end;
                        let copied = match is_undecided {
                            true => self.copy_undecided((extent, entry), &within, &part, on_bad_place).await,
                            false => {
                                let copies = (extent, copies.current, target);
                                self.copy_behind(copies, within, &part, mover).await
                            }
                        };
                        if let Err(error) = copied {
                            if on_bad_place == OnBadPlace::Fail || self.is_any_copy_late(&entry) {
                                return Err(error);
                            }
                            (at, failed) = (done.end, failed.or(Some(error)));
                            continue;
                        }
                    }
                    Other::None | Other::Equal(_) | Other::Behind(_) => {}
                }
            }
            // What a crash would bring back has copies of its own, which lack what they lacked: it is behind
            // until the change is durable.
            let is_alike = !self.is_older_needed(extent, &(done.start - start..done.end - start));
            if is_alike {
                self.state.borrow_mut().behind.copied(span, done.clone(), doubts);
            }
            (at, all) = (done.end, all && is_alike);
        }
        failed.map_or(Ok(all), Err)
    }

    /// Whether the journal still says of a range of an extent that it lies elsewhere, or that it is valid
    /// where it no longer is.
    pub fn is_older_needed(&self, extent: ExtentId, range: &Range<Bytes>) -> bool {
        let state = self.state.borrow();
        let (durable, now) = (state.durable_entry(extent), state.map.get(extent));
        let needed = durable.valid & self.shape.parts_touched(range);
        let moved = (durable.home, durable.second) != (now.home, now.second);
        let lacks = if moved { needed } else { needed & !now.valid };
        durable.second != SlotNumber::NONE && lacks != 0
    }

    /// Where copying ends if it goes on over shorter gaps to what is behind next, up to `most`.
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

    /// Copies a range from the current copy of an extent to the other copy. The caller holds the extent's lock.
    async fn copy_behind(
        self: &Rc<Self>,
        (extent, source, target): (ExtentId, SlotNumber, SlotNumber),
        range: Range<Bytes>,
        bytes: &Buf,
        mover: Mover,
    ) -> Result<()> {
        self.check_kept(extent, source, &range)?;
        let (device, start) = (self.device_of(source), self.rt.now());
        self.step(mover, &[device], self.read_slot(source, range.clone(), bytes, Origin::Background)).await?;
        self.count(mover, device, start);
        // A flush may have failed meanwhile: what it lost was not read, but what lay there before.
        self.check_kept(extent, source, &range)?;
        self.note_source(extent, source);
        let (device, start) = (self.device_of(target), self.rt.now());
        let write = self.write_slot(target, &range, Some(bytes), u16::MAX, Origin::Background);
        self.step(mover, &[device], write).await?;
        self.count(mover, device, start);
        self.background.borrow_mut().resynced_bytes += (range.end - range.start).0;
        Ok(())
    }

    /// An extent enters the map. If it has one copy of two, [`Core::complete_all`] finds it there from now
    /// on, and not before.
    pub fn note_new(&self, entry: &Entry) {
        if self.shape.copies > 1 && entry.second == SlotNumber::NONE {
            self.moves.incomplete.set(true);
        }
    }

    /// Gives extents the second copy that they could not have while a device was missing.
    async fn complete_all(self: &Rc<Self>) -> Result<()> {
        if !self.moves.incomplete.get() || self.devices.iter().any(Member::is_lacking) {
            return Ok(());
        }
        self.moves.incomplete.set(false);
        for extent in (0..self.shape.extents()).map(ExtentId) {
            if self.jobs.are_ending() || self.moves.auditing.get() {
                self.moves.incomplete.set(true);
                return Ok(());
            }
            if extent.0 % EXTENTS_IN_A_ROW == 0 {
                yield_now().await;
            }
            let entry = self.state.borrow().map.get(extent);
            let single =
                entry.second == SlotNumber::NONE && self.state.borrow().space.locate(entry.home).is_some();
            if !single {
                continue;
            }
            // One that fails is tried again with the others.
            self.complete(extent, entry.home).await.inspect_err(|_| self.moves.incomplete.set(true))?;
            // A guest's write wins over the copy; then it is tried again.
            let entry = self.state.borrow().map.get(extent);
            let still = entry.second == SlotNumber::NONE && entry.home != SlotNumber::NONE;
            self.moves.incomplete.set(self.moves.incomplete.get() || still);
        }
        Ok(())
    }

    /// Gives an extent its second copy, if that is possible now: in the image by an epoch, while these are
    /// kept.
    async fn complete(self: &Rc<Self>, extent: ExtentId, home: SlotNumber) -> Result<()> {
        if let Some(epochs) = self.active_epochs() {
            return self.complete_by_epoch(epochs, extent).await;
        }
        let not = self.device_of(home);
        let room = |device: &&DeviceView| device.id != not && device.free > 0;
        let roomiest = self.state.borrow().views.iter().filter(room).max_by_key(|d| d.free).map(|d| d.id);
        if let Some(target) = roomiest {
            self.run_move(Move::Mirror { extent, target }, Mover::Engine).await?;
        }
        Ok(())
    }

    /// Calls spans clean that guests have left alone, a few at a time: the next commit flushes both copies
    /// and says so.
    pub(super) async fn clear_idle_spans(&self) {
        while !self.jobs.are_ending() {
            let (rest, at_once) = match self.shape.copies {
                1 => (REST_OF_CACHE, CLEARED_OF_CACHE),
                _ => (Nanos::from_secs(1), CLEARED_AT_ONCE),
            };
            self.pause(self.rt.now() + rest, || false).await;
            let before = self.rt.now().saturating_sub(IDLE);
            let mut state = self.state.borrow_mut();
            let most = if state.behind.is_idle_since(before) { usize::MAX } else { at_once };
            // They are records of the next commit, for which no request has reserved room.
            let room = self.journal.unreserved().saturating_sub(state.pending());
            let idle = state.behind.idle_since(before, most.min(room));
            if !idle.is_empty() {
                state.clear_spans(idle);
            }
        }
    }
}
