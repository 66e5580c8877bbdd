//! `equi`: keep on the SSDs what would cost the disks most, as far as moving it pays.
//!
//! Not a published system: Braid's own, and the default, because of all policies it does least harm on real traces. CHANGELOG.md says on which
//! loads it is better than others, and on which it is not.
//!
//! What a request is expected to take counts for the device of the home alone. With two required copies the device of the second copies
//! therefore seems slower than it is, and less is moved than would pay.
//!
//! Each access adds the time that it would take an unloaded disk, and an unloaded SSD, to averages of its extent (`equi/demand.rs`). What is
//! scattered takes a disk long, and what goes on where something else ended does not, so these averages tell apart what a count
//! of accesses cannot. Times that devices take under load do not go into them: damage done by moves would justify more moves. The
//! load counts as one factor for each device and direction, its slowness (`equi/slowness.rs`):
//!
//! ```text
//! cost of an extent on d  = Σ over directions of (time it would take d in a second) × (slowness of d)
//! gain of a move, a to b  = (cost on a − cost on b) × (what comes true of such demands)
//! price of a move         = (time that reading takes a) × (waiting on a) + (time that writing takes b) × (waiting on b)
//! ```
//!
//! What an extent was asked for lately need not be what it will be asked for: `equi/calibration.rs` learns, from all extents, which part of a
//! demand of a certain size comes true. So a load of which nothing can be foreseen stops being moved. Twice a second (`equi/moves.rs`)
//! the extents of which the gain over `horizon` exceeds the price move, neighbours together, which costs one positioning of a disk instead of
//! many; what nobody asked for between them goes along. On a full device another extent must leave, whose loss
//! counts. Room that is free on an SSD is filled while nobody waits: an idle device copies for next to nothing.
//!
//! The horizon matters most, and no value is best for all: loads that go on for ever want a long one, traces of bursts a short one. Simulated
//! (X25-M, MBA3073; traces: the 18 cells of `trace-cells`, seed 1; the rest by the second, in multiples of what 10 s give, mean of seeds 1 and 2,
//! 60 s after 60 s; random: 32 clients, half reads, 1 GiB, SSD 2 GiB; zipf: 16 clients, 70 % reads, 3 GiB, SSD 1 GiB; dbench-like: SSD 2 GiB):
//!
//! | `horizon` | traces, × left (worst) | random 16 KiB that lay on the disk | zipf 4 KiB | dbench-like, 10 clients |
//! |---|---|---|---|---|
//! | 3 s | 0.96 (1.13) | 0.19 | 0.97 | 1.11 |
//! | 5 s | 0.99 (1.16) | 0.64 | 0.99 | 1.09 |
//! | 10 s | 1.00 (1.22) | 1 | 1 | 1 |
//!
//! New extents go to devices by shares, which grow where what guests ask for takes less time than on average (`equi/shares.rs`).

mod calibration;
mod demand;
mod moves;
mod shares;
mod slowness;

use crate::{
    BadSetting, Completion, DeviceView, Lru, Move, Occasion, Origin, Outcome, Piece, Placement, Plan, Policy,
    Settings, View,
};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};
use calibration::Calibration;
use demand::{Demand, Runs, Speed, Times, direction, takes};
use shares::Shares;
use slowness::Slowness;

/// Settings of the policy, each with its default.
#[derive(Clone, Copy, Debug)]
struct Constants {
    /// How fast what an extent was asked for is forgotten.
    memory: Nanos,
    /// The time in which a move must have gained more than it costs.
    horizon: Nanos,
}

/// Keep on the SSDs what would cost the disks most.
pub struct Equi {
    constants: Constants,
    classes: Vec<DeviceClass>,
    /// What extents are asked for: of those accessed last.
    known: Lru<ExtentId, Demand>,
    /// The same of groups of neighbours, by number.
    groups: Lru<u32, Demand>,
    runs: Runs,
    calibration: Calibration,
    /// By device and direction.
    slowness: Vec<[Slowness; 2]>,
    shares: Shares,
    /// The share of the time in which requests wait on each device.
    saturated: Vec<f64>,
    /// Devices that have answered, and failed no move since: others may be missing, and get nothing that needs room first.
    answers: Vec<bool>,
    /// Where the search for extents without requests goes on.
    hand: u32,
}

/// Extents of which something is remembered. A plan looks at all of them and at those between neighbours, and guests wait meanwhile.
const KNOWN: usize = 4096;
/// Extents of a group, which lend each other half of their mean: what little is asked of one of them, its neighbours confirm. A group is
/// also what is planned as one piece: 1 MiB of extents of the usual size.
const GROUP: u32 = 8;
/// Plans in a horizon: often enough to follow a load, and seldom enough to cost nothing.
const TICKS: u64 = 20;

impl Equi {
    /// Settings: `memory` (16s), `horizon` (10s).
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Equi, BadSetting> {
        let constants = Constants {
            memory: settings.take("memory", Nanos::from_secs(16), "a time such as 16s")?,
            horizon: settings.take("horizon", Nanos::from_secs(10), "a time such as 10s")?,
        };
        for (key, time) in [("memory", constants.memory), ("horizon", constants.horizon)] {
            if time < Nanos::from_millis(20) || time > Nanos::from_secs(3600) {
                return Err(BadSetting::new(format!("setting {key} of policy equi: use 20ms to 1h")));
            }
        }
        let classes: Vec<DeviceClass> = devices.iter().map(|d| d.class).collect();
        Ok(Equi {
            constants,
            known: Lru::default(),
            groups: Lru::default(),
            runs: Runs::default(),
            calibration: Calibration::default(),
            slowness: classes.iter().map(|&class| [Slowness::new(class); 2]).collect(),
            shares: Shares::new(&classes),
            saturated: vec![0.0; classes.len()],
            answers: vec![false; classes.len()],
            hand: 0,
            classes,
        })
    }

