//! `equi`: keep on the SSDs the extents with the highest cost on disks, as far as moving them pays.
//!
//! Not a published system: Braid's own, and the default, because equi does least harm of all policies on real
//! traces. docs/benchmarks.md lists the loads on which equi is better than other policies, and the loads on
//! which equi is worse.
//!
//! The expected time of a request is charged to the device of the home only. With two required copies, the
//! device of the second copies therefore seems slower than in reality, and fewer extents move than would pay.
//!
//! Each access adds the time on an unloaded disk, and the time on an unloaded SSD, to averages of the extent
//! (`equi/demand.rs`). Scattered requests take a disk long; a request that continues an earlier one does not.
//! The averages therefore distinguish loads that a count of accesses cannot. Device times under load are left
//! out of the averages: otherwise the load caused by moves would justify more moves. Load enters as one
//! factor for each device and direction, the slowness (`equi/slowness.rs`):
//!
//! ```text
//! cost of an extent on d  = Σ over directions of (time it would take d in a second) × (slowness of d)
//! gain of a move, a to b  = (cost on a − cost on b) × (what comes true of such demands)
//! price of a move         = (time that reading takes a) × (waiting on a) + (time that writing takes b) × (waiting on b)
//! ```
//!
//! Past demand need not predict future demand. `equi/calibration.rs` learns, from all extents, the fraction
//! of a demand of a certain size that comes true. Unpredictable loads therefore stop being moved.
//!
//! Twice a second (`equi/moves.rs`) Braid moves the extents with a gain over `horizon` above the price.
//! Neighbours move together, which costs one positioning of a disk instead of many; idle extents between the
//! neighbours move along. On a full device another extent must leave, and the loss from leaving counts.
//!
//! An SSD that is not saturated returns only extents that cost several times as much on the SSD, a few in
//! each plan: the response of disks to more load is measured, not predicted. Free room on an SSD is filled
//! while no guest waits: an idle device copies almost free of cost. A disk that has been saturated for a time
//! is expected to stay saturated for as long again. That time is the horizon for filling free room; otherwise
//! the room would stay free for ever.
//!
//! In two of the modes (`equi/mode.rs`) a part of the SSDs, or all, holds cached copies of blocks with a home
//! on a disk (`equi/copies.rs`). Accesses served by a cached copy cost the disk nothing, and are no reason to
//! move a home.
//!
//! Each assumed number is a field of [`Constants`], with its reason.
//!
//! An owner may bound the policy's own work (`equi/wishes.rs`): writes to SSDs (`equi/wear.rs`), the delay of
//! guests (`equi/slo.rs`), and the number of disk spin-ups (`equi/rest.rs`).
//!
//! New extents go to devices by shares. The share of a device grows if guests' requests take less time there
//! than on average (`equi/shares.rs`).

mod calibration;
mod constants;
mod copies;
mod demand;
mod mode;
mod moves;
mod quiet;
mod rest;
mod shares;
mod slo;
mod slowness;
mod wear;
mod wishes;

use crate::{
    BadSetting, Completion, DeviceView, ExtraCopy, Lru, Move, Occasion, Origin, Outcome, Piece, Placement,
    Plan, Policy, Request, Settings, View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos};
use calibration::Calibration;
use constants::Constants;
use copies::Copies;
use demand::{Demand, Runs, Times, direction};
use mode::Mode;
use quiet::Quiet;
use shares::Shares;
use slo::Slack;
use slowness::{QueueLength, Slowness};
use wishes::Wishes;

/// The default policy: keeps on the SSDs the extents with the highest cost on disks.
pub struct Equi {
    constants: Constants,
    classes: Vec<DeviceClass>,
    /// Demands of the extents accessed most recently.
    known: Lru<ExtentId, Demand>,
    /// Demands of groups of neighbours, by number of the group.
    groups: Lru<u32, Demand>,
    runs: Runs,
    calibration: Calibration,
    /// By device and direction.
    slowness: Vec<[Slowness; 2]>,
    shares: Shares,
    /// Fraction of time in which requests wait on each device, and the start of saturation: since when the
    /// fraction exceeds one half.
    saturated: Vec<(f64, Option<Nanos>)>,
    /// By device: true if the device has answered and no move to the device has failed since. Other devices
    /// may be missing, and get no extent that would first need room.
    answers: Vec<bool>,
    /// Extent at which the search for extents without requests continues.
    hand: u32,
    /// Decides which plans are worth making while nothing happens.
    quiet: Quiet,
    /// By device.
    queues: Vec<QueueLength>,
    mode: Mode,
    /// True if the guard may switch the mode (`mode=auto`).
    is_auto: bool,
    /// True if the mode can change: `mode=auto`, and devices of both classes.
    has_choice: bool,
    copies: Copies,
    wishes: Wishes,
    /// Time of the next plan of moves.
    due: Nanos,
}

