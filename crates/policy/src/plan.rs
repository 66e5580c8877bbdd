//! Background work planned by a policy.

use crate::{ByteRange, Direction};
use braid_base::{Bytes, DeviceId, ExtentId};

/// A unit of background work. The engine gives guests' requests precedence. A move is not carried out if the
/// move has become impossible or a guest's write has overtaken it: see [`crate::Policy::done`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Give an extent a new home.
    Migrate {
        /// The extent.
        extent: ExtentId,
        /// Device of the new home.
        target: DeviceId,
    },
    /// Give an extent its second required copy.
    Mirror {
        /// The extent.
        extent: ExtentId,
        /// Device of the copy.
        target: DeviceId,
    },
    /// Make clean extra copies of the blocks that a range covers whole, if a block has none.
    Promote {
        /// Bytes of the volume.
        range: ByteRange,
        /// Device of the copies.
        target: DeviceId,
    },
    /// Drop the extra copies of all blocks that a range touches. Dirty copies are written back first.
    Demote {
        /// Bytes of the volume.
        range: ByteRange,
    },
    /// Bring the required copies of all dirty blocks that a range touches up to date, in address order. The
    /// extra copies stay, clean.
    WriteBack {
        /// Bytes of the volume.
        range: ByteRange,
    },
    /// Bring the stale ranges of the second required copy up to date, within a range.
    Resync {
        /// Bytes of the volume.
        range: ByteRange,
        /// Gaps shorter than this between two stale ranges are copied, too.
        gap: Bytes,
    },
    /// Show the policy the bytes of a range: [`crate::Policy::inspected`].
    Inspect {
        /// Bytes of the volume, at most [`crate::LONGEST_INSPECTED`].
        range: ByteRange,
    },
    /// End an epoch: the image is to be as new as possible.
    EndEpoch,
    /// Measure the present speed of a device, with a request like an average guest's request.
    Probe {
        /// The device.
        device: DeviceId,
        /// Read, or write into a free slot.
        direction: Direction,
        /// Length of the request.
        len: Bytes,
    },
}

impl Move {
    /// The usual gap of [`Move::Resync`]: a disk passes over a shorter gap in less time than a seek takes.
    pub const GAP: Bytes = Bytes(64 << 10);
}

/// Result of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The move was carried out, or had nothing to do.
    Finished,
    /// The move was abandoned: a guest's write came first, there was no room, the move was no longer
    /// possible, or a newer plan replaced the move. Nothing has changed, or, for a range, only a part.
    Stopped,
    /// A device failed. Nothing has changed, or, for a range, only a part.
    Failed,
}

/// Work until the policy is asked again.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order of importance. The engine carries out several moves at the same time, and sorts the next
    /// thousand or so migrations by source slot.
    pub moves: Vec<Move>,
    /// True if the engine asks again at the time named by the policy, even if some moves have not begun: such
    /// moves are abandoned. Otherwise the engine asks only after all moves have ended.
    pub revise: bool,
    /// True if the moves are for idle time: a guest's request to any device ends the plan. Moves that have
    /// not begun are abandoned; moves in flight end within the engine's budget. Until then, a device serves
    /// one request of the plan at a time, of 256 KiB at most.
    pub yields: bool,
    /// Stale bytes at which the engine asks again before the time named by the policy, once all moves have
    /// ended.
    pub wake: Option<Bytes>,
    /// Share of each device's time for moves, by device id, if set.
    shares: Vec<Option<f64>>,
}

impl Plan {
    /// Limits the moves on a device to a share of its time, between 0 and 1, until the next plan. The least
    /// share is [`Plan::LEAST_SHARE`]: a policy without work plans no moves.
    ///
    /// Below 1, the engine runs one move, or one run of migrations, at a time on the device. After each step
    /// (a request of up to 1 MiB) that took the device a time `t`, the next step waits for `t (1 / share −
    /// 1)`. The wait continues if the plan changes meanwhile. Moves on other devices continue. A plan without
    /// `revise` lasts until its moves have ended, however long.
    ///
    /// A device without a limit gives migrations and second copies half of its time while guests use the
    /// device, and all of its time otherwise.
    pub fn limit(&mut self, device: DeviceId, share: f64) {
        if self.shares.len() <= device.index() {
            self.shares.resize(device.index() + 1, None);
        }
        self.shares[device.index()] = Some(share.clamp(Plan::LEAST_SHARE, 1.0));
    }

    /// Returns the policy's share for moves on a device; `None` leaves the limit to the engine.
    pub fn share(&self, device: DeviceId) -> Option<f64> {
        self.shares.get(device.index()).copied().flatten()
    }

    /// Begins a new plan, without moves or limits.
    pub fn clear(&mut self) {
        self.moves.clear();
        self.shares.clear();
        self.revise = false;
        self.yields = false;
        self.wake = None;
    }

    /// The least share of a device's time: a move that has begun must end.
    pub const LEAST_SHARE: f64 = 0.001;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_limit_is_left_to_the_engine() {
        let mut plan = Plan::default();
        plan.limit(DeviceId(2), 0.1);
        plan.limit(DeviceId(1), -3.0);
        let shares = [0, 1, 2, 3].map(|device| plan.share(DeviceId(device)));
        assert_eq!(shares, [None, Some(Plan::LEAST_SHARE), Some(0.1), None]);
        plan.clear();
        assert_eq!(plan.share(DeviceId(2)), None);
    }
}
