//! Status for administrators, and explanations of the place of a byte.

use crate::core::Upkeep;
use crate::devices::DrainStatus;
use crate::devices::Member;
use crate::epochs::Epochs;
use crate::map::{Other, State};
use crate::moves::MovesStatus;
use crate::shape::Shape;
use crate::stats::{BackgroundStats, DeviceStats, GuestStats};
use crate::{Result, Volume};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos};
use braid_format::superblock::{DeviceState, Layout};
use braid_format::{SlotNumber, Uuid};
use braid_runtime::{Device, Runtime};
use std::ops::Range;

/// Status of a volume at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Name of the volume.
    pub name: String,
    /// UUID of the volume.
    pub uuid: Uuid,
    /// Sizes of the volume and its units.
    pub shape: Shape,
    /// The policy with its settings.
    pub policy: String,
    /// Class of devices that the policy needs and the volume lacks; the policy uses the available devices.
    pub policy_lacks: Option<String>,
    /// Extents with a home.
    pub mapped_extents: u32,
    /// Extents with lost bytes: their device was discarded, or a repair could not prove their places. Reads
    /// fail until the extents are written or discarded.
    pub lost: Vec<ExtentId>,
    /// Lost ranges: parts of lost extents not written again, and ranges in a damaged part of a recovered
    /// disk's epoch journal. Reads fail. The second kind is readable once all of its extents is written or
    /// discarded.
    pub damaged: Vec<Range<Bytes>>,
    /// Blocks with an extra copy, and the dirty ones of these.
    pub extra_blocks: (usize, usize),
    /// Extents in the memory cache, and their limit.
    pub cached_extents: (usize, usize),
    /// Bytes of memory used by the map.
    pub map_memory: usize,
    /// Approximate bytes of memory used by the policy.
    pub policy_memory: usize,
    /// Pending changes: not yet committed.
    pub pending_changes: usize,
    /// Map pages older than the journal.
    pub stale_pages: usize,
    /// Bytes of the journal that a recovery would read.
    pub journal: Bytes,
    /// Spans whose copies may differ, and the spans of these that are behind.
    pub spans: (usize, usize),
    /// Bytes of the volume that a copy lacks, and of extents whose second copy does not exist yet.
    pub behind: Bytes,
    /// The part of `behind` deferred by the policy.
    pub deferred: Bytes,
    /// The part of `deferred` that the disk has in its epoch journal, not in place: no loss of the SSDs would
    /// cost these bytes.
    pub journaled: Bytes,
    /// Newest epoch that the image disk alone can restore; none if the image is not a past state of the
    /// volume.
    pub epoch: Option<u64>,
    /// Reason why no epoch can end; the image disk may then lack more than the policy's bound.
    pub epoch_failure: Option<String>,
    /// Bytes that a recovered disk has in its epoch journal and not yet in place; none once everything is in
    /// place.
    pub unapplied: Option<Bytes>,
    /// Reason of the last failure to write these bytes in place, or damage of the epoch journal.
    pub unapplied_failure: Option<String>,
    /// Bytes of the volume in a span.
    pub span_size: Bytes,
    /// Reason why flushes fail for good.
    pub failure: Option<String>,
    /// Statistics of guests' requests.
    pub guests: GuestStats,
    /// Statistics of background work.
    pub background: BackgroundStats,
    /// Progress of the policy's plan.
    pub moves: MovesStatus,
    /// The devices by id.
    pub devices: Vec<DeviceStatus>,
}

/// Counters that change all the time, for frequent polling: cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// Bytes copied by migrations.
    pub migrated_bytes: u64,
    /// Bytes of the volume that a copy lacks and no epoch journal has.
    pub behind: Bytes,
    /// The devices by id.
    pub devices: Vec<DeviceGlance>,
}

/// Counters of a device that change all the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceGlance {
    /// Requests of guests.
    pub requests: u64,
    /// Bytes that guests read and wrote.
    pub bytes: u64,
    /// Sum of the response times of guests' requests.
    pub time: Nanos,
    /// Slots in use.
    pub used: u32,
}

