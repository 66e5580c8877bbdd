//! Requests in flight, in memory that outlives the daemon (INFLIGHT_SHMFD).
//!
//! The virtual machine's process keeps the memory and hands it to the next daemon, which serves again all
//! requests that were taken and not returned. Layout and order of the steps are those of the vhost-user
//! specification for split queues, so a daemon may die between any two steps:
//!
//! ```text
//! taken      counter and mark of the descriptor
//! returned   next and last_batch_head   1
//!            index of the used ring     2   in guest memory, by `queue`
//!            mark of the descriptor     3
//!            used_idx                   4
//! ```
//!
//! If the daemon dies between 2 and 4, `used_idx` differs from the index of the used ring, and the marks of
//! the last batch count as gone.
//!
//! The other process may write anything here: each value is read once and bounded.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes as _, MmapRegion, VolatileMemory, VolatileSlice};

/// The part of one queue.
///
/// ```text
/// 0   features         u64         16 + 16 i   inflight  u8     1 if taken and not returned
/// 8   version          u16    1    16 + 16 i   next      u16    at 6: the descriptor returned before
/// 10  desc_num         u16         16 + 16 i   counter   u64    at 8: order in which requests were taken
/// 12  last_batch_head  u16
/// 14  used_idx         u16
/// ```
pub struct Inflight {
    region: Rc<MmapRegion>,
    start: usize,
    /// Number of descriptors.
    len: u16,
    /// Counter of the next request.
    counter: Cell<u64>,
}

impl Inflight {
    /// Bytes of a queue of `len` descriptors.
    pub fn bytes(len: u16) -> usize {
        (HEAD + usize::from(len) * ENTRY).next_multiple_of(ALIGNMENT)
    }

    /// The part at `start` of a region, for a queue of `len` descriptors. `None` if the region is too short.
    pub fn new(region: Rc<MmapRegion>, start: usize, len: u16) -> Option<Inflight> {
        let end = start.checked_add(Inflight::bytes(len))?;
        (end <= region.size()).then_some(Inflight { region, start, len, counter: Cell::new(0) })
    }

    /// Number of descriptors.
    pub fn len(&self) -> u16 {
        self.len
    }

    /// Begins to serve a queue whose used ring has the index `used`. Returns the descriptors to serve again,
    /// in the order in which they were taken; `None` if no daemon has used this memory before.
    pub fn recover(&self, used: u16) -> Option<Vec<u16>> {
        if self.load_u16(VERSION) != 1 {
            self.store_u16(DESC_NUM, self.len);
            self.store_u16(USED_IDX, used);
            self.store_u16(VERSION, 1);
            return None;
        }
        self.forget_returned(used);
        let marked = (0..self.len).filter(|&head| self.load_mark(head) == 1);
        let mut taken: Vec<(u64, u16)> = marked.map(|head| (self.load_counter(head), head)).collect();
        taken.sort_unstable();
        self.counter.set(taken.last().map_or(0, |(counter, _)| counter.wrapping_add(1)));
        Some(taken.into_iter().map(|(_, head)| head).collect())
    }

    /// Marks a descriptor as taken.
    pub fn take(&self, head: u16) {
        let counter = self.counter.get();
        self.counter.set(counter.wrapping_add(1));
        self.store(entry(head) + COUNTER, counter);
        self.store(entry(head), 1u8);
    }

    /// Step 1, before the used ring's index changes.
    pub fn begin_return(&self, head: u16) {
        self.store_u16(entry(head) + NEXT, self.load_u16(LAST_BATCH_HEAD));
        self.store_u16(LAST_BATCH_HEAD, head);
    }

    /// Steps 3 and 4, after the used ring's index became `used`.
    pub fn end_return(&self, head: u16, used: u16) {
        self.store(entry(head), 0u8);
        self.store_u16(USED_IDX, used);
    }

    /// Takes the marks off the last batch, if the daemon died while returning the batch.
    fn forget_returned(&self, used: u16) {
        let batch = used.wrapping_sub(self.load_u16(USED_IDX)).min(self.len);
        let mut head = self.load_u16(LAST_BATCH_HEAD);
        for _ in 0..batch {
            if head >= self.len {
                break;
            }
            self.store(entry(head), 0u8);
            head = self.load_u16(entry(head) + NEXT);
        }
        self.store_u16(USED_IDX, used);
    }

    fn load_mark(&self, head: u16) -> u8 {
        self.slice().load(entry(head), Ordering::Acquire).expect(IN_BOUNDS)
    }

    fn load_counter(&self, head: u16) -> u64 {
        self.slice().load(entry(head) + COUNTER, Ordering::Acquire).expect(IN_BOUNDS)
    }

    fn load_u16(&self, at: usize) -> u16 {
        self.slice().load(at, Ordering::Acquire).expect(IN_BOUNDS)
    }

    fn store_u16(&self, at: usize, value: u16) {
        self.store(at, value);
    }

    /// Stores a value in the order of the program: the next daemon sees all earlier stores, too.
    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        self.slice().store(value, at, Ordering::Release).expect(IN_BOUNDS);
    }

    fn slice(&self) -> VolatileSlice<'_> {
        self.region.get_slice(self.start, Inflight::bytes(self.len)).expect(IN_BOUNDS)
    }
}

fn entry(head: u16) -> usize {
    HEAD + usize::from(head) * ENTRY
}

