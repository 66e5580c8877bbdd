//! `braid simulate`: simulates a volume on modelled devices in virtual time, and compares policies in one
//! table.

mod bar;
mod best;
mod table;

use crate::output::{Output, complain};
use crate::trace::reading::Content;
pub use bar::{Bar, clock};
use best::Best;
use braid_base::{Bytes, DeviceClass, Nanos};
use braid_control::{Error, ErrorKind, Result};
use braid_lab::{
    Beyond, DEFAULT_POLICY, DeviceSetup, Load, Prefill, Readahead, Run, Setup, Trace, WarmUp, parse_network,
    sweep,
};
use braid_trace::Options;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Simulate a volume on modelled devices under a workload or a trace
///
/// The engine that serves volumes runs in virtual time, on models of SSDs and disks: no data is read or
/// written, and an hour may pass in a second. Several policies, workloads, traces or numbers of clients are
/// simulated on all cores and compared in one table. The same command gives the same figures on every
/// machine.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid simulate --ssd 80GiB,model=x25-m --hdd 73GB,model=mba3073,count=4 --workload zipf,clients=16 \\
    --policy wardrop --policy stripe --policy static,ssd=80%
  braid simulate --ssd 32GB,model=x25-e --hdd 73GB,model=mba3073 --workload netapp-like --clients 1,4,10
  braid simulate --ssd 80GiB,model=x25-m --hdd 320GB,model=barracuda-7200.12 --trace web.csv.gz --repeat 2 --max-gap 10s
  braid simulate --ssd 20%,model=x25-m --hdd 73GB,model=mba3073 --trace web.csv.gz --policy wardrop --policy hdd-only
  braid simulate --ssd 256MiB,model=dram --hdd 292GB,model=./mine.toml,raid0=4 --workload zipf --policy ssd-first

  braid simulate --ssd 64GB,model=x25-m,count=4,node=0-3 --hdd 320GB,model=barracuda-7200.12,count=4,node=0-3 \\
    --network 10Gbit,latency=50us --workload webserver-like --policy working-set --policy stripe

Devices on nodes are reached over a network: a request and its answer each take the latency, and their bytes pass the
node's link. The devices of a node share its link, one transfer after another. Data that moves between devices goes from
node to node, and within a node over no link. Data that is cached, written back or resynchronised passes the host.
Devices without a node are the host's own.

The model dram is the protected memory of an array controller: its data survives a power cut. A dram device is of class
ssd like any other, and the policy decides which data lies on it. --cache is the volume's own write-through memory.

A trace touches a small part of the disks that it was recorded on. With --compact on, the volume is as large as the
extents that the trace reads or writes, in order of address, and so fits devices of any size. Places within an extent
stay. Extents that were apart may become neighbours, which shortens seeks between them. The trace is read once before the
simulation, in at most 300 MiB of memory, for 2^23 groups of 64 extents.

A device whose size is a share of the data has room for that share, in whole extents, plus the volume's metadata;
together the devices must hold all data. Parts of a model that depend on distance are scaled to the size of the device.

Filling the volume before the load begins costs no time, nor do reads of unwritten data, hits in the memory cache, or
work of the processor. Queue time is the wait of a request outside the volume, behind --outstanding others; service time
is its time in the volume, queues of the devices included.

Filled data lies in the same places for all compared policies, as on a volume long in use: the SSDs hold as much of the
data as fits nine tenths of them, extents from everywhere alike, and the disks hold the rest. No policy gains from that
placement, because none has chosen it. static, stripe, ssd-only and hdd-only place filled data by their own rule, because
they never move it. The policy that placed filled data is prefill_policy of each run; --prefill-policy names another for
all runs, such as hdd-only or own.