/// Status of a device at one moment.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Id of the device.
    pub id: DeviceId,
    /// SSD or HDD.
    pub class: DeviceClass,
    /// State of the device.
    pub state: DeviceState,
    /// True if extents lie on the device at their own addresses.
    pub keeps_addresses: bool,
    /// True if the device is an adopted disk: with earlier data, and equal to the volume byte by byte.
    pub is_adopted: bool,
    /// Emulated model; empty for none.
    pub model: String,
    /// UUID of the device.
    pub uuid: Uuid,
    /// Size of the device.
    pub size: Bytes,
    /// Extent slots.
    pub slots: u32,
    /// Free extent slots.
    pub free: u32,
    /// Guest requests in flight.
    pub in_flight: u32,
    /// Share of the device's time that moves of the plan may take now.
    pub move_share: f64,
    /// For a slow device that answers in time: how many times longer than usual requests take.
    pub times_slower: Option<f64>,
    /// Upper bound of the bytes of the volume that the loss of the device would cost now. Exact unless more
    /// than 16,384 pieces of extents are behind, or the device has the journal of two SSDs before an adopted
    /// disk.
    pub loss: Bytes,
    /// Bytes of all writes requested from the device since the opening.
    pub written: Bytes,
    /// Time with a request of any origin at the device since the opening; zero for a device that always
    /// answers.
    pub busy: Nanos,
    /// Progress of the removal, while the device drains.
    pub drain: Option<DrainStatus>,
    /// Statistics of the device.
    pub stats: DeviceStats,
    /// The policy's figures of the device.
    pub figures: Vec<(&'static str, f64)>,
}

