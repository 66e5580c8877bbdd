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
//! Where this differs from the paper, and why:
//! - N devices: each has its own P_d, clamped to `floor` and renormalised (DESIGN section 7).
//! - α = 10/ms leaves [0, 1] for differences beyond 0.1 ms, so that the paper's P jumps between the bounds while R_d
//!   differs at all. Here the change within one period is limited to `step` times |R̄ − R_d| / R̄, at most `step`: large
//!   steps far from equilibrium, small ones near it. `step=1` sets no limit, as in the paper.
//! - P goes on from the last P where that is ahead of Q in the same direction: the shares of requests follow the shares
//!   of allocations only as data is replaced, and P must not wait for them. Not with `step=1`.
//! - A flush is a request of which the response time counts. The paper's ext2 sent none; today's file systems wait for
//!   one at each fsync, and a disk that takes writes into its cache in no time pays for them there.
//! - The paper starts with any P, and says that it does not matter. Here the first P follows from probes, as 1 / R_d²; until these
//!   have answered, everything goes to the SSDs.
//! - The paper allocates at least `floor` on each device so that its speed can be measured, at the guests' cost: with one
//!   client on an SSD, every extent that goes to the disk is slow for ever. Here a device at the floor gets no
//!   allocations; a probe, as large as the guests' requests are on average and as often a read, measures it once in a
//!   period in which the device had no guest.
//! - "Cold migration in idle time" has no water marks in the paper: `free-low` and `free-high` are ours. While guests
//!   leave no idle time, one extent moves in each tick.

use crate::{
    Access, BadSetting, Completion, DeviceView, Direction, Heat, Lru, Move, Origin, Placement, Policy,
    Settings, View,
};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos};

/// Allocation and migration towards Wardrop equilibrium.
pub struct Wardrop {
    settings: Constants,
    devices: Vec<Balance>,
    /// Extents accessed last: only these count as hot.
    hot: Lru<ExtentId>,
    heat: Heat,
    guests: MeanRequest,
    /// Whether a period has had load: before, P follows the probes.
    loaded: bool,
    period_ends: Nanos,
    next_tick: Nanos,
    allocated_in_tick: bool,
}

/// The constants of section III-B, and ours.
#[derive(Clone, Copy, Debug)]
struct Constants {
    /// Length of the sample period.
    period: Nanos,
    /// α, per millisecond.
    alpha: f64,
    /// β, in extents.
    beta: f64,
    /// Weight of one completed request in the average response time.
    weight: f64,
    /// Least share of a device.
    floor: f64,
    /// Largest change of a share within a period; from 1 on there is no limit.
    step: f64,
    /// Length of the list of hot extents.
    hot: usize,
    /// Below this share of free slots a device sheds cold extents …
    free_low: f64,
    /// … until it has this share.
    free_high: f64,
}

/// What is known of one device.
#[derive(Clone, Copy, Debug)]
struct Balance {
    /// R_d in milliseconds, exponentially averaged over guests' requests; unknown while there are none.
    response_ms: Option<f64>,
    /// What probes say: of reads, of writes.
    probed_ms: [Option<f64>; 2],
    /// Requests of guests in this period.
    requests: u64,
    /// Q_d of the last period with load.
    share: f64,
    /// P_d.
    target: f64,
    /// Extents that may still come here in this period.
    tokens: u32,
    /// What is due to it of the allocations that follow P.
    credit: f64,
    /// Whether it sheds cold extents.
    shedding: bool,
}

/// Ticks in a period: how often migration gets its part of the tokens.
const TICKS: u64 = 10;
/// Weight of a probe in the average: there is one in a period, not hundreds.
const PROBE_WEIGHT: f64 = 0.5;
/// Cold extents that leave a filling device in one tick, at most, while no guest uses either device.
const COLD_BATCH: usize = 8;

impl Balance {
    /// R_d in milliseconds: of guests, or else of probes, as guests mix reads and writes.
    fn response_ms(&self, read_share: f64) -> Option<f64> {
        self.response_ms.or(match self.probed_ms {
            [Some(read), Some(write)] => Some(read_share * read + (1.0 - read_share) * write),
            [one, other] => one.or(other),
        })
    }
}