impl Equi {
    /// Creates the policy. Settings: `mode` (tier), `wear` (none), `slo` (none), `quiet` (none), and for
    /// research the settings of `equi/constants.rs`.
    ///
    /// Fails if a setting is invalid, or a mode with cached copies is asked for and the volume has one class
    /// of device.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Equi, BadSetting> {
        let constants = Constants::read(settings)?;
        let (mode, is_auto) = Mode::take(settings)?;
        let has_both = DeviceView::are_of_both_classes(devices);
        if !has_both && mode.copies() > 0.0 {
            return Err(BadSetting::new(
                "policy equi needs an SSD and a disk for that mode, and the volume has one class of device: leave out mode",
            ));
        }
        let classes: Vec<DeviceClass> = devices.iter().map(|d| d.class).collect();
        let slowness = |&class: &DeviceClass| [Slowness::new(constants.guess(class), constants.long); 2];
        Ok(Equi {
            constants,
            known: Lru::default(),
            groups: Lru::default(),
            runs: Runs::new(constants.streams as usize),
            calibration: Calibration::new(&constants),
            slowness: classes.iter().map(slowness).collect(),
            shares: Shares::new(constants, &classes),
            saturated: vec![(0.0, None); classes.len()],
            answers: vec![false; classes.len()],
            hand: 0,
            quiet: Quiet::new(&constants),
            queues: vec![QueueLength::default(); classes.len()],
            classes,
            mode,
            is_auto,
            has_choice: is_auto && has_both,
            copies: Copies::new(mode.copies(), devices)?,
            wishes: Wishes::take(settings, devices)?,
            due: Nanos::ZERO,
        })
    }

    /// Records an access that reaches a device: `home`, or the device chosen for a new extent.
    fn learn(&mut self, piece: &Piece, is_write: bool, home: Option<DeviceId>, view: &View) {
        self.quiet.disturb();
        let len = piece.range.end - piece.range.start;
        let [disk, ssd] = [DeviceClass::Hdd, DeviceClass::Ssd].map(|class| self.constants.speed(class));
        // An SSD positions for each request.
        let times = [self.runs.takes(disk, piece, view), ssd.scattered(len)];
        let direction = usize::from(is_write);
        let (memory, most) = (self.constants.memory, self.constants.known as usize);
        let group = piece.extent.0 / self.constants.group();
        self.known.touch_value(piece.extent, most).add(times, direction, view.now, memory);
        self.groups.touch_value(group, most).add(times, direction, view.now, memory);
        self.shares.learn(times, direction);
        if let Some(home) = home {
            self.wishes.wants(piece.extent, home);
            self.queues[home.index()].meets(view.devices[home.index()].in_flight, self.constants.long);
            self.expect(home, direction, times[demand::class(self.classes[home.index()])]);
        }
    }

    /// Records the start of a request with an expected time of `ms`.
    fn expect(&mut self, device: DeviceId, direction: usize, ms: f64) {
        self.slowness[device.index()][direction].expect(ms);
        self.shares.expect(device, direction, ms);
    }

    fn place_read(&mut self, read: &Piece, view: &View) -> Placement<'static> {
        let home = view.homes.home(read.extent);
        let may_copy = self.may_have_copies(home);
        match view.homes.extra(read.first_block).filter(|_| may_copy) {
            Some(copy) => self.served_by_copy(copy.device, read, false),
            None => self.learn(read, false, home, view),
        }
        if !may_copy {
            return Placement::KEEP;
        }
        let placement = self.copies.place_read(read, view);
        Placement::cached(placement.extra.filter(|&ssd| self.wishes.may_fill(ssd)))
    }

    fn place_write(&mut self, write: &Piece, home: Option<DeviceId>, view: &View) -> Placement<'static> {
        let placement = match (self.copies.are_wanted(), self.may_have_copies(home)) {
            (false, _) => Placement::KEEP,
            // A remaining cached copy would need a second write to the SSDs: write the home alone.
            (true, false) => Placement::ALONE,
            (true, true) => {
                let placement = self.copies.place_write(write, view);
                // An existing copy would be written, too.
                let there = view.homes.extra(write.first_block).map(|copy| copy.device);
                match there.or(placement.extra).is_none_or(|ssd| self.wishes.may_write(ssd)) {
                    true => placement,
                    false => Placement::ALONE,
                }
            }
        };
        match placement.extra {
            Some(ssd) => self.served_by_copy(ssd, write, true),
            None => self.learn(write, true, home, view),
        }
        placement
    }

    /// True if blocks of an extent with this home may have cached copies.
    fn may_have_copies(&self, home: Option<DeviceId>) -> bool {
        self.copies.are_wanted() && home.is_some_and(|home| self.classes[home.index()] == DeviceClass::Hdd)
    }

    /// Records an access served by a cached copy. The access is no reason to move the home.
    fn served_by_copy(&mut self, ssd: DeviceId, piece: &Piece, is_write: bool) {
        self.quiet.disturb();
        let ms = self.constants.speed(DeviceClass::Ssd).scattered(piece.range.end - piece.range.start);
        self.expect(ssd, usize::from(is_write), ms);
    }

    /// Returns the current demand of an extent, with the share lent by the group.
    fn demand(&self, extent: ExtentId, known: &Demand, now: Nanos) -> Times {
        let Constants { memory, .. } = self.constants;
        let group = self.constants.group();
        let of_all = self.groups.value(extent.0 / group).unwrap_or_default();
        demand::lent(known.at(now, memory), of_all.at(now, memory), group)
    }

    /// Returns the cost of a demand to guests on a device, in milliseconds a second.
    fn cost(&self, demand: &Times, device: DeviceId) -> f64 {
        slowness::cost(demand, self.classes[device.index()], &self.slowness[device.index()])
    }

    /// Returns the delay of guests, in milliseconds, for each millisecond that a device works for a move. The
    /// bound is the length of the queue, since a device may be slow by nature, without a queue.
    fn waiting(&self, device: DeviceId) -> f64 {
        let [read, write] = self.slowness[device.index()].map(|slowness| slowness.factor());
        let queue = self.queues[device.index()].length();
        (read.max(write) - 1.0).min(queue).max(self.constants.idle)
    }
}

