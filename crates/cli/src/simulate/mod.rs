//! `braid simulate`: what a volume would do on modelled devices, in virtual time; policy beside policy in one
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
/// The engine that serves volumes runs in virtual time, over models of SSDs and disks: nothing is read or
/// written, and an hour may pass in a second. Several policies, workloads, traces or numbers of clients are
/// simulated on all cores, and come out side by side. The same command gives the same figures on every
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

Devices on nodes are reached over a network: a request and its answer each take the latency, and their bytes pass the node's link,
which its devices share, one transfer after another. What moves between devices goes from node to node, and within a node
over no link; what is cached, written back or resynchronised passes the host. Devices without a node are the host's own.

The model dram is the protected memory of an array controller: what it holds survives a power cut. It is a device of class
ssd like any other, and the policy decides what lies on it. --cache is the volume's own memory, through which writes go.

A trace touches a small part of the disks that it was recorded on. With --compact on the volume is as large as the extents
that it reads or writes, in order of address, so that it fits devices of any size. Places within an extent stay; extents
that were apart may become neighbours, which shortens seeks between them. The trace is read once before it is simulated, in
at most 300 MiB, for 2^23 groups of 64 extents.

A device whose size is a share of the data has room for that share, in whole extents, and for the volume's metadata beside
it; together the devices must hold all data. What depends on distance in a model is scaled to the size of the device.

What is filled before the load begins costs no time; neither does a read of what was never written. Hits in the memory
cache and the work of the processor take no time either. Queue time is what a request waits outside the volume, because
--outstanding others are in it; service time is what it takes in the volume, queues of the devices included.

What is filled lies in the same places for all policies that are compared, as on a volume long in use: the SSDs hold as much of
the data as fits nine tenths of them, extents from everywhere alike, and the disks hold the rest. No policy gains from that: none
has chosen what lies there. static, stripe, ssd-only and hdd-only place it by their own rule, for they never move it. The
policy that did it is prefill_policy of each run; --prefill-policy names another for all, such as hdd-only or own.

