//! What an administrator sees: status, and why a byte lies where it lies.

use crate::copies::Other;
use crate::core::Core;
use crate::epochs::Epochs;
use crate::life::DrainStatus;
use crate::map::State;
use crate::moves::MovesStatus;
use crate::shape::Shape;
use crate::stats::{BackgroundStats, DeviceStats, GuestStats};
use crate::{Result, Volume};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos};
use braid_format::superblock::{DeviceState, Layout};
use braid_format::{SlotNumber, Uuid};
use braid_policy::Homes;
use braid_runtime::{Device, Runtime};
use std::ops::Range;

/// A volume at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Its sizes.
    pub shape: Shape,
    /// The policy with its settings.
    pub policy: String,
    /// Which class of devices it needs and has none of any more, if that is so: it uses what there is.
    pub policy_lacks: Option<String>,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Extents whose bytes are lost, because their device was given up or a repair could not prove their
    /// places: reading them is an error until they are written or discarded.
    pub lost: Vec<ExtentId>,
    /// Parts of such extents that have not been written again, and ranges that were in the journal of a disk
    /// that was recovered, in a part that is damaged: reading them is an error likewise, of the latter until
    /// all of their extents is written or discarded.
    pub damaged: Vec<Range<Bytes>>,
    /// Blocks with an extra copy, and how many of these are dirty.
    pub extra_blocks: (usize, usize),
    /// Extents in the memory cache, and how many there may be.
    pub cached_extents: (usize, usize),
    /// Bytes of memory that the map takes.
    pub map_memory: usize,
    /// Bytes of memory that the policy takes, about.
    pub policy_memory: usize,
    /// Changes that wait for a commit.
    pub pending_changes: usize,
    /// Map pages that are older than the journal.
    pub stale_pages: usize,
    /// Bytes of the journal that recovery would read.
    pub journal: Bytes,
    /// Spans in which copies may differ, and in how many of them a copy is behind.
    pub spans: (usize, usize),
    /// Bytes of the volume that a copy lacks.
    pub behind: Bytes,
    /// Of these, what the policy wants behind for a while.
    pub deferred: Bytes,
    /// Of these, what the disk has in its journal of epochs, and not in its place: no loss of the SSDs costs
    /// that.
    pub journaled: Bytes,
    /// The newest epoch of which the disk that keeps them alone is the volume; none if it is not a state of
    /// it.
    pub epoch: Option<u64>,
    /// Why no epoch can end, if that is so: then that disk may lack more than the policy's bound.
    pub epoch_failure: Option<String>,
    /// How much of the volume a disk that was recovered has in its journal of epochs, and not in its place
    /// yet; none once all is there.
    pub unapplied: Option<Bytes>,
    /// Why that could not be changed last.
    pub unapplied_failure: Option<String>,
    /// How much of the volume a span is.
    pub span_size: Bytes,
    /// Why no flush can succeed any more, if that is so.
    pub failure: Option<String>,
    /// What guests did.
    pub guests: GuestStats,
    /// What happened behind the scenes.
    pub background: BackgroundStats,
    /// How far the plan of the policy is.
    pub moves: MovesStatus,
    /// The devices, by id.
    pub devices: Vec<DeviceStatus>,
}

/// What changes all the time, for those who look often: a copy of a few counters.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// Bytes that migrations have copied.
    pub migrated_bytes: u64,
    /// Bytes of the volume that a copy lacks, and no journal of epochs has.
    pub behind: Bytes,
    /// The devices, by id.
    pub devices: Vec<DeviceGlance>,
}

/// What changes all the time about a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceGlance {
    /// Requests of guests.
    pub requests: u64,
    /// Bytes that guests read and wrote.
    pub bytes: u64,
    /// Response times of guests' requests, all together.
    pub time: Nanos,
    /// Slots in use.
    pub used: u32,
}

