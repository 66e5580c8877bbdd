//! What an owner may wish for: bounds on what the policy does by itself. Without a wish nothing is bounded.

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
    /// Settings: `wear`, `slo`, `quiet`.
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

    /// As [`Wishes::take`] takes them.
    pub fn written(&self) -> String {
        self.hastened(1) + &self.rest.as_ref().map(Rest::written).unwrap_or_default()
    }

    /// The same where time passes so many times as fast, for simulations of a load, which has no pauses for
    /// disks to rest in.
    pub fn hastened(&self, haste: u32) -> String {
        let wear = self.wear.as_ref().map(|wear| wear.hastened(haste)).unwrap_or_default();
        wear + &self.slo.as_ref().map(Slo::written).unwrap_or_default()
    }

    /// A guest asks for something, which memory holds or not. `memory` is how long what was written counts as
    /// of late.
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

    /// A guest asks a device for something.
    pub fn wants(&mut self, extent: ExtentId, home: DeviceId) {
        if let Some(rest) = &mut self.rest {
            rest.wants(extent, home);
        }
    }

    /// What guests asked of disks that are to rest, since this was asked.
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

    /// At each plan.
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

    /// When background work may be done.
    pub fn slack(&self) -> Slack {
        self.slo.as_ref().map(Slo::slack).unwrap_or_default()
    }

    /// Leaves out what asks something of a disk that is left alone, and reads from those that must not stop.
    pub fn let_disks_rest(&mut self, view: &View, moves: &mut Vec<Move>) {
        if let Some(rest) = &mut self.rest {
            rest.leave_alone(moves, view);
            rest.keep_turning(view, moves);
        }
    }

    /// Whether something can wait until a disk is used.
    pub fn any_rests(&self) -> bool {
        self.rest.as_ref().is_some_and(Rest::any_rests)
    }

    /// Whether a device is left alone.
    pub fn rests(&self, device: DeviceId) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.rests(device))
    }

    /// Whether a new extent may go to a device while another one has room.
    pub fn may_hold(&self, device: DeviceId) -> bool {
        self.may_write(device) && !self.rests(device)
    }

    /// Whether what a guest has read may be written to a device, too.
    pub fn may_fill(&self, device: DeviceId) -> bool {
        self.slack() == Slack::Now && self.may_write(device)
    }

    /// Whether what need not go to a device may go there.
    pub fn may_write(&self, device: DeviceId) -> bool {
        self.wear.as_ref().is_none_or(|wear| wear.may_write(device))
    }

    /// What is refused now, and why.
    pub fn refusals(&self, view: &View) -> Vec<String> {
        let of = |device: &DeviceView| {
            let worn = self.wear.as_ref().and_then(|wear| wear.refusal(device.id));
            worn.into_iter().chain(self.rest.as_ref().and_then(|rest| rest.refusal(device.id)))
        };
        let of_all = self.slo.as_ref().and_then(Slo::refusal);
        of_all.into_iter().chain(view.devices.iter().flat_map(of)).collect()
    }

    /// What outlasts a restart.
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
