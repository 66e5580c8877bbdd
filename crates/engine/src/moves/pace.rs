//! Limits of a plan: moves take at most a share of a device's time.
//!
//! A device with a limit serves one move, or one run of moves, at a time. After work of duration `t`, the
//! device rests from moves for `t (1 / share − 1)`. If the plan yields to guests and sets no share, the
//! device does not rest. A move waits for the rest before it takes a lock or a buffer, both at its beginning
//! and between two steps. If several devices may have worked, all of them are charged.
//!
//! Work of the engine itself (second copies after a device was missing, resync) ignores the limits of a plan.
//! Such work keeps to the engine's budget ([`super::turns`]), as do moves to devices without a limit.

use super::runs::{MigrationRun, MoveTask, Queue};
use crate::copies::Mover;
use crate::core::{Store, Upkeep};
use crate::jobs::Jobs;
use crate::moves::Moves;
use braid_base::{BlockId, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_policy::{Move, Plan};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::future::Future;

/// Shares of time that devices give to the moves of the plan.
pub(crate) struct Pace {
    devices: RefCell<Vec<Paced>>,
    /// Claims ended so far.
    ended: Cell<u64>,
}

#[derive(Clone, Copy, Default)]
struct Paced {
    /// The plan's share, if the plan sets one.
    share: Option<f64>,
    /// True if the plan yields to guests: one move at a time, and no rest.
    alone: bool,
    /// True while a move uses the device.
    claimed: bool,
    /// End of the rest from moves so far.
    rested: Nanos,
}

/// A claim of the limited devices of a move in flight: no other move begins on these devices.
pub(super) struct Claim<'a> {
    pace: &'a Pace,
    jobs: &'a Jobs,
    devices: Vec<DeviceId>,
}

/// Devices used by a task.
enum Uses<'a> {
    /// The devices of these extents, and the target.
    Extents(&'a [ExtentId], DeviceId),
    /// One device.
    Device(DeviceId),
    /// The devices of a range: any device.
    Any,
}

