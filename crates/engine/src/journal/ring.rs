//! The journal's ring: where the next batch goes, which batches recovery still needs, and how a batch is
//! written.
//!
//! A batch goes behind the one before it, or to the start of the ring where the rest is too short. Room is
//! kept for the batches that end the next two checkpoints: only these move the tail, so the ring can always
//! be freed.
//!
//! A volume of two copies has the ring twice, on two devices, with the same batches at the same places: each
//! batch is durable on both before it counts. While one of the devices is missing or failed, the other one is
//! enough.

use super::commit::Commits;
use super::proof::changed_extents;
use super::witness::Listed;
use crate::core::Core;
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

/// The journal of a volume that is open.
pub(crate) struct Journal {
    /// Where the ring lies: device and offset.
    replicas: RefCell<Vec<(DeviceId, Bytes)>>,
    /// Where it is written, too: a copy is moving there, or has just left.
    beside: Cell<Option<(DeviceId, Bytes)>>,
    /// The opening that writes.
    epoch: u64,
    ring: RefCell<Ring>,
    /// Extents that the newest batch changed; none where they are too many to list.
    previous: RefCell<Option<Vec<ExtentId>>>,
    /// One batch is written at a time.
    writer: Semaphore,
    buffer: RefCell<Buf>,
    /// A checkpoint has made room.
    pub roomier: Event,
    /// Records that requests under way may still add.
    pub(super) reserved: Cell<usize>,
    /// See [`Journal::most_pending`].
    most_pending: usize,
    /// A request has added what it had to.
    pub(super) settled: Event,
    pub commits: Commits,
    /// One batch of intents is written at a time.
    pub(super) intents: Semaphore,
    /// One checkpoint runs at a time: the next one must not take for written what this one is writing.
    pub(super) checkpoints: Semaphore,
    /// The newest batch that the proof names.
    pub(super) proved: Cell<u64>,
    /// The page of the witness that the proof names.
    pub(super) proved_witness: Cell<Option<Witnessed>>,
    /// Which of its two pages this opening wrote last.
    pub(super) proof_half: Cell<Option<u64>>,
    /// The newest batch that is in the ring; of the batches that were given up none is.
    in_ring: Cell<u64>,
    /// What the witness is to list.
    pub listed: Listed,
    /// One page of the witness is written at a time.
    pub(super) witnesses: Semaphore,
    /// The newest batch that ended a checkpoint with nothing before it that the pages do not contain.
    complete: Cell<u64>,
}

/// Whether a device has a batch that is still in use, so that it counts.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Kept {
    Yes,
    /// The SSD before an adopted disk was given up: the batch must be written to where the journal goes on.
    No,
}

/// Places of batches in the ring.
#[derive(Debug)]
pub(crate) struct Ring {
    len: Bytes,
    /// Batches that recovery needs, oldest first: sequence, place, room.
    live: VecDeque<(u64, Bytes, Bytes)>,
    next_sequence: u64,
    /// The newest batch that is durable; 0 for none.
    newest: u64,
}

impl Journal {
    /// The journal whose ring lies at each of these places.
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

    /// Where the ring of a device begins that has one.
    pub fn offset_on(&self, device: DeviceId) -> Bytes {
        let replicas = self.replicas.borrow();
        let replica = replicas.iter().find(|(replica, _)| *replica == device);
        replica.expect("a journal that was searched has a place").1
    }

    /// The first device with the ring.
    pub fn device(&self) -> Option<DeviceId> {
        self.replicas.borrow().first().map(|(device, _)| *device)
    }

    /// The devices with the ring.
    pub fn devices(&self) -> Vec<DeviceId> {
        self.replicas.borrow().iter().map(|(device, _)| *device).collect()
    }

    /// Why the volume can promise nothing any more.
    pub fn failure(&self) -> Option<Error> {
        self.commits.failure()
    }

    /// Everywhere that the ring is written.
    fn places(&self) -> Vec<(DeviceId, Bytes)> {
        self.replicas.borrow().iter().copied().chain(self.beside.get()).collect()
    }

    /// From now on the ring lies there, and is written to another place, too.
    pub fn set_places(&self, replicas: Vec<(DeviceId, Bytes)>, beside: Option<(DeviceId, Bytes)>) {
        self.listed.set_aside(self.ring.borrow().next_sequence - 1);
        self.replicas.replace(replicas);
        self.beside.set(beside);
    }

    /// Keeps batches back, so that the next one goes to all places that are set meanwhile.
    pub async fn hold(&self) -> Permit {
        self.writer.acquire(1).await
    }

    /// Whether the ring is written to a device.
    pub fn is_on(&self, device: DeviceId) -> bool {
        self.places().iter().any(|(place, _)| *place == device)
    }

