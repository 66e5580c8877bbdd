//! The timers of an executor: the next few in a sorted list, the others on a timing wheel of eleven levels with 64 places
//! each, and a bit for each place that is in use.
//!
//! Every timer of the list comes before every timer of the wheel. A new one goes to the list if it comes before those of
//! the wheel, and when the list is full, its later half goes to the wheel: so a world with few timers has them all in a
//! line of memory, and one with thousands has them on the wheel.
//!
//! On the wheel, a timer stands on the level of the highest group of six bits in which its deadline differs from the time that has
//! been told, at the place that this group says. So all timers of a level come before all of the next one, those of a
//! place before those of the next place, and on the lowest level a place is one nanosecond. As time goes on, the timers
//! of the place that it enters move to lower levels, in their order: timers with the same deadline fire in the order in
//! which they were set. Setting and cancelling take constant time, however many there are; so does firing, where timers
//! are spread over time, for a place is searched at most once before time enters it.

use braid_base::Nanos;
use std::task::Waker;

pub(crate) struct Timers {
    /// The next timers, the earliest last: deadline and place in `timers`.
    near: Vec<(Nanos, u32)>,
    levels: [Level; LEVELS],
    /// A bit for each level that holds a timer.
    in_use: u16,
    timers: Vec<Timer>,
    /// The first place of `timers` that is free; the others follow through `Timer::next`.
    free: u32,
    sequence: u64,
    /// The earliest timer of the wheel and its deadline, where they are known.
    earliest: Option<(Nanos, u32)>,
    /// The latest time that has been told: every timer is later.
    pub(crate) fired: Nanos,
}

struct Level {
    /// A bit for each place that holds a timer.
    in_use: u64,
    /// The first and the last timer of each place.
    ends: [(u32, u32); PLACES],
}

struct Timer {
    deadline: Nanos,
    /// Never given to another timer; zero for none.
    sequence: u64,
    waker: Option<Waker>,
    level: u8,
    place: u8,
    previous: u32,
    next: u32,
}

/// An end of a place's timers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// A place in the table, and whose it was when the timer was set.
#[derive(Clone, Copy)]
pub(crate) struct TimerId {
    key: u32,
    sequence: u64,
}

/// Timers in the list, at most.
const NEAR: usize = 32;
/// The level of a timer that is in the list.
const LISTED: u8 = u8::MAX;
/// 6 bits for each level.
const LEVEL_BITS: u32 = 6;
const PLACES: usize = 1 << LEVEL_BITS;
/// 64 bits of time.
const LEVELS: usize = 11;
/// No timer.
const NONE: u32 = u32::MAX;

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            near: Vec::with_capacity(NEAR + 1),
            levels: std::array::from_fn(|_| Level { in_use: 0, ends: [(NONE, NONE); PLACES] }),
            in_use: 0,
            timers: Vec::new(),
            free: NONE,
            sequence: 0,
            earliest: None,
            fired: Nanos::ZERO,
        }
    }
}

impl Timers {
    /// Sets a timer that wakes a task at `deadline`, which must be later than the time that has been told.
    pub(crate) fn set(&mut self, deadline: Nanos, waker: Waker) -> TimerId {
        debug_assert!(deadline > self.fired, "a deadline that has passed");
        self.sequence += 1;
        let timer = Timer {
            deadline,
            sequence: self.sequence,
            waker: Some(waker),
            level: 0,
            place: 0,
            previous: NONE,
            next: NONE,
        };
        let key = match self.timers.get_mut(self.free as usize) {
            Some(free) => {
                let key = std::mem::replace(&mut self.free, free.next);
                *free = timer;
                key
            }
            None => {
                self.timers.push(timer);
                self.timers.len() as u32 - 1
            }
        };
        if self.in_use == 0 || self.find_earliest().is_none_or(|(earliest, _)| deadline < earliest) {
            self.list(key, deadline);
        } else {
            self.link(key, End::Last);
        }
        TimerId { key, sequence: self.sequence }
    }

