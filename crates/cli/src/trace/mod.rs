//! `braid trace`: recorded loads. Each subcommand has a file of its name.

mod convert;
mod info;
mod mrc;
pub mod reading;
pub mod record;
mod report;

use crate::output::Output;
use braid_control::{Error, ErrorKind, Result, StateDir};
use clap::{Args, Subcommand};

/// Measure block traces, convert them, record a volume
///
/// Traces in these formats are read, plain or compressed by gzip, xz or zstd, and detected by their content:
/// spc, msr, blktrace, blkparse, fio (iolog 2 and 3), disksim, ssdsim (also MQSim), msr-cut, cloudphysics,
/// arc, oracle-general, vscsi, srt (HP Labs, versions 1 to 4), fiu (SRCMap), alibaba, tencent, systor (SYSTOR
/// '17), blocks (a number on each line), compact. Bare binary numbers, blocks-u32 and blocks-u64, need
/// --format.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: TraceVerb,
}

#[derive(Subcommand)]
enum TraceVerb {
    Info(Box<info::Arguments>),
    Mrc(Box<mrc::Arguments>),
    Convert(Box<convert::Arguments>),
    Record(record::Arguments),
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.verb {
        TraceVerb::Info(arguments) => info::run(arguments, output),
        TraceVerb::Mrc(arguments) => mrc::run(arguments, output),
        TraceVerb::Convert(arguments) => convert::run(arguments, output),
        TraceVerb::Record(arguments) => record::run(state, arguments, output),
    }
}

/// Converts an error of a trace to an error of the command.
fn failed(error: braid_trace::Error) -> Error {
    let kind = match error {
        braid_trace::Error::Io { .. } => ErrorKind::Io,
        braid_trace::Error::Options(_) => ErrorKind::Usage,
        braid_trace::Error::Unrecognised(_) | braid_trace::Error::Strict { .. } => ErrorKind::Invalid,
    };
    Error::new(kind, error.to_string())
}
