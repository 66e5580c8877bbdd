//! The devices of a volume, and what their superblocks say.

use super::Member;
use super::watch::Watch;
use braid_base::DeviceId;
use braid_format::superblock::Superblock;
use braid_runtime::Semaphore;
use std::cell::{Cell, Ref, RefCell};
use std::ops::Index;
use std::slice;

/// Bad places that are written again at the same time.
const REPAIRS_AT_ONCE: usize = 4;

/// All devices, also those that are missing.
pub(crate) struct Devices<D> {
    pub(super) members: Vec<Member<D>>,
    pub(super) superblock: RefCell<Superblock>,
    /// One task changes the superblocks at a time.
    pub(super) writer: Semaphore,
    /// How often the states of devices changed, and how many of these changes the superblocks hold.
    pub(super) states_changed: Cell<u64>,
    /// How often a device may have lost what it was given, without being given up: it is read as far as it has kept that.
    pub(super) losses: Cell<u64>,
    pub(super) states_recorded: Cell<u64>,
    pub(super) repairs: Semaphore,
    pub(super) watch: Cell<Watch>,
}

impl<D> Devices<D> {
    /// Devices of which the superblocks say this.
    pub fn new(members: Vec<Member<D>>, superblock: Superblock) -> Devices<D> {
        Devices {
            members,
            superblock: RefCell::new(superblock),
            writer: Semaphore::new(1),
            states_changed: Cell::new(0),
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

    /// How often what devices hold became another thing than it was taken for: their states changed, or they lost writes. What was read
    /// before may not be copied.
    pub fn changes(&self) -> u64 {
        self.states_changed.get() + self.losses.get()
    }

    /// How often a device may have lost what it was given, and is read all the same.
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// One after the other.
    pub fn iter(&self) -> slice::Iter<'_, Member<D>> {
        self.members.iter()
    }
}

impl<D> Index<DeviceId> for Devices<D> {
    type Output = Member<D>;

    #[inline]
    fn index(&self, device: DeviceId) -> &Member<D> {
        &self.members[device.index()]
    }
}
