//! Turns: a task waits until devices have time for its requests ([`super::budget`]).
//!
//! A task with a turn waits for its devices and for locks of extents. Holders of such locks wait for no turn.
//!
//! A task that has waited for [`OVERDUE`] goes before all later tasks for its devices. Otherwise the small
//! turns of a resync starve the runs of a drain.

use super::budget::{Budget, SHARE, Turn};
use super::mover::Mover;
use crate::core::{Extents, Upkeep};
use crate::jobs::Jobs;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_runtime::{Device, Runtime};
use std::future::Future;

/// Wait after which a task goes before all tasks that came later: small tasks must not starve large ones.
const OVERDUE: Nanos = Nanos::from_secs(1);
/// Time after a guest's last request during which a device counts as used.
const QUIET: Nanos = Nanos::from_millis(100);

/// A task that waits for a turn.
struct Waiting<'a> {
    budget: &'a Budget,
    jobs: &'a Jobs,
    number: u64,
}

impl Waiting<'_> {
    /// True if a task that came earlier is overdue for one of the devices.
    fn is_later(&self, devices: &[DeviceId]) -> bool {
        let overdue = self.budget.overdue.borrow();
        overdue.range(..self.number).any(|(_, wanted)| wanted.iter().any(|device| devices.contains(device)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.budget.overdue.borrow_mut().remove(&self.number).is_some() {
            // The tasks behind this one look again.
            self.budget.end_turn(self.jobs);
        }
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Returns the share of a device's time that moves of the plan may take now.
    pub fn move_share(&self, device: DeviceId) -> f64 {
        let engine = if self.extents.is_used(device) { SHARE } else { 1.0 };
        self.moves.budget.share(device).unwrap_or(engine)
    }

    /// Runs a request of a move to a device, in its turn.
    pub async fn in_turn<T>(
        &self,
        mover: Mover,
        device: DeviceId,
        len: Bytes,
        work: impl Future<Output = T>,
    ) -> T {
        self.in_turn_together(mover, device, 1, len, work).await
    }

    /// Runs several requests of a move to a device in one turn; `len` is the sum of their lengths.
    pub async fn in_turn_together<T>(
        &self,
        mover: Mover,
        device: DeviceId,
        requests: u32,
        len: Bytes,
        work: impl Future<Output = T>,
    ) -> T {
        let _turn = self.take_turn(mover, &[device], requests, len).await;
        self.charged(mover, device, requests, work).await
    }

    /// Waits until each device has time for `requests` requests of total length `len`, or until the volume
    /// closes. The requests count until the turn is dropped. All devices are taken at the same moment, so
    /// that no two tasks wait for each other.
    pub async fn take_turn(&self, mover: Mover, devices: &[DeviceId], requests: u32, len: Bytes) -> Turn<'_> {
        self.wait_for_time(mover, devices, len).await;
        self.moves.budget.take(&self.jobs, devices, requests, len)
    }

    /// Runs requests of a move to a device, within a turn, and charges the device.
    pub async fn charged<T>(
        &self,
        mover: Mover,
        device: DeviceId,
        requests: u32,
        work: impl Future<Output = T>,
    ) -> T {
        let start = self.rt.now();
        let result = work.await;
        let guests = self.extents.guests_if_used(device);
        self.moves.budget.charge(mover, device, guests, requests, start, self.rt.now());
        result
    }

    /// Waits until devices have time for a request of a move, or the volume closes.
    pub async fn wait_for_time(&self, mover: Mover, devices: &[DeviceId], len: Bytes) {
        let budget = &self.moves.budget;
        let number = budget.waited.replace(budget.waited.get() + 1);
        let waiting = Waiting { budget, jobs: &self.jobs, number };
        let overdue = self.rt.now() + OVERDUE;
        let busy_until = |&device: &DeviceId| {
            budget.busy_until(mover, device, self.extents.guests_if_used(device), len, self.rt.now())
        };
        while !self.jobs.are_ending() {
            let until = match devices.iter().filter_map(busy_until).max() {
                None if !waiting.is_later(devices) => return,
                None => Nanos::MAX,
                Some(until) => until,
            };
            if self.rt.now() >= overdue {
                budget.overdue.borrow_mut().insert(number, devices.to_vec());
            }
            // An idle device always has room for one request, and the first overdue task waits for no other
            // task, so every wait ends.
            let ended = budget.ended.get();
            let look_again = if self.rt.now() < overdue { until.min(overdue) } else { until };
            self.durable.pause(look_again, || budget.ended.get() != ended).await;
        }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// True if guests use a device now, or did within [`QUIET`].
    pub fn is_used(&self, device: DeviceId) -> bool {
        self.guests_if_used(device).is_some()
    }

    /// Number of guests' requests in flight on a device; `None` if guests do not use the device.
    fn guests_if_used(&self, device: DeviceId) -> Option<u32> {
        let member = self.store.member(device);
        let (guests, last) = (self.store.guests_of(member), member.last_guest.get());
        let is_used = guests > 0 || last > Nanos::ZERO && self.rt.now() < last + QUIET;
        is_used.then_some(guests)
    }
}
