//! The limits of a plan: moves take at most a share of a device's time.
//!
//! A device with a limit serves one move, or one run of them, at a time. After it has worked for a move for a
//! time `t`, it rests from moves for `t (1 / share − 1)`; without a share, but with a plan that yields to
//! guests, it does not rest. A move waits for that before it takes a lock or a buffer, be it at its beginning
//! or between two steps. Where it is not known which of several devices worked, all of them count as having
//! done so.
//!
//! What the engine does by itself (second copies after a device was missing, resynchronisation) keeps to no
//! limit of a plan, and like moves to devices without one to the engine's budget ([`super::turns`]).

use super::runs::{Job, Queue, Run};
use crate::core::Core;
use crate::jobs::Jobs;
use braid_base::{BlockId, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_policy::{Move, Plan};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::future::Future;

/// On whose behalf bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mover {
    /// The policy's plan, within its limits.
    Plan,
    /// The engine, within its own budget.
    Engine,
}

/// How much of their time devices give to the moves of the plan.
pub(crate) struct Pace {
    devices: RefCell<Vec<Paced>>,
    /// How often a claim has ended.
    ended: Cell<u64>,
}

#[derive(Clone, Copy, Default)]
struct Paced {
    /// As the plan says, if it does.
    share: Option<f64>,
    /// The plan yields to guests: one move at a time, and no rest.
    alone: bool,
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

/// The devices that a job uses.
enum Uses<'a> {
    /// Those of these extents, and one more.
    Extents(&'a [ExtentId], DeviceId),
    /// This one.
    Device(DeviceId),
    /// Those of a range, which may lie anywhere.
    Any,
}

impl Uses<'_> {
    fn of(job: &Job) -> Uses<'_> {
        match job {
            Job::Run(Run { extents, target }) => Uses::Extents(extents, *target),
            Job::One(Move::Migrate { extent, target } | Move::Mirror { extent, target }) => {
                Uses::Extents(std::slice::from_ref(extent), *target)
            }
            Job::One(Move::Probe { device, .. }) => Uses::Device(*device),
            Job::One(
                Move::Promote { .. }
                | Move::Demote { .. }
                | Move::WriteBack { .. }
                | Move::Resync { .. }
                | Move::Inspect { .. }
                | Move::EndEpoch,
            ) => Uses::Any,
        }
    }
}

impl Pace {
    pub fn new(devices: usize) -> Pace {
        Pace { devices: RefCell::new(vec![Paced::default(); devices]), ended: Cell::new(0) }
    }

    /// There are so many devices now.
    pub fn set_devices(&self, devices: usize) {
        self.devices.borrow_mut().resize(devices, Paced::default());
    }

    /// From now on the limits of this plan hold. What devices have to rest from before goes on.
    pub(super) fn follow(&self, plan: &Plan) {
        for (device, id) in self.devices.borrow_mut().iter_mut().zip(0..) {
            (device.share, device.alone) = (plan.share(DeviceId(id)), plan.yields);
        }
    }

    /// Another policy is in charge: nothing is limited until its first plan.
    pub fn lift(&self) {
        for device in self.devices.borrow_mut().iter_mut() {
            (device.share, device.alone, device.rested) = (None, false, Nanos::ZERO);
        }
    }

    /// The share of a device's time that the plan limits moves to.
    pub(super) fn share(&self, device: DeviceId) -> Option<f64> {
        self.devices.borrow()[device.index()].share
    }

    fn is_limited(&self, device: DeviceId) -> bool {
        self.devices.borrow()[device.index()].is_limited()
    }

    /// All devices with a limit.
    pub(super) fn limited(&self) -> Vec<DeviceId> {
        let devices = self.devices.borrow();
        let limited = devices.iter().zip(0..).filter(|(device, _)| device.is_limited());
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
            let rest = Nanos((took * (1.0 / device.share.unwrap_or(1.0) - 1.0)) as u64);
            device.rested = device.rested.max(end) + rest;
        }
    }

    /// Whether a move that uses a device may begin.
    fn is_free(&self, device: DeviceId, now: Nanos) -> bool {
        self.devices.borrow()[device.index()].is_free(now)
    }

    fn are_all_free(&self, now: Nanos) -> bool {
        self.devices.borrow().iter().all(|device| device.is_free(now))
    }

    /// When the next device that no move uses has rested, after `now`.
    fn next_rested(&self, now: Nanos) -> Nanos {
        let devices = self.devices.borrow();
        let resting =
            devices.iter().filter(|device| device.is_limited() && !device.claimed && device.rested > now);
        resting.map(|device| device.rested).min().unwrap_or(Nanos::MAX)
    }

    fn set_claimed(&self, devices: &[DeviceId], claimed: bool) {
        let mut all = self.devices.borrow_mut();
        devices.iter().for_each(|device| all[device.index()].claimed = claimed);
    }
}

