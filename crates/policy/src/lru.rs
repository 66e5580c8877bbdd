//! Set of members in the order of last use, optionally with a value for each member.
//!
//! A policy asks the set at every request of a guest, and for many requests the oldest member leaves and a
//! new member enters. The set is therefore a single table of nodes, with each node in two lists: a ring by
//! age, and a chain of nodes with the same hash. A caller with a node reaches the key without another search,
//! and no node ever moves in memory. In the ring the oldest node is next to the newest. Reusing the oldest
//! node for a new member therefore only shifts the start of the ring.

use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hash};

/// Set in the order of last use. All operations take constant time; memory grows to the largest number of
/// members.
#[derive(Clone, Debug)]
pub struct Lru<K, V = ()> {
    hasher: FixedState,
    nodes: Vec<Node<K, V>>,
    /// First node of each chain. The number of chains is a power of two, and at least `SPARSE` times the
    /// nodes.
    chains: Vec<u32>,
    /// First unused node; the other unused nodes follow as in a chain.
    free: u32,
    len: usize,
    newest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node<K, V> {
    key: K,
    /// Next node of the same chain.
    chained: u32,
    /// Next newer member; for the newest member, the oldest. `NONE` in an unused node.
    newer: u32,
    older: u32,
    value: V,
}

/// No node.
const NONE: u32 = u32::MAX;
/// Chains for each node. Most chains are empty: a new key usually takes a single look, and the processor
/// predicts the branch.
const SPARSE: usize = 4;
/// Chains of the smallest table.
const FEWEST: usize = 16;

impl<K, V> Default for Lru<K, V> {
    fn default() -> Lru<K, V> {
        Lru {
            hasher: FixedState::default(),
            nodes: Vec::new(),
            chains: vec![NONE; FEWEST],
            free: NONE,
            len: 0,
            newest: NONE,
        }
    }
}

impl<K: Copy + Eq + Hash, V: Copy + Default> Lru<K, V> {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory used, about.
    pub fn memory(&self) -> usize {
        self.chains.capacity() * size_of::<u32>() + self.nodes.capacity() * size_of::<Node<K, V>>()
    }

    /// True if the set has no members.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if `key` is a member.
    pub fn contains(&self, key: K) -> bool {
        self.find(key).is_some()
    }

    /// Returns the value of a member.
    pub fn value(&self, key: K) -> Option<V> {
        self.find(key).map(|place| self.nodes[place as usize].value)
    }

    /// Returns the value of a member for changing; does not count as use.
    #[inline]
    pub fn value_mut(&mut self, key: K) -> Option<&mut V> {
        let place = self.find(key)?;
        Some(&mut self.nodes[place as usize].value)
    }

    /// Makes `key` the most recently used, adding a new key. Returns true if `key` was a member before.
    pub fn touch(&mut self, key: K) -> bool {
        let before = self.len;
        self.touch_value(key, usize::MAX);
        self.len == before
    }

    /// Makes `key` the most recently used, as [`Lru::touch`], and returns the value; the default for a new
    /// key. If the set has `most` members, a new key replaces the least recently used member.
    pub fn touch_value(&mut self, key: K, most: usize) -> &mut V {
        let place = match self.find(key) {
            Some(place) => {
                if place != self.newest {
                    self.unlink(place);
                    self.link_newest(place);
                }
                place
            }
            None if self.len >= most && self.len > 0 => self.replace_oldest(key),
            None => {
                let place = self.add(key);
                self.link_newest(place);
                place
            }
        };
        &mut self.nodes[place as usize].value
    }

    /// Changes the value of every member, by key.
    pub fn change_values(&mut self, mut change: impl FnMut(K, &mut V)) {
        let mut next = self.newest;
        for _ in 0..self.len {
            let node = &mut self.nodes[next as usize];
            change(node.key, &mut node.value);
            next = node.older;
        }
    }

