//! The fence: once another opening has taken the devices over, this one changes nothing any more.
//!
//! A lock of files and devices ends at the machine, and at the inode: a loop device over a file of the
//! volume, or one disk that two hosts see, gets past it. Each opening writes its number (*epoch*) and a
//! random number (*owner*) to the superblocks before it changes anything else. So a volume that finds a newer
//! epoch, another owner of its own epoch, or a newer superblock than its own beside its journal is not the
//! only one. It fails then: no flush succeeds, and nothing is read or written any more.
//!
//! - A job looks every 0.8 s while the volume is used. Steady flushes do not wait for that.
//! - A flush is acknowledged, and anything written to a device, only after a look that is at most a second
//!   old: the volume looks first otherwise. So the first write after a pause waits for a look, and others do
//!   not.
//!
//! So what was acknowledged between the other opening and the next look, at most a second, may be lost,
//! unless the other opening waits ([`TAKEOVER`]): an opening that finds the volume in use, and does not know
//! from its host's notes that this opening has ended, writes its number, waits for longer than a look may be
//! old, and only then reads what counts (`open/again.rs`). The delay of 2 s comes after an unclean stop
//! alone, on another host, under another state directory, or before the machine was started.
//!
//! What such an opening reads before the number is written may not fit together, since the journal grows
//! meanwhile. The opening reads a few times ([`READINGS`]) before the volume is called damaged.
//!
//! What a device was given before the look is carried out all the same. A device that does not answer a look
//! within a second is not waited for. Models and memory ([`Device::ALWAYS_ANSWERS`]) belong to one process:
//! nobody looks at them.

use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::create::buffer;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::Nanos;
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, Header, Phase, Superblock};
use braid_runtime::{Device, Event, Runtime};
use std::cell::{Cell, RefCell};

/// How often the job looks.
const PERIOD: Nanos = Nanos::from_millis(800);
/// How old the last look may be when something is promised.
const OLDEST: Nanos = Nanos::from_secs(1);
/// How long the answer to a look is waited for.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// How long an opening waits for another one to notice it: longer than a look may be old.
pub(crate) const TAKEOVER: Nanos = Nanos::from_secs(2);
/// How often an opening reads the journal once more, of a volume that another one may have open, before the
/// journal counts as damaged.
pub(crate) const READINGS: u32 = 12;
/// The pause before each of these readings.
pub(crate) const BETWEEN_READINGS: Nanos = Nanos::from_millis(200);

/// What a host notes of a volume, outside the volume's devices.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Noted {
    /// The number of the opening.
    pub epoch: u64,
    /// Its random number.
    pub owner: u64,
    /// The newest batch of the journal that was durable.
    pub batch: u64,
}

/// What a volume knows of the looks at its devices.
#[derive(Default)]
pub(crate) struct Fence {
    /// When the last look began.
    looked: Cell<Nanos>,
    /// What guests and commits had done then.
    seen: Cell<u64>,
    /// Somebody waits for a look.
    is_wanted: Cell<bool>,
    /// A look has not been answered for a second: nobody waits for that.
    is_silent: Cell<bool>,
    /// A look has ended.
    ended: Event,
    /// Why nothing is changed any more.
    taken: RefCell<Option<Error>>,
}

impl Fence {
    /// The volume has just written its number.
    pub fn new(now: Nanos) -> Fence {
        Fence { looked: Cell::new(now), ..Fence::default() }
    }

    /// Whether another opening has taken the devices over.
    pub fn is_taken(&self) -> bool {
        self.taken.borrow().is_some()
    }
}

/// Whether another opening than the noted one may still have the volume open. None is noted by a caller that
/// has the devices for itself.
pub(crate) fn may_be_open(superblock: &Superblock, noted: Option<Noted>) -> bool {
    let is_last = |noted: Noted| (noted.epoch, noted.owner) == (superblock.epoch, superblock.owner);
    superblock.phase != Phase::Closed && noted.is_some_and(|noted| !is_last(noted))
}

