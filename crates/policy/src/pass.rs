//! `pass`: all requests run at the speed of the SSDs, and a disk holds a copy that lags behind.
//!
//! Xiao, Lei, Li, Park, Lilja, "PASS: A Hybrid Storage System for Performance-Synchronization Tradeoffs Using
//! SSDs".
//!
//! | the paper | here |
//! |---|---|
//! | III: requests are performed on the SSD first | [`Pass::place`], [`Pass::rank_reads`] |
//! | III: an I/O window holds the writes missing on the disk; IV.C: overlapping writes are merged | the engine's set of stale ranges, [`crate::Homes::next_behind`] |
//! | IV.A: the window keeps no data; data is read from the SSD again | `Move::Resync` |
//! | IV.A: "when the I/O window is full, the duplication thread will be awakened" by the callback | [`Pass::plan`], `Plan::wake`; during a plan, `awaken_if_full` |
//! | IV.B: "once all the duplication requests have been submitted", the window is available again | [`Outstanding::in_window`] |
//! | IV.B: the I/O thread is blocked for base time × min(α, N) | `blocking.rs` |
//! | IV.C: in the order of their addresses | [`Pass::pieces`] |
//!
//! Necessary differences:
//! - The paper's window and its tn_list are lost with power. Here stale ranges are recorded durably.
//! - Stale ranges have block granularity, with at most 2^20 ranges: beyond, writes go to both copies.
//! - kcopyd gets a window as a whole, and a second window behind the first. Here pieces of at most 128 KiB
//!   are separate requests, 16 at the same time, and one beside a single client. Windows that fill meanwhile
//!   are one plan, in the order of addresses.
//! - The paper has no numbers for base time, threshold and N.
//!
//! Differences by choice, unless `as-published` is set:
//! - At most `max-lag` bytes are stale, and none for longer than `max-lag-time` (`age.rs`): beyond, writes
//!   wait for both copies. Before the bound guests are paced (`pace.rs`).
//! - Only writes wait for outstanding duplications (`blocking=writes`), in proportion, also below the
//!   threshold.
//! - Short gaps between ranges are written through (`gap`): a disk passes over a gap in less time than
//!   positioning takes.
//! - In idle time a part of the window is duplicated before the window is full (`idle`). The next duplication
//!   is then shorter, and the loss of an SSD costs less.
//!
//! As published, nothing bounds the cost of losing the SSD: the window, and all writes of guests beyond the
//! rate of the disk. Data stays in the window until the window is full, for however long.
//!
//! The paper's order (`order=lba`) is the order of addresses: the disk alone holds no state that the volume
//! ever had until the window is empty. With `order=epoch` the disk, with its journal, is always equal to a
//! past state of the volume. All stale ranges are duplicated as a whole ([`Move::EndEpoch`]), and a write
//! that would exceed `max-lag` waits. Epochs need a disk that keeps addresses (`layout=tail`). Data in the
//! journal does not count as lost ([`crate::Homes::lag`]), but must still be applied in place, and guests are
//! held to the rate of applying.
//!
//! Without the disk the volume continues with the SSDs alone (`on-disk-failure=continue`), or serves its data
//! read-only (`stop`).

mod age;
mod amount;
mod blocking;
mod pace;
mod settings;

use crate::{
    BadSetting, ByteRange, Completion, CurrentCopy, DeviceView, Direction, Move, Occasion, Origin, Outcome,
    Placement, Plan, Policy, Request, Second, Settings, View,
};
use age::Age;
use blocking::Outstanding;
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos, Op};
use pace::Pace;
use settings::{Blocking, Constants, DuplicationOrder};
use std::iter;

/// All data on the SSDs, and a lagging copy on the disks.
pub struct Pass {
    settings: Constants,
    /// Class of each device.
    classes: Vec<DeviceClass>,
    outstanding: Outstanding,
    /// True if the last plan had pieces, and none of the pieces has finished.
    in_vain: bool,
    /// Time of the last request of a guest.
    last_request: Nanos,
    pace: Pace,
    age: Age,
    /// Largest lag so far.
    highest: Bytes,
    /// Bound on the lag, once the volume's size is known.
    bound: Option<Bytes>,
}

