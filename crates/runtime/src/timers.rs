//! Timers of an executor: the next few in a sorted list, the rest on a timing wheel of eleven levels with 64
//! places each, and a bit for each place in use.
//!
//! A timer belongs to the task that added the timer until removed, and may be set again and again.
//!
//! Every timer of the list comes before every timer of the wheel. A new timer goes to the list if earlier
//! than all timers of the wheel. When the list is full, its later half goes to the wheel. A world with few
//! timers therefore has all timers in a line of memory, and a world with thousands has most on the wheel.
//!
//! On the wheel, a timer's level is the highest group of six bits in which its deadline differs from the
//! present time; the bits of the group give the place. All timers of a level therefore come before all timers
//! of the next level, all timers of a place before the next place, and on the lowest level a place is one
//! nanosecond. When time enters a place, its timers move to lower levels, in their order: timers with the
//! same deadline fire in the order in which they were set. Setting and cancelling take constant time for any
//! number of timers. Firing takes constant time, too, if timers are spread over time: a place is searched at
//! most once before time enters the place.

use braid_base::Nanos;
use std::task::Waker;

pub(crate) struct Timers {
    /// The next timers, the earliest last: deadline and index in `timers`.
    near: Vec<(Nanos, u32)>,
    levels: [Level; LEVELS],
    /// A bit for each level with timers.
    in_use: u16,
    timers: Vec<Timer>,
    /// First free index of `timers`; the rest follow through `Timer::next`.
    free: u32,
    /// Earliest timer of the wheel and its deadline, if known.
    earliest: Option<(Nanos, u32)>,
    /// Latest time told so far: every timer is later.
    pub(crate) fired: Nanos,
}

struct Level {
    /// A bit for each place with timers.
    in_use: u64,
    /// The first and the last timer of each place.
    ends: [(u32, u32); PLACES],
}

struct Timer {
    deadline: Nanos,
    /// Waker of the waiting task; none while the timer is not set.
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

/// A place in the table.
#[derive(Clone, Copy)]
pub(crate) struct TimerId(u32);

/// Timers in the list, at most.
const NEAR: usize = 32;
/// Level of a timer in the list.
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
            earliest: None,
            fired: Nanos::ZERO,
        }
    }
}

impl Timers {
    /// Adds a timer, not yet set.
    pub(crate) fn add(&mut self) -> TimerId {
        let key = self.free;
        if let Some(timer) = self.timers.get(key as usize) {
            self.free = timer.next;
            return TimerId(key);
        }
        let timer =
            Timer { deadline: Nanos::ZERO, waker: None, level: 0, place: 0, previous: NONE, next: NONE };
        self.timers.push(timer);
        TimerId(self.timers.len() as u32 - 1)
    }

    /// Removes a timer for good.
    pub(crate) fn remove(&mut self, id: TimerId) {
        self.cancel(id);
        self.timers[id.0 as usize].next = std::mem::replace(&mut self.free, id.0);
    }

    /// Sets a timer to wake a task at `deadline`, which must be later than the time told so far. The new
    /// setting replaces an earlier setting.
    #[inline]
    pub(crate) fn set(&mut self, TimerId(key): TimerId, deadline: Nanos, waker: &Waker) {
        debug_assert!(deadline > self.fired, "a deadline that has passed");
        let timer = &mut self.timers[key as usize];
        let is_set = timer.waker.replace(waker.clone()).is_some();
        let before = std::mem::replace(&mut timer.deadline, deadline);
        if is_set && before == deadline {
            return;
        }
        if is_set {
            self.leave(key);
        }
        self.enter(key, deadline);
    }

    /// Cancels a timer's setting, unless already fired.
    #[inline]
    pub(crate) fn cancel(&mut self, TimerId(key): TimerId) {
        if self.timers[key as usize].waker.take().is_some() {
            self.leave(key);
        }
    }

