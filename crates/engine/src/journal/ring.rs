//! The journal's ring: where the next batch goes, and which batches recovery still needs.
//!
//! A batch goes behind the one before it, or to the start of the ring where the rest is too short. Room is kept for the
//! batch that ends a checkpoint: only that one moves the tail, so the ring can always be freed.

use crate::core::Core;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::journal::{self, LARGEST_BATCH, MOST_RECORDS, PAGE, Record};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Event, Permit, Runtime, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// The journal of a volume that is open.
pub(crate) struct Journal {
    device: DeviceId,
    offset: Bytes,
    ring: RefCell<Ring>,
    /// One batch is written at a time.
    writer: Semaphore,
    buffer: Buf,
    /// A checkpoint has made room.
    pub roomier: Event,
    /// Records that requests under way may still add.
    reserved: Cell<usize>,
    /// See [`Journal::most_pending`].
    most_pending: usize,
    /// A request has added what it had to.
    settled: Event,
}

/// The right to add so many changes; given back when dropped, when they have been added.
#[must_use]
pub(crate) struct Reservation<'a> {
    journal: &'a Journal,
    records: usize,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.journal.reserved.set(self.journal.reserved.get() - self.records);
        self.journal.settled.notify();
    }
}

/// Places of batches in the ring.
#[derive(Debug)]
pub(crate) struct Ring {
    len: Bytes,
    /// Batches that recovery needs, oldest first: sequence, place, room.
    live: VecDeque<(u64, Bytes, Bytes)>,
    next_sequence: u64,
}

impl Journal {
    pub fn new(device: DeviceId, offset: Bytes, ring: Ring) -> Journal {
        let buffer = Arena::new(LARGEST_BATCH).try_alloc(LARGEST_BATCH).expect("a new arena has room");
        let (writer, roomier) = (Semaphore::new(1), Event::default());
        let (reserved, settled) = (Cell::new(0), Event::default());
        let most_pending = ((ring.len / 4).as_usize() / journal::RECORD).min(MOST_RECORDS) * 7 / 8;
        let ring = RefCell::new(ring);
        Journal { device, offset, ring, writer, buffer, roomier, reserved, most_pending, settled }
    }

    /// Changes that may wait for a commit: a commit of them all takes less than a quarter of the ring,
    /// and than the largest batch.
    pub fn most_pending(&self) -> usize {
        self.most_pending
    }

    /// Dirty extra copies that there may be: the batch that ends a checkpoint holds them all, in an eighth of the ring.
    pub fn most_dirty(&self) -> usize {
        self.most_pending() / 2
    }

    /// The newest batch that was written.
    pub fn newest(&self) -> u64 {
        self.ring.borrow().next_sequence - 1
    }

    /// Whether the ring is so full that a checkpoint should make room.
    pub fn wants_checkpoint(&self) -> bool {
        let ring = self.ring.borrow();
        ring.live_room() * 4 > ring.len
    }

    /// Bytes of the ring that recovery would read.
    pub fn live_room(&self) -> Bytes {
        self.ring.borrow().live_room()
    }

    fn reserve(&self) -> Bytes {
        journal::room(self.most_dirty())
    }
}

impl Ring {
    /// A ring with these live batches, oldest first.
    pub fn new(len: Bytes, live: VecDeque<(u64, Bytes, Bytes)>, next_sequence: u64) -> Ring {
        Ring { len, live, next_sequence }
    }

    fn live_room(&self) -> Bytes {
        self.live.iter().map(|(_, _, room)| *room).sum()
    }

    /// The oldest batch that recovery needs; the next one where there is none.
    fn tail(&self) -> u64 {
        self.live.front().map_or(self.next_sequence, |(sequence, _, _)| *sequence)
    }

    /// Where a batch of `room` bytes goes, so that another of `reserve` bytes still finds a place behind it.
    fn place(&self, room: Bytes, reserve: Bytes) -> Option<Bytes> {
        let (oldest, head) = match (self.live.front(), self.live.back()) {
            (Some((_, oldest, _)), Some((_, newest, len))) => (*oldest, *newest + *len),
            _ => return (room + reserve <= self.len).then_some(Bytes::ZERO),
        };
        let first = fit(self.len, oldest, head, room)?;
        fit(self.len, oldest, first + room, reserve).map(|_| first)
    }
}

