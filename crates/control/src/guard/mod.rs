//! The guard of a served volume whose policy has modes (`equi,mode=auto`): ghosts of the volume, each in one
//! mode, serve in virtual time what guests ask for, and the policy goes on in the mode that is the best for
//! them ([`braid_lab::guard`]).
//!
//! ```text
//! keep.rs    the daemon's end: what guests ask for, to ghosts; what these say, to the policy
//! measure.rs models of devices that have none, from what they serve
//! worker.rs  the threads of the ghosts, at the lowest priority    like.rs  the volume as ghosts need it: devices with models, homes
//! ```
//!
//! **Cost.** Ghosts have 2 % of a processor. What they serve, they serve of a part of the volume if that is
//! large or its guests ask for more than ghosts can serve in that time, and if even that is too much, they
//! rest between two batches of 5 s. Filling ghosts at the beginning comes on top, and a second of a processor
//! for the model of a device that has none. On the daemon's thread a request costs a note of 32 bytes and
//! three looks at the clock.

mod keep;
mod like;
mod measure;
mod worker;

pub(crate) use keep::{Guard, keep};
pub(crate) use like::Models;
