//! Entries in order of time, the earliest first: for few entries, if most new entries come after all others.
//!
//! A sorted list is faster than a heap as long as new entries mostly come last. Of entries with the same
//! time, the entry added first comes first.
//!
//! A taken entry leaves its place at the front of the memory, so entries are contiguous without a wrap.
//! Entries move to the front when the last entry has been taken or the memory is used up. The memory is
//! several times the entries' size.

use braid_base::Nanos;

/// Entries with the time of each.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<T> {
    places: Vec<(Nanos, T)>,
    /// Places whose entries have been taken; zero while the list is empty.
    taken: usize,
}

impl<T: Copy> Agenda<T> {
    /// An empty agenda with room for `count` entries.
    pub(crate) fn with_capacity(count: usize) -> Agenda<T> {
        Agenda { places: Vec::with_capacity(4 * count), taken: 0 }
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn add(&mut self, at: Nanos, entry: T) {
        if self.places.len() == self.places.capacity() {
            self.move_back();
        }
        self.places.push((at, entry));
        let entries = &mut self.places[self.taken..];
        let mut place = entries.len() - 1;
        while place > 0 && entries[place - 1].0 > at {
            entries[place] = entries[place - 1];
            place -= 1;
        }
        entries[place] = (at, entry);
    }

    #[cold]
    fn move_back(&mut self) {
        self.places.drain(..self.taken);
        self.taken = 0;
    }

    /// The earliest time; `Nanos::MAX` if there is no entry.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.places.get(self.taken).map_or(Nanos::MAX, |(at, _)| *at)
    }

    /// The earliest entry.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.places.get(self.taken).map(|(_, entry)| entry)
    }

    /// Takes the earliest entry.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Nanos, T)> {
        let first = *self.places.get(self.taken)?;
        self.taken += 1;
        if self.taken == self.places.len() {
            self.places.clear();
            self.taken = 0;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn entries_are_taken_by_time_then_by_insertion() {
        let (mut rng, mut agenda) = (Rng::new(1), Agenda::with_capacity(4));
        let mut sorted: Vec<(Nanos, u64)> = Vec::new();
        for entry in 0..20_000 {
            // Few distinct times, so many entries share a time.
            let at = Nanos(entry / 100 + rng.below(8));
            sorted.insert(sorted.partition_point(|other| other.0 <= at), (at, entry));
            agenda.add(at, entry);
            for _ in 0..rng.below(3) {
                let first = (!sorted.is_empty()).then(|| sorted.remove(0));
                assert_eq!(agenda.next(), first.map_or(Nanos::MAX, |(at, _)| at));
                assert_eq!((agenda.first().copied(), agenda.take()), (first.map(|(_, entry)| entry), first));
            }
            assert_eq!(agenda.places[agenda.taken..], sorted, "after {entry}");
        }
    }
}
