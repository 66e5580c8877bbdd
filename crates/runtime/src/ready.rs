//! Ready tasks of an executor, each once, and their order.
//!
//! Mostly a single task is ready: a timer wakes a task, which runs and waits again. The first task therefore
//! has a place of its own, and the queue is for the tasks behind.

use braid_base::Rng;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Order in which ready tasks run.
pub enum Order {
    /// First woken, first run.
    Fifo,
    /// By seed: a simulation sees schedules that a queue would never produce.
    Random(Rng),
}

/// Tasks by number.
pub(crate) struct Ready {
    /// Number of the executor.
    pub(crate) id: u64,
    /// `NOBODY` only if the queue is empty, too.
    first: Cell<u32>,
    /// Number of tasks behind the first.
    behind: Cell<usize>,
    queue: RefCell<Queue>,
}

/// Tasks behind the first.
struct Queue {
    order: Order,
    keys: VecDeque<u32>,
    /// By task: true if the task is in `keys`.
    queued: Vec<bool>,
}

const NOBODY: u32 = u32::MAX;

impl Ready {
    pub(crate) fn new(id: u64, order: Order) -> Ready {
        let queue = RefCell::new(Queue { order, keys: VecDeque::new(), queued: Vec::new() });
        Ready { id, first: Cell::new(NOBODY), behind: Cell::new(0), queue }
    }

    /// Number of ready tasks.
    pub(crate) fn len(&self) -> usize {
        self.behind.get() + usize::from(!self.is_empty())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get() == NOBODY
    }

    /// Adds a task behind all others, unless already ready.
    #[inline]
    pub(crate) fn push(&self, key: u32) {
        match self.first.get() {
            NOBODY => self.first.set(key),
            first if first == key => {}
            _ => self.push_behind(key),
        }
    }

    /// Takes the next task to run.
    #[inline]
    pub(crate) fn pop(&self) -> Option<u32> {
        let key = match self.behind.get() {
            0 => self.first.replace(NOBODY),
            _ => self.pop_one(),
        };
        (key != NOBODY).then_some(key)
    }

    /// Forgets all tasks.
    pub(crate) fn clear(&self) {
        self.first.set(NOBODY);
        self.behind.set(0);
        let mut queue = self.queue.borrow_mut();
        queue.keys.clear();
        queue.queued.clear();
    }

    fn push_behind(&self, key: u32) {
        let mut queue = self.queue.borrow_mut();
        if !queue.mark(key, true) {
            queue.keys.push_back(key);
            self.behind.set(queue.keys.len());
        }
    }

    /// Takes one of several tasks.
    fn pop_one(&self) -> u32 {
        let mut queue = self.queue.borrow_mut();
        let several = queue.keys.len() as u64 + 1;
        let place = match &mut queue.order {
            Order::Fifo => 0,
            Order::Random(rng) => rng.below(several) as usize,
        };
        let mut key = self.first.get();
        if place > 0 {
            // The first task moves to the place of the running task, and the next task becomes first.
            queue.mark(key, true);
            std::mem::swap(&mut queue.keys[place - 1], &mut key);
            queue.mark(key, false);
        }
        let next = queue.keys.pop_front().expect("there are several");
        queue.mark(next, false);
        self.first.set(next);
        self.behind.set(queue.keys.len());
        key
    }
}

impl Queue {
    /// Marks a task as queued or not. Returns the former mark.
    fn mark(&mut self, key: u32, is_queued: bool) -> bool {
        let at = key as usize;
        if at >= self.queued.len() {
            self.queued.resize(at + 1, false);
        }
        std::mem::replace(&mut self.queued[at], is_queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes and pops as a plain queue does. `Random` takes any task and moves the first task to its place.
    fn behaves_as_a_queue(seed: u64, random: bool) {
        let mut rng = Rng::new(seed);
        let order = if random { Order::Random(Rng::new(seed + 1)) } else { Order::Fifo };
        let (ready, mut expected, mut draw) = (Ready::new(1, order), VecDeque::new(), Rng::new(seed + 1));
        for _ in 0..2_000 {
            match rng.below(100) {
                0..50 => {
                    let key = rng.below(7) as u32;
                    ready.push(key);
                    if !expected.contains(&key) {
                        expected.push_back(key);
                    }
                }
                50..99 => {
                    let several = random && expected.len() > 1;
                    let place = if several { draw.below(expected.len() as u64) as usize } else { 0 };
                    assert_eq!(ready.pop(), expected.swap_remove_front(place), "seed {seed}");
                }
                _ => {
                    ready.clear();
                    expected.clear();
                }
            }
            assert_eq!((ready.len(), ready.is_empty()), (expected.len(), expected.is_empty()), "seed {seed}");
        }
    }

    #[test]
    fn repeated_wakes_run_task_once_in_fifo_order() {
        (0..20).for_each(|seed| behaves_as_a_queue(seed, false));
    }

    #[test]
    fn random_order_draws_next_task_from_all_ready_tasks() {
        (0..20).for_each(|seed| behaves_as_a_queue(seed, true));
    }
}
