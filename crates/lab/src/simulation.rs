//! One simulation: build, warm up, measure, and assemble the outcome.

use crate::guard::{self, GuardActions};
use crate::guests::Guests;
use crate::network::Nodes;
use crate::notes;
use crate::outcome::{Background, DeviceOutcome, Distribution, Operation, Outcome, Programme};
use crate::recorder::RequestStats;
use crate::request_log::RequestLog;
use crate::rig::{self, DeviceKind, Reached, Rig};
use crate::series::{self, DeviceNote, Note, devices_between, ratio};
use crate::settling;
use crate::source::{self, Opened};
use crate::sweep::Gauge;
use crate::verify::Verifier;
use crate::{Error, Load, Result, Setup, WarmUp};
use braid_base::{Bytes, DeviceClass, Nanos, Op};
use braid_engine::{BackgroundStats, DeviceStatus, Export, Latency, Status};
use braid_runtime::Runtime;
use braid_sim::{Hollow, World};
use serde::Serialize;
use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// A finished simulation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// The outcome: the same on every machine.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Wall-clock time, including the fill of the volume: differs between runs.
    pub wall_seconds: f64,
    /// Requests begun, warm-up included, per second of wall-clock time after the fill.
    pub requests_per_wall_second: f64,
}

/// Runs one simulation on this thread.
///
/// # Errors
/// `Setup` if devices, policy and load do not exist or do not fit together, `Volume` if the volume failed a
/// request, `WrongData` if a read was wrong.
pub fn simulate(setup: &Setup) -> Result<Run> {
    run(setup, &Arc::default())
}

/// As [`simulate`], reporting progress to `gauge`.
pub(crate) fn run(setup: &Setup, gauge: &Arc<Gauge>) -> Result<Run> {
    run_on(setup, gauge, |_| ())
}

/// As [`run`], on devices that `prepare` may break.
pub(crate) fn run_on(setup: &Setup, gauge: &Arc<Gauge>, prepare: impl Fn(&Hollow) + 'static) -> Result<Run> {
    check(setup)?;
    let begun = Instant::now();
    let opened = source::open(setup)?;
    let world = World::in_order(setup.seed);
    let result = world.block_on(measure(world.clone(), setup.clone(), opened, gauge.clone(), prepare));
    world.halt();
    let Measured { outcome, begun: requests, filled } = result?;
    Ok(Run {
        outcome,
        wall_seconds: begun.elapsed().as_secs_f64(),
        requests_per_wall_second: requests as f64 / filled.elapsed().as_secs_f64().max(1e-9),
    })
}

struct Measured {
    outcome: Outcome,
    begun: u64,
    /// When the fill of the volume ended.
    filled: Instant,
}

fn check(setup: &Setup) -> Result<()> {
    if setup.devices.is_empty() {
        return Err(Error::setup("a volume is made of devices: name at least one with --ssd or --hdd"));
    }
    if !(setup.speed > 0.0 && setup.speed.is_finite()) {
        return Err(Error::setup(format!("speed {}: use a number above 0", setup.speed)));
    }
    if setup.outstanding == 0 || setup.outstanding > 1 << 20 {
        return Err(Error::setup(format!("{} requests outstanding: use 1 to 2^20", setup.outstanding)));
    }
    if setup.verify && setup.dram > Bytes::ZERO {
        return Err(Error::setup(
            "a memory cache before the volume stores no data: use --verify without --dram",
        ));
    }
    if setup.dram > Bytes::ZERO && setup.dram < setup.block_size {
        return Err(Error::setup(format!(
            "a memory of {} has no room for a block: use --dram {} or more",
            setup.dram, setup.block_size
        )));
    }
    if setup.processors == Some(0) {
        return Err(Error::setup("0 processors: use at least 1, or none for one for each client"));
    }
    if setup.requests == Some(0) || setup.duration == Some(Nanos::ZERO) {
        return Err(Error::setup("an empty simulation: use at least one request, and a duration above 0"));
    }
    Ok(())
}

