//! The guard of a policy that has modes ([`braid_policy::Policy::modes`]): which mode is the best for a load,
//! simulations of that load tell while it runs.
//!
//! ```text
//! watch.rs     what guests ask for, and how many of them wait      scale.rs   ghosts of a part of a volume
//! ghost.rs     a volume in one mode, which gets the same requests   ghosts.rs  one for each mode, and what they say together
//! evidence.rs  when a difference is large enough to switch         keep.rs    the guard of a simulated volume
//! ```
//!
//! Each mode has a *ghost*: a volume of the same size on devices of the same models, which begins with the
//! same homes, has been in that mode ever since, and serves in virtual time what guests ask the real one for.
//! What a ghost's requests take is therefore what guests would wait if the volume had been in that mode all
//! along. What it costs to get there is in no ghost: a switch needs evidence that grows with time
//! (`evidence.rs`), so that a mode under which a volume first moves much and then has less to do is not left
//! meanwhile.
//!
//! **Open and closed loops.** Requests that come at times of their own come at these times to a ghost.
//! Clients that wait for answers would ask a faster volume for more: if as many requests as ever at once are
//! under way again and again, so many clients are taken to ask, each after a time to think that Little's law
//! gives (`watch.rs`). Clients that think for long look like an open loop.
//!
//! **Cost.** A ghost takes about as much memory and processor time as a simulation of the volume: some 2 to 4
//! µs for each request that it serves. A ghost may have a part of the volume (`scale.rs`). In a simulation
//! its devices have the very models of the simulated ones; a daemon's guard is no better than the models that
//! it has.

mod evidence;
mod ghost;
mod ghosts;
mod keep;
mod scale;
mod watch;

pub use ghost::Clock;
pub use ghosts::{BATCH, Ghosts, Homes, Like, LikeDevice, Verdict};
pub(crate) use keep::{Kept, keep};
pub use scale::Scale;
pub use watch::{Batch, Watch};

#[cfg(test)]
mod tests;
