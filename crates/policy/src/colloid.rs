//! `colloid`: extents move between SSDs and disks until both have the same latency.
//!
//! Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!" (SOSP 2024), adapted from
//! pages of memory to extents of devices. A tier deserves an access only while its *loaded* latency is the
//! lower one. D is the default tier, the SSDs; A is the alternate tier, the disks.
//!
//! | the paper | here |
//! |---|---|
//! | the latency of a tier by Little's law, from what is in flight and what completes | [`Tier`] |
//! | p, the share of accesses to D; how much of it shall move, by water marks | `watermarks.rs` |
//! | which pages: a pair of a page on the slower tier and a page on the other, with the largest difference of accesses within the share to be moved; a page without accesses needs no exchange if the target has room | `exchange` |
//! | no more bytes in a round than the demand that shall move | `round` |
//! | hotness by the counters of the system beneath, HeMem | [`Counters`] |
//!
//! The paper's text was not at hand: the policy follows the authors' code (the HeMem port), but with the rule
//! of water marks. The rule is the paper's as we remember it; the last version of the code uses a
//! proportional rule. Details for storage are from the comparison of Tu et al. (FAST 2026).
//!
//! Deviations:
//! - A round lasts 200 ms, not 10 ms: Tu et al.
//! - By default latency is of reads, as in Tu et al.'s Colloid; `latency=all` includes writes, as in their
//!   Colloid+.
//! - Moves are limited to `rate`, 100 MB/s, as in Tu et al.: the paper's limit of 10 GB/s is for memory.
//! - Unspent bytes of a round, up to one extent, carry over to the next round: a disk serves less than an
//!   extent in a round.
//! - A tier without requests in a round is probed, and has the latency of its probe. The authors' code takes
//!   constants for its hardware.
//! - A class may have several devices: a tier is all of them together, and uses the device with most room.
//! - New extents go to the SSDs while there is room beyond the reserve for exchanges (`spare`), as HeMem
//!   allocates.

mod watermarks;

use crate::hemem::Counters;
use crate::tier::{Tier, spare};
use crate::{
    BadSetting, Completion, DeviceView, Direction, Move, Occasion, Origin, Placement, Plan, Policy, Settings,
    View,
};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use std::collections::BTreeMap;
use watermarks::{Shift, Watermarks};

/// Migration until the latencies of both tiers are equal.
pub struct Colloid {
    constants: Constants,
    /// Class of each device.
    classes: Vec<DeviceClass>,
    default: Tier,
    other: Tier,
    marks: Watermarks,
    counters: Counters,
    /// p of the last round, and the round's decision.
    share: f64,
    last: Option<Shift>,
    /// Bytes that may still move.
    budget: f64,
}

struct Constants {
    round: Nanos,
    weight: f64,
    delta: f64,
    epsilon: f64,
    rate: Bytes,
    /// True if writes count.
    all: bool,
}

const ROUND: Nanos = Nanos::from_millis(200);
const WEIGHT: f64 = 0.0625;
const DELTA: f64 = 0.05;
const EPSILON: f64 = 0.01;
const RATE: Bytes = Bytes(100_000_000);
/// Count of an extent at which all counts are halved.
const COOLS_AT: u8 = 18;