/// Where `room` bytes fit behind `head`, with live batches from `oldest` up to `head`.
fn fit(len: Bytes, oldest: Bytes, head: Bytes, room: Bytes) -> Option<Bytes> {
    if head > oldest {
        if head + room <= len {
            return Some(head);
        }
        return (room <= oldest).then_some(Bytes::ZERO);
    }
    (head + room <= oldest).then_some(head)
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Waits until one commit has room for `records` more changes, beside those that wait and those that others have
    /// reserved room for.
    pub async fn reserve(&self, records: usize) -> Result<Reservation<'_>> {
        let journal = &self.journal;
        let most = journal.most_pending();
        assert!(records <= most, "a request for {records} records is more than the journal's {most}");
        loop {
            if let Some(reservation) = self.try_reserve(records) {
                return Ok(reservation);
            }
            if self.state.borrow().pending() > 0 {
                self.commit(Origin::Guest).await?;
            } else {
                let reserved = journal.reserved.get();
                let settled = || (journal.reserved.get() < reserved).then_some(());
                journal.settled.wait_for(settled).await;
            }
        }
    }

    /// As [`Core::reserve`], where that needs no waiting.
    pub fn try_reserve(&self, records: usize) -> Option<Reservation<'_>> {
        let journal = &self.journal;
        let reserved = journal.reserved.get() + records;
        if self.state.borrow().pending() + reserved > journal.most_pending() {
            return None;
        }
        journal.reserved.set(reserved);
        Some(Reservation { journal, records })
    }

    /// Whether so many more dirty extra copies as requests under way have reserved room for can be remembered.
    pub fn may_dirty(&self) -> bool {
        self.state.borrow().extras.dirty() + self.journal.reserved.get() <= self.journal.most_dirty()
    }

    /// Writes a batch and makes it durable. The permit keeps other batches back until the caller has drawn the
    /// consequences.
    pub async fn append(&self, records: &[Record]) -> Result<Permit> {
        let room = journal::room(records.len());
        loop {
            let permit = self.journal.writer.acquire(1).await;
            let place = self.journal.ring.borrow().place(room, self.journal.reserve());
            if let Some(place) = place {
                let tail = self.journal.ring.borrow().tail();
                self.write_batch(records, place, tail).await?;
                return Ok(permit);
            }
            drop(permit);
            self.attention.notify();
            let journal = &self.journal;
            let roomy = || journal.ring.borrow().place(room, journal.reserve()).is_some();
            journal.roomier.wait_for(|| (roomy() || self.commits.failure().is_some()).then_some(())).await;
            if let Some(error) = self.commits.failure() {
                return Err(error);
            }
        }
    }

    /// Ends a checkpoint that wrote everything up to batch `done` into the map pages: a batch that says so, and that
    /// repeats the dirty extra copies, which are in no page.
    pub async fn append_checkpoint(&self, done: u64) -> Result<()> {
        let permit = self.journal.writer.acquire(1).await;
        let dirty = self.state.borrow().durable_extras();
        let records: Vec<Record> =
            dirty.into_iter().map(|(block, extra)| Record::Extra(block, Some(extra))).collect();
        let room = journal::room(records.len());
        let place = self.journal.ring.borrow().place(room, Bytes::ZERO);
        let place = place.expect("room for the end of a checkpoint is always kept");
        self.write_batch(&records, place, done + 1).await?;
        let mut ring = self.journal.ring.borrow_mut();
        while ring.live.front().is_some_and(|(sequence, _, _)| *sequence <= done) {
            ring.live.pop_front();
        }
        drop((ring, permit));
        self.journal.roomier.notify();
        Ok(())
    }

    async fn write_batch(&self, records: &[Record], place: Bytes, tail: u64) -> Result<()> {
        let journal = &self.journal;
        let (volume, sequence) = (self.superblock.borrow().volume, journal.ring.borrow().next_sequence);
        let room =
            journal.buffer.with_bytes_mut(|bytes| journal::encode(bytes, volume, sequence, tail, records));
        let member = &self.members[journal.device.index()];
        let batch = journal.buffer.slice(Bytes::ZERO..room.align_up(member.alignment.max(PAGE)));
        self.device_write(member, journal.offset + place, &batch, Origin::Background).await?;
        let flushed = member.flush(&self.rt).await;
        flushed.map_err(|e| {
            Error::io(format_args!("{} could not flush the journal", self.describe(member.id)), &e)
        })?;
        self.background.borrow_mut().journal_bytes += batch.len().0;
        let mut ring = journal.ring.borrow_mut();
        ring.live.push_back((sequence, place, room));
        ring.next_sequence += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB, Rng};

    #[test]
    fn batches_never_overlap_and_a_checkpoint_always_finds_room() {
        let reserve = KIB * 132;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut ring = Ring::new(MIB, VecDeque::new(), 1);
            for _ in 0..500 {
                let room = PAGE * rng.between(1, 64);
                match ring.place(room, reserve) {
                    Some(place) => push(&mut ring, place, room),
                    None => {
                        let closing = PAGE * rng.between(1, 33);
                        let place = ring.place(closing, Bytes::ZERO).expect("room is kept");
                        push(&mut ring, place, closing);
                        while ring.live.len() > 1 {
                            ring.live.pop_front();
                        }
                    }
                }
            }
        }
    }

    fn push(ring: &mut Ring, place: Bytes, room: Bytes) {
        assert!(place + room <= ring.len);
        for (_, other, len) in &ring.live {
            assert!(
                place + room <= *other || *other + *len <= place,
                "{place:?}+{room:?} overlaps {other:?}+{len:?}"
            );
        }
        ring.live.push_back((ring.next_sequence, place, room));
        ring.next_sequence += 1;
    }
}
