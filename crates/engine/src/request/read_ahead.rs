//! Reading ahead of streams: what a guest will ask for next comes in long requests, from all devices at once.
//!
//! A read of a stream may begin one request to each device, a *run*: extents of the stream that lie side by side there, up to 1 MiB. If what the
//! guest asks for itself is not there yet, the run on its device begins with that; the guest waits for the extent's lock, which the run
//! holds. Other runs are begun only on devices that are not reading ahead already, so another guest's request waits for one of these at
//! most, and for those that guests wait for. Nothing waits for its turn here: what cannot begin now is looked at again at the stream's next read.
//!
//! A run takes several locks, but waits for none, and with them it waits for its device alone. To policies a read of what was read ahead is a
//! miss like any other. But a run is one long read of its device to them, with its time.

use crate::copies::{Copies, Deadline, Member, Other};
use crate::core::Core;
use crate::shape::Piece;
use braid_base::{Bytes, DeviceClass, DeviceId, MIB};
use braid_format::SlotNumber;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, LockGuard, Mode, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// The longest run. A disk reads that in the time in which it finds it; an SSD finds everything at once, and others wait for it.
const LONGEST_OF_HDD: Bytes = MIB;
const LONGEST_OF_SSD: Bytes = Bytes(256 << 10);
/// Two runs for each device are all that a stream can use: one that it reads, and one that comes.
const RUNS_AHEAD: u64 = 2;

/// What lies side by side on a device, and is wanted.
struct Run {
    device: DeviceId,
    at: Bytes,
    len: Bytes,
    deadline: Deadline,
    parts: Vec<(Piece, LockGuard)>,
    /// Where its first byte is in the volume.
    first: Bytes,
    /// Whether the guest waits for it.
    is_asked: bool,
    /// Whether what follows on the device may be wanted, too.
    is_open: bool,
    /// How often the states of devices had changed.
    states: u64,
}

/// Where a piece is read.
struct Place {
    device: DeviceId,
    at: Bytes,
    deadline: Deadline,
}

