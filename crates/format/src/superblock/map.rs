//! The length of an image of the map, and whether a summary lies behind the image.

use super::{Features, Mapping, Superblock};
use crate::{map_page, map_summary};
use braid_base::Bytes;

impl Superblock {
    /// True if a summary lies behind each image of the map.
    pub fn has_map_summary(&self) -> bool {
        self.features.incompat & Features::MAP_SUMMARY != 0 && self.mapping() == Mapping::Dense
    }

    /// The pages of the map: the pages of an image before the summary.
    pub fn map_pages(&self) -> u32 {
        map_page::pages(self.extents(), self.copies)
    }

    /// The length of an image of the map, with the summary.
    pub fn map_len(&self) -> Bytes {
        let summary = if self.has_map_summary() { map_summary::PAGES } else { 0 };
        map_page::SIZE * (u64::from(self.map_pages()) + u64::from(summary))
    }
}
