//! The lab: what a volume would do, on devices that exist as models, under a workload or a trace, in virtual time.
//!
//! It drives the engine's own [`braid_engine::Volume`]; there is no second data path. The same [`Setup`] gives the same
//! [`Outcome`] to the last digit, on any machine and beside any number of others.
//!
//! ```text
//! setup.rs        what shall be simulated: plain data
//! simulation.rs   one simulation from its beginning to its end     sweep.rs   many of them, on all cores
//! rig.rs          devices and volume, filled                       guests.rs  who asks the volume for what, and when
//! recorder.rs     what guests saw     series.rs  how it changed    verify.rs  whether every read was right
//! outcome.rs      what comes out: plain data
//! ```
//!
//! What is not modelled: the processor (the engine's own work and hits in the memory cache take no time), the host's bus,
//! file systems, and whatever the device models leave out.
#![forbid(unsafe_code)]

mod error;
mod gate;
mod guests;
mod outcome;
mod recorder;
mod rig;
mod series;
mod setup;
mod simulation;
mod source;
mod sweep;
mod verify;

pub use error::{Error, ErrorKind, Result};
pub use outcome::{Background, DeviceOutcome, Distribution, Interval, IntervalDevice, Operation, Outcome};
pub use setup::{Beyond, DeviceSetup, Load, Prefill, Setup, Trace};
pub use simulation::{Run, simulate};
pub use sweep::{Progress, sweep, sweep_while};
