//! What comes when, the earliest first: for few entries, of which a new one comes after nearly all others or before them.
//!
//! A sorted queue, which is quicker than a heap as long as that holds: a new entry is passed along from the nearer end. Of
//! entries with the same time the one that was added first comes first.

use braid_base::Nanos;
use std::collections::VecDeque;

/// Entries with the time of each.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<T>(VecDeque<(Nanos, T)>);

impl<T: Copy> Agenda<T> {
    /// An empty one, with room for so many.
    pub(crate) fn with_capacity(count: usize) -> Agenda<T> {
        Agenda(VecDeque::with_capacity(count))
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn add(&mut self, at: Nanos, entry: T) {
        let queue = &mut self.0;
        let len = queue.len();
        if len > 0 && at < queue[len / 2].0 {
            queue.push_front((at, entry));
            let mut place = 0;
            while queue[place + 1].0 <= at {
                queue[place] = queue[place + 1];
                place += 1;
            }
            queue[place] = (at, entry);
        } else {
            queue.push_back((at, entry));
            let mut place = len;
            while place > 0 && queue[place - 1].0 > at {
                queue[place] = queue[place - 1];
                place -= 1;
            }
            queue[place] = (at, entry);
        }
    }

    /// The earliest time; the end of time where there is no entry.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.0.front().map_or(Nanos::MAX, |(at, _)| *at)
    }

    /// The earliest entry.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, entry)| entry)
    }

    /// Takes the earliest entry out.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Nanos, T)> {
        self.0.pop_front()
    }

    /// All entries, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Nanos, T)> {
        self.0.iter()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
