//! The journal's ring: the place of the next batch, the batches that recovery still needs, and the writing of
//! a batch.
//!
//! A batch follows the batch before, or begins at the start of the ring if the rest is too short. Room is
//! kept for the batches that end the next two checkpoints. Only such batches move the tail, so the ring can
//! always be freed.
//!
//! A volume of two copies has the ring twice, on two devices, with the same batches at the same places. Each
//! batch is durable on both before it counts. While one of the devices is missing or failed, the other device
//! is enough.

use super::commit::Commits;
use super::proof::changed_extents;
use super::witness::Listed;
use crate::core::Durable;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::journal::{self, Batch, LARGEST_BATCH, MOST_RECORD, MOST_RECORDS, PAGE, Record};
use braid_format::proof::Witnessed;
use braid_format::superblock::RegionKind;
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Event, Permit, Runtime, Semaphore, join_all};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;

/// The journal of an open volume.
pub(crate) struct Journal {
    /// Places of the ring: device and offset.
    replicas: RefCell<Vec<(DeviceId, Bytes)>>,
    /// Additional place to write to: a copy of the ring is moving there, or has just left.
    beside: Cell<Option<(DeviceId, Bytes)>>,
    /// Number of this opening.
    epoch: u64,
    ring: RefCell<Ring>,
    /// Extents that the newest batch changed; none if there are too many to list.
    previous: RefCell<Option<Vec<ExtentId>>>,
    /// One batch is written at a time.
    writer: Semaphore,
    buffer: RefCell<Buf>,
    /// Notified when a checkpoint has made room.
    pub roomier: Event,
    /// Records that requests in flight may still add.
    pub(super) reserved: Cell<usize>,
    /// See [`Journal::most_pending`].
    most_pending: usize,
    /// Notified when a request has added its records.
    pub(super) settled: Event,
    pub commits: Commits,
    /// One batch of intents is written at a time.
    pub(super) intents: Semaphore,
    /// One checkpoint runs at a time: a second checkpoint must not take pages in flight for written.
    pub(super) checkpoints: Semaphore,
    /// Newest batch that the proof names.
    pub(super) proved: Cell<u64>,
    /// Page of the witness that the proof names.
    pub(super) proved_witness: Cell<Option<Witnessed>>,
    /// Page of the proof, of two, that this opening wrote last.
    pub(super) proof_half: Cell<Option<u64>>,
    /// Newest durable batch in the ring. Batches that were given up are not in the ring.
    in_ring: Cell<u64>,
    /// Changes that the witness has to list.
    pub listed: Listed,
    /// One page of the witness is written at a time.
    pub(super) witnesses: Semaphore,
    /// Newest batch that ended a checkpoint while the pages contained every earlier batch.
    complete: Cell<u64>,
}

/// Whether the journal of a written batch is still in use, so that the batch counts.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Kept {
    Yes,
    /// The SSD before an adopted disk failed: the batch must be written again, to the place where the journal
    /// continues.
    No,
}

/// Places of batches in the ring.
#[derive(Debug)]
pub(crate) struct Ring {
    len: Bytes,
    /// Batches that recovery needs, oldest first: sequence, place, room.
    live: VecDeque<(u64, Bytes, Bytes)>,
    next_sequence: u64,
    /// Newest durable batch; 0 for none.
    newest: u64,
}

impl Journal {
    /// Creates the journal of a ring that lies at each place in `replicas`.
    pub fn new(replicas: Vec<(DeviceId, Bytes)>, epoch: u64, ring: Ring, listed: Listed) -> Journal {
        let (most_pending, proved) = (most_pending(ring.len), Cell::new(ring.newest));
        let in_ring = ring.live.back().map_or(0, |(sequence, _, _)| *sequence);
        Journal {
            replicas: RefCell::new(replicas),
            beside: Cell::new(None),
            epoch,
            ring: RefCell::new(ring),
            previous: RefCell::default(),
            writer: Semaphore::new(1),
            buffer: RefCell::new(new_buffer()),
            roomier: Event::default(),
            reserved: Cell::new(0),
            most_pending,
            settled: Event::default(),
            commits: Commits::default(),
            intents: Semaphore::new(1),
            checkpoints: Semaphore::new(1),
            proved,
            proved_witness: Cell::default(),
            proof_half: Cell::default(),
            in_ring: Cell::new(in_ring),
            listed,
            witnesses: Semaphore::new(1),
            complete: Cell::new(0),
        }
    }

