//! `most`: a small class of extents is mirrored on both tiers, and requests to the class go to the tier that
//! is not overloaded.
//!
//! Tu, Wu, Arpaci-Dusseau, Arpaci-Dusseau, "Getting the MOST out of your Storage Hierarchy with
//! Mirror-Optimized Storage Tiering" (FAST 2026; their implementation is Cerberus). P is the performance
//! device, the SSDs; C is the capacity device, the disks. A *tiered* segment has one copy, on P or C; a
//! *mirrored* segment has a copy on each. When P becomes overloaded, requests for mirrored segments are
//! routed to C at once. Data moves only if routing is not enough.
//!
//! | the paper | here |
//! |---|---|
//! | segments, and subpages of 4 KiB with two bits each | extents and blocks; `mirror.rs` |
//! | reads and writes of mirrored segments by the offload ratio, of tiered ones where they lie | `place_read`, `place_write` |
//! | a new segment on C with the probability of the offload ratio | `place_new` |
//! | every 200 ms: L_P > (1 + θ) L_C raises the ratio by a step, or, if that is as high as may be, grows the mirrored class, or improves it if that is full; L_P < (1 − θ) L_C lowers it, and at 0 moves data to P; else nothing moves | `balance`, `plan` |
//! | the hottest tiered segments of P are mirrored; at the limit, those that are hotter than the coldest mirrored one | `grow` |
//! | the mirrored class shrinks when little space is free | `shrink` |
//! | subpages with one valid copy are cleaned in the background, where many reads come for each write | `clean` |
//! | counters of heat as in HeMem | [`Counters`] |
//!
//! Deviations, because the engine has one home for each extent, and extra copies on SSDs only:
//! - A mirrored extent has its home on a disk and extra copies on an SSD. To mirror an extent of P, its home
//!   migrates to the disk. A round later its blocks are read from the disk and copied to the SSD: one read of
//!   C and one write of P more than in the paper.
//! - When the class shrinks, the copy on the SSD is dropped, whichever copy is fully valid: dirty blocks are
//!   written back first. In the paper the copy on C is dropped if the copy on P is fully valid.
//! - A write to a part of a block whose bytes only the disk has goes to the disk. A write to a part of a
//!   block that is valid on both may go to both copies.
//! - Dirty blocks survive a crash like all extra copies; the paper's state is lost with power.
//!
//! Deviations by choice, and choices that the paper leaves open:
//! - A segment is an extent, 128 KiB by default; the paper's segment is 2 MB.
//! - Requests for C are not drawn at random but taken at regular intervals, so that runs are repeatable. The
//!   share is the same.
//! - Not in the paper are the weight of a round in the average latency (`weight`) and the reads for each
//!   write from which an extent is cleaned (`clean`). Nor are the threshold at which counters cool and the
//!   threshold for a hot extent. The ratio is 0 at first.
//! - Latencies are of guests' reads and writes, not of moves. A tier without requests in a round is probed.
//! - Moves are limited to `rate`: 100 MB/s, as in a public configuration of the authors.
//! - For tiering, a hot extent of C is exchanged with the coldest extent of P if P has no room. Both
//!   directions move, though only P gains.

mod mirror;
mod settings;

use crate::hemem::Counters;
use crate::tier::{Tier, spare};
use crate::{
    BadSetting, Completion, DeviceView, Direction, ExtraCopy, Move, Occasion, Origin, Outcome, Piece,
    Placement, Plan, Policy, Settings, View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use mirror::{Mirror, Validity};
use settings::Constants;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// The policy: tiers, with a class of extents mirrored on both.
pub struct Most {
    constants: Constants,
    /// Class of each device.
    classes: Vec<DeviceClass>,
    performance: Tier,
    capacity: Tier,
    counters: Counters,
    mirror: Mirror,
    /// The offload ratio.
    ratio: f64,
    /// Requests owed to C.
    owed: f64,
    last: Balance,
    /// Extents whose home has reached a disk, and whose copies are made next.
    half_mirrored: VecDeque<ExtentId>,
    /// Maximum number of extents in the mirrored class.
    limit: usize,
}

/// Result of a comparison of latencies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Balance {
    /// Equal latencies: the ratio stays, and no extent changes its tier.
    Equal,
    /// The offload ratio has changed; no extent changes its tier.
    Routed,
    /// Data moves towards C: the mirrored class grows, or gets hotter.
    ToCapacity,
    /// Data moves towards P.
    ToPerformance,
}