/// The place of a byte of the volume, and the reason.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Offset of the byte in the volume.
    pub offset: Bytes,
    /// Extent of the byte.
    pub extent: ExtentId,
    /// Home of the byte: device, and offset on the device.
    pub home: Option<(DeviceId, Bytes)>,
    /// True if the byte was written since the allocation of its extent; otherwise the byte reads as zero.
    pub written: bool,
    /// Second required copy: device, offset on the device, and true unless the two copies are equal.
    pub second: Option<(DeviceId, Bytes, bool)>,
    /// Extra copy: device, and true if dirty.
    pub extra: Option<(DeviceId, bool)>,
    /// True if the memory cache holds the extent.
    pub cached: bool,
    /// The policy's reason, with numbers.
    pub reason: String,
}

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Returns the status now. Costs a copy of the counters, and a look at the homes of at most 16,384 pieces
    /// of extents that are behind.
    pub fn status(&self) -> Status {
        let core = &self.core;
        let (state, superblock) = (core.store.state.borrow(), core.store.devices.superblock());
        let (policy, now) = (core.policy.borrow(), core.rt.now());
        let exposures = state.exposures(|device| core.store.member(device).is_current());
        // The loss of SSDs does not cost the bytes in the disk's epoch journal.
        let lag = core.extents.active_epochs().map_or(Bytes(u64::MAX), |epochs| epochs.lag());
        let device = |member: &Member<D>| {
            let (view, exposure) = (&state.views[member.id.index()], exposures[member.id.index()]);
            DeviceStatus {
                id: member.id,
                class: member.entry.class,
                state: core.upkeep.reported_state(member),
                keeps_addresses: member.entry.layout != Layout::Head,
                is_adopted: member.entry.layout == Layout::Adopted,
                model: member.entry.model.clone(),
                uuid: member.entry.uuid,
                size: member.entry.size,
                slots: view.slots,
                free: view.free,
                in_flight: view.in_flight,
                move_share: core.upkeep.move_share(member.id),
                times_slower: member.speed.times_slower(),
                loss: (exposure.alone + exposure.behind.min(lag)).max(core.durable.named_without(member.id)),
                written: Bytes(member.written_bytes.get()),
                busy: member.busy.until(now),
                drain: core.upkeep.drain_status(member.id),
                stats: member.stats.borrow().clone(),
                figures: policy.figures(member.id),
            }
        };
        let deferred = state.behind.deferred();
        let (unapplied, unapplied_failure) = core.extents.epochs.as_ref().and_then(Epochs::recovery).unzip();
        Status {
            name: superblock.name.clone(),
            uuid: superblock.volume,
            shape: core.store.shape,
            policy: braid_policy::written(&**policy),
            policy_lacks: core.policy.lacks(),
            mapped_extents: state.map.mapped(),
            lost: state.map.lost(),
            damaged: {
                let of_epochs = core.extents.epochs.as_ref().map_or_else(Vec::new, Epochs::damaged);
                [of_epochs, lost_parts(&state, &core.store.shape)].concat()
            },
            extra_blocks: (state.extras.len(), state.extras.dirty()),
            cached_extents: core.guests.cache.borrow().len_and_limit(),
            map_memory: state.memory(),
            policy_memory: policy.memory(),
            pending_changes: state.pending(),
            stale_pages: state.stale_pages(),
            journal: core.durable.journal.live_room(),
            spans: state.behind.len(),
            behind: state.behind.total() + core.upkeep.single_copies(&state),
            deferred,
            journaled: core
                .extents
                .active_epochs()
                .map_or(Bytes::ZERO, |epochs| deferred.saturating_sub(epochs.lag())),
            epoch: core.extents.epochs.as_ref().and_then(|epochs| epochs.newest()),
            epoch_failure: core.extents.active_epochs().and_then(|epochs| epochs.failure()),
            unapplied,
            unapplied_failure: unapplied_failure.flatten(),
            span_size: core.store.shape.extent_size * u64::from(superblock.span_extents),
            failure: core.durable.journal.failure().map(|e| e.to_string()),
            guests: core.guests.stats.borrow().clone(),
            background: *core.durable.background.borrow(),
            moves: core.upkeep.moves.progress.status(core.rt.now()),
            devices: core.store.devices.iter().map(device).collect(),
        }
    }

    /// Devices with requests in flight: the process cannot end before their answers.
    pub fn owing(&self) -> Vec<DeviceId> {
        self.core.store.devices.iter().filter(|member| member.owes_answer()).map(|member| member.id).collect()
    }

    /// Returns the part of [`Volume::status`] needed for a time series.
    pub fn glance(&self) -> Glance {
        let core = &self.core;
        let state = core.store.state.borrow();
        let device = |member: &Member<D>| {
            let (stats, view) = (member.stats.borrow(), &state.views[member.id.index()]);
            DeviceGlance {
                requests: stats.guest_reads + stats.guest_writes,
                bytes: stats.guest_read_bytes + stats.guest_write_bytes,
                time: stats.latency.sum(),
                used: view.slots - view.free,
            }
        };
        Glance {
            migrated_bytes: core.durable.background.borrow().migrated_bytes,
            behind: match core.extents.active_epochs() {
                Some(epochs) => epochs.lag(),
                None => state.behind.total() + core.upkeep.single_copies(&state),
            },
            devices: core.store.devices.iter().map(device).collect(),
        }
    }

    /// Returns the device of a byte's home; `None` for a byte without a home.
    pub fn home(&self, offset: Bytes) -> Option<DeviceId> {
        let core = &self.core;
        core.store.shape.check_range(offset, Bytes(1)).ok()?;
        let home = core.store.state.borrow().map.get(core.store.shape.extent_of(offset)).home;
        (home != SlotNumber::NONE && home != SlotNumber::LOST).then(|| core.store.locate(home).0.id)
    }

    /// Explains the place of a byte.
    pub fn explain(&self, offset: Bytes) -> Result<Explanation> {
        let core = &self.core;
        core.store.shape.check_range(offset, Bytes(1))?;
        let (shape, extent) = (&core.store.shape, core.store.shape.extent_of(offset));
        let within = offset % shape.extent_size;
        let (entry, extra) = {
            let state = core.store.state.borrow();
            (state.map.get(extent), state.extras.get(shape.block_of(extent, within)))
        };
        let part = shape.parts_touched(&(within..within + Bytes(1)));
        let copies = core.store.copies_of(extent, &entry);
        let place = |slot: SlotNumber| {
            (slot != SlotNumber::NONE && slot != SlotNumber::LOST).then(|| {
                let (member, start) = core.store.locate(slot);
                (member.id, start + within)
            })
        };
        Ok(Explanation {
            offset,
            extent,
            home: place(entry.home),
            written: entry.valid & part != 0 || extra.is_some_and(|e| e.dirty),
            second: place(entry.second)
                .map(|(device, at)| (device, at, copies.other != Other::Equal(entry.second))),
            extra: extra.map(|e| (core.store.device_of(e.slot), e.dirty)),
            cached: core.guests.cache.borrow().contains(extent),
            reason: core.extents.with_policy(|policy, view| policy.explain(extent, view)),
        })
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// State of a device for reports: draining, missing or failed until the removal of the device is durable.
    /// An opening after a crash needs a draining device until then.
    fn reported_state(&self, member: &Member<D>) -> DeviceState {
        let state = member.state();
        let before =
            (state == DeviceState::Removed).then(|| self.store.devices.drains.state_before_change(member.id));
        before.flatten().unwrap_or(state)
    }

    /// Bytes of extents that still lack the required second copy. While epochs are kept, an epoch makes the
    /// copies, and [`Epochs::lag`] counts the bytes.
    fn single_copies(&self, state: &State) -> Bytes {
        let single = if self.extents.active_epochs().is_some() { 0 } else { state.map.single() };
        self.store.shape.extent_size * u64::from(single)
    }
}

/// Lost parts of extents with other parts written again.
fn lost_parts(state: &State, shape: &Shape) -> Vec<Range<Bytes>> {
    let mut lost = Vec::new();
    for extent in state.map.partly_lost() {
        let (valid, start, mut at) = (state.map.get(extent).valid, shape.bytes_of(extent).start, Bytes::ZERO);
        while at < shape.extent_size {
            let (is_valid, end) = shape.run(valid, at, shape.extent_size);
            let range = start + at..shape.volume_size.min(start + end);
            if !is_valid && !range.is_empty() {
                lost.push(range);
            }
            at = end;
        }
    }
    lost
}
