//! Read-ahead for streams: the next bytes of a stream come in long requests, from all devices at once.
//!
//! A read of a stream may begin one request to each device, a *run*: adjacent extents of the stream on the
//! device, up to 1 MiB. A device reads one run at a time, so a guest's request waits for one run at most. If
//! the bytes of the guest's own read are not in memory, the run on their device begins with these bytes, and
//! the guest waits for the run.
//!
//! On a disk, the guest also waits for earlier runs: seeks between guests would take longer for all guests.
//! An SSD serves the guest beside its current run. Pieces that cannot begin now are tried again at the
//! stream's next read.
//!
//! A run holds no locks: a device that hangs blocks no extents outside the guests' own reads. Bytes that
//! change or move during the run are dropped. To policies, a read of bytes read ahead is a miss like any
//! other, with a share of the run's time. Policies learn nothing of runs, nor of bytes that no guest reads.

use super::ahead::AheadRequest;
use super::streams::Stream;
use crate::copies::Copies;
use crate::core::Memory;
use crate::devices::{Deadline, Member};
use crate::map::Other;
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use braid_base::{Bytes, DeviceClass, DeviceId, MIB, Nanos};
use braid_format::SlotNumber;
use braid_policy::{Completion, Direction, Origin};
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// The longest runs. A disk transfers 1 MiB in about the time of a seek. An SSD has no seeks, and other
/// requests wait for a long run.
const LONGEST_OF_HDD: Bytes = MIB;
const LONGEST_OF_SSD: Bytes = Bytes(256 << 10);
/// Runs for each device within a stream's window: one in flight, and the next one.
const RUNS_AHEAD: u64 = 2;
/// Pieces that may fail to join a run before a read stops to look for more: some microseconds.
const MOST_IN_VAIN: usize = 64;

/// Adjacent bytes of a device to be read ahead.
struct AheadRun {
    device: DeviceId,
    at: Bytes,
    len: Bytes,
    deadline: Deadline,
    parts: Vec<Joined>,
    /// Address of the first byte in the volume.
    first: Bytes,
    /// True if the guest waits for the run.
    is_asked: bool,
    /// True if the run may still be extended.
    is_open: bool,
    /// Changes of device states when the run was planned.
    states: u64,
    /// Number of the run's stream.
    stream: u64,
}

/// A piece of a run.
struct Joined {
    piece: Piece,
    /// Moves in the extent's group when the run was planned.
    moves: u32,
}

/// Result of a look at a piece.
enum Look {
    /// The piece belongs to a run that begins now.
    Joined,
    /// The piece needs no other look.
    Passed,
    /// The piece needs another look once this device has time.
    Waits(DeviceId),
}

/// Place from which a piece is read.
struct ReadPlace {
    device: DeviceId,
    at: Bytes,
    deadline: Deadline,
}

fn is_disk<D>(member: &Member<D>) -> bool {
    member.entry.class == DeviceClass::Hdd
}

/// Returns the longest run of a device.
fn longest_run<D>(member: &Member<D>) -> Bytes {
    if is_disk(member) { LONGEST_OF_HDD } else { LONGEST_OF_SSD }
}

/// Tries to join pieces to runs in order, each piece with its address in the volume. Stops if no device has
/// time for more, or after too many failed attempts. Returns the address before which no piece needs another
/// look.
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

impl Shape {
    /// Returns a range of the volume as pieces, widened to whole blocks.
    fn pieces_ahead(&self, range: Range<Bytes>) -> impl Iterator<Item = Piece> + use<> {
        let shape = *self;
        let end = range.end.align_up(shape.block_size).min(shape.volume_size);
        let start = range.start.align_down(shape.block_size).min(end);
        shape.pieces(start, end - start)
    }
}

impl<R: Runtime, D: Device> Memory<R, D> {
    /// Notes a guest's read. If the read belongs to a stream, the next bytes of the stream may be read ahead.
    #[inline]
    pub(super) fn note_read(&self, read: Range<Bytes>) {
        let stream = self.streams.borrow_mut().note(&read, || self.rt.now());
        if let Some(stream) = stream
            && !self.jobs.are_ending()
        {
            self.read_ahead(stream, &read);
        }
    }

