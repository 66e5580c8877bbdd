//! Work on a volume beside its guests' requests: moves, resync, devices that come and leave.

use super::{Extents, Own};
use crate::moves::Moves;
use std::ops::Deref;

/// Moves of extents and copies, and the life of devices. A guest's request comes here only if copies must be
/// made equal or current first.
pub(crate) struct Upkeep<R, D> {
    pub own: Own<Upkeep<R, D>>,
    pub extents: Extents<R, D>,
    pub moves: Moves,
}

impl<R, D> Deref for Upkeep<R, D> {
    type Target = Extents<R, D>;

    #[inline]
    fn deref(&self) -> &Extents<R, D> {
        &self.extents
    }
}
