//! The limits of a plan: moves take at most a share of a device's time.
//!
//! A device with a limit serves one move at a time. After it has worked for a move for a time `t`, it rests from moves for
//! `t (1 / share − 1)`. A move waits for that before it takes a lock or a buffer, be it at its beginning or between two steps.
//! Where it is not known which of several devices worked, all of them count as having done so.
//!
//! What the engine does by itself (second copies after a device was missing, resynchronisation) has no limit.

use crate::core::Core;
use crate::jobs::Jobs;
use braid_base::{BlockId, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_policy::{Move, Plan};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;

/// On whose behalf bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mover {
    /// The policy's plan, within its limits.
    Plan,
    /// The engine, without limits.
    Engine,
}

/// How much of their time devices give to the moves of the plan.
pub(crate) struct Pace {
    devices: RefCell<Vec<Paced>>,
    /// How often a claim has ended.
    ended: Cell<u64>,
}

#[derive(Clone, Copy)]
struct Paced {
    share: f64,
    /// A move uses it.
    claimed: bool,
    /// When it has rested from the moves so far.
    rested: Nanos,
}

/// A move that has begun: no other one begins on its devices that have limits.
pub(super) struct Claim<'a> {
    pace: &'a Pace,
    jobs: &'a Jobs,
    devices: Vec<DeviceId>,
}

impl Pace {
    pub fn new(devices: usize) -> Pace {
        let unlimited = Paced { share: 1.0, claimed: false, rested: Nanos::ZERO };
        Pace { devices: RefCell::new(vec![unlimited; devices]), ended: Cell::new(0) }
    }

    /// From now on the limits of this plan hold. What devices have to rest from before goes on.
    pub(super) fn follow(&self, plan: &Plan) {
        for (device, id) in self.devices.borrow_mut().iter_mut().zip(0..) {
            device.share = plan.share(DeviceId(id));
        }
    }

    /// Another policy is in charge: nothing is limited until its first plan.
    pub fn lift(&self) {
        for device in self.devices.borrow_mut().iter_mut() {
            (device.share, device.rested) = (1.0, Nanos::ZERO);
        }
    }

    fn is_limited(&self, device: DeviceId) -> bool {
        self.devices.borrow()[device.index()].share < 1.0
    }

    /// All devices with a limit.
    fn limited(&self) -> Vec<DeviceId> {
        let devices = self.devices.borrow();
        let limited = devices.iter().zip(0..).filter(|(device, _)| device.share < 1.0);
        limited.map(|(_, id)| DeviceId(id)).collect()
    }

    /// When those of these devices that have limits have rested.
    fn rested(&self, devices: &[DeviceId]) -> Nanos {
        let limited = devices.iter().filter(|&&device| self.is_limited(device));
        limited.map(|device| self.devices.borrow()[device.index()].rested).max().unwrap_or_default()
    }

    /// Devices worked for a move from `start` to `end`.
    fn charge(&self, devices: &[DeviceId], start: Nanos, end: Nanos) {
        let took = end.saturating_sub(start).0 as f64;
        let mut all = self.devices.borrow_mut();
        for device in devices {
            let device = &mut all[device.index()];
            let rest = Nanos((took * (1.0 / device.share - 1.0)) as u64);
            device.rested = device.rested.max(end) + rest;
        }
    }

    fn may_begin(&self, devices: &[DeviceId], now: Nanos) -> bool {
        self.rested(devices) <= now
            && devices.iter().all(|device| !self.devices.borrow()[device.index()].claimed)
    }

    /// When the next device that no move uses has rested, after `now`.
    fn next_rested(&self, now: Nanos) -> Nanos {
        let devices = self.devices.borrow();
        let resting =
            devices.iter().filter(|device| device.share < 1.0 && !device.claimed && device.rested > now);
        resting.map(|device| device.rested).min().unwrap_or(Nanos::MAX)
    }

