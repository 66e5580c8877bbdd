//! `wardrop`: balances devices until their response times are equal.
//!
//! Wu and Reddy, "A Novel Approach to Manage A Hybrid Storage System", section II, in the order of the paper.
//! The timer routine computes equation (1) every sample period of 2 s. R_d is the average response time of
//! device d, and Q_d its share of the requests:
//!
//! ```text
//! R̄ = Σ R_d Q_d        P_d = Q_d + α (R̄ − R_d) Q_d        tokens of d = |P_d − Q_d| β        (1)
//! ```
//!
//! | what the paper says | where |
//! |---|---|
//! | "the average response times of each underlying device …, as well as the workload distribution on the devices" | `completed` |
//! | "average response time = 0.99 previous average + 0.01 current sample" | `device.rs` |
//! | "a timer routine" calculates, "in every sample period (2 seconds)", "the number of load-balancing tokens and the migration direction as specified in equation (1)" | `plan`, `equation_1` |
//! | "the allocations are lower bounded for each device (i.e., they can't be zero)" | `bound_targets` |
//! | "we define an initial value of the distribution"; "initially the data is allocated on the faster devices, SSD" | `new` |
//! | "the new data will be allocated to lighter-loaded device and consume one token if there is any" | `place_new` |
//! | "if there is no token available, the new data will be allocated according to the distribution P_s/P_h" | `next_by_target` |
//! | third, "on writes, when writes are targeted to the heavier-loaded device and the memory cache has all the blocks of the extent" | `place_write` |
//! | second, "hot data is migrated"; "only … when the load-balancing tokens are not completely consumed by the allocation process"; "only the blocks in the [LRU] list … used in the write-through cache" | `migrate_hot` |
//! | "tokens that have not been consumed in one sample period will not roll over" | `equation_1`, `plan` |
//! | first, "from devices that are filling up to the devices that still have unfilled capacity (and when there is a choice …, to the lighter-loaded device)" | `migrate_cold` |
//! | the engine: "migration requests lower priority"; "idle times" | `copier/budget.rs` |
//! | the engine: an extent "that was previously allocated and 'trimmed'" is new: it has no home | `request/zero.rs` |
//! | the engine: a "cache of 100 recently read extents", read whole on a miss (`readahead=first` of the volume) | `request/cache.rs` |
//! | the engine: "migration requires only the last operation", for memory has the extent | `moves/together.rs` |
//!
//! Deviations that are necessary:
//! - N devices: each device has its own P and tokens. A migration takes one token of the gaining and one of
//!   the losing device. A new extent goes to the gaining device with most tokens. With two devices the rule
//!   equals equation (1). Tokens are rounded to whole numbers.
//! - α = 10 per ms takes P out of [0, 1] once response times differ by more than 0.1 ms. P is kept at or
//!   above the lower bound, `floor`, for which the paper has no number (here 1 %). The excess over the bound
//!   is scaled to a sum of 1.
//! - The paper has no number for "filling up": below `free-low` of free slots a device sheds cold extents
//!   until `free-high` is free.
//!
//! The paper leaves open whether the weight of 0.01 applies to a request or to a period's mean: here to a
//! request, or with `average=period` to a period's mean. Flushes do not count: the paper's ext2 sent none.
//! `no-migration` and `allocation-only` are ablations.

mod device;
mod settings;

use crate::{
    BadSetting, Completion, DeviceView, Direction, Move, Occasion, Origin, Piece, Placement, Plan, Policy,
    Settings, View,
};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};
use device::Device;
use settings::{Average, Constants, Moves};

/// The policy: allocation and migration towards Wardrop equilibrium.
pub struct Wardrop {
    constants: Constants,
    devices: Vec<Device>,
    /// Position of the search for cold extents.
    hand: u32,
}

/// Maximum of cold extents to leave a device in one period, and of extents examined in the search: about a
/// millisecond.
const COLD_BATCH: usize = 256;
const COLD_SEARCHED: u32 = 1 << 16;

