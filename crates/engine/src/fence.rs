//! Fence: once another opening has taken the devices over, this opening changes nothing any more.
//!
//! A lock on a file or device holds on one machine only, and on one inode only. A loop device over a file of
//! the volume, or one disk that two hosts see, evades the lock. Each opening therefore writes its number
//! (*epoch*) and a random number (*owner*) to the superblocks before any other change. Beside its journal, a
//! volume may then find a newer epoch, another owner of its own epoch, or a newer superblock than its own:
//! another opening exists. The volume fails: no flush succeeds, and nothing is read or written any more.
//!
//! - A job looks at a superblock every 0.8 s while the volume is used. Steady flushes do not wait for the
//!   job.
//! - A flush is acknowledged, and a device written, only if the last look is at most a second old. Otherwise
//!   the volume looks first. The first write after a pause therefore waits for a look; other writes do not.
//! - A shared device is looked at before each renewal of its lease, too, also while the volume is idle
//!   ([`lease`]).
//!
//! Bound: no flush is acknowledged, and no write is sent to a device, more than 1 s ([`OLDEST`]) after all
//! superblocks have the number of the other opening. While the device of a look does not answer, the bound is
//! 1.5 s and the time to read another shared device, by the lease there. Without another shared device the
//! volume is fenced once the device answers, or at a look at the next device (6 s).
//!
//! Writes acknowledged between the other opening and the next look may be lost, unless the other opening
//! waits ([`TAKEOVER`]). An opening waits if the volume was in use and the notes of its host do not prove the
//! end of the last opening. It writes its number, waits for longer than the bound, and only then reads the
//! metadata that counts (`open/again.rs`). The delay of 2 s comes only after an unclean stop: on another
//! host, under another state directory, or before the machine was started.
//!
//! Metadata read before the number is written may be inconsistent, because the journal grows meanwhile. The
//! opening reads a few times ([`READINGS`]) before the volume counts as damaged.
//!
//! Requests in flight at the time of a look are carried out all the same. A look without an answer within a
//! second is not waited for. Models and memory ([`Device::ALWAYS_ANSWERS`]) belong to one process and need no
//! look.

pub(crate) mod lease;

use crate::buffer::buffer;
use crate::core::Durable;
use crate::devices::{Deadline, Devices, Member};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::Nanos;
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, Header, Phase, Superblock};
use braid_runtime::{Device, Event, Runtime};
use std::cell::{Cell, RefCell};

/// Interval between the looks of the job.
const PERIOD: Nanos = Nanos::from_millis(800);
/// Greatest age of the last look at a promise.
const OLDEST: Nanos = Nanos::from_secs(1);
/// Longest wait for the answer to a look.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// Time for which an opening waits for another opening to notice: longer than the age limit of a look.
pub(crate) const TAKEOVER: Nanos = Nanos::from_secs(2);
/// Number of times an opening reads the journal again before the journal counts as damaged, if another
/// opening may have the volume open.
pub(crate) const READINGS: u32 = 12;
/// Pause before each of these readings.
pub(crate) const BETWEEN_READINGS: Nanos = Nanos::from_millis(200);

/// Notes of a host on a volume, kept outside the volume's devices.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Noted {
    /// Number of the opening.
    pub epoch: u64,
    /// Random number of the opening.
    pub owner: u64,
    /// Newest durable batch of the journal.
    pub batch: u64,
}

/// State of the looks at a volume's devices.
#[derive(Default)]
pub(crate) struct Fence {
    /// Start of the last look.
    looked: Cell<Nanos>,
    /// Activity of guests and commits at the last look.
    seen: Cell<u64>,
    /// True if a task waits for a look.
    is_wanted: Cell<bool>,
    /// True if a look has had no answer for a second: no task waits for looks then.
    is_silent: Cell<bool>,
    /// Notified when a look has ended.
    ended: Event,
    /// Reason why nothing is changed any more.
    taken: RefCell<Option<Error>>,
}

impl Fence {
    /// Creates the fence of a volume that has just written its number.
    pub fn new(now: Nanos) -> Fence {
        Fence { looked: Cell::new(now), ..Fence::default() }
    }

    /// True if another opening has taken the devices over.
    pub fn is_taken(&self) -> bool {
        self.taken.borrow().is_some()
    }
}

/// True if another opening than the noted one may still have the volume open. A caller with exclusive devices
/// passes no note.
pub(crate) fn may_be_open(superblock: &Superblock, noted: Option<Noted>) -> bool {
    let is_last = |noted: Noted| (noted.epoch, noted.owner) == (superblock.epoch, superblock.owner);
    superblock.phase != Phase::Closed && noted.is_some_and(|noted| !is_last(noted))
}

/// True if inconsistent metadata may be due to another daemon that opens, writes or closes the volume
/// meanwhile.
pub(crate) fn may_change(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Degraded | ErrorKind::Invalid)
}