impl Wardrop {
    /// Settings: `period` (2s), `alpha` (10 per ms), `beta` (100), `weight` (0.01), `floor` (0.01), `step` (0.25),
    /// `hot` (100), `free-low` (0.05), `free-high` (0.1).
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Wardrop, BadSetting> {
        let constants = Constants {
            period: settings.take("period", Nanos::from_secs(2), "a time such as 2s")?,
            alpha: settings.take_within("alpha", 10.0, 0.0, 1e6)?,
            beta: settings.take_within("beta", 100.0, 0.0, 1e6)?,
            weight: settings.take_within("weight", 0.01, 1e-6, 1.0)?,
            floor: settings.take_within("floor", 0.01, 1e-4, 0.5)?,
            step: settings.take_within("step", 0.25, 0.0, 1.0)?,
            hot: settings.take("hot", 100, "a number of extents such as 100")?,
            free_low: settings.take_within("free-low", 0.05, 0.0, 1.0)?,
            free_high: settings.take_within("free-high", 0.1, 0.0, 1.0)?,
        };
        if constants.period < Nanos::from_millis(10) {
            return Err(BadSetting::new("setting period of policy wardrop: use at least 10ms"));
        }
        if constants.floor * devices.len() as f64 > 1.0 {
            return Err(BadSetting::new(format!(
                "setting floor={} of policy wardrop: {} devices cannot all have that share; use less",
                constants.floor,
                devices.len()
            )));
        }
        // Until something is measured, the SSDs are taken to be faster.
        let fast = devices.iter().any(|d| d.class == DeviceClass::Ssd);
        let balance = |device: &DeviceView| Balance {
            response_ms: None,
            probed_ms: [None; 2],
            requests: 0,
            share: 0.0,
            target: if fast && device.class == DeviceClass::Hdd { constants.floor } else { 1.0 },
            tokens: 0,
            credit: 0.0,
            shedding: false,
        };
        let mut balances: Vec<Balance> = devices.iter().map(balance).collect();
        renormalise(&mut balances, constants.floor);
        balances.iter_mut().for_each(|b| b.share = b.target);
        Ok(Wardrop {
            settings: constants,
            devices: balances,
            hot: Lru::default(),
            heat: Heat::new(0),
            guests: MeanRequest::default(),
            loaded: false,
            period_ends: Nanos::ZERO,
            next_tick: Nanos::ZERO,
            allocated_in_tick: false,
        })
    }

    /// Equation (1), at the end of a period.
    fn end_period(&mut self) {
        let total: u64 = self.devices.iter().map(|d| d.requests).sum();
        for device in &mut self.devices {
            device.tokens = 0;
        }
        if total == 0 {
            return;
        }
        let Constants { alpha, beta, floor, step, .. } = self.settings;
        let go_on = std::mem::replace(&mut self.loaded, true) && step < 1.0;
        for device in &mut self.devices {
            device.share = device.requests as f64 / total as f64;
            if device.requests == 0 {
                // What guests saw before is no news; the probes are.
                device.response_ms = None;
            }
            device.requests = 0;
        }
        let reads = self.guests.read_share;
        let known = self.devices.iter().filter_map(|d| d.response_ms(reads).map(|r| (r, d.share)));
        let mean_ms: f64 =
            known.clone().map(|(r, q)| r * q).sum::<f64>() / known.map(|(_, q)| q).sum::<f64>().max(1e-9);
        for device in &mut self.devices {
            // A device of unknown speed neither gains nor loses until a probe has told.
            let response_ms = device.response_ms(reads).unwrap_or(mean_ms);
            let share = device.share.max(floor);
            let change = alpha * (mean_ms - response_ms) * share;
            let base = match go_on {
                false => share,
                true if change > 0.0 => share.max(device.target),
                true => share.min(device.target),
            };
            let limit = match step {
                1.0.. => f64::INFINITY,
                _ => step * ((mean_ms - response_ms).abs() / mean_ms.max(1e-9)).min(1.0),
            };
            device.target = (base + change.clamp(-limit, limit)).clamp(floor, 1.0);
        }
        renormalise(&mut self.devices, floor);
        for device in &mut self.devices {
            let gain = device.target - device.share;
            // A device at the floor may be below it by chance: that is no reason to move anything there.
            if gain > 0.0 && device.target > floor {
                device.tokens = (gain * beta).ceil() as u32;
            }
        }
    }

    /// The first P, once probes have told how fast each device is. A device far slower than another starts at the floor.
    fn begin(&mut self) {
        let reads = self.guests.read_share;
        if self.loaded || self.devices.iter().any(|d| d.response_ms(reads).is_none() || d.requests > 0) {
            return;
        }
        let speed = |d: &Balance| d.response_ms(reads).map_or(0.0, |r| r.max(1e-6).powi(-2));
        let sum: f64 = self.devices.iter().map(speed).sum();
        for device in &mut self.devices {
            device.target = (speed(device) / sum).max(self.settings.floor);
            device.share = device.target;
        }
        renormalise(&mut self.devices, self.settings.floor);
    }

    /// The devices that shall lose load.
    fn shall_lose(&self, device: DeviceId) -> bool {
        let balance = &self.devices[device.index()];
        balance.target < balance.share
    }

