//! `wardrop`: balance devices until their response times are equal.
//!
//! Wu and Reddy, "A Novel Approach to Manage A Hybrid Storage System", section II. Every sample period, with R_d the
//! measured response time of device d and Q_d its share of the requests:
//!
//! ```text
//! R̄   = Σ R_d Q_d
//! P_d = Q_d + α (R̄ − R_d) Q_d        the share that d shall have next
//! tokens = |P_d − Q_d| β              extents that may change direction within the period
//! ```
//!
//! Tokens go to allocation first: a new extent takes one and goes to a device that shall gain. Without tokens new
//! extents follow P. What allocation leaves is spent on migration of hot extents (the list of those accessed last) from
//! devices that shall lose, and on writes to extents that the memory cache holds whole: these go to the new home at
//! once. Tokens that are left at the end of the period are gone. Apart from that, cold extents leave a device that
//! fills up.
//!
//! Where this differs from the paper, and why; `step=1` switches the first eleven off:
//! - α = 10/ms leaves [0, 1] for differences beyond 0.1 ms, so that the paper's P jumps between the bounds, while a device
//!   at its floor gains next to nothing, since Q_d is a factor of the change. Here a share changes by `step` times the difference
//!   relative to the greater of R̄ and R_d: large steps far from equilibrium, small ones near it, and out of the floor.
//!   How much response times change with shares differs between loads by a factor of ten: while a device goes on in one
//!   direction its steps become longer from period to period, and shorter when it turns.
//! - While extents move, response times are those of devices that copy, and of shares that are on their way. Here hot extents
//!   move in the first half of a period, and where any did, what guests see in the second half counts for R and Q.
//! - A weight of 0.01 makes R_d what the last hundred requests took. A guest that does one thing after another sends
//!   thousands in a period, and the last hundred say little of them. Here R_d goes towards the mean of the whole
//!   period by as much as that many steps of 0.01 would take it, but two fifths of the way at most, for the means of periods
//!   scatter too; and P takes a step only as far as this R and that of the last period alone agree, so that what has come to
//!   rest is not pushed on by what was. Where they disagree, P does not gain, and stays where it was below Q.
//! - Guests who become more write new files at once, and all of these went to the device that had been the best for few. Where more
//!   requests are in flight, and take longer, by a factor of two each, than at any time lately, what was measured before says
//!   nothing: a quarter of a period is enough, R_d is that of this period alone, and P goes at once, by a quarter at most, to
//!   where response times would be equal by the arrival theorem: R_d = S_d (1 + L_d), with L_d requests in flight. Loads that
//!   only pause are not meant.
//! - Devices are not asked for the same: one that gets the large requests of a client would pass for slow. Here R_d is what
//!   the device takes for the requests of all guests: as often reads, and for as much at a time (`wardrop/response.rs`).
//! - P goes on from the last P where that is ahead of Q in the same direction: the shares of requests follow the shares
//!   of allocations only as data is replaced, and P must not wait for them. It is a quarter ahead at most.
//! - The paper's token is an extent, so β = 100 says that a hundred extents carry the load; a file system that reuses
//!   2,000 extents takes minutes to balance, and one very hot extent upsets it. Here a token stands for 1/β of the requests: a
//!   migrated extent takes as many as it carries on average, the hottest go first, and one that carries more than there are
//!   stays. A new extent takes what one in use carries. Tokens are whole, and what that leaves counts in the next period, so that
//!   small differences that last are made up for, and those of chance are not.
//! - Where extents are as hot as they are often asked for, those of small requests move first, and the device that gains them
//!   is left with what is small and written all over. Here an extent is as hot as its requests take time: a request counts
//!   half for itself, and half for its length, relative to the mean.
//! - A disk with a write cache answers at once up to a certain load, and ten times as late just above it. A share that jumps over
//!   this point has to jump back, and each copy that is read from such a disk costs its guests some 30 ms. So load moves by this
//!   period's step alone, from Q: where P went ahead because no move paid, that is no debt, or a quarter of all load would move
//!   at once when one does. While shares turn, steps become as short as a fortieth.
//! - Of extents about as hot the first by address move first. Near equilibrium heat differs by chance; what moved by that lay
//!   scattered, and what had been one run of writes for a device became many.
//! - The paper moves whatever was accessed last. But much of that is not accessed again, and copies cost both devices
//!   time: near equilibrium a move costs more than it can bring. Here an extent moves only where what is sure of its
//!   requests (both of the last two periods had them) will have saved guests more time within `payback` than the copy takes; or
//!   within as long as the device that it leaves has been behind or at the floor, for what has been so for long will hardly be
//!   otherwise soon.
//! - N devices: each has its own P_d, clamped to `floor` and renormalised (DESIGN section 7), and its own tokens: those of a device
//!   that shall lose bound what leaves it. Otherwise all that several disks shall gain comes from the one of which copies are
//!   cheapest. All that gain do so in the same tick.
//! - A flush that a guest asked for is a request of which the response time counts. The paper's ext2 sent none; today's file
//!   systems wait for one at each fsync, and a disk that takes writes into its cache in no time pays for them there.
//! - The paper starts with any P, and says that it does not matter. Here the first P follows from probes, as 1 / R_d²; until these
//!   have answered, everything goes to the SSDs.
//! - The paper allocates at least `floor` on each device so that its speed can be measured, at the guests' cost: with one
//!   client on an SSD, every extent that goes to the disk is slow for ever. Here a device at the floor gets no
//!   allocations; a probe, as large as the guests' requests are on average and as often a read, measures it once in a
//!   period in which the device had no guest.
//! - "Cold migration in idle time" has no water marks in the paper: `free-low` and `free-high` are ours. While guests
//!   leave no idle time, one extent moves in each tick, or as many as hot extents wait for its place.

