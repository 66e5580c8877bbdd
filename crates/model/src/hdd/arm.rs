//! The position of the arm, and the time until a place passes under its head.

use crate::Op;
use crate::hdd::geometry::{Geometry, Place};
use crate::hdd::seek::Curve;
use braid_base::Nanos;

/// The arm over a turning disk.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The layout of the disk.
    pub geometry: Geometry,
    curve: Curve,
    phase: Nanos,
    cylinder: u32,
    head: u32,
}

impl Arm {
    /// An arm at the outer edge; `phase` is the disk's angle at time zero.
    pub fn new(geometry: Geometry, curve: Curve, phase: Nanos) -> Arm {
        Arm { geometry, curve, phase, cylinder: 0, head: 0 }
    }

    /// The cylinder of the arm.
    pub fn cylinder(&self) -> u32 {
        self.cylinder
    }

    /// Moves the arm to the place of a sector.
    pub fn leave_at(&mut self, sector: u64) {
        let place = self.geometry.locate(sector);
        (self.cylinder, self.head) = (place.cylinder, place.head);
    }

    /// The time from `now` until a read can begin at a sector.
    pub fn wait_for_sector(&self, sector: u64, now: Nanos) -> Nanos {
        self.wait_for(self.geometry.locate(sector), Op::Read, now)
    }

    /// The time from `now` until a read or write can begin at a place: the seek or the head switch, then the
    /// rest of the turn.
    pub fn wait_for(&self, place: Place, op: Op, now: Nanos) -> Nanos {
        let distance = self.cylinder.abs_diff(place.cylinder);
        let seek = match op {
            _ if distance == 0 && self.head != place.head => self.geometry.head_switch(),
            Op::Write => self.curve.write(distance, self.geometry.stroke()),
            _ => self.curve.read(distance, self.geometry.stroke()),
        };
        let turn = self.geometry.revolution();
        let angle = Nanos((now + self.phase + seek).0 % turn.0);
        let rest = if place.angle >= angle { place.angle - angle } else { place.angle + turn - angle };
        seek + rest
    }
}
