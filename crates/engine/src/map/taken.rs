//! Taken slots of a device: a bit for each slot, and levels above with a bit for each full word of the level
//! below. The nearest free slot on either side of any place is found in at most six steps up and six down, at
//! any size and load of the device. Nothing is allocated after creation.

/// Taken and free slots of a device.
pub(super) struct Taken {
    /// Lowest level first. A set bit is a taken slot or a full word. Bits beyond the last slot stay set. The
    /// highest level is one word.
    levels: Vec<Vec<u64>>,
}

impl Taken {
    /// Creates `count` free slots.
    pub fn none_of(count: u32) -> Taken {
        let (mut levels, mut bits) = (Vec::new(), count as usize);
        loop {
            let mut words = vec![0; bits.div_ceil(64).max(1)];
            if let (Some(last), over) = (words.last_mut(), bits % 64)
                && (over > 0 || bits == 0)
            {
                *last = u64::MAX << over;
            }
            bits = words.len();
            levels.push(words);
            if bits == 1 {
                return Taken { levels };
            }
        }
    }

    /// True if a slot exists and is free.
    pub fn is_free(&self, index: u32) -> bool {
        self.levels[0].get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 0)
    }

    /// Takes a free slot.
    pub fn take(&mut self, index: u32) {
        let mut at = index as usize;
        for words in &mut self.levels {
            words[at / 64] |= 1 << (at % 64);
            if words[at / 64] != u64::MAX {
                return;
            }
            at /= 64;
        }
    }

    /// Frees a taken slot.
    pub fn free(&mut self, index: u32) {
        let mut at = index as usize;
        for words in &mut self.levels {
            let was_full = words[at / 64] == u64::MAX;
            words[at / 64] &= !(1 << (at % 64));
            if !was_full {
                return;
            }
            at /= 64;
        }
    }

    /// First free slot at or after `index`.
    pub fn first_from(&self, index: u32) -> Option<u32> {
        let mut at = index as usize;
        for (level, words) in self.levels.iter().enumerate() {
            let free = !words.get(at / 64)? & u64::MAX << (at % 64);
            if free != 0 {
                let found = at / 64 * 64 + free.trailing_zeros() as usize;
                return Some(self.descend(level, found, |word| word.trailing_ones()));
            }
            at = at / 64 + 1;
        }
        None
    }

    /// Last free slot at or before `index`.
    pub fn last_up_to(&self, index: u32) -> Option<u32> {
        let mut at = index as usize;
        for (level, words) in self.levels.iter().enumerate() {
            let free = !words[at / 64] & u64::MAX >> (63 - at % 64);
            if free != 0 {
                let found = at / 64 * 64 + free.ilog2() as usize;
                return Some(self.descend(level, found, |word| 63 - word.leading_ones()));
            }
            at = (at / 64).checked_sub(1)?;
        }
        None
    }

    /// First of `count` adjacent free slots, of `slots` in all, as near to the start as possible.
    pub fn first_run(&self, count: u32, slots: u32) -> Option<u32> {
        let mut first = self.first_from(0)?;
        loop {
            let end = first.checked_add(count).filter(|&end| end <= slots)?;
            match (first..end).rev().find(|&index| !self.is_free(index)) {
                Some(taken) => first = self.first_from(taken + 1)?,
                None => return Some(first),
            }
        }
    }

    /// First of `count` adjacent free slots, of `slots` in all, as near to the end as possible and not before
    /// `least`.
    pub fn last_run(&self, count: u32, least: u32, slots: u32) -> Option<u32> {
        let mut end = slots;
        loop {
            let first = end.checked_sub(count).filter(|&first| first >= least)?;
            match (first..end).find(|&index| !self.is_free(index)) {
                Some(taken) => end = taken,
                None => return Some(first),
            }
        }
    }

    /// Slot below a bit of a level. `place` chooses a free bit of a word that is not full.
    fn descend(&self, level: usize, bit: usize, place: impl Fn(u64) -> u32) -> u32 {
        self.levels[..level].iter().rev().fold(bit, |at, words| at * 64 + place(words[at]) as usize) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn free_slot_search_matches_search_of_plain_list() {
        for count in [1u32, 63, 64, 65, 4096, 4097, 300_000] {
            let (mut taken, mut plain) = (Taken::none_of(count), vec![false; count as usize]);
            let mut rng = Rng::new(u64::from(count));
            for round in 0..400 {
                // Long runs fill whole words of higher levels.
                let start = rng.below(u64::from(count)) as u32;
                let len = rng.below(u64::from(count)) as u32 / 2 + 1;
                for index in start..(start + len).min(count) {
                    match (round % 5 == 4, plain[index as usize]) {
                        (true, true) => taken.free(index),
                        (false, false) => taken.take(index),
                        _ => continue,
                    }
                    plain[index as usize] ^= true;
                }
                let at = rng.below(u64::from(count)) as u32;
                let first = (at..count).find(|&i| !plain[i as usize]);
                let last = (0..=at).rev().find(|&i| !plain[i as usize]);
                assert_eq!((taken.first_from(at), taken.last_up_to(at)), (first, last), "of {count} at {at}");
                assert_eq!(taken.is_free(at), !plain[at as usize]);
                if count > 100_000 && round > 40 {
                    break;
                }
            }
            assert!(!taken.is_free(count) && taken.first_from(count).is_none());
        }
    }

    #[test]
    fn device_without_slots_has_no_free_slot() {
        let taken = Taken::none_of(0);
        assert_eq!((taken.is_free(0), taken.first_from(0), taken.last_up_to(0)), (false, None, None));
    }
}
