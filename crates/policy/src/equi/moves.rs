//! Choice of moves: the extents with the largest gain for their price, in runs of neighbours.

use super::Equi;
use super::demand::{Demand, of_disk};
use crate::{DeviceView, Move, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};

/// Gain of a possible move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    pub extent: ExtentId,
    pub from: DeviceId,
    pub to: DeviceId,
    /// Gain of guests, in milliseconds a second; a loss is negative.
    pub ms: f64,
}

/// Price of a move to guests, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    /// Once per run.
    once: f64,
    /// For each extent of the run.
    each: f64,
}

impl Price {
    /// Price of a run of this length.
    fn of(&self, extents: usize) -> f64 {
        self.once + self.each * extents as f64
    }

    /// Price of a single extent.
    pub fn alone(&self) -> f64 {
        self.of(1)
    }
}

impl Equi {
    pub(super) fn watch_saturation(&mut self, view: &View) {
        let left = self.constants.left();
        for ((share, since), device) in self.saturated.iter_mut().zip(view.devices) {
            // More than one request in flight: requests wait.
            let waits = if device.in_flight > 1 { 1.0 } else { 0.0 };
            *share = *share * left + waits * (1.0 - left);
            *since = if *share > 0.5 { since.or(Some(view.now)) } else { None };
        }
    }

    /// True if requests wait for a device most of the time.
    fn is_saturated(&self, device: DeviceId) -> bool {
        self.saturated[device.index()].1.is_some()
    }

    /// Returns the time in which a move must gain more than the move costs, in seconds. Free room on a faster
    /// device is filled once, and no extent leaves for a move into free room. The saturation of the source is
    /// then expected to last for as long again as until now.
    fn horizon(&self, from: DeviceId, to: DeviceId, view: &View) -> f64 {
        let lasted = |since| view.now.saturating_sub(since);
        let saturated = self.saturated[from.index()].1.map_or(Nanos::ZERO, lasted);
        let fills = if self.fills(from, to, view) { saturated } else { Nanos::ZERO };
        self.constants.horizon.max(fills).as_secs_f64()
    }

    /// Returns the gain of an extent by a move to the best other device.
    ///
    /// If the target's class is not faster, a device gives away extents only if the device is saturated, or
    /// if the extent costs several times as much there. Otherwise extents would return after each burst: the
    /// disk then looks quick, until the next burst.
    pub(super) fn gain(&self, extent: ExtentId, known: &Demand, view: &View) -> Option<Gain> {
        let from = view.homes.home(extent)?;
        let demand = self.demand(extent, known, view.now);
        let takes_more = |d: &&DeviceView| {
            d.id != from
                && (self.room(d, view) > 0 || self.answers[d.id.index()])
                && self.wishes.may_write(d.id)
        };
        let others = view.devices.iter().filter(takes_more).map(|d| (self.cost(&demand, d.id), d));
        let (best, first) = others.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
        // Devices of one class with about the same cost share the incoming extents, neighbours together.
        let alike =
            others.filter(|(cost, d)| d.class == first.class && *cost <= best * self.constants.margin);
        let roomy = alike.filter(|(_, d)| self.room(d, view) > 0 || d.id == first.id).map(|(_, d)| d.id);
        let place = (extent.0 / self.constants.group()) as usize % roomy.clone().count().max(1);
        let to = roomy.clone().nth(place).unwrap_or(first.id);
        let comes_true = self.calibration.factor(of_disk(&demand));
        let ms = (self.cost(&demand, from) - self.cost(&demand, to)) * comes_true;
        let bears = !self.is_faster(to, from)
            && !self.is_saturated(from)
            && self.cost(&demand, from) <= self.constants.margin.powi(2) * self.cost(&demand, to);
        Some(Gain { extent, from, to, ms: if bears { ms.min(0.0) } else { ms } })
    }

    /// Returns the price of a move, given the delay of guests per millisecond of work on source and target.
    pub(super) fn price(&self, from: DeviceId, to: DeviceId, waiting: [f64; 2], view: &View) -> Price {
        let speed = |device: DeviceId| self.constants.speed(self.classes[device.index()]);
        let [reads, writes] = waiting;
        Price {
            once: speed(from).position_ms * reads + speed(to).position_ms * writes,
            each: speed(from).transfer(view.extent_size) * reads
                + speed(to).transfer(view.extent_size) * writes,
        }
    }

    /// Returns the delay of guests by a move under the usual load.
    pub(super) fn waiting_for(&self, from: DeviceId, to: DeviceId) -> [f64; 2] {
        [self.waiting(from), self.waiting(to)]
    }

    /// Returns the delay of guests by a move without an exchange. While both devices are idle, no guest
    /// waits. Moves off the faster device, or moves that would have to make room there, would be churn in
    /// every pause.
    fn waiting_now(&self, from: DeviceId, to: DeviceId, view: &View) -> [f64; 2] {
        let is_idle = |device: DeviceId| view.devices[device.index()].in_flight == 0;
        match self.fills(from, to, view) && is_idle(from) && is_idle(to) {
            true => [self.constants.idle; 2],
            false => self.waiting_for(from, to),
        }
    }

