//! Allocation of slots for new extents.

use crate::core::{Extents, Store};
use crate::devices::Member;
use crate::epochs::Epochs;
use crate::map::Arrival;
use crate::shape::{Piece, Shape};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{ByteRange, Occasion, Origin, Second, WriteTarget};
use braid_runtime::{Device, Runtime};
use std::cmp::Reverse;

/// Interval at which an allocation for a guest looks whether a slot under discard has become free.
const WAIT_FOR_TRIM: Nanos = Nanos::from_millis(1);
/// How long a device gets no new extents after the file system beneath the device was full.
const LEFT_ALONE: Nanos = Nanos::from_secs(10);

/// The place of a new extent.
pub(crate) struct Allocated {
    /// Slots of all required copies, without valid parts yet.
    pub entry: Entry,
    /// Target of the write that caused the allocation: the home or an extra copy.
    pub target: WriteTarget,
    /// How the write treats the second copy.
    pub second: Second,
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// True if a device is slow and enough other devices have room: new extents go to the others.
    fn is_avoided(&self, device: DeviceId) -> bool {
        let is_slow = |id: DeviceId| self.store.member(id).is_slow();
        is_slow(device)
            && self.with_policy(|_, view| view.with_room().filter(|d| !is_slow(d.id)).count())
                >= usize::from(self.store.shape.copies)
    }

    /// Allocates slots for a new extent.
    ///
    /// If a device is lacking and no other device has room for a second copy, the extent gets one copy. The
    /// second copy is made once no device is lacking. `write` is the piece of the extent to be written now,
    /// and the range of the whole request.
    pub async fn allocate(&self, extent: ExtentId, write: Option<(&Piece, ByteRange)>) -> Result<Allocated> {
        let shown = write.map(|(piece, request)| self.store.shape.shown(piece, request, false));
        let occasion = Occasion::New { extent, write: shown };
        let placement = self.with_policy(|policy, view| policy.place(&occasion, view));
        let (wanted, second) = (placement.new_home(), placement.second);
        // With epochs, all second copies lie on the image disk, and only epochs write there. Homes lie
        // elsewhere.
        let image = self.active_epochs().map(Epochs::device);
        let may = |&device: &DeviceId| !self.is_avoided(device) && Some(device) != image;
        let taken = wanted.filter(may).and_then(|device| self.store.take(extent, device));
        let home = match taken {
            Some(slot) => slot,
            None => self.allocate_anywhere(extent, |device| Some(device) != image).await?,
        };
        // The policy defers second copies only beside the home of its choice. Another home may be less safe
        // or slower, so beside another home the second copy is written at once.
        let timing = if taken.is_some() { second } else { Second::None };
        let not = self.store.device_of(home);
        let slot = match self.store.shape.copies {
            1 => SlotNumber::NONE,
            _ => self
                .allocate_second_if_any(extent, home, second, image)
                .await
                .inspect_err(|_| self.store.state.borrow_mut().release(home))?,
        };
        let target = match write {
            Some(_) => self.store.shape.enough(placement.first_write(not)),
            None => WriteTarget::Home,
        };
        Ok(Allocated {
            entry: Entry { home, valid: 0, second: slot, partly_lost: false },
            target,
            second: timing,
        })
    }

    /// Like [`Extents::allocate_second`], but returns no slot if a device is lacking and no other device has
    /// room.
    async fn allocate_second_if_any(
        &self,
        extent: ExtentId,
        home: SlotNumber,
        second: Second,
        image: Option<DeviceId>,
    ) -> Result<SlotNumber> {
        let not = self.store.device_of(home);
        // While the allocation waited for room, the device of the home may have been excluded. An extent
        // without a second copy would then have no copy at all.
        let may_be_alone =
            || self.store.member(not).is_current() && self.store.devices.iter().any(Member::is_lacking);
        let has_other = self.store.devices.iter().any(|m| m.id != not && m.is_filled());
        if !has_other && may_be_alone() {
            return Ok(SlotNumber::NONE);
        }
        match self.allocate_second(extent, home, second, image).await {
            // The other devices are full, or a device that is being added has no slots yet.
            Err(error) if error.kind() == ErrorKind::NoSpace && may_be_alone() => Ok(SlotNumber::NONE),
            result => result,
        }
    }

