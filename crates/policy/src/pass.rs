//! `pass`: everything runs at the speed of the SSDs, and a disk has a copy of it that is behind by a bounded amount.
//!
//! Xiao, Lei, Li, Park, Lilja, "PASS: A Hybrid Storage System for Performance-Synchronization Tradeoffs Using SSDs".
//!
//! | the paper | here |
//! |---|---|
//! | III: requests are performed on the SSD first | [`Pass::place`], [`Pass::rank_reads`] |
//! | III: an I/O window holds the writes that the disk lacks; small ones are merged into larger ones | what is behind: the engine's set, [`crate::Homes::next_behind`] |
//! | IV.A: the window keeps no data; it is read from the SSD again | `Move::Resync` |
//! | IV.A: once the window is full its ranges are duplicated | [`Pass::plan`] |
//! | IV.C: in the order of their addresses | [`Pass::pieces`] |
//! | IV.B: blocking time = base time × min(α, N), α = outstanding duplications / threshold; the most that a request is blocked | [`Pass::throttle`] |
//!
//! The paper leaves open how much comes into the window while it is being duplicated: what duplication does not keep up with, requests that
//! are blocked a little longer. Here that has an end: a write that would put more than `max-lag` behind goes to both copies before it is
//! answered, and so does every write while the disk lacks one that is older than `max-lag-time`; duplication begins at half of that. Before that, guests are held to the rate at which the disk gets its copies (`Pace`), so that it stays an exception: writes to both
//! copies make the disk seek between what guests write and what is being duplicated. And while the window is full, duplication takes as much
//! of the SSD's time as it can use, since guests wait for the disk then. The paper also says what N, base time and threshold are for, and not what they
//! were in its own runs: the defaults are ours. In idle time a part of the window is duplicated before it is full (`idle`), which shortens the next
//! duplication and what a lost SSD costs.
//!
//! The paper's order (`order=lba`) is that of addresses: the disk alone holds no state that the volume ever had until the window is empty. With
//! `order=epoch` the disk, with its journal, always is the volume as it was at a past instant: what is behind is duplicated as a whole
//! ([`Move::EndEpoch`]), and a write that would put more than `max-lag` behind waits. It needs a disk that keeps addresses (`layout=tail`). What is in the
//! journal does not count as lost ([`crate::Homes::lag`]), but has to go to its place, and guests are held to the rate of that.
//!
//! Without the disk the volume goes on with the SSDs alone (`on-disk-failure=continue`), or gives its data to readers only (`stop`).

mod amount;

use crate::{
    BadSetting, ByteRange, Completion, CurrentCopy, DeviceView, Direction, Move, Occasion, Origin, Outcome,
    Placement, Plan, Policy, Request, Second, Settings, View,
};
use amount::Amount;
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos, Op};
use std::iter;

/// Everything on the SSDs, and a copy on the disks that is behind by at most the window.
pub struct Pass {
    settings: Constants,
    /// The class of each device.
    classes: Vec<DeviceClass>,
    /// Duplications that have been asked for and have not ended.
    outstanding: u32,
    /// When a guest last asked for something.
    last_request: Nanos,
    pace: Pace,
    /// The disks have all that was written before this time.
    covered: Nanos,
    round: Option<Round>,
    /// The most that was behind.
    highest: Bytes,
    /// The most that may be, once the volume's size is known.
    bound: Option<Bytes>,
}

/// A duplication of all that was behind when it began, by one plan after the other.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Nanos,
    /// Where the next plan goes on; none if this one is the last.
    next: Option<Bytes>,
    /// Pieces of this plan that have not ended.
    left: usize,
    /// Whether those that have ended did all of their work.
    whole: bool,
}

/// How fast the disks get their copies, and how fast guests may write for that.
#[derive(Debug, Default)]
struct Pace {
    /// Whether a full window is being duplicated, and since when.
    since: Option<Nanos>,
    /// Bytes that the disks got since.
    copied: u64,
    /// Bytes a second, as far as known.
    rate: Option<f64>,
    /// When the next write may begin.
    next: Nanos,
}

