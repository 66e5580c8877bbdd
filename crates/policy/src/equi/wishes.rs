//! What an owner may wish for: bounds on what the policy does by itself. Without a wish nothing is bounded.

use super::slo::{Slack, Slo};
use super::wear::Wear;
use crate::{BadSetting, Completion, DeviceView, Plan, Settings, View};
use braid_base::{DeviceClass, DeviceId, Nanos};

#[derive(Default)]
pub(super) struct Wishes {
    pub wear: Option<Wear>,
    slo: Option<Slo>,
}

impl Wishes {
    /// Settings: `wear`, `slo`.
    pub fn take(settings: &mut Settings, devices: &[DeviceView]) -> Result<Wishes, BadSetting> {
        let classes: Vec<DeviceClass> = devices.iter().map(|device| device.class).collect();
        let wear = Wear::take(settings, &classes)?;
        if wear.is_some() && !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new(
                "policy equi needs an SSD and a disk to spare the SSD, and the volume has one class of device: leave out wear",
            ));
        }
        Ok(Wishes { wear, slo: Slo::take(settings)? })
    }

    /// As [`Wishes::take`] takes them, where time passes so many times as fast.
    pub fn hastened(&self, haste: u32) -> String {
        let wear = self.wear.as_ref().map(|wear| wear.hastened(haste)).unwrap_or_default();
        wear + &self.slo.as_ref().map(Slo::written).unwrap_or_default()
    }

    /// A guest asks for something, which memory holds or not. `memory` is how long what was written counts as of late.
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

    pub fn completed(&mut self, io: &Completion) {
        if let Some(wear) = &mut self.wear {
            wear.completed(io);
        }
        if let Some(slo) = &mut self.slo {
            slo.completed(io);
        }
    }

    /// At each plan.
    pub fn plan(&mut self, view: &View, memory: Nanos, plan: &mut Plan) {
        if let Some(slo) = &mut self.slo {
            slo.plan(view, plan);
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
        let of = |device: &DeviceView| self.wear.as_ref().and_then(|wear| wear.refusal(device.id));
        let of_all = self.slo.as_ref().and_then(Slo::refusal);
        of_all.into_iter().chain(view.devices.iter().filter_map(of)).collect()
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
    pub fn figures(&self, device: DeviceId) -> Option<(&'static str, f64)> {
        let left = self.wear.as_ref().and_then(|wear| wear.left(device))?;
        Some(("wear_left_bytes", left))
    }
}
