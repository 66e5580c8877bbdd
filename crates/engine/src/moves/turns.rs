//! The engine's budget for moves: guests first.
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
//! A device that the plan itself limits ([`super::pace`]) rests as the plan asks instead. A task with a turn
//! waits for its devices and for locks of extents. Holders of such locks wait for no turn.
//!
//! A task that has waited for [`OVERDUE`] goes before all later tasks for its devices. Otherwise the small
//! turns of a resync starve the runs of a drain.
//!
//! A plan for idle time yields (`Plan::yields`). Its requests are short, each device serves one at a time,
//! and none begins once a guest is back. Bytes already read are still written, in their turn.

use super::runs::LONGEST_YIELDING;
use crate::copies::Mover;
use crate::core::{Extents, Store, Upkeep};
use crate::devices::LARGEST_BUFFER;
use crate::jobs::Jobs;
use crate::moves::Moves;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;

/// Share of a device's time for moves while guests use the device.
const SHARE: f64 = 0.5;
/// Requests of moves on an idle device: as many pieces as two runs have, so that one run is read while the
/// other is written.
const MOST_AT_ONCE: u32 = 16;
/// Requests of moves on a device that guests use.
const MOST_BESIDE_GUESTS: u32 = 8;
/// Length of these requests together, if more than one: a disk reads 2 MiB in 20 ms.
const MOST_BYTES_AT_ONCE: Bytes = Bytes(2 << 20);
/// Wait after which a task goes before all tasks that came later: small tasks must not starve large ones.
const OVERDUE: Nanos = Nanos::from_secs(1);
/// Time after a guest's last request during which a device counts as used.
const QUIET: Nanos = Nanos::from_millis(100);

/// Requests of moves, by device.
pub(crate) struct Turns {
    devices: RefCell<Vec<Serving>>,
    /// Tasks that have waited longer than [`OVERDUE`], in the order of their beginnings.
    overdue: RefCell<BTreeMap<u64, Vec<DeviceId>>>,
    /// Tasks that have begun to wait so far.
    waited: Cell<u64>,
    /// Turns ended so far.
    ended: Cell<u64>,
}

/// A task that waits for a turn.
struct Waiting<'a> {
    turns: &'a Turns,
    jobs: &'a Jobs,
    number: u64,
}

