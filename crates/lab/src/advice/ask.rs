//! Runs the simulations for a question: all policies at the present size of the SSD, then the present and the
//! best policy at other sizes.

use super::choice::{Candidate, Choice, choose};
use super::curve::{factors, knee, scaled};
use super::interval::{BATCHES, difference, latency, mean};
use super::volume::{Beginning, InUse};
use super::window::Window;
use crate::corpus::{self, Group, rows};
use crate::estimate::Estimate;
use crate::outcome::{BatchSum, DeviceOutcome, Outcome};
use crate::{DeviceSetup, Error, ErrorKind, Load, Progress, Result, Run, Setup, WarmUp, sweep_while};
use braid_base::{Bytes, DeviceClass, Nanos};
use serde::Serialize;
use std::ops::ControlFlow;

/// A question for advice.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The recorded load.
    pub window: Window,
    /// The existing devices.
    pub devices: Vec<DeviceSetup>,
    /// The present policy.
    pub present_policy: String,
    /// Policies to compare with the present policy; empty for all.
    pub policies: Vec<String>,
    /// The volume in use; `None` for a new volume.
    pub volume: Option<InUse>,
    /// Other models of SSDs, by name or file.
    pub other_ssds: Vec<String>,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent.
    pub copies: u8,
    /// Extents in the memory cache.
    pub cache_extents: usize,
    /// Bytes that may be written to an SSD in its life; `None` if unknown.
    pub endurance: Option<Bytes>,
    /// True to try other sizes of the SSD.
    pub sizes: bool,
    /// Seed of the devices.
    pub seed: u64,
    /// Simulations at the same time; `None` for one on each core.
    pub threads: Option<usize>,
}

/// Answer to a question.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The recording.
    pub load: String,
    /// Requests of the recording.
    pub recorded_requests: u64,
    /// Seconds from the first recorded request to the last.
    pub recorded_seconds: f64,
    /// Simulated requests: the last requests of the recording.
    pub simulated_requests: u64,
    /// Seconds of the simulated requests before the measured part.
    pub warm_up_seconds: f64,
    /// Seconds of the measured part.
    pub measured_seconds: f64,
    /// Reads and writes in the measured part.
    pub measured_requests: u64,
    /// Unreadable records.
    pub bad_records: u64,
    /// Bytes of the extents touched by the recording.
    pub touched_extents_bytes: u64,
    /// The seed.
    pub seed: u64,
    /// The present policy.
    pub present_policy: String,
    /// Policies, the fastest first.
    pub rows: Vec<Forecast>,
    /// Policies that do not fit.
    pub unfit_policies: Vec<Unfit>,
    /// The recommendation.
    pub choice: Choice,
    /// Other sizes of the SSD.
    pub curves: Vec<SizeCurve>,
}

/// Forecast for a policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Forecast {
    /// The policy.
    pub policy: String,
    /// Number of simulations: more than one for the present policy and the fastest policies.
    pub run_count: usize,
    /// Mean latency of the measured reads and writes.
    pub latency_ns_mean: f64,
    /// Lower end of the mean's 95 % confidence interval; `None` if the recording is too short for an
    /// interval.
    pub latency_ns_low: Option<f64>,
    /// Upper end of the interval.
    pub latency_ns_high: Option<f64>,
    /// 99th percentile of the latency of reads and writes.
    pub latency_ns_p99: u64,
    /// Mean latency minus the present policy's; `None` for the present policy itself.
    pub difference_ns_mean: Option<f64>,
    /// Lower end of the difference's interval.
    pub difference_ns_low: Option<f64>,
    /// Upper end of the difference's interval.
    pub difference_ns_high: Option<f64>,
    /// True if requests completed about as fast as they arrived.
    pub keeps_up: bool,
    /// Bytes per day written to the most written SSD.
    pub ssd_written_bytes_per_day: f64,
    /// The same in sizes of the SSD.
    pub drive_writes_per_day: f64,
    /// Life of the SSD at this rate, in days; `None` if its endurance is unknown, or nothing is written.
    pub ssd_life_days: Option<f64>,
    #[serde(skip)]
    pub(crate) difference: Option<Estimate>,
}

/// A policy that does not fit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unfit {
    /// The policy.
    pub policy: String,
    /// The reason.
    pub why: String,
}

/// Latency over the size of the SSDs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SizeCurve {
    /// The policy.
    pub policy: String,
    /// The models of the SSDs.
    pub ssd_models: String,
    /// Sizes, rising.
    pub points: Vec<SizePoint>,
    /// Knee: size of all SSDs together from which on larger SSDs gain less than a tenth. `None` if the
    /// largest size still gains.
    pub knee_bytes: Option<u64>,
}

