//! Extra copies in the order in which they were last used, a list for each device.
//!
//! The engine numbers extra copies from 0 on ([`CellId`]) and finds that number by block and the block by number. So all that is kept
//! here is which one comes before and after which: eight bytes for each extra copy. With the 15 that the engine needs at most, a cached
//! block takes less than 24 bytes of memory.

use crate::CellId;
use braid_base::DeviceId;
use std::iter;

/// Least recently used first, for each device. All operations take constant time.
#[derive(Clone, Debug)]
pub struct CellLists {
    /// By cell; a cell that is in no list is its own neighbour on neither side.
    links: Vec<Link>,
    /// By device: the newest member.
    newest: Vec<u32>,
    len: usize,
}

/// A ring: the oldest member follows the newest.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

/// No cell.
const NONE: u32 = u32::MAX;
const UNLINKED: Link = Link { newer: NONE, older: NONE };
/// What is reserved beyond need: one part in so many.
const RESERVE: usize = 16;

impl CellLists {
    /// Empty lists for so many devices.
    pub fn new(devices: usize) -> CellLists {
        CellLists { links: Vec::new(), newest: vec![NONE; devices], len: 0 }
    }

    /// How many members all lists have.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no list has a member.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes a cell the most recently used of its device, adding it if it is new. A cell is in the list of one device at a time.
    pub fn touch(&mut self, device: DeviceId, cell: CellId) {
        self.remove(device, cell);
        let place = cell.0 as usize;
        if place >= self.links.len() {
            if place >= self.links.capacity() {
                let room = place + 1 - self.links.len();
                self.links.reserve_exact(room + (place / RESERVE).max(16));
            }
            self.links.resize(place + 1, UNLINKED);
        }
        let newest = std::mem::replace(&mut self.newest[device.index()], cell.0);
        let (newer, older) = match self.links.get(newest as usize) {
            Some(link) => (link.newer, newest),
            None => (cell.0, cell.0),
        };
        self.links[older as usize].newer = cell.0;
        self.links[newer as usize].older = cell.0;
        self.links[place] = Link { newer, older };
        self.len += 1;
    }

    /// As [`CellLists::touch`], if the cell is a member.
    pub fn touch_member(&mut self, device: DeviceId, cell: CellId) {
        if self.contains(cell) {
            self.touch(device, cell);
        }
    }

    /// Removes a cell from the list of its device, if it is there.
    pub fn remove(&mut self, device: DeviceId, cell: CellId) {
        if !self.contains(cell) {
            return;
        }
        let Link { newer, older } = std::mem::replace(&mut self.links[cell.0 as usize], UNLINKED);
        self.len -= 1;
        if newer == cell.0 {
            self.newest[device.index()] = NONE;
            return;
        }
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
        if self.newest[device.index()] == cell.0 {
            self.newest[device.index()] = older;
        }
    }

    /// The least recently used cell of a device.
    pub fn oldest(&self, device: DeviceId) -> Option<CellId> {
        self.links.get(self.newest[device.index()] as usize).map(|newest| CellId(newest.newer))
    }

    /// The cells of a device, the most recently used first.
    pub fn newest_first(&self, device: DeviceId) -> impl Iterator<Item = CellId> {
        let newest = self.newest[device.index()];
        let mut next = (newest != NONE).then_some(newest);
        iter::from_fn(move || {
            let cell = next?;
            let older = self.links[cell as usize].older;
            next = (older != newest).then_some(older);
            Some(CellId(cell))
        })
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.links.capacity() * size_of::<Link>() + self.newest.capacity() * size_of::<u32>()
    }

    fn contains(&self, cell: CellId) -> bool {
        self.links.get(cell.0 as usize).is_some_and(|link| link.newer != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn they_behave_as_lists_moved_to_the_front() {
        let mut rng = Rng::new(2);
        let (mut lists, mut plain) = (CellLists::new(2), [Vec::<CellId>::new(), Vec::new()]);
        for _ in 0..20_000 {
            let device = rng.below(2) as usize;
            let (id, cell) = (DeviceId(device as u16), CellId((rng.below(30) * 2) as u32 + device as u32));
            match rng.below(4) {
                0 => {
                    lists.remove(id, cell);
                    plain[device].retain(|&c| c != cell);
                }
                1 => {
                    lists.touch_member(id, cell);
                    if plain[device].contains(&cell) {
                        plain[device].retain(|&c| c != cell);
                        plain[device].insert(0, cell);
                    }
                }
                _ => {
                    lists.touch(id, cell);
                    plain[device].retain(|&c| c != cell);
                    plain[device].insert(0, cell);
                }
            }
            for (device, plain) in (0..).map(DeviceId).zip(&plain) {
                assert_eq!(lists.oldest(device), plain.last().copied());
                assert!(lists.newest_first(device).eq(plain.iter().copied()));
            }
            assert_eq!(lists.len(), plain[0].len() + plain[1].len());
        }
    }
}