    /// Whether the ring lies on another device than this one, too.
    pub fn survives(&self, device: DeviceId, is_current: impl Fn(DeviceId) -> bool) -> bool {
        self.replicas.borrow().iter().any(|&(other, _)| other != device && is_current(other))
    }

    /// Changes that may wait for a commit: a commit of them all takes less than a quarter of the ring,
    /// and than the largest batch.
    pub fn most_pending(&self) -> usize {
        self.most_pending
    }

    /// How many changes may wait at most beside those that room is reserved for.
    pub fn unreserved(&self) -> usize {
        self.most_pending - self.reserved.get()
    }

    /// The newest batch that is durable.
    pub fn newest(&self) -> u64 {
        self.ring.borrow().newest()
    }

    /// The newest durable batch that is in the ring; 0 for none.
    pub fn in_ring(&self) -> u64 {
        self.in_ring.get()
    }

    /// Extents that the newest batch changed, unless they are too many.
    pub fn newest_extents(&self) -> Option<Vec<ExtentId>> {
        self.previous.borrow().clone()
    }

    /// Whether the ring is so full that a checkpoint should make room.
    pub fn wants_checkpoint(&self) -> bool {
        let ring = self.ring.borrow();
        ring.live_room() * 4 > ring.len
    }

    /// Where the batches lie that recovery would read, from the beginning of the ring on.
    pub fn live_places(&self) -> Vec<Range<Bytes>> {
        let place = |(_, place, room): &(u64, Bytes, Bytes)| *place..*place + *room;
        self.ring.borrow().live.iter().map(place).collect()
    }

    /// Bytes of the ring that recovery would read.
    pub fn live_room(&self) -> Bytes {
        self.ring.borrow().live_room()
    }

    /// Whether pages contain batches that come after all of this ring's: it was out of use meanwhile. The
    /// next batch does not follow on those that it has.
    pub fn is_behind_pages(&self) -> bool {
        self.ring.borrow().is_behind_pages()
    }

    /// Whether the largest batch finds a place without a checkpoint before it.
    pub fn has_room(&self) -> bool {
        self.place(journal::room(self.most_pending)).is_some()
    }

    /// A place for a batch of `room` bytes that guests or policies caused.
    fn place(&self, room: Bytes) -> Option<Bytes> {
        self.ring.borrow().place(room, &[end_of_checkpoint(), end_of_checkpoint()])
    }
}

impl Ring {
    /// A ring with these live batches, oldest first.
    pub fn new(len: Bytes, live: VecDeque<(u64, Bytes, Bytes)>, next_sequence: u64) -> Ring {
        Ring { len, live, next_sequence, newest: next_sequence - 1 }
    }