/// A device at one moment.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Which one.
    pub id: DeviceId,
    /// What kind.
    pub class: DeviceClass,
    /// Whether it serves requests.
    pub state: DeviceState,
    /// Whether extents lie on it at their own addresses.
    pub keeps_addresses: bool,
    /// Whether it was there before with data on it, and is the volume byte for byte.
    pub is_adopted: bool,
    /// The model that it emulates; empty for none.
    pub model: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Its size.
    pub size: Bytes,
    /// Extent slots.
    pub slots: u32,
    /// Of these free.
    pub free: u32,
    /// Requests of guests that it is serving.
    pub in_flight: u32,
    /// The share of its time that moves of the plan may take now.
    pub move_share: f64,
    /// While it is slow, though it answers in time: how many times longer than usual requests take.
    pub times_slower: Option<f64>,
    /// Bytes of the volume that its loss would cost now, at most: exact unless copies of more than 16,384
    /// extents are behind.
    pub loss: Bytes,
    /// All bytes that it was asked to write since the volume was opened.
    pub written: Bytes,
    /// How far its removal is, while it drains.
    pub drain: Option<DrainStatus>,
    /// What it did.
    pub stats: DeviceStats,
    /// What the policy knows of it.
    pub figures: Vec<(&'static str, f64)>,
}

/// Where a byte of the volume lies, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The byte that was asked for.
    pub offset: Bytes,
    /// Its extent.
    pub extent: ExtentId,
    /// The home: device, and where on it the byte lies.
    pub home: Option<(DeviceId, Bytes)>,
    /// Whether the byte was written since its extent was allocated; else it reads as zero.
    pub written: bool,
    /// The second required copy, and whether it is behind.
    pub second: Option<(DeviceId, Bytes, bool)>,
    /// The extra copy: device, and whether it is dirty.
    pub extra: Option<(DeviceId, bool)>,
    /// Whether the memory cache holds its extent.
    pub cached: bool,
    /// The policy's reason, with numbers.
    pub reason: String,
}

impl<R: Runtime, D: Device> Volume<R, D> {
    /// The volume now. Costs a copy of the counters, and a look at the homes of at most 16,384 pieces of
    /// extents that are behind.
    pub fn status(&self) -> Status {
        let core = &self.core;
        let (state, superblock) = (core.state.borrow(), core.devices.superblock());
        let policy = core.policy.borrow();
        let exposures = state.exposures(|device| core.member(device).is_current());
        // What the disk has in its journal of epochs, no loss costs.
        let lag = core.active_epochs().map_or(Bytes(u64::MAX), |epochs| epochs.lag());
        let device = |member: &crate::copies::Member<D>| {
            let (view, exposure) = (&state.views[member.id.index()], exposures[member.id.index()]);
            DeviceStatus {
                id: member.id,
                class: member.entry.class,
                state: member.state(),
                keeps_addresses: member.entry.layout != Layout::Head,
                is_adopted: member.entry.layout == Layout::Adopted,
                model: member.entry.model.clone(),
                uuid: member.entry.uuid,
                size: member.entry.size,
                slots: view.slots,
                free: view.free,
                in_flight: view.in_flight,
                move_share: core.move_share(member.id),
                times_slower: member.speed.times_slower(),
                loss: exposure.alone + exposure.behind.min(lag),
                written: Bytes(member.written_bytes.get()),
                drain: core.drain_status(member.id),
                stats: member.stats.borrow().clone(),
                figures: policy.figures(member.id),
            }
        };
        let deferred = state.behind.deferred();
        let (unapplied, unapplied_failure) = core.epochs.as_ref().and_then(Epochs::recovery).unzip();
        Status {
            name: superblock.name.clone(),
            uuid: superblock.volume,
            shape: core.shape,
            policy: braid_policy::written(&**policy),
            policy_lacks: core.policy.lacks(),
            mapped_extents: state.map.mapped(),
            lost: state.map.lost(),
            damaged: {
                let of_epochs = core.epochs.as_ref().map_or_else(Vec::new, Epochs::damaged);
                [of_epochs, lost_parts(&state, &core.shape)].concat()
            },
            extra_blocks: (state.extras.len(), state.extras.dirty()),
            cached_extents: core.guests.cache.borrow().len_and_limit(),
            map_memory: state.memory(),
            policy_memory: policy.memory(),
            pending_changes: state.pending(),
            stale_pages: state.stale_pages(),
            journal: core.journal.live_room(),
            spans: state.behind.len(),
            behind: state.behind.total(),
            deferred,
            journaled: core
                .active_epochs()
                .map_or(Bytes::ZERO, |epochs| deferred.saturating_sub(epochs.lag())),
            epoch: core.epochs.as_ref().and_then(|epochs| epochs.newest()),
            epoch_failure: core.active_epochs().and_then(|epochs| epochs.failure()),
            unapplied,
            unapplied_failure: unapplied_failure.flatten(),
            span_size: core.shape.extent_size * u64::from(superblock.span_extents),
            failure: core.journal.failure().map(|e| e.to_string()),
            guests: core.guests.stats.borrow().clone(),
            background: *core.background.borrow(),
            moves: core.moves.progress.status(core.rt.now()),
            devices: core.devices.iter().map(device).collect(),
        }
    }