impl Uses<'_> {
    fn of(task: &MoveTask) -> Uses<'_> {
        match task {
            MoveTask::Run(MigrationRun { extents, target }) => Uses::Extents(extents, *target),
            MoveTask::One(Move::Migrate { extent, target } | Move::Mirror { extent, target }) => {
                Uses::Extents(std::slice::from_ref(extent), *target)
            }
            MoveTask::One(Move::Probe { device, .. }) => Uses::Device(*device),
            MoveTask::One(
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

    /// Sets the number of devices.
    pub fn set_devices(&self, devices: usize) {
        self.devices.borrow_mut().resize(devices, Paced::default());
    }

    /// Applies the limits of a plan from now on. Devices continue to rest from earlier moves.
    pub(super) fn follow(&self, plan: &Plan) {
        for (device, id) in self.devices.borrow_mut().iter_mut().zip(0..) {
            (device.share, device.alone) = (plan.share(DeviceId(id)), plan.yields);
        }
    }

    /// Lifts all limits and ends all rests, until the first plan of another policy.
    pub fn lift(&self) {
        for device in self.devices.borrow_mut().iter_mut() {
            (device.share, device.alone, device.rested) = (None, false, Nanos::ZERO);
        }
    }

    /// Returns the plan's share for a device, if the plan sets one.
    pub(super) fn share(&self, device: DeviceId) -> Option<f64> {
        self.devices.borrow()[device.index()].share
    }

    fn is_limited(&self, device: DeviceId) -> bool {
        self.devices.borrow()[device.index()].is_limited()
    }

    /// Returns all devices with a limit.
    pub(super) fn limited(&self) -> Vec<DeviceId> {
        let devices = self.devices.borrow();
        let limited = devices.iter().zip(0..).filter(|(device, _)| device.is_limited());
        limited.map(|(_, id)| DeviceId(id)).collect()
    }

    /// Returns the time at which the limited ones of the devices have rested.
    fn rested(&self, devices: &[DeviceId]) -> Nanos {
        let limited = devices.iter().filter(|&&device| self.is_limited(device));
        limited.map(|device| self.devices.borrow()[device.index()].rested).max().unwrap_or_default()
    }

    /// Charges devices for work of a move from `start` to `end`.
    fn charge(&self, devices: &[DeviceId], start: Nanos, end: Nanos) {
        let took = end.saturating_sub(start).0 as f64;
        let mut all = self.devices.borrow_mut();
        for device in devices {
            let device = &mut all[device.index()];
            let rest = Nanos((took * (1.0 / device.share.unwrap_or(1.0) - 1.0)) as u64);
            device.rested = device.rested.max(end) + rest;
        }
    }

    /// True if a move on the device may begin.
    fn is_free(&self, device: DeviceId, now: Nanos) -> bool {
        self.devices.borrow()[device.index()].is_free(now)
    }

    fn are_all_free(&self, now: Nanos) -> bool {
        self.devices.borrow().iter().all(|device| device.is_free(now))
    }

    /// Returns the first time after `now` at which an unclaimed device has rested.
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

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Takes the first task that may begin, and waits for such a task, up to `until`. `None` if no task is
    /// left, or if the plan is `over` first.
    pub(super) async fn next_task(
        &self,
        until: Nanos,
        over: impl Fn() -> bool,
    ) -> Option<(MoveTask, Claim<'_>)> {
        let queue = &self.moves.queue;
        while !over() && queue.borrow().len() > 0 {
            let now = self.rt.now();
            if let Some((task, devices)) = self.moves.take_task(&self.store, &mut queue.borrow_mut(), now) {
                return Some((task, Claim { pace: &self.moves.pace, jobs: &self.jobs, devices }));
            }
            let ended = self.moves.pace.ended.get();
            let changed = || self.moves.pace.ended.get() != ended || over();
            self.durable.pause(self.moves.pace.next_rested(now).min(until), changed).await;
        }
        None
    }

    /// Waits before a step of a move: until the devices have rested, the policy changes, or the volume
    /// closes.
    pub async fn rest(&self, mover: Mover, devices: &[DeviceId]) {
        let changes = self.policy.changes();
        while mover == Mover::Plan
            && !self.jobs.are_ending()
            && self.moves.pace.rested(devices) > self.rt.now()
        {
            let rested = self.moves.pace.rested(devices);
            self.durable.pause(rested, || self.policy.changes() != changes).await;
        }
    }

    /// Runs a step of a move and charges its devices.
    pub async fn step<T>(&self, mover: Mover, devices: &[DeviceId], work: impl Future<Output = T>) -> T {
        let start = self.rt.now();
        let result = work.await;
        if mover == Mover::Plan && devices.iter().any(|&device| self.moves.pace.is_limited(device)) {
            self.moves.pace.charge(devices, start, self.rt.now());
        }
        result
    }
}

impl Moves {
    /// Takes the first task whose devices have rested and are unclaimed, and claims the devices.
    fn take_task<D: Device>(
        &self,
        store: &Store<D>,
        queue: &mut Queue,
        now: Nanos,
    ) -> Option<(MoveTask, Vec<DeviceId>)> {
        let slot = |extent| {
            let state = store.state.borrow();
            state.space.locate(state.map.get(extent).home)
        };
        let task = queue.take(slot, |task| self.may_begin(store, task, now))?;
        let devices = self.limited_of(store, &task);
        self.pace.set_claimed(&devices, true);
        Some((task, devices))
    }

    /// True if the devices of a task are free. A range may lie on any device, so all devices must be free.
    /// Called for many tasks, most of which must wait.
    fn may_begin<D: Device>(&self, store: &Store<D>, task: &MoveTask, now: Nanos) -> bool {
        let is_free = |device| self.pace.is_free(device, now);
        match Uses::of(task) {
            Uses::Extents(extents, target) => {
                is_free(target) && extents.iter().all(|&extent| store.required_devices(extent).all(is_free))
            }
            Uses::Device(device) => is_free(device),
            Uses::Any => self.pace.are_all_free(now),
        }
    }

    /// Returns the limited devices of a task, without duplicates.
    fn limited_of<D: Device>(&self, store: &Store<D>, task: &MoveTask) -> Vec<DeviceId> {
        let mut used: Vec<DeviceId> = match Uses::of(task) {
            Uses::Extents(extents, target) => {
                let sources = extents.iter().flat_map(|&extent| store.required_devices(extent));
                sources.chain([target]).collect()
            }
            Uses::Device(device) => vec![device],
            Uses::Any => return self.pace.limited(),
        };
        used.retain(|&device| self.pace.is_limited(device));
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Returns the limited devices with a required copy of an extent.
    pub(super) fn limited_of_extent<D: Device>(&self, store: &Store<D>, extent: ExtentId) -> Vec<DeviceId> {
        store.required_devices(extent).filter(|&device| self.pace.is_limited(device)).collect()
    }

    /// Returns the limited devices with a copy of a block, required or extra.
    pub(super) fn limited_of_block<D: Device>(&self, store: &Store<D>, block: BlockId) -> Vec<DeviceId> {
        let mut devices = self.limited_of_extent(store, store.shape.range_of(block).extent);
        let extra = store.state.borrow().extras.get(block).map(|extra| store.device_of(extra.slot));
        devices.extend(extra.filter(|&device| self.pace.is_limited(device) && !devices.contains(&device)));
        devices
    }
}

impl<D: Device> Store<D> {
    /// Returns the devices with a required copy of an extent.
    fn required_devices(&self, extent: ExtentId) -> impl Iterator<Item = DeviceId> + use<D> {
        let state = self.state.borrow();
        let Entry { home, second, .. } = state.map.get(extent);
        [home, second].map(|slot| state.space.locate(slot).map(|slot| slot.device)).into_iter().flatten()
    }
}