JSON: wall_seconds, runs. Each run: given (policy, load, clients, as on the command line), under
best-static also best (policy, and tried: policy, latency_ns_mean), and either error (kind, message),
or wall_seconds and requests_per_wall_second (the only figures that differ from machine to machine),
policy (with all settings), prefill_policy (null if nothing was filled), load, seed, volume_bytes,
extent_bytes, measured_seconds, warm_up_seconds, warm_up_requests, think_seconds,
throughput_bytes_per_second, requests_per_second, all, read, write, flush, discard, programme,
settled_seconds (from the load's beginning on; null if throughput was not near its mean at the end),
mode_switches (of equi,mode=auto: seconds from the load's beginning, and the policy in its mode),
dropped_requests, bad_records, trace, cache_hit_ratio, cache_hits, cache_misses, background, mapped_bytes,
behind_mean_bytes and behind_highest_bytes (of the volume: what a copy lacked), map_memory_bytes, policy_memory_bytes, verified_bytes, devices, network, notes (what to know of it: sentences),
intervals.
  trace (null under a workload): span_bytes (all addresses), compacted_bytes (touched extents; null
    with --compact off), passes
  all (reads and writes), read, write, flush, discard: requests, bytes, latency_ns_mean, queue_ns_mean
    and service_ns_mean, each also with _p50, _p95, _p99, _p999, _max
  programme (what a workload's programmes count themselves; null if it has none): operations,
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
    /// makes each device of N of them, striped or mirrored; SIZE is that of the whole. 20% is room for this
    /// share of the data: of the extents that a trace touches, or of what a workload spans. Repeat it for
    /// other kinds
    #[arg(long, value_name = SHAPE, help_heading = "The volume")]
    ssd: Vec<String>,
    /// Hard disks of a model: as --ssd. With as=hdd the model may be one of an SSD, below a faster one
    #[arg(long, value_name = SHAPE, help_heading = "The volume")]
    hdd: Vec<String>,
    /// What joins nodes that devices are on (node=K, or node=K-L for several by turns): the rate of each
    /// node's link, each way, the latency from any machine to any other [default: 0s], and the rate of the
    /// host's link [default: never the limit]
    #[arg(long, value_name = "RATE[,latency=TIME][,host=RATE]", help_heading = "The volume")]
    network: Option<String>,
    /// What decides where data lies and when it moves; best-static is the static split with the lowest mean
    /// latency, of 10%, 20% ... 90%. Repeat it to compare [default: equi,mode=auto]
    #[arg(long, value_name = "POLICY[,KEY=VALUE...]", help_heading = "The volume")]
    policy: Vec<String>,
    /// The volume's size [default: what the load needs; under a trace with --compact off, what the devices
    /// hold]
    #[arg(long, help_heading = "The volume")]
    size: Option<Bytes>,
    /// The unit of placement
    #[arg(long, value_name = "SIZE", default_value = "128KiB", help_heading = "The volume")]
    extent: Bytes,
    /// The unit of caching
    #[arg(long, value_name = "SIZE", default_value = "4KiB", help_heading = "The volume")]
    block: Bytes,
    /// Required copies of everything
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "The volume")]
    copies: u8,
    /// Extents in the memory cache
    #[arg(long, value_name = "EXTENTS", default_value_t = 100, help_heading = "The volume")]
    cache: usize,
    /// When a read that misses the memory cache brings all of its extent there: first (at the first miss),
    /// second (at the second, a short while later), or off
    #[arg(long, value_name = "WHEN", default_value_t, help_heading = "The volume")]
    readahead: Readahead,
    /// Memory for what is read ahead of up to 16 streams, of reads that follow each other in order or by a
    /// stride, such as 32MiB; 0 for none, as with --readahead off, and with extents of more than 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "0", help_heading = "The volume")]
    ahead: Bytes,
    /// Write-back cache of protected memory between guests and volume, as in a storage controller; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "0", help_heading = "The volume")]
    dram: Bytes,
    /// What holds bytes before the load begins
    #[arg(long, default_value = "used", help_heading = "The volume")]
    prefill: Fill,
    /// The policy that places what is filled before, or own for the one that is simulated [default: one for
    /// all]
    #[arg(long, value_name = "POLICY", help_heading = "The volume")]
    prefill_policy: Option<String>,
    /// A generated load. Repeat it to compare
    #[arg(long, value_name = "WORKLOAD[,KEY=VALUE...]", help_heading = "The load")]
    workload: Vec<String>,
    /// A recorded load: a file, or the parts of one, merged by time: a folder, or FILE+FILE. Repeat it to
    /// compare
    #[arg(long, value_name = "FILE", help_heading = "The load")]
    trace: Vec<PathBuf>,
    /// Whether the extents that a trace touches are numbered without the gaps between them, in order of
    /// address
    #[arg(long, value_name = "WHETHER", default_value = "on", help_heading = "The load")]
    compact: Compact,
    /// How often a trace is played, one time after the other; only the last is measured
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "The load")]
    repeat: u32,
    /// The longest time between two requests of a trace; longer ones are cut to it
    #[arg(long, value_name = "TIME", help_heading = "The load")]
    max_gap: Option<Nanos>,
    /// What an address of a trace counts, in formats of sectors or blocks [default: 512B]
    #[arg(long, value_name = "SIZE", help_heading = "Reading")]
    trace_block: Option<Bytes>,
    #[command(flatten)]
    content: Content,
    /// Clients that each wait for their last request (closed loop); several numbers to compare
    #[arg(long, value_delimiter = ',', help_heading = "The load")]
    clients: Vec<u32>,
    /// How long a client waits before each request
    #[arg(long, value_name = "TIME", help_heading = "The load")]
    think: Option<Nanos>,
    /// Processors that all clients share while they wait like this or compute [default: one for each client]
    #[arg(long, value_name = "COUNT", help_heading = "The load")]
    processors: Option<usize>,
    /// How much faster requests come than their times say (open loop)
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = "The load")]
    speed: f64,
    /// Requests in the volume at the same time, at most (open loop); more wait outside
    #[arg(long, value_name = "COUNT", default_value_t = 256, help_heading = "The load")]
    outstanding: usize,
    /// Seed of workload and devices
    #[arg(long, default_value_t = 1, help_heading = "The load")]
    seed: u64,
    /// What becomes of requests beyond the volume's end
    #[arg(long, default_value = "refuse", help_heading = "The load")]
    beyond: End,
    /// How far the load runs before anything is measured: 30s, 10000req, or 50% of its requests
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "What is measured")]
    warm_up: WarmUp,
    /// How long it is measured then [default: until the load ends]
    #[arg(long, value_name = "TIME", help_heading = "What is measured")]
    duration: Option<Nanos>,
    /// Requests after which the load ends, warm-up included
    #[arg(long, value_name = "COUNT", help_heading = "What is measured")]
    requests: Option<u64>,
    /// Length of an interval of the time series [default: one that fits]
    #[arg(long, value_name = "TIME", help_heading = "What is measured")]
    interval: Option<Nanos>,
    /// A file that gets a line for each measured request, as CSV: arrival_ns (from the beginning of the
    /// load), operation, offset_bytes, length_bytes, queue_ns, service_ns. Of one simulation alone
    #[arg(long, value_name = "FILE", help_heading = "What is measured")]
    request_log: Option<PathBuf>,
    /// Verify that every read returns the last write
    #[arg(long, help_heading = "What is measured")]
    verify: bool,
    /// Simulations at the same time [default: one for each core]
    #[arg(long, value_name = "COUNT", help_heading = "What is measured")]
    threads: Option<usize>,
}

