//! Undo steps: the demo removes everything that it made, last made first, on success, failure, panic and
//! interruption.

use braid_control::Result;

/// A stack of undo steps. Dropping the guard runs the remaining steps.
#[derive(Default)]
pub struct Guard {
    undo: Vec<Step>,
}

struct Step {
    what: String,
    undo: Box<dyn FnOnce() -> Result<()>>,
}

impl Guard {
    /// Adds an undo step for the part `what`, just made. If the making may stop half-way, add the step
    /// before: a step must accept that nothing is there to undo.
    pub fn after(&mut self, what: impl Into<String>, undo: impl FnOnce() -> Result<()> + 'static) {
        self.undo.push(Step { what: what.into(), undo: Box::new(undo) });
    }

    /// Runs all undo steps now. A failed step is reported on stderr, and the other steps run nevertheless.
    pub fn finish(&mut self) {
        while let Some(Step { what, undo }) = self.undo.pop() {
            if let Err(error) = undo() {
                eprintln!("braid demo: {what} could not be undone: {error}");
            }
        }
    }

    /// Discards all undo steps, neither run nor dropped; returns the names of the kept parts, first made
    /// first.
    pub fn keep(&mut self) -> Vec<String> {
        let leave = |Step { what, undo }: Step| {
            // Not dropped: dropping the closure could end a captured resource, such as a daemon.
            std::mem::forget(undo);
            what
        };
        self.undo.drain(..).map(leave).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::{Error, ErrorKind};
    use std::cell::RefCell;
    use std::rc::Rc;

    fn noting(guard: &mut Guard, undone: &Rc<RefCell<Vec<u8>>>, number: u8, works: bool) {
        let undone = undone.clone();
        guard.after(format!("step {number}"), move || {
            undone.borrow_mut().push(number);
            if works { Ok(()) } else { Err(Error::new(ErrorKind::Io, "the test said so")) }
        });
    }

    #[test]
    fn steps_are_undone_in_reverse_order_despite_a_failure() {
        let undone = Rc::new(RefCell::new(Vec::new()));
        let mut guard = Guard::default();
        noting(&mut guard, &undone, 1, true);
        noting(&mut guard, &undone, 2, false);
        noting(&mut guard, &undone, 3, true);
        drop(guard);
        assert_eq!(*undone.borrow(), [3, 2, 1]);
    }

    #[test]
    fn panic_undoes_all_steps() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let result = std::panic::catch_unwind(move || {
            let mut guard = Guard::default();
            guard.after("a step", move || {
                sender.send(()).expect("the test waits for this");
                Ok(())
            });
            panic!("the test panics on purpose");
        });
        assert!(result.is_err());
        assert_eq!(receiver.recv(), Ok(()));
    }

    #[test]
    fn kept_steps_are_not_undone() {
        let undone = Rc::new(RefCell::new(Vec::new()));
        let mut guard = Guard::default();
        noting(&mut guard, &undone, 1, true);
        noting(&mut guard, &undone, 2, true);
        assert_eq!(guard.keep(), ["step 1", "step 2"]);
        drop(guard);
        assert!(undone.borrow().is_empty());
    }
}
