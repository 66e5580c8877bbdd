//! Guard of a policy with modes ([`braid_policy::Policy::modes`]): simulations of the running load determine
//! the best mode for the load.
//!
//! ```text
//! watch.rs     guests' requests and clients
//! scale.rs     ghosts of a part of a volume
//! ghost.rs     a volume in one mode under the same load
//! ghosts.rs    a ghost for each mode, and their verdict
//! evidence.rs  differences large enough for a switch
//! keep.rs      guard of a simulated volume
//! ```
//!
//! Each mode has a *ghost*: a volume of the same size on devices of the same models. A ghost begins with the
//! same homes, stays in its mode, and serves the guests' requests to the real volume in virtual time. A
//! ghost's latencies are therefore the guests' latencies if the volume had been in this mode all along. The
//! cost of a switch is in no ghost: a switch needs evidence that grows with time (`evidence.rs`). A mode
//! under which a volume first moves much and then has less work is therefore not left prematurely.
//!
//! **Open and closed loops.** Requests with times of their own reach a ghost at the same times. Clients that
//! wait for answers would ask a faster volume for more. If the number of outstanding requests reaches its
//! peak again and again, the peak is taken as the number of clients. Each client asks after a think time
//! given by Little's law (`watch.rs`). Clients with long think times look like an open loop.
//!
//! **Cost.** A ghost takes about as much memory and processor time as a simulation of the volume: some 2 to 4
//! µs for each served request. A ghost may have a part of the volume (`scale.rs`). In a simulation the
//! ghost's devices have exactly the models of the simulated devices; a daemon's guard is no better than its
//! models.

mod evidence;
mod ghost;
mod ghosts;
mod keep;
mod scale;
mod watch;

pub use ghost::Clock;
pub use ghosts::{BATCH, Ghosts, Homes, Like, LikeDevice, Verdict};
pub(crate) use keep::{GuardActions, keep};
pub use scale::Scale;
pub use watch::{Batch, Watch};

#[cfg(test)]
mod tests;