    /// The device with the most tokens that has room.
    fn shall_gain(&self, view: &View) -> Option<DeviceId> {
        let with_tokens = view.with_room().filter(|d| self.devices[d.id.index()].tokens > 0);
        with_tokens.max_by_key(|d| self.devices[d.id.index()].tokens).map(|d| d.id)
    }

    /// The device that is owed most by the distribution P, among those with room and above the floor.
    fn follow_target(&mut self, view: &View) -> Option<DeviceId> {
        let floor = self.settings.floor;
        let open = |d: &&DeviceView| self.devices[d.id.index()].target > floor;
        let sum: f64 = view.with_room().filter(open).map(|d| self.devices[d.id.index()].target).sum();
        let mut best: Option<DeviceId> = None;
        for device in view.with_room() {
            let target = self.devices[device.id.index()].target;
            if target <= floor {
                continue;
            }
            self.devices[device.id.index()].credit += target / sum;
            let credit = self.devices[device.id.index()].credit;
            if best.is_none_or(|b| credit > self.devices[b.index()].credit) {
                best = Some(device.id);
            }
        }
        let best = best?;
        self.devices[best.index()].credit -= 1.0;
        Some(best)
    }

    /// Hot extents from losers to gainers, with this tick's part of the tokens that allocation has left.
    fn migrate_hot(&mut self, view: &View, moves: &mut Vec<Move>) {
        let ticks_left =
            ((self.period_ends.saturating_sub(view.now)).0 * TICKS / self.settings.period.0).max(1);
        let Some(target) = self.shall_gain(view) else { return };
        let due = u64::from(self.devices[target.index()].tokens).div_ceil(ticks_left);
        let lose =
            |e: &ExtentId| view.homes.home(*e).is_some_and(|home| home != target && self.shall_lose(home));
        let chosen: Vec<ExtentId> = self.hot.newest_first().filter(lose).take(due as usize).collect();
        for extent in chosen {
            // Once moved it must prove itself again, or it would move back with the next tokens.
            self.hot.remove(extent);
            moves.push(Move::Migrate { extent, target });
            self.devices[target.index()].tokens -= 1;
        }
    }

    /// Cold extents off devices that fill up, to the one with the largest share of free slots.
    fn migrate_cold(&mut self, view: &View, moves: &mut Vec<Move>) {
        let Constants { free_low, free_high, .. } = self.settings;
        let free = |d: &DeviceView| f64::from(d.free) / f64::from(d.slots.max(1));
        for device in view.devices {
            let shedding = &mut self.devices[device.id.index()].shedding;
            *shedding = free(device) < if *shedding { free_high } else { free_low };
            let roomiest = view.devices.iter().max_by(|a, b| free(a).total_cmp(&free(b)));
            let Some(target) = roomiest.filter(|t| t.id != device.id && free(t) > free_high) else {
                continue;
            };
            if !*shedding {
                continue;
            }
            // Under a load that never pauses it must go on all the same, or hot extents would find no room.
            let batch = if device.in_flight + target.in_flight == 0 { COLD_BATCH } else { 1 };
            let (hot, homes) = (&self.hot, view.homes);
            let wanted = |e: ExtentId| homes.home(e) == Some(device.id) && !hot.contains(e);
            let found = |extent| moves.push(Move::Migrate { extent, target: target.id });
            self.heat.find_cold(homes.extents(), 4096, batch, wanted, found);
        }
    }

    /// One request to each device that no guest has asked anything in this period, while guests ask others.
    fn probe(&mut self, view: &View, moves: &mut Vec<Move>) {
        let loaded = self.devices.iter().any(|d| d.requests > 0);
        for device in view.devices {
            let balance = &self.devices[device.id.index()];
            if balance.response_ms(self.guests.read_share).is_none() {
                // Nothing is known of the guests either: one of each kind, on every device alike.
                for direction in [Direction::Write, Direction::Read] {
                    moves.push(Move::Probe { device: device.id, direction, len: view.block_size });
                }
            } else if balance.requests == 0 && loaded {
                let (direction, len) = self.guests.next_probe();
                moves.push(Move::Probe { device: device.id, direction, len });
            }
        }
    }
}

/// Makes the targets add up to 1 with none below the floor.
fn renormalise(devices: &mut [Balance], floor: f64) {
    let spare: f64 = devices.iter().map(|d| d.target - floor).sum();
    let (room, even) = (1.0 - floor * devices.len() as f64, 1.0 / devices.len() as f64);
    for device in devices.iter_mut() {
        let above = if spare > 0.0 { (device.target - floor) / spare } else { even };
        device.target = floor + above * room;
    }
}

