//! Devices that fail, go missing and come back: their states, recorded on the survivors before anything
//! depends on them.

use super::Member;
use crate::core::Core;
use crate::epochs::Epochs;
use crate::map::has_moved_home;
use crate::open::{self, Table, Written};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::superblock::{DeviceState, Role, Superblock};
use braid_runtime::{Device, Mode, Runtime, join_all};
use std::collections::BTreeSet;

impl<R: Runtime, D: Device> Core<R, D> {
    /// A device could not keep what it was given. Goes on without it if all that it holds is elsewhere, too:
    /// the survivors record that it has failed before this returns.
    ///
    /// # Errors
    /// `error` itself if something lies on this device alone.
    pub async fn give_up(&self, device: DeviceId, error: Error) -> Result<()> {
        self.lose(device, error)?;
        self.record_states().await
    }

    /// As [`Core::give_up`], but for the record.
    pub fn lose(&self, device: DeviceId, error: Error) -> Result<()> {
        let member = self.member(device);
        if !matches!(member.state(), DeviceState::Failed | DeviceState::Removed) {
            if self.fence.is_taken() || !self.survives(device) {
                self.note_loss();
                return Err(error);
            }
            self.exclude(device, DeviceState::Failed);
            self.doubt_log();
            member.stats.borrow_mut().last_error = Some(error.to_string());
            tracing::error!(device = %self.describe(device), %error, "device failed: going on without it");
        }
        Ok(())
    }

    /// A device may have lost what it was given, and perhaps the volume cannot go on without it: what was
    /// read from it before is not copied, and not kept in memory.
    pub fn note_loss(&self) {
        self.devices.losses.set(self.devices.losses.get() + 1);
        self.guests.forget();
        self.doubt_log();
    }

    /// What the pending log speaks of may be lost while a device is used whose flush has failed, and until
    /// the superblocks say that such a device was given up.
    fn doubt_log(&self) {
        let is_used = |member: &&Member<D>| member.is_written() || !self.are_states_recorded();
        let doubted = self.devices.iter().filter(is_used).any(Member::has_lost_writes);
        self.state.borrow_mut().doubt_log(doubted);
    }

