//! Where guests' writes go: new extents by tokens or by P, and extents that the memory cache holds to where load shall go.

use super::Wardrop;
use super::migration::Copying;
use crate::{DeviceView, Piece, Placement, View};
use braid_base::DeviceId;

impl Wardrop {
    /// The device of a new extent: by tokens first, then by P.
    pub(super) fn place_new(&mut self, view: &View) -> DeviceId {
        if let Some(device) = self.shall_gain(view) {
            self.spend(device, self.cost_of_new());
            return device;
        }
        let fallback = view.devices[0].id;
        self.follow_target(view).or_else(|| view.roomiest()).unwrap_or(fallback)
    }

    /// Where a write goes: to a device that shall gain, if the memory cache holds the extent and its home shall lose.
    pub(super) fn place_write<'a>(&mut self, write: &Piece<'a>, view: &View) -> Placement<'a> {
        let Some(whole) = write.whole else { return Placement::KEEP };
        let Some(target) = self.shall_gain(view) else { return Placement::KEEP };
        let requests = self.hot.value(write.extent).unwrap_or_default();
        let Some(home) = self.leaves(write.extent, &requests, target, Copying::WriteOnly, view) else {
            return Placement::KEEP;
        };
        let cost = self.cost_of(requests).max(self.cost_of_new());
        self.spend(target, cost);
        self.spend(home, cost);
        Placement::moved(target, whole)
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

    /// What a new extent takes of the tokens.
    fn cost_of_new(&self) -> f64 {
        match self.settings.as_in_the_paper() {
            true => 1.0,
            false => (self.settings.beta / f64::from(self.traffic.extents.max(1))).min(1.0),
        }
    }
}