    #[inline(never)]
    fn read_ahead(&self, stream: usize, read: &Range<Bytes>) {
        let devices = self.store.devices.iter().count();
        let all_runs = RUNS_AHEAD * devices as u64;
        let mut runs = Vec::new();
        let (mut until, least) = {
            let streams = self.streams.borrow();
            let Some(wanted) = streams.wanted(stream, read, LONGEST_OF_HDD * all_runs) else { return };
            let at = |piece: &Piece| self.store.shape.bytes_of(piece.extent).start + piece.range.start;
            let pieces = wanted.ranges().flat_map(|range| self.store.shape.pieces_ahead(range));
            let join = |at, piece| self.join(&mut runs, streams.get(stream), piece, at < read.end);
            let until = look(pieces.map(|piece| (at(&piece), piece)), devices, wanted.end, join);
            (until, Bytes(wanted.window.0 / (2 * all_runs)))
        };
        for run in runs {
            let first = run.first;
            // A short run now would only delay a longer run of the disk.
            let is_short = is_disk(self.store.member(run.device)) && run.len < least;
            if !run.is_asked && run.is_open && is_short || !self.begin_run(run) {
                until = until.min(first);
            }
        }
        self.streams.borrow_mut().set_until(stream, until);
    }

    /// Adds a piece to the run of its device.
    fn join(&self, runs: &mut Vec<AheadRun>, stream: &Stream, piece: Piece, is_asked: bool) -> Look {
        if self.guests.ahead.borrow().covers(&piece) || stream.has_failed(piece.extent) {
            return Look::Passed;
        }
        let Some(ReadPlace { device, at, deadline }) = self.place_ahead(&piece) else { return Look::Passed };
        let run = runs.iter_mut().find(|run| run.device == device);
        let can_join = match &run {
            Some(run) => {
                run.is_open
                    && run.at + run.len == at
                    && run.deadline == deadline
                    && run.len + piece.len() <= longest_run(self.store.member(device))
            }
            None => {
                is_asked && is_disk(self.store.member(device))
                    || self.store.member(device).ahead.available() > 0
            }
        };
        if !can_join {
            run.into_iter().for_each(|run| run.is_open = false);
            return Look::Waits(device);
        }
        if !self.is_undisturbed(&piece) {
            return Look::Passed;
        }
        let (len, moves) = (piece.len(), self.store.state.borrow().moved.count(piece.extent));
        match run {
            Some(run) => {
                run.len += len;
                // Memory holds one part of each extent.
                match run.parts.last_mut().map(|last| &mut last.piece) {
                    Some(last) if last.extent == piece.extent => last.range.end = piece.range.end,
                    _ => run.parts.push(Joined { piece, moves }),
                }
            }
            None => {
                let first = self.store.shape.bytes_of(piece.extent).start + piece.range.start;
                let (states, stream) = (self.store.devices.changes(), stream.number);
                let (parts, is_open) = (vec![Joined { piece, moves }], true);
                runs.push(AheadRun {
                    device,
                    at,
                    len,
                    deadline,
                    parts,
                    first,
                    is_asked,
                    is_open,
                    states,
                    stream,
                });
            }
        }
        Look::Joined
    }

    /// True if no task is reading or changing the extent of a piece.
    fn is_undisturbed(&self, piece: &Piece) -> bool {
        let lock = self.locks.try_exclusive(piece.extent);
        lock.is_some() && self.guests.changing.settled(piece.extent).is_some()
    }

    /// Returns the place of a piece, if its device can read all of the piece in one request and has lost no
    /// writes. If both copies are equal, the home is read, so that the bytes of a run are adjacent.
    fn place_ahead(&self, piece: &Piece) -> Option<ReadPlace> {
        let entry = self.store.state.borrow().map.get(piece.extent);
        let parts = self.store.shape.parts_touched(&piece.range);
        let is_mapped = entry.home != SlotNumber::NONE && entry.home != SlotNumber::LOST;
        let is_plain = is_mapped
            && entry.valid & parts == parts
            && self.store.shape.is_whole(piece.extent)
            && !self.store.state.borrow().map.has_extras(piece.extent)
            && !self.guests.cache.borrow().contains(piece.extent)
            && !self.store.is_undecided(piece)
            && !self.extents.is_unapplied(piece.extent);
        if !is_plain {
            return None;
        }
        let Copies { current, other } = self.store.copies_of(piece.extent, &entry);
        let deadline = if matches!(other, Other::Equal(_)) { Deadline::Copied } else { Deadline::Only };
        let (member, start) = self.store.locate(current);
        let at = start + piece.range.start;
        let is_readable = !member.has_lost_writes()
            && !member.is_late()
            && !member.is_slow()
            && at.is_aligned(member.alignment)
            && piece.len().is_aligned(member.alignment);
        is_readable.then_some(ReadPlace { device: member.id, at, deadline })
    }

