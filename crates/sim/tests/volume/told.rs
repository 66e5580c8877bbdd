//! A policy with extents spread over all devices, and with moves at a test's request.

use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_policy::{DeviceView, Home, Move, Occasion, Placement, Plan, Policy, Second, View};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Clone, Default)]
pub struct Told {
    pub behind: Option<Bytes>,
    pub moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        let Occasion::New { extent, .. } = occasion else {
            return match (occasion, self.behind) {
                (Occasion::Write(_), Some(most)) => {
                    Placement { second: Second::Behind { device: DeviceId(1), most }, ..Placement::KEEP }
                }
                _ => Placement::KEEP,
            };
        };
        let free: Vec<DeviceId> = view.devices.iter().filter(|d| d.free > 0).map(|d| d.id).collect();
        let len = free.len().max(1) as u32;
        let at = |n: u32| free.get((n % len) as usize).copied().unwrap_or(DeviceId(0));
        let (home, second) = (at(extent.0), at(extent.0 + 1 + extent.0 / 3 % (len - 1).max(1)));
        let second = if second == home { Second::None } else { Second::Sync(second) };
        Placement { home: Home::On(home), second, extra: None }
    }

    fn extra_slots(&self, _: &DeviceView) -> u32 {
        0
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}