    /// Changes the value of a member; does not count as use.
    pub fn change_value(&mut self, key: K, change: impl FnOnce(&mut V)) {
        if let Some(place) = self.find(key) {
            change(&mut self.nodes[place as usize].value);
        }
    }

    /// Removes `key`; returns true if `key` was a member.
    pub fn remove(&mut self, key: K) -> bool {
        let Some(place) = self.find(key) else { return false };
        self.remove_place(place);
        true
    }

    /// Removes and returns the least recently used member.
    pub fn pop_oldest(&mut self) -> Option<K> {
        let place = self.oldest_place()?;
        let key = self.nodes[place as usize].key;
        self.remove_place(place);
        Some(key)
    }

    /// Returns the least recently used member.
    pub fn oldest(&self) -> Option<K> {
        self.oldest_place().map(|place| self.nodes[place as usize].key)
    }

    /// Returns all members, most recently used first.
    pub fn newest_first(&self) -> impl Iterator<Item = K> {
        self.values_newest_first().map(|(key, _)| key)
    }

    /// Returns all members with their values, most recently used first.
    pub fn values_newest_first(&self) -> impl Iterator<Item = (K, V)> {
        let mut next = self.newest;
        (0..self.len).map(move |_| {
            let node = &self.nodes[next as usize];
            next = node.older;
            (node.key, node.value)
        })
    }

    /// Returns all members with their values in memory order, which is much faster than by age.
    pub fn values(&self) -> impl Iterator<Item = (K, &V)> {
        self.nodes.iter().filter(|node| node.newer != NONE).map(|node| (node.key, &node.value))
    }

    fn oldest_place(&self) -> Option<u32> {
        self.nodes.get(self.newest as usize).map(|newest| newest.newer)
    }

    /// Returns the chain of a key.
    #[inline]
    fn chain_of(&self, key: K) -> usize {
        self.hasher.hash_one(key) as usize & (self.chains.len() - 1)
    }

    #[inline]
    fn find(&self, key: K) -> Option<u32> {
        let mut place = self.chains[self.chain_of(key)];
        while let Some(node) = self.nodes.get(place as usize) {
            if node.key == key {
                return Some(place);
            }
            place = node.chained;
        }
        None
    }

    /// Takes a node for a new member, and adds the node to the key's chain.
    #[inline]
    fn add(&mut self, key: K) -> u32 {
        let node = Node { key, chained: NONE, newer: NONE, older: NONE, value: V::default() };
        let place = match self.nodes.get_mut(self.free as usize) {
            Some(free) => {
                let place = self.free;
                self.free = free.chained;
                place
            }
            None => {
                self.nodes.push(node);
                if self.nodes.len() * SPARSE > self.chains.len() {
                    self.grow();
                }
                self.nodes.len() as u32 - 1
            }
        };
        self.nodes[place as usize] = node;
        self.chain(place);
        self.len += 1;
        place
    }

    /// Reuses the node of the oldest member for a new member, which becomes the newest.
    #[inline]
    fn replace_oldest(&mut self, key: K) -> u32 {
        let place = self.nodes[self.newest as usize].newer;
        self.unchain(place);
        let node = &mut self.nodes[place as usize];
        (node.key, node.value) = (key, V::default());
        self.chain(place);
        self.newest = place;
        place
    }

    /// Doubles the number of chains. No node is free at this moment, and the last node is in no chain yet.
    #[cold]
    fn grow(&mut self) {
        self.chains = vec![NONE; self.chains.len() * 2];
        for place in 0..self.nodes.len() - 1 {
            let chain = self.chain_of(self.nodes[place].key);
            self.nodes[place].chained = std::mem::replace(&mut self.chains[chain], place as u32);
        }
    }

    #[inline]
    fn remove_place(&mut self, place: u32) {
        self.unlink(place);
        self.unchain(place);
        let node = &mut self.nodes[place as usize];
        (node.chained, node.newer) = (std::mem::replace(&mut self.free, place), NONE);
        self.len -= 1;
    }

