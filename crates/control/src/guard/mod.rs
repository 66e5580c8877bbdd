//! The guard of a served volume whose policy has modes (`equi,mode=auto`). Ghosts of the volume, one for each
//! mode, serve the guests' requests in virtual time. The policy continues in the mode with the best result
//! ([`braid_lab::guard`]).
//!
//! ```text
//! keep.rs    the task: guests' requests to the ghosts, their verdict to the policy
//! measure.rs models of devices without a model, from their service of guests
//! worker.rs  threads of the ghosts, at the lowest priority
//! like.rs    the volume as input of ghosts: models of devices, homes
//! ```
//!
//! **Cost.** Ghosts may use 2 % of a processor. If the volume is large, or guests send more requests than
//! ghosts can serve with this share, the ghosts simulate a part of the volume. If a part still costs too
//! much, the ghosts rest between two batches of 5 s. Filling the ghosts at the start costs extra, and so does
//! a second of a processor for each measured device's model. On the daemon's thread a request costs a note of
//! 32 bytes and three looks at the clock.

pub(crate) mod keep;
pub(crate) mod like;
mod measure;
mod worker;

use crate::report::guard::{GuardReport, ModeReport};
use crate::served::ServedVolume;
use crate::served::options::ServeOptions;
use braid_base::{DeviceId, Nanos};
use braid_runtime::Runtime;
use like::Models;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The guard of a served volume.
pub(crate) struct Guard {
    served: Rc<ServedVolume>,
    options: ServeOptions,
    /// Models of devices, for ghosts.
    models: Models,
    seen: Outcomes,
}

/// What the guard has seen, for the status.
#[derive(Default)]
struct Outcomes {
    /// Mean time of the last batch's requests.
    took: Cell<Option<Nanos>>,
    /// Mean times of the last batch in the ghosts, by mode.
    means: RefCell<Vec<Option<f64>>>,
    switches: Cell<u64>,
    switched_at: Cell<Option<Nanos>>,
    one_in: Cell<u32>,
    share: Cell<f64>,
    /// Why there are no ghosts, or not of all modes.
    problem: RefCell<Option<String>>,
    /// Devices measured while they served, with the error factors of their models.
    measured: RefCell<Vec<(DeviceId, f64)>>,
}

impl Guard {
    /// Composes a guard. [`keep::keep`] is its task.
    pub fn new(served: Rc<ServedVolume>, options: ServeOptions, models: Models) -> Guard {
        Guard { served, options, models, seen: Outcomes::default() }
    }

    /// Sets the problem in the status; `None` for no problem.
    fn tell(&self, problem: Option<String>) {
        *self.seen.problem.borrow_mut() = problem;
    }

    /// Returns the guard's report; `None` for a policy without modes.
    pub fn report(&self) -> Option<GuardReport> {
        let (modes, present) = self.served.volume().modes(1);
        let (now, seen) = (self.served.ring().now(), &self.seen);
        let mode = modes.get(present)?.clone();
        let means = seen.means.borrow();
        let of_mode = |(place, mode): (usize, String)| ModeReport {
            mode,
            latency_ns_mean: means.get(place).copied().flatten().map(|mean| mean as u64),
        };
        let measured = seen.measured.borrow();
        let off = measured.iter().map(|(device, off)| (device.to_string(), *off));
        Some(GuardReport {
            mode,
            switches: seen.switches.get(),
            switched_seconds_ago: seen.switched_at.get().map(|at| (now - at).as_secs_f64()),
            modes: modes.into_iter().enumerate().map(of_mode).collect(),
            measured_ns_mean: seen.took.get().map(|took| took.0),
            one_in: seen.one_in.get(),
            processor_share: seen.share.get(),
            measured_models_off: off.collect(),
            problem: seen.problem.borrow().clone(),
        })
    }
}
