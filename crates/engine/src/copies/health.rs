//! Devices that fail, go missing and come back. The survivors record a state before anything depends on the
//! state.

use crate::core::{Durable, Extents, Store};
use crate::devices::{Devices, Member, NeededTable, SuperblockWrite, number_next, write_superblocks};
use crate::epochs::Epochs;
use crate::map::has_moved_home;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::superblock::{DeviceState, Role, Superblock};
use braid_runtime::{Device, Runtime, join_all};
use std::collections::BTreeSet;

impl<D: Device> Devices<D> {
    /// True if the superblocks hold the states of all devices.
    #[inline]
    pub fn are_states_recorded(&self) -> bool {
        self.states_recorded.get() == self.states_changed.get()
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Returns an error if the policy forbids writes without a device of some class, and such a device is
    /// lacking or an epoch cannot end.
    #[inline]
    pub fn refuse_degraded(&self) -> Result<()> {
        match self.policy.stops_without() {
            None => Ok(()),
            Some(class) => self.refuse_without(class),
        }
    }

    #[cold]
    fn refuse_without(&self, class: DeviceClass) -> Result<()> {
        let lacking =
            self.store.devices.iter().find(|member| member.entry.class == class && member.is_lacking());
        let Some(member) = lacking else { return self.refuse_beyond_bound() };
        let text = format!(
            "{} is {}, and the policy stops writes without this device: bring the device back or replace \
             it, or continue without it (braid policy {} 'pass,on-disk-failure=continue')",
            member.describe(),
            member.state(),
            self.store.devices.superblock().name
        );
        Err(Error::new(ErrorKind::Degraded, text))
    }

    fn refuse_beyond_bound(&self) -> Result<()> {
        let Some(why) = self.active_epochs().and_then(Epochs::failure) else { return Ok(()) };
        let text = format!(
            "the policy stops writes beyond its bound, and no epoch can end: {why}; repair the cause, or \
             continue without the bound (braid policy {} 'pass,order=epoch,on-disk-failure=continue')",
            self.store.devices.superblock().name
        );
        Err(Error::new(ErrorKind::Degraded, text))
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Excludes a device that could not keep its writes, if all its data is elsewhere. The survivors have
    /// recorded the failure when the function returns.
    ///
    /// # Errors
    /// Returns `error` if data lies on the device alone.
    pub async fn give_up(&self, device: DeviceId, error: Error) -> Result<()> {
        self.lose(device, error)?;
        self.record_states().await
    }

    /// Like [`Durable::give_up`], without the record.
    pub fn lose(&self, device: DeviceId, error: Error) -> Result<()> {
        let member = self.store.member(device);
        if !matches!(member.state(), DeviceState::Failed | DeviceState::Removed) {
            if self.fence.is_taken() || !self.survives(device) {
                self.note_loss();
                return Err(error);
            }
            self.exclude(device, DeviceState::Failed);
            self.store.doubt_log();
            member.stats.borrow_mut().last_error = Some(error.to_string());
            let described = self.store.member(device).describe();
            tracing::error!(code = "device-failed", %device, %error, "{described} failed: continuing without it");
        }
        Ok(())
    }

    /// Notes that a device may have lost writes, whether or not the volume can continue without the device.
    /// Earlier reads from the device must not be copied, and leave the memory cache.
    pub fn note_loss(&self) {
        self.store.devices.losses.set(self.store.devices.losses.get() + 1);
        self.guests.forget();
        self.store.doubt_log();
    }

    /// Excludes a device from reads and writes; the device misses all later writes.
    ///
    /// The time of a loss is unknown: bytes read from the device since its last flush are in doubt, and so
    /// are copies made of such bytes. The copies are not read any more.
    pub(super) fn exclude(&self, device: DeviceId, state: DeviceState) {
        if self.store.devices.is_joining(device) {
            return self.store.devices.turn_away(device);
        }
        if self.store.member(device).state() == DeviceState::Draining {
            // The superblocks already say *draining*. The device's extents are rebuilt from the other copies.
            self.store.devices.drains.set_lost(device, true);
        }
        self.store.member(device).set_state(state);
        self.store.devices.note_change();
        self.guests.forget();
        let mut volume = self.store.state.borrow_mut();
        volume.set_open(device, false);
        volume.prefer_what_stayed(device);
        if self.store.shape.copies == 1 {
            // With one required copy, only a device with nothing but clean extra copies can be excluded.
            return self.forget_lost_extras();
        }
        // The device's copies lack unflushed writes. Extents elsewhere in a span keep their second copies. A
        // new extent is in no map yet: only its lock reveals the extent.
        let mut lacking = volume.extents_on(device);
        for span in volume.behind.all() {
            let is_new = |extent: &ExtentId| {
                let is_there = !matches!(volume.map.get(*extent).home, SlotNumber::NONE | SlotNumber::LOST);
                !is_there && self.locks.try_exclusive(*extent).is_none()
            };
            lacking.extend(self.store.shape.extents_of(span).filter(is_new));
        }
        let mut doubted = BTreeSet::new();
        for extent in lacking.into_iter().filter(|_| !planted(Bug::LossNotDoubted)) {
            let span = self.store.shape.span_of(extent);
            if volume.behind.is_known(span) {
                volume.behind.doubt_extent(extent);
                doubted.insert(span);
            }
        }
        if volume.extras.len() > 0 {
            volume.suspect.extend(doubted);
            self.forget_lost_extras();
        }
    }

    /// True if all data on a device is elsewhere, current: copies of extents, the journal, and the map.
    ///
    /// Extents that were discarded or moved count with their former copies, as long as a crash would restore
    /// these copies. A deferred write in flight does not count: no guest has the reply, and before the reply
    /// the write goes to the other copy ([`Extents::write_required`]).
    pub fn survives(&self, device: DeviceId) -> bool {
        if self.store.devices.is_joining(device) {
            return true;
        }
        let is_current = |d: DeviceId| self.store.member(d).is_current();
        // The device was the source of a resync, and no flush has proved since that the device held the
        // copied bytes.
        if self.store.member(device).is_unproved_source() {
            return false;
        }
        if self.store.shape.copies < 2 {
            return self.store.devices.is_cache_of_adopted(device) && self.adopted_survives(device);
        }
        // A void ring is in use until the superblocks say *void*.
        let rings = self.store.devices.rings_of(&self.store.devices.superblock());
        let has_ring = |d| is_current(d) && rings.iter().any(|(ring, _)| *ring == d);
        if !self.journal.survives(device, has_ring) || !self.store.devices.pages_survive(device) {
            return false;
        }
        let state = self.store.state.borrow();
        let on = |slot: SlotNumber| state.space.locate(slot).map(|s| s.device);
        let now = state.map.iter().map(|(extent, entry)| (extent, entry, true));
        now.chain(state.entries_of_journal()).all(|(extent, entry, may_lack)| {
            let (home, second) = (on(entry.home), on(entry.second));
            let other = match (home == Some(device), second == Some(device)) {
                (false, false) => return true,
                (true, _) => second,
                (_, true) => home,
            };
            // In a span that is behind, the second copy lacks writes, and the home does not. Two exceptions:
            // the copies were exchanged since, or the journal names a replaced copy that held all flushed
            // writes (`may_lack` is false).
            let now = state.map.get(extent);
            let is_exchanged = || now.home == entry.second;
            // If an extent moved off the device, the second copy becomes the home
            // (`State::prefer_what_stayed`).
            let behind = (may_lack || has_moved_home(&entry, &now))
                && state.behind.lacks_flushed(extent)
                && !is_exchanged();
            other.is_some_and(is_current) && !(behind && home == Some(device) && is_current(device))
        }) && state.extras.dirty_on(device) == 0
    }

    /// Changes the superblock, and writes the superblock with the current states of devices to all written
    /// devices.
    pub async fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let _alone = self.store.devices.writer.acquire(1).await;
        change(&mut self.store.devices.superblock.borrow_mut());
        self.write_superblock().await
    }

    /// Records an incompatible feature in the superblocks: once the function returns, only versions that know
    /// the feature can open the volume.
    pub async fn require_feature(&self, incompat: u64) -> Result<()> {
        let _alone = self.store.devices.writer.acquire(1).await;
        if self.store.devices.superblock().features.incompat & incompat == incompat {
            return Ok(());
        }
        let before = self.store.devices.superblock().features.incompat;
        self.store.devices.superblock.borrow_mut().features.incompat |= incompat;
        // The feature bit is not durable: nothing may rely on the bit.
        let forget = |_: &_| self.store.devices.superblock.borrow_mut().features.incompat = before;
        self.write_superblock().await.inspect_err(forget)
    }

    /// Waits until the superblocks hold all states of devices. To be called before any acknowledgement that
    /// depends on a state.
    #[inline]
    pub async fn record_states(&self) -> Result<()> {
        if self.store.devices.are_states_recorded() {
            return Ok(());
        }
        Box::pin(self.record_states_now()).await
    }

    async fn record_states_now(&self) -> Result<()> {
        let _alone = self.store.devices.writer.acquire(1).await;
        match self.store.devices.are_states_recorded() {
            true => Ok(()),
            false => self.write_superblock().await,
        }
    }

    /// Flushes the remaining devices before a superblock declares a device failed: unflushed copies of its
    /// data are durable only on the failed device. A device whose flush fails is lost, as in a commit.
    async fn flush_what_stays(&self) -> Result<()> {
        if self.store.shape.copies == 1 {
            return if planted(Bug::AdoptedNotFlushed) { Ok(()) } else { self.flush_adopted().await };
        }
        let written = self.store.devices.iter().filter(|member| member.is_written());
        let flushes = written.map(async |member| match member.flush(&self.rt).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = Error::io(format_args!("{} could not flush", member.describe()), &error);
                self.lose(member.id, error)
            }
        });
        join_all(flushes).await.into_iter().collect()
    }

    /// Writes the superblock to all written devices. The caller holds the permit for superblocks.
    async fn write_superblock(&self) -> Result<()> {
        self.confirm_own().await?;
        loop {
            let states = self.store.devices.states_changed.get();
            if states != self.store.devices.states_recorded.get() {
                self.flush_what_stays().await.inspect_err(|error| self.fail(error.clone()))?;
                if states != self.store.devices.states_changed.get() {
                    continue;
                }
            }
            let (superblock, is_renewed) = {
                let mut superblock = self.store.devices.superblock.borrow_mut();
                let is_renewed = number_next(&mut superblock, self.store.devices.iter());
                let epoch = superblock.epoch;
                for (entry, member) in superblock.devices.iter_mut().zip(self.store.devices.iter()) {
                    entry.state = member.state();
                    if member.is_in_step() {
                        entry.in_step = epoch;
                    }
                    // A device that failed before the role was written keeps the role, too.
                    entry.role = match self.store.devices.is_leaving(member.id) {
                        true => entry.role | Role::LEAVING,
                        false => entry.role.without(Role::LEAVING),
                    };
                }
                (superblock.clone(), is_renewed)
            };
            match write_superblocks(&self.rt, self.store.devices.iter(), &superblock, is_renewed).await {
                SuperblockWrite::All => {
                    self.store.devices.states_recorded.set(states);
                    self.store.doubt_log();
                    return Ok(());
                }
                SuperblockWrite::Failed { device, error, table } => {
                    if table == NeededTable::Before {
                        // The sequence number selects the half to write. The next attempt goes to the same
                        // half again.
                        self.store.devices.superblock.borrow_mut().sequence += 1;
                    }
                    self.lose(device, error).inspect_err(|error| self.fail(error.clone()))?
                }
            }
        }
    }

    /// Declares returned devices active once no copy is behind and a commit has made the resync durable.
    ///
    /// Second copies deferred by the policy are no obstacle: they lie on devices that were current during the
    /// write, so a returned device lacks none of the deferred writes.
    pub async fn welcome_returned(&self) -> Result<()> {
        let returned = self.store.devices.iter().filter(|m| m.state() == DeviceState::Returning);
        let returned: Vec<DeviceId> = returned.map(|m| m.id).collect();
        let lacks_any = || !self.store.state.borrow().behind.behind_spans().is_empty();
        if returned.is_empty() || lacks_any() {
            return Ok(());
        }
        self.commit(braid_policy::Origin::Background).await?;
        if !planted(Bug::ReturnedWithoutCheckpoint) {
            // The map images and journals of returned devices lack the changes made during the absence.
            self.checkpoint().await?;
        }
        let are_still_returning =
            || returned.iter().all(|&device| self.store.member(device).state() == DeviceState::Returning);
        if lacks_any() || !are_still_returning() {
            return Ok(());
        }
        for &device in &returned {
            self.store.member(device).set_state(DeviceState::Active);
            self.store.state.borrow_mut().set_open(device, true);
        }
        // From now on reads may go to the returned devices; copies in flight may have read elsewhere.
        self.store.devices.note_change();
        self.change_superblock(|_| ()).await?;
        tracing::info!(code = "device-returned", devices = ?returned, "devices are up to date again");
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// Updates whether the pending log is in doubt. The log's writes may be lost while a device with a failed
    /// flush is in use, and until the superblocks name such a device as failed.
    fn doubt_log(&self) {
        let is_used = |member: &&Member<D>| member.is_written() || !self.devices.are_states_recorded();
        let doubted = self.devices.iter().filter(is_used).any(Member::has_lost_writes);
        self.state.borrow_mut().doubt_log(doubted);
    }
}