    /// Learns of an access that reaches a device, the home or what is to be.
    fn learn(&mut self, piece: &Piece, is_write: bool, home: Option<DeviceId>, view: &View) {
        let len = piece.range.end - piece.range.start;
        let scattered = !self.runs.goes_on(piece, view);
        let (times, memory) = (takes(len, is_write, scattered), self.constants.memory);
        let direction = usize::from(is_write);
        self.known.touch_value(piece.extent, KNOWN).add(times, direction, view.now, memory);
        self.groups.touch_value(piece.extent.0 / GROUP, KNOWN).add(times, direction, view.now, memory);
        self.shares.learn(times, direction);
        if let Some(home) = home {
            let expected = times[demand::class(self.classes[home.index()])];
            self.slowness[home.index()][direction].expect(expected);
            self.shares.expect(home, direction, expected);
        }
    }

    /// What an extent is asked for now: half of it its own, half the mean of its group.
    fn demand(&self, extent: ExtentId, known: &Demand, now: Nanos) -> Times {
        let memory = self.constants.memory;
        let group = self.groups.value(extent.0 / GROUP).unwrap_or_default().at(now, memory);
        let mut demand = known.at(now, memory);
        for (own, group) in demand.as_flattened_mut().iter_mut().zip(group.as_flattened()) {
            *own = (*own + group / GROUP as f32) / 2.0;
        }
        demand
    }

    /// What an extent costs guests on a device, in milliseconds a second.
    fn cost(&self, demand: &Times, device: DeviceId) -> f64 {
        slowness::cost(demand, self.classes[device.index()], &self.slowness[device.index()])
    }

    /// What guests wait longer, in milliseconds, for each millisecond that a device works for a move.
    fn waiting(&self, device: DeviceId) -> f64 {
        let [read, write] = self.slowness[device.index()].map(|slowness| slowness.factor());
        (read.max(write) - 1.0).max(slowness::IDLE)
    }
}

impl Policy for Equi {
    fn name(&self) -> &'static str {
        "equi"
    }

    fn settings(&self) -> String {
        let Constants { memory, horizon } = self.constants;
        format!("memory={}ms,horizon={}ms", memory.0 / 1_000_000, horizon.0 / 1_000_000)
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        match occasion {
            // No device has to do with it.
            Occasion::ReadHit(_) => {}
            Occasion::ReadMiss(piece) => self.learn(piece, false, view.homes.home(piece.extent), view),
            Occasion::Write(piece) => self.learn(piece, true, view.homes.home(piece.extent), view),
            Occasion::New { write, .. } => {
                let home = self.shares.next(view);
                if let Some(piece) = write {
                    self.learn(piece, true, home, view);
                }
                return home.map_or(Placement::KEEP, Placement::on);
            }
        }
        Placement::KEEP
    }

    fn completed(&mut self, io: &Completion) {
        let (Some(direction), device) = (direction(io.direction), io.device.index()) else { return };
        let took = io.latency.as_millis_f64();
        self.answers[device] = true;
        match io.origin {
            Origin::Guest => {
                self.slowness[device][direction].took(took);
                self.shares.took(io.device, direction, took);
            }
            Origin::Probe => {
                let expected = Speed::of(self.classes[device]).takes(io.len, direction == 1, true);
                self.slowness[device][direction].probed(expected, took);
                self.shares.probed(io.device, direction, expected, took);
            }
            Origin::Background => {}
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.revise = true;
        self.shares.share_out(&self.classes);
        self.shares.probe(view, &mut plan.moves);
        self.watch_saturation(view);
        self.settle(view.now);
        self.plan_moves(view, &mut plan.moves);
        view.now + self.constants.horizon / TICKS
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        match (job, outcome) {
            (Move::Migrate { extent, .. }, Outcome::Finished) => {
                self.known.change_value(*extent, Demand::has_moved);
            }
            (Move::Migrate { target, .. }, Outcome::Failed) => self.answers[target.index()] = false,
            _ => {}
        }
    }

    fn memory(&self) -> usize {
        self.known.memory() + self.groups.memory()
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let known = self.known.value(extent).unwrap_or_default();
        let demand = self.demand(extent, &known, view.now);
        let [disk, ssd] = demand.map(|class| class.iter().sum::<f32>());
        let costs = view.devices.iter().map(|d| format!("{} {:.3}", d.id, self.cost(&demand, d.id)));
        let next = match self.gain(extent, &known, view) {
            None => "it has no home to leave, or no other device to go to".to_owned(),
            Some(gain) => format!(
                "a move to {} would gain {:.3} ms a second, for {:.1} ms once",
                gain.to,
                gain.ms,
                self.price(gain.from, gain.to, self.waiting_for(gain.from, gain.to), view).alone()
            ),
        };
        format!(
            "what was asked of it lately would take an unloaded disk {disk:.3} ms a second and an unloaded SSD {ssd:.3} ms; \
             with the load it costs guests on {} ms a second; {next}",
            costs.collect::<Vec<_>>().join(", ")
        )
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let [read, write] = self.slowness[device.index()].map(|slowness| slowness.factor());
        let share = self.shares.of(device);
        vec![("share", share), ("read_slowness", read), ("write_slowness", write)]
    }
}