JSON: wall_seconds, runs. Each run: given (policy, load, clients, as on the command line), under
best-static also best (policy, and tried: policy, latency_ns_mean), and either error (kind, message),
or wall_seconds and requests_per_wall_second (the only figures that differ from machine to machine),
policy (with all settings), prefill_policy (null if nothing was filled), load, seed, volume_bytes,
extent_bytes, measured_seconds, warm_up_seconds, warm_up_requests, think_seconds,
throughput_bytes_per_second, requests_per_second, all, read, write, flush, discard, programme,
settled_seconds (from the beginning of the load; null if throughput was not near its mean at the end),
mode_switches (of equi,mode=auto: seconds from the beginning of the load, and the policy in its mode),
dropped_requests, bad_records, trace, cache_hit_ratio, cache_hits, cache_misses, background, mapped_bytes,
behind_mean_bytes and behind_highest_bytes (bytes of the volume that a copy lacked), map_memory_bytes, policy_memory_bytes, verified_bytes, devices, network, notes (sentences about the run),
intervals.
  trace (null under a workload): span_bytes (all addresses), compacted_bytes (touched extents; null
    with --compact off), passes
  all (reads and writes), read, write, flush, discard: requests, bytes, latency_ns_mean, queue_ns_mean
    and service_ns_mean, each also with _p50, _p95, _p99, _p999, _max
  programme (counted by the workload's own programs; null if the workload has none): operations,
    programme_bytes, operation_ns_mean, _p50, _p90, _p95, _p99, _p999, _max
  background: migrations, migrations_stopped, migrated_bytes, mirrored_bytes, promoted_bytes,
    written_back_bytes, probes, probed_bytes, commits, journal_written_bytes, checkpoints,
    map_written_bytes
  network (null without nodes): moved_bytes (from machine to machine), links: node (null: the host),
    sent_bytes, received_bytes, send_utilisation, receive_utilisation
  devices: device, node (null: the host), class, model, size_bytes, utilisation, queue_depth_mean, requests_share,
    bytes_share, data_share, guest_read_requests, guest_write_requests, guest_read_bytes,
    guest_written_bytes, background_bytes, device_read_bytes, device_written_bytes,
    drive_writes_per_day, flash_written_bytes, write_amplification, erases (null without flash),
    flushes, response_ns_mean, _p50, _p95, _p99, _p999, _max, policy_figures
  intervals: start_seconds, length_seconds, requests, requests_per_second,
    throughput_bytes_per_second, latency_ns_mean, migrated_bytes, devices (requests_share,
    bytes_share, data_share, throughput_bytes_per_second, response_ns_mean, utilisation,
    queue_depth_mean)")]
pub struct Arguments {
    /// SSDs of a model: a name (braid device show) or a file, FILE.toml. raid0=N[,unit=64KiB] or raid1=N
    /// makes each device of N such SSDs, striped or mirrored; SIZE is the size of the whole device. SIZE 20%
    /// is room for this share of the data: of the extents that a trace touches, or of the bytes that a
    /// workload spans. Repeat the option for other kinds
    #[arg(long, value_name = SHAPE, help_heading = "The volume")]
    ssd: Vec<String>,
    /// Hard disks of a model: as --ssd. With as=hdd the model may be a model of an SSD, as the slower class
    /// below a faster SSD; with write-cache=off, writes wait for the platters
    #[arg(long, value_name = SHAPE, help_heading = "The volume")]
    hdd: Vec<String>,
    /// Network between nodes that devices are on (node=K, or node=K-L to distribute devices over several
    /// nodes in turn): rate of each node's link, each way; latency between any two machines [default: 0s];
    /// rate of the host's link [default: never the limit]
    #[arg(long, value_name = "RATE[,latency=TIME][,host=RATE]", help_heading = "The volume")]
    network: Option<String>,
    /// Policy that places and moves data; best-static is the static split with the lowest mean latency, of
    /// 10%, 20% ... 90%. Repeat the option to compare policies [default: equi,mode=auto]
    #[arg(long, value_name = "POLICY[,KEY=VALUE...]", help_heading = "The volume")]
    policy: Vec<String>,
    /// Size of the volume [default: the need of the load; under a trace with --compact off, the capacity of
    /// the devices]
    #[arg(long, help_heading = "The volume")]
    size: Option<Bytes>,
    /// Unit of placement
    #[arg(long, value_name = "SIZE", default_value = "128KiB", help_heading = "The volume")]
    extent: Bytes,
    /// Unit of caching
    #[arg(long, value_name = "SIZE", default_value = "4KiB", help_heading = "The volume")]
    block: Bytes,
    /// Required copies of all data
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "The volume")]
    copies: u8,
    /// Size of the memory cache in extents
    #[arg(long, value_name = "EXTENTS", default_value_t = 100, help_heading = "The volume")]
    cache: usize,
    /// Time to bring a whole extent into the memory cache after a read misses: first (at the first miss),
    /// second (at the second miss, a short while later), or off
    #[arg(long, value_name = "WHEN", default_value_t, help_heading = "The volume")]
    readahead: Readahead,
    /// Memory for read-ahead of up to 16 streams of reads in order or at a stride, such as 32MiB. No
    /// read-ahead with 0, with --readahead off, or with extents of more than 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "0", help_heading = "The volume")]
    ahead: Bytes,
    /// Write-back cache of protected memory between guests and volume, as in a storage controller; 0 for no
    /// cache
    #[arg(long, value_name = "SIZE", default_value = "0", help_heading = "The volume")]
    dram: Bytes,
    /// Part of the volume that holds data before the load begins
    #[arg(long, default_value = "used", help_heading = "The volume")]
    prefill: Fill,
    /// Policy that places the filled data, or own for the simulated policy itself [default: one placement for
    /// all]
    #[arg(long, value_name = "POLICY", help_heading = "The volume")]
    prefill_policy: Option<String>,
    /// Generated load. Repeat the option to compare loads
    #[arg(long, value_name = "WORKLOAD[,KEY=VALUE...]", help_heading = "The load")]
    workload: Vec<String>,
    /// Recorded load: a file, or its parts, merged by time: a folder, or FILE+FILE. Repeat the option to
    /// compare loads
    #[arg(long, value_name = "FILE", help_heading = "The load")]
    trace: Vec<PathBuf>,
    /// Compaction of a trace: the touched extents are numbered without gaps, in order of address
    #[arg(long, value_name = "WHETHER", default_value = "on", help_heading = "The load")]
    compact: Compact,
    /// Number of times to play a trace, one after the other; only the last is measured
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "The load")]
    repeat: u32,
    /// Longest time between two requests of a trace; longer gaps are cut to this time
    #[arg(long, value_name = "TIME", help_heading = "The load")]
    max_gap: Option<Nanos>,
    /// Unit of a trace's addresses, in formats of sectors or blocks [default: 512B]
    #[arg(long, value_name = "SIZE", help_heading = "Reading")]
    trace_block: Option<Bytes>,
    #[command(flatten)]
    content: Content,
    /// Number of clients, each with one request at a time (closed loop); several numbers to compare
    #[arg(long, value_delimiter = ',', help_heading = "The load")]
    clients: Vec<u32>,
    /// Wait of a client before each request
    #[arg(long, value_name = "TIME", help_heading = "The load")]
    think: Option<Nanos>,
    /// Processors shared by all clients during --think waits and computation [default: one for each client]
    #[arg(long, value_name = "COUNT", help_heading = "The load")]
    processors: Option<usize>,
    /// Factor by which requests arrive faster than recorded (open loop)
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = "The load")]
    speed: f64,
    /// Requests in the volume at the same time, at most (open loop); further requests wait outside
    #[arg(long, value_name = "COUNT", default_value_t = 256, help_heading = "The load")]
    outstanding: usize,
    /// Seed of workload and devices
    #[arg(long, default_value_t = 1, help_heading = "The load")]
    seed: u64,
    /// Treatment of requests beyond the end of the volume
    #[arg(long, default_value = "refuse", help_heading = "The load")]
    beyond: End,
    /// Part of the load before the measurement begins: 30s, 10000req, or 50% of its requests
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "What is measured")]
    warm_up: WarmUp,
    /// Length of the measurement after that [default: until the load ends]
    #[arg(long, value_name = "TIME", help_heading = "What is measured")]
    duration: Option<Nanos>,
    /// Requests after which the load ends, warm-up included
    #[arg(long, value_name = "COUNT", help_heading = "What is measured")]
    requests: Option<u64>,
    /// Length of an interval of the time series [default: chosen to fit the run]
    #[arg(long, value_name = "TIME", help_heading = "What is measured")]
    interval: Option<Nanos>,
    /// File for a line about each measured request, as CSV: arrival_ns (from the beginning of the load),
    /// operation, offset_bytes, length_bytes, queue_ns, service_ns. For a single simulation only
    #[arg(long, value_name = "FILE", help_heading = "What is measured")]
    request_log: Option<PathBuf>,
    /// Verify that every read returns the last write
    #[arg(long, help_heading = "What is measured")]
    verify: bool,
    /// Simulations to run in parallel [default: one for each core]
    #[arg(long, value_name = "COUNT", help_heading = "What is measured")]
    threads: Option<usize>,
}

