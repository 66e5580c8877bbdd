//! The guard of a served volume whose policy has modes (`equi,mode=auto`). Ghosts of the volume, one for each
//! mode, serve the guests' requests in virtual time. The policy continues in the mode with the best result
//! ([`braid_lab::guard`]).
//!
//! ```text
//! keep.rs    the daemon's end: what guests ask for, to ghosts; what these say, to the policy
//! measure.rs models of devices that have none, from what they serve
//! worker.rs  the threads of the ghosts, at the lowest priority    like.rs  the volume as ghosts need it: devices with models, homes
//! ```
//!
//! **Cost.** Ghosts may use 2 % of a processor. If the volume is large, or guests send more requests than
//! ghosts can serve with this share, the ghosts simulate a part of the volume. If a part still costs too
//! much, the ghosts rest between two batches of 5 s. Filling the ghosts at the start costs extra, and so does
//! a second of a processor for each measured device's model. On the daemon's thread a request costs a note of
//! 32 bytes and three looks at the clock.

mod keep;
mod like;
mod measure;
mod worker;

pub(crate) use keep::{Guard, keep};
pub(crate) use like::Models;