/// Longest span of ranges duplicated as one piece of work. Several pieces are copied at the same time: short
/// pieces lie near each other, and reach the disk nearly in the order of addresses.
const PIECE: Bytes = Bytes(128 << 10);
/// Pieces duplicated in idle time before the policy checks for requests of guests.
const IDLE_PIECES: usize = 128;
/// Pieces of one plan: a gibibyte of whole pieces. While a disk is lost, stale ranges have no bound.
const MOST_PIECES: usize = 8192;
/// Delay of the next plan after a plan with work, …
const AT_ONCE: Nanos = Nanos::from_millis(1);
/// … otherwise, …
const LOOK: Nanos = Nanos::from_millis(10);
/// … and while nothing is stale.
const REST: Nanos = Nanos::from_millis(100);

impl Pass {
    /// Creates the policy. `pass/settings.rs` lists the settings with their defaults.
    ///
    /// # Errors
    /// Without both classes of devices, and for invalid settings.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Pass, BadSetting> {
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new("policy pass needs an SSD and a disk: use another policy"));
        }
        Ok(Pass {
            settings: Constants::read(settings)?,
            classes: devices.iter().map(|d| d.class).collect(),
            outstanding: Outstanding::default(),
            in_vain: false,
            last_request: Nanos::ZERO,
            pace: Pace::default(),
            age: Age::default(),
            highest: Bytes::ZERO,
            bound: None,
        })
    }

    fn roomiest(&self, class: DeviceClass, view: &View) -> Option<DeviceId> {
        view.with_room().filter(|d| d.class == class).max_by_key(|d| d.free).map(|d| d.id)
    }

    /// Returns the bytes that may be stale now: none, if the oldest write is too old.
    fn most_behind_now(&self, view: &View) -> Bytes {
        match self.age.is_late(self.settings.max_lag_time, 1, view.now) {
            true => Bytes::ZERO,
            false => self.settings.most_behind(view),
        }
    }

    fn is_ssd(&self, device: DeviceId) -> bool {
        self.classes[device.index()] == DeviceClass::Ssd
    }

    /// Returns the stale ranges from an address on, in pieces, in the order of addresses.
    fn pieces<'a>(&self, from: Bytes, view: &'a View) -> impl Iterator<Item = ByteRange> + use<'a> {
        let (homes, gap) = (view.homes, self.settings.gap);
        let mut next = homes.next_behind(from);
        iter::from_fn(move || {
            let mut piece = next?;
            piece.end = piece.end.min(piece.start + PIECE);
            next = homes.next_behind(piece.end);
            let joins = |piece: &ByteRange, range: &ByteRange| {
                range.start < piece.end + gap && range.end - piece.start <= PIECE
            };
            while let Some(range) = next.filter(|range| joins(&piece, range)) {
                piece.end = range.end;
                next = homes.next_behind(piece.end);
            }
            Some(piece)
        })
    }

    /// Section IV.B: the callback awakens the duplication thread again, after submission of earlier windows.
    fn awaken_if_full(&mut self, view: &View) {
        let behind = view.homes.behind();
        if !self.outstanding.is_duplicating()
            || self.outstanding.in_window(behind) < self.settings.window_of(view)
        {
            return;
        }
        // α beyond N makes no difference.
        let most = self.settings.threshold.saturating_mul(self.settings.levels.max(1)) + 1;
        let pieces = self.pieces(Bytes::ZERO, view).take(MOST_PIECES.min(most as usize)).count();
        self.outstanding.awaken(&self.settings, behind, pieces as u64, view.now);
    }

    /// Plans the duplication of stale ranges from `start` on. Returns the start of the next plan.
    fn duplicate(&self, start: Bytes, most: usize, view: &View, plan: &mut Plan) -> Option<Bytes> {
        if self.settings.order == DuplicationOrder::Epoch {
            plan.moves.push(Move::EndEpoch);
            return None;
        }
        let (mut pieces, gap) = (self.pieces(start, view), self.settings.gap);
        plan.moves.extend(pieces.by_ref().take(most).map(|range| Move::Resync { range, gap }));
        pieces.next().map(|piece| piece.start)
    }
}

