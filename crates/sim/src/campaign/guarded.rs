//! Panics and deadlocks of the subject are failures of a trial, with its seed. They do not end the campaign,
//! because the campaign must still shorten the trial.

use crate::World;
use crate::world::Ended;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True if a panic of this thread is kept for the failure's message instead of being printed.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a world until `future` has ended; `None` if the power was cut first.
///
/// # Errors
/// The message of a task's panic, or the time of a deadlock.
pub(super) fn run_guarded<T: 'static>(
    world: &World,
    future: impl Future<Output = T> + 'static,
) -> Result<Option<T>, String> {
    match guarded(|| world.run_until(future))? {
        Ended::Done(output) => Ok(Some(output)),
        Ended::Cut => Ok(None),
        Ended::Deadlock(now) => Err(format!("deadlock at {now}: every task waits, and no timer is set")),
    }
}

/// Ends a world. After a panic of a task, a second panic here adds nothing new and is ignored.
pub(super) fn halt(world: &World) {
    let _said = guarded(|| world.halt());
}

fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if IS_GUARDED.get() {
                PANIC.set(panic.to_string());
            } else {
                print(panic);
            }
        }));
    });
    let outer = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(outer);
    result.map_err(|_| PANIC.take())
}
