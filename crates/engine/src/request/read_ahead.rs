//! Reading ahead of streams: what a guest will ask for next comes in long requests, from all devices at once.
//!
//! A read of a stream may begin one request to each device, a *run*: extents of the stream that lie side by
//! side there, up to 1 MiB. A device reads one run at a time, so a guest's request waits for one at most. If
//! what the guest asks for itself is not there yet, the run on its device begins with that, and the guest
//! waits for it: on a disk also for the runs before it, since a disk that went back and forth between guests
//! would take longer for all of them; an SSD serves the guest beside the run that it reads. What else cannot
//! begin now is looked at again at the stream's next read.
//!
//! A run has no locks: a device that hangs keeps nobody from extents that were not asked for. What changes or
//! moves while it is read is dropped. To policies a read of what was read ahead is a miss like any other, and
//! takes its share of the run's time; of runs, and of what nobody asks for, they learn nothing.

use super::ahead::Request;
use super::streams::Stream;
use crate::copies::{Copies, Deadline, Member, Other};
use crate::core::Core;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use braid_base::{Bytes, DeviceClass, DeviceId, MIB, Nanos};
use braid_format::SlotNumber;
use braid_policy::{Completion, Direction, Origin};
use braid_runtime::{Buf, Device, Mode, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// The longest run. A disk reads that in the time in which it finds it; an SSD finds everything at once, and
/// others wait for it.
const LONGEST_OF_HDD: Bytes = MIB;
const LONGEST_OF_SSD: Bytes = Bytes(256 << 10);
/// Two runs for each device are all that a stream can use: one that it reads, and one that comes.
const RUNS_AHEAD: u64 = 2;
/// A read stops to look for more after so many pieces that joined no run: some microseconds.
const MOST_IN_VAIN: usize = 64;

/// What lies side by side on a device, and is wanted.
struct Run {
    device: DeviceId,
    at: Bytes,
    len: Bytes,
    deadline: Deadline,
    parts: Vec<Joined>,
    /// Where its first byte is in the volume.
    first: Bytes,
    /// Whether the guest waits for it.
    is_asked: bool,
    /// Whether what follows on the device may be wanted, too.
    is_open: bool,
    /// How often the states of devices had changed.
    states: u64,
    /// The number of its stream.
    stream: u64,
}

/// A piece of a run.
struct Joined {
    piece: Piece,
    /// How often its extent, or others of its group, had moved.
    moves: u32,
}

/// What came of a look at a piece.
enum Look {
    /// It belongs to a run that begins now.
    Joined,
    /// It need not be looked at again.
    Passed,
    /// It has to be looked at again, once this device has time for it.
    Waits(DeviceId),
}

/// Where a piece is read.
struct Place {
    device: DeviceId,
    at: Bytes,
    deadline: Deadline,
}

fn is_disk<D>(member: &Member<D>) -> bool {
    member.entry.class == DeviceClass::Hdd
}

/// The longest run of a device.
fn longest_run<D>(member: &Member<D>) -> Bytes {
    if is_disk(member) { LONGEST_OF_HDD } else { LONGEST_OF_SSD }
}

/// Looks at pieces in order, each with its place in the volume, until no device has time for more, or too
/// many looks were in vain. Returns up to where none has to be looked at again.
fn look(
    pieces: impl Iterator<Item = (Bytes, Piece)>,
    devices: usize,
    end: Bytes,
    mut join: impl FnMut(Bytes, Piece) -> Look,
) -> Bytes {
    let (mut until, mut in_vain, mut busy) = (end, 0, Vec::new());
    for (at, piece) in pieces {
        if in_vain == MOST_IN_VAIN || busy.len() == devices {
            return until.min(at);
        }
        match join(at, piece) {
            Look::Joined => continue,
            Look::Passed => {}
            Look::Waits(device) => {
                until = until.min(at);
                if !busy.contains(&device) {
                    busy.push(device);
                }
            }
        }
        in_vain += 1;
    }
    until
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
    fn read_ahead(self: &Rc<Self>, stream: usize, read: &Range<Bytes>) {
        let devices = self.devices.iter().count();
        let all_runs = RUNS_AHEAD * devices as u64;
        let mut runs = Vec::new();
        let (mut until, least) = {
            let streams = self.guests.streams.borrow();
            let Some(wanted) = streams.wanted(stream, read, LONGEST_OF_HDD * all_runs) else { return };
            let at = |piece: &Piece| self.shape.bytes_of(piece.extent).start + piece.range.start;
            let pieces = wanted.ranges().flat_map(|range| self.pieces_ahead(range));
            let join = |at, piece| self.join(&mut runs, streams.get(stream), piece, at < read.end);
            let until = look(pieces.map(|piece| (at(&piece), piece)), devices, wanted.end, join);
            (until, Bytes(wanted.window.0 / (2 * all_runs)))
        };
        for run in runs {
            let first = run.first;
            // A short run now would only keep a disk from a longer one.
            let is_short = is_disk(self.member(run.device)) && run.len < least;
            if !run.is_asked && run.is_open && is_short || !self.begin_run(run) {
                until = until.min(first);
            }
        }
        self.guests.streams.borrow_mut().set_until(stream, until);
    }

    /// A range of the volume as it is read ahead: whole blocks.
    fn pieces_ahead(&self, range: Range<Bytes>) -> impl Iterator<Item = Piece> + use<R, D> {
        let shape = self.shape;
        let end = range.end.align_up(shape.block_size).min(shape.volume_size);
        let start = range.start.align_down(shape.block_size).min(end);
        shape.pieces(start, end - start)
    }

    /// Puts a piece into the run of its device.
    fn join(&self, runs: &mut Vec<Run>, stream: &Stream, piece: Piece, is_asked: bool) -> Look {
        if self.guests.ahead.borrow().covers(&piece) || stream.has_failed(piece.extent) {
            return Look::Passed;
        }
        let Some(Place { device, at, deadline }) = self.place_ahead(&piece) else { return Look::Passed };
        let run = runs.iter_mut().find(|run| run.device == device);
        let can_join = match &run {
            Some(run) => {
                run.is_open
                    && run.at + run.len == at
                    && run.deadline == deadline
                    && run.len + piece.len() <= longest_run(self.member(device))
            }
            None => is_asked && is_disk(self.member(device)) || self.member(device).ahead.available() > 0,
        };
        if !can_join {
            run.into_iter().for_each(|run| run.is_open = false);
            return Look::Waits(device);
        }
        if !self.is_undisturbed(&piece) {
            return Look::Passed;
        }
        let (len, moves) = (piece.len(), self.state.borrow().moved.count(piece.extent));
        match run {
            Some(run) => {
                run.len += len;
                // Of an extent there is one part in memory.
                match run.parts.last_mut().map(|last| &mut last.piece) {
                    Some(last) if last.extent == piece.extent => last.range.end = piece.range.end,
                    _ => run.parts.push(Joined { piece, moves }),
                }
            }
            None => {
                let first = self.shape.bytes_of(piece.extent).start + piece.range.start;
                let (states, stream) = (self.devices.changes(), stream.number);
                let (parts, is_open) = (vec![Joined { piece, moves }], true);
                runs.push(Run { device, at, len, deadline, parts, first, is_asked, is_open, states, stream });
            }
        }
        Look::Joined
    }

    /// Whether nobody is reading or changing the extent of a piece.
    fn is_undisturbed(&self, piece: &Piece) -> bool {
        let lock = self.locks.try_lock(Self::lock_number(piece.extent), Mode::Exclusive);
        lock.is_some() && self.guests.changing.settled(piece.extent).is_some()
    }

    /// Where a piece is read, if all of it is valid in one place that its device can read alone and has kept.
    /// If two copies are alike it is the home: so what is read from a device lies side by side.
    fn place_ahead(&self, piece: &Piece) -> Option<Place> {
        let entry = self.state.borrow().map.get(piece.extent);
        let parts = self.shape.parts_touched(&piece.range);
        let is_mapped = entry.home != SlotNumber::NONE && entry.home != SlotNumber::LOST;
        let is_plain = is_mapped
            && entry.valid & parts == parts
            && self.shape.is_whole(piece.extent)
            && !self.state.borrow().map.has_extras(piece.extent)
            && !self.guests.cache.borrow().contains(piece.extent)
            && !self.is_undecided(piece)
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
        let request = Rc::new(Request::new(run.device, run.len));
        let mut ahead = self.guests.ahead.borrow_mut();
        run.parts.iter().for_each(|part| ahead.expect(&part.piece, &request));
        drop(ahead);
        let (core, turns) = (self.clone(), self.member(run.device).ahead.clone());
        let turn = turns.try_acquire(1);
        self.jobs.begin();
        self.rt.spawn(async move {
            let _turn = match turn {
                Some(turn) => turn,
                None => turns.acquire(1).await,
            };
            core.read_run(&run, &request, &buf).await;
            core.jobs.end();
        });
        true
    }

    /// What cannot be read is left to guests that ask for it: they try other copies, and learn of the error.
    async fn read_run(&self, run: &Run, request: &Rc<Request>, buf: &Buf) {
        let took = self.device_read_run(run, buf).await;
        // What came from a device that has been given up meanwhile may be what it held before it lost writes.
        let counts = took.is_some() && self.devices.changes() == run.states;
        let (mut ahead, mut at) = (self.guests.ahead.borrow_mut(), Bytes::ZERO);
        for Joined { piece, moves } in &run.parts {
            let end = at + piece.len();
            let stayed =
                self.state.borrow().moved.count(piece.extent) == *moves || planted(Bug::AheadOfLeftSlot);
            ahead.end(piece, request, (counts && stayed).then(|| buf.slice(at..end)));
            at = end;
        }
        request.end(took.unwrap_or_default());
    }

    /// How long a run took its device; none if that could not read it, or has become slow since the run was
    /// begun.
    async fn device_read_run(&self, run: &Run, buf: &Buf) -> Option<Nanos> {
        let member = self.member(run.device);
        if member.is_late() || member.is_slow() {
            return None;
        }
        let attempt = self.begin(member, Direction::Read, run.at, buf.len(), Origin::Guest);
        let read = member.read(run.at, buf, run.deadline).await;
        let read = self.end_untold(&attempt, read);
        if read.is_err() {
            let extents = run.parts.iter().map(|part| part.piece.extent);
            self.guests.streams.borrow_mut().fail(run.stream, extents);
        }
        read.ok().map(|read| read.latency)
    }

    /// A guest has read a piece of what a request read ahead. The memory cache gets the extent as it would
    /// have from a device.
    pub(super) fn pass_ahead(&self, piece: &Piece, request: &Request) {
        let (device, len, latency) = (request.device, piece.len(), request.share(piece.len()));
        self.tell(&Completion { device, direction: Direction::Read, len, latency, origin: Origin::Guest });
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

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{ExtentId, KIB};

    /// Looks at a thousand pieces; how many looks that took, and up to which piece none has to be looked at
    /// again.
    fn looks(devices: usize, answer: impl Fn(u64) -> Look) -> (u64, u64) {
        let piece = |i: u64| (KIB * i, Piece { extent: ExtentId(i as u32), range: Bytes::ZERO..KIB });
        let mut count = 0;
        let until = look((0..1000).map(piece), devices, KIB * 1000, |at, _| {
            count += 1;
            answer(at / KIB)
        });
        (count, until / KIB)
    }

    /// Over extents that are not read ahead, and by short strides, each read looked at all that the window
    /// held: thousands of pieces.
    #[test]
    fn looks_in_vain_are_few_and_not_made_twice() {
        let most = MOST_IN_VAIN as u64;
        assert_eq!(looks(2, |_| Look::Passed), (most, most));
        let busy = |i| if i == 5 { Look::Waits(DeviceId(0)) } else { Look::Passed };
        assert_eq!(looks(2, busy), (most, 5), "what waits is looked at again");
        let late = |i| if i < 500 { Look::Joined } else { Look::Passed };
        assert_eq!(looks(2, late), (500 + most, 500 + most), "those that begin a run are not in vain");
    }

    #[test]
    fn no_more_is_looked_at_once_no_device_has_time() {
        let device = |i| Look::Waits(DeviceId(i as u16 % 4));
        assert_eq!(looks(4, device), (4, 0));
        let runs = |i| if i < 100 { Look::Joined } else { Look::Waits(DeviceId(0)) };
        assert_eq!(looks(1, runs), (101, 100));
    }
}