    /// From now on a device is neither read nor written, and what it would have been given it lacks. When it
    /// lost that is not known: what was read from it since its last flush is no better, so copies made of
    /// that are not read any more.
    pub(super) fn exclude(&self, device: DeviceId, state: DeviceState) {
        if self.is_joining(device) {
            return self.turn_away(device);
        }
        if self.member(device).state() == DeviceState::Draining {
            // The superblocks say so already: what it held is made anew from the other copies.
            self.moves.drains.set_lost(device, true);
        }
        self.member(device).set_state(state);
        self.devices.note_change();
        self.guests.forget();
        let mut volume = self.state.borrow_mut();
        volume.set_open(device, false);
        volume.prefer_what_stayed(device);
        if self.shape.copies == 1 {
            // It held clean extra copies alone.
            return self.forget_lost_extras();
        }
        // Its copies lack what was not flushed, and other extents do not lose their second copy by that. A
        // new one is in no map yet: of that only the lock tells.
        let mut lacking = volume.extents_on(device);
        for span in volume.behind.all() {
            let is_new = |extent: &ExtentId| {
                let is_there = !matches!(volume.map.get(*extent).home, SlotNumber::NONE | SlotNumber::LOST);
                !is_there && self.locks.try_lock(Self::lock_number(*extent), Mode::Exclusive).is_none()
            };
            lacking.extend(self.shape.extents_of(span).filter(is_new));
        }
        let mut doubted = BTreeSet::new();
        for extent in lacking.into_iter().filter(|_| !planted(Bug::LossNotDoubted)) {
            let span = self.shape.span_of(extent);
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

    /// Whether all that lies on a device is elsewhere, as new: copies of extents, the journal, and the map.
    /// An extent that was discarded, or has got other copies, counts as before, too, as long as a crash would
    /// bring these back. A deferred write under way counts for nothing: no guest was told of it, and it goes
    /// to the other copy before one is ([`Core::write_required`]).
    pub fn survives(&self, device: DeviceId) -> bool {
        if self.is_joining(device) {
            return true;
        }
        let is_current = |d: DeviceId| self.member(d).is_current();
        // What another copy lacked was copied from it, and no flush has proved yet that it had that.
        if self.member(device).is_unproved_source() {
            return false;
        }
        if self.shape.copies < 2 {
            return self.is_cache_of_adopted(device) && self.adopted_survives(device);
        }
        // A ring that is void is in use until the superblocks say so.
        let rings = self.rings_of(&self.devices.superblock());
        let has_ring = |d| is_current(d) && rings.iter().any(|(ring, _)| *ring == d);
        if !self.journal.survives(device, has_ring) || !self.pages_survive(device) {
            return false;
        }
        let state = self.state.borrow();
        let on = |slot: SlotNumber| state.space.locate(slot).map(|s| s.device);
        let now = state.map.iter().map(|(extent, entry)| (extent, entry, true));
        now.chain(state.entries_of_journal()).all(|(extent, entry, may_lack)| {
            let (home, second) = (on(entry.home), on(entry.second));
            let other = match (home == Some(device), second == Some(device)) {
                (false, false) => return true,
                (true, _) => second,
                (_, true) => home,
            };
            // The second copy of a span that is behind lacks something, and the home does not. Not so if they
            // were exchanged since, or if the journal names a copy that has been replaced since, and had all
            // that a flush had promised (`may_lack`).
            let now = state.map.get(extent);
            let is_exchanged = || now.home == entry.second;
            // Of an extent that moved off the device, the second copy becomes the home
            // (`State::prefer_what_stayed`).
            let behind = (may_lack || has_moved_home(&entry, &now))
                && state.behind.lacks_flushed(extent)
                && !is_exchanged();
            other.is_some_and(is_current) && !(behind && home == Some(device) && is_current(device))
        }) && state.extras.dirty_on(device) == 0
    }

    /// An error while a device is lacking without which the policy lets guests change nothing.
    #[inline]
    pub fn refuse_degraded(&self) -> Result<()> {
        match self.policy.stops_without() {
            None => Ok(()),
            Some(class) => self.refuse_without(class),
        }
    }

    #[cold]
    fn refuse_without(&self, class: DeviceClass) -> Result<()> {
        let lacking = self.devices.iter().find(|member| member.entry.class == class && member.is_lacking());
        let Some(member) = lacking else { return self.refuse_beyond_bound() };
        let text = format!(
            "{} is {}, and the policy stops writes without it: bring it back or replace it, or go on without \
             (braid policy {} 'pass,on-disk-failure=continue')",
            self.describe(member.id),
            member.state(),
            self.devices.superblock().name
        );
        Err(Error::new(ErrorKind::Degraded, text))
    }

    fn refuse_beyond_bound(&self) -> Result<()> {
        let Some(why) = self.active_epochs().and_then(Epochs::failure) else { return Ok(()) };
        let text = format!(
            "the policy stops writes beyond its bound, and no epoch can end: {why}; mend that, or go on without the bound (braid policy {} \
             'pass,order=epoch,on-disk-failure=continue')",
            self.devices.superblock().name
        );
        Err(Error::new(ErrorKind::Degraded, text))
    }

    /// Changes what the superblocks say, with the states that devices are in now, on all devices that are
    /// written.
    pub async fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let _alone = self.devices.writer.acquire(1).await;
        change(&mut self.devices.superblock.borrow_mut());
        self.write_superblock().await
    }

    /// Waits until the superblocks say that only versions which know this feature may open the volume.
    pub async fn require_feature(&self, incompat: u64) -> Result<()> {
        let _alone = self.devices.writer.acquire(1).await;
        if self.devices.superblock().features.incompat & incompat == incompat {
            return Ok(());
        }
        let before = self.devices.superblock().features.incompat;
        self.devices.superblock.borrow_mut().features.incompat |= incompat;
        // While it is not durable, nothing may rely on it.
        let forget = |_: &_| self.devices.superblock.borrow_mut().features.incompat = before;
        self.write_superblock().await.inspect_err(forget)
    }

    /// Waits until the superblocks say which devices were given up. A task that depends on that calls it
    /// before an acknowledgement.
    #[inline]
    pub async fn record_states(&self) -> Result<()> {
        if self.are_states_recorded() {
            return Ok(());
        }
        Box::pin(self.record_states_now()).await
    }

    /// Whether the superblocks say so.
    #[inline]
    pub fn are_states_recorded(&self) -> bool {
        self.devices.states_recorded.get() == self.devices.states_changed.get()
    }

    async fn record_states_now(&self) -> Result<()> {
        let _alone = self.devices.writer.acquire(1).await;
        match self.are_states_recorded() {
            true => Ok(()),
            false => self.write_superblock().await,
        }
    }

    /// Before a superblock says that a device was given up: what was copied from there, and not flushed, only
    /// that device has durably. One that fails is lost, as by a commit.
    async fn flush_what_stays(&self) -> Result<()> {
        if self.shape.copies == 1 {
            return if planted(Bug::AdoptedNotFlushed) { Ok(()) } else { self.flush_adopted().await };
        }
        let written = self.devices.iter().filter(|member| member.is_written());
        let flushes = written.map(async |member| match member.flush(&self.rt).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = Error::io(format_args!("{} could not flush", self.describe(member.id)), &error);
                self.lose(member.id, error)
            }
        });
        join_all(flushes).await.into_iter().collect()
    }

    /// The caller is the only task that changes the superblocks.
    async fn write_superblock(&self) -> Result<()> {
        self.confirm_own().await?;
        loop {
            let states = self.devices.states_changed.get();
            if states != self.devices.states_recorded.get() {
                self.flush_what_stays().await.inspect_err(|error| self.fail(error.clone()))?;
                if states != self.devices.states_changed.get() {
                    continue;
                }
            }
            let superblock = {
                let mut superblock = self.devices.superblock.borrow_mut();
                superblock.sequence += 1;
                let epoch = superblock.epoch;
                for (entry, member) in superblock.devices.iter_mut().zip(self.devices.iter()) {
                    entry.state = member.state();
                    if member.is_in_step() {
                        entry.in_step = epoch;
                    }
                    // Also of one that was given up before this could be written.
                    entry.role = match self.is_leaving(member.id) {
                        true => entry.role | Role::LEAVING,
                        false => entry.role.without(Role::LEAVING),
                    };
                }
                superblock.clone()
            };
            match open::write_superblocks(&self.rt, self.devices.iter(), &superblock).await {
                Written::All => {
                    self.devices.states_recorded.set(states);
                    self.doubt_log();
                    return Ok(());
                }
                Written::Failed { device, error, table } => {
                    if table == Table::Before {
                        // The next one goes to the half that this one went to.
                        self.devices.superblock.borrow_mut().sequence += 1;
                    }
                    self.lose(device, error).inspect_err(|error| self.fail(error.clone()))?
                }
            }
        }
    }

    /// Once no copy is behind any more, and that is durable, devices that came back are current. What a
    /// policy wants behind lies on devices that were current when it was written: those that came back lack
    /// nothing of it.
    pub async fn welcome_returned(&self) -> Result<()> {
        let returned = self.devices.iter().filter(|m| m.state() == DeviceState::Returning);
        let returned: Vec<DeviceId> = returned.map(|m| m.id).collect();
        let lacks_any = || !self.state.borrow().behind.behind_spans().is_empty();
        if returned.is_empty() || lacks_any() {
            return Ok(());
        }
        self.commit(braid_policy::Origin::Background).await?;
        if !planted(Bug::ReturnedWithoutCheckpoint) {
            // Their map images and their journals lack what happened while they were away.
            self.checkpoint().await?;
        }
        let are_still_returning =
            || returned.iter().all(|&device| self.member(device).state() == DeviceState::Returning);
        if lacks_any() || !are_still_returning() {
            return Ok(());
        }
        for &device in &returned {
            self.member(device).set_state(DeviceState::Active);
            self.state.borrow_mut().set_open(device, true);
        }
        // Copies under way may have been read elsewhere than from now on.
        self.devices.note_change();
        self.change_superblock(|_| ()).await?;
        tracing::info!(devices = ?returned, "devices are up to date again");
        Ok(())
    }
}