    /// Returns the offset of the ring on a device.
    ///
    /// # Panics
    /// If the device has no ring.
    pub fn offset_on(&self, device: DeviceId) -> Bytes {
        let replicas = self.replicas.borrow();
        let replica = replicas.iter().find(|(replica, _)| *replica == device);
        replica.expect("a journal that was searched has a place").1
    }

    /// Returns the first device with the ring.
    pub fn device(&self) -> Option<DeviceId> {
        self.replicas.borrow().first().map(|(device, _)| *device)
    }

    /// Returns the devices with the ring.
    pub fn devices(&self) -> Vec<DeviceId> {
        self.replicas.borrow().iter().map(|(device, _)| *device).collect()
    }

    /// Returns the reason why no flush can succeed any more.
    pub fn failure(&self) -> Option<Error> {
        self.commits.failure()
    }

    /// Returns all places to which the ring is written.
    fn places(&self) -> Vec<(DeviceId, Bytes)> {
        self.replicas.borrow().iter().copied().chain(self.beside.get()).collect()
    }

    /// Sets the places of the ring, and a place beside to which the ring is also written.
    pub fn set_places(&self, replicas: Vec<(DeviceId, Bytes)>, beside: Option<(DeviceId, Bytes)>) {
        self.listed.set_aside(self.ring.borrow().next_sequence - 1);
        self.replicas.replace(replicas);
        self.beside.set(beside);
    }

    /// Keeps other batches back, so that the next batch goes to all places set meanwhile.
    pub async fn hold(&self) -> Permit {
        self.writer.acquire(1).await
    }

    /// True if the ring is written to a device.
    pub fn is_on(&self, device: DeviceId) -> bool {
        self.places().iter().any(|(place, _)| *place == device)
    }

    /// True if a current device other than `device` has the ring.
    pub fn survives(&self, device: DeviceId, is_current: impl Fn(DeviceId) -> bool) -> bool {
        self.replicas.borrow().iter().any(|&(other, _)| other != device && is_current(other))
    }

    /// Largest number of pending changes. A commit of so many changes takes less than a quarter of the ring,
    /// and less than the largest batch.
    pub fn most_pending(&self) -> usize {
        self.most_pending
    }

    /// Largest number of pending changes beside reserved changes.
    pub fn unreserved(&self) -> usize {
        self.most_pending - self.reserved.get()
    }

    /// Returns the newest durable batch.
    pub fn newest(&self) -> u64 {
        self.ring.borrow().newest()
    }

    /// Returns the newest durable batch in the ring; 0 for none.
    pub fn in_ring(&self) -> u64 {
        self.in_ring.get()
    }

    /// Returns the extents that the newest batch changed; none if there are too many.
    pub fn newest_extents(&self) -> Option<Vec<ExtentId>> {
        self.previous.borrow().clone()
    }

    /// True if the ring is so full that a checkpoint should make room.
    pub fn wants_checkpoint(&self) -> bool {
        let ring = self.ring.borrow();
        ring.live_room() * 4 > ring.len
    }

    /// Returns the places of the batches that recovery would read, from the beginning of the ring.
    pub fn live_places(&self) -> Vec<Range<Bytes>> {
        let place = |(_, place, room): &(u64, Bytes, Bytes)| *place..*place + *room;
        self.ring.borrow().live.iter().map(place).collect()
    }

    /// Bytes of the ring that recovery would read.
    pub fn live_room(&self) -> Bytes {
        self.ring.borrow().live_room()
    }

    /// True if pages contain newer batches than the whole ring: the ring was out of use meanwhile. The next
    /// batch does not follow the batches in the ring.
    pub fn is_behind_pages(&self) -> bool {
        self.ring.borrow().is_behind_pages()
    }

    /// True if the largest commit finds a place without an earlier checkpoint.
    pub fn has_room(&self) -> bool {
        self.place(journal::room(self.most_pending)).is_some()
    }

    /// Returns a place for a batch of `room` bytes that guests or policies caused.
    fn place(&self, room: Bytes) -> Option<Bytes> {
        self.ring.borrow().place(room, &[end_of_checkpoint(), end_of_checkpoint()])
    }
}

impl Ring {
    /// Creates a ring with these live batches, oldest first.
    pub fn new(len: Bytes, live: VecDeque<(u64, Bytes, Bytes)>, next_sequence: u64) -> Ring {
        Ring { len, live, next_sequence, newest: next_sequence - 1 }
    }