impl Pace {
    /// A plan begins.
    fn begin(&mut self, full: bool, now: Nanos) {
        match (self.since, full) {
            (None, true) => (self.since, self.copied) = (Some(now), 0),
            (Some(_), false) => self.since = None,
            _ => {}
        }
    }

    /// How long a write waits. Guests get up to twice the rate of the disks while little more than the window is behind, and less and
    /// less of it towards the bound, one after the other; and none waits for longer than the disks take for the `surplus` over the window.
    fn wait(&mut self, len: Bytes, (surplus, over): (Bytes, f64), now: Nanos) -> Nanos {
        let Some(since) = self.since else { return Nanos::ZERO };
        let passed = now.saturating_sub(since);
        if passed >= MEASURED {
            self.rate = Some(self.copied as f64 / passed.as_secs_f64());
        }
        let Some(rate) = self.rate.filter(|&rate| rate > 0.0) else { return Nanos::ZERO };
        let allowed = rate * 2.0 * (1.0 - over).max(0.01);
        let takes = |len: Bytes, rate: f64| Nanos((len.0 as f64 / rate * 1e9) as u64);
        let longest = takes(surplus, rate).min(LONGEST);
        self.next = (self.next.max(now) + takes(len, allowed)).min(now + longest);
        self.next.saturating_sub(now)
    }
}

/// No write waits longer for that: what is behind may be much less by then.
const LONGEST: Nanos = Nanos::from_millis(500);
/// So long the disks are watched before their rate is believed.
const MEASURED: Nanos = Nanos::from_millis(200);

#[derive(Clone, Copy, Debug)]
struct Constants {
    order: Order,
    /// What is behind when duplication begins.
    window: Amount,
    /// What is behind at most.
    max_lag: Amount,
    /// How long ago the oldest write is at most that the disks lack.
    max_lag_time: Option<Nanos>,
    /// How long a write waits for each `threshold` duplications that are outstanding.
    base: Nanos,
    threshold: u64,
    /// N: a write waits for so many base times at most.
    levels: u64,
    /// Without a request for so long, what is behind is duplicated.
    idle: Nanos,
    /// Whether guests' writes fail while a disk does.
    stops: bool,
}

/// In which order the disks get what they lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// That of addresses.
    Lba,
    /// All that was written up to an instant, as a whole.
    Epoch,
}

/// The age of the oldest write that the disks may lack with epochs, unless a setting says otherwise. A load without a
/// pause, and far below the bound in bytes, would keep an epoch open for as long as the load lasts.
const OLDEST_EPOCH: Nanos = Nanos::from_secs(5);
/// Ranges within so much of the volume are duplicated as one piece of work. Several pieces are copied at the same time: short ones lie near each
/// other, and the disk gets them nearly in the order of their addresses.
const PIECE: Bytes = Bytes(128 << 10);
/// Pieces that are duplicated in idle time before the policy looks whether guests are back.
const IDLE_PIECES: usize = 128;
/// Pieces of one plan: a gibibyte if they are whole. What is behind has no bound while a disk is lost.
const MOST_PIECES: usize = 8192;
/// How often it looks, …
const LOOK: Nanos = Nanos::from_millis(10);
/// … and while nothing is behind.
const REST: Nanos = Nanos::from_millis(100);

