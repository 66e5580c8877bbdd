//! Stack distances: for each reference, the number of other blocks referenced since the last reference to the
//! same block (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems
//! Journal 9(2), 1970). A Fenwick tree over references counts the blocks (Bennett, Kruskal, "LRU stack
//! processing", IBM Journal of Research and Development 19(4), 1975).
//!
//! Each block holds the position of its last reference. All earlier positions are empty. Once all positions
//! are used up, held positions are renumbered without gaps.

/// Order of last references.
pub(super) struct Recency {
    /// A bit for each position, set if the position is held.
    held: Vec<u64>,
    /// Fenwick tree of set bits over the words of `held`. Small enough to stay in the processor's cache.
    tree: Vec<u32>,
    next: u32,
    count: u32,
}

const WORD: u32 = u64::BITS;
const LEAST_WORDS: usize = 1 << 10;

impl Recency {
    pub(super) fn new() -> Recency {
        Recency { held: vec![0; LEAST_WORDS], tree: vec![0; LEAST_WORDS], next: 0, count: 0 }
    }

    /// Returns true if [`Recency::renumber`] must be called before the next position is assigned.
    pub(super) fn is_full(&self) -> bool {
        (self.next / WORD) as usize == self.held.len()
    }

    /// Assigns the newest position to a block without a position.
    pub(super) fn first(&mut self) -> u32 {
        let position = self.next;
        self.held[(position / WORD) as usize] |= 1 << (position % WORD);
        self.change(position / WORD, 1);
        self.next += 1;
        self.count += 1;
        position
    }

    /// Assigns the newest position to the block at `position`. Returns the new position, and the number of
    /// other blocks referenced since.
    pub(super) fn again(&mut self, position: u32) -> (u32, u64) {
        if position + 1 == self.next {
            return (position, 0);
        }
        let newer = self.count - self.held_up_to(position);
        self.release(position);
        (self.first(), newer.into())
    }

    /// Frees the position of a forgotten block.
    pub(super) fn release(&mut self, position: u32) {
        self.held[(position / WORD) as usize] &= !(1 << (position % WORD));
        self.change(position / WORD, -1);
        self.count -= 1;
    }

    /// Removes empty positions. Every block must replace its old position by the result of the returned
    /// function.
    pub(super) fn renumber(&mut self) -> impl Fn(u32) -> u32 + use<> {
        let mut before = 0;
        let ranks: Vec<u32> = self
            .held
            .iter()
            .map(|word| {
                before += word.count_ones();
                before - word.count_ones()
            })
            .collect();
        let words = ((self.count * 2).div_ceil(WORD) as usize).max(LEAST_WORDS);
        let old = std::mem::replace(&mut self.held, vec![0; words]);
        self.next = self.count;
        (0..self.count).for_each(|position| self.held[(position / WORD) as usize] |= 1 << (position % WORD));
        // Each node counts the positions of its words. The held positions are now exactly the positions below
        // `next`.
        self.tree = vec![0; words];
        for place in 1..=words as u32 {
            let low = place - (place & place.wrapping_neg());
            self.tree[place as usize - 1] = (place * WORD).min(self.count).saturating_sub(low * WORD);
        }
        move |position| {
            let word = (position / WORD) as usize;
            ranks[word] + (old[word] & ((1 << (position % WORD)) - 1)).count_ones()
        }
    }

    /// Returns the number of held positions up to and including `position`.
    fn held_up_to(&self, position: u32) -> u32 {
        let word = (position / WORD) as usize;
        let mut held = (self.held[word] << (WORD - 1 - position % WORD)).count_ones();
        let mut place = word;
        while place > 0 {
            held += self.tree[place - 1];
            place &= place - 1;
        }
        held
    }

    fn change(&mut self, word: u32, by: i32) {
        let mut place = word as usize + 1;
        while let Some(count) = self.tree.get_mut(place - 1) {
            *count = count.wrapping_add_signed(by);
            place += place & place.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn distances_match_a_list_in_order_of_use() {
        let (mut recency, mut rng) = (Recency::new(), Rng::new(5));
        let mut positions = vec![None; 300];
        let mut list: Vec<usize> = Vec::new();
        for round in 0..200_000 {
            // A hot part, a part that grows and ages, and a part that is forgotten.
            let block = if rng.chance(0.5) { rng.below(20) } else { rng.below(300) } as usize;
            if recency.is_full() {
                let new = recency.renumber();
                positions.iter_mut().flatten().for_each(|position: &mut u32| *position = new(*position));
            }
            let expected = list.iter().rev().position(|&known| known == block);
            list.retain(|&known| known != block);
            if round % 97 == 0 && expected.is_some() {
                recency.release(positions[block].take().unwrap());
                continue;
            }
            list.push(block);
            match positions[block] {
                None => positions[block] = Some(recency.first()),
                Some(position) => {
                    let (position, distance) = recency.again(position);
                    positions[block] = Some(position);
                    assert_eq!(Some(distance as usize), expected);
                }
            }
        }
    }
}
