//! The devices of a volume, and what their superblocks say.

use super::Member;
use super::watch::Watch;
use braid_base::DeviceId;
use braid_format::superblock::{DirtyBlocks, Region, Superblock};
use braid_runtime::{Event, Semaphore};
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::ops::Index;

/// Bad places that are written again at the same time.
const REPAIRS_AT_ONCE: usize = 4;
/// Devices that may come until the volume is opened again.
const MOST_ADDED: usize = 32;

/// All devices, also those that are missing.
pub(crate) struct Devices<D> {
    /// By id. A device may come while others are in use: it takes the next cell.
    members: Box<[OnceCell<Member<D>>]>,
    pub(crate) superblock: RefCell<Superblock>,
    /// Regions that are written beside those that the superblocks name: a copy is moving there, or has just
    /// left.
    pub(crate) beside: RefCell<Vec<Region>>,
    /// One device comes or leaves at a time.
    pub(crate) life: Semaphore,
    /// One task changes the superblocks at a time.
    pub(super) writer: Semaphore,
    /// How often the states of devices changed, and how many of these changes the superblocks hold.
    pub(super) states_changed: Cell<u64>,
    /// Notified of each of these.
    changed: Event,
    /// How often a device may have lost what it was given, without being given up: it is read as far as it
    /// has kept that.
    pub(super) losses: Cell<u64>,
    pub(super) states_recorded: Cell<u64>,
    /// Whether the superblocks say durably that blocks may be dirty.
    pub(crate) notes_dirty_blocks: Cell<bool>,
    pub(super) repairs: Semaphore,
    pub(super) watch: Cell<Watch>,
}

impl<D> Devices<D> {
    /// Devices of which the superblocks say this.
    pub fn new(members: Vec<Member<D>>, superblock: Superblock) -> Devices<D> {
        let cells = members.into_iter().map(OnceCell::from);
        Devices {
            members: cells.chain((0..MOST_ADDED).map(|_| OnceCell::new())).collect(),
            notes_dirty_blocks: Cell::new(superblock.dirty_blocks == DirtyBlocks::Possible),
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
        }
    }

    /// What the superblocks say. Not to be kept across an await.
    pub fn superblock(&self) -> Ref<'_, Superblock> {
        self.superblock.borrow()
    }

    /// How often what devices hold became another thing than it was taken for: their states changed, or they
    /// lost writes. What was read before may not be copied.
    pub fn changes(&self) -> u64 {
        self.states_changed.get() + self.losses.get()
    }

    /// The state of a device has changed.
    pub fn note_change(&self) {
        self.states_changed.set(self.states_changed.get() + 1);
        self.changed.notify();
    }

    /// Notified whenever a device was given up, came back or is up to date again.
    pub fn changed(&self) -> Event {
        self.changed.clone()
    }

    /// How often a device may have lost what it was given, and is read all the same.
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Member<D>> + Clone {
        self.members.iter().map_while(OnceCell::get)
    }

    /// Whether there is a place for one more until the volume is opened again.
    pub fn has_place(&self) -> bool {
        self.members.last().is_some_and(|last| last.get().is_none())
    }

    /// One more, behind the others.
    pub fn push(&self, member: Member<D>) {
        let place = self.members.get(member.id.index()).expect("a device comes where there is a place");
        self.iter().take(1).for_each(|first| member.requests.count_with(&first.requests));
        let taken = place.set(member).is_err();
        assert!(!taken, "a new device gets a place of its own");
    }
}

impl<D> Index<DeviceId> for Devices<D> {
    type Output = Member<D>;

    #[inline]
    fn index(&self, device: DeviceId) -> &Member<D> {
        self.members[device.index()].get().expect("a device that is named exists")
    }
}
