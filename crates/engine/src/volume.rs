//! The public interface of a volume: opening, shutdown, requests of guests, and administration.

use crate::adopted::refuse_moving_homes;
use crate::core::Core;
use crate::create::{checked_policy, room};
use crate::epochs::Epochs;
use crate::export::{Allocation, Durability, Export, Hints, Zeroing};
use crate::fence::Noted;
use crate::journal::Recovery;
use crate::open::{OpenOptions, open};
use crate::planted::{Bug, planted};
use crate::request::ticket::AdmittedRequest;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, Nanos, Op};
use braid_format::SlotNumber;
use braid_format::superblock::{DeviceState, Features, Phase, Superblock};
use braid_policy::{DeviceView, Flags, Origin, Policy};
use braid_runtime::{Buf, Device, Event, Runtime};
use std::rc::Rc;

/// A block device made of several devices. A handle: cheap to clone.
pub struct Volume<R, D> {
    pub(crate) core: Rc<Core<R, D>>,
    /// Hints of guests for requests through the handle.
    hints: Hints,
}

impl<R, D> Clone for Volume<R, D> {
    fn clone(&self) -> Volume<R, D> {
        Volume { core: self.core.clone(), hints: self.hints }
    }
}

/// Change of the superblock at the end of a shutdown.
pub(crate) type LastChange = Box<dyn FnOnce(&mut Superblock)>;