const HEAD: usize = 16;
const ENTRY: usize = 16;
/// Of the parts of the queues: a cache line.
const ALIGNMENT: usize = 64;
const VERSION: usize = 8;
const DESC_NUM: usize = 10;
const LAST_BATCH_HEAD: usize = 12;
const USED_IDX: usize = 14;
/// Within an entry.
const NEXT: usize = 6;
const COUNTER: usize = 8;
const IN_BOUNDS: &str = "the part of a queue lies in its region";

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u16 = 8;

    /// A queue, its daemon, and the step at which the daemon dies.
    struct World {
        region: Rc<MmapRegion>,
        /// Index of the used ring, in guest memory.
        used: u16,
        /// Descriptors that were returned to the guest.
        returned: Vec<u16>,
        steps_left: u32,
    }

    struct Died;

    impl World {
        fn new(steps_left: u32) -> World {
            let region = MmapRegion::new(Inflight::bytes(LEN)).expect("memory");
            World { region: Rc::new(region), used: 0, returned: Vec::new(), steps_left }
        }

        fn open(&self) -> (Inflight, Option<Vec<u16>>) {
            let inflight = Inflight::new(self.region.clone(), 0, LEN).expect("it fits");
            let again = inflight.recover(self.used);
            (inflight, again)
        }

        fn step(&mut self) -> Result<(), Died> {
            self.steps_left = self.steps_left.checked_sub(1).ok_or(Died)?;
            Ok(())
        }

        fn take(&mut self, inflight: &Inflight, head: u16) -> Result<(), Died> {
            self.step()?;
            inflight.take(head);
            Ok(())
        }

        /// Returns a descriptor, and dies perhaps before, between or after the steps.
        fn give_back(&mut self, inflight: &Inflight, head: u16) -> Result<(), Died> {
            self.step()?;
            inflight.store_u16(entry(head) + NEXT, inflight.load_u16(LAST_BATCH_HEAD));
            self.step()?;
            inflight.store_u16(LAST_BATCH_HEAD, head);
            self.step()?;
            self.used = self.used.wrapping_add(1);
            self.returned.push(head);
            self.step()?;
            inflight.store(entry(head), 0u8);
            self.step()?;
            inflight.store_u16(USED_IDX, self.used);
            Ok(())
        }

        /// Takes 5, 2, 7, returns 2, takes 0, returns 7.
        fn run(&mut self, inflight: &Inflight) -> Result<(), Died> {
            self.take(inflight, 5)?;
            self.take(inflight, 2)?;
            self.take(inflight, 7)?;
            self.give_back(inflight, 2)?;
            self.take(inflight, 0)?;
            self.give_back(inflight, 7)
        }
    }

    /// The daemon dies at each step in turn. The next daemon serves again exactly the requests that were
    /// taken and not returned, in their order.
    #[test]
    fn death_at_any_step_loses_and_repeats_no_request() {
        let order = [5, 2, 7, 0];
        for steps in 0..=14 {
            let mut world = World::new(steps);
            let (inflight, first) = world.open();
            assert_eq!(first, None);
            let died = world.run(&inflight).is_err();
            assert_eq!(died, steps < 14, "a run has 14 steps");
            let taken = match steps {
                0..3 => steps as usize,
                3..9 => 3,
                _ => 4,
            };
            let expected: Vec<u16> =
                order[..taken].iter().copied().filter(|head| !world.returned.contains(head)).collect();
            let (next, again) = world.open();
            assert_eq!(again, Some(expected.clone()), "death after {steps} steps");
            // And the next daemon may die at once, too.
            drop(next);
            assert_eq!(world.open().1, Some(expected));
        }
    }

    #[test]
    fn steps_of_the_daemon_are_those_of_the_test() {
        let mut world = World::new(0);
        let (inflight, _) = world.open();
        for head in [3, 1, 4] {
            inflight.take(head);
            inflight.begin_return(head);
            world.used = world.used.wrapping_add(1);
            inflight.end_return(head, world.used);
        }
        inflight.take(6);
        assert_eq!(world.open().1, Some(vec![6]));
        assert_eq!(inflight.load_u16(LAST_BATCH_HEAD), 4);
        assert_eq!(inflight.load_u16(entry(4) + NEXT), 1);
    }

    #[test]
    fn hostile_bytes_are_bounded() {
        let mut rng = braid_base::Rng::new(1);
        for _ in 0..1_000 {
            let world = World::new(0);
            let bytes: Vec<u8> = (0..Inflight::bytes(LEN)).map(|_| rng.below(256) as u8).collect();
            let slice = world.region.get_slice(0, bytes.len()).expect("the region");
            slice.write_slice(&bytes, 0).expect("the region");
            slice.store(1u16, VERSION, Ordering::Relaxed).expect("the region");
            let (inflight, again) = world.open();
            let again = again.expect("the version counts");
            assert!(again.iter().all(|&head| head < LEN));
            inflight.take(LEN - 1);
        }
    }

    #[test]
    fn short_region_is_refused() {
        let region = Rc::new(MmapRegion::new(4096).expect("memory"));
        assert!(Inflight::new(region.clone(), 0, 128).is_some());
        for (start, len) in [(0, 256), (4096, 1), (usize::MAX, 1)] {
            assert!(Inflight::new(region.clone(), start, len).is_none());
        }
    }
}