/// The longest run of a device.
fn longest_run<D>(member: &Member<D>) -> Bytes {
    match member.entry.class {
        DeviceClass::Hdd => LONGEST_OF_HDD,
        DeviceClass::Ssd => LONGEST_OF_SSD,
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// A guest reads: if that belongs to a stream, what follows may be read ahead.
    #[inline]
    pub(super) fn note_read(self: &Rc<Self>, read: Range<Bytes>) {
        let stream = self.guests.streams.borrow_mut().note(&read, || self.rt.now());
        if let Some(stream) = stream
            && !self.jobs.are_ending()
        {
            self.read_ahead(stream, &read);
        }
    }

    #[inline(never)]
    fn read_ahead(self: &Rc<Self>, number: usize, read: &Range<Bytes>) {
        let all_runs = RUNS_AHEAD * self.devices.iter().count() as u64;
        let (stream, window) = {
            let streams = self.guests.streams.borrow();
            (streams.get(number).clone(), streams.window(number, LONGEST_OF_HDD * all_runs))
        };
        let mut asked = self.shape.pieces(read.start, read.end - read.start);
        let is_there = |piece: Piece| self.guests.ahead.borrow().covers(&piece);
        if asked.all(is_there) && stream.until >= stream.end_of(window / 2) {
            return;
        }
        let (mut runs, mut until) = (Vec::new(), stream.end_of(window));
        for range in stream.wanted(read, window) {
            for piece in self.pieces_ahead(range) {
                let at = self.shape.bytes_of(piece.extent).start + piece.range.start;
                if !self.guests.ahead.borrow().covers(&piece) && !self.join(&mut runs, piece, at < read.end) {
                    until = until.min(at);
                }
            }
        }
        // A short run now would only keep a disk from a longer one.
        let least = Bytes(window.0 / (2 * all_runs));
        for run in runs {
            let first = run.first;
            let is_short = self.member(run.device).entry.class == DeviceClass::Hdd && run.len < least;
            if !run.is_asked && run.is_open && is_short || !self.begin_run(run) {
                until = until.min(first);
            }
        }
        self.guests.streams.borrow_mut().set_until(number, until);
    }

    /// A range of the volume as it is read ahead: whole blocks.
    fn pieces_ahead(&self, range: Range<Bytes>) -> impl Iterator<Item = Piece> + use<R, D> {
        let shape = self.shape;
        let end = range.end.align_up(shape.block_size).min(shape.volume_size);
        let start = range.start.align_down(shape.block_size).min(end);
        shape.pieces(start, end - start)
    }

    /// Puts a piece into the run of its device. False if it has to be looked at again.
    fn join(&self, runs: &mut Vec<Run>, piece: Piece, is_asked: bool) -> bool {
        let Some(Place { device, at, deadline }) = self.place_ahead(&piece) else { return true };
        let run = runs.iter_mut().find(|run| run.device == device);
        let can_join = match &run {
            Some(run) => {
                run.is_open
                    && run.at + run.len == at
                    && run.len + piece.len() <= longest_run(self.member(device))
            }
            None => is_asked || !self.guests.ahead.borrow().is_reading(device),
        };
        if !can_join {
            run.into_iter().for_each(|run| run.is_open = false);
            return false;
        }
        // Another task that holds the lock reads it, or changes it.
        let Some(guard) = self.locks.try_lock(Self::lock_number(piece.extent), Mode::Exclusive) else {
            return true;
        };
        if self.guests.changing.settled(piece.extent).is_none() {
            return true;
        }
        let len = piece.len();
        match run {
            Some(run) => {
                run.parts.push((piece, guard));
                run.len += len;
            }
            None => {
                let first = self.shape.bytes_of(piece.extent).start + piece.range.start;
                let states = self.devices.changes();
                let (parts, is_open) = (vec![(piece, guard)], true);
                runs.push(Run { device, at, len, deadline, parts, first, is_asked, is_open, states });
            }
        }
        true
    }

    /// Where a piece is read, if all of it is valid in one place that its device can read alone and has kept. If two copies are alike it is the home: so
    /// what is read from a device lies side by side.
    fn place_ahead(&self, piece: &Piece) -> Option<Place> {
        let entry = self.state.borrow().map.get(piece.extent);
        let parts = self.shape.parts_touched(&piece.range);
        let is_mapped = entry.home != SlotNumber::NONE && entry.home != SlotNumber::LOST;
        let is_plain = is_mapped
            && entry.valid & parts == parts
            && self.shape.is_whole(piece.extent)
            && !self.state.borrow().map.has_extras(piece.extent)
            && !self.guests.cache.borrow().contains(piece.extent)
            && !self.is_unapplied(piece.extent);
        if !is_plain {
            return None;
        }
        let Copies { current, other } = self.copies_of(piece.extent, &entry);
        let deadline = if matches!(other, Other::Equal(_)) { Deadline::Copied } else { Deadline::Only };
        let (member, start) = self.locate(current);
        let at = start + piece.range.start;
        let is_readable = !member.has_lost_writes()
            && !member.is_late()
            && !member.is_slow()
            && at.is_aligned(member.alignment)
            && piece.len().is_aligned(member.alignment);
        is_readable.then_some(Place { device: member.id, at, deadline })
    }

    /// Has a device read a run, if there is memory for it.
    fn begin_run(self: &Rc<Self>, run: Run) -> bool {
        let Some(buf) = self.guests.ahead.borrow_mut().room(run.len) else { return false };
        let mut ahead = self.guests.ahead.borrow_mut();
        run.parts.iter().for_each(|(piece, _)| ahead.expect(piece));
        ahead.begin_reading(run.device);
        drop(ahead);
        let core = self.clone();
        self.jobs.begin();
        self.rt.spawn(async move {
            core.read_run(run, buf).await;
            core.jobs.end();
        });
        true
    }

    /// What cannot be read is left to guests that ask for it: they try other copies, and learn of the error.
    async fn read_run(&self, run: Run, buf: Buf) {
        let member = self.member(run.device);
        let read = self.device_read_by(member, run.at, &buf, Origin::Guest, run.deadline).await;
        // What came from a device that has been given up meanwhile may be what it held before it lost writes.
        let counts = read.is_ok() && self.devices.changes() == run.states;
        let (mut ahead, mut at) = (self.guests.ahead.borrow_mut(), Bytes::ZERO);
        ahead.end_reading(run.device);
        for (piece, _) in &run.parts {
            match counts {
                true => ahead.insert(piece, buf.slice(at..at + piece.len())),
                false => ahead.drop_part(piece.extent),
            }
            at += piece.len();
        }
    }

    /// A guest has read a piece of what was read ahead. The memory cache gets the extent as it would have from a device.
    pub(super) fn pass_ahead(&self, piece: &Piece) {
        let (mut ahead, mut cache) = (self.guests.ahead.borrow_mut(), self.guests.cache.borrow_mut());
        if let Some(whole) = ahead.whole(piece.extent, self.shape.extent_size)
            && cache.wants(piece.extent)
            && let Some(buf) = cache.room()
        {
            buf.copy_from(Bytes::ZERO, whole);
            cache.insert(piece.extent, buf);
            ahead.drop_part(piece.extent);
        }
        ahead.pass(piece);
    }
}