impl<D: Device> Devices<D> {
    /// True if a superblock copy comes from a later opening, or from a concurrent one.
    pub fn is_of_another(&self, header: &Header, member: &Member<D>) -> bool {
        let own = self.superblock();
        let is_same = header.volume == own.volume && header.device.uuid == member.entry.uuid;
        let is_newer = header.epoch > own.epoch
            || header.epoch == own.epoch && (header.owner != own.owner || header.sequence > own.sequence);
        is_same && is_newer
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Looks at the devices periodically, and whenever a look is wanted, until the volume closes.
    pub async fn keep_fence(&self) {
        while !self.jobs.are_ending() && !self.fence.is_taken() {
            self.pause(self.rt.now() + PERIOD, || self.fence.is_wanted.get()).await;
            let (activity, wanted) = (self.activity(), self.fence.is_wanted.take());
            if self.fence.seen.replace(activity) != activity || wanted {
                // The error is kept, and returned to every flush from now on.
                let _told = self.look_for_others().await;
            }
        }
    }

    /// As [`Durable::confirm_own`], before a device is written. Returns the time of the write. Waits for
    /// nothing if the last look is recent.
    #[inline]
    pub async fn confirm_before_write(&self) -> Result<Nanos> {
        let now = self.rt.now();
        if self.is_looked_at(now) && !self.fence.is_taken() {
            return Ok(now);
        }
        Box::pin(self.confirm_own()).await?;
        Ok(self.rt.now())
    }

    /// True if no look is needed now.
    #[inline]
    fn is_looked_at(&self, now: Nanos) -> bool {
        D::ALWAYS_ANSWERS || self.fence.is_silent.get() || now < self.fence.looked.get() + OLDEST
    }

    /// Fails if another opening has taken the devices over. Called before a promise or an overwrite. If the
    /// last look is old, a superblock is read first. If the device does not answer for a second, the look is
    /// not waited for.
    pub async fn confirm_own(&self) -> Result<()> {
        if self.is_looked_at(self.rt.now()) {
            return self.refuse_taken();
        }
        if self.jobs.are_ending() {
            return Box::pin(self.look_for_others()).await;
        }
        let wanted = self.rt.now();
        self.fence.is_wanted.set(true);
        self.jobs.wake();
        let looked = self.fence.ended.wait_for(|| (self.fence.looked.get() >= wanted).then_some(()));
        if self.within(PATIENCE, looked).await.is_none() {
            self.fence.is_silent.set(true);
        }
        self.refuse_taken()
    }

    /// Looks at the superblocks beside the journals.
    pub async fn look_for_others(&self) -> Result<()> {
        if D::ALWAYS_ANSWERS || planted(Bug::FenceSkipped) {
            return Ok(());
        }
        let start = self.rt.now();
        for device in self.journal.devices() {
            let member = self.store.member(device);
            if !member.is_current() || member.is_late() {
                continue;
            }
            if let Some(header) = self.store.devices.header_of_another(member, Deadline::Copied).await {
                self.end_for(&header);
                break;
            }
        }
        self.fence.looked.set(start.max(self.fence.looked.get()));
        self.fence.is_silent.set(false);
        self.fence.ended.notify();
        self.refuse_taken()
    }

    /// Returns a count of requests and batches so far.
    fn activity(&self) -> u64 {
        let guests = self.guests.stats.borrow();
        guests.reads + guests.writes + guests.flushes + guests.discards + self.journal.newest()
    }

    fn refuse_taken(&self) -> Result<()> {
        self.fence.taken.borrow().clone().map_or(Ok(()), Err)
    }

    fn end_for(&self, header: &Header) {
        let (name, own) = (header.name.clone(), self.store.devices.superblock().epoch);
        let text = format!(
            "volume '{name}' was opened by another daemon (opening {}, this is {own}): this daemon writes \
             nothing more; guests' writes of its last second may be lost; stop this daemon, and find the \
             other user of the devices (a loop device over a file, a disk that two hosts see)",
            header.epoch
        );
        let error = Error::new(ErrorKind::Io, text);
        self.fence.taken.borrow_mut().get_or_insert(error.clone());
        self.store.devices.iter().for_each(Member::shut);
        self.guests.forget();
        self.fail(error);
    }
}

impl<D: Device> Devices<D> {
    /// Superblock of another opening on a device. Of a shared device all copies are read, as a renewal in
    /// flight may have overwritten the first copy of the other opening; else the first valid copy.
    async fn header_of_another(&self, member: &Member<D>, deadline: Deadline) -> Option<Header> {
        let buf = buffer(superblock::SIZE).await;
        for offset in superblock_offsets(member.entry.size, member.entry.layout) {
            if member.read(offset, &buf, deadline).await.is_ok()
                && let Ok(header) = buf.with_bytes(Header::decode)
            {
                if self.is_of_another(&header, member) {
                    return Some(header);
                }
                if !member.is_shared() {
                    return None;
                }
            }
        }
        None
    }
}
