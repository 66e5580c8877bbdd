//! What lies on a device that is given up: a part of [`State`].

use super::{State, has_moved_home};
use braid_base::{DeviceId, ExtentId};
use braid_format::map_page::Entry;

impl State {
    /// Extents that have a copy on a device, or get one back in a crash.
    pub fn extents_on(&self, device: DeviceId) -> Vec<ExtentId> {
        let is_on = |slot| self.space.locate(slot).is_some_and(|place| place.device == device);
        let of_journal = self.entries_of_journal().map(|(extent, entry, _)| (extent, entry));
        let all = self.map.iter().chain(of_journal);
        all.filter(|(_, entry)| is_on(entry.home) || is_on(entry.second)).map(|(extent, _)| extent).collect()
    }

    /// A device that is given up may have lost writes before an extent moved off it. Of the copies of such an
    /// extent the one that stayed where it was is the home from now on, as long as the move is not durable;
    /// once it is, flushes have proved both.
    pub fn prefer_what_stayed(&mut self, device: DeviceId) {
        for (extent, before, _) in self.entries_of_journal().collect::<Vec<_>>() {
            let now = self.map.get(extent);
            if self.space.locate(before.home).is_some_and(|place| place.device == device)
                && has_moved_home(&before, &now)
            {
                self.set_extent(extent, Entry { home: now.second, second: now.home, ..now });
            }
        }
    }
}