/// A size of the SSDs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SizePoint {
    /// Size of all SSDs together.
    pub ssd_bytes: u64,
    /// Ratio to the present size.
    pub size_factor: f64,
    /// Mean latency.
    pub latency_ns_mean: f64,
    /// Lower end of the mean's interval.
    pub latency_ns_low: Option<f64>,
    /// Upper end of the interval.
    pub latency_ns_high: Option<f64>,
    /// 99th percentile of the latency.
    pub latency_ns_p99: u64,
}

/// Policies that only decide the place of new data: on a volume in use they do nothing.
const RULES: [&str; 4] = ["static", "stripe", "ssd-only", "hdd-only"];
/// Additional rows without a volume in use: the disks alone, and half of the data on the SSDs.
const BASELINES: [&str; 2] = ["hdd-only", "static,ssd=50%"];
/// Policies beside the present policy that are simulated more than once.
const FINALISTS: usize = 3;
/// Runs of the present policy and of each finalist.
pub(super) const RUNS: usize = 5;
/// Limit of a simulation, as a multiple of its measured time: a longer run does not keep up.
const LONGEST: u64 = 3;
/// Allowed delay of the last request for a policy that keeps up: a share of the measured time, plus seconds.
const LATE: (f64, f64) = (0.02, 0.5);
/// A policy independent of the size of the SSD.
const NO_SSD: &str = "hdd-only";

/// Answers a question. `progress` is called about ten times a second, and may stop the run.
///
/// # Errors
/// `Setup` if devices and recording do not fit together, or the present policy cannot be simulated. `Stopped`
/// if `progress` says so. Otherwise a fault of the engine.
pub fn advise(question: &Question, mut progress: impl FnMut(&Progress) -> ControlFlow<()>) -> Result<Advice> {
    let window = &question.window;
    let beginning = match &question.volume {
        Some(volume) => Beginning::now(window, volume)?,
        None => Beginning::anew(window, Bytes::ZERO),
    };
    let policies = policies(question);
    let setups: Vec<Setup> =
        policies.iter().map(|policy| setup(question, &beginning, &question.devices, policy)).collect();
    let (mut ran, mut unfit_policies) = (Vec::new(), Vec::new());
    for (policy, result) in policies.iter().zip(sweep(&setups, question, &mut progress)) {
        match result {
            Ok(run) => ran.push(SimulatedPolicy::of(policy, run.outcome)),
            Err(error) if error.kind() == ErrorKind::Setup && *policy != question.present_policy => {
                unfit_policies.push(Unfit { policy: policy.clone(), why: error.to_string() });
            }
            Err(error) => return Err(Error::new(error.kind(), format!("under {policy}: {error}"))),
        }
    }
    let present = ran.iter().position(|ran| ran.policy == question.present_policy).unwrap_or(0);
    let finalists = finalists(question, &ran, present);
    repeat(question, &beginning, &mut ran, &finalists, &mut progress)?;
    let now = ran[present].runs.clone();
    let rows = ran.iter().enumerate();
    let mut rows: Vec<Forecast> =
        rows.map(|(place, ran)| row(question, ran, (place != present).then_some(&now[..]))).collect();
    let candidates: Vec<Candidate> = finalists.iter().map(|&place| candidate(&rows[place])).collect();
    let choice = choose(&candidates, 0);
    rows.sort_by(|a, b| a.latency_ns_mean.total_cmp(&b.latency_ns_mean));
    let curves = if question.sizes { curves(question, &choice, &mut progress)? } else { Vec::new() };
    let (warm_up, length) = (window.warm_up(), window.length());
    Ok(Advice {
        load: window.name.clone(),
        recorded_requests: window.recorded_requests,
        recorded_seconds: window.recorded.as_secs_f64(),
        simulated_requests: window.placed.len() as u64,
        warm_up_seconds: warm_up.as_secs_f64(),
        measured_seconds: (length - warm_up).as_secs_f64(),
        measured_requests: window.measured_requests(),
        bad_records: window.bad_records,
        touched_extents_bytes: (window.extent * window.extents).0,
        seed: question.seed,
        present_policy: question.present_policy.clone(),
        rows,
        unfit_policies,
        choice,
        curves,
    })
}

pub(super) fn sweep(
    setups: &[Setup],
    question: &Question,
    progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
) -> Vec<Result<Run>> {
    sweep_while(setups, question.threads, progress)
}

/// A simulated policy.
struct SimulatedPolicy {
    policy: String,
    /// Outcome of the first run.
    outcome: Outcome,
    /// Batches of each run.
    runs: Vec<Vec<BatchSum>>,
}

impl SimulatedPolicy {
    fn of(policy: &str, outcome: Outcome) -> SimulatedPolicy {
        SimulatedPolicy { policy: policy.to_owned(), runs: vec![outcome.batches.clone()], outcome }
    }
}