/// Requests that make an extent hot: as in HeMem for reads.
const HOT: u16 = 8;
/// Counters are halved when a counter has reached this.
const COOLS_AT: u8 = 200;

impl Most {
    /// Returns the policy with the given settings; `most/settings.rs` lists their defaults.
    ///
    /// # Errors
    /// Without both classes of devices, and for invalid settings.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Most, BadSetting> {
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new("policy most needs an SSD and a disk: use another policy"));
        }
        let constants = Constants::read(settings)?;
        let slots: u64 = devices.iter().map(|device| u64::from(device.slots)).sum();
        Ok(Most {
            constants,
            classes: devices.iter().map(|device| device.class).collect(),
            performance: Tier::default(),
            capacity: Tier::default(),
            counters: Counters::new(COOLS_AT),
            mirror: Mirror::default(),
            ratio: 0.0,
            owed: 0.0,
            last: Balance::Equal,
            half_mirrored: VecDeque::new(),
            limit: (slots as f64 * constants.mirror) as usize,
        })
    }

    fn is_ssd(&self, device: DeviceId) -> bool {
        self.classes[device.index()] == DeviceClass::Ssd
    }

    fn lies_on(&self, class: DeviceClass, extent: ExtentId, view: &View) -> bool {
        view.homes.home(extent).is_some_and(|home| self.classes[home.index()] == class)
    }

    /// True if the next request with a choice goes to C.
    fn offloads(&mut self) -> bool {
        self.owed += self.ratio;
        let offloads = self.owed >= 1.0;
        self.owed -= f64::from(u8::from(offloads));
        offloads
    }

    fn place_new(&mut self, view: &View) -> Option<DeviceId> {
        let to_disk = self.offloads();
        let has_room = |d: &&DeviceView| d.class == DeviceClass::Hdd || d.free > spare(d);
        let wanted = if to_disk { DeviceClass::Hdd } else { DeviceClass::Ssd };
        let devices = view.with_room().filter(has_room);
        devices.max_by_key(|d| (d.class == wanted, d.free)).map(|d| d.id).or_else(|| view.roomiest())
    }

    fn place_read(&mut self, read: &Piece, view: &View) -> Placement<'static> {
        let mut copies = read.touched().map(|block| view.homes.extra(block));
        let is_valid_on_both = copies.all(|copy| copy.is_some_and(|copy| !copy.dirty));
        match is_valid_on_both && self.lies_on(DeviceClass::Hdd, read.extent, view) && self.offloads() {
            true => Placement::ALONE,
            false => Placement::KEEP,
        }
    }

    fn place_write(&mut self, write: &Piece, view: &View) -> Placement<'static> {
        let is_mirrored = self.mirror.has(write.extent) && self.lies_on(DeviceClass::Hdd, write.extent, view);
        if !is_mirrored {
            return Placement::KEEP;
        }
        if self.offloads() {
            return Placement::ALONE;
        }
        let last = BlockId(write.first_block.0 + u64::from(write.blocks) - 1);
        let edges = [(write.range.start, write.first_block), (write.range.end, last)];
        let needs_disk = edges
            .iter()
            .any(|(at, block)| !at.is_aligned(view.block_size) && view.homes.extra(*block).is_none());
        let ssd = write.touched().find_map(|block| view.homes.extra(block)).map(|copy| copy.device);
        match ssd.or_else(|| roomiest(DeviceClass::Ssd, view)).filter(|_| !needs_disk) {
            Some(ssd) => Placement::write_back(ssd),
            None => Placement::KEEP,
        }
    }

    /// The paper's loop: compares latencies and adjusts the ratio.
    fn balance(&mut self) -> Balance {
        let Constants { round, theta, step, most, weight, .. } = self.constants;
        self.performance.end_round(round.as_millis_f64(), weight);
        self.capacity.end_round(round.as_millis_f64(), weight);
        let (Some(performance), Some(capacity)) = (self.performance.latency_ms(), self.capacity.latency_ms())
        else {
            return Balance::Equal;
        };
        if performance > (1.0 + theta) * capacity {
            if self.ratio < most {
                self.ratio = (self.ratio + step).min(most);
                return Balance::Routed;
            }
            return Balance::ToCapacity;
        }
        if performance < (1.0 - theta) * capacity {
            if self.ratio > 0.0 {
                // Sums of steps drift: less than a hundredth of a step counts as 0.
                self.ratio -= step;
                if self.ratio < step / 100.0 {
                    self.ratio = 0.0;
                }
                return Balance::Routed;
            }
            return Balance::ToPerformance;
        }
        Balance::Equal
    }

    /// Returns the warm tiered extents of a tier, the hottest first.
    fn hottest(&self, class: DeviceClass, view: &View) -> Vec<(u16, ExtentId)> {
        let of_tier = self
            .counters
            .warm()
            .filter(|&(extent, _)| self.lies_on(class, extent, view) && !self.mirror.has(extent));
        let mut all: Vec<(u16, ExtentId)> = of_tier.map(|(extent, heat)| (heat, extent)).collect();
        all.sort_unstable_by_key(|&(heat, extent)| (Reverse(heat), extent));
        all
    }

    /// Returns the mirrored extents with their heat, the coldest last.
    fn coldest_mirrored(&self) -> Vec<(u16, ExtentId)> {
        let heat = |extent| (self.counters.heat(extent), extent);
        let mut all: Vec<(u16, ExtentId)> = self.mirror.extents().map(heat).collect();
        all.sort_unstable_by_key(|&(heat, extent)| (Reverse(heat), extent));
        all
    }

    /// Mirrors the hottest tiered extents of P. At the limit, each replaces a colder mirrored extent.
    fn grow(&mut self, budget: &mut i64, view: &View, moves: &mut Vec<Move>) {
        let mut mirrored = self.mirror.len() + self.half_mirrored.len();
        let mut coldest = None;
        for (heat, extent) in self.hottest(DeviceClass::Ssd, view) {
            let Some(target) = roomiest(DeviceClass::Hdd, view).filter(|_| *budget > 0) else { break };
            if mirrored >= self.limit {
                let coldest = coldest.get_or_insert_with(|| self.coldest_mirrored());
                match coldest.pop() {
                    Some((cold, extent)) if cold < heat => {
                        moves.push(Move::Demote { range: view.range_of_extent(extent) });
                        mirrored -= 1;
                    }
                    _ => break,
                }
            }
            moves.push(Move::Migrate { extent, target });
            mirrored += 1;
            // The extent's copies follow in the next round, and cost the same again.
            *budget -= 2 * view.extent_size.0 as i64;
        }
    }

    /// Copies extents that have just reached a disk to an SSD.
    fn complete_mirrors(&mut self, view: &View, moves: &mut Vec<Move>) {
        while let Some(extent) = self.half_mirrored.pop_front() {
            let Some(target) = roomiest(DeviceClass::Ssd, view) else { continue };
            moves.push(Move::Promote { range: view.range_of_extent(extent), target });
        }
    }

    /// Drops the copies of the coldest mirrored extents if little is free.
    fn shrink(&self, view: &View, moves: &mut Vec<Move>) {
        let sum = |of: fn(&DeviceView) -> u32| view.devices.iter().map(|d| f64::from(of(d))).sum::<f64>();
        let lacking = self.constants.free * sum(|d| d.slots) - sum(|d| d.free);
        if lacking <= 0.0 {
            return;
        }
        let coldest = self.coldest_mirrored();
        let drop = coldest.iter().rev().take(lacking.ceil() as usize);
        moves.extend(drop.map(|&(_, extent)| Move::Demote { range: view.range_of_extent(extent) }));
    }

    /// Makes both copies valid in extents with many reads for each write.
    fn clean(&mut self, budget: &mut i64, view: &View, moves: &mut Vec<Move>) {
        for extent in self.mirror.next_to_clean() {
            if *budget <= 0 {
                break;
            }
            let distance = self.counters.rewrite_distance(extent).unwrap_or(f64::INFINITY);
            let Validity { ssd, disk, .. } = Mirror::validity(extent, view);
            if distance < self.constants.clean || ssd + disk == 0 {
                continue;
            }
            let range = view.range_of_extent(extent);
            if ssd > 0 {
                moves.push(Move::WriteBack { range });
            }
            if let Some(target) = roomiest(DeviceClass::Ssd, view).filter(|_| disk > 0) {
                moves.push(Move::Promote { range, target });
            }
            *budget -= (view.block_size.0 * u64::from(ssd + disk)) as i64;
        }
    }

    /// Tiering: moves hot extents of C to P, in exchange for cold extents if P has no room.
    fn promote(&mut self, budget: &mut i64, view: &View, moves: &mut Vec<Move>) {
        let hot = self.hottest(DeviceClass::Hdd, view);
        let mut coldest = self.hottest(DeviceClass::Ssd, view);
        let (mut free, mut searched) = (free_for_homes(view), 0);
        for (heat, extent) in hot.into_iter().take_while(|&(heat, _)| heat >= HOT) {
            let Some(target) = roomiest(DeviceClass::Ssd, view).filter(|_| *budget > 0) else { break };
            if free > 0 {
                free -= 1;
            } else {
                let cold = self.cold(view, &mut searched);
                let cold = cold.or_else(|| coldest.pop().filter(|&(cold, _)| cold < heat).map(|(_, e)| e));
                let (Some(cold), Some(back)) = (cold, roomiest(DeviceClass::Hdd, view)) else { break };
                moves.push(Move::Migrate { extent: cold, target: back });
                *budget -= view.extent_size.0 as i64;
            }
            moves.push(Move::Migrate { extent, target });
            *budget -= view.extent_size.0 as i64;
        }
    }

    /// Returns a cold extent of P.
    fn cold(&mut self, view: &View, searched: &mut u32) -> Option<ExtentId> {
        let (homes, classes) = (view.homes, &self.classes);
        let is_there = |extent| {
            homes.home(extent).is_some_and(|home: DeviceId| classes[home.index()] == DeviceClass::Ssd)
        };
        self.counters.next_cold(homes.extents(), searched, is_there)
    }
}

