//! Algorithm 2's "delayed strategy" (`cold=marked`): items found cold by a reorganization leave the tables.
//! An item on an SSD "is left in place but marked for reorganization. Later, if the SSD's free space falls
//! below a low water mark, this data is moved".
//!
//! An item loses its mark if a later reorganization finds the item in the table of reads, and not cold. A
//! restart forgets the marks.

use super::settings::Constants;
use super::table::Table;
use crate::View;
use braid_base::{DeviceClass, ExtentId};
use std::collections::BTreeSet;

/// The marked extents: at most as many as the rows of a table.
#[derive(Default)]
pub struct Marks(BTreeSet<ExtentId>);

impl Marks {
    /// The loops of algorithm 2, for cold items only.
    pub fn reorganize(
        &mut self,
        reads: &mut Table,
        writes: &mut Table,
        half: u32,
        constants: &Constants,
        view: &View,
    ) {
        let is_on_ssd = |extent: ExtentId| {
            let home = view.homes.home(extent);
            home.is_some_and(|home| view.devices[home.index()].class == DeviceClass::Ssd)
        };
        self.0.retain(|&extent| is_on_ssd(extent));
        for extent in reads.delete_below(constants.threshold_l, half) {
            if is_on_ssd(extent) && self.0.len() < constants.rows {
                self.0.insert(extent);
            }
        }
        // Extents still in the table are not cold.
        for extent in reads.rows() {
            self.0.remove(&extent);
        }
        writes.delete_below(constants.threshold_l, half);
    }

    /// True if an extent is marked.
    pub fn has(&self, extent: ExtentId) -> bool {
        self.0.contains(&extent)
    }

    /// Approximate memory in use, in bytes: a node of the tree has room for eleven extents, and is mostly at
    /// least half full.
    pub fn memory(&self) -> usize {
        self.0.len() * 2 * size_of::<ExtentId>()
    }
}
