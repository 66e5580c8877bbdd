//! The budget of the copier: time of devices for copies, guests first.
//!
//! While guests use a device, requests of moves take at most half of its time. Their number is at most the
//! number of guests' requests in flight, but at least one. A single guest thus meets one request of a move at
//! most, and moves continue on a saturated device. One request of moves for four of guests was tried: an
//! overloaded device lost its hot extents too slowly, and guests waited twice as long while the hot part of a
//! volume moved about.
//!
//! A device without guests' requests for a while gives all of its time to moves, several requests at once, so
//! that a disk can sort the requests. The sum of their lengths is bounded, because a guest's request may
//! arrive.
//!
//! Of the time of a request, its share counts: one `n`th, among `n` requests on the device. Afterwards the
//! device rests from moves for the same time.
//!
//! A plan may limit a device itself (`Plan::limit`). The device then serves one move of the plan, or one run
//! of moves, at a time; after work of duration `t`, the device rests from the plan for `t (1 / share − 1)`
//! instead. Work of the engine itself (drain, resync, missing second copies) ignores the limits of a plan and
//! keeps to the engine's share: so each device has two ends of rest.
//!
//! A plan for idle time yields (`Plan::yields`). Its requests are short, each device serves one at a time,
//! without rest, and none begins once a guest is back. Bytes already read are still written, in their turn.

use super::mover::Mover;
use super::run::LONGEST_YIELDING;
use crate::devices::LARGEST_BUFFER;
use crate::jobs::Jobs;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_policy::Plan;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Share of a device's time for moves while guests use the device.
pub(super) const SHARE: f64 = 0.5;
/// Requests of moves on an idle device: as many pieces as two runs have, so that one run is read while the
/// other is written.
const MOST_AT_ONCE: u32 = 16;
/// Requests of moves on a device that guests use.
const MOST_BESIDE_GUESTS: u32 = 8;
/// Length of these requests together, if more than one: a disk reads 2 MiB in 20 ms.
const MOST_BYTES_AT_ONCE: Bytes = Bytes(2 << 20);

/// Time of devices for moves.
pub(crate) struct Budget {
    devices: RefCell<Vec<Serving>>,
    /// Tasks that have waited too long for a turn, by number, with their devices.
    pub(super) overdue: RefCell<BTreeMap<u64, Vec<DeviceId>>>,
    /// Tasks that have begun to wait for a turn so far.
    pub(super) waited: Cell<u64>,
    /// Turns, and waits of overdue tasks, ended so far.
    pub(super) ended: Cell<u64>,
    /// Claims ended so far.
    pub(super) claims_ended: Cell<u64>,
    /// Start of the plan, if the plan yields to guests.
    pub(super) yields_since: Cell<Option<Nanos>>,
}

/// Moves on one device.
#[derive(Clone, Copy, Default)]
struct Serving {
    /// Requests in flight, and their length.
    requests: u32,
    bytes: Bytes,
    /// End of the rest from moves within the engine's share.
    rested: Nanos,
    /// The plan's share, if the plan sets one.
    share: Option<f64>,
    /// True if the plan yields to guests: one move at a time.
    alone: bool,
    /// True while a move of a limited plan uses the device.
    claimed: bool,
    /// End of the rest from moves within the plan's share.
    plan_rested: Nanos,
}

impl Serving {
    fn is_limited(&self) -> bool {
        self.alone || self.share.is_some_and(|share| share < 1.0)
    }

    /// True if a move of the plan may begin.
    fn is_free(&self, now: Nanos) -> bool {
        !self.is_limited() || !self.claimed && self.plan_rested <= now
    }
}

/// Requests of moves in flight on devices, until dropped.
pub(crate) struct Turn<'a> {
    pub(super) budget: &'a Budget,
    pub(super) jobs: &'a Jobs,
    pub(super) devices: Vec<DeviceId>,
    pub(super) requests: u32,
    pub(super) len: Bytes,
}

/// Claim of the limited devices of a move of the plan, until dropped: no other move of the plan begins there.
pub(crate) struct Claim<'a> {
    pub(super) budget: &'a Budget,
    pub(super) jobs: &'a Jobs,
    pub(super) devices: Vec<DeviceId>,
}

impl Budget {
    /// Returns the budget before the first move.
    pub fn new(devices: usize) -> Budget {
        Budget {
            devices: RefCell::new(vec![Serving::default(); devices]),
            overdue: RefCell::default(),
            waited: Cell::new(0),
            ended: Cell::new(0),
            claims_ended: Cell::new(0),
            yields_since: Cell::new(None),
        }
    }

    /// Sets the number of devices.
    pub fn set_devices(&self, devices: usize) {
        self.devices.borrow_mut().resize(devices, Serving::default());
    }

    /// Applies the limits of a plan that begins. Devices continue to rest from earlier moves.
    pub fn follow(&self, plan: &Plan, now: Nanos) {
        self.yields_since.set(plan.yields.then_some(now));
        for (device, id) in self.devices.borrow_mut().iter_mut().zip(0..) {
            (device.share, device.alone) = (plan.share(DeviceId(id)), plan.yields);
        }
    }

    /// Lifts all limits of the plan and ends the rests, until the first plan of another policy.
    pub fn lift(&self) {
        for device in self.devices.borrow_mut().iter_mut() {
            (device.share, device.alone, device.plan_rested) = (None, false, Nanos::ZERO);
        }
    }

    /// Returns the plan's share for a device, if the plan sets one.
    pub fn share(&self, device: DeviceId) -> Option<f64> {
        self.serving(device).share
    }