/// Syntax of `--ssd` and `--hdd`.
const SHAPE: &str = "SIZE,model=M[,count=N][,node=K|,node=K-L][,raid0=N|,raid1=N]";

/// Whether to compact traces.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compact {
    /// The volume is as large as the touched extents, and the touched extents are filled
    On,
    /// Addresses of the trace stay, with its devices one after another
    Off,
}

/// Part of the volume to fill.
#[derive(Clone, Copy, ValueEnum)]
enum Fill {
    /// Nothing
    None,
    /// The part that the workload uses; under a trace, the touched part, or everything up to the trace's end
    /// without compaction
    Used,
    /// The whole volume
    All,
}

/// Treatment of requests beyond the end of the volume.
#[derive(Clone, Copy, ValueEnum)]
enum End {
    /// Report an error
    Refuse,
    /// Take the address modulo the volume's size
    Wrap,
    /// Leave the requests out and count them
    Drop,
}

/// A run as given on the command line.
#[derive(Clone, Serialize)]
struct Given {
    policy: String,
    load: String,
    clients: Option<u32>,
}

/// A run and its result.
#[derive(Serialize)]
struct Row {
    given: Given,
    /// Set for `best-static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<Best>,
    #[serde(flatten)]
    result: Ended,
}

/// Result of a run.
#[derive(Serialize)]
#[serde(untagged)]
enum Ended {
    Done(Box<Run>),
    Failed { error: Error },
}