    /// True if a move takes free room on a faster device.
    fn fills(&self, from: DeviceId, to: DeviceId, view: &View) -> bool {
        self.is_faster(to, from) && self.room(&view.devices[to.index()], view) > 0
    }

    /// Slots free for homes.
    fn room(&self, device: &DeviceView, view: &View) -> u32 {
        device.free.saturating_sub(self.copies.kept(device, view))
    }

    pub(super) fn is_faster(&self, one: DeviceId, other: DeviceId) -> bool {
        let class = |device: DeviceId| self.classes[device.index()];
        (class(one), class(other)) == (DeviceClass::Ssd, DeviceClass::Hdd)
    }

    pub(super) fn plan_moves(&mut self, view: &View, moves: &mut Vec<Move>) {
        let gains = self.gains(view);
        self.make_room_for_copies(&gains, view, moves);
        self.leave_worn(&gains, view, moves);
        let mut returning = (self.constants.step * gains.len() as f64).ceil() as usize;
        let wanted = gains.iter().copied().filter(|gain| gain.ms > 0.0 && self.may_go(gain, &mut returning));
        let wanted = wanted.collect();
        let wanted = self.runs_that_pay(wanted, view);
        for device in view.devices {
            if self.copies.kept(device, view) > device.free {
                continue;
            }
            let mut coming: Vec<Gain> = wanted.iter().filter(|gain| gain.to == device.id).copied().collect();
            self.keep_what_wear_allows(&mut coming, device.id, view);
            let mut full = coming.split_off(coming.len().min(self.room(device, view) as usize));
            full.retain(|gain| self.known.contains(gain.extent));
            moves.extend(coming.iter().map(|gain| Move::Migrate { extent: gain.extent, target: gain.to }));
            if !full.is_empty() {
                self.swap(full, &gains, device, view, moves);
            }
        }
    }

    /// Moves requested extents from resting disks to SSDs with free room, beside other moves.
    pub(super) fn fetch_wanted(&mut self, view: &View, moves: &mut Vec<Move>) {
        let mut room: Vec<u32> = view.devices.iter().map(|device| self.room(device, view)).collect();
        let mut wanted = self.wishes.take_wanted();
        for job in moves.iter() {
            if let Move::Migrate { extent, target } = job {
                wanted.retain(|wanted| wanted != extent);
                room[target.index()] = room[target.index()].saturating_sub(1);
            }
        }
        for extent in wanted {
            let Some(home) = view.homes.home(extent) else { continue };
            let has_room = |device: &&DeviceView| {
                self.is_faster(device.id, home)
                    && room[device.id.index()] > 0
                    && self.wishes.may_hold(device.id)
            };
            let Some(target) = view.devices.iter().find(has_room).map(|device| device.id) else { continue };
            room[target.index()] -= 1;
            moves.push(Move::Migrate { extent, target });
        }
    }

    /// True if a move is made now. From an SSD that is not saturated only a few extents return to the disks
    /// in each plan: the response of disks to more load is measured, not predicted.
    fn may_go(&self, gain: &Gain, returning: &mut usize) -> bool {
        if !self.is_faster(gain.from, gain.to) || self.is_saturated(gain.from) {
            return true;
        }
        let may = *returning > 0;
        *returning = returning.saturating_sub(1);
        may
    }

    /// Returns the gains of extents that were requested lately and have not just moved. Extents without own
    /// requests, between requested neighbours, take free room on a faster device only.
    fn gains(&self, view: &View) -> Vec<Gain> {
        let rest = Nanos::from_secs_f64(self.constants.horizon.as_secs_f64() * self.constants.margin);
        let size = self.constants.group();
        let mut gains = Vec::new();
        for group in self.groups.newest_first() {
            // Idle extents move between requested neighbours, and not alone.
            let members = (group * size..(group + 1) * size).map(ExtentId);
            let mut asked = members.filter(|extent| self.known.contains(*extent));
            let Some(first) = asked.next() else { continue };
            let last = asked.next_back().unwrap_or(first);
            for extent in (first.0..=last.0).map(ExtentId) {
                let known = self.known.value(extent);
                let demand = known.unwrap_or_default();
                if demand.moved.is_none_or(|moved| view.now >= moved + rest) {
                    let gain = self.gain(extent, &demand, view);
                    gains.extend(gain.filter(|gain| known.is_some() || self.fills(gain.from, gain.to, view)));
                }
            }
        }
        gains
    }