/// The present policy, then the fastest other policies: candidates for the recommendation.
fn finalists(question: &Question, ran: &[SimulatedPolicy], present: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..ran.len()).filter(|&place| place != present).collect();
    let falls_behind = |place: usize| !keeps_up(&question.window, &ran[place].outcome);
    let latency = |place: usize| mean(&ran[place].runs);
    others.sort_by(|&a, &b| {
        falls_behind(a).cmp(&falls_behind(b)).then_with(|| latency(a).total_cmp(&latency(b)))
    });
    std::iter::once(present).chain(others.into_iter().take(FINALISTS)).collect()
}

/// Runs these policies again, from later requests on and on devices of another seed.
fn repeat(
    question: &Question,
    beginning: &Beginning,
    ran: &mut [SimulatedPolicy],
    places: &[usize],
    progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<()> {
    let later: Vec<Beginning> = (1..RUNS).map(|number| beginning.later(number)).collect();
    let mut setups = Vec::new();
    for &place in places {
        for (beginning, more) in later.iter().zip(1..) {
            let setup = setup(question, beginning, &question.devices, &ran[place].policy);
            setups.push(Setup { seed: question.seed.wrapping_add(more), ..setup });
        }
    }
    let mut results = sweep(&setups, question, progress).into_iter();
    for &place in places {
        for result in results.by_ref().take(later.len()) {
            ran[place].runs.push(result?.outcome.batches);
        }
    }
    Ok(())
}

/// The present policy, then the other policies.
fn policies(question: &Question) -> Vec<String> {
    let name = |policy: &str| policy.split(',').next().unwrap_or_default().to_owned();
    let others: Vec<String> = match question.policies.as_slice() {
        [] => {
            let is_asked = |group| group == Group::Policy || (group == Group::Mirror && question.copies > 1);
            let chooses = question.volume.as_ref().is_some_and(|volume| volume.chooses_mode);
            let is_tried = |row: &corpus::Row| {
                is_asked(row.group) && !(chooses && name(&row.policy) == name(&question.present_policy))
            };
            let all = rows().into_iter().filter(is_tried).map(|row| row.policy);
            let baselines = BASELINES.iter().map(|policy| (*policy).to_owned());
            let is_rule = |policy: &String| RULES.contains(&&*name(policy));
            all.chain(baselines).filter(|policy| question.volume.is_none() || !is_rule(policy)).collect()
        }
        given => given.to_vec(),
    };
    // A volume reports its policy with all settings: a policy with default settings is the same.
    let mut policies = vec![question.present_policy.clone()];
    for other in others {
        let is_new = !policies.iter().any(|known| is_same(known, &other, &question.devices));
        policies.extend(is_new.then_some(other));
    }
    policies
}

/// True if two policies have the same settings.
fn is_same(one: &str, other: &str, devices: &[DeviceSetup]) -> bool {
    let classes = devices.iter().flat_map(|kind| std::iter::repeat_n(kind.class, kind.count));
    let view = |(id, class): (usize, DeviceClass)| {
        braid_policy::DeviceView::empty(braid_base::DeviceId(id as u16), class, 1 << 20)
    };
    let views: Vec<_> = classes.enumerate().map(view).collect();
    let shown =
        |policy: &str| braid_policy::parse(policy, &views).map(|policy| braid_policy::written(&*policy));
    one == other || matches!((shown(one), shown(other)), (Ok(one), Ok(other)) if one == other)
}

pub(crate) fn setup(
    question: &Question,
    beginning: &Beginning,
    devices: &[DeviceSetup],
    policy: &str,
) -> Setup {
    let window = &question.window;
    let (warm_up, left_out) = (window.warm_up(), beginning.left_out);
    Setup {
        size: beginning.size,
        extent_size: window.extent,
        block_size: question.block_size,
        copies: question.copies,
        cache_extents: question.cache_extents,
        // A list gives the place of the home, but not of the second copy.
        prefill_ssd: beginning.on_ssd.clone().filter(|_| question.copies == 1),
        warm_up: WarmUp::Time(warm_up - left_out),
        duration: Some((window.length() - warm_up + Nanos::from_millis(1)) * LONGEST),
        batches: window.batches(BATCHES).into_iter().map(|begin| begin - left_out).collect(),
        seed: question.seed,
        ..Setup::new(devices.to_vec(), policy, Load::Recorded(beginning.load.clone()))
    }
}

fn row(question: &Question, ran: &SimulatedPolicy, present: Option<&[Vec<BatchSum>]>) -> Forecast {
    let SimulatedPolicy { policy, outcome, runs } = ran;
    let own = latency(runs);
    let difference = present.and_then(|present| difference(runs, present));
    let apart = present.map(|present| mean(runs) - mean(&present[..runs.len().min(present.len())]));
    let days = outcome.measured_seconds.max(1e-9) / 86_400.0;
    let ssds = outcome.devices.iter().filter(|device| device.is(DeviceClass::Ssd));
    let per_day = |device: &DeviceOutcome| device.device_written_bytes as f64 / days;
    let wear = |device: &DeviceOutcome| per_day(device) / device.size_bytes.max(1) as f64;
    let most = ssds.max_by(|a, b| wear(a).total_cmp(&wear(b)));
    let written = most.map_or(0.0, per_day);
    let life = question.endurance.filter(|_| written > 0.0).map(|endurance| endurance.0 as f64 / written);
    Forecast {
        policy: policy.clone(),
        run_count: runs.len(),
        latency_ns_mean: mean(runs),
        latency_ns_low: own.map(|own| own.low),
        latency_ns_high: own.map(|own| own.high),
        latency_ns_p99: outcome.all.latency.p99,
        difference_ns_mean: apart,
        difference_ns_low: difference.map(|by| by.low),
        difference_ns_high: difference.map(|by| by.high),
        keeps_up: keeps_up(&question.window, outcome),
        ssd_written_bytes_per_day: written,
        drive_writes_per_day: most.map_or(0.0, wear),
        ssd_life_days: life,
        difference,
    }
}

fn candidate(row: &Forecast) -> Candidate<'_> {
    Candidate {
        policy: &row.policy,
        mean: row.latency_ns_mean,
        difference: row.difference,
        keeps_up: row.keeps_up,
    }
}