impl Row {
    /// Name of the policy in tables.
    fn policy(&self) -> String {
        match &self.best {
            None => self.given.policy.clone(),
            Some(best) => format!("{}: {}", best::NAME, best.policy),
        }
    }
}

/// Simulations of a row: one, or several for `best-static`.
struct Planned {
    given: Given,
    setups: Vec<Setup>,
}

#[derive(Serialize)]
struct Report {
    wall_seconds: f64,
    runs: Vec<Row>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let planned = plan(arguments)?;
    let setups: Vec<Setup> = planned.iter().flat_map(|planned| planned.setups.clone()).collect();
    let (begun, bar) = (Instant::now(), Bar::new());
    let results = sweep(&setups, arguments.threads, |progress| bar.show(progress));
    bar.end();
    let mut results = results.into_iter();
    let rows = planned.into_iter().map(|planned| row(planned, &mut results));
    let report = Report { runs: rows.collect(), wall_seconds: begun.elapsed().as_secs_f64() };
    let mut failed: Vec<&Row> =
        report.runs.iter().filter(|row| matches!(row.result, Ended::Failed { .. })).collect();
    if let (Some(Row { result: Ended::Failed { error }, .. }), true) =
        (failed.first(), failed.len() == report.runs.len())
    {
        return Err(error.clone());
    }
    output.show(&report, || table::describe(&report, &setups[0]));
    let mut status = 0;
    for row in failed.drain(..) {
        if let Ended::Failed { error } = &row.result {
            complain(&format!("braid: {} under {}: {error}", row.given.load, row.given.policy));
            status = status.max(error.exit_status());
        }
    }
    Ok(status)
}

/// Takes the results of a row's simulations and makes the row.
fn row(
    Planned { given, setups }: Planned,
    results: &mut impl Iterator<Item = braid_lab::Result<Run>>,
) -> Row {
    let mut results: Vec<_> = results.take(setups.len()).collect();
    let (result, best) = match results.len() {
        1 => (results.remove(0), None),
        _ => {
            let policies = setups.into_iter().map(|setup| setup.policy).collect();
            let (result, best) = best::best(policies, results);
            (result, Some(best))
        }
    };
    let result = match result {
        Ok(run) => Ended::Done(Box::new(run)),
        Err(error) => Ended::Failed { error: failure(&error) },
    };
    Row { given, best, result }
}

