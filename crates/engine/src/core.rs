//! The owners within a volume. Each knows the owners below it alone, and shares their state by handles:
//!
//! | owner | verbs |
//! |---|---|
//! | [`Core`] | requests of guests |
//! | [`Upkeep`] | moves, resync, devices that come and leave |
//! | [`Extents`] | reads and writes of copies, epochs, decisions of the policy |
//! | [`Durable`] | requests to devices behind the fence, journal, superblocks |
//! | [`Store`] | which copies exist, and where |
//!
//! A verb stands in the file of its subject.

mod durable;
mod extents;
mod in_charge;
mod locks;
mod store;
mod upkeep;

pub(crate) use durable::{BlockSlots, Durable};
pub(crate) use extents::Extents;
pub(crate) use in_charge::InCharge;
pub(crate) use locks::ExtentLocks;
pub(crate) use store::Store;
pub(crate) use upkeep::Upkeep;

use crate::jobs::Jobs;
use crate::request::Guests;
use std::rc::Rc;

/// A volume as its guests' requests see it: each request is a verb in `request/`. In `life/resize.rs`, a
/// volume reads what a smaller size would cut off.
pub(crate) struct Core<R, D> {
    pub rt: R,
    pub store: Rc<Store<D>>,
    pub durable: Rc<Durable<R, D>>,
    pub extents: Rc<Extents<R, D>>,
    pub upkeep: Rc<Upkeep<R, D>>,
    pub locks: ExtentLocks,
    pub guests: Rc<Guests>,
    pub policy: Rc<InCharge>,
    pub jobs: Rc<Jobs>,
}