impl Wardrop {
    /// Returns the policy with the given settings; `wardrop/settings.rs` lists their defaults. Fails on a bad
    /// setting.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Wardrop, BadSetting> {
        let constants = Constants::read(settings, devices.len())?;
        let has_ssd = devices.iter().any(|d| d.class == DeviceClass::Ssd);
        let target = |d: &DeviceView| f64::from(!has_ssd || d.class == DeviceClass::Ssd);
        let device = |d: &DeviceView| Device { target: target(d), ..Device::default() };
        let mut wardrop = Wardrop { constants, devices: devices.iter().map(device).collect(), hand: 0 };
        wardrop.bound_targets();
        wardrop.devices.iter_mut().for_each(|d| d.share = d.target);
        Ok(wardrop)
    }

    /// Computes R̄, P, tokens and direction for the next period. Tokens of the last period are dropped. A
    /// period without requests leaves P unchanged.
    fn equation_1(&mut self) {
        let Constants { alpha, beta, average, weight, .. } = self.constants;
        self.devices.iter_mut().for_each(|d| d.tokens = 0);
        let all: u64 = self.devices.iter().map(|d| d.requests).sum();
        if all == 0 {
            return;
        }
        for device in &mut self.devices {
            device.share = device.requests as f64 / all as f64;
            if average == Average::Period && device.requests > 0 {
                device.average(device.requests_ms / device.requests as f64, weight);
            }
            (device.requests, device.requests_ms) = (0, 0.0);
        }
        let mean_ms: f64 = self.devices.iter().map(|d| d.known_ms() * d.share).sum();
        for device in &mut self.devices {
            device.target = device.share + alpha * (mean_ms - device.known_ms()) * device.share;
        }
        self.bound_targets();
        for device in &mut self.devices {
            device.tokens = ((device.target - device.share) * beta).round() as i64;
        }
    }

    /// Makes P a distribution with at least the floor for each device.
    fn bound_targets(&mut self) {
        let Constants { floor, .. } = self.constants;
        let (count, above) = (self.devices.len() as f64, |d: &Device| (d.target - floor).max(0.0));
        let sum: f64 = self.devices.iter().map(above).sum();
        let spare = 1.0 - floor * count;
        for device in &mut self.devices {
            device.target = floor + if sum > 0.0 { above(device) * spare / sum } else { spare / count };
        }
    }

    /// Returns the device of a new extent: the device that shall gain most, at the price of a token, or by P
    /// without tokens. `None` if all devices are full.
    fn place_new(&mut self, view: &View) -> Option<DeviceId> {
        let gains = self.lighter_loaded(view.with_room().map(|d| d.id));
        gains.inspect(|d| self.devices[d.index()].tokens -= 1).or_else(|| self.next_by_target(view))
    }

    /// Returns the device that shall gain most, of `devices`.
    fn lighter_loaded(&self, devices: impl Iterator<Item = DeviceId>) -> Option<DeviceId> {
        let tokens = |d: &DeviceId| self.devices[d.index()].tokens;
        devices.filter(|d| tokens(d) > 0).max_by_key(tokens)
    }

    /// Returns the device with room to which P owes most new extents, the present extent included.
    fn next_by_target(&mut self, view: &View) -> Option<DeviceId> {
        let sum: f64 = view.with_room().map(|d| self.devices[d.id.index()].target).sum();
        for device in view.with_room() {
            let device = &mut self.devices[device.id.index()];
            device.owed += device.target / sum;
        }
        let owed = |d: &DeviceId| self.devices[d.index()].owed;
        let next = view.with_room().map(|d| d.id).max_by(|a, b| owed(a).total_cmp(&owed(b)))?;
        self.devices[next.index()].owed -= 1.0;
        Some(next)
    }

    /// Moves the extent of a write, if in memory, from a losing device to a gaining device.
    fn place_write<'a>(&mut self, write: &Piece<'a>, view: &View) -> Placement<'a> {
        let Some(whole) = write.whole.filter(|_| self.constants.moves != Moves::None) else {
            return Placement::KEEP;
        };
        match self.lighter_loaded(view.with_room().map(|d| d.id)) {
            Some(target) if self.take_tokens(write.extent, target, view) => Placement::moved(target, whole),
            _ => Placement::KEEP,
        }
    }

    /// Takes the tokens for a move of an extent to `target`. False if the extent's home shall not lose.
    fn take_tokens(&mut self, extent: ExtentId, target: DeviceId, view: &View) -> bool {
        let home = view.homes.home(extent).filter(|home| self.devices[home.index()].tokens < 0);
        if let Some(home) = home {
            self.devices[home.index()].tokens += 1;
            self.devices[target.index()].tokens -= 1;
        }
        home.is_some()
    }

    /// Migrates hot data with the tokens left by allocation: extents in memory, the most recently used first.
    fn migrate_hot(&mut self, view: &View, moves: &mut Vec<Move>) {
        let mut free: Vec<u32> = view.devices.iter().map(|d| d.free).collect();
        view.homes.visit_memory(&mut |extent| {
            let with_room = view.devices.iter().map(|d| d.id).filter(|d| free[d.index()] > 0);
            let Some(target) = self.lighter_loaded(with_room) else { return };
            if self.take_tokens(extent, target, view) {
                free[target.index()] -= 1;
                moves.push(Move::Migrate { extent, target });
            }
        });
    }

    /// Migrates cold data, not in memory, off devices that are filling up, to the lightest-loaded device with
    /// spare room.
    fn migrate_cold(&mut self, view: &View, moves: &mut Vec<Move>) {
        let Constants { free_low, free_high, .. } = self.constants;
        let spare = |d: &DeviceView| f64::from(d.free) - free_high * f64::from(d.slots);
        for source in view.devices {
            let filling = &mut self.devices[source.id.index()].is_filling_up;
            let until = if *filling { free_high } else { free_low };
            *filling = f64::from(source.free) < until * f64::from(source.slots);
            if !*filling {
                continue;
            }
            let load = |d: &&DeviceView| self.devices[d.id.index()].known_ms();
            let others = view.devices.iter().filter(|d| d.id != source.id && spare(d) >= 1.0);
            let Some(target) = others.min_by(|a, b| load(a).total_cmp(&load(b))) else { continue };
            let wanted = ((-spare(source)).min(spare(target)).ceil() as usize).min(COLD_BATCH);
            let (first, extents) = (self.hand, view.homes.extents());
            let is_cold =
                |e: &ExtentId| view.homes.home(*e) == Some(source.id) && !view.homes.is_in_memory(*e);
            let searched = (1..=COLD_SEARCHED.min(extents)).map(|i| ExtentId((first + i) % extents));
            let cold = searched.inspect(|extent| self.hand = extent.0).filter(is_cold).take(wanted);
            moves.extend(cold.map(|extent| Move::Migrate { extent, target: target.id }));
        }
    }
}