    /// Changes whom a timer wakes. False where it has fired.
    pub(crate) fn set_waker(&mut self, id: TimerId, waker: &Waker) -> bool {
        let Some(timer) = self.pending(id) else { return false };
        if !timer.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            timer.waker = Some(waker.clone());
        }
        true
    }

    /// Forgets a timer, unless it has fired.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        if self.pending(id).is_some() {
            self.take(id.key);
        }
    }

    /// The earliest deadline that somebody waits for.
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        match self.near.last() {
            Some((deadline, _)) => Some(*deadline),
            None => self.find_earliest().map(|(deadline, _)| deadline),
        }
    }

    /// Takes the earliest timer that is due at `now`; once there is none, `now` is the time that has been told.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<Waker> {
        let earliest = self.near.last().copied().or_else(|| self.find_earliest());
        match earliest {
            Some((deadline, key)) if deadline <= now => self.take(key),
            _ => {
                self.advance(now);
                None
            }
        }
    }

    /// Forgets all timers and the time. A sleep may still hold the id of one: no sequence number is used twice.
    pub(crate) fn clear(&mut self) {
        *self = Timers { sequence: self.sequence, ..Timers::default() };
    }

    /// Tells a time that no timer is due at.
    fn advance(&mut self, now: Nanos) {
        if now <= self.fired {
            return;
        }
        self.fired = now;
        if self.in_use & !1 == 0 {
            return;
        }
        // Timers of the places that time has entered belong on lower levels now.
        let mut levels = self.in_use & !1;
        while levels != 0 {
            let level = levels.trailing_zeros() as usize;
            levels &= levels - 1;
            let place = (now.0 >> (LEVEL_BITS * level as u32)) as usize % PLACES;
            if self.levels[level].in_use & 1 << place != 0 {
                self.spread(level, place);
            }
        }
    }

    /// Moves the timers of a place to where they belong now, in their order.
    fn spread(&mut self, level: usize, place: usize) {
        let mut key = self.levels[level].ends[place].0;
        self.levels[level].ends[place] = (NONE, NONE);
        self.clear_bit(level, place);
        while key != NONE {
            let next = self.timers[key as usize].next;
            self.link(key, End::Last);
            key = next;
        }
    }

    /// Puts a timer that was just set into the list: most come before nearly all others.
    fn list(&mut self, key: u32, deadline: Nanos) {
        self.timers[key as usize].level = LISTED;
        self.near.push((deadline, key));
        let mut place = self.near.len() - 1;
        while place > 0 && self.near[place - 1].0 <= deadline {
            self.near[place] = self.near[place - 1];
            place -= 1;
        }
        self.near[place] = (deadline, key);
        if self.near.len() > NEAR {
            // The latest first, each before all that are on the wheel.
            for place in 0..NEAR / 2 {
                self.link(self.near[place].1, End::First);
            }
            self.near.drain(..NEAR / 2);
        }
    }

    /// The earliest timer of the wheel; of several with the same deadline the one that was set first.
    fn find_earliest(&mut self) -> Option<(Nanos, u32)> {
        if self.earliest.is_some() || self.in_use == 0 {
            return self.earliest;
        }
        let level = self.in_use.trailing_zeros() as usize;
        let place = self.levels[level].in_use.trailing_zeros() as usize;
        let mut key = self.levels[level].ends[place].0;
        let mut earliest = (self.timers[key as usize].deadline, key);
        // On the lowest level all timers of a place have the same deadline.
        while level > 0 && key != NONE {
            let Timer { deadline, next, .. } = self.timers[key as usize];
            if deadline < earliest.0 {
                earliest = (deadline, key);
            }
            key = next;
        }
        self.earliest = Some(earliest);
        self.earliest
    }

    /// Puts a timer on the wheel, at one end of the place where it belongs.
    fn link(&mut self, key: u32, end: End) {
        let deadline = self.timers[key as usize].deadline.0;
        let differs = deadline ^ self.fired.0;
        let level = (differs | 1).ilog2() / LEVEL_BITS;
        let place = (deadline >> (LEVEL_BITS * level)) as usize % PLACES;
        self.in_use |= 1 << level;
        let level = level as usize;
        self.levels[level].in_use |= 1 << place;
        let ends = &mut self.levels[level].ends[place];
        let (first, last) = *ends;
        let timer = &mut self.timers[key as usize];
        (timer.level, timer.place) = (level as u8, place as u8);
        (timer.previous, timer.next) = if end == End::Last { (last, NONE) } else { (NONE, first) };
        match end {
            _ if first == NONE => *ends = (key, key),
            End::Last => {
                ends.1 = key;
                self.timers[last as usize].next = key;
            }
            End::First => {
                ends.0 = key;
                self.timers[first as usize].previous = key;
            }
        }
        if end == End::First {
            self.earliest = None;
        }
    }

    /// Takes a timer out.
    fn take(&mut self, key: u32) -> Option<Waker> {
        if self.timers[key as usize].level != LISTED {
            self.unlink(key);
        } else if self.near.last().is_some_and(|(_, last)| *last == key) {
            self.near.pop();
        } else {
            let place = self.near.iter().rposition(|(_, listed)| *listed == key);
            self.near.remove(place.expect("a timer in the list is in the list"));
        }
        let timer = &mut self.timers[key as usize];
        timer.sequence = 0;
        timer.next = std::mem::replace(&mut self.free, key);
        timer.waker.take()
    }

    /// Takes a timer off the wheel.
    fn unlink(&mut self, key: u32) {
        let Timer { level, place, previous, next, .. } = self.timers[key as usize];
        let (level, place) = (usize::from(level), usize::from(place));
        match previous {
            NONE => self.levels[level].ends[place].0 = next,
            _ => self.timers[previous as usize].next = next,
        }
        match next {
            NONE => self.levels[level].ends[place].1 = previous,
            _ => self.timers[next as usize].previous = previous,
        }
        if previous == NONE && next == NONE {
            self.clear_bit(level, place);
        }
        if self.earliest.is_some_and(|(_, earliest)| earliest == key) {
            self.earliest = None;
        }
    }

    fn clear_bit(&mut self, level: usize, place: usize) {
        self.levels[level].in_use &= !(1 << place);
        if self.levels[level].in_use == 0 {
            self.in_use &= !(1 << level);
        }
    }

    fn pending(&mut self, id: TimerId) -> Option<&mut Timer> {
        self.timers.get_mut(id.key as usize).filter(|timer| timer.sequence == id.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::Wake;

    /// Tells its number when it is woken.
    struct Numbered(u64, Arc<AtomicU64>);

    impl Wake for Numbered {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0, Relaxed);
        }
    }

    /// Sets, changes, cancels and fires, and compares with a sorted list.
    fn behaves_as_a_list(seed: u64, most_bits: u64) {
        let (mut rng, mut timers) = (Rng::new(seed), Timers::default());
        let (mut list, woken) = (BTreeMap::new(), Arc::new(AtomicU64::new(0)));
        let mut now = 0;
        for number in 1..3_000u64 {
            let span = 1 << rng.below(most_bits);
            match rng.below(10) {
                0..5 => {
                    let deadline = now + 1 + rng.below(span);
                    let id = timers.set(Nanos(deadline), Arc::new(Numbered(number, woken.clone())).into());
                    list.insert((deadline, number), id);
                }
                5 if !list.is_empty() => {
                    let place = rng.below(list.len() as u64) as usize;
                    let (&key, &id) = list.iter().nth(place).unwrap();
                    timers.cancel(id);
                    list.remove(&key);
                    assert!(
                        !timers.set_waker(id, Waker::noop()),
                        "seed {seed}: a cancelled timer is pending"
                    );
                }
                _ => {
                    // Now and then to the very deadline, now and then beyond several.
                    let next = list.keys().next().map_or(now, |key| key.0);
                    now = if rng.chance(0.5) { next } else { now + rng.below(span) };
                    while let Some(waker) = timers.take_due(Nanos(now)) {
                        waker.wake();
                        let ((deadline, expected), _) = list.pop_first().unwrap();
                        assert!(deadline <= now, "seed {seed}: too early");
                        assert_eq!(woken.load(Relaxed), expected, "seed {seed}: out of order");
                    }
                    assert!(list.keys().next().is_none_or(|key| key.0 > now), "seed {seed}: too late");
                    assert_eq!(timers.fired, Nanos(now), "seed {seed}");
                }
            }
            assert_eq!(timers.next().map(|at| at.0), list.keys().next().map(|key| key.0), "seed {seed}");
        }
    }

    #[test]
    fn timers_fire_in_order_of_deadline_and_then_of_setting() {
        for seed in 0..60 {
            behaves_as_a_list(seed, 3 + seed % 45);
        }
    }

    #[test]
    fn a_timer_at_the_end_of_time_is_none_too_many() {
        let mut timers = Timers::default();
        for deadline in [u64::MAX, u64::MAX - 1, 1 << 63, 1] {
            timers.set(Nanos(deadline), Waker::noop().clone());
        }
        for deadline in [1, 1 << 63, u64::MAX - 1, u64::MAX] {
            assert_eq!(timers.next(), Some(Nanos(deadline)));
            assert!(
                timers.take_due(Nanos(deadline - 1)).is_none() && timers.take_due(Nanos(deadline)).is_some()
            );
        }
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn cancelled_timers_do_not_pile_up() {
        let mut timers = Timers::default();
        timers.set(Nanos(700), Waker::noop().clone());
        for deadline in 1..=1_000 {
            let id = timers.set(Nanos(deadline), Waker::noop().clone());
            timers.cancel(id);
        }
        assert_eq!(timers.timers.len(), 2);
        assert_eq!(timers.next(), Some(Nanos(700)));
    }

    #[test]
    fn the_id_of_a_timer_that_fired_means_no_other() {
        let mut timers = Timers::default();
        let fired = timers.set(Nanos(1), Waker::noop().clone());
        timers.take_due(Nanos(1));
        timers.set(Nanos(2), Waker::noop().clone());
        timers.cancel(fired);
        assert!(!timers.set_waker(fired, Waker::noop()));
        assert_eq!(timers.next(), Some(Nanos(2)));
    }
}
