//! Work in the background that a policy asks for.

use crate::{ByteRange, Direction};
use braid_base::{Bytes, DeviceId, ExtentId};

/// One piece of background work. The engine does it later than guests' requests, and not at all if it has
/// become impossible or a guest's write has overtaken it: [`crate::Policy::done`] tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Give an extent a new home.
    Migrate {
        /// Which extent.
        extent: ExtentId,
        /// Its home to be.
        target: DeviceId,
    },
    /// Give an extent its second required copy.
    Mirror {
        /// Which extent.
        extent: ExtentId,
        /// Where the copy shall be.
        target: DeviceId,
    },
    /// Make clean extra copies of the blocks that a range covers whole and that have none.
    Promote {
        /// Which bytes of the volume.
        range: ByteRange,
        /// Where the copies shall be.
        target: DeviceId,
    },
    /// Drop the extra copies of all blocks that a range touches; dirty ones are written back first.
    Demote {
        /// Which bytes of the volume.
        range: ByteRange,
    },
    /// Bring the required copies of all dirty blocks that a range touches up to date, in the order of their
    /// addresses. The extra copies stay, clean.
    WriteBack {
        /// Which bytes of the volume.
        range: ByteRange,
    },
    /// Bring the second required copy up to date wherever it is behind in a range.
    Resync {
        /// Which bytes of the volume.
        range: ByteRange,
        /// What lies between two ranges that are behind is copied with them, if it is shorter.
        gap: Bytes,
    },
    /// Show the policy what the volume holds there: [`crate::Policy::inspected`].
    Inspect {
        /// Which bytes of the volume, at most [`crate::LONGEST_INSPECTED`].
        range: ByteRange,
    },
    /// End an epoch: the disk that keeps epochs is to be as new as possible.
    EndEpoch,
    /// Ask a device how fast it is now, with a request as guests make them on average.
    Probe {
        /// Which device.
        device: DeviceId,
        /// Read or write (into a free slot).
        direction: Direction,
        /// How much.
        len: Bytes,
    },
}

impl Move {
    /// The usual gap of [`Move::Resync`]: a disk passes over less in less time than it takes to position
    /// anew.
    pub const GAP: Bytes = Bytes(64 << 10);
}

/// What became of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done, or there was nothing to do.
    Finished,
    /// It was given up: a guest's write came first, there was no room, it was no longer possible, or a newer
    /// plan replaced it. Nothing has changed, or, of a range, only a part.
    Stopped,
    /// A device failed. Nothing has changed, or, of a range, only a part.
    Failed,
}

/// What to do until the policy is asked again.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order of importance. The engine carries out some at the same time, and sorts the next thousand or
    /// so migrations by where their extents lie now.
    pub moves: Vec<Move>,
    /// Whether the policy is asked again at the time that it named, even if not all moves have begun by then:
    /// those that have not are given up. Otherwise it is asked only after all have ended.
    pub revise: bool,
    /// Whether the moves are for idle time: a request of a guest, to any device, ends the plan. What has not
    /// begun by then is given up; what has begun ends within the engine's budget. Until then a device serves
    /// one request of such a plan at a time, of 256 KiB at most.
    pub yields: bool,
    /// Whether the policy is asked again as soon as so much is behind, once all moves have ended, and before
    /// the time that it named.
    pub wake: Option<Bytes>,
    /// By device: the share of its time for moves, where the policy says it.
    shares: Vec<Option<f64>>,
}

impl Plan {
    /// Limits the moves on a device to a share of its time, between 0 and 1, until the next plan. The least
    /// share is [`Plan::LEAST_SHARE`]: a policy that wants nothing moved plans no moves.
    ///
    /// Below 1, the engine runs one move, or one run of migrations, at a time on such a device. After each
    /// step of it (a request of up to 1 MiB) that took the device a time `t`, the next one waits for `t (1 /
    /// share − 1)`, also if the plan changes meanwhile. Moves on other devices go on. A plan without `revise`
    /// lasts until its moves have ended, however long that takes.
    ///
    /// A device without a limit gives migrations and second copies half of its time while guests use it, and
    /// all of it otherwise.
    pub fn limit(&mut self, device: DeviceId, share: f64) {
        if self.shares.len() <= device.index() {
            self.shares.resize(device.index() + 1, None);
        }
        self.shares[device.index()] = Some(share.clamp(Plan::LEAST_SHARE, 1.0));
    }

    /// The share of a device's time that the policy limits moves to; none if it leaves that to the engine.
    pub fn share(&self, device: DeviceId) -> Option<f64> {
        self.shares.get(device.index()).copied().flatten()
    }

    /// Begins a new plan: no moves, no limits.
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
