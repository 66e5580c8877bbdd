//! Where the arm stands, and how long it takes until a place passes under its head.

use crate::Op;
use crate::hdd::geometry::{Geometry, Place};
use crate::hdd::seek::Curve;
use braid_base::Nanos;

/// The arm over a turning disk.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The layout beneath it.
    pub geometry: Geometry,
    curve: Curve,
    phase: Nanos,
    cylinder: u32,
    head: u32,
}

impl Arm {
    /// An arm at the outer edge; `phase` is how far into its turn the disk is at time zero.
    pub fn new(geometry: Geometry, curve: Curve, phase: Nanos) -> Arm {
        Arm { geometry, curve, phase, cylinder: 0, head: 0 }
    }

    /// The cylinder that it stands at.
    pub fn cylinder(&self) -> u32 {
        self.cylinder
    }

    /// Puts it where this sector lies.
    pub fn leave_at(&mut self, sector: u64) {
        let place = self.geometry.locate(sector);
        (self.cylinder, self.head) = (place.cylinder, place.head);
    }

    /// How long from `now` until a read can begin at this sector.
    pub fn wait_for_sector(&self, sector: u64, now: Nanos) -> Nanos {
        self.wait_for(self.geometry.locate(sector), Op::Read, now)
    }

    /// How long from `now` until a read or write can begin at a place: the seek or the switch of heads, then
    /// what is left of the turn.
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