async fn measure(
    world: World,
    setup: Setup,
    opened: Opened,
    gauge: Arc<Gauge>,
    prepare: impl Fn(&Hollow),
) -> Result<Measured> {
    let verifier = setup.verify.then(|| Rc::new(RefCell::new(Verifier::default())));
    let Opened { source, need, metadata, name, requests, not_measured, bad_lines, notes, trace } = opened;
    let ahead = Ahead::of(&setup, requests, not_measured)?;
    let Rig { volume, devices, nodes, kinds, filled_by } =
        rig::build(&world, &setup, &need, verifier.as_deref(), &gauge, prepare).await?;
    let filled = Instant::now();
    let length = setup.duration.and_then(|duration| ahead.time(duration));
    gauge.expect(fewest(setup.requests, requests), length);
    let guests = Guests::new(&world, volume, &setup, ahead.requests(), verifier, gauge.clone(), length);
    let guests = Rc::new(guests.with_metadata(metadata));
    if let Some(path) = &setup.request_log {
        guests.recorder.borrow_mut().log_to(RequestLog::create(path, world.now())?);
    }
    let begun = world.now();
    let is_open_loop = source.is_open_loop();
    guests.begin(source, setup.outstanding);
    world.spawn(settling::keep(guests.clone()));
    let (kinds, kept) = (Rc::<[DeviceKind]>::from(kinds), Rc::new(RefCell::new(GuardActions::default())));
    world.spawn(guard::keep(guests.clone(), setup.clone(), kinds.clone(), kept.clone()));
    let ended = match ahead {
        Ahead::Time(time) => within(&guests, world.sleep_until(world.now() + time)).await?,
        Ahead::Requests(_) => within(&guests, guests.recorded()).await?,
    };
    if ended {
        return Err(Error::setup(ahead.longer_than_the_load(&setup, world.now() - begun, guests.begun())));
    }
    let before = guests.volume.status();
    let carried = nodes.as_ref().map(Nodes::snapshot);
    if let Ahead::Time(_) = ahead {
        guests.recorder.borrow_mut().restart(world.now());
    }
    let unmeasured = match ahead {
        Ahead::Time(_) => guests.begun(),
        Ahead::Requests(requests) => requests,
    };
    let warm_up = (world.now() - begun, unmeasured);
    let thought = guests.thought();
    let note = Note::take(world.now(), &guests.recorder.borrow(), &guests.volume.glance(), &devices);
    guests.series.borrow_mut().push(note);
    world.spawn(series::keep(guests.clone(), devices.clone()));
    let deadline = setup.duration.map_or(Nanos::MAX, |duration| world.now() + duration);
    within(&guests, world.sleep_until(deadline)).await?;
    guests.recorder.borrow_mut().finish_log()?;
    let after = guests.volume.status();
    let note = Note::take(world.now(), &guests.recorder.borrow(), &guests.volume.glance(), &devices);
    guests.series.borrow_mut().push(note);
    let mut outcome = put_together(&setup, name, &guests, &kinds, &before, &after);
    (outcome.bad_records, outcome.trace) = (bad_lines, trace);
    outcome.prefill_policy = filled_by;
    outcome.ssd_homes = setup.list_homes.then(|| ssd_homes(&setup, &guests, &kinds)).transpose()?;
    let pairs = nodes.as_ref().zip(carried.as_ref());
    outcome.network = pairs.map(|(nodes, before)| nodes.outcome(before, outcome.measured_seconds));
    let unwritten = after.guests.unwritten - before.guests.unwritten;
    let kept = kept.take();
    let of_guard = kept.told();
    outcome.mode_switches = kept.switches;
    let of_run = notes::notes(&outcome, &kinds, is_open_loop, unwritten);
    outcome.notes = notes.into_iter().chain(of_guard).chain(of_run).collect();
    (outcome.warm_up_seconds, outcome.warm_up_requests) = (warm_up.0.as_secs_f64(), warm_up.1);
    outcome.think_seconds = (guests.thought() - thought).as_secs_f64();
    Ok(Measured { outcome, begun: guests.begun(), filled })
}

/// The warm-up: everything before measuring.
#[derive(Clone, Copy)]
enum Ahead {
    Time(Nanos),
    /// At least one.
    Requests(u64),
}

impl Ahead {
    /// Warm-up under a load of `all` requests; `not_measured` of them precede the measured part.
    fn of(setup: &Setup, all: Option<u64>, not_measured: u64) -> Result<Ahead> {
        let requests = match setup.warm_up {
            _ if not_measured > 0 => not_measured,
            WarmUp::Time(time) => return Ok(Ahead::Time(time)),
            WarmUp::Requests(requests) => requests,
            WarmUp::Share(share) => {
                let all = fewest(setup.requests, all).ok_or_else(|| {
                    let warm_up = setup.warm_up;
                    Error::setup(format!(
                        "a warm-up of {warm_up} of an endless load: give --warm-up as a time or in \
                         requests, or --requests"
                    ))
                })?;
                (all as f64 * share) as u64
            }
        };
        Ok(if requests == 0 { Ahead::Time(Nanos::ZERO) } else { Ahead::Requests(requests) })
    }

    fn requests(self) -> u64 {
        match self {
            Ahead::Time(_) => 0,
            Ahead::Requests(requests) => requests,
        }
    }

