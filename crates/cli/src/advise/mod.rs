//! `braid advise`: forecasts a recorded load under each policy and with other sizes of the SSD, and prints
//! the command to type.

mod scratch;
pub mod text;
mod volume;

use crate::lab::Unfinished;
use crate::output::Output;
use crate::simulate::{Bar, failure};
use crate::trace::reading::Content;
use crate::trace::record::record;
use braid_base::{Bytes, DeviceClass, KIB, Nanos};
use braid_control::{Error, ErrorKind, Result, StateDir, VolumeName};
use braid_lab::advice::{Advice, Question, Window, advise, page};
use braid_lab::{DEFAULT_POLICY, DeviceSetup};
use braid_trace::Options;
use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use scratch::Scratch;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use volume::Served;

/// Find the policy and the SSD size that suit a load
///
/// Records the requests of a served volume's guests, or takes a recording. Simulates the recording under all
/// policies, then under the present and the best policy with SSDs of other sizes. A change is advised only if
/// its gain is at least 5 % of the latency and beyond doubt. Nothing is changed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid advise vault --for 10min --html advice.html
  braid advise vault --trace monday.trace
  braid advise --trace web.csv.gz --ssd 10%,model=sata-ssd --hdd 8TB,model=exos-x20 --try-ssd nvme-ssd
  braid advise --trace web.csv.gz --ssd 80GB,model=x25-m --hdd 320GB,model=barracuda-7200.12 --present hystor

The last --requests of the recording are simulated at their own times (open loop). The first half warms up, the second
half is measured. The present policy and the three fastest others are simulated five times each, starting a little later
and on devices of another seed each time. An interval contains the value with 95 % confidence; it is computed from 16
batches of equally many requests, and from these runs. Policies and load are simulated as by `braid simulate`; the same
recording gives the same advice. Unknown remains how much faster programs would send requests if they wait for answers,
and whether the load stays the same.

With NAME, simulations begin with the volume's own devices, addresses and layout: the daemon tells which extents of the
recording lie on SSDs, if there are at most 65,536. Otherwise simulations begin like those of `braid simulate`. Devices
without a model need one: `braid device calibrate` makes a model, --ssd-model and --hdd-model name it.

JSON: name (null without a volume), command (command to type; null if no change is advised), sentences (the advice in words), wall_seconds (differs from run to run), load, recorded_requests,
recorded_seconds, simulated_requests, warm_up_seconds, measured_seconds, measured_requests, bad_records, unrecorded_requests, measured_latency_ns_mean (of the volume during the
recording; null with --trace), touched_extents_bytes, seed, present_policy,
rows, unfit_policies (policy, why), choice, curves.
  rows, the fastest first: policy, run_count, latency_ns_mean, latency_ns_low, latency_ns_high, latency_ns_p99, difference_ns_mean (to the present
    policy; null for the present policy), difference_ns_low, difference_ns_high, keeps_up, ssd_written_bytes_per_day, drive_writes_per_day,
    ssd_life_days (null without --tbw)
  choice: ruling (change, keep or undecided), advised_policy, gain_ns_mean, gain_ns_low, gain_ns_high, undecided_policy
  curves: policy, ssd_models, knee_bytes (null if the largest SSD still gains a tenth), points: ssd_bytes, size_factor, latency_ns_mean,
    latency_ns_low, latency_ns_high, latency_ns_p99")]
