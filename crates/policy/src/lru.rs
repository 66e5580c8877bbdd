//! A set that remembers the order in which its members were last used, with a value for each where one is wanted.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::hash::Hash;

/// Least recently used first. All operations take constant time; room grows to the largest number of members.
#[derive(Clone, Debug)]
pub struct Lru<K, V = ()> {
    places: HashMap<K, u32, FixedState>,
    nodes: Vec<Node<K, V>>,
    free: Vec<u32>,
    /// The most and the least recently used.
    ends: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    newer: u32,
    older: u32,
}

const NONE: u32 = u32::MAX;

impl<K, V> Default for Lru<K, V> {
    fn default() -> Lru<K, V> {
        Lru { places: HashMap::default(), nodes: Vec::new(), free: Vec::new(), ends: None }
    }
}

impl<K: Copy + Eq + Hash, V: Copy + Default> Lru<K, V> {
    /// How many members there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes of memory that it takes, about.
    pub fn memory(&self) -> usize {
        self.places.allocation_size()
            + self.nodes.capacity() * size_of::<Node<K, V>>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether `key` is a member.
    pub fn contains(&self, key: K) -> bool {
        self.places.contains_key(&key)
    }

    /// The value of a member.
    pub fn value(&self, key: K) -> Option<V> {
        self.places.get(&key).map(|&place| self.nodes[place as usize].value)
    }

    /// Makes `key` the most recently used, adding it where it is new. Returns whether it was a member before.
    pub fn touch(&mut self, key: K) -> bool {
        let before = self.len();
        self.touch_value(key);
        self.len() == before
    }

    /// As [`Lru::touch`], but gives its value; the default where it is new.
    pub fn touch_value(&mut self, key: K) -> &mut V {
        let place = match self.places.entry(key) {
            Entry::Occupied(known) => {
                let place = *known.get();
                if self.ends.is_none_or(|(newest, _)| newest != place) {
                    self.unlink(place);
                    self.link_newest(place);
                }
                place
            }
            Entry::Vacant(new) => {
                let node = Node { key, value: V::default(), newer: NONE, older: NONE };
                let place = match self.free.pop() {
                    Some(place) => {
                        self.nodes[place as usize] = node;
                        place
                    }
                    None => {
                        self.nodes.push(node);
                        self.nodes.len() as u32 - 1
                    }
                };
                new.insert(place);
                self.link_newest(place);
                place
            }
        };
        &mut self.nodes[place as usize].value
    }

    /// Changes the value of every member.
    pub fn update_values(&mut self, mut update: impl FnMut(&mut V)) {
        let mut next = self.ends.map_or(NONE, |(newest, _)| newest);
        while let Some(node) = self.nodes.get_mut(next as usize) {
            update(&mut node.value);
            next = node.older;
        }
    }

    /// Removes `key`; returns whether it was a member.
    pub fn remove(&mut self, key: K) -> bool {
        let Some(place) = self.places.remove(&key) else { return false };
        self.unlink(place);
        self.free.push(place);
        true
    }

    /// Removes and returns the least recently used.
    pub fn pop_oldest(&mut self) -> Option<K> {
        let oldest = self.oldest()?;
        self.remove(oldest);
        Some(oldest)
    }

    /// The least recently used.
    pub fn oldest(&self) -> Option<K> {
        self.ends.map(|(_, oldest)| self.nodes[oldest as usize].key)
    }

    /// All members, most recently used first.
    pub fn newest_first(&self) -> impl Iterator<Item = K> {
        self.values_newest_first().map(|(key, _)| key)
    }

    /// All members with their values, most recently used first.
    pub fn values_newest_first(&self) -> impl Iterator<Item = (K, V)> {
        let mut next = self.ends.map_or(NONE, |(newest, _)| newest);
        std::iter::from_fn(move || {
            let node = self.nodes.get(next as usize)?;
            next = node.older;
            Some((node.key, node.value))
        })
    }

    fn unlink(&mut self, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
        let (mut newest, mut oldest) = self.ends.expect("a set with a member has ends");
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => oldest = newer,
        }
        self.ends = (newest != NONE).then_some((newest, oldest));
    }

    fn link_newest(&mut self, place: u32) {
        let (older, oldest) = match self.ends {
            None => (NONE, place),
            Some((newest, oldest)) => {
                self.nodes[newest as usize].newer = place;
                (newest, oldest)
            }
        };
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, older);
        self.ends = Some((place, oldest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn it_behaves_as_a_list_moved_to_the_front() {
        let mut rng = Rng::new(2);
        let (mut lru, mut list) = (Lru::<u64>::default(), Vec::<u64>::new());
        for _ in 0..20_000 {
            let key = rng.below(40);
            match rng.below(10) {
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
        }
    }

    #[test]
    fn a_value_lives_as_long_as_its_member() {
        let mut lru = Lru::<u64, u32>::default();
        for key in [1, 2, 1, 3, 1] {
            *lru.touch_value(key) += 1;
        }
        assert_eq!(lru.values_newest_first().collect::<Vec<_>>(), [(1, 3), (3, 1), (2, 1)]);
        lru.update_values(|uses| *uses *= 2);
        lru.remove(1);
        lru.touch(1);
        assert_eq!(lru.values_newest_first().collect::<Vec<_>>(), [(1, 0), (3, 2), (2, 2)]);
    }
}
