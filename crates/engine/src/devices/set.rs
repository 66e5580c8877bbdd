//! The devices of a volume, and the content of their superblocks.

use super::Member;
use super::drains::Drains;
use braid_base::DeviceId;
use braid_format::superblock::{DeviceState, DirtyBlocks, Region, Superblock};
use braid_runtime::{Device, Event, Semaphore};
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::ops::Index;

/// Concurrent repairs of bad places.
const REPAIRS_AT_ONCE: usize = 4;
/// Devices that can be added before the volume is opened again.
const MOST_ADDED: usize = 32;

/// State of the watchdog.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Runs,
    /// Ends at once.
    Ending,
    Ended,
}

/// All devices of a volume, including missing devices.
pub(crate) struct Devices<D> {
    /// Members by id. A device added while the volume serves takes the next cell.
    members: Box<[OnceCell<Member<D>>]>,
    pub(crate) superblock: RefCell<Superblock>,
    pub(crate) drains: Drains,
    /// Metadata regions written in addition to those named by the superblocks: a metadata copy is moving
    /// there, or has just moved away.
    pub(crate) beside: RefCell<Vec<Region>>,
    /// Permit for adding, removing or returning a device: one at a time.
    pub(crate) life: Semaphore,
    /// Permit for changing the superblocks: one task at a time.
    pub(crate) writer: Semaphore,
    /// Number of state changes of devices; `states_recorded` counts the changes that the superblocks hold.
    pub(crate) states_changed: Cell<u64>,
    /// Notified of each state change.
    changed: Event,
    /// Number of times that a device may have lost writes. The device stays in use, but reads are limited to
    /// proved ranges.
    pub(crate) losses: Cell<u64>,
    pub(crate) states_recorded: Cell<u64>,
    /// Set if the superblocks durably say that blocks may be dirty.
    pub(crate) notes_dirty_blocks: Cell<bool>,
    pub(crate) repairs: Semaphore,
    pub(crate) watch: Cell<Watch>,
    /// Set once no lease is renewed any more: the volume closes.
    pub(crate) leases_end: Cell<bool>,
}

impl<D> Devices<D> {
    /// Creates the set of devices described by a superblock.
    pub fn new(members: Vec<Member<D>>, superblock: Superblock) -> Devices<D> {
        let cells = members.into_iter().map(OnceCell::from);
        Devices {
            members: cells.chain((0..MOST_ADDED).map(|_| OnceCell::new())).collect(),
            notes_dirty_blocks: Cell::new(superblock.dirty_blocks == DirtyBlocks::Possible),
            drains: Drains::of(&superblock),
            superblock: RefCell::new(superblock),
            beside: RefCell::default(),
            life: Semaphore::new(1),
            writer: Semaphore::new(1),
            states_changed: Cell::new(0),
            changed: Event::default(),
            losses: Cell::new(0),
            states_recorded: Cell::new(0),
            repairs: Semaphore::new(REPAIRS_AT_ONCE),
            watch: Cell::new(Watch::Runs),
            leases_end: Cell::new(false),
        }
    }

    /// Borrows the superblock. The borrow must not live across an await.
    pub fn superblock(&self) -> Ref<'_, Superblock> {
        self.superblock.borrow()
    }

    /// Number of events after which earlier reads must not be copied: state changes of devices and lost
    /// writes.
    pub fn changes(&self) -> u64 {
        self.states_changed.get() + self.losses.get()
    }

    /// Counts a state change of a device and notifies waiters.
    pub fn note_change(&self) {
        self.states_changed.set(self.states_changed.get() + 1);
        self.changed.notify();
    }

    /// Event notified whenever a device fails, comes back, or is up to date again.
    pub fn changed(&self) -> Event {
        self.changed.clone()
    }

    /// Number of times that a device may have lost writes and stayed in use.
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// Iterates over all devices by id.
    pub fn iter(&self) -> impl Iterator<Item = &Member<D>> + Clone {
        self.members.iter().map_while(OnceCell::get)
    }

    /// True if another device can be added before the volume is opened again.
    pub fn has_place(&self) -> bool {
        self.members.last().is_some_and(|last| last.get().is_none())
    }

    /// Appends a device.
    pub fn push(&self, member: Member<D>) {
        let place = self.members.get(member.id.index()).expect("a device comes where there is a place");
        self.iter().take(1).for_each(|first| member.requests.count_with(&first.requests));
        let taken = place.set(member).is_err();
        assert!(!taken, "a new device gets a place of its own");
    }
}

impl<D: Device> Devices<D> {
    /// True if a resync is possible: at least two devices accept writes.
    pub fn can_resync(&self) -> bool {
        self.iter().filter(|member| member.is_written()).nth(1).is_some()
    }

    /// True if a device drains, or is lost and awaits removal.
    pub fn is_leaving(&self, device: DeviceId) -> bool {
        match self[device].state() {
            DeviceState::Draining => true,
            DeviceState::Missing | DeviceState::Failed => self.drains.is_lost(device),
            _ => false,
        }
    }

    /// True if a device is active without slots yet: no data lies there.
    pub fn is_joining(&self, device: DeviceId) -> bool {
        let is_active = matches!(self[device].state(), DeviceState::Active | DeviceState::Slow);
        is_active && self.drains.is_changing(device)
    }
}

impl<D> Index<DeviceId> for Devices<D> {
    type Output = Member<D>;

    #[inline]
    fn index(&self, device: DeviceId) -> &Member<D> {
        self.members[device.index()].get().expect("a device that is named exists")
    }
}