    /// True if the plan limits a device.
    pub fn is_limited(&self, device: DeviceId) -> bool {
        self.serving(device).is_limited()
    }

    /// Returns all devices that the plan limits.
    pub fn limited(&self) -> Vec<DeviceId> {
        let devices = self.devices.borrow();
        let limited = devices.iter().zip(0..).filter(|(device, _)| device.is_limited());
        limited.map(|(_, id)| DeviceId(id)).collect()
    }

    /// Returns the longest request of a move.
    pub fn longest_move(&self) -> Bytes {
        match self.yields_since.get() {
            Some(_) => LONGEST_YIELDING.min(LARGEST_BUFFER),
            None => LARGEST_BUFFER,
        }
    }

    fn serving(&self, device: DeviceId) -> Serving {
        self.devices.borrow()[device.index()]
    }

    fn change(&self, devices: &[DeviceId], change: impl Fn(&mut Serving)) {
        let mut all = self.devices.borrow_mut();
        devices.iter().for_each(|device| change(&mut all[device.index()]));
    }

    /// Has all tasks that wait for a turn look again.
    pub(super) fn end_turn(&self, jobs: &Jobs) {
        self.ended.set(self.ended.get() + 1);
        jobs.wake();
    }

    /// True if a move of the plan may begin on a device.
    pub(super) fn is_free(&self, device: DeviceId, now: Nanos) -> bool {
        self.serving(device).is_free(now)
    }

    pub(super) fn are_all_free(&self, now: Nanos) -> bool {
        self.devices.borrow().iter().all(|device| device.is_free(now))
    }

    /// Returns the first time after `now` at which an unclaimed limited device has rested.
    pub(super) fn next_rested(&self, now: Nanos) -> Nanos {
        let devices = self.devices.borrow();
        let rests = |device: &&Serving| device.is_limited() && !device.claimed && device.plan_rested > now;
        devices.iter().filter(rests).map(|device| device.plan_rested).min().unwrap_or(Nanos::MAX)
    }

    /// Returns the time at which the limited ones of the devices have rested.
    pub(super) fn plan_rested(&self, devices: &[DeviceId]) -> Nanos {
        let all = devices.iter().map(|&device| self.serving(device));
        all.filter(Serving::is_limited).map(|device| device.plan_rested).max().unwrap_or_default()
    }

    /// Claims the devices of a move of the plan.
    pub(super) fn claim<'a>(&'a self, jobs: &'a Jobs, devices: Vec<DeviceId>) -> Claim<'a> {
        self.change(&devices, |device| device.claimed = true);
        Claim { budget: self, jobs, devices }
    }

    /// Takes requests on devices.
    pub(super) fn take<'a>(
        &'a self,
        jobs: &'a Jobs,
        devices: &[DeviceId],
        requests: u32,
        len: Bytes,
    ) -> Turn<'a> {
        self.change(devices, |device| {
            device.requests += requests;
            device.bytes += len;
        });
        Turn { budget: self, jobs, devices: devices.to_vec(), requests, len }
    }

    /// Returns the time until which a device has no time for a request of a move, or `None`. `guests` are the
    /// guests' requests in flight, if guests use the device. [`Nanos::MAX`] if a request in flight must end
    /// first.
    pub(super) fn busy_until(
        &self,
        mover: Mover,
        device: DeviceId,
        guests: Option<u32>,
        len: Bytes,
        now: Nanos,
    ) -> Option<Nanos> {
        let Serving { requests, bytes, rested, share, .. } = self.serving(device);
        let most = guests.map_or(MOST_AT_ONCE, |guests| guests.clamp(1, MOST_BESIDE_GUESTS));
        let fits = requests == 0 || requests < most && bytes + len <= MOST_BYTES_AT_ONCE;
        let rests = (mover == Mover::Engine || share.is_none()) && rested > now;
        match fits {
            true => rests.then_some(rested),
            false => Some(Nanos::MAX),
        }
    }

    /// Charges a device for requests of a move that began at `start` and have ended: within the plan's share,
    /// or within the engine's. `guests` as for [`Budget::busy_until`].
    pub(super) fn charge(
        &self,
        mover: Mover,
        device: DeviceId,
        guests: Option<u32>,
        requests: u32,
        start: Nanos,
        now: Nanos,
    ) {
        if mover == Mover::Plan && self.share(device).is_some() {
            self.charge_plan(&[device], start, now);
        } else if let Some(guests) = guests {
            self.change(&[device], |device| {
                let all = guests + device.requests.max(requests);
                let part = now.saturating_sub(start).0 as f64 * f64::from(requests) / f64::from(all);
                device.rested = device.rested.max(now) + Nanos((part * (1.0 / SHARE - 1.0)) as u64);
            });
        }
    }

    /// Charges devices with a share of the plan for work of a move of the plan.
    pub(super) fn charge_plan(&self, devices: &[DeviceId], start: Nanos, now: Nanos) {
        let took = now.saturating_sub(start).0 as f64;
        self.change(devices, |device| {
            if let Some(share) = device.share {
                let rest = Nanos((took * (1.0 / share - 1.0)) as u64);
                device.plan_rested = device.plan_rested.max(now) + rest;
            }
        });
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.budget.change(&self.devices, |device| {
            device.requests -= self.requests;
            device.bytes -= self.len;
        });
        self.budget.end_turn(self.jobs);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.devices.is_empty() {
            self.budget.change(&self.devices, |device| device.claimed = false);
            self.budget.claims_ended.set(self.budget.claims_ended.get() + 1);
            self.jobs.wake();
        }
    }
}
