//! The lab: simulations of volumes on modelled devices, under a workload or a trace, in virtual time.
//!
//! The lab drives the engine's own [`braid_engine::Volume`]; there is no second data path. The same [`Setup`]
//! gives the same [`Outcome`] to the last digit, on any machine and beside any number of other simulations.
//!
//! ```text
//! setup.rs        what shall be simulated: plain data             device.rs  devices of it, from text to model
//! simulation.rs   one simulation from its beginning to its end     sweep.rs   many of them, on all cores
//! sizes.rs        sizes as shares of the data                      made.rs    policies without a name
//! fill.rs         what lies where before the load begins
//! rig.rs          devices and volume, filled                       guests.rs  who asks the volume for what, and when
//! source.rs       where requests come from    parts.rs  of several workloads, each for a time    replay.rs  those of a trace
//! computing.rs    what clients do between requests                settling.rs  when their throughput was steady
//! dram.rs         a controller's cache between the two
//! recorder.rs     what guests saw     request_log.rs  request by request, in a file     series.rs  how it changed    verify.rs  whether every read was right
//! guard/          which mode of a policy is the best for the load, told by simulations of it
//! outcome.rs      what comes out: plain data                        notes.rs   what to know of it
//!
//! experiment.rs   what an experiment is: a declaration            experiments/  those of each paper
//! study.rs        runs declarations                               judge.rs      ours beside the paper's
//! report/         a page with plots of what came out
//! corpus/         many cells that judge policies, without a paper
//! advice/         what a recorded load would get from policies and sizes of the SSD
//! ```
//!
//! Not modelled: the volume's processor (the engine's own work and hits in the memory cache take no time),
//! the host's bus, file systems, and everything outside the device models.
#![forbid(unsafe_code)]

pub mod advice;
mod block_costs;
mod computing;
pub mod corpus;
mod device;
mod dram;
mod error;
pub mod estimate;
pub mod experiment;
pub mod experiments;
mod fill;
mod gate;
pub mod guard;
mod guests;
pub mod judge;
mod made;
mod measure;
mod memory;
mod network;
mod notes;
mod outcome;
mod parts;
mod recorder;
mod replay;
pub mod report;
mod request_log;
mod rig;
mod series;
mod settling;
mod setup;
mod simulation;
mod sizes;
mod source;
pub mod study;
mod sweep;
mod verify;

pub use block_costs::{CostCurves, Metric};
pub use braid_engine::{READ_AHEAD, Readahead};
pub use braid_policy::DEFAULT as DEFAULT_POLICY;
pub use device::{DeviceGroup, DeviceSetup, Size};
pub use error::{Error, ErrorKind, Result};
pub use fill::OWN;
pub use made::MadePolicy;
pub use network::parse_network;
pub use outcome::{
    Background, BatchSum, DeviceOutcome, Distribution, Interval, IntervalDevice, LinkOutcome, ModeSwitch,
    NetworkOutcome, Operation, Outcome, Programme, TraceOutcome,
};
pub use setup::{Beyond, Load, Part, Prefill, Recorded, Setup, Trace, WarmUp};
pub use simulation::{Run, simulate};
pub use sweep::{Progress, sweep, sweep_while};