    /// Starts a run. False if there is no memory for the run.
    fn begin_run(&self, run: AheadRun) -> bool {
        let Some(buf) = self.guests.ahead.borrow_mut().room(run.len) else { return false };
        let request = Rc::new(AheadRequest::new(run.device, run.len));
        let mut ahead = self.guests.ahead.borrow_mut();
        run.parts.iter().for_each(|part| ahead.expect(&part.piece, &request));
        drop(ahead);
        let (memory, turns) = (self.own.handle(), self.store.member(run.device).ahead.clone());
        let turn = turns.try_acquire(1);
        self.jobs.begin();
        self.rt.spawn(async move {
            let _turn = match turn {
                Some(turn) => turn,
                None => turns.acquire(1).await,
            };
            memory.read_run(&run, &request, &buf).await;
            memory.jobs.end();
        });
        true
    }

    /// Reads a run. Bytes that cannot be read are left to the guests: a guest's read tries other copies and
    /// reports the error.
    async fn read_run(&self, run: &AheadRun, request: &Rc<AheadRequest>, buf: &Buf) {
        let took = self.device_read_run(run, buf).await;
        // A device that failed meanwhile may have returned bytes older than its lost writes.
        let counts = took.is_some() && self.store.devices.changes() == run.states;
        let (mut ahead, mut at) = (self.guests.ahead.borrow_mut(), Bytes::ZERO);
        for Joined { piece, moves } in &run.parts {
            let end = at + piece.len();
            let stayed = self.store.state.borrow().moved.count(piece.extent) == *moves
                || planted(Bug::AheadOfLeftSlot);
            ahead.end(piece, request, (counts && stayed).then(|| buf.slice(at..end)));
            at = end;
        }
        request.end(took.unwrap_or_default());
    }

    /// Reads a run from its device and returns the latency. `None` if the read fails, or if the device has
    /// become slow since the run was planned.
    async fn device_read_run(&self, run: &AheadRun, buf: &Buf) -> Option<Nanos> {
        let member = self.store.member(run.device);
        if member.is_late() || member.is_slow() {
            return None;
        }
        let attempt = self.durable.begin(member, Direction::Read, run.at, buf.len(), Origin::Guest);
        let read = member.read(run.at, buf, run.deadline).await;
        let read = self.durable.end_untold(&attempt, read);
        if read.is_err() {
            let extents = run.parts.iter().map(|part| part.piece.extent);
            self.streams.borrow_mut().fail(run.stream, extents);
        }
        read.ok().map(|read| read.latency)
    }

    /// Counts a guest's read of bytes read ahead. The memory cache gets the extent as after a read from a
    /// device.
    pub(super) fn pass_ahead(&self, piece: &Piece, request: &AheadRequest) {
        let (device, len, latency) = (request.device, piece.len(), request.share(piece.len()));
        self.durable.tell(&Completion {
            device,
            direction: Direction::Read,
            len,
            latency,
            origin: Origin::Guest,
        });
        let (mut ahead, mut cache) = (self.guests.ahead.borrow_mut(), self.guests.cache.borrow_mut());
        if let Some(whole) = ahead.whole(piece.extent, self.store.shape.extent_size)
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

    /// Looks at a thousand pieces. Returns the number of looks, and the first piece that needs another look.
    fn looks(devices: usize, answer: impl Fn(u64) -> Look) -> (u64, u64) {
        let piece = |i: u64| (KIB * i, Piece { extent: ExtentId(i as u32), range: Bytes::ZERO..KIB });
        let mut count = 0;
        let until = look((0..1000).map(piece), devices, KIB * 1000, |at, _| {
            count += 1;
            answer(at / KIB)
        });
        (count, until / KIB)
    }

    /// Over extents that are not read ahead, and with short strides, each read looked at the whole window:
    /// thousands of pieces.
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
