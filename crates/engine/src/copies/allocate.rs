//! Slots for new extents.

use super::{Deadline, Member};
use crate::core::Core;
use crate::epochs::Epochs;
use crate::map::Arrival;
use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{ByteRange, Occasion, Origin, Second, WriteTarget};
use braid_runtime::{Device, Runtime};
use std::cmp::Reverse;

/// How long a guest waits before it looks again whether a slot that is being trimmed is free.
const WAIT_FOR_TRIM: Nanos = Nanos::from_millis(1);
/// How long a device gets no new extents after the file system beneath it was full.
const LEFT_ALONE: Nanos = Nanos::from_secs(10);

/// The place of a new extent.
pub(crate) struct Allocated {
    /// Slots for all required copies, nothing valid in them yet.
    pub entry: Entry,
    /// Where the write goes for which it was allocated: to the home, or to an extra copy.
    pub target: WriteTarget,
    /// How that write treats the second copy.
    pub second: Second,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether a device gets no new extents while others have room for them: it is slow.
    fn is_avoided(&self, device: DeviceId) -> bool {
        let is_slow = |id: DeviceId| self.member(id).is_slow();
        is_slow(device)
            && self.with_policy(|_, view| view.with_room().filter(|d| !is_slow(d.id)).count())
                >= usize::from(self.shape.copies)
    }

    /// Allocates a new extent. If a second copy has no place while a device is lacking, the extent has one
    /// copy; it gets the other one once no device is lacking. `write`: the piece that is written to it now,
    /// and the request that it is of.
    pub async fn allocate(&self, extent: ExtentId, write: Option<(&Piece, ByteRange)>) -> Result<Allocated> {
        let shown = write.map(|(piece, request)| self.shown(piece, request, false));
        let occasion = Occasion::New { extent, write: shown };
        let placement = self.with_policy(|policy, view| policy.place(&occasion, view));
        let (wanted, second) = (placement.new_home(), placement.second);
        // No home lies where only epochs may write, and all second copies do.
        let image = self.active_epochs().map(Epochs::device);
        let may = |&device: &DeviceId| !self.is_avoided(device) && Some(device) != image;
        let taken = wanted.filter(may).and_then(|device| self.take(extent, device));
        let home = match taken {
            Some(slot) => slot,
            None => self.allocate_anywhere(extent, |device| Some(device) != image).await?,
        };
        // What may be behind may be so beside the home that the policy wants: another one is not as safe, or
        // as fast.
        let timing = if taken.is_some() { second } else { Second::None };
        let not = self.device_of(home);
        let slot = match self.shape.copies {
            1 => SlotNumber::NONE,
            _ => self
                .allocate_second_if_any(extent, home, second, image)
                .await
                .inspect_err(|_| self.state.borrow_mut().release(home))?,
        };
        let target = match write {
            Some(_) => self.enough(placement.first_write(not)),
            None => WriteTarget::Home,
        };
        Ok(Allocated {
            entry: Entry { home, valid: 0, second: slot, partly_lost: false },
            target,
            second: timing,
        })
    }

    /// An extra copy alone is one copy: not enough if two are required.
    pub fn enough(&self, target: WriteTarget) -> WriteTarget {
        match target {
            WriteTarget::Extra(_) if self.shape.copies > 1 => WriteTarget::Home,
            _ => target,
        }
    }

    /// As [`Core::allocate_second`]; none if no other device has room and one is lacking.
    async fn allocate_second_if_any(
        &self,
        extent: ExtentId,
        home: SlotNumber,
        second: Second,
        image: Option<DeviceId>,
    ) -> Result<SlotNumber> {
        let not = self.device_of(home);
        // The device of the home may be what has been given up while room was waited for: then there would be
        // no copy.
        let may_be_alone = || self.member(not).is_current() && self.devices.iter().any(Member::is_lacking);
        let has_other = self.devices.iter().any(|m| m.id != not && m.is_filled());
        if !has_other && may_be_alone() {
            return Ok(SlotNumber::NONE);
        }
        match self.allocate_second(extent, home, second, image).await {
            // The others are full, or one is being added and has no slots yet.
            Err(error) if error.kind() == ErrorKind::NoSpace && may_be_alone() => Ok(SlotNumber::NONE),
            result => result,
        }
    }