    /// The devices that owe an answer: until they answer, this process cannot end.
    pub fn owing(&self) -> Vec<DeviceId> {
        self.core.devices.iter().filter(|member| member.owes_answer()).map(|member| member.id).collect()
    }

    /// As much of [`Volume::status`] as a time series needs.
    pub fn glance(&self) -> Glance {
        let core = &self.core;
        let state = core.state.borrow();
        let device = |member: &crate::copies::Member<D>| {
            let (stats, view) = (member.stats.borrow(), &state.views[member.id.index()]);
            DeviceGlance {
                requests: stats.guest_reads + stats.guest_writes,
                bytes: stats.guest_read_bytes + stats.guest_write_bytes,
                time: stats.latency.sum(),
                used: view.slots - view.free,
            }
        };
        Glance {
            migrated_bytes: core.background.borrow().migrated_bytes,
            behind: core.active_epochs().map_or(state.behind.total(), |epochs| epochs.lag()),
            devices: core.devices.iter().map(device).collect(),
        }
    }

    /// The device of a byte's home; none if the byte has none.
    pub fn home(&self, offset: Bytes) -> Option<DeviceId> {
        let core = &self.core;
        core.check_range(offset, Bytes(1)).ok()?;
        let home = core.state.borrow().map.get(core.shape.extent_of(offset)).home;
        (home != SlotNumber::NONE && home != SlotNumber::LOST).then(|| core.locate(home).0.id)
    }

    /// Where a byte lies, and why.
    pub fn explain(&self, offset: Bytes) -> Result<Explanation> {
        let core = &self.core;
        core.check_range(offset, Bytes(1))?;
        let (shape, extent) = (&core.shape, core.shape.extent_of(offset));
        let within = offset % shape.extent_size;
        let (entry, extra) = {
            let state = core.state.borrow();
            (state.map.get(extent), state.extras.get(shape.block_of(extent, within)))
        };
        let part = shape.parts_touched(&(within..within + Bytes(1)));
        let copies = core.copies_of(extent, &entry);
        let place = |slot: SlotNumber| {
            (slot != SlotNumber::NONE && slot != SlotNumber::LOST).then(|| {
                let (member, start) = core.locate(slot);
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
            extra: extra.map(|e| (core.device_of(e.slot), e.dirty)),
            cached: core.guests.cache.borrow().contains(extent),
            reason: core.with_policy(|policy, view| policy.explain(extent, view)),
        })
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Tells a policy that takes charge which extra copies there are. What is more than it wants goes, in the
    /// background.
    pub fn adopt_extras(self: &std::rc::Rc<Self>) {
        let (state, mut policy) = (self.state.borrow(), self.policy.borrow_mut());
        for (block, _) in state.extras.all() {
            let copy = state.extra(block).expect("a block in the table has an extra copy");
            policy.extra_changed(block, None, Some(copy));
        }
        drop((state, policy));
        self.shrink_beyond_room();
    }

    /// Drops extra copies until no more slots hold some than the policy says.
    pub fn shrink_beyond_room(self: &std::rc::Rc<Self>) {
        let (state, policy) = (self.state.borrow(), self.policy.borrow());
        if state.views.iter().any(|view| state.extras.divided(view.id) > policy.extra_slots(view)) {
            let core = self.clone();
            self.jobs.begin();
            self.rt.spawn(async move {
                core.shrink_caches().await;
                core.jobs.end();
            });
        }
    }
}

/// The parts of extents that are lost while others have been written again.
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