pub struct Arguments {
    /// Name of the volume, which must be served
    name: Option<VolumeName>,
    /// Length of the recording; Ctrl-C ends the recording early, and the advice follows. SIGTERM ends the
    /// command
    #[arg(long = "for", value_name = "TIME", default_value = "10min", conflicts_with = "trace")]
    length: Nanos,
    /// File to keep the recording in
    #[arg(long, value_name = "FILE", conflicts_with = "trace", requires = "name")]
    keep: Option<PathBuf>,
    /// Existing recording instead of a new one: a file, a folder, or FILE+FILE
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// File for a page with the pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// SSDs of a model, without a volume: as in braid simulate
    #[arg(long, value_name = "SIZE,model=M[,count=N]", conflicts_with = "name", help_heading = "Devices")]
    ssd: Vec<String>,
    /// Hard disks of a model: as --ssd
    #[arg(long, value_name = "SIZE,model=M[,count=N]", conflicts_with = "name", help_heading = "Devices")]
    hdd: Vec<String>,
    /// Model of the volume's SSDs that have none: a name (braid device show) or a file, FILE.toml
    #[arg(long, value_name = "MODEL", requires = "name", help_heading = "Devices")]
    ssd_model: Option<String>,
    /// Model of the volume's hard disks that have none
    #[arg(long, value_name = "MODEL", requires = "name", help_heading = "Devices")]
    hdd_model: Option<String>,
    /// Another SSD model to try, in place of all SSDs. Repeat the option to compare models
    #[arg(long, value_name = "MODEL", help_heading = "Devices")]
    try_ssd: Vec<String>,
    /// Bytes that may be written to an SSD in its life, as in its data sheet: 600TB
    #[arg(long, value_name = "SIZE", help_heading = "Devices")]
    tbw: Option<Bytes>,
    /// Present policy, without a volume
    #[arg(
        long,
        value_name = "POLICY[,KEY=VALUE...]",
        default_value = DEFAULT_POLICY,
        conflicts_with = "name",
        help_heading = "Policies"
    )]
    present: String,
    /// Policy to compare with the present policy [default: all that fit]. Repeat the option for more policies
    #[arg(long, value_name = "POLICY[,KEY=VALUE...]", help_heading = "Policies")]
    policy: Vec<String>,
    /// Compare policies only, without other sizes of the SSD
    #[arg(long, help_heading = "Policies")]
    policies_only: bool,
    /// Run for `braid web`: end with the parent process, and the recording with the standard input
    #[arg(long, hide = true)]
    attended: bool,
    /// Number of requests to simulate, at most, from the end of the recording: 64 to 5000000
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(64..=5_000_000), help_heading = "The simulations")]
    requests: u32,
    /// Factor by which requests arrive faster than recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = "The simulations")]
    speed: f64,
    /// Seed of the devices
    #[arg(long, default_value_t = 1, help_heading = "The simulations")]
    seed: u64,
    /// Simulations to run in parallel [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "The simulations")]
    threads: Option<u16>,
    /// Unit of the recording's addresses, in formats of sectors or blocks [default: 512B]
    #[arg(long, value_name = "SIZE", help_heading = "Reading")]
    trace_block: Option<Bytes>,
    #[command(flatten)]
    content: Content,
}

/// How the recording, and the command, are told to end before their time.
struct Ends {
    /// Ctrl-C: ends the recording, or else the command. A second one ends the process.
    interrupted: Arc<AtomicBool>,
    /// SIGTERM or SIGHUP: ends the command, after its folder is removed.
    terminated: Arc<AtomicBool>,
    /// Any of these, or the end of an attended command's input: ends the recording.
    recording: Arc<AtomicBool>,
}

impl Ends {
    fn catch() -> Result<Ends> {
        let flag = || Arc::new(AtomicBool::new(false));
        let ends = Ends { interrupted: flag(), terminated: flag(), recording: flag() };
        let catch = |signal, flag: &Arc<AtomicBool>| {
            register(signal, flag.clone())?;
            register(signal, ends.recording.clone())
        };
        register_conditional_shutdown(SIGINT, 1, ends.interrupted.clone())
            .and_then(|_| catch(SIGINT, &ends.interrupted))
            .and_then(|_| catch(SIGTERM, &ends.terminated))
            .and_then(|_| catch(SIGHUP, &ends.terminated))
            .map_err(|error| Error::io("catching signals", &error))?;
        Ok(ends)
    }

    /// Ends the command with its parent, and the recording with the input, which the parent holds open.
    fn follow_parent(&self) -> Result<()> {
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| Error::io("the end with the parent process", &error.into()))?;
        let recording = self.recording.clone();
        std::thread::spawn(move || {
            // An error ends the input, too.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            recording.store(true, Ordering::Relaxed);
        });
        Ok(())
    }

    /// True if the command is told to end.
    fn is_over(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.terminated.load(Ordering::Relaxed)
    }
}