impl Waiting<'_> {
    /// True if a task that came earlier is overdue for one of the devices.
    fn is_later(&self, devices: &[DeviceId]) -> bool {
        let overdue = self.turns.overdue.borrow();
        overdue.range(..self.number).any(|(_, wanted)| wanted.iter().any(|device| devices.contains(device)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.turns.overdue.borrow_mut().remove(&self.number).is_some() {
            // The tasks behind this one look again.
            self.turns.ended.set(self.turns.ended.get() + 1);
            self.jobs.wake();
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Serving {
    requests: u32,
    bytes: Bytes,
    /// End of the device's rest from moves so far.
    rested: Nanos,
}

impl Turns {
    pub fn new(devices: usize) -> Turns {
        Turns {
            devices: RefCell::new(vec![Serving::default(); devices]),
            overdue: RefCell::default(),
            waited: Cell::new(0),
            ended: Cell::new(0),
        }
    }

    /// Sets the number of devices.
    pub fn set_devices(&self, devices: usize) {
        self.devices.borrow_mut().resize(devices, Serving::default());
    }
}

/// Requests of moves on devices, until dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    jobs: &'a Jobs,
    devices: Vec<DeviceId>,
    requests: u32,
    len: Bytes,
}

impl Turn<'_> {
    fn change(&self, change: impl Fn(&mut Serving)) {
        let mut all = self.turns.devices.borrow_mut();
        self.devices.iter().for_each(|device| change(&mut all[device.index()]));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.change(|serving| {
            serving.requests -= self.requests;
            serving.bytes -= self.len;
        });
        self.turns.ended.set(self.turns.ended.get() + 1);
        self.jobs.wake();
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Returns the share of a device's time that moves of the plan may take now.
    pub fn move_share(&self, device: DeviceId) -> f64 {
        let engine = if self.extents.is_used(device) { SHARE } else { 1.0 };
        self.moves.pace.share(device).unwrap_or(engine)
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
        let start = self.rt.now();
        let result = self.step(mover, &[device], work).await;
        self.count_together(mover, device, start, requests);
        result
    }

    /// Waits until each device has time for `requests` requests of total length `len`, or until the volume
    /// closes. The requests count until the turn is dropped. All devices are taken at the same moment, so
    /// that no two tasks wait for each other.
    pub async fn take_turn(&self, mover: Mover, devices: &[DeviceId], requests: u32, len: Bytes) -> Turn<'_> {
        self.wait_for_time(mover, devices, len).await;
        let turn =
            Turn { turns: &self.moves.turns, jobs: &self.jobs, devices: devices.to_vec(), requests, len };
        turn.change(|serving| {
            serving.requests += requests;
            serving.bytes += len;
        });
        turn
    }

    /// Waits until a device has time for a request of a move, or the volume closes.
    pub async fn give_way(&self, mover: Mover, device: DeviceId, len: Bytes) {
        self.wait_for_time(mover, &[device], len).await;
    }

    async fn wait_for_time(&self, mover: Mover, devices: &[DeviceId], len: Bytes) {
        let turns = &self.moves.turns;
        let waiting =
            Waiting { turns, jobs: &self.jobs, number: turns.waited.replace(turns.waited.get() + 1) };
        let overdue = self.rt.now() + OVERDUE;
        while !self.jobs.are_ending() {
            let busy = devices.iter().filter_map(|&device| self.busy_until(mover, device, len)).max();
            let until = match busy {
                None if !waiting.is_later(devices) => return,
                None => Nanos::MAX,
                Some(until) => until,
            };
            if self.rt.now() >= overdue {
                turns.overdue.borrow_mut().insert(waiting.number, devices.to_vec());
            }
            // An idle device always has room for one request, and the first overdue task waits for no other
            // task, so every wait ends.
            let ended = turns.ended.get();
            let look_again = if self.rt.now() < overdue { until.min(overdue) } else { until };
            self.durable.pause(look_again, || turns.ended.get() != ended).await;
        }
    }

    /// Returns the time until which a device has no time for a request of a move. [`Nanos::MAX`] if a request
    /// in flight must end first.
    fn busy_until(&self, mover: Mover, device: DeviceId, len: Bytes) -> Option<Nanos> {
        let Serving { requests, bytes, rested } = self.moves.turns.devices.borrow()[device.index()];
        let fits = requests == 0 || requests < self.most_at_once(device) && bytes + len <= MOST_BYTES_AT_ONCE;
        let rests = self.moves.has_budget(mover, device) && rested > self.rt.now();
        match fits {
            true => rests.then_some(rested),
            false => Some(Nanos::MAX),
        }
    }

    /// Charges a device for a request of a move that began at `start` and has ended.
    pub fn count(&self, mover: Mover, device: DeviceId, start: Nanos) {
        self.count_together(mover, device, start, 1);
    }

    fn count_together(&self, mover: Mover, device: DeviceId, start: Nanos, requests: u32) {
        if !self.moves.has_budget(mover, device) || !self.extents.is_used(device) {
            return;
        }
        let now = self.rt.now();
        let others = self.store.guests_of(self.store.member(device));
        let mut devices = self.moves.turns.devices.borrow_mut();
        let serving = &mut devices[device.index()];
        let all = others + serving.requests.max(requests);
        let part = (now.saturating_sub(start)).0 as f64 * f64::from(requests) / f64::from(all);
        serving.rested = serving.rested.max(now) + Nanos((part * (1.0 / SHARE - 1.0)) as u64);
    }

    fn most_at_once(&self, device: DeviceId) -> u32 {
        match self.extents.is_used(device) {
            true => self.store.guests_of(self.store.member(device)).clamp(1, MOST_BESIDE_GUESTS),
            false => MOST_AT_ONCE,
        }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// True if guests use a device now, or did within [`QUIET`].
    pub fn is_used(&self, device: DeviceId) -> bool {
        let member = self.store.member(device);
        let last = member.last_guest.get();
        self.store.guests_of(member) > 0 || last > Nanos::ZERO && self.rt.now() < last + QUIET
    }
}

impl Moves {
    /// True if the engine's budget applies, not a limit of the plan.
    fn has_budget(&self, mover: Mover, device: DeviceId) -> bool {
        mover == Mover::Engine || self.pace.share(device).is_none()
    }

    /// True if the plan yields to guests, and a guest has used any device since its start.
    pub(super) fn must_yield<D: Device>(&self, store: &Store<D>) -> bool {
        let is_back = |since| {
            store.devices.iter().any(|member| store.guests_of(member) > 0 || member.last_guest.get() > since)
        };
        self.yields_since.get().is_some_and(is_back)
    }

    /// Returns the longest request of a move.
    pub(super) fn longest_move(&self) -> Bytes {
        match self.yields_since.get() {
            Some(_) => LONGEST_YIELDING.min(LARGEST_BUFFER),
            None => LARGEST_BUFFER,
        }
    }
}