impl Pass {
    /// Settings: `order` (lba, or epoch), `window` (400Ksectors), `max-lag` (twice the window), `max-lag-time` (none;
    /// 5s with epochs), `base` (100us), `threshold` (256), `levels` (4, the paper's N), `idle` (100ms),
    /// `on-disk-failure` (continue, or stop).
    ///
    /// # Errors
    /// Without both classes of devices, and for settings that are none.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Pass, BadSetting> {
        let classes: Vec<DeviceClass> = devices.iter().map(|d| d.class).collect();
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new("policy pass needs an SSD and a disk: use another policy"));
        }
        let order = match settings.take_text("order").as_deref() {
            None | Some("lba") => Order::Lba,
            Some("epoch") => Order::Epoch,
            Some(other) => {
                return Err(BadSetting::new(format!(
                    "policy pass: order '{other}' is unknown: use lba or epoch"
                )));
            }
        };
        let window = Amount::take(settings, "window")?.unwrap_or(Amount::Sectors(400 * 1024));
        let max_lag = Amount::take(settings, "max-lag")?.unwrap_or(window.twice());
        let max_lag_time = match settings.take_text("max-lag-time").as_deref() {
            // The paper has no bound in time.
            None => (order == Order::Epoch).then_some(OLDEST_EPOCH),
            Some("none") => None,
            Some(text) => Some(lag_time(text)?),
        };
        let stops = match settings.take_text("on-disk-failure").as_deref() {
            None | Some("continue") => false,
            Some("stop") => true,
            Some(other) => {
                return Err(BadSetting::new(format!(
                    "policy pass: on-disk-failure '{other}' is unknown: use continue or stop"
                )));
            }
        };
        let longest = Nanos::from_secs(1);
        let settings = Constants {
            order,
            window,
            max_lag,
            max_lag_time,
            base: settings.take_time("base", Nanos::from_micros(100), Nanos::ZERO..=longest)?,
            threshold: settings.take_count("threshold", 256, 1..=1 << 20)?,
            levels: settings.take_count("levels", 4, 0..=1000)?,
            idle: settings.take_time("idle", Nanos::from_millis(100), Nanos(1)..=Nanos::from_secs(3600))?,
            stops,
        };
        Ok(Pass {
            settings,
            classes,
            outstanding: 0,
            last_request: Nanos::ZERO,
            pace: Pace::default(),
            covered: Nanos::ZERO,
            round: None,
            highest: Bytes::ZERO,
            bound: None,
        })
    }

    fn roomiest(&self, class: DeviceClass, view: &View) -> Option<DeviceId> {
        view.with_room().filter(|d| d.class == class).max_by_key(|d| d.free).map(|d| d.id)
    }

    /// Whether the oldest write that the disks lack is as old as `part` of what is allowed.
    fn is_late(&self, part: u64, now: Nanos) -> bool {
        self.settings.max_lag_time.is_some_and(|most| now >= self.covered + most / part)
    }

    /// What is behind when duplication begins. With epochs it begins at half of their bound.
    fn window(&self, view: &View) -> Bytes {
        let volume = volume_size(view);
        let (window, most) = (self.settings.window.of(volume), self.settings.max_lag.of(volume));
        match view.homes.epoch_journal() {
            None => window,
            Some((_, all)) => window.min(Bytes(most.min(all).0 / 2)),
        }
    }

    /// How much more is behind than the window, and which part of what lies between that and its bound; with epochs, how much more of their journal is in use
    /// than half of it.
    fn surplus(&self, view: &View) -> Option<(Bytes, f64)> {
        if !view.homes.can_resync() {
            // No disk gets anything, so waiting for one would be of no use.
            return None;
        }
        let volume = volume_size(view);
        let bounds = (self.settings.window.of(volume), self.settings.max_lag.of(volume));
        let (is, from, to) = match view.homes.epoch_journal() {
            None => (view.homes.behind(), bounds.0, bounds.1),
            Some((used, all)) => (used, Bytes(all.0 / 2), all),
        };
        let surplus = (is > from && to > from).then(|| is - from)?;
        Some((surplus, (surplus.0 as f64 / (to - from).0 as f64).min(1.0)))
    }

    fn is_ssd(&self, device: DeviceId) -> bool {
        self.classes[device.index()] == DeviceClass::Ssd
    }

    /// What the window holds from an address on, in pieces, in the order of addresses.
    fn pieces<'a>(&self, from: Bytes, view: &'a View) -> impl Iterator<Item = ByteRange> + use<'a> {
        let homes = view.homes;
        let mut next = homes.next_behind(from);
        iter::from_fn(move || {
            let mut piece = next?;
            piece.end = piece.end.min(piece.start + PIECE);
            next = homes.next_behind(piece.end);
            while let Some(range) = next.filter(|range| range.end - piece.start <= PIECE) {
                piece.end = range.end;
                next = homes.next_behind(piece.end);
            }
            Some(piece)
        })
    }
}