#[derive(Serialize)]
struct Report {
    name: Option<String>,
    command: Option<String>,
    /// The advice in words.
    sentences: Vec<String>,
    unrecorded_requests: u64,
    /// Mean latency of reads and writes during the recording of the volume.
    measured_latency_ns_mean: Option<f64>,
    wall_seconds: f64,
    #[serde(flatten)]
    advice: Advice,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    check(arguments)?;
    // Signals are caught first, so that the folder is removed however the command ends.
    let ends = Ends::catch()?;
    if arguments.attended {
        ends.follow_parent()?;
    }
    let scratch = Scratch::new()?;
    let served =
        arguments.name.as_ref().map(|name| Served::of(state, name, arguments, &scratch)).transpose()?;
    // A path that cannot be written is refused before the work.
    let unfinished = arguments.html.as_deref().map(Unfinished::begin).transpose()?;
    let mut measured_latency_ns_mean = None;
    let (path, unrecorded_requests) = match (&arguments.trace, &arguments.name) {
        (None, Some(name)) => {
            let path = arguments.keep.clone().unwrap_or_else(|| scratch.path("recording"));
            let before = Served::totals(state, name)?;
            let length = Some(Duration::from_nanos(arguments.length.0));
            let report = record(state, name, &path, false, length, &ends.recording)?;
            // Ctrl-C ended only the recording: the advice follows.
            ends.interrupted.store(false, Ordering::Relaxed);
            measured_latency_ns_mean = Served::totals(state, name)?.since(before);
            (path, report.unrecorded_requests)
        }
        (trace, _) => (trace.clone().unwrap_or_default(), 0),
    };
    let begun = Instant::now();
    let question = question(state, arguments, served, &path)?;
    let bar = Bar::new();
    let advice = advise(&question, |progress| {
        bar.show(progress);
        if ends.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.end();
    let advice = advice.map_err(|error| failure(&error))?;
    let name = arguments.name.as_ref().map(ToString::to_string);
    let command = text::command(&advice, name.as_deref());
    let wall_seconds = begun.elapsed().as_secs_f64();
    let sentences = text::sentences(&advice, unrecorded_requests, measured_latency_ns_mean, arguments.tbw);
    let report = Report {
        name,
        command,
        sentences,
        unrecorded_requests,
        measured_latency_ns_mean,
        wall_seconds,
        advice,
    };
    if let Some(unfinished) = unfinished {
        unfinished.finish(&page(&report.advice, &report.sentences, report.command.as_deref()))?;
    }
    output.show(&report, || text::describe(&report, arguments));
    Ok(0)
}

fn check(arguments: &Arguments) -> Result<()> {
    let usage = |problem: &str| Err(Error::new(ErrorKind::Usage, problem));
    let Arguments { name, trace, ssd, hdd, length, speed, .. } = arguments;
    if name.is_none() && trace.is_none() {
        return usage("no load: advice needs one: name a served volume, or a recording with --trace FILE");
    }
    if name.is_none() && ssd.is_empty() && hdd.is_empty() {
        return usage(
            "no devices: a recording has none: name a served volume, or devices, as in --ssd 80GB,model=x25-m --hdd 8TB,model=exos-x20",
        );
    }
    if *length == Nanos::ZERO {
        return usage("--for 0s: use a time such as 10min");
    }
    if !(*speed > 0.0 && speed.is_finite()) {
        return usage("--speed: use a number above 0");
    }
    Ok(())
}

/// Builds the question, with the layout of a served volume.
fn question(
    state: &StateDir,
    arguments: &Arguments,
    served: Option<Served>,
    path: &std::path::Path,
) -> Result<Question> {
    let options =
        Options { block: arguments.trace_block, speed: arguments.speed, ..arguments.content.options() };
    let extent = served.as_ref().map_or(EXTENT, |served| served.extent);
    let window = Window::read(path, &options, extent, arguments.requests as usize);
    let window = window.map_err(|error| failure(&error))?;
    let usual = Question {
        window,
        devices: Vec::new(),
        present_policy: arguments.present.clone(),
        policies: arguments.policy.clone(),
        volume: None,
        other_ssds: arguments.try_ssd.clone(),
        block_size: BLOCK,
        copies: 1,
        cache_extents: CACHE,
        endurance: arguments.tbw,
        sizes: !arguments.policies_only,
        seed: arguments.seed,
        threads: arguments.threads.map(usize::from),
    };
    match served {
        Some(served) => served.asked(state, usual),
        None => Ok(Question { devices: devices(arguments)?, ..usual }),
    }
}

/// Defaults of `braid create` and `braid serve`.
pub const EXTENT: Bytes = Bytes(128 * KIB.0);
pub const BLOCK: Bytes = Bytes(4 * KIB.0);
pub const CACHE: usize = 100;

fn devices(arguments: &Arguments) -> Result<Vec<DeviceSetup>> {
    let ssds = arguments.ssd.iter().map(|text| DeviceSetup::parse(DeviceClass::Ssd, text));
    let hdds = arguments.hdd.iter().map(|text| DeviceSetup::parse(DeviceClass::Hdd, text));
    ssds.chain(hdds).map(|device| device.map_err(|error| failure(&error))).collect()
}