    /// Total time of the run, if known.
    fn time(self, duration: Nanos) -> Option<Nanos> {
        match self {
            Ahead::Time(time) => Some(time + duration),
            Ahead::Requests(_) => None,
        }
    }

    fn longer_than_the_load(self, setup: &Setup, after: Nanos, requests: u64) -> String {
        let warm_up = match (self, &setup.load) {
            (_, Load::Trace(trace)) if trace.repeat > 1 => {
                return format!(
                    "the load ended after {requests} requests, before the last repetition of the trace: use \
                     a larger --requests or a smaller --repeat"
                );
            }
            (Ahead::Requests(_), Load::Workload(load)) if setup.warm_up == WarmUp::NONE => {
                return format!(
                    "{load} ended after {requests} requests, before its last run: use a larger --requests or fewer runs="
                );
            }
            (Ahead::Time(time), _) => time.to_string(),
            (Ahead::Requests(requests), _) => format!("{requests} requests"),
        };
        format!(
            "the load ended after {after} and {requests} requests, within the warm-up of {warm_up}: use a longer load or a shorter \
             --warm-up"
        )
    }
}

fn fewest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Runs the load until `moment`; returns true if the load ended before.
async fn within(guests: &Guests<Reached>, moment: impl Future<Output = ()>) -> Result<bool> {
    let (mut end, mut moment) = (pin!(guests.end()), pin!(moment));
    poll_fn(|cx| {
        if let Poll::Ready(result) = end.as_mut().poll(cx) {
            return Poll::Ready(result.map(|()| true));
        }
        moment.as_mut().poll(cx).map(|()| Ok(false))
    })
    .await
}

fn put_together(
    setup: &Setup,
    load: String,
    guests: &Guests<Reached>,
    kinds: &[DeviceKind],
    before: &Status,
    after: &Status,
) -> Outcome {
    let (recorder, series) = (guests.recorder.borrow(), guests.series.borrow());
    let measured = series.last().at - series.first().at;
    let seconds = measured.as_secs_f64().max(1e-9);
    let kind = |op| operation(&[recorder.kind(op)]);
    let all = operation(&[recorder.kind(Op::Read), recorder.kind(Op::Write)]);
    let (hits, misses) = (
        after.guests.cache_hits - before.guests.cache_hits,
        after.guests.cache_misses - before.guests.cache_misses,
    );
    let shares = devices_between(series.first(), series.last());
    let device = |place: usize| {
        let (b, a) = (&before.devices[place], &after.devices[place]);
        let (first, last) = (&series.first().devices[place], &series.last().devices[place]);
        let mut outcome = device_outcome(&kinds[place], b, a, first, last, seconds);
        outcome.utilisation = shares[place].utilisation;
        outcome.queue_depth_mean = shares[place].queue_depth_mean;
        outcome.requests_share = shares[place].requests_share;
        outcome.bytes_share = shares[place].bytes_share;
        outcome.data_share = shares[place].data_share;
        outcome
    };
    let programme = recorder.programme().map(|programme| Programme {
        operations: programme.latency.len(),
        programme_bytes: programme.bytes.0,
        operation: Distribution::of(&programme.latency),
        operation_ns_p90: programme.latency.quantile(0.9).0,
    });
    let moved = programme.as_ref().map_or(all.bytes, |programme| programme.programme_bytes);
    let (behind_mean_bytes, behind_highest_bytes) = series.behind();
    let settled = guests.course.borrow().settled(moved as f64 / seconds);
    Outcome {
        policy: after.policy.clone(),
        prefill_policy: None,
        load,
        seed: setup.seed,
        volume_bytes: after.shape.volume_size.0,
        extent_bytes: after.shape.extent_size.0,
        measured_seconds: measured.as_secs_f64(),
        warm_up_seconds: 0.0,
        warm_up_requests: 0,
        think_seconds: 0.0,
        throughput_bytes_per_second: all.bytes as f64 / seconds,
        requests_per_second: all.requests as f64 / seconds,
        all,
        read: kind(Op::Read),
        write: kind(Op::Write),
        flush: kind(Op::Flush),
        discard: kind(Op::Discard),
        programme,
        settled_seconds: settled.map(Nanos::as_secs_f64),
        dropped_requests: guests.dropped.get(),
        bad_records: 0,
        trace: None,
        cache_hit_ratio: ratio(hits, hits + misses),
        cache_hits: hits,
        cache_misses: misses,
        background: background(&before.background, &after.background),
        mapped_bytes: after.shape.extent_size.0 * u64::from(after.mapped_extents),
        behind_mean_bytes,
        behind_highest_bytes,
        burstiness: recorder.burstiness(),
        block_costs: recorder.costs(),
        ssd_homes: None,
        batches: recorder.batches(),
        map_memory_bytes: after.map_memory as u64,
        policy_memory_bytes: after.policy_memory as u64,
        verified_bytes: guests.verifier.as_ref().map_or(0, |verifier| verifier.borrow().verified().0),
        devices: (0..kinds.len()).map(device).collect(),
        network: None,
        notes: Vec::new(),
        mode_switches: Vec::new(),
        intervals: series.intervals(),
    }
}