    /// Returns the runs of neighbours that pay, best ratio of gain to price first.
    fn runs_that_pay(&self, mut gains: Vec<Gain>, view: &View) -> Vec<Gain> {
        let run = |gain: &Gain| (gain.from, gain.to, gain.extent.0 / self.constants.group());
        gains.sort_unstable_by_key(|gain| (run(gain), gain.extent));
        let mut runs: Vec<(f64, Vec<Gain>)> = Vec::new();
        for neighbours in gains.chunk_by(|a, b| run(a) == run(b)) {
            let Gain { from, to, .. } = neighbours[0];
            let (price, horizon) =
                (self.price(from, to, self.waiting_now(from, to, view), view), self.horizon(from, to, view));
            let mut run: Vec<Gain> =
                neighbours.iter().filter(|gain| gain.ms * horizon > price.each).copied().collect();
            // Idle extents move only between requested neighbours, here among the extents that pay.
            let is_known = |gain: &Gain| self.known.contains(gain.extent);
            run.truncate(run.iter().rposition(is_known).map_or(0, |last| last + 1));
            run.drain(..run.iter().position(is_known).unwrap_or(0));
            let (gain, price) = (run.iter().map(|gain| gain.ms).sum::<f64>(), price.of(run.len()));
            if gain * horizon > price {
                runs.push((gain / price, run));
            }
        }
        runs.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1[0].extent.cmp(&b.1[0].extent)));
        // No more moves than the devices can do, one after the other, until the next plan.
        let mut left = self.constants.tick().as_millis_f64();
        let fits = |(_, run): &(f64, Vec<Gain>)| {
            let fits = left > 0.0;
            left -= self.price(run[0].from, run[0].to, [1.0; 2], view).of(run.len());
            fits
        };
        runs.into_iter().take_while(fits).flat_map(|(_, run)| run).collect()
    }

    /// Moves homes off an SSD as cached copies need the room, a few in advance: the homes with the least
    /// loss.
    fn make_room_for_copies(&mut self, gains: &[Gain], view: &View, moves: &mut Vec<Move>) {
        let disks = view.devices.iter().filter(|d| d.class == DeviceClass::Hdd && d.free > 0);
        let Some(out) = disks.max_by_key(|d| d.free).map(|d| d.id) else { return };
        for device in view.devices {
            let ahead = ((f64::from(device.slots) * self.constants.least) as u32).max(self.constants.group());
            let lacking = self.copies.kept(device, view).min(ahead).saturating_sub(device.free);
            let leaving = self.leaving(gains, device.id, lacking as usize, view);
            moves.extend(leaving.into_iter().map(|(_, extent)| Move::Migrate { extent, target: out }));
        }
    }

    /// Returns up to `most` extents on a device, each with the loss from leaving: extents without requests
    /// first, then the extents with the least loss.
    fn leaving(
        &mut self,
        gains: &[Gain],
        device: DeviceId,
        most: usize,
        view: &View,
    ) -> Vec<(f64, ExtentId)> {
        let mut leaving: Vec<(f64, ExtentId)> =
            self.cold_on(device, most, view).into_iter().map(|extent| (0.0, extent)).collect();
        let mut known: Vec<(f64, ExtentId)> =
            gains.iter().filter(|gain| gain.from == device).map(|gain| (-gain.ms, gain.extent)).collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        leaving.extend(known);
        leaving.truncate(most);
        leaving
    }

    /// Plans swaps on a full device: another extent leaves first.
    fn swap(
        &mut self,
        mut coming: Vec<Gain>,
        gains: &[Gain],
        device: &DeviceView,
        view: &View,
        moves: &mut Vec<Move>,
    ) {
        let others = view.devices.iter().filter(|d| d.id != device.id && d.free > 0);
        let Some(out) = others.max_by_key(|d| d.free).map(|d| d.id) else { return };
        coming.sort_by(|a, b| b.ms.total_cmp(&a.ms).then(a.extent.cmp(&b.extent)));
        let leaving = self.leaving(gains, device.id, coming.len(), view);
        let horizon = self.constants.horizon.as_secs_f64();
        for (gain, (loss, victim)) in coming.into_iter().zip(leaving) {
            let price = |from, to| self.price(from, to, self.waiting_for(from, to), view).alone();
            let price = price(gain.from, gain.to) + price(device.id, out);
            let net = gain.ms - loss.max(0.0);
            if net * horizon <= self.constants.margin * price {
                break;
            }
            moves.push(Move::Migrate { extent: victim, target: out });
            moves.push(Move::Migrate { extent: gain.extent, target: gain.to });
        }
    }

    /// Returns up to `most` extents on a device without a known demand.
    fn cold_on(&mut self, device: DeviceId, most: usize, view: &View) -> Vec<ExtentId> {
        let (extents, mut found) = (view.homes.extents(), Vec::new());
        // At most half of the extents searched can be known.
        for _ in 0..extents.min(2 * self.constants.known as u32) {
            if found.len() >= most {
                break;
            }
            self.hand = (self.hand + 1) % extents;
            let extent = ExtentId(self.hand);
            if view.homes.home(extent) == Some(device) && !self.known.contains(extent) {
                found.push(extent);
            }
        }
        found
    }
}