/// Extents examined by one query for allocation.
const MOST_EXTENTS_LOOKED_AT: u64 = 4096;

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Opens the volume on `devices`, given in any order, and recovers the volume after an unclean stop.
    /// Takes less than a second per TiB mapped. With two copies of each extent, one device may be missing,
    /// failed or outdated: the volume serves, and resynchronises present devices.
    ///
    /// # Errors
    /// - `Invalid` for a foreign, wrong, old or duplicated device, and for a cache larger than memory.
    /// - `Degraded` for devices that are missing, cannot be written, were used apart from the rest, or are
    ///   known to be older than missing devices.
    /// - `Unsupported` for a volume of a newer version.
    /// - `Corrupt` for damage.
    ///
    /// In all of these cases nothing was changed.
    pub async fn open(rt: R, devices: Vec<D>, options: OpenOptions) -> Result<(Volume<R, D>, Recovery)> {
        let devices = devices.into_iter().map(Rc::new).collect();
        let (core, recovery) = open(rt, devices, options).await?;
        Ok((Volume::of(core), recovery))
    }

    /// Creates a handle of an open volume.
    pub(crate) fn of(core: Rc<Core<R, D>>) -> Volume<R, D> {
        Volume { core, hints: Hints::default() }
    }

    /// Shuts the volume down. Waits for guests' requests, refuses new changes, stops background work, makes
    /// everything durable, and shortens the journal for a quick next opening. Reads are answered until the
    /// end, except reads of undecided ranges.
    ///
    /// # Errors
    /// Any error that prevents durability. `Io` if a device has late requests in flight (the device may still
    /// carry them out), or if guests or background work have not ended after two minutes and twice the
    /// longest repair time of a device: the volume is then
    /// as after a crash.
    pub async fn close(&self) -> Result<()> {
        self.close_with(async || None).await
    }

    /// Closes the volume as [`Volume::close`] does. Calls `last` once everything else is durable: the last
    /// superblocks carry the change returned by `last`.
    pub(crate) async fn close_with(&self, last: impl AsyncFnOnce() -> Option<LastChange>) -> Result<()> {
        let closed = self.shut_down(last).await;
        self.core.durable.end_leases().await;
        self.core.store.state.borrow_mut().end_log(closed.is_ok());
        self.core.durable.end_watch().await;
        closed.and_then(|()| self.core.store.devices.refuse_late())
    }

    async fn shut_down(&self, last: impl AsyncFnOnce() -> Option<LastChange>) -> Result<()> {
        let core = &self.core;
        // Limit of each wait (guests, background work, undecided homes): twice the longest deadline of a
        // request.
        let last_work = core.store.devices.longest_silence() * 2;
        // Guests first: their requests may need background work.
        let are_out = core.durable.within(last_work, core.guests.gate.shut()).await.is_some();
        core.jobs.stop();
        if !are_out || core.durable.within(last_work, core.jobs.ended()).await.is_none() {
            core.store.devices.refuse_late()?;
            let what = if are_out { "background work has" } else { "requests of guests have" };
            let text = format!("{what} not ended after {last_work}: the volume is not shut down");
            return Err(Error::new(ErrorKind::Io, text));
        }
        core.upkeep.end_last_epoch().await;
        if planted(Bug::CloseWithoutCommit) {
            core.durable.end_leases().await;
            return core.durable.change_superblock(|superblock| superblock.phase = Phase::Closed).await;
        }
        if core.extents.active_epochs().is_none() {
            core.upkeep.mend_undecided_homes(last_work).await;
        }
        core.durable.commit(Origin::Background).await?;
        core.durable.record_spans().await?;
        // All copies are flushed, so spans with equal copies need no resync. Each batch clears as many spans
        // as have room.
        let mut not_clean = usize::MAX;
        loop {
            let (all, _) = core.store.state.borrow().behind.len();
            let idle =
                core.store.state.borrow().behind.idle_since(Nanos::MAX, core.durable.journal.unreserved());
            if idle.is_empty() || all >= not_clean {
                break;
            }
            not_clean = all;
            core.store.state.borrow_mut().clear_spans(idle);
            core.durable.commit(Origin::Background).await?;
            if !core.durable.journal.has_room() {
                core.durable.checkpoint().await?;
            }
        }
        core.durable.clear_dirty_spans().await?;
        if core.extents.epochs.is_none() {
            core.store
                .state
                .borrow_mut()
                .prefer_what_lacks_nothing(|device| core.store.member(device).is_current());
        }
        core.durable.checkpoint().await?;
        core.durable.prove().await?;
        core.durable.flush_proofs().await?;
        core.durable.bring_witness_up_to_date().await?;
        core.extents.save_policy().await;
        let (fingerprint, dirty_blocks) = (core.durable.last_fingerprint().await?, core.store.dirty_blocks());
        let any_undecided = core.store.state.borrow().behind.any_span_undecided();
        let mut change = last().await;
        core.durable.end_leases().await;
        for phase in [Phase::Closing, Phase::Closed] {
            core.durable
                .change_superblock(|superblock| {
                    if let Some(change) = change.take() {
                        change(superblock);
                    }
                    superblock.features.incompat &= !Features::UNDECIDED;
                    superblock.features.incompat |= if any_undecided { Features::UNDECIDED } else { 0 };
                    (superblock.phase, superblock.dirty_blocks) = (phase, dirty_blocks);
                    if let Some((disk, fingerprint)) = fingerprint {
                        superblock.devices[disk.index()].fingerprint = fingerprint;
                    }
                })
                .await?;
        }
        core.durable.journal.failure().map_or(Ok(()), Err)
    }

    /// Excludes a device as if the device had failed: its copies no longer count, and the volume continues
    /// with the other devices. The next opening, or [`Volume::return_device`], resynchronises the device,
    /// unless another device has taken its place.
    ///
    /// # Errors
    /// `Invalid` if no such device exists or the device is not in use. `Degraded` if data lies on the device
    /// alone; nothing has changed then.
    pub async fn fail_device(&self, device: DeviceId) -> Result<()> {
        let core = &self.core;
        let Some(member) = core.store.devices.iter().find(|member| member.id == device) else {
            let problem =
                format!("the volume has no device {device}: it has {}", core.store.devices.iter().count());
            return Err(Error::new(ErrorKind::Invalid, problem));
        };
        if !member.is_written() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("device {device} is already {}", member.state()),
            ));
        }
        // The commit flushes all written devices: copies made from the device are proved.
        core.durable.commit(Origin::Background).await?;
        if !core.durable.survives(device) {
            let problem = format!(
                "device {device} holds the only copy of some data: wait until its copies are up to date \
                 (braid status), or stop the volume and discard the data (braid serve --distrust {device})"
            );
            return Err(Error::new(ErrorKind::Degraded, problem));
        }
        core.durable.give_up(device, Error::new(ErrorKind::Io, "excluded by the administrator")).await
    }

    /// Returns the devices that lack acknowledged writes, while other devices have them: missing, failed, or
    /// returning devices. With one required copy, also a device discarded by `--distrust`, or a lost clean
    /// cache.
    ///
    /// The devices' own superblocks may not say so. The next opening must know the list
    /// ([`crate::OpenOptions::outdated`]), whichever devices are present then.
    pub fn outdated_devices(&self) -> Vec<DeviceId> {
        self.core.store.devices.iter().filter(|member| member.is_lacking()).map(|member| member.id).collect()
    }

    /// Returns the record for the host to keep outside of the devices, for the next opening
    /// ([`crate::OpenOptions::noted`]). The record may be slightly older than the present state.
    pub fn noted(&self) -> Noted {
        let (core, superblock) = (&self.core, self.core.store.devices.superblock());
        Noted { epoch: superblock.epoch, owner: superblock.owner, batch: core.durable.journal.in_ring() }
    }

    /// Event notified if [`Volume::outdated_devices`] may have changed, before a guest gets the reply to a
    /// write that a device lacks.
    pub fn device_changes(&self) -> Event {
        self.core.store.devices.changed()
    }

    /// Changes the policy. No data is copied before the function returns; the new policy moves data in the
    /// background. If both policies have the same name, the new policy inherits learned state; otherwise the
    /// state is forgotten.
    ///
    /// # Errors
    /// `Invalid` for a policy that does not suit the devices, or leaves no room for the whole volume. Errors
    /// of the superblock's write.
    pub async fn set_policy(&self, text: &str) -> Result<()> {
        let core = &self.core;
        let devices = core.store.state.borrow().views.clone();
        let policy =
            braid_policy::parse(text, &devices).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
        let written = checked_policy(&*policy, core.store.shape.copies)?;
        let is_adopted = core.store.devices.superblock().adopted().is_some();
        if is_adopted {
            refuse_moving_homes(&*policy, &devices)?;
        }
        let stays = |epochs: &Epochs| {
            let device = epochs.device();
            !core.store.devices.is_leaving(device)
                && core.store.member(device).state() != DeviceState::Removed
        };
        if policy.keeps_epochs() && !core.extents.epochs.as_ref().is_some_and(stays) {
            let problem = format!(
                "policy '{text}' needs a disk with a journal for epochs, which exists only if the volume \
                 was created with it: use order=lba, or a new volume with a disk of layout=tail"
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        // Slots in use count as room: homes there need no other. With two copies, so do the slots of absent
        // devices, because the volume continues without them.
        let all = devices.into_iter().map(|view| {
            let member = core.store.member(view.id);
            let is_there = core.store.shape.copies > 1 || member.is_written();
            let stays = !matches!(member.state(), DeviceState::Draining | DeviceState::Removed);
            DeviceView { free: if is_there && stays { view.slots } else { 0 }, ..view }
        });
        let entries = core.store.devices.superblock().devices.clone();
        let Shape { extent_size, copies, .. } = core.store.shape;
        let (most, _) = room(&all.collect::<Vec<_>>(), &entries, &*policy, extent_size, copies);
        if core.store.shape.volume_size > most && !is_adopted {
            let fitting = braid_base::written(&format!("{}B", most.0));
            let problem = format!(
                "policy '{text}' leaves room for {most} of the volume's {}, because the policy keeps a part \
                 of the devices for extra copies: add a disk (braid device add), or use a policy without \
                 extra copies; a volume for this policy is created with --size {fitting} at most",
                core.store.shape.volume_size
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let (old, learned) = core.extents.with_policy(|policy, view| (policy.name(), policy.save(view)));
        let same = old == policy.name();
        self.replace_policy(policy);
        if same {
            core.extents.with_policy(|policy, view| policy.restore(&learned, view));
        }
        core.durable.change_superblock(|superblock| superblock.policy = written).await?;
        core.extents.save_policy().await;
        Ok(())
    }

    /// Returns the policy in each mode available to [`Volume::switch_mode`], and the index of the present
    /// mode.
    ///
    /// The list is empty if the policy has no choice of modes, and on a volume with two copies: a mode may
    /// keep written data on one SSD alone. If time passes `haste` times as fast, the policy's times are
    /// shorter by the same factor.
    pub fn modes(&self, haste: u32) -> (Vec<String>, usize) {
        let policy = self.core.policy.borrow();
        let modes = if self.core.store.shape.copies > 1 { Vec::new() } else { policy.modes(haste) };
        (modes, policy.mode())
    }

    /// Switches the policy to another of its modes until the volume closes. No data is copied before the
    /// function returns. The policy keeps its learned state.
    pub fn switch_mode(&self, mode: usize) {
        let core = &self.core;
        core.upkeep.moves.budget.lift();
        core.policy.switch(mode);
        core.upkeep.shrink_beyond_room();
        core.jobs.wake();
    }

    /// Replaces the policy by a policy object until the volume closes, for experiments and tests.
    pub fn replace_policy(&self, policy: Box<dyn Policy>) {
        self.core.upkeep.replace_policy(policy);
    }

    /// Waits until all journaled bytes of a recovered disk are in place, where other programs find the bytes,
    /// too. Returns at once if no recovery is under way.
    ///
    /// # Errors
    /// The last failure to apply, which is retried; or the damage, if only damaged extents are left.
    pub async fn complete_recovery(&self) -> Result<()> {
        self.core.extents.complete_recovery().await
    }

    /// Writes a checkpoint now, to shorten the journal. Checkpoints also happen on their own.
    pub async fn checkpoint(&self) -> Result<()> {
        self.core.durable.checkpoint().await
    }

    /// True if acknowledged changes outlive the process, in a pending log in [`crate::OpenOptions::memory`].
    pub fn has_pending_log(&self) -> bool {
        self.core.store.state.borrow().has_log()
    }

    /// Returns the policy with its settings, as `name,key=value,…`.
    pub fn policy(&self) -> String {
        braid_policy::written(&**self.core.policy.borrow())
    }

    /// Returns a copy of the superblock.
    pub fn superblock(&self) -> Superblock {
        self.core.store.devices.superblock().clone()
    }

    /// Compares all required copies that are not stale, compares clean extra copies, and counts the slots in
    /// use. For tests, on a volume at rest. Reads everything.
    ///
    /// # Errors
    /// `Corrupt` for unequal copies, and for slots that are leaked or used twice; errors of devices.
    pub async fn audit(&self) -> Result<()> {
        self.core.upkeep.audit().await
    }

    /// Flags from the handle's hints; each operation adds its own.
    #[inline]
    fn flags(&self) -> Flags {
        let Hints { metadata, sequential } = self.hints;
        Flags { metadata, sequential, ..Flags::default() }
    }

    /// Ends a request: counts the request in the statistics.
    #[inline]
    fn ended<T>(
        &self,
        admitted: &AdmittedRequest,
        result: Result<T>,
        record: impl FnOnce(&mut crate::GuestStats, Nanos),
    ) -> Result<T> {
        self.core.store.state.borrow_mut().publish();
        let took = self.core.rt.now().saturating_sub(admitted.start);
        let mut guests = self.core.guests.stats.borrow_mut();
        guests.errors += u64::from(result.is_err());
        record(&mut guests, took);
        result
    }
}

impl<R: Runtime, D: Device> Export for Volume<R, D> {
    fn size(&self) -> Bytes {
        self.core.store.shape.volume_size
    }

    fn preferred_block(&self) -> Bytes {
        self.core.store.shape.block_size
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        let admitted = self.core.admit(Op::Read, offset, into.len(), self.flags())?;
        if let Some(delay) = self.core.delay(&admitted) {
            delay.await;
        }
        let result = self.core.read(offset, into).await;
        self.ended(&admitted, result, |guests, took| {
            guests.reads += 1;
            guests.read_bytes += into.len().0;
            guests.read_latency.record(took);
        })
    }

    async fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> Result<()> {
        let flags = Flags { fua: durability == Durability::Fua, ..self.flags() };
        let admitted = self.core.admit(Op::Write, offset, from.len(), flags)?;
        if let Some(delay) = self.core.delay(&admitted) {
            delay.await;
        }
        let result = self.core.write(offset, from, durability).await;
        self.ended(&admitted, result, |guests, took| {
            guests.writes += 1;
            guests.write_bytes += from.len().0;
            guests.write_latency.record(took);
        })
    }

    async fn flush(&self) -> Result<()> {
        let admitted = self.core.admit(Op::Flush, Bytes::ZERO, Bytes::ZERO, self.flags())?;
        if let Some(delay) = self.core.delay(&admitted) {
            delay.await;
        }
        let result = self.core.durable.flush_for_guest().await;
        self.ended(&admitted, result, |guests, took| {
            guests.flushes += 1;
            guests.flush_latency.record(took);
        })
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        let admitted = self.core.admit(Op::Discard, offset, len, self.flags())?;
        if let Some(delay) = self.core.delay(&admitted) {
            delay.await;
        }
        let result = self.core.discard(offset, len).await;
        self.ended(&admitted, result, |guests, _| guests.discards += 1)
    }

    fn discards_to_zeros(&self) -> bool {
        !self.core.store.state.borrow().map.is_of_adopted()
    }

    async fn write_zeroes(
        &self,
        offset: Bytes,
        len: Bytes,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<()> {
        let op = if zeroing == Zeroing::MayDiscard { Op::Discard } else { Op::Write };
        let fua = durability == Durability::Fua;
        let flags = Flags { fua, zeros: op == Op::Write, ..self.flags() };
        let admitted = self.core.admit(op, offset, len, flags)?;
        if let Some(delay) = self.core.delay(&admitted) {
            delay.await;
        }
        let result = self.core.zero(offset, len, zeroing, durability).await;
        self.ended(&admitted, result, |guests, _| guests.discards += 1)
    }

    async fn prefetch(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.core.store.shape.check_range(offset, len)?;
        for piece in self.core.store.shape.pieces(offset, len) {
            self.core.memory.prefetch(&piece).await?;
        }
        Ok(())
    }

    fn with_hints(&self, hints: Hints) -> Volume<R, D> {
        Volume { core: self.core.clone(), hints }
    }

    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        let (shape, state) = (&self.core.store.shape, self.core.store.state.borrow());
        let mapped = |at: Bytes| state.map.get(shape.extent_of(at)).home != SlotNumber::NONE;
        // Bounded: the frontend asks again for the rest, and other tasks run in between.
        let end = (offset + limit.min(shape.extent_size * MOST_EXTENTS_LOOKED_AT)).min(shape.volume_size);
        let first = mapped(offset);
        let mut at = offset.align_down(shape.extent_size) + shape.extent_size;
        while at < end && mapped(at) == first {
            at += shape.extent_size;
        }
        let allocation = if first { Allocation::Data } else { Allocation::Hole };
        (allocation, at.min(end) - offset)
    }
}