impl Colloid {
    /// Returns the policy. Settings: `round` (200ms), `weight` (0.0625), `delta` (0.05), `epsilon` (0.01),
    /// `rate` (100MB), `latency` (reads; or all).
    ///
    /// # Errors
    /// Without both classes of devices, and for invalid settings.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Colloid, BadSetting> {
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new("policy colloid needs an SSD and a disk: use another policy"));
        }
        let constants = Constants {
            round: settings.take_time("round", ROUND, Nanos::from_millis(10)..=Nanos::from_secs(3600))?,
            weight: settings.take_within("weight", WEIGHT, 1e-6, 1.0)?,
            delta: settings.take_within("delta", DELTA, 0.0, 1.0)?,
            epsilon: settings.take_within("epsilon", EPSILON, 0.0, 1.0)?,
            rate: settings.take_bytes("rate", RATE, KIB..=KIB * (1 << 30))?,
            all: match settings.take_text("latency").as_deref() {
                None | Some("reads") => false,
                Some("all") => true,
                Some(other) => return Err(settings.bad("latency", other, "reads or all")),
            },
        };
        Ok(Colloid {
            classes: devices.iter().map(|device| device.class).collect(),
            default: Tier::default(),
            other: Tier::default(),
            marks: Watermarks::new(constants.delta, constants.epsilon),
            counters: Counters::new(COOLS_AT),
            share: 1.0,
            last: None,
            budget: 0.0,
            constants,
        })
    }

    fn tier_mut(&mut self, device: DeviceId) -> &mut Tier {
        match self.classes[device.index()] {
            DeviceClass::Ssd => &mut self.default,
            DeviceClass::Hdd => &mut self.other,
        }
    }

    /// Returns the device of a new extent: on D, then on A.
    fn place_new(&self, view: &View) -> Option<DeviceId> {
        let ssds = view.with_room().filter(|d| d.class == DeviceClass::Ssd && d.free > spare(d));
        let disks = view.with_room().filter(|d| d.class == DeviceClass::Hdd);
        let roomiest = ssds.max_by_key(|d| d.free).or_else(|| disks.max_by_key(|d| d.free));
        roomiest.map(|device| device.id).or_else(|| view.roomiest())
    }

    /// Ends a round. Returns the shift to make now, and adds its bytes to the budget.
    fn round(&mut self, extent: Bytes) -> Option<Shift> {
        let Constants { round, weight, rate, .. } = self.constants;
        let ms = round.as_millis_f64();
        self.default.end_round(ms, weight);
        self.other.end_round(ms, weight);
        let (default_rate, other_rate) = (self.default.rate(), self.other.rate());
        if default_rate + other_rate == 0.0 {
            return None;
        }
        self.share = default_rate / (default_rate + other_rate);
        let (default_ms, other_ms) = (self.default.latency_ms()?, self.other.latency_ms()?);
        let shift = self.marks.next(self.share, default_ms, other_ms)?;
        let demand = shift.share * (self.default.bytes_per_ms() + self.other.bytes_per_ms()) * ms;
        let kept = self.budget.min(extent.0 as f64);
        self.budget = (kept + demand).min(rate.0 as f64 * round.as_secs_f64() + kept);
        Some(shift)
    }

    /// Plans exchanges that shift the given share of the accesses, within the budget.
    fn exchange(&mut self, shift: Shift, view: &View, moves: &mut Vec<Move>) {
        let (from, to) = match shift.to_default {
            true => (DeviceClass::Hdd, DeviceClass::Ssd),
            false => (DeviceClass::Ssd, DeviceClass::Hdd),
        };
        let (mut slow, mut fast) = (self.by_heat(from, view), self.by_heat(to, view));
        let all: u64 = self.counters.warm().map(|(_, heat)| u64::from(heat)).sum();
        let mut left = shift.share * all as f64;
        let mut free: Vec<u32> = view.devices.iter().map(|device| device.free).collect();
        let mut searched = 0;
        let extent_size = view.extent_size.0 as f64;
        while self.budget >= extent_size {
            let room = |class, free: &[u32]| {
                let of_class = view.devices.iter().filter(|device| device.class == class);
                let roomiest = of_class.max_by_key(|device| free[device.id.index()]).map(|device| device.id);
                roomiest.filter(|device| free[device.index()] > 0)
            };
            let Some(target) = room(to, &free) else { break };
            // The last free slots of the target are for exchanges: the hot extent may arrive before the cold
            // extent has left.
            let has_room = free[target.index()] > spare(&view.devices[target.index()]);
            let cold = match has_room {
                true => None,
                false => self.cold(to, view, &mut searched),
            };
            let least = if has_room || cold.is_some() { Some(0) } else { None };
            let Some((hot_heat, cold_heat)) = best_pair(&slow, &fast, least, left) else { break };
            let partner = match (has_room && cold_heat == 0, cold) {
                (true, _) => None,
                (false, Some(cold)) if cold_heat == 0 => Some(cold),
                (false, _) => take(&mut fast, cold_heat),
            };
            let cost = extent_size * if partner.is_some() { 2.0 } else { 1.0 };
            // An exchange that exceeds the budget may use the next round's bytes.
            self.budget -= cost;
            let hot = take(&mut slow, hot_heat).expect("a pair is of extents that there are");
            if let Some(partner) = partner {
                let Some(back) = room(from, &free) else { break };
                free[back.index()] -= 1;
                moves.push(Move::Migrate { extent: partner, target: back });
            } else {
                free[target.index()] -= 1;
            }
            moves.push(Move::Migrate { extent: hot, target });
            left -= f64::from(hot_heat - cold_heat);
        }
    }

    /// Returns the warm extents of a tier by heat.
    fn by_heat(&self, class: DeviceClass, view: &View) -> BTreeMap<u16, Vec<ExtentId>> {
        let mut by_heat: BTreeMap<u16, Vec<ExtentId>> = BTreeMap::new();
        for (extent, heat) in self.counters.warm() {
            let home = view.homes.home(extent);
            if home.is_some_and(|home| self.classes[home.index()] == class) {
                by_heat.entry(heat).or_default().push(extent);
            }
        }
        by_heat
    }

    /// Returns a cold extent of a tier.
    fn cold(&mut self, class: DeviceClass, view: &View, searched: &mut u32) -> Option<ExtentId> {
        let (homes, classes) = (view.homes, &self.classes);
        let is_there =
            |extent| homes.home(extent).is_some_and(|home: DeviceId| classes[home.index()] == class);
        self.counters.next_cold(homes.extents(), searched, is_there)
    }
}