/// Number of free slots of the SSDs for homes.
fn free_for_homes(view: &View) -> u32 {
    let ssds = view.devices.iter().filter(|device| device.class == DeviceClass::Ssd);
    ssds.map(|device| device.free.saturating_sub(spare(device))).sum()
}

/// Returns the device of a class with the most room; `None` if all are full.
fn roomiest(class: DeviceClass, view: &View) -> Option<DeviceId> {
    view.with_room().filter(|device| device.class == class).max_by_key(|d| d.free).map(|d| d.id)
}

impl Policy for Most {
    fn name(&self) -> &'static str {
        "most"
    }

    fn settings(&self) -> String {
        self.constants.to_string()
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
                self.place_write(piece, view)
            }
            Occasion::ReadMiss(piece) => {
                self.counters.count(piece.extent, Direction::Read);
                self.place_read(piece, view)
            }
            Occasion::ReadHit(_) => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let ssd = self.is_ssd(io.device);
        let tier = if ssd { &mut self.performance } else { &mut self.capacity };
        match (io.origin, io.direction) {
            (Origin::Guest, Direction::Read | Direction::Write) => tier.completed(io.len.0, io.latency),
            (Origin::Probe, _) => tier.probed(io.latency),
            (Origin::Guest, Direction::Flush) | (Origin::Background, _) => {}
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        match device.class {
            DeviceClass::Ssd => device.slots.min(self.limit as u32),
            DeviceClass::Hdd => 0,
        }
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        if before.is_some() != now.is_some() {
            self.mirror.changed(block);
        }
    }

    /// Runs a round. Moves not begun by the next round are cancelled.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.revise = true;
        self.mirror.look(view);
        self.last = self.balance();
        let is_busy = !self.performance.is_idle() || !self.capacity.is_idle();
        for device in view.devices.iter().filter(|device| is_busy && device.slots > 0) {
            let tier = if self.is_ssd(device.id) { &self.performance } else { &self.capacity };
            if tier.is_idle() {
                plan.moves.push(Move::Probe { device: device.id, direction: Direction::Read, len: KIB * 4 });
            }
        }
        let Constants { rate, round, .. } = self.constants;
        let mut budget = (rate.0 as f64 * round.as_secs_f64()) as i64;
        self.shrink(view, &mut plan.moves);
        self.complete_mirrors(view, &mut plan.moves);
        match self.last {
            Balance::ToCapacity => self.grow(&mut budget, view, &mut plan.moves),
            Balance::ToPerformance => self.promote(&mut budget, view, &mut plan.moves),
            Balance::Equal | Balance::Routed => {}
        }
        self.clean(&mut budget, view, &mut plan.moves);
        view.now + round
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        if let (Move::Migrate { extent, target }, Outcome::Finished) = (*job, outcome)
            && self.last == Balance::ToCapacity
            && !self.is_ssd(target)
        {
            self.half_mirrored.push_back(extent);
        }
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let is_ssd = self.is_ssd(device);
        let tier = if is_ssd { &self.performance } else { &self.capacity };
        let latency = tier.latency_ms().map(|latency_ms| ("tier_latency_ms", latency_ms));
        let mirror = [("offload_ratio", self.ratio), ("mirrored_extents", self.mirror.len() as f64)];
        latency.into_iter().chain(mirror.into_iter().filter(|_| is_ssd)).collect()
    }

    fn memory(&self) -> usize {
        self.counters.memory() + self.mirror.memory()
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let latency =
            |tier: &Tier| tier.latency_ms().map_or("unknown".to_owned(), |ms| format!("{ms:.2} ms"));
        let does = match self.last {
            Balance::Equal => "a balanced load, so nothing moves",
            Balance::Routed => "and requests for mirrored extents are redistributed",
            Balance::ToCapacity => "and more of the data on the SSDs is mirrored",
            Balance::ToPerformance => "and hot extents move to the SSDs",
        };
        let lies = match (view.homes.home(extent), self.mirror.has(extent)) {
            (None, _) => "the next write allocates it".to_owned(),
            (Some(home), true) => {
                let Validity { both, ssd, disk } = Mirror::validity(extent, view);
                format!(
                    "the extent is mirrored, with its home on {home}: {both} block(s) are valid on both, \
                     {ssd} on the SSD alone, {disk} on the disk alone"
                )
            }
            (Some(home), false) => format!("the extent is tiered, on {home}"),
        };
        format!(
            "latency of the SSDs is {}, of the disks {}, {does}; {:.0} % of the requests for {} mirrored \
             extent(s) go to the disks. The extent has {} recent request(s); {lies}",
            latency(&self.performance),
            latency(&self.capacity),
            self.ratio * 100.0,
            self.mirror.len(),
            self.counters.heat(extent)
        )
    }
}