    fn set_claimed(&self, devices: &[DeviceId], claimed: bool) {
        let mut all = self.devices.borrow_mut();
        devices.iter().for_each(|device| all[device.index()].claimed = claimed);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.devices.is_empty() {
            self.pace.set_claimed(&self.devices, false);
            self.pace.ended.set(self.pace.ended.get() + 1);
            self.jobs.wake();
        }
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Takes the first of these moves that may begin now; waits for one, up to `until`. None if there are none left, or if the plan
    /// is `over` first.
    pub(super) async fn next_move(
        &self,
        moves: &RefCell<VecDeque<Move>>,
        until: Nanos,
        over: impl Fn() -> bool,
    ) -> Option<(Move, Claim<'_>)> {
        while !over() && !moves.borrow().is_empty() {
            let now = self.rt.now();
            if let Some((job, devices)) = self.take_move(&mut moves.borrow_mut(), now) {
                return Some((job, Claim { pace: &self.moves.pace, jobs: &self.jobs, devices }));
            }
            let ended = self.moves.pace.ended.get();
            let changed = || self.moves.pace.ended.get() != ended || over();
            self.pause(self.moves.pace.next_rested(now).min(until), changed).await;
        }
        None
    }

    /// Takes the first move whose devices have rested and are used by no other one, and claims these.
    fn take_move(&self, moves: &mut VecDeque<Move>, now: Nanos) -> Option<(Move, Vec<DeviceId>)> {
        let limited = self.moves.pace.limited();
        if limited.is_empty() {
            return moves.pop_front().map(|job| (job, limited));
        }
        let may_begin = |job: &Move| self.moves.pace.may_begin(&self.limited_of(job, &limited), now);
        let place = moves.iter().position(may_begin)?;
        let job = moves.remove(place)?;
        let devices = self.limited_of(&job, &limited);
        self.moves.pace.set_claimed(&devices, true);
        Some((job, devices))
    }

    /// Those of the devices with limits that a move uses; for a range, whose extents may lie anywhere, all.
    fn limited_of(&self, job: &Move, limited: &[DeviceId]) -> Vec<DeviceId> {
        let used = match *job {
            Move::Migrate { extent, target } | Move::Mirror { extent, target } => {
                let mut used = self.limited_of_extent(extent);
                used.push(target);
                used
            }
            Move::Probe { device, .. } => vec![device],
            Move::Promote { .. } | Move::Demote { .. } | Move::WriteBack { .. } | Move::Resync { .. } => {
                limited.to_vec()
            }
        };
        limited.iter().copied().filter(|device| used.contains(device)).collect()
    }

    /// Devices with a limit and a required copy of an extent.
    pub(super) fn limited_of_extent(&self, extent: ExtentId) -> Vec<DeviceId> {
        let state = self.state.borrow();
        let Entry { home, second, .. } = state.map.get(extent);
        let devices =
            [home, second].into_iter().filter_map(|slot| state.space.locate(slot).map(|slot| slot.device));
        devices.filter(|&device| self.moves.pace.is_limited(device)).collect()
    }

    /// Devices with a limit and a copy of a block, required or extra.
    pub(super) fn limited_of_block(&self, block: BlockId) -> Vec<DeviceId> {
        let mut devices = self.limited_of_extent(self.shape.range_of(block).extent);
        let extra = self.state.borrow().extras.get(block).map(|extra| self.device_of(extra.slot));
        devices
            .extend(extra.filter(|&device| self.moves.pace.is_limited(device) && !devices.contains(&device)));
        devices
    }

    /// Before a step of a move: until its devices have rested, their limits are lifted, or the volume closes.
    pub(super) async fn rest(&self, mover: Mover, devices: &[DeviceId]) {
        let changes = self.policy.changes();
        while mover == Mover::Plan
            && !self.jobs.are_ending()
            && self.moves.pace.rested(devices) > self.rt.now()
        {
            let rested = self.moves.pace.rested(devices);
            self.pause(rested, || self.policy.changes() != changes).await;
        }
    }

    /// A step of a move, in which these devices work.
    pub(super) async fn step<T>(
        &self,
        mover: Mover,
        devices: &[DeviceId],
        work: impl Future<Output = T>,
    ) -> T {
        let start = self.rt.now();
        let result = work.await;
        if mover == Mover::Plan && devices.iter().any(|&device| self.moves.pace.is_limited(device)) {
            self.moves.pace.charge(devices, start, self.rt.now());
        }
        result
    }
}
