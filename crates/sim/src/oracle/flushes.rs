//! States at earlier flushes: the legal contents of a mirror that follows at a distance.
//!
//! A legal state of the volume at flush k is a state that a crash could have left at the acknowledgement of
//! flush k. Such a state holds all writes acknowledged before the flush began, and any of the later writes
//! that had begun by then. States are kept only on request, each as a clone of the oracle.

use super::{Mismatch, Oracle};
use braid_base::Bytes;
use std::collections::VecDeque;
use std::rc::Rc;

#[derive(Clone)]
pub(super) struct FlushStates {
    limit: usize,
    /// Number of the newest flush, counted since the start of keeping states.
    newest: u64,
    /// State 0 stands for the beginning.
    states: Rc<VecDeque<Oracle>>,
}

impl Oracle {
    /// Keeps the latest `limit` states from now on, including the newest. The current state counts as flush
    /// 0: everything must be durable, or the volume new.
    pub fn keep_flush_states(&mut self, limit: usize) {
        self.flush_states = None;
        let states = Rc::new(VecDeque::from([self.clone()]));
        self.flush_states = Some(FlushStates { limit, newest: 0, states });
    }

    /// The number of the newest flush whose state is kept.
    pub fn newest_flush(&self) -> u64 {
        self.flush_states.as_ref().map_or(0, |kept| kept.newest)
    }

    /// Checks that the volume may have held `found` at `offset` at flush `number`.
    ///
    /// # Errors
    /// The first byte without a legal value.
    ///
    /// # Panics
    /// If the state at that flush is not kept.
    pub fn check_at_flush(&self, number: u64, offset: Bytes, found: &[u8]) -> Result<(), Mismatch> {
        self.state_at(number)
            .expect("the state at this flush is kept")
            .check_after_crash(offset.as_usize(), found)
    }

    /// The newest flush at which the volume may have held `found`, from its first byte on.
    pub fn flush_of(&self, found: &[u8]) -> Option<u64> {
        let holds = |number: &u64| {
            self.state_at(*number).is_some_and(|state| state.check_after_crash(0, found).is_ok())
        };
        let newest = self.newest_flush();
        (0..=newest).rev().take_while(|&number| self.state_at(number).is_some()).find(holds)
    }

    fn state_at(&self, number: u64) -> Option<&Oracle> {
        let kept = self.flush_states.as_ref()?;
        let age = kept.newest.checked_sub(number)? as usize;
        kept.states.len().checked_sub(age + 1).map(|at| &kept.states[at])
    }

    /// A flush was acknowledged just now.
    pub(super) fn keep_flush_state(&mut self) {
        let Some(mut kept) = self.flush_states.take() else { return };
        let states = Rc::make_mut(&mut kept.states);
        states.push_back(self.clone());
        if states.len() > kept.limit {
            states.pop_front();
        }
        kept.newest += 1;
        self.flush_states = Some(kept);
    }
}
