//! Whatever the demo makes, it takes away again: last made, first removed, on success, failure, panic and
//! interruption.

use braid_control::Result;

/// A stack of what is still to be undone. Dropping it undoes the rest.
#[derive(Default)]
pub struct Guard {
    undo: Vec<Step>,
}

struct Step {
    what: String,
    undo: Box<dyn FnOnce() -> Result<()>>,
}

impl Guard {
    /// Notes how to undo what was just made. Note it first where the making itself may stop half-way: an undo
    /// must bear that there is nothing to do.
    pub fn after(&mut self, what: impl Into<String>, undo: impl FnOnce() -> Result<()> + 'static) {
        self.undo.push(Step { what: what.into(), undo: Box::new(undo) });
    }

    /// Undoes everything now. What cannot be undone is told, and does not keep the rest from being undone.
    pub fn finish(&mut self) {
        while let Some(Step { what, undo }) = self.undo.pop() {
            if let Err(error) = undo() {
                eprintln!("braid demo: {what} could not be undone: {error}");
            }
        }
    }

    /// Leaves everything as it is, and tells what that is, first made first.
    pub fn keep(&mut self) -> Vec<String> {
        let leave = |Step { what, undo }: Step| {
            // Dropping it could end what it holds: a daemon, say.
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