impl Paced {
    fn is_limited(&self) -> bool {
        self.alone || self.share.is_some_and(|share| share < 1.0)
    }

    fn is_free(&self, now: Nanos) -> bool {
        !self.is_limited() || !self.claimed && self.rested <= now
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
    /// Takes the first job that may begin now; waits for one, up to `until`. None if there are none left, or
    /// if the plan is `over` first.
    pub(super) async fn next_job(&self, until: Nanos, over: impl Fn() -> bool) -> Option<(Job, Claim<'_>)> {
        let queue = &self.moves.queue;
        while !over() && queue.borrow().len() > 0 {
            let now = self.rt.now();
            if let Some((job, devices)) = self.take_job(&mut queue.borrow_mut(), now) {
                return Some((job, Claim { pace: &self.moves.pace, jobs: &self.jobs, devices }));
            }
            let ended = self.moves.pace.ended.get();
            let changed = || self.moves.pace.ended.get() != ended || over();
            self.pause(self.moves.pace.next_rested(now).min(until), changed).await;
        }
        None
    }

    /// Takes the first job whose devices have rested and are used by no other one, and claims these.
    fn take_job(&self, queue: &mut Queue, now: Nanos) -> Option<(Job, Vec<DeviceId>)> {
        let slot = |extent| {
            let state = self.state.borrow();
            state.space.locate(state.map.get(extent).home)
        };
        let job = queue.take(slot, |job| self.may_begin(job, now))?;
        let devices = self.limited_of(&job);
        self.moves.pace.set_claimed(&devices, true);
        Some((job, devices))
    }

    /// Whether the devices that a job uses are free; for a range, whose extents may lie anywhere, all. Asked
    /// of many jobs that may not.
    fn may_begin(&self, job: &Job, now: Nanos) -> bool {
        let is_free = |device| self.moves.pace.is_free(device, now);
        match Uses::of(job) {
            Uses::Extents(extents, target) => {
                is_free(target) && extents.iter().all(|&extent| self.required_devices(extent).all(is_free))
            }
            Uses::Device(device) => is_free(device),
            Uses::Any => self.moves.pace.are_all_free(now),
        }
    }

    /// Those of the devices with limits that a job uses, each once.
    fn limited_of(&self, job: &Job) -> Vec<DeviceId> {
        let mut used: Vec<DeviceId> = match Uses::of(job) {
            Uses::Extents(extents, target) => {
                let sources = extents.iter().flat_map(|&extent| self.required_devices(extent));
                sources.chain([target]).collect()
            }
            Uses::Device(device) => vec![device],
            Uses::Any => return self.moves.pace.limited(),
        };
        used.retain(|&device| self.moves.pace.is_limited(device));
        used.sort_unstable();
        used.dedup();
        used
    }

    /// The devices with a required copy of an extent.
    fn required_devices(&self, extent: ExtentId) -> impl Iterator<Item = DeviceId> + use<R, D> {
        let state = self.state.borrow();
        let Entry { home, second, .. } = state.map.get(extent);
        [home, second].map(|slot| state.space.locate(slot).map(|slot| slot.device)).into_iter().flatten()
    }

    /// Devices with a limit and a required copy of an extent.
    pub(super) fn limited_of_extent(&self, extent: ExtentId) -> Vec<DeviceId> {
        self.required_devices(extent).filter(|&device| self.moves.pace.is_limited(device)).collect()
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
    pub async fn rest(&self, mover: Mover, devices: &[DeviceId]) {
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
    pub async fn step<T>(&self, mover: Mover, devices: &[DeviceId], work: impl Future<Output = T>) -> T {
        let start = self.rt.now();
        let result = work.await;
        if mover == Mover::Plan && devices.iter().any(|&device| self.moves.pace.is_limited(device)) {
            self.moves.pace.charge(devices, start, self.rt.now());
        }
        result
    }
}
