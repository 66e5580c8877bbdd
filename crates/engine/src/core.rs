//! The owners within a volume. Each contains the owner below it, and knows no owner above:
//!
//! | owner | verbs |
//! |---|---|
//! | [`Core`] | requests of guests |
//! | [`Memory`] | memory cache, reading ahead of streams |
//! | [`Upkeep`] | moves, resync, devices that come and leave |
//! | [`Extents`] | reads and writes of copies, epochs, decisions of the policy |
//! | [`Durable`] | requests to devices behind the fence, journal, superblocks |
//! | [`Store`] | which copies exist, and where |
//!
//! A verb stands in the file of its subject. An owner dereferences to the owner below: in a verb of `Upkeep`,
//! `self.store` is the store of `self.extents.durable`.

mod durable;
mod extents;
mod handle;
mod in_charge;
mod locks;
mod memory;
mod store;
mod upkeep;

pub(crate) use durable::{BlockSlots, Durable};
pub(crate) use extents::Extents;
use handle::Contains;
pub(crate) use handle::Own;
pub(crate) use in_charge::InCharge;
pub(crate) use locks::ExtentLocks;
pub(crate) use memory::Memory;
pub(crate) use store::Store;
pub(crate) use upkeep::Upkeep;

use std::ops::Deref;

/// A volume as its guests' requests see it: each request is a verb in `request/`. In `life/resize.rs`, a
/// volume reads what a smaller size would cut off.
pub(crate) struct Core<R, D> {
    pub memory: Memory<R, D>,
}

impl<R, D> Deref for Core<R, D> {
    type Target = Memory<R, D>;

    #[inline]
    fn deref(&self) -> &Memory<R, D> {
        &self.memory
    }
}

impl<R, D> Contains<Memory<R, D>> for Core<R, D> {
    fn part(&self) -> &Memory<R, D> {
        &self.memory
    }
}

impl<R, D> Contains<Upkeep<R, D>> for Core<R, D> {
    fn part(&self) -> &Upkeep<R, D> {
        &self.memory.upkeep
    }
}

impl<R, D> Contains<Extents<R, D>> for Core<R, D> {
    fn part(&self) -> &Extents<R, D> {
        &self.memory.upkeep.extents
    }
}

impl<R, D> Contains<Durable<R, D>> for Core<R, D> {
    fn part(&self) -> &Durable<R, D> {
        &self.memory.upkeep.extents.durable
    }
}
