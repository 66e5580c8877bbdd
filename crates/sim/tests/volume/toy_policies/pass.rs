//! PASS (Xiao et al.): homes lie on the SSD, second copies on the disk, stale by at most the window. A full
//! window is duplicated in the order of addresses, and a part of the window whenever the disk is idle.
//! Writes wait longer as more duplications are outstanding.

use super::{HDD, SSD};
use braid_base::{Bytes, ExtentId, Nanos, Op};
use braid_policy::{
    CopyKind, CurrentCopy, Move, Occasion, Outcome, Placement, Plan, Policy, Request, Second, View,
};

pub struct Pass {
    /// Maximum amount of stale data.
    pub window: Bytes,
    /// Duplications requested and not ended.
    outstanding: u32,
}

/// The paper's base time, outstanding threshold, and N.
const BASE: Nanos = Nanos::from_millis(1);
const THRESHOLD: u64 = 8;
const MOST: u64 = 4;
/// Ranges that are duplicated in idle time before the policy looks again.
const IDLE_BATCH: usize = 4;

impl Pass {
    pub fn new(window: Bytes) -> Pass {
        Pass { window, outstanding: 0 }
    }
}

impl Policy for Pass {
    fn observes(&self) -> bool {
        true
    }

    fn throttle(&mut self, request: &Request, _: &View) -> Nanos {
        let outstanding = u64::from(self.outstanding);
        match request.op {
            Op::Write => Nanos(BASE.0 * outstanding / THRESHOLD).min(Nanos(BASE.0 * MOST)),
            Op::Read | Op::Flush | Op::Discard => Nanos::ZERO,
        }
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::on(SSD).with_second(Second::Behind { device: HDD, most: self.window })
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], _: &View) {
        copies.sort_unstable_by_key(|copy| copy.kind != CopyKind::Home);
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let full = view.homes.behind() >= self.window;
        let idle = view.devices[HDD.index()].in_flight == 0;
        if full || idle {
            let next = |range: &braid_policy::ByteRange| view.homes.next_behind(range.end);
            let window = std::iter::successors(view.homes.next_behind(Bytes::ZERO), next);
            let some = window.take(if full { usize::MAX } else { IDLE_BATCH });
            plan.moves.extend(some.map(|range| Move::Resync { range, gap: Move::GAP }));
        }
        // In idle time a window that fills meanwhile must not wait for the end of this plan.
        plan.revise = !full;
        self.outstanding = plan.moves.len() as u32;
        view.now + Nanos::from_millis(10)
    }

    fn done(&mut self, _: &Move, _: Outcome) {
        self.outstanding -= 1;
    }

    fn name(&self) -> &'static str {
        "toy-pass"
    }

    fn explain(&self, _: ExtentId, view: &View) -> String {
        let behind = view.homes.behind();
        format!("home on {SSD}; second copies on {HDD}, {behind} of {} behind", self.window)
    }
}
