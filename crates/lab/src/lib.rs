//! The lab: simulations of volumes on modelled devices, under a workload or a trace, in virtual time.
//!
//! The lab drives the engine's own [`braid_engine::Volume`]; there is no second data path. The same [`Setup`]
//! gives the same [`Outcome`] to the last digit, on any machine and beside any number of other simulations.
//!
//! ```text
//! setup.rs        declaration of a simulation: plain data
//! device.rs       its devices, from text to model
//! simulation.rs   one simulation, from beginning to end
//! sweep.rs        many simulations on all cores
//! sizes.rs        sizes as shares of the data
//! made.rs         policies made by a caller
//! fill.rs         contents before the load begins
//! rig.rs          devices and a filled volume
//! guests.rs       clients and their requests
//! computing.rs    computation between requests
//! source.rs       source of requests
//! parts.rs        several workloads in turn
//! replay.rs       requests of a trace
//! dram.rs         cache of a controller before the volume
//! recorder.rs     latencies seen by guests
//! request_log.rs  each request, in a file
//! series.rs       figures over time
//! settling.rs     time until steady throughput
//! verify.rs       verification of every read
//! outcome.rs      result: plain data
//! notes.rs        notes on a result
//! guard/          best mode of a policy, by simulations
//!
//! experiment.rs   declaration of an experiment
//! experiments/    experiments of each paper
//! study.rs        runs declarations
//! judge.rs        verdicts beside the paper's figures
//! report/         page with plots
//! corpus/         many cells that compare policies
//! advice/         forecast for a recorded load: policies, sizes of the SSD
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
pub use braid_policy::{DEFAULT as DEFAULT_POLICY, NAMES as POLICIES};
pub use braid_workload::names as workloads;
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
