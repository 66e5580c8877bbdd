//! Wishes of the owner: bounds on the policy's own work. Without a wish nothing is bounded.

use super::rest::Rest;
use super::slo::{Slack, Slo};
use super::wear::Wear;
use crate::{BadSetting, Completion, DeviceView, Move, Plan, Settings, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};

#[derive(Default)]
pub(super) struct Wishes {
    pub wear: Option<Wear>,
    slo: Option<Slo>,
    rest: Option<Rest>,
}

impl Wishes {
    /// Reads the settings `wear`, `slo`, `quiet`. Fails if a setting is invalid, or `wear` or `quiet` is set
    /// on a volume with one class of device.
    pub fn take(settings: &mut Settings, devices: &[DeviceView]) -> Result<Wishes, BadSetting> {
        let classes: Vec<DeviceClass> = devices.iter().map(|device| device.class).collect();
        let wear = Wear::take(settings, &classes)?;
        if wear.is_some() && !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new(
                "policy equi needs an SSD and a disk to spare the SSD, and the volume has one class of device: leave out wear",
            ));
        }
        let rest = Rest::take(settings, &classes)?;
        if rest.is_some() && !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new(
                "policy equi needs an SSD and a disk to let the disk rest, and the volume has one class of device: leave out quiet",
            ));
        }
        Ok(Wishes { wear, slo: Slo::take(settings)?, rest })
    }

    /// Returns the settings for [`Wishes::take`].
    pub fn written(&self) -> String {
        self.hastened(1) + &self.rest.as_ref().map(Rest::written).unwrap_or_default()
    }

    /// Returns the settings for a simulation in which time passes `haste` times as fast. `quiet` is left out:
    /// a simulated load has no pauses for disks to rest in.
    pub fn hastened(&self, haste: u32) -> String {
        let wear = self.wear.as_ref().map(|wear| wear.hastened(haste)).unwrap_or_default();
        wear + &self.slo.as_ref().map(Slo::written).unwrap_or_default()
    }

    /// Records a guest's request, served from memory if `is_hit`. `memory` is the decay time of recent
    /// writes.
    pub fn requested(&mut self, is_hit: bool, view: &View, memory: Nanos) {
        self.see(view, memory);
        if let Some(slo) = &mut self.slo {
            slo.requested(view);
            if is_hit {
                slo.hit();
            }
        }
    }

    fn see(&mut self, view: &View, memory: Nanos) {
        if let Some(wear) = &mut self.wear {
            wear.see(view, memory);
        }
    }

    /// Records a guest's request to a device.
    pub fn wants(&mut self, extent: ExtentId, home: DeviceId) {
        if let Some(rest) = &mut self.rest {
            rest.wants(extent, home);
        }
    }

    /// Returns and clears the extents requested from disks since the last call.
    pub fn take_wanted(&mut self) -> Vec<ExtentId> {
        self.rest.as_mut().map(Rest::take_wanted).unwrap_or_default()
    }

    pub fn completed(&mut self, io: &Completion) {
        if let Some(wear) = &mut self.wear {
            wear.completed(io);
        }
        if let Some(slo) = &mut self.slo {
            slo.completed(io);
        }
        if let Some(rest) = &mut self.rest {
            rest.completed(io);
        }
    }

    /// Updates all wishes, at each plan.
    pub fn plan(&mut self, view: &View, memory: Nanos, plan: &mut Plan) {
        if let Some(slo) = &mut self.slo {
            slo.plan(view, plan);
        }
        if let Some(rest) = &mut self.rest {
            rest.see(view);
        }
        if let Some(wear) = &mut self.wear {
            wear.count(view);
        }
        self.see(view, memory);
    }

    /// Returns when background work may run.
    pub fn slack(&self) -> Slack {
        self.slo.as_ref().map(Slo::slack).unwrap_or_default()
    }

    /// Removes moves that use a resting disk, and adds reads from disks that must not stop.
    pub fn let_disks_rest(&mut self, view: &View, moves: &mut Vec<Move>) {
        if let Some(rest) = &mut self.rest {
            rest.leave_alone(moves, view);
            rest.keep_turning(view, moves);
        }
    }

    /// True if any disk rests, so that work can wait until the disk is used.
    pub fn any_rests(&self) -> bool {
        self.rest.as_ref().is_some_and(Rest::any_rests)
    }

    /// True if a device is left alone.
    pub fn rests(&self, device: DeviceId) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.rests(device))
    }

    /// True if a new extent may go to a device while another device has room.
    pub fn may_hold(&self, device: DeviceId) -> bool {
        self.may_write(device) && !self.rests(device)
    }

    /// True if blocks read by a guest may also be written to a device.
    pub fn may_fill(&self, device: DeviceId) -> bool {
        self.slack() == Slack::Now && self.may_write(device)
    }

    /// True if avoidable writes to a device are allowed.
    pub fn may_write(&self, device: DeviceId) -> bool {
        self.wear.as_ref().is_none_or(|wear| wear.may_write(device))
    }

    /// Returns the refused work and the reasons.
    pub fn refusals(&self, view: &View) -> Vec<String> {
        let of = |device: &DeviceView| {
            let worn = self.wear.as_ref().and_then(|wear| wear.refusal(device.id));
            worn.into_iter().chain(self.rest.as_ref().and_then(|rest| rest.refusal(device.id)))
        };
        let of_all = self.slo.as_ref().and_then(Slo::refusal);
        of_all.into_iter().chain(view.devices.iter().flat_map(of)).collect()
    }

    /// Serialises the state that survives a restart.
    pub fn save(&self) -> Vec<u8> {
        self.wear.as_ref().map(Wear::save).unwrap_or_default()
    }

    pub fn restore(&mut self, state: &[u8]) {
        if let Some(wear) = &mut self.wear {
            wear.restore(state);
        }
    }

    /// What is known of a device.
    pub fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let mut figures = self.wear.as_ref().map(|wear| wear.figures(device)).unwrap_or_default();
        figures.extend(self.rest.iter().flat_map(|rest| rest.figures(device)));
        figures
    }
}