    /// Returns the newest durable batch; 0 for none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    fn live_room(&self) -> Bytes {
        self.live.iter().map(|(_, _, room)| *room).sum()
    }

    fn is_behind_pages(&self) -> bool {
        self.live.back().is_some_and(|(sequence, _, _)| sequence + 1 != self.next_sequence)
    }

    /// Returns the oldest batch that recovery needs; the next batch if there is none.
    fn tail(&self) -> u64 {
        self.live.front().map_or(self.next_sequence, |(sequence, _, _)| *sequence)
    }

    /// Returns a place for a batch of `room` bytes, provided that batches of `reserve` bytes still find
    /// places behind, one after the other.
    fn place(&self, room: Bytes, reserve: &[Bytes]) -> Option<Bytes> {
        let (oldest, mut head) = match (self.live.front(), self.live.back()) {
            (Some((_, oldest, _)), Some((_, newest, len))) => (*oldest, *newest + *len),
            // No batch is needed any more: as if the oldest batch began at the end.
            _ => (self.len, Bytes::ZERO),
        };
        let mut wrapped = self.live.front().is_some_and(|_| head <= oldest);
        let mut first = None;
        for &room in std::iter::once(&room).chain(reserve) {
            let end = if wrapped { oldest } else { self.len };
            if head + room > end {
                // The rest is too short: continue at the start, but only once.
                if wrapped || room > oldest || self.live.is_empty() {
                    return None;
                }
                (wrapped, head) = (true, Bytes::ZERO);
            }
            first.get_or_insert(head);
            head += room;
        }
        first
    }

    /// True if the batch that ends a checkpoint has room. Holds at every instant that a power cut can leave.
    pub fn keeps_room(&self) -> bool {
        self.place(end_of_checkpoint(), &[]).is_some()
    }

    /// Adds a batch that is about to be written. Its number is never used again, even if the write fails.
    fn push(&mut self, place: Bytes, room: Bytes) -> u64 {
        let sequence = self.next_sequence;
        self.live.push_back((sequence, place, room));
        self.next_sequence += 1;
        sequence
    }

    /// Forgets batches up to `done`: the pages contain their changes.
    fn forget(&mut self, done: u64) {
        while self.live.front().is_some_and(|(sequence, _, _)| *sequence <= done) {
            self.live.pop_front();
        }
    }
}

/// Returns [`Journal::most_pending`] for a ring of this length.
fn most_pending(len: Bytes) -> usize {
    ((len / 4).as_usize() / MOST_RECORD).min(MOST_RECORDS) * 7 / 8
}

