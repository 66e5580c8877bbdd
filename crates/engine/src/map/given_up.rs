//! Extents on a failed device. Part of [`State`].

use super::{State, has_moved_home};
use braid_base::{DeviceId, ExtentId};
use braid_format::map_page::Entry;

impl State {
    /// Extents with a copy on a device, now or after a crash.
    pub fn extents_on(&self, device: DeviceId) -> Vec<ExtentId> {
        let is_on = |slot| self.space.locate(slot).is_some_and(|place| place.device == device);
        let of_journal = self.entries_of_journal().map(|(extent, entry, _)| (extent, entry));
        let all = self.map.iter().chain(of_journal);
        all.filter(|(_, entry)| is_on(entry.home) || is_on(entry.second)).map(|(extent, _)| extent).collect()
    }

    /// Makes the unmoved copy the home of each extent that moved off a failed device. The device may have
    /// lost writes before the move. The exchange is needed while the move is not durable. Once the move is
    /// durable, flushes have proved both copies.
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
