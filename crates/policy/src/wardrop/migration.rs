//! Extents that move: hot ones from devices that shall lose load to those that shall gain, cold ones off devices that fill up.

use super::balance::Balance;
use super::constants::Constants;
use super::traffic::Requests;
use super::{TICKS, Wardrop};
use crate::{DeviceView, Direction, Move, View};
use braid_base::{DeviceId, ExtentId, Nanos};
use std::cmp::Reverse;

/// What a move makes devices do: a write to an extent that the memory cache holds whole takes it along without reading it.
#[derive(Clone, Copy)]
pub enum Copying {
    ReadAndWrite,
    WriteOnly,
}

/// An extent that may move.
struct Candidate {
    extent: ExtentId,
    home: DeviceId,
    /// What it takes of the tokens.
    cost: f64,
}

/// Response times that are so many times apart are far from equilibrium.
const FAR_APART: f64 = 4.0;
/// How much longer than near equilibrium the good of a move lasts far from it, at most.
const LONGEST_LASTING: f64 = 10.0;
/// Extents of one class are about as hot: those that are asked for up to √3 times more or less often than the average, and so on in
/// steps of 3. What an extent was asked for in a few periods is a sample, and says no more. Wider classes keep more neighbours together,
/// which dbench-like gains by, but spend copies on extents that few ask for, which netapp-like loses by.
const CLASS_WIDTH: f64 = 3.0;
/// Cold extents that leave a filling device in one tick, at most.
const COLD_BATCH: usize = 16;
/// A hot extent is worth the place of a cold one, of which less is known, where each of the last two periods asked for it more often.
const WORTH_A_PLACE: f64 = 1.0;

impl Wardrop {
    /// Whether the guests of an extent save more time within `payback`, by its move between these devices, than copying it
    /// costs. Far from equilibrium, and away from a device that has long been behind, what is saved is saved for longer.
    fn pays(&self, requests: &Requests, from: DeviceId, to: DeviceId, copying: Copying, view: &View) -> bool {
        if self.settings.as_in_the_paper() {
            return true;
        }
        let reads = self.guests.read_share;
        let (source, target) = (&self.devices[from.index()], &self.devices[to.index()]);
        let response_ms = |d: &Balance| d.response_ms(reads).unwrap_or(0.0);
        let (slow, quick) = (response_ms(source), response_ms(target));
        let periods = self.settings.payback.0 as f64 / self.settings.period.0 as f64;
        let lasting = (slow / quick.max(1e-6) / FAR_APART).clamp(1.0, LONGEST_LASTING);
        let periods = (periods * lasting).max(f64::from(source.behind));
        let saved_ms = requests.lasting() * periods * (slow - quick);
        let cost_ms = target.copying_ms(Direction::Write, view.extent_size, quick)
            + match copying {
                Copying::ReadAndWrite => source.copying_ms(Direction::Read, view.extent_size, slow),
                Copying::WriteOnly => 0.0,
            };
        saved_ms > cost_ms
    }

    /// The home of an extent, where that shall lose load and a move from there to `target` pays.
    pub(super) fn leaves(
        &self,
        extent: ExtentId,
        requests: &Requests,
        target: DeviceId,
        copying: Copying,
        view: &View,
    ) -> Option<DeviceId> {
        let home = view.homes.home(extent).filter(|&home| self.shall_lose(home))?;
        self.pays(requests, home, target, copying, view).then_some(home)
    }

    /// When the hot extents of this period have moved.
    pub(super) fn migration_ends(&self) -> Nanos {
        match self.settings.as_in_the_paper() {
            true => self.period_ends,
            false => self.period_ends.saturating_sub(self.settings.period / 2),
        }
    }

    /// Hot extents from losers to gainers, with this tick's part of the tokens that allocation has left. Where there are several
    /// gainers, the one with most tokens chooses first.
    pub(super) fn migrate_hot(&mut self, view: &View, moves: &mut Vec<Move>) {
        let ticks_left =
            ((self.migration_ends().saturating_sub(view.now)).0 * TICKS / self.settings.period.0).max(1);
        for target in self.gainers(view) {
            let mut due = (self.tokens(target) / ticks_left as f64).ceil();
            let mut room = view.devices[target.index()].free;
            for Candidate { extent, home, cost } in self.hot_on_losers(target, view) {
                if due <= 0.0 || room == 0 {
                    break;
                }
                if cost > self.tokens(target).min(-self.tokens(home)) {
                    continue;
                }
                due -= cost;
                room -= 1;
                // Once moved it must prove itself again, or it would move back with the next tokens.
                self.hot.remove(extent);
                moves.push(Move::Migrate { extent, target });
                self.spend(target, cost);
                self.spend(home, cost);
            }
        }
    }

    /// Devices with room that shall gain load, the one with most tokens first.
    fn gainers(&self, view: &View) -> Vec<DeviceId> {
        let mut gainers: Vec<DeviceId> =
            view.with_room().map(|d| d.id).filter(|&device| self.tokens(device) > 0.0).collect();
        gainers.sort_by(|&a, &b| self.tokens(b).total_cmp(&self.tokens(a)));
        gainers
    }

    /// The hot extents that may move to `target`: the hottest first, and those about as hot in the order of their addresses, so
    /// that neighbours stay neighbours; in the paper the last accessed first.
    fn hot_on_losers(&self, target: DeviceId, view: &View) -> Vec<Candidate> {
        let candidate = |(extent, requests): (ExtentId, Requests)| {
            let home = self.leaves(extent, &requests, target, Copying::ReadAndWrite, view)?;
            let cost = self.cost_of(requests);
            (cost > 0.0).then_some(Candidate { extent, home, cost })
        };
        let mut found: Vec<Candidate> = self.hot.values_newest_first().filter_map(candidate).collect();
        if !self.settings.as_in_the_paper() {
            let average = self.settings.beta / f64::from(self.traffic.extents.max(1));
            let class = |c: &Candidate| (c.cost / average).log(CLASS_WIDTH).round() as i32;
            found.sort_by_cached_key(|c| (Reverse(class(c)), c.extent));
        }
        found
    }

    /// How many hot extents find no room on a device that shall gain.
    fn waiting_for(&self, device: &DeviceView, view: &View) -> usize {
        if self.tokens(device.id) <= 0.0 || device.free as usize >= COLD_BATCH {
            return 0;
        }
        let waits = |(extent, requests): &(ExtentId, Requests)| {
            requests.steady() > WORTH_A_PLACE
                && self.leaves(*extent, requests, device.id, Copying::ReadAndWrite, view).is_some()
        };
        self.hot.values_newest_first().filter(waits).count()
    }

    /// Cold extents off devices that fill up, to the one with the largest share of free slots.
    pub(super) fn migrate_cold(&mut self, view: &View, moves: &mut Vec<Move>) {
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
            let batch = match device.in_flight + target.in_flight {
                0 => COLD_BATCH,
                _ => self.waiting_for(device, view).clamp(1, COLD_BATCH),
            };
            let (hot, homes) = (&self.hot, view.homes);
            let wanted = |e: ExtentId| homes.home(e) == Some(device.id) && !hot.contains(e);
            let found = |extent| moves.push(Move::Migrate { extent, target: target.id });
            self.heat.find_cold(homes.extents(), 4096, batch, wanted, found);
        }
    }
}