    /// Adds a node to the chain of its key.
    #[inline]
    fn chain(&mut self, place: u32) {
        let chain = self.chain_of(self.nodes[place as usize].key);
        self.nodes[place as usize].chained = std::mem::replace(&mut self.chains[chain], place);
    }

    #[inline]
    fn unchain(&mut self, place: u32) {
        let Node { key, chained, .. } = self.nodes[place as usize];
        let chain = self.chain_of(key);
        let mut before = self.chains[chain];
        if before == place {
            self.chains[chain] = chained;
            return;
        }
        while self.nodes[before as usize].chained != place {
            before = self.nodes[before as usize].chained;
        }
        self.nodes[before as usize].chained = chained;
    }

    /// Takes a node out of the ring.
    #[inline]
    fn unlink(&mut self, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
        self.nodes[newer as usize].older = older;
        self.nodes[older as usize].newer = newer;
        if place == self.newest {
            self.newest = if older == place { NONE } else { older };
        }
    }

    /// Puts a node into the ring, between the newest and the oldest.
    #[inline]
    fn link_newest(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        let (newer, older) = match self.nodes.get(older as usize) {
            Some(node) => (node.newer, older),
            None => (place, place),
        };
        self.nodes[older as usize].newer = place;
        self.nodes[newer as usize].older = place;
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (newer, older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn lru_matches_plain_move_to_front_list() {
        let mut rng = Rng::new(2);
        let (mut lru, mut list) = (Lru::<u64>::default(), Vec::<u64>::new());
        for _ in 0..20_000 {
            let key = rng.below(40);
            match rng.below(12) {
                10.. if list.contains(&key) || list.is_empty() => {}
                10.. => {
                    list.pop();
                    lru.touch_value(key, lru.len());
                    list.insert(0, key);
                }
                0 => assert_eq!(lru.pop_oldest(), list.pop()),
                1 => {
                    assert_eq!(lru.remove(key), list.contains(&key));
                    list.retain(|&k| k != key);
                }
                _ => {
                    assert_eq!(lru.touch(key), list.contains(&key));
                    list.retain(|&k| k != key);
                    list.insert(0, key);
                }
            }
            assert_eq!(lru.newest_first().collect::<Vec<_>>(), list);
            assert_eq!(lru.len(), list.len());
            let mut values: Vec<u64> = lru.values().map(|(key, _)| key).collect();
            values.sort_unstable();
            let mut sorted = list.clone();
            sorted.sort_unstable();
            assert_eq!(values, sorted);
        }
    }

    #[test]
    fn removed_member_loses_value() {
        let mut lru = Lru::<u64, u32>::default();
        for key in [1, 2, 1, 3, 1] {
            *lru.touch_value(key, 3) += 1;
        }
        assert_eq!(lru.values_newest_first().collect::<Vec<_>>(), [(1, 3), (3, 1), (2, 1)]);
        lru.change_values(|_, uses| *uses *= 2);
        lru.remove(1);
        lru.touch(1);
        assert_eq!(lru.values_newest_first().collect::<Vec<_>>(), [(1, 0), (3, 2), (2, 2)]);
    }

    #[test]
    fn a_new_entry_reuses_freed_room() {
        let mut lru = Lru::<u64>::default();
        for key in 0..1_000 {
            lru.touch(key);
        }
        let memory = lru.memory();
        for key in 1_000..5_000 {
            assert_eq!(lru.pop_oldest(), Some(key - 1_000));
            assert!(!lru.touch(key) && lru.contains(key - 999) && !lru.contains(key - 1_000));
        }
        for key in 5_000..10_000 {
            assert_eq!(lru.oldest(), Some(key - 1_000));
            lru.touch_value(key, 1_000);
            assert!(lru.contains(key) && lru.contains(key - 999) && !lru.contains(key - 1_000));
        }
        assert_eq!((lru.len(), lru.memory()), (1_000, memory));
    }
}