impl Policy for Wardrop {
    fn name(&self) -> &'static str {
        "wardrop"
    }

    fn settings(&self) -> String {
        self.constants.to_string()
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => self.place_new(view).map_or(Placement::KEEP, Placement::on),
            Occasion::Write(piece) => self.place_write(piece, view),
            Occasion::ReadHit(_) | Occasion::ReadMiss(_) => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        if io.origin != Origin::Guest || io.direction == Direction::Flush {
            return;
        }
        let (device, ms) = (&mut self.devices[io.device.index()], io.latency.as_millis_f64());
        (device.requests, device.requests_ms) = (device.requests + 1, device.requests_ms + ms);
        if self.constants.average == Average::Request {
            device.average(ms, self.constants.weight);
        }
    }

    /// The timer routine. Moves not begun by the next call are cancelled, and their tokens dropped.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.revise = true;
        if self.constants.moves == Moves::All {
            self.migrate_hot(view, &mut plan.moves);
            self.migrate_cold(view, &mut plan.moves);
        }
        self.equation_1();
        view.now + self.constants.period
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        device::explain(&self.devices, extent, view)
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        self.devices[device.index()].figures()
    }

    fn save(&self, _view: &View) -> Vec<u8> {
        device::save(&self.devices)
    }

    fn restore(&mut self, state: &[u8], _view: &View) {
        device::restore(&mut self.devices, state);
        self.bound_targets();
    }
}