mod allocation;
mod balance;
mod constants;
mod migration;
mod response;
mod saved;
mod traffic;

pub use constants::Constants;

use crate::mean_request::MeanRequest;
use crate::{
    BadSetting, Completion, DeviceView, Direction, Heat, Lru, Move, Occasion, Origin, Piece, Placement, Plan,
    Policy, Settings, View,
};
use balance::{Against, Balance, equilibrium, renormalise};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};
use response::Asked;
use traffic::{Requests, Traffic};

/// Allocation and migration towards Wardrop equilibrium.
pub struct Wardrop {
    settings: Constants,
    devices: Vec<Balance>,
    /// Extents accessed last: only these count as hot.
    hot: Lru<ExtentId, Requests>,
    heat: Heat,
    guests: MeanRequest,
    traffic: Traffic,
    /// Whether a period has had load: before, P follows the probes.
    loaded: bool,
    period_ends: Nanos,
    next_tick: Nanos,
    /// Whether what guests see now counts for R and Q.
    measuring: bool,
    /// For how long it has counted in this period, up to the last tick.
    measured: Nanos,
    last_tick: Nanos,
    /// Whether tokens were spent in this period.
    spent: bool,
}

/// Ticks in a period: how often migration gets its part of the tokens.
const TICKS: u64 = 10;
/// Weight of a probe in the average: there is one in a period, not hundreds.
const PROBE_WEIGHT: f64 = 0.5;