/// Returns a row for every combination of policy, load and number of clients.
fn plan(arguments: &Arguments) -> Result<Vec<Planned>> {
    let usage = |problem: &str| Err(Error::new(ErrorKind::Usage, problem));
    let devices = devices(arguments)?;
    let network = arguments.network.as_deref().map(parse_network).transpose();
    let network = network.map_err(|error| failure(&error))?;
    if devices.is_empty() {
        return usage("a volume needs devices: name at least one, as in --ssd 80GiB,model=x25-m");
    }
    if arguments.workload.is_empty() && arguments.trace.is_empty() {
        return usage("a simulation needs a load: --workload NAME or --trace FILE");
    }
    if arguments.threads == Some(0) {
        return usage("--threads 0: use at least 1");
    }
    let usual = vec![DEFAULT_POLICY.to_owned()];
    let policies = if arguments.policy.is_empty() { &usual } else { &arguments.policy };
    let clients: Vec<Option<u32>> = match arguments.clients.as_slice() {
        [] => vec![None],
        numbers => numbers.iter().copied().map(Some).collect(),
    };
    let mut planned = Vec::new();
    for (name, load) in loads(arguments) {
        for &clients in &clients {
            for policy in policies {
                let given = Given { policy: policy.clone(), load: name.clone(), clients };
                let load = load.clone().with_clients(clients, arguments.think);
                let policies = best::policies(policy);
                let setup = |policy: &String| Setup {
                    network,
                    ..setup(arguments, devices.clone(), policy, load.clone())
                };
                planned.push(Planned { given, setups: policies.iter().map(setup).collect() });
            }
        }
    }
    let simulations: usize = planned.iter().map(|planned| planned.setups.len()).sum();
    if arguments.request_log.is_some() && simulations > 1 {
        return Err(Error::new(
            ErrorKind::Usage,
            format!(
                "--request-log: {simulations} simulations: at most 1: name one policy, one load and one number of clients"
            ),
        ));
    }
    Ok(planned)
}

fn devices(arguments: &Arguments) -> Result<Vec<DeviceSetup>> {
    let ssds = arguments.ssd.iter().map(|text| DeviceSetup::parse(DeviceClass::Ssd, text));
    let hdds = arguments.hdd.iter().map(|text| DeviceSetup::parse(DeviceClass::Hdd, text));
    ssds.chain(hdds).map(|device| device.map_err(|error| failure(&error))).collect()
}

fn loads(arguments: &Arguments) -> Vec<(String, Load)> {
    let workloads = arguments.workload.iter().map(|text| (text.clone(), Load::Workload(text.clone())));
    let traces = arguments.trace.iter().map(|path| {
        let trace = Trace {
            options: Options { block: arguments.trace_block, ..arguments.content.options() },
            compact: arguments.compact == Compact::On,
            repeat: arguments.repeat,
            max_gap: arguments.max_gap,
            ..Trace::new(path)
        };
        (path.display().to_string(), Load::Trace(trace))
    });
    workloads.chain(traces).collect()
}

fn setup(arguments: &Arguments, devices: Vec<DeviceSetup>, policy: &str, load: Load) -> Setup {
    Setup {
        seed: arguments.seed,
        size: arguments.size,
        extent_size: arguments.extent,
        block_size: arguments.block,
        copies: arguments.copies,
        cache_extents: arguments.cache,
        readahead: arguments.readahead,
        ahead: arguments.ahead,
        dram: arguments.dram,
        prefill: match arguments.prefill {
            Fill::None => Prefill::None,
            Fill::Used => Prefill::Used,
            Fill::All => Prefill::All,
        },
        prefill_policy: arguments.prefill_policy.clone(),
        warm_up: arguments.warm_up,
        duration: arguments.duration,
        requests: arguments.requests,
        processors: arguments.processors,
        speed: arguments.speed,
        outstanding: arguments.outstanding,
        beyond: match arguments.beyond {
            End::Refuse => Beyond::Refuse,
            End::Wrap => Beyond::Wrap,
            End::Drop => Beyond::Drop,
        },
        verify: arguments.verify,
        request_log: arguments.request_log.clone(),
        interval: arguments.interval,
        ..Setup::new(devices, policy, load)
    }
}

/// Converts an error of the lab to an error of the command.
pub fn failure(error: &braid_lab::Error) -> Error {
    let kind = match error.kind() {
        braid_lab::ErrorKind::Setup => ErrorKind::Usage,
        braid_lab::ErrorKind::Trace => ErrorKind::Io,
        braid_lab::ErrorKind::Volume | braid_lab::ErrorKind::Stopped => ErrorKind::Invalid,
        braid_lab::ErrorKind::WrongData => ErrorKind::Corrupt,
    };
    Error::new(kind, error.to_string())
}