fn lag_time(text: &str) -> Result<Nanos, BadSetting> {
    let times = Nanos::from_millis(100)..=Nanos::from_secs(3600);
    let time = text.parse().ok().filter(|time| times.contains(time));
    time.ok_or_else(|| {
        BadSetting::new(format!(
            "setting max-lag-time of policy pass: invalid time '{text}': use 100ms to 1h, such as 5s, or none"
        ))
    })
}

fn volume_size(view: &View) -> Bytes {
    view.extent_size * u64::from(view.homes.extents())
}

impl Policy for Pass {
    fn name(&self) -> &'static str {
        "pass"
    }

    fn settings(&self) -> String {
        let Constants { order, window, max_lag, max_lag_time, base, threshold, levels, idle, stops } =
            self.settings;
        let time = max_lag_time.map_or_else(|| "none".to_owned(), |time| format!("{}ns", time.0));
        let order = match order {
            Order::Lba => "lba",
            Order::Epoch => "epoch",
        };
        let failure = if stops { "stop" } else { "continue" };
        format!(
            "order={order},window={window},max-lag={max_lag},max-lag-time={time},base={}ns,threshold={threshold},levels={levels},idle={}ns,on-disk-failure={failure}",
            base.0, idle.0
        )
    }

    fn copies(&self) -> u8 {
        2
    }

    fn stops_without(&self) -> Option<DeviceClass> {
        self.settings.stops.then_some(DeviceClass::Hdd)
    }

    fn keeps_epochs(&self) -> bool {
        self.settings.order == Order::Epoch
    }

    fn epoch_bound(&self, view: &View) -> Bytes {
        match self.is_late(1, view.now) {
            true => Bytes::ZERO,
            false => self.settings.max_lag.of(volume_size(view)),
        }
    }

    fn longest_change(&self, view: &View) -> Bytes {
        // Whatever is late: then each part would wait for an epoch of its own.
        self.settings.max_lag.of(volume_size(view))
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, _: &Request, view: &View) {
        self.last_request = view.now;
        self.highest = self.highest.max(view.homes.lag());
    }

    fn throttle(&mut self, request: &Request, view: &View) -> Nanos {
        let Constants { base, threshold, levels, .. } = self.settings;
        match request.op {
            Op::Write => {
                let blocked =
                    Nanos(base.0 * u64::from(self.outstanding) / threshold).min(Nanos(base.0 * levels));
                let paced =
                    self.surplus(view).map(|over| self.pace.wait(request.range.len(), over, view.now));
                blocked.max(paced.unwrap_or_default())
            }
            Op::Read | Op::Flush | Op::Discard => Nanos::ZERO,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let duplicates = io.origin == Origin::Background && io.direction == Direction::Write;
        if duplicates && !self.is_ssd(io.device) {
            // With epochs each byte goes to the disk twice.
            let times = if self.settings.order == Order::Epoch { 2 } else { 1 };
            self.pace.copied += io.len.0 / times;
        }
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        let home = match occasion {
            Occasion::New { .. } => self.roomiest(DeviceClass::Ssd, view),
            Occasion::Write(piece) => view.homes.home(piece.extent),
            Occasion::ReadHit(_) | Occasion::ReadMiss(_) => None,
        };
        let Some(home) = home else { return Placement::KEEP };
        let device = self.roomiest(DeviceClass::Hdd, view).unwrap_or(home);
        let most = match self.is_late(1, view.now) {
            true => Bytes::ZERO,
            false => self.settings.max_lag.of(volume_size(view)),
        };
        // A home on a disk, from before this policy, has its second copy on an SSD: that one is never behind.
        let second = if self.is_ssd(home) { Second::Behind { device, most } } else { Second::Sync(device) };
        Placement::on(home).with_second(second)
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], _: &View) {
        copies.sort_unstable_by_key(|copy| !self.is_ssd(copy.device));
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let lag = view.homes.lag();
        self.highest = self.highest.max(lag);
        self.bound = Some(self.settings.max_lag.of(volume_size(view)));
        let round = self.round.take();
        if !view.homes.can_resync() {
            self.outstanding = 0;
            return view.now + REST;
        }
        let full = lag >= self.window(view) || lag > Bytes::ZERO && self.is_late(2, view.now);
        self.pace.begin(full || self.surplus(view).is_some(), view.now);
        if lag == Bytes::ZERO {
            self.covered = view.now;
            return view.now + if self.settings.max_lag_time.is_some() { LOOK } else { REST };
        }
        let idle = view.now >= self.last_request + self.settings.idle;
        // What a plan left of a round comes first, so that all of the volume has its turn.
        let from = round.filter(|_| full).and_then(|round| Some((round.next?, round)));
        let mut next = None;
        if full || idle {
            let most = if full { MOST_PIECES } else { IDLE_PIECES };
            match self.settings.order {
                Order::Lba => {
                    let start = from.map_or(Bytes::ZERO, |(next, _)| next);
                    let mut pieces = self.pieces(start, view);
                    plan.moves.extend(pieces.by_ref().take(most).map(|range| Move::Resync { range }));
                    next = pieces.next().map(|piece| piece.start);
                }
                Order::Epoch => plan.moves.push(Move::EndEpoch),
            }
            for device in view.devices.iter().filter(|_| full) {
                plan.limit(device.id, 1.0);
            }
        }
        // In idle time a guest that comes back must not wait for the end of this plan.
        plan.revise = !full;
        if let Some((_, round)) = from.filter(|(_, round)| plan.moves.is_empty() && round.whole) {
            // Nothing that was left of the round is behind any more.
            self.covered = round.began;
        }
        if full {
            let (began, whole) = from.map_or((view.now, true), |(_, round)| (round.began, round.whole));
            self.round = Some(Round { began, next, left: plan.moves.len(), whole });
        }
        self.outstanding = plan.moves.len() as u32;
        view.now + LOOK
    }

    fn done(&mut self, _: &Move, outcome: Outcome) {
        self.outstanding = self.outstanding.saturating_sub(1);
        let Some(round) = &mut self.round else { return };
        round.left = round.left.saturating_sub(1);
        round.whole &= outcome == Outcome::Finished;
        if round.left == 0 && round.next.is_none() && round.whole {
            self.covered = round.began;
        }
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        // What is behind lacks on the disks.
        if self.is_ssd(device) {
            return Vec::new();
        }
        let bound = self.bound.map(|bound| ("behind_bound_bytes", bound.0 as f64));
        let time = self.settings.max_lag_time.map(|time| ("behind_bound_seconds", time.as_secs_f64()));
        let highest = [("behind_highest_bytes", self.highest.0 as f64)];
        highest.into_iter().chain(bound).chain(time).collect()
    }

    fn uses(&self, device: &DeviceView) -> bool {
        device.class == DeviceClass::Ssd
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let volume = volume_size(view);
        let (window, most) = (self.settings.window.of(volume), self.settings.max_lag.of(volume));
        let range = view.range_of_extent(extent);
        let lacks = view.homes.next_behind(range.start).is_some_and(|behind| behind.start < range.end);
        let here = if lacks { "the disk lacks a part of it" } else { "the disk has all of it" };
        format!(
            "everything lies on the SSDs, with a copy on the disks; {here}. {} of the volume are behind: at {window} they are copied in the \
             order of their addresses, and beyond {most} writes wait for the disk; {} piece(s) are being copied",
            view.homes.behind(),
            self.outstanding
        )
    }
}