impl Wardrop {
    /// With these settings, which `wardrop/constants.rs` lists with their defaults.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Wardrop, BadSetting> {
        let constants = Constants::read(settings, devices.len())?;
        // Until something is measured, the SSDs are taken to be faster.
        let fast = devices.iter().any(|d| d.class == DeviceClass::Ssd);
        let balance = |device: &DeviceView| {
            Balance::new(if fast && device.class == DeviceClass::Hdd { constants.floor } else { 1.0 })
        };
        let mut balances: Vec<Balance> = devices.iter().map(balance).collect();
        renormalise(&mut balances, constants.floor, |d| &mut d.target);
        balances.iter_mut().for_each(|b| b.share = b.target);
        Ok(Wardrop {
            settings: constants,
            devices: balances,
            hot: Lru::default(),
            heat: Heat::new(0),
            guests: MeanRequest::default(),
            traffic: Traffic::default(),
            loaded: false,
            period_ends: Nanos::ZERO,
            next_tick: Nanos::ZERO,
            measuring: true,
            measured: Nanos::ZERO,
            last_tick: Nanos::ZERO,
            spent: false,
        })
    }

    /// Equation (1), at the end of a period.
    fn end_period(&mut self) {
        self.end_traffic();
        let all = self.asked();
        let load = self.load(&all);
        for device in &mut self.devices {
            device.tokens = 0.0;
        }
        (self.measuring, self.spent) = (true, false);
        let measured = std::mem::take(&mut self.measured);
        if all.requests() == 0.0 {
            return;
        }
        let constants = self.settings;
        let floor = constants.floor;
        let grown = self.traffic.has_grown(load);
        self.traffic.remember(load);
        let go_on = std::mem::replace(&mut self.loaded, true);
        let reads = self.guests.read_share;
        for device in &mut self.devices {
            device.in_flight = device.asked.ms() / measured.as_millis_f64();
            device.end_period(&all, reads, grown, &constants);
        }
        let mean = |response: fn(&Balance, f64) -> Option<f64>| {
            let known = self.devices.iter().filter_map(|d| response(d, reads).map(|r| (r, d.share)));
            known.clone().map(|(r, q)| r * q).sum::<f64>() / known.map(|(_, q)| q).sum::<f64>().max(1e-9)
        };
        let (mean_ms, last_mean_ms) = (mean(Balance::response_ms), mean(Balance::last_ms));
        for device in &mut self.devices {
            // A device of unknown speed neither gains nor loses until a probe has told.
            let against = |response_ms: Option<f64>, mean_ms: f64| Against {
                response_ms: response_ms.unwrap_or(mean_ms),
                mean_ms,
            };
            let average = against(device.response_ms(reads), mean_ms);
            let last = against(device.last_ms(reads), last_mean_ms);
            if go_on {
                device.count_behind(floor);
            }
            device.aim(average, last, go_on, &constants);
        }
        if grown && !constants.as_in_the_paper() {
            self.guess(load.0);
        }
        renormalise(&mut self.devices, floor, |d| &mut d.target);
        renormalise(&mut self.devices, floor, |d| &mut d.next);
        for device in &mut self.devices {
            // A device at the floor may be below it by chance: that is no reason to move anything there.
            if device.next < device.share || device.next > floor {
                device.take_tokens(&constants);
            }
        }
    }

    /// What guests have asked of all devices in this period.
    fn asked(&self) -> Asked {
        self.devices.iter().fold(Asked::default(), |all, d| all.and(&d.asked))
    }

    /// How many requests of guests have been in flight in this period, on average, and what they took in milliseconds.
    fn load(&self, all: &Asked) -> (f64, f64) {
        (all.ms() / self.measured.as_millis_f64().max(1e-9), all.ms() / all.requests().max(1.0))
    }

    /// Whether this period need not be waited for: a quarter of it shows another load.
    fn ends_early(&self) -> bool {
        let Constants { period, .. } = self.settings;
        !self.settings.as_in_the_paper()
            && self.measured >= period / 4
            && self.traffic.has_grown(self.load(&self.asked()))
    }

    /// P under a load that has just grown.
    fn guess(&mut self, in_flight: f64) {
        let reads = self.guests.read_share;
        let service = |d: &Balance| d.service_ms(reads);
        let known: Option<Vec<f64>> = self.devices.iter().map(service).collect();
        let Some(service_ms) = known else { return };
        for (device, share) in self.devices.iter_mut().zip(equilibrium(&service_ms, in_flight)) {
            device.expect(share);
        }
    }

    /// Begins to count anew what guests do.
    fn end_traffic(&mut self) {
        let mean_bytes = self.traffic.requests.mean_bytes();
        self.traffic.requests.turn(mean_bytes);
        let extents = &mut self.traffic.extents;
        *extents = 0;
        self.hot.change_values(|_, requests| {
            requests.turn(mean_bytes);
            *extents += u32::from(requests.last > 0.0);
        });
    }

    /// What a hot extent takes of the tokens when it moves.
    fn cost_of(&self, requests: Requests) -> f64 {
        match self.settings.as_in_the_paper() {
            true => 1.0,
            false => self.settings.beta * requests.likely() / self.traffic.requests.last.max(1.0),
        }
    }

    /// The first P, once probes have told how fast each device is. A device far slower than another starts at the floor.
    fn begin(&mut self) {
        let reads = self.guests.read_share;
        if self.loaded
            || self.devices.iter().any(|d| d.response_ms(reads).is_none() || d.asked.requests() > 0.0)
        {
            return;
        }
        let speed = |d: &Balance| d.response_ms(reads).map_or(0.0, |r| r.max(1e-6).powi(-2));
        let sum: f64 = self.devices.iter().map(speed).sum();
        for device in &mut self.devices {
            device.target = (speed(device) / sum).max(self.settings.floor);
            device.share = device.target;
        }
        renormalise(&mut self.devices, self.settings.floor, |d| &mut d.target);
    }

    /// What may still come to a device in this period, or, below 0, leave it.
    fn tokens(&self, device: DeviceId) -> f64 {
        self.devices[device.index()].tokens
    }

    /// Whether a device shall lose load.
    fn shall_lose(&self, device: DeviceId) -> bool {
        self.tokens(device) < 0.0
    }

    /// The device with the most tokens that has room.
    fn shall_gain(&self, view: &View) -> Option<DeviceId> {
        let gaining = view.with_room().map(|d| d.id).filter(|&device| self.tokens(device) > 0.0);
        gaining.max_by(|&a, &b| self.tokens(a).total_cmp(&self.tokens(b)))
    }

    /// An access for which a device is asked.
    fn learn(&mut self, piece: &Piece, view: &View) {
        self.heat.warm(piece.extent);
        let len = view.block_size * u64::from(piece.blocks);
        self.traffic.requests.add(len);
        if self.settings.hot > 0 {
            self.hot.touch_value(piece.extent, self.settings.hot).add(len);
        }
    }

    /// Takes tokens of a device, whether load comes there or leaves it; what is not there cannot be taken.
    fn spend(&mut self, device: DeviceId, cost: f64) {
        let tokens = &mut self.devices[device.index()].tokens;
        *tokens -= cost.min(tokens.abs()).copysign(*tokens);
        self.spent = true;
    }

    /// One request to each device that no guest has asked anything in this period, while guests ask others.
    fn probe(&mut self, view: &View, moves: &mut Vec<Move>) {
        let loaded = self.devices.iter().any(|d| d.asked.requests() > 0.0);
        for device in view.devices {
            let balance = &self.devices[device.id.index()];
            if balance.response_ms(self.guests.read_share).is_none() {
                // Nothing is known of the guests either: one of each kind, on every device alike.
                for direction in [Direction::Write, Direction::Read] {
                    moves.push(Move::Probe { device: device.id, direction, len: view.block_size });
                }
            } else if balance.asked.requests() == 0.0 && loaded {
                let (direction, len) = self.guests.next_probe();
                moves.push(Move::Probe { device: device.id, direction, len });
            }
        }
    }
}

