//! Order in which the moves of a plan begin, and their claims of devices that the plan limits. A move waits
//! for the rest of such devices before the move takes a lock or a buffer, both at its beginning and between
//! two steps. If several devices may have worked, all of them are charged.

use super::budget::{Budget, Claim};
use super::mover::Mover;
use super::queue::{MigrationRun, MoveTask};
use crate::core::{Store, Upkeep};
use braid_base::{BlockId, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_policy::Move;
use braid_runtime::{Device, Runtime};
use std::future::Future;

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

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Takes the first task that may begin, and waits for such a task, up to `until`. `None` if no task is
    /// left, or if the plan is `over` first.
    pub async fn next_task(&self, until: Nanos, over: impl Fn() -> bool) -> Option<(MoveTask, Claim<'_>)> {
        let (queue, budget) = (&self.moves.queue, &self.moves.budget);
        while !over() && queue.borrow().len() > 0 {
            let now = self.rt.now();
            let slot = |extent| {
                let state = self.store.state.borrow();
                state.space.locate(state.map.get(extent).home)
            };
            // A move begins if its devices have rested and are unclaimed.
            let task = queue.borrow_mut().take(slot, |task| budget.may_begin(&self.store, task, now));
            if let Some(task) = task {
                let devices = budget.limited_of(&self.store, &task);
                return Some((task, budget.claim(&self.jobs, devices)));
            }
            let ended = budget.claims_ended.get();
            let changed = || budget.claims_ended.get() != ended || over();
            self.durable.pause(budget.next_rested(now).min(until), changed).await;
        }
        None
    }

    /// True if the plan yields to guests, and a guest has used any device since its start.
    pub fn must_yield(&self) -> bool {
        let is_back = |since| {
            let is_used = |member| self.store.guests_of(member) > 0 || member.last_guest.get() > since;
            self.store.devices.iter().any(is_used)
        };
        self.moves.budget.yields_since.get().is_some_and(is_back)
    }

    /// Waits before a step of a move: until the devices have rested, the policy changes, or the volume
    /// closes.
    pub async fn rest(&self, mover: Mover, devices: &[DeviceId]) {
        let (budget, changes) = (&self.moves.budget, self.policy.changes());
        while mover == Mover::Plan && !self.jobs.are_ending() && budget.plan_rested(devices) > self.rt.now() {
            let rested = budget.plan_rested(devices);
            self.durable.pause(rested, || self.policy.changes() != changes).await;
        }
    }

    /// Runs a step of a move without a turn of these devices, and charges the devices within the plan's
    /// limits.
    pub async fn step<T>(&self, mover: Mover, devices: &[DeviceId], work: impl Future<Output = T>) -> T {
        let start = self.rt.now();
        let result = work.await;
        if mover == Mover::Plan {
            self.moves.budget.charge_plan(devices, start, self.rt.now());
        }
        result
    }
}

impl Budget {
    /// True if the devices of a task are free. A range may lie on any device, so all devices must be free.
    /// Called for many tasks, most of which must wait.
    fn may_begin<D: Device>(&self, store: &Store<D>, task: &MoveTask, now: Nanos) -> bool {
        let is_free = |device| self.is_free(device, now);
        match Uses::of(task) {
            Uses::Extents(extents, target) => {
                is_free(target) && extents.iter().all(|&extent| store.required_devices(extent).all(is_free))
            }
            Uses::Device(device) => is_free(device),
            Uses::Any => self.are_all_free(now),
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
            Uses::Any => return self.limited(),
        };
        used.retain(|&device| self.is_limited(device));
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Returns the limited devices with a required copy of an extent.
    pub fn limited_of_extent<D: Device>(&self, store: &Store<D>, extent: ExtentId) -> Vec<DeviceId> {
        store.required_devices(extent).filter(|&device| self.is_limited(device)).collect()
    }

    /// Returns the limited devices with a copy of a block, required or extra.
    pub fn limited_of_block<D: Device>(&self, store: &Store<D>, block: BlockId) -> Vec<DeviceId> {
        let mut devices = self.limited_of_extent(store, store.shape.range_of(block).extent);
        let extra = store.state.borrow().extras.get(block).map(|extra| store.device_of(extra.slot));
        devices.extend(extra.filter(|&device| self.is_limited(device) && !devices.contains(&device)));
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
