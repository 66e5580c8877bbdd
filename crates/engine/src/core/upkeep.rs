//! Work on a volume beside its guests' requests: moves, resync, devices that come and leave.

use super::{Durable, ExtentLocks, Extents, InCharge, Store};
use crate::jobs::Jobs;
use crate::moves::Moves;
use crate::request::Guests;
use std::rc::Rc;

/// Moves of extents and copies, and the life of devices. A guest's request comes here only if copies must be
/// made equal or current first.
pub(crate) struct Upkeep<R, D> {
    pub rt: R,
    pub store: Rc<Store<D>>,
    pub durable: Rc<Durable<R, D>>,
    pub extents: Rc<Extents<R, D>>,
    pub locks: ExtentLocks,
    pub guests: Rc<Guests>,
    pub moves: Moves,
    pub policy: Rc<InCharge>,
    pub jobs: Rc<Jobs>,
}