    /// Takes a slot on another device than the home's: on the device that the policy wants, else on any
    /// device with room.
    async fn allocate_second(
        &self,
        extent: ExtentId,
        home: SlotNumber,
        second: Second,
        image: Option<DeviceId>,
    ) -> Result<SlotNumber> {
        let not = self.store.device_of(home);
        if let Some(image) = image.filter(|&image| self.store.member(image).is_filled()) {
            return self.allocate_anywhere(extent, |device| device == image).await;
        }
        let wanted = second.device().filter(|&device| device != not && !self.is_avoided(device));
        if let Some(slot) = wanted.and_then(|device| self.store.take(extent, device)) {
            return Ok(slot);
        }
        self.allocate_anywhere(extent, |device| device != not).await
    }

    /// Stops new extents on a device for a while if a write to a new extent failed because the file system
    /// beneath the device is full. Returns false for any other error, with two copies, or if no other device
    /// has room.
    pub fn leave_full(&self, home: SlotNumber, error: &Error) -> bool {
        let device = self.store.device_of(home);
        let is_other_open = || self.with_policy(|_, view| view.with_room().any(|d| d.id != device));
        let has_other = || is_other_open() || self.store.reopen_full(|other| other.id != device);
        if error.kind() != ErrorKind::NoSpace || self.store.shape.copies > 1 || !has_other() {
            return false;
        }
        let member = self.store.member(device);
        tracing::warn!(
            device = %self.store.member(device).describe(),
            "the file system below the device is full: new data goes elsewhere"
        );
        member.full_until.set(Some(self.rt.now() + LEFT_ALONE));
        self.store.state.borrow_mut().set_open(device, false);
        true
    }

    /// Takes a slot for the extent on an allowed device: devices that are not avoided first, then by most
    /// free slots.
    ///
    /// Without a free slot, waits for discards (at most `Devices::longest_silence`), commits, or writes a
    /// checkpoint, if any of them may free slots, and tries again.
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
            if let Some(slot) = roomy.into_iter().find_map(|(_, device)| self.store.take(extent, device)) {
                return Ok(slot);
            }
            if self.store.release_trims() {
                continue;
            }
            if self.store.state.borrow().trimming() > 0 && waited < self.store.devices.longest_silence() {
                self.rt.sleep(WAIT_FOR_TRIM).await;
                waited += WAIT_FOR_TRIM;
                continue;
            }
            if self.store.state.borrow().freeing() > 0 {
                self.durable.commit(Origin::Guest).await?;
                continue;
            }
            if self.store.state.borrow().has_outdated() {
                self.durable.checkpoint().await?;
                continue;
            }
            if self.store.reopen_full(|member| may(member.id)) {
                continue;
            }
            // A commit frees the slots of extra copies dropped here or earlier.
            let is_due = || {
                let state = self.store.state.borrow();
                state.freeing_blocks() > 0 || state.pending() * 2 > self.durable.journal.most_pending()
            };
            if self.durable.reclaim_extras(&may) || is_due() {
                self.durable.commit(Origin::Guest).await?;
            } else {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "no device of the volume has a free slot: discard unused data (fstrim), or make a \
                     larger volume",
                ));
            }
        }
    }
}

impl Shape {
    /// Returns the home instead of an extra copy if two required copies are configured: an extra copy alone
    /// is only one copy.
    pub fn enough(&self, target: WriteTarget) -> WriteTarget {
        match target {
            WriteTarget::Extra(_) if self.copies > 1 => WriteTarget::Home,
            _ => target,
        }
    }
}

impl<D: Device> Store<D> {
    /// Marks the parts touched by a piece as valid, after the write to the required copies.
    pub fn make_valid(&self, piece: &Piece, entry: Entry) {
        let mut state = self.state.borrow_mut();
        // Other tasks with the shared lock may have made parts valid since `entry` was read, or exchanged the
        // copies.
        let now = state.map.get(piece.extent);
        let valid = entry.valid | now.valid | self.shape.parts_touched(&piece.range);
        let known = now.home != SlotNumber::NONE && now.home != SlotNumber::LOST;
        if !known {
            self.note_new(&entry);
        }
        let entry = if known { now } else { entry };
        let partly_lost = entry.partly_lost && !self.shape.are_all_parts(piece.extent, valid);
        state.set_extent(piece.extent, Entry { valid, partly_lost, ..entry });
    }

    /// Notes a new extent of the map. If its second copy is missing, [`Upkeep::complete_all`] finds the
    /// extent from now on, not earlier.
    pub fn note_new(&self, entry: &Entry) {
        if self.shape.copies > 1 && entry.second == SlotNumber::NONE {
            self.incomplete.set(true);
        }
    }

    /// Lets devices have new extents again after a full file system had stopped them. Returns false if there
    /// was no such device.
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

    /// Frees the slots of an entry that no record has ever named.
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
}