impl Policy for Equi {
    fn name(&self) -> &'static str {
        "equi"
    }

    fn settings(&self) -> String {
        self.written(self.asked_mode(), 1, &self.wishes.written())
    }

    fn modes(&self, haste: u32) -> Vec<String> {
        self.in_each_mode(haste)
    }

    fn mode(&self) -> usize {
        self.mode_place()
    }

    fn switch(&mut self, mode: usize) {
        self.go_on_in(mode);
    }

    fn observes(&self) -> bool {
        self.has_choice || self.copies.are_wanted()
    }

    fn observe(&mut self, request: &Request, _: &View) {
        self.copies.observe(request);
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        self.copies.requested(view.now);
        let is_hit = matches!(occasion, Occasion::ReadHit(_));
        self.wishes.requested(is_hit, view, self.constants.memory);
        match occasion {
            // No device is involved.
            Occasion::ReadHit(piece) => {
                self.copies.used(piece, view);
                Placement::KEEP
            }
            Occasion::ReadMiss(piece) => self.place_read(piece, view),
            Occasion::Write(piece) => self.place_write(piece, view.homes.home(piece.extent), view),
            Occasion::New { write, .. } => {
                let home = self.shares.next(view, |device| match self.wishes.may_hold(device.id) {
                    true => self.copies.kept(device, view),
                    false => u32::MAX,
                });
                let placed = write.as_ref().map(|piece| self.place_write(piece, home, view));
                home.map_or(Placement::KEEP, Placement::on).with_extra(placed.and_then(|placed| placed.extra))
            }
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        self.copies.slots(device)
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.copies.victim(device, view)
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.copies.changed(block, before, now);
    }

    fn completed(&mut self, io: &Completion) {
        self.wishes.completed(io);
        let Some(direction) = direction(io.direction) else { return };
        self.answers[io.device.index()] = true;
        match io.origin {
            Origin::Guest => {}
            Origin::Probe => {
                let speed = self.constants.speed(self.classes[io.device.index()]);
                self.expect(io.device, direction, speed.scattered(io.len));
                self.shares.probed(io.device, direction);
            }
            Origin::Background => return,
        }
        self.quiet.disturb();
        let took = io.latency.as_millis_f64();
        self.slowness[io.device.index()][direction].took(took);
        self.shares.took(io.device, direction, took);
    }

    /// Plans moves once per period, and revises the plan. Write-back ends first.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.wishes.plan(view, self.constants.memory, plan);
        let may_work = self.wishes.slack() != Slack::None;
        let next = self.copies.plan(!may_work || self.wishes.any_rests(), view, plan);
        plan.revise = plan.moves.is_empty();
        if view.now >= self.due {
            self.due = view.now + self.constants.tick();
            self.shares.share_out(&self.classes);
            if may_work {
                self.shares.probe(view, |device| self.wishes.may_write(device), &mut plan.moves);
            }
            let (left, long) = (self.constants.left(), self.constants.long);
            self.slowness.as_flattened_mut().iter_mut().for_each(|slowness| slowness.pass(left, long));
            self.watch_saturation(view);
            if self.quiet.is_plan_due() {
                self.settle(view.now);
                if may_work {
                    self.plan_moves(view, &mut plan.moves);
                }
            }
            if may_work {
                self.fetch_wanted(view, &mut plan.moves);
            }
            self.wishes.let_disks_rest(view, &mut plan.moves);
        }
        match plan.revise {
            false => next,
            true if plan.moves.is_empty() && self.copies.are_wanted() => next.min(self.due),
            true => self.due,
        }
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        self.quiet.disturb();
        self.copies.done(job, outcome);
        match (job, outcome) {
            (Move::Migrate { extent, .. }, Outcome::Finished) => {
                self.known.change_value(*extent, Demand::has_moved);
            }
            (Move::Migrate { target, .. }, Outcome::Failed) => self.answers[target.index()] = false,
            _ => {}
        }
    }

    fn memory(&self) -> usize {
        self.known.memory() + self.groups.memory() + self.copies.memory()
    }

    /// Returns the mode in use, which a guard may have chosen, and the state of the wishes; empty for a fixed
    /// mode without wishes.
    fn save(&self, _: &View) -> Vec<u8> {
        let wishes = self.wishes.save();
        match self.is_auto || !wishes.is_empty() {
            true => [&[self.mode_place() as u8], &wishes[..]].concat(),
            false => wishes,
        }
    }

    fn restore(&mut self, state: &[u8], _: &View) {
        let Some((&mode, wishes)) = state.split_first() else { return };
        if self.has_choice {
            self.go_on_in(usize::from(mode));
        }
        self.wishes.restore(wishes);
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let known = self.known.value(extent).unwrap_or_default();
        let demand = self.demand(extent, &known, view.now);
        let [disk, ssd] = demand.map(|class| class.iter().sum::<f32>());
        let costs = view.devices.iter().map(|d| format!("{} {:.3}", d.id, self.cost(&demand, d.id)));
        let next = match self.gain(extent, &known, view) {
            None => "the extent has no home, or no other device can take it".to_owned(),
            Some(gain) => format!(
                "a move to {} would gain {:.3} ms a second, for {:.1} ms once",
                gain.to,
                gain.ms,
                self.price(gain.from, gain.to, self.waiting_for(gain.from, gain.to), view).alone()
            ),
        };
        let refusals = self.wishes.refusals(view).into_iter().map(|refusal| format!("; {refusal}"));
        format!(
            "recent requests for the extent would take an unloaded disk {disk:.3} ms a second and an \
             unloaded SSD {ssd:.3} ms; with the load they cost guests on {} ms a second; {next}{}; mode {}",
            costs.collect::<Vec<_>>().join(", "),
            refusals.collect::<String>(),
            self.mode_name()
        )
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let [read, write] = self.slowness[device.index()].map(|slowness| slowness.factor());
        let share = self.shares.of(device);
        let mut figures = vec![("share", share), ("read_slowness", read), ("write_slowness", write)];
        figures.extend(self.wishes.figures(device));
        figures
    }
}
