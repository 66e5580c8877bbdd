//! Placement of new extents by shares. Shares move towards the devices with the least time for guests'
//! requests.

use super::Constants;
use super::demand::Times;
use super::slowness::{Slowness, cost};
use crate::{DeviceView, Direction, Move, View};
use braid_base::{DeviceClass, DeviceId};

pub(super) struct Shares {
    constants: Constants,
    shares: Vec<f64>,
    /// Extents owed to each device.
    credit: Vec<f64>,
    /// Slowness over the most recent requests only, since guests come and go.
    slowness: Vec<[Slowness; 2]>,
    /// Finished probes, by device and direction.
    probes: Vec<[u32; 2]>,
    /// Recent demand of guests, in any unit: only the ratio of the parts counts.
    asked: Times,
}

impl Shares {
    /// Creates shares: until measured, all new extents go to the SSDs.
    pub fn new(constants: Constants, classes: &[DeviceClass]) -> Shares {
        let fast = classes.contains(&DeviceClass::Ssd);
        let least = constants.least;
        let share = |&class: &DeviceClass| if fast && class == DeviceClass::Hdd { least } else { 1.0 };
        let slowness = |&class: &DeviceClass| [Slowness::new(constants.guess(class), constants.short); 2];
        Shares {
            constants,
            shares: classes.iter().map(share).collect(),
            credit: vec![0.0; classes.len()],
            slowness: classes.iter().map(slowness).collect(),
            probes: vec![[0; 2]; classes.len()],
            asked: Times::default(),
        }
    }

    pub fn of(&self, device: DeviceId) -> f64 {
        self.shares[device.index()] / self.shares.iter().sum::<f64>()
    }

    pub fn learn(&mut self, takes: [f64; 2], direction: usize) {
        self.asked.iter_mut().zip(takes).for_each(|(class, takes)| class[direction] += takes as f32);
    }

    pub fn expect(&mut self, device: DeviceId, direction: usize, ms: f64) {
        self.slowness[device.index()][direction].expect(ms);
    }

    pub fn took(&mut self, device: DeviceId, direction: usize, ms: f64) {
        self.slowness[device.index()][direction].took(ms);
    }

    pub fn probed(&mut self, device: DeviceId, direction: usize) {
        self.probes[device.index()][direction] += 1;
    }

    /// Returns the device of a new extent: the device owed the most extents, among the devices with more room
    /// than moves and cached copies need.
    pub fn next(&mut self, view: &View, kept: impl Fn(&DeviceView) -> u32) -> Option<DeviceId> {
        let least = self.constants.least;
        let open = |d: &&DeviceView| f64::from(d.free.saturating_sub(kept(d))) > f64::from(d.slots) * least;
        let sum: f64 = view.devices.iter().filter(open).map(|d| self.shares[d.id.index()]).sum();
        for device in view.devices.iter().filter(open) {
            self.credit[device.id.index()] += self.shares[device.id.index()] / sum;
        }
        let credit = |d: &&DeviceView| self.credit[d.id.index()];
        let owed = view.devices.iter().filter(open).max_by(|a, b| credit(a).total_cmp(&credit(b)))?.id;
        self.credit[owed.index()] -= 1.0;
        Some(owed)
    }

    /// Grows the shares of devices on which guests' requests take less time than on average.
    pub fn share_out(&mut self, classes: &[DeviceClass]) {
        let (asked, left) = (self.asked, self.constants.left() as f32);
        self.asked.as_flattened_mut().iter_mut().for_each(|part| *part *= left);
        let costs: Vec<f64> = classes
            .iter()
            .zip(&self.slowness)
            .map(|(&class, slowness)| cost(&asked, class, slowness))
            .collect();
        let weighted: f64 = costs.iter().zip(&self.shares).map(|(cost, share)| cost * share).sum();
        let mean = weighted / self.shares.iter().sum::<f64>();
        if mean <= 0.0 {
            return;
        }
        for (share, cost) in self.shares.iter_mut().zip(costs) {
            *share *= (self.constants.step * (mean - cost) / mean.max(cost)).exp();
        }
        let sum: f64 = self.shares.iter().sum();
        self.shares.iter_mut().for_each(|share| *share = (*share / sum).max(self.constants.least));
    }

    /// Plans probes of devices with too few measurements, with writes only to devices that may be written.
    pub fn probe(&self, view: &View, may_write: impl Fn(DeviceId) -> bool, moves: &mut Vec<Move>) {
        for device in view.devices {
            let directions =
                [Direction::Read, Direction::Write].into_iter().zip(self.probes[device.id.index()]);
            let wanted = directions
                .filter(|&(direction, _)| direction == Direction::Read || may_write(device.id))
                .filter(|&(_, probes)| f64::from(probes) < self.constants.guessed);
            let probe = |(direction, _)| Move::Probe { device: device.id, direction, len: view.block_size };
            moves.extend(wanted.map(probe));
        }
    }
}