impl Policy for Wardrop {
    fn name(&self) -> &'static str {
        "wardrop"
    }

    fn settings(&self) -> String {
        self.settings.to_string()
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        if let Occasion::ReadHit(piece) = occasion {
            // No device has to do with it.
            self.heat.warm(piece.extent);
            return Placement::KEEP;
        }
        if let Some(piece) = occasion.piece() {
            self.learn(piece, view);
        }
        match occasion {
            Occasion::New { .. } => Placement::on(self.place_new(view)),
            Occasion::Write(piece) => self.place_write(piece, view),
            Occasion::ReadHit(_) | Occasion::ReadMiss(_) => Placement::KEEP,
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let paper = self.settings.as_in_the_paper();
        let device = &mut self.devices[completion.device.index()];
        let sample = completion.latency.as_millis_f64();
        match completion.origin {
            Origin::Guest => {
                if self.measuring {
                    device.asked.count(completion.direction, completion.len, sample);
                }
                self.guests.learn(completion.direction, completion.len);
                if paper {
                    let average = device.response_ms.get_or_insert(sample);
                    *average += self.settings.weight * (sample - *average);
                }
            }
            Origin::Probe => {
                let kind = usize::from(completion.direction != Direction::Read);
                let average = device.probed_ms[kind].get_or_insert(sample);
                *average += PROBE_WEIGHT * (sample - *average);
            }
            Origin::Background => device.learn_copying(completion.direction, completion.len, sample),
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let moves = &mut plan.moves;
        if self.measuring {
            self.measured += view.now - self.last_tick;
        }
        self.last_tick = view.now;
        if view.now >= self.period_ends || self.ends_early() {
            self.probe(view, moves);
            self.end_period();
            self.period_ends = view.now + self.settings.period;
        } else if view.now < self.migration_ends() {
            self.migrate_hot(view, moves);
            self.measuring = !self.spent || self.settings.as_in_the_paper();
        } else {
            self.measuring = true;
        }
        self.begin();
        self.migrate_cold(view, moves);
        self.next_tick = view.now + self.settings.period / TICKS;
        self.next_tick
    }

    fn memory(&self) -> usize {
        self.hot.memory() + self.heat.memory()
    }

    fn save(&self, _view: &View) -> Vec<u8> {
        self.saved()
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        self.restore_saved(state, view);
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let each = view.devices.iter().map(|d| {
            let b = &self.devices[d.id.index()];
            let response =
                b.response_ms(self.guests.read_share).map_or("unknown".to_owned(), |r| format!("{r:.2} ms"));
            format!(
                "{} response time {response}, share {:.1} %, target {:.1} %, {:.0} token(s)",
                d.id,
                b.share * 100.0,
                b.target * 100.0,
                b.tokens
            )
        });
        let devices = each.collect::<Vec<_>>().join("; ");
        let hot = if self.hot.contains(extent) { "hot" } else { "not hot" };
        let next = match view.homes.home(extent) {
            None => {
                "the next write allocates it: on a device with tokens, else by the target shares".to_owned()
            }
            Some(home) if self.shall_lose(home) && self.hot.contains(extent) => {
                format!("{home} shall lose load, so it may migrate as long as another device has tokens")
            }
            Some(home) if self.devices[home.index()].shedding => {
                format!("{home} is filling up, so it may migrate once it is cold")
            }
            Some(home) if self.shall_lose(home) => {
                format!("it stays: {home} shall lose load, but only hot extents move for that")
            }
            Some(home) => format!("it stays: {home} sheds no load"),
        };
        format!("{devices}. The extent is {hot} (heat {}); {next}", self.heat.level(extent))
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let b = &self.devices[device.index()];
        let known = b.response_ms(self.guests.read_share).map(|response| ("response_ms", response));
        let shares = [("share", b.share), ("target_share", b.target), ("tokens", b.tokens)];
        known.into_iter().chain(shares).collect()
    }
}