/// How a kind of devices is given.
const SHAPE: &str = "SIZE,model=M[,count=N][,node=K|,node=K-L][,raid0=N|,raid1=N]";

/// Whether traces are compacted.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compact {
    /// The volume is as large as the touched extents, and these are what is filled
    On,
    /// Addresses are those of the trace, its devices one after another
    Off,
}

/// What is filled.
#[derive(Clone, Copy, ValueEnum)]
enum Fill {
    /// Nothing
    None,
    /// What the workload uses; under a trace, what it touches, or all up to its end if it is not compacted
    Used,
    /// The whole volume
    All,
}

/// What becomes of requests beyond the end.
#[derive(Clone, Copy, ValueEnum)]
enum End {
    /// An error
    Refuse,
    /// Their address is taken modulo the volume's size
    Wrap,
    /// They are left out and counted
    Drop,
}

/// What a run was asked for on the command line.
#[derive(Clone, Serialize)]
struct Given {
    policy: String,
    load: String,
    clients: Option<u32>,
}

/// A run, and what came of it.
#[derive(Serialize)]
struct Row {
    given: Given,
    /// Of `best-static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<Best>,
    #[serde(flatten)]
    result: Ended,
}

/// What came of a run.
#[derive(Serialize)]
#[serde(untagged)]
enum Ended {
    Done(Box<Run>),
    Failed { error: Error },
}

impl Row {
    /// The policy as tables name it.
    fn policy(&self) -> String {
        match &self.best {
            None => self.given.policy.clone(),
            Some(best) => format!("{}: {}", best::NAME, best.policy),
        }
    }
}

/// What is simulated for a row: several policies if the best of them is asked for.
struct Planned {
    given: Given,
    setups: Vec<Setup>,
}

#[derive(Serialize)]
struct Report {
    wall_seconds: f64,
    runs: Vec<Row>,
}

/// Runs the verb.
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

/// What came of the next simulations.
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

/// Every policy under every load with every number of clients.
fn plan(arguments: &Arguments) -> Result<Vec<Planned>> {
    let usage = |problem: &str| Err(Error::new(ErrorKind::Usage, problem));
    let devices = devices(arguments)?;
    let network = arguments.network.as_deref().map(parse_network).transpose();
    let network = network.map_err(|error| failure(&error))?;
    if devices.is_empty() {
        return usage("a volume is made of devices: name at least one, as in --ssd 80GiB,model=x25-m");
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
                "--request-log is of one simulation, and there are {simulations}: name one policy, one load and one number of clients"
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

/// A failure of the lab as one of a command.
pub fn failure(error: &braid_lab::Error) -> Error {
    let kind = match error.kind() {
        braid_lab::ErrorKind::Setup => ErrorKind::Usage,
        braid_lab::ErrorKind::Trace => ErrorKind::Io,
        braid_lab::ErrorKind::Volume | braid_lab::ErrorKind::Stopped => ErrorKind::Invalid,
        braid_lab::ErrorKind::WrongData => ErrorKind::Corrupt,
    };
    Error::new(kind, error.to_string())
}