/// Returns the heats of an extent on the slower tier and an extent on the faster tier, with the largest
/// difference up to `most`. `least` is the heat of a partner other than the warm extents of the faster tier.
fn best_pair(
    slow: &BTreeMap<u16, Vec<ExtentId>>,
    fast: &BTreeMap<u16, Vec<ExtentId>>,
    least: Option<u16>,
    most: f64,
) -> Option<(u16, u16)> {
    let partners = || least.into_iter().chain(fast.keys().copied());
    let pairs = slow.keys().flat_map(|&hot| partners().map(move |cold| (hot, cold)));
    let fits = pairs.filter(|&(hot, cold)| hot > cold && f64::from(hot - cold) <= most);
    fits.max_by_key(|&(hot, cold)| (hot - cold, hot))
}

/// Takes an extent of a given heat.
fn take(by_heat: &mut BTreeMap<u16, Vec<ExtentId>>, heat: u16) -> Option<ExtentId> {
    let extents = by_heat.get_mut(&heat)?;
    let extent = extents.pop();
    if extents.is_empty() {
        by_heat.remove(&heat);
    }
    extent
}

impl Policy for Colloid {
    fn name(&self) -> &'static str {
        "colloid"
    }

    fn settings(&self) -> String {
        let Constants { round, weight, delta, epsilon, rate, all } = &self.constants;
        let latency = if *all { "all" } else { "reads" };
        format!(
            "round={}ns,weight={weight},delta={delta},epsilon={epsilon},rate={}B,latency={latency}",
            round.0, rate.0
        )
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { extent, write } => {
                if write.is_some() {
                    self.counters.count(*extent, Direction::Write);
                }
                self.place_new(view).map_or(Placement::KEEP, Placement::on)
            }
            Occasion::Write(piece) => {
                self.counters.count(piece.extent, Direction::Write);
                Placement::KEEP
            }
            Occasion::ReadMiss(piece) => {
                self.counters.count(piece.extent, Direction::Read);
                Placement::KEEP
            }
            Occasion::ReadHit(_) => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let counts = match io.direction {
            Direction::Read => true,
            Direction::Write => self.constants.all,
            Direction::Flush => false,
        };
        match io.origin {
            Origin::Guest if counts => self.tier_mut(io.device).completed(io.len.0, io.latency),
            Origin::Probe => self.tier_mut(io.device).probed(io.latency),
            Origin::Guest | Origin::Background => {}
        }
    }

    /// Runs a round. Moves not begun by the next round are cancelled.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.revise = true;
        self.last = self.round(view.extent_size);
        let busy = !self.default.is_idle() || !self.other.is_idle();
        for device in view.devices.iter().filter(|device| busy && device.slots > 0) {
            if self.tier_mut(device.id).is_idle() {
                plan.moves.push(Move::Probe { device: device.id, direction: Direction::Read, len: KIB * 4 });
            }
        }
        if let Some(shift) = self.last {
            self.exchange(shift, view, &mut plan.moves);
        }
        view.now + self.constants.round
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let (tier, share) = match self.classes[device.index()] {
            DeviceClass::Ssd => (&self.default, self.share),
            DeviceClass::Hdd => (&self.other, 1.0 - self.share),
        };
        let latency = tier.latency_ms().map(|latency_ms| ("tier_latency_ms", latency_ms));
        latency.into_iter().chain([("tier_share", share)]).collect()
    }

    fn memory(&self) -> usize {
        self.counters.memory()
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let latency =
            |tier: &Tier| tier.latency_ms().map_or("unknown".to_owned(), |ms| format!("{ms:.2} ms"));
        let next = match self.last {
            None => "no move is planned".to_owned(),
            Some(Shift { to_default, share }) => {
                let to = if to_default { "SSDs" } else { "disks" };
                format!("{:.1} % of the accesses should move to the {to}", share * 100.0)
            }
        };
        let lies = view
            .homes
            .home(extent)
            .map_or("the next write allocates it, on an SSD with room".to_owned(), |home| {
                format!("its home is on {home}")
            });
        format!(
            "latency of the SSDs is {} with {:.1} % of the accesses, latency of the disks {}; {next}. The \
             extent has {} recent request(s); {lies}",
            latency(&self.default),
            self.share * 100.0,
            latency(&self.other),
            self.counters.heat(extent)
        )
    }
}
