//! Cached copies in the order of last use, or of arrival: several lists, such as one for each device.
//!
//! The engine numbers cached copies from 0 on ([`CellId`]), and maps blocks to numbers and numbers to blocks.
//! The lists therefore keep only the two neighbours of each copy: eight bytes for each cached copy. With at
//! most 15 bytes in the engine, a cached block takes less than 24 bytes of memory.

use crate::CellId;
use std::iter;

/// Lists with the oldest cell first. All operations take constant time.
#[derive(Clone, Debug)]
pub struct CellLists {
    /// By cell; `UNLINKED` for a cell in no list.
    links: Vec<Link>,
    /// By list: the newest member.
    newest: Vec<u32>,
    len: usize,
}

/// Neighbours in a ring: the oldest member follows the newest.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

/// No cell.
const NONE: u32 = u32::MAX;
const UNLINKED: Link = Link { newer: NONE, older: NONE };
/// Reserve of memory beyond need: one part in `RESERVE`.
const RESERVE: usize = 16;

impl CellLists {
    /// Creates `lists` empty lists.
    pub fn new(lists: usize) -> CellLists {
        CellLists { links: Vec::new(), newest: vec![NONE; lists], len: 0 }
    }

    /// Number of members of all lists.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no list has a member.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes a cell the newest of its list, adding a new cell. A cell is in one list at a time; the caller
    /// touches and removes the cell with that list only.
    pub fn touch(&mut self, list: usize, cell: CellId) {
        self.remove(list, cell);
        let place = cell.0 as usize;
        if place >= self.links.len() {
            if place >= self.links.capacity() {
                let room = place + 1 - self.links.len();
                self.links.reserve_exact(room + (place / RESERVE).max(16));
            }
            self.links.resize(place + 1, UNLINKED);
        }
        let newest = std::mem::replace(&mut self.newest[list], cell.0);
        let (newer, older) = match self.links.get(newest as usize) {
            Some(link) => (link.newer, newest),
            None => (cell.0, cell.0),
        };
        self.links[older as usize].newer = cell.0;
        self.links[newer as usize].older = cell.0;
        self.links[place] = Link { newer, older };
        self.len += 1;
    }

    /// Makes a cell the oldest of its list, adding a new cell.
    pub fn touch_last(&mut self, list: usize, cell: CellId) {
        self.touch(list, cell);
        // In the ring the oldest is next to the newest: one step back is enough.
        self.newest[list] = self.links[cell.0 as usize].older;
    }

    /// Makes a cell the newest, as [`CellLists::touch`], if the cell is a member.
    pub fn touch_member(&mut self, list: usize, cell: CellId) {
        if self.contains(cell) {
            self.touch(list, cell);
        }
    }

    /// Removes a cell from its list, if the cell is a member.
    pub fn remove(&mut self, list: usize, cell: CellId) {
        if !self.contains(cell) {
            return;
        }
        let Link { newer, older } = std::mem::replace(&mut self.links[cell.0 as usize], UNLINKED);
        self.len -= 1;
        if newer == cell.0 {
            self.newest[list] = NONE;
            return;
        }
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
        if self.newest[list] == cell.0 {
            self.newest[list] = older;
        }
    }

    /// Returns the oldest cell of a list.
    pub fn oldest(&self, list: usize) -> Option<CellId> {
        self.links.get(self.newest[list] as usize).map(|newest| CellId(newest.newer))
    }

    /// Returns the cells of a list, the newest first.
    pub fn newest_first(&self, list: usize) -> impl Iterator<Item = CellId> {
        let newest = self.newest[list];
        let mut next = (newest != NONE).then_some(newest);
        iter::from_fn(move || {
            let cell = next?;
            let older = self.links[cell as usize].older;
            next = (older != newest).then_some(older);
            Some(CellId(cell))
        })
    }

    /// Returns the cells of a list, the oldest first.
    pub fn oldest_first(&self, list: usize) -> impl Iterator<Item = CellId> {
        let newest = self.newest[list];
        let mut next = self.oldest(list);
        iter::from_fn(move || {
            let cell = next?;
            next = (cell.0 != newest).then(|| CellId(self.links[cell.0 as usize].newer));
            Some(cell)
        })
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.links.capacity() * size_of::<Link>() + self.newest.capacity() * size_of::<u32>()
    }

    /// True if a cell is in a list.
    pub fn contains(&self, cell: CellId) -> bool {
        self.links.get(cell.0 as usize).is_some_and(|link| link.newer != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn cell_lists_match_plain_move_to_front_lists() {
        let mut rng = Rng::new(2);
        let (mut lists, mut plain) = (CellLists::new(2), [Vec::<CellId>::new(), Vec::new()]);
        for _ in 0..20_000 {
            let list = rng.below(2) as usize;
            let cell = CellId((rng.below(30) * 2) as u32 + list as u32);
            match rng.below(5) {
                4 => {
                    lists.touch_last(list, cell);
                    plain[list].retain(|&c| c != cell);
                    plain[list].push(cell);
                }
                0 => {
                    lists.remove(list, cell);
                    plain[list].retain(|&c| c != cell);
                }
                1 => {
                    lists.touch_member(list, cell);
                    if plain[list].contains(&cell) {
                        plain[list].retain(|&c| c != cell);
                        plain[list].insert(0, cell);
                    }
                }
                _ => {
                    lists.touch(list, cell);
                    plain[list].retain(|&c| c != cell);
                    plain[list].insert(0, cell);
                }
            }
            for (list, plain) in plain.iter().enumerate() {
                assert_eq!(lists.oldest(list), plain.last().copied());
                assert!(lists.newest_first(list).eq(plain.iter().copied()));
                assert!(lists.oldest_first(list).eq(plain.iter().rev().copied()));
            }
            assert_eq!(lists.len(), plain[0].len() + plain[1].len());
        }
    }
}
