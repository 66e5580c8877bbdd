//! The engine's budget for moves: guests first.
//!
//! While guests use a device, requests of moves take at most half of its time, and there are no more of them than requests of guests that it
//! serves: a guest that is alone meets one at most, and on a device that guests saturate moves still get their part. With one for four
//! of guests, a device that had become too hot got rid of that too slowly: guests waited twice as long while the hot part of a volume
//! moved about. A device that no guest has used for a while gives moves all of its time, a few requests at once, so that a disk can sort them; their length
//! together is bounded, for that of a guest may come.
//!
//! Of the time that a request took, its part counts: among `n` that the device served, the `n`th. After that it rests from moves for as long.
//!
//! A device that the plan limits by itself ([`super::pace`]) rests as the plan asks instead. A task that has a turn waits for its device alone.

use super::Mover;
use crate::core::Core;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::future::Future;

/// The share of a device's time for moves while guests use it.
const SHARE: f64 = 0.5;
/// Requests of moves that a device serves at the same time.
const MOST_AT_ONCE: u32 = 8;
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
        self.give_way(mover, device, len).await;
        self.change(device, |serving| {
            serving.requests += requests;
            serving.bytes += len;
        });
        let start = self.rt.now();
        let result = self.step(mover, &[device], work).await;
        self.count_together(mover, device, start, requests);
        self.change(device, |serving| {
            serving.requests -= requests;
            serving.bytes -= len;
        });
        self.moves.turns.ended.set(self.moves.turns.ended.get() + 1);
        self.jobs.wake();
        result
    }

    /// Waits until a device has time for a request of a move, or the volume closes.
    pub async fn give_way(&self, mover: Mover, device: DeviceId, len: Bytes) {
        while !self.jobs.are_ending() {
            let Serving { requests, bytes, rested } = self.moves.turns.devices.borrow()[device.index()];
            let fits =
                requests == 0 || requests < self.most_at_once(device) && bytes + len <= MOST_BYTES_AT_ONCE;
            let rests = self.has_budget(mover, device) && rested > self.rt.now();
            if fits && !rests {
                return;
            }
            // A device that serves none has room for one: whatever is waited for ends.
            let ended = self.moves.turns.ended.get();
            let until = if fits { rested } else { Nanos::MAX };
            self.pause(until, || self.moves.turns.ended.get() != ended).await;
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
        self.change(device, |serving| {
            let all = others + serving.requests.max(requests);
            let part = (now.saturating_sub(start)).0 as f64 * f64::from(requests) / f64::from(all);
            serving.rested = serving.rested.max(now) + Nanos((part * (1.0 / SHARE - 1.0)) as u64);
        });
    }

    fn change(&self, device: DeviceId, change: impl FnOnce(&mut Serving)) {
        change(&mut self.moves.turns.devices.borrow_mut()[device.index()]);
    }

    fn most_at_once(&self, device: DeviceId) -> u32 {
        match self.is_used(device) {
            true => self.guests_of(self.member(device)).clamp(1, MOST_AT_ONCE),
            false => MOST_AT_ONCE,
        }
    }

    /// Whether the engine's budget holds, not a limit of the plan.
    fn has_budget(&self, mover: Mover, device: DeviceId) -> bool {
        mover == Mover::Engine || self.moves.pace.share(device).is_none()
    }

    /// Whether guests use a device, or have a moment ago.
    fn is_used(&self, device: DeviceId) -> bool {
        let member = self.member(device);
        let last = member.last_guest.get();
        self.guests_of(member) > 0 || last > Nanos::ZERO && self.rt.now() < last + QUIET
    }
}