/// Whether another daemon that opens, writes or closes the volume meanwhile may be why what devices say does
/// not fit together.
pub(crate) fn may_change(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Degraded | ErrorKind::Invalid)
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Looks at the devices from time to time, and when a look is wanted, until the volume closes.
    pub async fn keep_fence(&self) {
        while !self.jobs.are_ending() && !self.fence.is_taken() {
            self.pause(self.rt.now() + PERIOD, || self.fence.is_wanted.get()).await;
            let (activity, wanted) = (self.activity(), self.fence.is_wanted.take());
            if self.fence.seen.replace(activity) != activity || wanted {
                // An error is remembered, and told to every flush from now on.
                let _told = self.look_for_others().await;
            }
        }
    }

    /// As [`Core::confirm_own`], before a device is written: gives the time then. Waits for nothing if the
    /// last look is recent.
    #[inline]
    pub async fn confirm_before_write(&self) -> Result<Nanos> {
        let now = self.rt.now();
        if self.is_looked_at(now) && !self.fence.is_taken() {
            return Ok(now);
        }
        Box::pin(self.confirm_own()).await?;
        Ok(self.rt.now())
    }

    /// Whether no look is needed now.
    #[inline]
    fn is_looked_at(&self, now: Nanos) -> bool {
        D::ALWAYS_ANSWERS || self.fence.is_silent.get() || now < self.fence.looked.get() + OLDEST
    }

    /// An error if another opening has taken the devices over. Called before something is promised or
    /// overwritten: has a superblock read if the last look is old. If the device does not answer for a
    /// second, nobody waits for the look.
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
            let member = self.member(device);
            if !member.is_current() || member.is_late() {
                continue;
            }
            if let Some(header) = read_any(member).await
                && self.is_of_another(&header, member)
            {
                self.end_for(&header);
                break;
            }
        }
        self.fence.looked.set(start.max(self.fence.looked.get()));
        self.fence.is_silent.set(false);
        self.fence.ended.notify();
        self.refuse_taken()
    }

    /// What has been done so far.
    fn activity(&self) -> u64 {
        let guests = self.guests.stats.borrow();
        guests.reads + guests.writes + guests.flushes + guests.discards + self.journal.newest()
    }

    /// Whether a superblock copy comes from an opening after this one, or from one beside this one.
    pub fn is_of_another(&self, header: &Header, member: &Member<D>) -> bool {
        let own = self.devices.superblock();
        let is_same = header.volume == own.volume && header.device.uuid == member.entry.uuid;
        let is_newer = header.epoch > own.epoch
            || header.epoch == own.epoch && (header.owner != own.owner || header.sequence > own.sequence);
        is_same && is_newer
    }

    fn refuse_taken(&self) -> Result<()> {
        self.fence.taken.borrow().clone().map_or(Ok(()), Err)
    }

    fn end_for(&self, header: &Header) {
        let (name, own) = (header.name.clone(), self.devices.superblock().epoch);
        let text = format!(
            "volume '{name}' was opened by another daemon (opening {}, this is {own}): this one changes nothing any more; what guests wrote in its last second may be \
             lost; stop it, and find out who else reaches the devices (a loop device over a file, a disk that two hosts see)",
            header.epoch
        );
        let error = Error::new(ErrorKind::Io, text);
        self.fence.taken.borrow_mut().get_or_insert(error.clone());
        self.devices.iter().for_each(Member::shut);
        self.guests.forget();
        self.fail(error);
    }
}

/// The first superblock copy that is whole; none if none is.
async fn read_any<D: Device>(member: &Member<D>) -> Option<Header> {
    let buf = buffer(superblock::SIZE).await;
    for offset in superblock_offsets(member.entry.size, member.entry.layout) {
        if member.read(offset, &buf, Deadline::Copied).await.is_ok()
            && let Ok(header) = buf.with_bytes(Header::decode)
        {
            return Some(header);
        }
    }
    None
}