impl Policy for Pass {
    fn name(&self) -> &'static str {
        "pass"
    }

    fn settings(&self) -> String {
        self.settings.to_string()
    }

    fn copies(&self) -> u8 {
        2
    }

    fn stops_without(&self) -> Option<DeviceClass> {
        self.settings.stops.then_some(DeviceClass::Hdd)
    }

    fn keeps_epochs(&self) -> bool {
        self.settings.order == DuplicationOrder::Epoch
    }

    fn epoch_bound(&self, view: &View) -> Bytes {
        self.most_behind_now(view)
    }

    fn longest_change(&self, view: &View) -> Bytes {
        // Independent of lateness: otherwise each part of a change would wait for a separate epoch.
        self.settings.most_behind(view)
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, _: &Request, view: &View) {
        self.last_request = view.now;
        self.highest = self.highest.max(view.homes.lag());
        if self.settings.blocking == Blocking::IoThread {
            self.awaken_if_full(view);
        }
    }

    fn throttle(&mut self, request: &Request, view: &View) -> Nanos {
        let blocked = self.outstanding.wait(&self.settings, request.op, view.now);
        match request.op {
            Op::Write => blocked.max(self.pace.wait(request.range.len(), &self.settings, view)),
            Op::Read | Op::Flush | Op::Discard => blocked,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let duplicates = io.origin == Origin::Background && io.direction == Direction::Write;
        if duplicates && !self.is_ssd(io.device) {
            // With epochs each byte goes to the disk twice.
            let times = if self.settings.order == DuplicationOrder::Epoch { 2 } else { 1 };
            self.pace.copied(io.len / times);
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
        // A home on a disk dates from before this policy; the second copy is on an SSD, and is never stale.
        let second = match self.is_ssd(home) {
            true => Second::Behind { device, most: self.most_behind_now(view) },
            false => Second::Sync(device),
        };
        Placement::on(home).with_second(second)
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], _: &View) {
        copies.sort_unstable_by_key(|copy| !self.is_ssd(copy.device));
    }

    /// The duplication thread.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let lag = view.homes.lag();
        self.highest = self.highest.max(lag);
        self.bound = self.settings.max_lag.map(|_| self.settings.most_behind(view));
        let unfinished = self.age.end_plan();
        self.outstanding.submit(0, Bytes::ZERO);
        if !view.homes.can_resync() {
            return view.now + REST;
        }
        let Constants { max_lag_time, idle, order, .. } = self.settings;
        let full = lag >= self.settings.window_of(view)
            || lag > Bytes::ZERO && self.age.is_late(max_lag_time, 2, view.now);
        self.pace.begin(full, view.now);
        // Pieces that cannot be copied yet are not retried a thousand times a second.
        let in_vain = std::mem::take(&mut self.in_vain);
        plan.wake = (order == DuplicationOrder::Lba && !in_vain).then(|| self.settings.window_of(view));
        if lag == Bytes::ZERO {
            self.age.catch_up(view.now);
            return view.now + if max_lag_time.is_some() { LOOK } else { REST };
        }
        let is_idle = idle.is_some_and(|idle| view.now >= self.last_request + idle);
        let from = unfinished.filter(|_| full);
        let start = from.map_or(Bytes::ZERO, |round| round.next());
        let next = match (full, is_idle) {
            (true, _) => self.duplicate(start, MOST_PIECES, view, plan),
            (false, true) => self.duplicate(Bytes::ZERO, IDLE_PIECES, view, plan),
            (false, false) => None,
        };
        // In idle time a returning guest must not wait for the end of this plan.
        plan.revise = !full;
        if !full {
            self.outstanding.submit(plan.moves.len(), Bytes::ZERO);
            return view.now + LOOK;
        }
        self.outstanding.submit(plan.moves.len(), view.homes.behind());
        self.age.begin_plan(from, plan.moves.len(), next, view.now);
        for device in view.devices {
            plan.limit(device.id, 1.0);
        }
        self.in_vain = !plan.moves.is_empty();
        view.now + if in_vain { LOOK } else { AT_ONCE }
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        let len = if let Move::Resync { range, .. } = job { range.len() } else { Bytes::ZERO };
        self.outstanding.end(len);
        self.in_vain &= outcome != Outcome::Finished;
        self.age.done(outcome);
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        // The disks lack the stale bytes, not the SSDs.
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
        let range = view.range_of_extent(extent);
        let lacks = view.homes.next_behind(range.start).is_some_and(|behind| behind.start < range.end);
        let here = if lacks { "the disk's copy is partly stale" } else { "the disk's copy is current" };
        let bound = match self.settings.max_lag {
            Some(_) => format!("beyond {} writes wait for the disk", self.settings.most_behind(view)),
            None => "no bound limits further stale data".to_owned(),
        };
        format!(
            "all data is on the SSDs, with a copy on the disks; {here}. The disks' copies of {} of the \
             volume are stale: at {} they are copied in the order of their addresses, and {bound}; {} \
             piece(s) are being copied",
            view.homes.behind(),
            self.settings.window_of(view),
            self.outstanding.planned()
        )
    }
}
