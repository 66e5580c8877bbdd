//! Places of extents and copies, as seen by a policy: the map and the list of the memory cache.

use crate::epochs::Epochs;
use crate::map::State;
use crate::request::ExtentCache;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_policy::{ByteRange, CellId, ExtraCopy, Homes};
use std::cell::RefCell;

/// View of the volume for a question to a policy. Costs a few pointers.
pub(crate) struct Places<'a> {
    pub state: &'a State,
    /// Never borrowed mutably while a policy is asked.
    pub cache: &'a RefCell<ExtentCache>,
    /// Set while epochs are kept.
    pub epochs: Option<&'a Epochs>,
    pub can_resync: &'a dyn Fn() -> bool,
}

impl Homes for Places<'_> {
    fn extents(&self) -> u32 {
        self.state.extents()
    }

    fn home(&self, extent: ExtentId) -> Option<DeviceId> {
        self.state.home(extent)
    }

    fn is_in_memory(&self, extent: ExtentId) -> bool {
        self.cache.borrow().contains(extent)
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(ExtentId)) {
        self.cache.borrow().newest_first().for_each(visit);
    }

    fn extra(&self, block: BlockId) -> Option<ExtraCopy> {
        self.state.extra(block)
    }

    fn block_in(&self, cell: CellId) -> Option<BlockId> {
        self.state.block_in(cell)
    }

    fn behind(&self) -> Bytes {
        self.state.behind()
    }

    fn lag(&self) -> Bytes {
        self.epochs.map_or_else(|| self.behind(), Epochs::lag)
    }

    fn epoch_journal(&self) -> Option<(Bytes, Bytes)> {
        self.epochs.map(Epochs::journal)
    }

    fn can_resync(&self) -> bool {
        (self.can_resync)()
    }

    fn next_behind(&self, from: Bytes) -> Option<ByteRange> {
        self.state.next_behind(from)
    }
}
