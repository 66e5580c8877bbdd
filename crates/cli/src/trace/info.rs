//! `braid trace info`.

use super::reading::{FileProgress, Reading, complaints, open_once};
use super::{failed, report};
use crate::output::Output;
use braid_control::Result;
use braid_trace::measure::{Limits, Measured, Measures};
use braid_trace::{Layout, Problem, Tally};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Measure a trace as papers do: requests, sizes, footprint, locality, burstiness, reuse, miss ratios
///
/// The trace is read once, in at most some 450 MiB of memory, whatever its length. Sizes, footprint and reuse
/// count reads and writes; flushes and discards are counted, and included in burstiness. The definition of
/// each figure is at the head of the file of its name in crates/trace/src/measure.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid trace info Financial1.spc.gz
  braid trace info src1_0.csv.gz --json | jq '.locality.hottest_20_percent_references_share'
  zstdcat OLTP.lis.zst | braid trace info - --block 4KiB

JSON: input_path, format, compression, records, bad_records, other_devices_records, reordered_records,
late_records, problems (record_number, problem; the first 20), trace_devices (trace_device, requests,
end_bytes), and
  counts: requests, read_requests, write_requests, flush_requests, discard_requests, read_share,
    read_bytes, written_bytes, discarded_bytes
  rate: duration_seconds, arrivals_per_second, arrival_bytes_per_second, peak_arrivals_per_second
  sizes: all, read, write, each: requests, request_bytes_mean, _min, _p10, _p50, _p90, _p99, _max
  footprint: footprint_block_bytes, footprint_blocks, footprint_bytes, only_read_bytes, only_written_bytes,
    block_references, sampled_share
  seeks: sequential_share, stream_share, backward_share, seek_bytes_mean, _p50, _p90, _p99,
    histogram (below_bytes, share)
  locality: hottest_20_percent_references_share, shares (blocks_share, references_share)
  burstiness: entropy_slope, entropy_slope_k_max, entropy_bits (with 2^k bins, k = 0, 1, 2 ...)
  reuse: first_references_share, reuse_distance_bytes_p10, _p25, _p50, _p75, _p90, histogram
  miss_ratios: method (exact, sampled), points (cache_size_bytes, miss_ratio)
  working_set: window_seconds, touched_bytes (of each window), touched_bytes_mean, touched_bytes_max")]
pub struct Arguments {
    /// Trace: a file, a folder of its parts, several files joined by +, or - for standard input
    file: PathBuf,
    #[command(flatten)]
    reading: Reading,
    /// Distinct blocks of 4 KiB to follow exactly, 1024 to 1073741824; more blocks are sampled
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().blocks,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1_024..=1 << 30))]
    exact_blocks: usize,
}

/// Report on a trace.
#[derive(Serialize)]
pub(super) struct Report {
    pub input_path: String,
    pub format: String,
    pub compression: String,
    #[serde(flatten)]
    pub tally: Tally,
    pub problems: Vec<Problem>,
    pub trace_devices: Vec<Device>,
    #[serde(flatten)]
    pub measured: Measured,
}

/// A device in a trace.
#[derive(Serialize)]
pub(super) struct Device {
    pub trace_device: String,
    pub requests: u64,
    pub end_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let bar = FileProgress::new();
    let options = arguments.reading.options(Layout::ROOMY);
    let mut reader = open_once(&arguments.file, &options, &bar)?;
    let mut measures = Measures::new(Limits { blocks: arguments.exact_blocks });
    for record in reader.by_ref() {
        measures.add(&record.map_err(failed)?);
    }
    drop(bar);
    let devices = reader.devices().into_iter().map(|seen| Device {
        trace_device: seen.place.device,
        requests: seen.requests,
        end_bytes: seen.end.0,
    });
    let report = Report {
        input_path: arguments.file.display().to_string(),
        format: reader.format().to_string(),
        compression: reader.compression().to_string(),
        tally: reader.tally(),
        problems: reader.problems().kept().to_vec(),
        trace_devices: devices.collect(),
        measured: measures.finish(),
    };
    output.show(&report, || report::describe(&report) + &complaints(&reader));
    Ok(0)
}