/// True if the last request completed soon after its arrival.
pub(crate) fn keeps_up(window: &Window, outcome: &Outcome) -> bool {
    let asked = (window.length() - window.warm_up()).as_secs_f64();
    outcome.measured_seconds <= asked * (1.0 + LATE.0) + LATE.1
}

/// The present and the recommended policy at other sizes, and the recommended policy on other models.
fn curves(
    question: &Question,
    choice: &Choice,
    progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Vec<SizeCurve>> {
    let beginning = Beginning::anew(
        &question.window,
        question.volume.as_ref().map_or(Bytes::ZERO, |volume| volume.mapped),
    );
    let factors = factors(&question.devices, beginning.load.data());
    let mut asked: Vec<(&str, Option<&str>)> = vec![(&question.present_policy, None)];
    if choice.advised_policy != question.present_policy {
        asked.push((&choice.advised_policy, None));
    }
    asked.retain(|(policy, _)| *policy != NO_SSD);
    asked.extend(question.other_ssds.iter().map(|model| (&*choice.advised_policy, Some(&**model))));
    let of = |&(policy, model): &(&str, Option<&str>)| {
        let scale = |&factor: &f64| scaled(&question.devices, factor, model);
        let setup = |devices: Vec<DeviceSetup>| setup(question, &beginning, &devices, policy);
        factors.iter().map(scale).map(setup).collect::<Vec<Setup>>()
    };
    let setups: Vec<Setup> = asked.iter().flat_map(of).collect();
    let mut results = sweep(&setups, question, progress).into_iter();
    let mut curves = Vec::new();
    for (policy, _) in asked {
        let (mut points, mut models) = (Vec::new(), String::new());
        // By index: a zip would take one result more than there are factors.
        for &factor in &factors {
            let Some(result) = results.next() else { break };
            match result {
                Ok(run) => {
                    let (point, of) = point(factor, &run.outcome);
                    points.push(point);
                    models = of;
                }
                // Too small for the volume, or larger than a model can be.
                Err(error) if error.kind() == ErrorKind::Setup => {}
                Err(error) => return Err(error),
            }
        }
        let latencies: Vec<f64> = points.iter().map(|point| point.latency_ns_mean).collect();
        let knee_bytes = knee(&latencies).map(|place| points[place].ssd_bytes);
        curves.push(SizeCurve { policy: policy.to_owned(), ssd_models: models, points, knee_bytes });
    }
    curves.retain(|curve| !curve.points.is_empty());
    Ok(curves)
}

fn point(size_factor: f64, outcome: &Outcome) -> (SizePoint, String) {
    let ssds = || outcome.devices.iter().filter(|device| device.is(DeviceClass::Ssd));
    let mut models: Vec<&str> = ssds().map(|device| &*device.model).collect();
    models.dedup();
    let runs = std::slice::from_ref(&outcome.batches);
    let own = latency(runs);
    let point = SizePoint {
        ssd_bytes: ssds().map(|device| device.size_bytes).sum(),
        size_factor,
        latency_ns_mean: mean(runs),
        latency_ns_low: own.map(|own| own.low),
        latency_ns_high: own.map(|own| own.high),
        latency_ns_p99: outcome.all.latency.p99,
    };
    (point, models.join(" + "))
}