impl Policy for Wardrop {
    fn name(&self) -> &'static str {
        "wardrop"
    }

    fn settings(&self) -> String {
        let Constants { period, alpha, beta, weight, floor, step, hot, free_low, free_high } = self.settings;
        format!(
            "period={}ms,alpha={alpha},beta={beta},weight={weight},floor={floor},step={step},hot={hot},\
             free-low={free_low},free-high={free_high}",
            period.0 / 1_000_000
        )
    }

    fn place_new(&mut self, _extent: ExtentId, view: &View) -> DeviceId {
        self.allocated_in_tick = true;
        if let Some(device) = self.shall_gain(view) {
            self.devices[device.index()].tokens -= 1;
            return device;
        }
        let fallback = view.devices[0].id;
        self.follow_target(view).or_else(|| self.next_choice(view)).unwrap_or(fallback)
    }

    fn place_write(&mut self, write: &Access, view: &View) -> Placement {
        let home = view.homes.home(write.extent);
        let Some(target) = self.shall_gain(view) else { return Placement::Home };
        if !write.cached || home.is_none_or(|home| home == target || !self.shall_lose(home)) {
            return Placement::Home;
        }
        self.devices[target.index()].tokens -= 1;
        Placement::NewHome(target)
    }

    fn on_access(&mut self, access: &Access, _view: &View) {
        self.heat.warm(access.extent);
        if self.settings.hot > 0 {
            self.hot.touch(access.extent);
            if self.hot.len() > self.settings.hot {
                self.hot.pop_oldest();
            }
        }
    }

    fn on_complete(&mut self, completion: &Completion) {
        let reads = self.guests.read_share;
        let device = &mut self.devices[completion.device.index()];
        let sample = completion.latency.as_millis_f64();
        let (average, weight) = match completion.origin {
            Origin::Guest => {
                let start = device.response_ms(reads).unwrap_or(sample);
                (device.response_ms.get_or_insert(start), self.settings.weight)
            }
            Origin::Probe => {
                let kind = usize::from(completion.direction != Direction::Read);
                (device.probed_ms[kind].get_or_insert(sample), PROBE_WEIGHT)
            }
            Origin::Background => return,
        };
        *average += weight * (sample - *average);
        if completion.origin == Origin::Guest {
            device.requests += 1;
            self.guests.learn(completion.direction, completion.len);
        }
    }

    fn plan(&mut self, view: &View, moves: &mut Vec<Move>) -> Nanos {
        if view.now >= self.period_ends {
            self.probe(view, moves);
            self.end_period();
            self.period_ends = view.now + self.settings.period;
        } else if !self.allocated_in_tick {
            self.migrate_hot(view, moves);
        }
        self.begin();
        self.migrate_cold(view, moves);
        self.allocated_in_tick = false;
        self.next_tick = view.now + self.settings.period / TICKS;
        self.next_tick
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let each = view.devices.iter().map(|d| {
            let b = &self.devices[d.id.index()];
            let response =
                b.response_ms(self.guests.read_share).map_or("unknown".to_owned(), |r| format!("{r:.2} ms"));
            format!(
                "{} response time {response}, share {:.1} %, target {:.1} %, {} token(s)",
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
            Some(home) => format!("it stays: {home} sheds no load"),
        };
        format!("{devices}. The extent is {hot} (heat {}); {next}", self.heat.level(extent))
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let b = &self.devices[device.index()];
        let known = b.response_ms(self.guests.read_share).map(|response| ("response_ms", response));
        let shares = [("share", b.share), ("target_share", b.target), ("tokens", f64::from(b.tokens))];
        known.into_iter().chain(shares).collect()
    }
}

/// What guests ask for on average, so that a probe asks the same.
#[derive(Clone, Copy, Debug)]
struct MeanRequest {
    len: f64,
    read_share: f64,
    /// Reads owed to probes.
    reads_due: f64,
}

impl Default for MeanRequest {
    fn default() -> MeanRequest {
        MeanRequest { len: 4096.0, read_share: 0.5, reads_due: 0.0 }
    }
}

impl MeanRequest {
    fn learn(&mut self, direction: Direction, len: Bytes) {
        const WEIGHT: f64 = 0.01;
        if direction == Direction::Flush {
            return;
        }
        self.len += WEIGHT * (len.0 as f64 - self.len);
        self.read_share += WEIGHT * (f64::from(direction == Direction::Read) - self.read_share);
    }

    fn next_probe(&mut self) -> (Direction, Bytes) {
        let len = Bytes(self.len as u64).align_up(Bytes(4096));
        self.reads_due += self.read_share;
        if self.reads_due < 1.0 {
            return (Direction::Write, len);
        }
        self.reads_due -= 1.0;
        (Direction::Read, len)
    }
}