/// Room for the batch that ends a checkpoint, which has no records.
fn end_of_checkpoint() -> Bytes {
    journal::room(0)
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Writes a batch and makes it durable. The permit keeps other batches back until the caller has updated
    /// its state.
    pub async fn append(&self, records: &[Record]) -> Result<Permit> {
        let journal = &self.journal;
        let room = journal::room(records.len());
        loop {
            let permit = journal.writer.acquire(1).await;
            if let Some(error) = self.journal.commits.failure() {
                return Err(error);
            }
            self.confirm_own().await?;
            self.follow_journal().await?;
            if let Some(place) = journal.place(room) {
                let tail = journal.ring.borrow().tail();
                if self.write_batch(records, place, tail).await? == Kept::Yes {
                    return Ok(permit);
                }
                continue;
            }
            drop(permit);
            self.jobs.wake();
            let roomy = || journal.place(room).is_some() || self.journal.commits.failure().is_some();
            journal.roomier.wait_for(|| roomy().then_some(())).await;
        }
    }

    /// Ends a checkpoint that wrote all changes up to batch `done` into the pages: writes a batch with the
    /// new tail, without records.
    pub async fn append_checkpoint(&self, done: u64) -> Result<()> {
        let journal = &self.journal;
        let permit = journal.writer.acquire(1).await;
        if let Some(error) = self.journal.commits.failure() {
            return Err(error);
        }
        loop {
            self.follow_journal().await?;
            let place = journal.ring.borrow().place(end_of_checkpoint(), &[]);
            let place = place.expect("room for the end of a checkpoint is always kept");
            // A journal that continues elsewhere begins later than `done`.
            let tail = journal.ring.borrow().tail().max(done + 1);
            if self.write_batch(&[], place, tail).await? == Kept::Yes {
                break;
            }
        }
        journal.ring.borrow_mut().forget(done);
        if journal.newest() == done + 1 {
            journal.complete.set(done + 1);
        }
        drop(permit);
        journal.roomier.notify();
        Ok(())
    }

    /// Continues the journal elsewhere, in a ring whose contents do not count. By then the pages contain
    /// every change in the old journal.
    pub async fn restart_journal(&self, place: (DeviceId, Bytes)) -> Result<Permit> {
        let journal = &self.journal;
        let permit = loop {
            self.checkpoint().await?;
            let permit = journal.writer.acquire(1).await;
            if journal.complete.get() == journal.newest() {
                break permit;
            }
        };
        // The journal may already have moved there, when a device failed.
        if journal.device() != Some(place.0) {
            self.begin_journal(place).await?;
        }
        Ok(permit)
    }

    /// Begins an empty journal elsewhere. The caller keeps other batches back.
    pub async fn begin_journal(&self, place: (DeviceId, Bytes)) -> Result<()> {
        let journal = &self.journal;
        {
            let mut ring = journal.ring.borrow_mut();
            *ring = Ring::new(ring.len, VecDeque::new(), ring.next_sequence);
        }
        journal.set_places(vec![place], journal.beside.get());
        // Batches that an earlier use left in that ring do not count from here on.
        let next = journal.ring.borrow().next_sequence;
        let kept = self.write_batch(&[Record::Epoch(journal.epoch)], Bytes::ZERO, next).await?;
        assert!(kept == Kept::Yes, "a journal that was lost goes on in the record, and from there nowhere");
        journal.roomier.notify();
        Ok(())
    }

    async fn write_batch(&self, records: &[Record], place: Bytes, tail: u64) -> Result<Kept> {
        let journal = &self.journal;
        let volume = self.store.devices.superblock().volume;
        let sequence = journal.ring.borrow().next_sequence;
        let room = {
            let previous = journal.previous.borrow();
            let batch =
                Batch { sequence, tail, epoch: journal.epoch, previous: previous.as_deref(), records };
            if journal.buffer.borrow().is_shared() {
                // A late device may still be writing the batch before.
                journal.buffer.replace(new_buffer());
            }
            journal.buffer.borrow().with_bytes_mut(|bytes| journal::encode(bytes, volume, &batch))
        };
        let sequence = journal.ring.borrow_mut().push(place, room);
        let bytes = journal.buffer.borrow().slice(Bytes::ZERO..room.align_up(PAGE));
        let written = self.write_replicas(place, &bytes).await;
        if self.journal_after_loss().is_some() {
            return Ok(Kept::No);
        }
        written.inspect_err(|error| self.fail(error.clone()))?;
        // No await from here until the caller has updated its state: the newest batch and the state must
        // match.
        journal.ring.borrow_mut().newest = sequence;
        journal.in_ring.set(sequence);
        let state = self.store.state.borrow();
        journal
            .previous
            .replace(changed_extents(&self.store.shape, records, |block| state.commits_data_of(block)));
        drop(state);
        self.jobs.wake();
        Ok(Kept::Yes)
    }

    /// Writes a batch to every current replica. A replica that fails costs its region or its device; the
    /// batch fails only if the volume cannot spare either.
    async fn write_replicas(&self, place: Bytes, bytes: &Buf) -> Result<()> {
        let places = self.journal.places();
        let places = places.into_iter().filter(|(device, _)| self.store.member(*device).is_written());
        let writes = places.map(async |(device, offset)| {
            let member = self.store.member(device);
            if let Err(error) = self.device_write(member, offset + place, bytes, Origin::Background).await {
                return self.spare_region(RegionKind::Journal, device, offset, error).await.map(|()| false);
            }
            let flushed = match planted(Bug::JournalNotFlushed) {
                true => Ok(None),
                false => member.flush(&self.rt).await,
            };
            let failed = |e| {
                Error::io(
                    format_args!("{} could not flush the journal", self.store.member(device).describe()),
                    &e,
                )
            };
            // Excluded at once: other requests would read data that the device may have lost.
            match flushed.map_err(failed) {
                // The next opening does not read the batch from a device under resync.
                Ok(_) => Ok(member.is_current()),
                Err(error) => self.lose(device, error).map(|()| false),
            }
        });
        let written = join_all(writes).await.into_iter().collect::<Result<Vec<bool>>>()?;
        if !written.contains(&true) {
            return Err(Error::new(ErrorKind::Degraded, "no device that holds the journal is there"));
        }
        self.background.borrow_mut().journal_bytes += bytes.len().0;
        // The watchdog may also have excluded a device without this batch.
        self.record_states().await
    }
}

fn new_buffer() -> Buf {
    Arena::new(LARGEST_BATCH).try_alloc(LARGEST_BATCH).expect("a new arena has room")
}

#[cfg(test)]
mod tests;