    /// The newest batch that is durable; 0 for none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    fn live_room(&self) -> Bytes {
        self.live.iter().map(|(_, _, room)| *room).sum()
    }

    fn is_behind_pages(&self) -> bool {
        self.live.back().is_some_and(|(sequence, _, _)| sequence + 1 != self.next_sequence)
    }

    /// The oldest batch that recovery needs; the next one where there is none.
    fn tail(&self) -> u64 {
        self.live.front().map_or(self.next_sequence, |(sequence, _, _)| *sequence)
    }

    /// Where a batch of `room` bytes goes, so that others of `reserve` bytes still find places behind it, one
    /// after the other.
    fn place(&self, room: Bytes, reserve: &[Bytes]) -> Option<Bytes> {
        let (oldest, mut head) = match (self.live.front(), self.live.back()) {
            (Some((_, oldest, _)), Some((_, newest, len))) => (*oldest, *newest + *len),
            // Nothing is needed any more: as if the oldest began at the end.
            _ => (self.len, Bytes::ZERO),
        };
        let mut wrapped = self.live.front().is_some_and(|_| head <= oldest);
        let mut first = None;
        for &room in std::iter::once(&room).chain(reserve) {
            let end = if wrapped { oldest } else { self.len };
            if head + room > end {
                // The rest is too short: once round, unless that has been.
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

    /// Whether the batch that ends a checkpoint has room: at every instant that a power cut can leave.
    pub fn keeps_room(&self) -> bool {
        self.place(end_of_checkpoint(), &[]).is_some()
    }

    /// A batch is about to be written there: its number is never used again, whatever becomes of it.
    fn push(&mut self, place: Bytes, room: Bytes) -> u64 {
        let sequence = self.next_sequence;
        self.live.push_back((sequence, place, room));
        self.next_sequence += 1;
        sequence
    }

    /// Batches up to `done` are in the pages.
    fn forget(&mut self, done: u64) {
        while self.live.front().is_some_and(|(sequence, _, _)| *sequence <= done) {
            self.live.pop_front();
        }
    }
}

/// See [`Journal::most_pending`]: of a ring of this length.
fn most_pending(len: Bytes) -> usize {
    ((len / 4).as_usize() / MOST_RECORD).min(MOST_RECORDS) * 7 / 8
}

/// Room for the batch that ends a checkpoint: it has no records.
fn end_of_checkpoint() -> Bytes {
    journal::room(0)
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes a batch and makes it durable. The permit keeps other batches back until the caller has drawn
    /// the consequences.
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

    /// Ends a checkpoint that wrote everything up to batch `done` into the pages: a batch that says so,
    /// without records.
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
            // A journal that goes on elsewhere begins later.
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

    /// Has the journal go on elsewhere, in a ring of which nothing counts. The pages contain all that the one
    /// before says.
    pub async fn restart_journal(&self, place: (DeviceId, Bytes)) -> Result<Permit> {
        let journal = &self.journal;
        let permit = loop {
            self.checkpoint().await?;
            let permit = journal.writer.acquire(1).await;
            if journal.complete.get() == journal.newest() {
                break permit;
            }
        };
        // It may have gone there meanwhile, with a device that was given up.
        if journal.device() != Some(place.0) {
            self.begin_journal(place).await?;
        }
        Ok(permit)
    }

    /// Begins a journal that says nothing, elsewhere. The caller keeps other batches back.
    pub async fn begin_journal(&self, place: (DeviceId, Bytes)) -> Result<()> {
        let journal = &self.journal;
        {
            let mut ring = journal.ring.borrow_mut();
            *ring = Ring::new(ring.len, VecDeque::new(), ring.next_sequence);
        }
        journal.set_places(vec![place], journal.beside.get());
        // What an earlier life left in that ring counts for nothing from here on.
        let next = journal.ring.borrow().next_sequence;
        let kept = self.write_batch(&[Record::Epoch(journal.epoch)], Bytes::ZERO, next).await?;
        assert!(kept == Kept::Yes, "a journal that was lost goes on in the record, and from there nowhere");
        journal.roomier.notify();
        Ok(())
    }

    async fn write_batch(&self, records: &[Record], place: Bytes, tail: u64) -> Result<Kept> {
        let journal = &self.journal;
        let volume = self.devices.superblock().volume;
        let sequence = journal.ring.borrow().next_sequence;
        let room = {
            let previous = journal.previous.borrow();
            let batch =
                Batch { sequence, tail, epoch: journal.epoch, previous: previous.as_deref(), records };
            if journal.buffer.borrow().is_shared() {
                // A device that is late may still write the batch before.
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
        // From here to the caller's consequences nothing waits: what is newest and what the state says belong
        // together.
        journal.ring.borrow_mut().newest = sequence;
        journal.in_ring.set(sequence);
        let state = self.state.borrow();
        journal.previous.replace(changed_extents(&self.shape, records, |block| state.commits_data_of(block)));
        drop(state);
        self.jobs.wake();
        Ok(Kept::Yes)
    }

    /// Writes a batch to every replica that is current. One that fails costs its device, not the batch, where
    /// that can be.
    async fn write_replicas(&self, place: Bytes, bytes: &Buf) -> Result<()> {
        let places = self.journal.places();
        let places = places.into_iter().filter(|(device, _)| self.member(*device).is_written());
        let writes = places.map(async |(device, offset)| {
            let member = self.member(device);
            if let Err(error) = self.device_write(member, offset + place, bytes, Origin::Background).await {
                return self.spare_region(RegionKind::Journal, (device, offset), error).await.map(|()| false);
            }
            let flushed = match planted(Bug::JournalNotFlushed) {
                true => Ok(None),
                false => member.flush(&self.rt).await,
            };
            let failed =
                |e| Error::io(format_args!("{} could not flush the journal", self.describe(device)), &e);
            // Given up at once: others would read what it may have lost.
            match flushed.map_err(failed) {
                // The next opening does not read it on a device that is being brought up to date.
                Ok(_) => Ok(member.is_current()),
                Err(error) => self.lose(device, error).map(|()| false),
            }
        });
        let written = join_all(writes).await.into_iter().collect::<Result<Vec<bool>>>()?;
        if !written.contains(&true) {
            return Err(Error::new(ErrorKind::Degraded, "no device that holds the journal is there"));
        }
        self.background.borrow_mut().journal_bytes += bytes.len().0;
        // The watchdog may have given one up that has not got this batch, too.
        self.record_states().await
    }
}

fn new_buffer() -> Buf {
    Arena::new(LARGEST_BATCH).try_alloc(LARGEST_BATCH).expect("a new arena has room")
}

#[cfg(test)]
mod tests;