    /// A slot on another device than `home`'s: where the policy wants it, else wherever there is room.
    async fn allocate_second(
        &self,
        extent: ExtentId,
        home: SlotNumber,
        second: Second,
        image: Option<DeviceId>,
    ) -> Result<SlotNumber> {
        let not = self.device_of(home);
        if let Some(image) = image.filter(|&image| self.member(image).is_filled()) {
            return self.allocate_anywhere(extent, |device| device == image).await;
        }
        let wanted = second.device().filter(|&device| device != not && !self.is_avoided(device));
        if let Some(slot) = wanted.and_then(|device| self.take(extent, device)) {
            return Ok(slot);
        }
        self.allocate_anywhere(extent, |device| device != not).await
    }

    /// A new extent could not be written where it was allocated. If the file system beneath the device is
    /// full, and another device has room, the device gets no new extents for a while. Whether so.
    pub fn leave_full(&self, home: SlotNumber, error: &Error) -> bool {
        let device = self.device_of(home);
        let is_other_open = || self.with_policy(|_, view| view.with_room().any(|d| d.id != device));
        let has_other = || is_other_open() || self.reopen_full(|other| other.id != device);
        if error.kind() != ErrorKind::NoSpace || self.shape.copies > 1 || !has_other() {
            return false;
        }
        let member = self.member(device);
        tracing::warn!(device = %self.describe(device), "what the device lies on is full: new data goes elsewhere");
        member.full_until.set(Some(self.rt.now() + LEFT_ALONE));
        self.state.borrow_mut().set_open(device, false);
        true
    }

    /// Gives out slots of a device again that was left for lack of room. Whether there was one.
    pub fn reopen_full(&self, may: impl Fn(&Member<D>) -> bool) -> bool {
        let mut any = false;
        for member in self.devices.iter().filter(|m| m.full_until.get().is_some() && m.is_filled() && may(m))
        {
            member.full_until.set(None);
            self.state.borrow_mut().set_open(member.id, true);
            any = true;
        }
        any
    }

    /// Gives back slots that no record ever spoke of.
    pub fn release(&self, entry: &Entry) {
        let mut state = self.state.borrow_mut();
        [entry.home, entry.second]
            .into_iter()
            .filter(|&s| s != SlotNumber::NONE)
            .for_each(|s| state.release(s));
    }

    fn take(&self, extent: ExtentId, device: DeviceId) -> Option<SlotNumber> {
        self.state.borrow_mut().take_for(extent, device, Arrival::New)
    }

    /// A slot of the device with the most free ones, of those that may have it, that has one for this extent;
    /// once more after a commit or a checkpoint, which may free some.
    async fn allocate_anywhere(
        &self,
        extent: ExtentId,
        may: impl Fn(DeviceId) -> bool,
    ) -> Result<SlotNumber> {
        let mut waited = Nanos::ZERO;
        loop {
            let mut roomy: Vec<(u32, DeviceId)> = self.with_policy(|_, view| {
                let others = view.with_room().filter(|device| may(device.id));
                others.map(|device| (device.free, device.id)).collect()
            });
            roomy.sort_unstable_by_key(|&most| (self.is_avoided(most.1), Reverse(most)));
            if let Some(slot) = roomy.into_iter().find_map(|(_, device)| self.take(extent, device)) {
                return Ok(slot);
            }
            if self.release_trims() {
                continue;
            }
            if self.state.borrow().trimming() > 0 && waited < Deadline::LONGEST {
                self.rt.sleep(WAIT_FOR_TRIM).await;
                waited += WAIT_FOR_TRIM;
                continue;
            }
            if self.state.borrow().freeing() > 0 {
                self.commit(Origin::Guest).await?;
                continue;
            }
            if self.state.borrow().has_outdated() {
                self.checkpoint().await?;
                continue;
            }
            if self.reopen_full(|member| may(member.id)) {
                continue;
            }
            // What has left its block slots, now or for other reasons, is free after a commit.
            let is_due = || {
                let state = self.state.borrow();
                state.freeing_blocks() > 0 || state.pending() * 2 > self.journal.most_pending()
            };
            if self.reclaim_extras(&may) || is_due() {
                self.commit(Origin::Guest).await?;
            } else {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "no device of the volume has a free slot: discard data that is no longer needed (fstrim), or make a \
                     larger volume",
                ));
            }
        }
    }
}