/// Extents with homes on SSDs now, neighbours joined to one range.
fn ssd_homes(setup: &Setup, guests: &Guests<Reached>, kinds: &[DeviceKind]) -> Result<Vec<Range<Bytes>>> {
    let (mut homes, mut at): (Vec<Range<Bytes>>, Bytes) = (Vec::new(), Bytes::ZERO);
    while at < guests.volume.size() {
        let (home, end) = (guests.volume.explain(at)?.home, at + setup.extent_size);
        if home.is_some_and(|(device, _)| kinds[device.index()].class == DeviceClass::Ssd) {
            match homes.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => homes.push(at..end),
            }
        }
        at = end;
    }
    Ok(homes)
}

fn operation(kinds: &[&RequestStats]) -> Operation {
    let sum = |times: fn(&RequestStats) -> Latency| {
        let mut sum = Latency::default();
        kinds.iter().for_each(|kind| sum.add(&times(kind)));
        Distribution::of(&sum)
    };
    Operation {
        requests: kinds.iter().map(|kind| kind.requests).sum(),
        bytes: kinds.iter().map(|kind| kind.bytes.0).sum(),
        latency: sum(RequestStats::latency),
        queue: sum(RequestStats::queue),
        service: sum(RequestStats::service),
    }
}

fn background(before: &BackgroundStats, after: &BackgroundStats) -> Background {
    Background {
        migrations: after.migrations - before.migrations,
        migrations_stopped: after.migrations_stopped - before.migrations_stopped,
        migrated_bytes: after.migrated_bytes - before.migrated_bytes,
        mirrored_bytes: after.mirrored_bytes - before.mirrored_bytes,
        promoted_bytes: after.promoted_bytes - before.promoted_bytes,
        written_back_bytes: after.written_back_bytes - before.written_back_bytes,
        probes: after.probes - before.probes,
        probed_bytes: after.probed_bytes - before.probed_bytes,
        commits: after.commits - before.commits,
        journal_written_bytes: after.journal_bytes - before.journal_bytes,
        checkpoints: after.checkpoints - before.checkpoints,
        map_written_bytes: after.map_bytes - before.map_bytes,
    }
}

/// Work of a device; its shares are filled in by the caller.
fn device_outcome(
    kind: &DeviceKind,
    before: &DeviceStatus,
    after: &DeviceStatus,
    first: &DeviceNote,
    last: &DeviceNote,
    seconds: f64,
) -> DeviceOutcome {
    let (b, a) = (&before.stats, &after.stats);
    // Figures unknown to the policy are not finite, and are left out.
    let known = after.figures.iter().filter(|(_, value)| value.is_finite());
    let (usage_before, usage) = (&first.usage, &last.usage);
    let written_bytes = (usage.written_bytes - usage_before.written_bytes).0;
    let worn = last.wear.since(&first.wear);
    let wears = worn.flash_written > Bytes::ZERO;
    DeviceOutcome {
        device: after.id.to_string(),
        node: kind.node.map(|node| node.to_string()),
        class: kind.class.to_string(),
        model: kind.model.clone(),
        size_bytes: kind.size.0,
        utilisation: 0.0,
        queue_depth_mean: 0.0,
        requests_share: 0.0,
        bytes_share: 0.0,
        data_share: 0.0,
        guest_read_requests: a.guest_reads - b.guest_reads,
        guest_write_requests: a.guest_writes - b.guest_writes,
        guest_read_bytes: a.guest_read_bytes - b.guest_read_bytes,
        guest_written_bytes: a.guest_write_bytes - b.guest_write_bytes,
        background_bytes: a.background_bytes - b.background_bytes,
        device_read_bytes: (usage.read_bytes - usage_before.read_bytes).0,
        device_written_bytes: written_bytes,
        drive_writes_per_day: written_bytes as f64 / kind.size.0 as f64 / (seconds / 86_400.0),
        flash_written_bytes: wears.then_some(worn.flash_written.0),
        write_amplification: wears.then(|| worn.write_amplification()),
        erases: wears.then_some(worn.erases),
        flushes: usage.flushes - usage_before.flushes,
        response: Distribution::of(&a.latency.since(&b.latency)),
        policy_figures: known.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }
}

#[cfg(test)]
mod tests;
