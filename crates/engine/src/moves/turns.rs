//! The engine's budget for moves: guests first.
//!
//! While guests use a device, requests of moves take at most half of its time, and there are no more of them
//! than requests of guests that it serves: a guest that is alone meets one at most, and on a device that
//! guests saturate moves still get their part. With one for four of guests, a device that had become too hot
//! got rid of that too slowly: guests waited twice as long while the hot part of a volume moved about. A
//! device that no guest has used for a while gives moves all of its time, a few requests at once, so that a
//! disk can sort them; their length together is bounded, for that of a guest may come.
//!
//! Of the time that a request took, its part counts: among `n` that the device served, the `n`th. After that
//! it rests from moves for as long.
//!
//! A device that the plan limits by itself ([`super::pace`]) rests as the plan asks instead. A task that has
//! a turn waits for its devices, and for locks of extents, whose holders wait for no turn.
//!
//! A plan for idle time yields (`Plan::yields`): its requests are short, a device serves one of them at a
//! time, and once a guest is back nothing of it begins any more. What has been read is still written, in its
//! turn.

use super::Mover;
use super::runs::LONGEST_YIELDING;
use crate::core::Core;
use crate::jobs::Jobs;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::future::Future;

/// The share of a device's time for moves while guests use it.
const SHARE: f64 = 0.5;
/// Requests of moves that a device serves at the same time: as many pieces as two runs have, so that one is
/// read while the other is written.
const MOST_AT_ONCE: u32 = 16;
/// And while guests use it.
const MOST_BESIDE_GUESTS: u32 = 8;
/// Their length together, but for one alone: a disk reads that in 20 ms.
const MOST_BYTES_AT_ONCE: Bytes = Bytes(2 << 20);
/// For so long after its last guest's request, a device counts as used.
const QUIET: Nanos = Nanos::from_millis(100);

/// The requests of moves, by device.
pub(crate) struct Turns {
    devices: RefCell<Vec<Serving>>,
    /// How many have ended.
    ended: Cell<u64>,
}

#[derive(Clone, Copy, Default)]
struct Serving {
    requests: u32,
    bytes: Bytes,
    /// When the device has rested from moves so far.
    rested: Nanos,
}

impl Turns {
    pub fn new(devices: usize) -> Turns {
        Turns { devices: RefCell::new(vec![Serving::default(); devices]), ended: Cell::new(0) }
    }

    /// There are so many devices now.
    pub fn set_devices(&self, devices: usize) {
        self.devices.borrow_mut().resize(devices, Serving::default());
    }
}

/// Requests of moves that devices serve, until it is dropped.
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

impl<R: Runtime, D: Device> Core<R, D> {
    /// The share of a device's time that moves of the plan may take now.
    pub fn move_share(&self, device: DeviceId) -> f64 {
        let engine = if self.is_used(device) { SHARE } else { 1.0 };
        self.moves.pace.share(device).unwrap_or(engine)
    }

    /// A request of a move to a device, in its turn.
    pub async fn in_turn<T>(
        &self,
        mover: Mover,
        device: DeviceId,
        len: Bytes,
        work: impl Future<Output = T>,
    ) -> T {
        self.in_turn_together(mover, device, (1, len), work).await
    }

    /// So many requests of a move to a device, of this length together, in one turn.
    pub async fn in_turn_together<T>(
        &self,
        mover: Mover,
        device: DeviceId,
        (requests, len): (u32, Bytes),
        work: impl Future<Output = T>,
    ) -> T {
        let _turn = self.take_turn(mover, &[device], (requests, len)).await;
        let start = self.rt.now();
        let result = self.step(mover, &[device], work).await;
        self.count_together(mover, device, start, requests);
        result
    }

    /// Waits until devices have time for so many requests of a move each, of this length together, or until
    /// the volume closes; until the turn is dropped, they count. All devices are taken in the same moment, so
    /// that no two tasks wait for each other.
    pub async fn take_turn(
        &self,
        mover: Mover,
        devices: &[DeviceId],
        (requests, len): (u32, Bytes),
    ) -> Turn<'_> {
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
        while !self.jobs.are_ending() {
            let busy = devices.iter().filter_map(|&device| self.busy_until(mover, device, len)).max();
            let Some(until) = busy else { return };
            // A device that serves none has room for one: whatever is waited for ends.
            let ended = self.moves.turns.ended.get();
            self.pause(until, || self.moves.turns.ended.get() != ended).await;
        }
    }

    /// Until when a device has no time for a request of a move: [`Nanos::MAX`] if one that it serves must end
    /// first.
    fn busy_until(&self, mover: Mover, device: DeviceId, len: Bytes) -> Option<Nanos> {
        let Serving { requests, bytes, rested } = self.moves.turns.devices.borrow()[device.index()];
        let fits = requests == 0 || requests < self.most_at_once(device) && bytes + len <= MOST_BYTES_AT_ONCE;
        let rests = self.has_budget(mover, device) && rested > self.rt.now();
        match fits {
            true => rests.then_some(rested),
            false => Some(Nanos::MAX),
        }
    }

    /// A request of a move that began at `start` has ended.
    pub fn count(&self, mover: Mover, device: DeviceId, start: Nanos) {
        self.count_together(mover, device, start, 1);
    }

    fn count_together(&self, mover: Mover, device: DeviceId, start: Nanos, requests: u32) {
        if !self.has_budget(mover, device) || !self.is_used(device) {
            return;
        }
        let now = self.rt.now();
        let others = self.guests_of(self.member(device));
        let mut devices = self.moves.turns.devices.borrow_mut();
        let serving = &mut devices[device.index()];
        let all = others + serving.requests.max(requests);
        let part = (now.saturating_sub(start)).0 as f64 * f64::from(requests) / f64::from(all);
        serving.rested = serving.rested.max(now) + Nanos((part * (1.0 / SHARE - 1.0)) as u64);
    }

    fn most_at_once(&self, device: DeviceId) -> u32 {
        match self.is_used(device) {
            true => self.guests_of(self.member(device)).clamp(1, MOST_BESIDE_GUESTS),
            false => MOST_AT_ONCE,
        }
    }

    /// Whether the engine's budget holds, not a limit of the plan.
    fn has_budget(&self, mover: Mover, device: DeviceId) -> bool {
        mover == Mover::Engine || self.moves.pace.share(device).is_none()
    }

    /// Whether a guest has used a device since a plan began that yields to guests.
    pub(super) fn must_yield(&self) -> bool {
        let is_back = |since| {
            self.devices.iter().any(|member| self.guests_of(member) > 0 || member.last_guest.get() > since)
        };
        self.moves.yields_since.get().is_some_and(is_back)
    }

    /// The longest request of a move.
    pub(super) fn longest_move(&self) -> Bytes {
        match self.moves.yields_since.get() {
            Some(_) => LONGEST_YIELDING.min(self.bounce_limit()),
            None => self.bounce_limit(),
        }
    }

    /// Whether guests use a device, or have a moment ago.
    pub fn is_used(&self, device: DeviceId) -> bool {
        let member = self.member(device);
        let last = member.last_guest.get();
        self.guests_of(member) > 0 || last > Nanos::ZERO && self.rt.now() < last + QUIET
    }
}