    /// Advances the time to the timer's deadline and cancels the timer, if the timer is the next, and the
    /// only timer of its deadline. Returns true if so.
    pub(crate) fn pass(&mut self, TimerId(key): TimerId) -> bool {
        let [others @ .., (deadline, first)] = &self.near[..] else { return false };
        let (deadline, is_first, then) = (*deadline, *first == key, others.last().copied());
        let then = then.or_else(|| self.find_earliest());
        if !is_first || then.is_some_and(|(then, _)| then == deadline) {
            return false;
        }
        self.cancel(TimerId(key));
        self.advance(deadline);
        true
    }

    /// Earliest deadline of all set timers.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        match self.near.last() {
            Some((deadline, _)) => Some(*deadline),
            None => self.find_earliest().map(|(deadline, _)| deadline),
        }
    }

    /// Wakes the tasks with a deadline up to `now`, earliest first. A wake only notes the number of the task:
    /// no timer changes meanwhile.
    #[inline]
    pub(crate) fn fire(&mut self, now: Nanos) {
        while let Some(waker) = self.take_due(now) {
            waker.wake();
        }
    }

    /// Takes the earliest timer due at `now`. With none left, `now` becomes the time told so far.
    #[inline]
    fn take_due(&mut self, now: Nanos) -> Option<Waker> {
        let due = match self.near.is_empty() {
            false => self.near.pop_if(|(deadline, _)| *deadline <= now),
            true => self
                .find_earliest()
                .filter(|(deadline, _)| *deadline <= now)
                .inspect(|(_, key)| self.unlink(*key)),
        };
        let Some((_, key)) = due else {
            self.advance(now);
            return None;
        };
        self.timers[key as usize].waker.take()
    }

    /// Resets the time, and cancels all timers.
    pub(crate) fn clear(&mut self) {
        (0..self.timers.len() as u32).for_each(|key| self.cancel(TimerId(key)));
        self.fired = Nanos::ZERO;
    }

    /// Advances the time to `now`, at which no timer is due.
    #[inline]
    fn advance(&mut self, now: Nanos) {
        if now > self.fired {
            self.fired = now;
            if self.in_use & !1 != 0 {
                self.turn(now);
            }
        }
    }

    /// Moves timers of the places that time has entered to lower levels.
    fn turn(&mut self, now: Nanos) {
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

    /// Moves the timers of a place to their present places, in their order.
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

    /// Puts a newly set timer into the list or on the wheel.
    #[inline]
    fn enter(&mut self, key: u32, deadline: Nanos) {
        if self.in_use == 0 || self.find_earliest().is_none_or(|(earliest, _)| deadline < earliest) {
            self.list(key, deadline);
        } else {
            self.link(key, End::Last);
        }
    }

    /// Puts a timer into the list. Most new timers come before nearly all others.
    #[inline]
    fn list(&mut self, key: u32, deadline: Nanos) {
        self.timers[key as usize].level = LISTED;
        self.near.push((deadline, key));
        let near = &mut self.near[..];
        let mut place = near.len() - 1;
        while place > 0 && near[place - 1].0 <= deadline {
            near[place] = near[place - 1];
            place -= 1;
        }
        near[place] = (deadline, key);
        if near.len() > NEAR {
            self.list_fewer();
        }
    }

    /// Moves the later half of the list to the wheel: the latest first, each before all timers of its place.
    #[cold]
    fn list_fewer(&mut self) {
        for place in 0..NEAR / 2 {
            self.link(self.near[place].1, End::First);
        }
        self.near.drain(..NEAR / 2);
    }

    /// Earliest timer of the wheel; of several with the same deadline, the timer that was set first.
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

    /// Puts a timer on the wheel, at one end of its place.
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

    /// Takes a timer out of the list, or off the wheel.
    #[inline]
    fn leave(&mut self, key: u32) {
        if self.near.last().is_some_and(|(_, last)| *last == key) {
            self.near.pop();
        } else if self.timers[key as usize].level == LISTED {
            self.near.retain(|(_, listed)| *listed != key);
        } else {
            self.unlink(key);
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::Wake;

    /// Reports its number when woken.
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
        let (mut now, mut unset) = (0, Vec::new());
        for number in 1..3_000u64 {
            let span = 1 << rng.below(most_bits);
            match rng.below(10) {
                0..5 => {
                    let deadline = now + 1 + rng.below(span);
                    // Now and then a timer that has fired or was cancelled before.
                    let id = unset.pop().filter(|_| rng.chance(0.7)).unwrap_or_else(|| timers.add());
                    timers.set(id, Nanos(deadline), &Arc::new(Numbered(number, woken.clone())).into());
                    list.insert((deadline, number), id);
                }
                5 if !list.is_empty() => {
                    let place = rng.below(list.len() as u64) as usize;
                    let (&key, &id) = list.iter().nth(place).unwrap();
                    list.remove(&key);
                    match rng.below(3) {
                        0 => timers.remove(id),
                        1 => {
                            timers.cancel(id);
                            unset.push(id);
                        }
                        _ => {
                            let deadline = now + 1 + rng.below(span);
                            // With the same deadline the timer would keep its place among others.
                            let deadline = deadline + u64::from(deadline == key.0);
                            timers.set(
                                id,
                                Nanos(deadline),
                                &Arc::new(Numbered(number, woken.clone())).into(),
                            );
                            list.insert((deadline, number), id);
                        }
                    }
                }
                _ => {
                    // Now and then to the very deadline, now and then beyond several.
                    let next = list.keys().next().map_or(now, |key| key.0);
                    now = if rng.chance(0.5) { next } else { now + rng.below(span) };
                    while let Some(waker) = timers.take_due(Nanos(now)) {
                        waker.wake();
                        let ((deadline, expected), id) = list.pop_first().unwrap();
                        unset.push(id);
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
    fn timers_fire_by_deadline_then_in_order_of_setting() {
        for seed in 0..60 {
            behaves_as_a_list(seed, 3 + seed % 45);
        }
    }

    #[test]
    fn timer_at_largest_deadline_fires_when_due() {
        let mut timers = Timers::default();
        for deadline in [u64::MAX, u64::MAX - 1, 1 << 63, 1] {
            set(&mut timers, deadline);
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
    fn removed_timers_do_not_pile_up() {
        let mut timers = Timers::default();
        set(&mut timers, 700);
        for deadline in 1..=1_000 {
            let id = set(&mut timers, deadline);
            timers.remove(id);
        }
        assert_eq!(timers.timers.len(), 2);
        assert_eq!(timers.next(), Some(Nanos(700)));
    }

    #[test]
    fn timer_set_again_wakes_last_waker() {
        let (mut timers, woken) = (Timers::default(), Arc::new(AtomicU64::new(0)));
        let waker = |number| Waker::from(Arc::new(Numbered(number, woken.clone())));
        let id = timers.add();
        for (number, deadline) in [(1, 5), (2, 5), (3, 9)] {
            timers.set(id, Nanos(deadline), &waker(number));
            assert_eq!(timers.next(), Some(Nanos(deadline)));
        }
        assert!(timers.take_due(Nanos(5)).is_none());
        timers.take_due(Nanos(9)).unwrap().wake();
        assert_eq!((woken.load(Relaxed), timers.next()), (3, None));
    }

    #[test]
    fn timers_can_be_set_again_after_clear() {
        let mut timers = Timers::default();
        let ids: Vec<TimerId> = (1..100).map(|deadline| set(&mut timers, deadline)).collect();
        assert!(timers.take_due(Nanos(1)).is_some());
        timers.clear();
        assert_eq!((timers.next(), timers.fired), (None, Nanos::ZERO));
        ids.into_iter().for_each(|id| timers.set(id, Nanos(1), Waker::noop()));
        assert_eq!(std::iter::from_fn(|| timers.take_due(Nanos(1))).count(), 99);
    }

    fn set(timers: &mut Timers, deadline: u64) -> TimerId {
        let id = timers.add();
        timers.set(id, Nanos(deadline), Waker::noop());
        id
    }
}
