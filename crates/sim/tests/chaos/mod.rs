//! A policy that makes every legal decision at random: if nothing is lost under this policy, the engine is
//! safe under any policy.
#![allow(dead_code, reason = "each programme of tests uses a part of it")]

use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos, Rng};
use braid_policy::{
    ByteRange, CurrentCopy, DeviceView, ExtraCopy, Move, Occasion, Outcome, Piece, Placement, Plan, Policy,
    Request, Second, View,
};

pub struct Chaos {
    rng: Rng,
    extras: Vec<(BlockId, ExtraCopy)>,
    /// Moves of the last plan still in progress.
    planned: usize,
    habit: Habit,
    /// True if some writes bypass the extra copies and go to the home alone.
    past: bool,
}

/// The policy's most frequent decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    None,
    /// Nearly every write makes a dirty extra copy on the first device; the copies may fill the device.
    Dirties,
    /// Nearly every read makes a clean extra copy on the first device; the device has room for few copies.
    Caches,
}

impl Chaos {
    pub fn new(rng: Rng) -> Chaos {
        Chaos { rng, extras: Vec::new(), planned: 0, habit: Habit::None, past: true }
    }

    /// The same, but most reads and writes make an extra copy on the first device, and little is written
    /// back.
    pub fn dirtying(self) -> Chaos {
        Chaos { habit: Habit::Dirties, ..self }
    }

    /// The same, but most reads make an extra copy on the first device, and most writes go to the home.
    pub fn caching(self) -> Chaos {
        Chaos { habit: Habit::Caches, ..self }
    }

    /// The same, but no write bypasses the extra copies.
    pub fn never_past(self) -> Chaos {
        Chaos { past: false, ..self }
    }

    fn device(&mut self, view: &View) -> DeviceId {
        view.devices[self.rng.below(view.devices.len() as u64) as usize].id
    }

    fn extent(&mut self, view: &View) -> ExtentId {
        ExtentId(self.rng.below(u64::from(view.homes.extents())) as u32)
    }

    /// A range of up to three extents from anywhere in an extent, sometimes beyond the end of the volume.
    fn range(&mut self, view: &View) -> ByteRange {
        let start = view.range_of_extent(self.extent(view)).start + Bytes(self.rng.below(view.extent_size.0));
        ByteRange::new(start, Bytes(self.rng.below(view.extent_size.0 * 3)))
    }

    fn place_write<'a>(&mut self, write: &Piece<'a>, view: &View) -> Placement<'a> {
        let device = self.device(view);
        match self.habit {
            Habit::Dirties if self.rng.chance(0.7) => return Placement::write_back(view.devices[0].id),
            Habit::Caches if self.rng.chance(0.9) => return Placement::KEEP,
            _ => {}
        }
        match (self.rng.below(4), write.whole) {
            (0, _) => Placement::write_back(device),
            (1, Some(whole)) => Placement::moved(device, whole),
            (2, _) if self.past => Placement::ALONE,
            _ => Placement::KEEP,
        }
    }

    fn extra(&mut self) -> Option<BlockId> {
        let count = self.extras.len() as u64;
        (count > 0).then(|| self.extras[self.rng.below(count) as usize].0)
    }
}

impl Policy for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        let placement = match occasion {
            Occasion::New { .. } => {
                let extra = self.rng.chance(0.3).then(|| self.device(view));
                Placement::on(self.device(view)).with_extra(extra)
            }
            Occasion::Write(write) => self.place_write(write, view),
            Occasion::ReadHit(_) => Placement::KEEP,
            // A separate draw: a draw from the main stream would change the trials of `regressions.txt`.
            Occasion::ReadMiss(_) if self.past && self.rng.clone().chance(0.3) => Placement::ALONE,
            Occasion::ReadMiss(_) => {
                let extra = match self.habit {
                    Habit::Caches => self.rng.chance(0.9).then(|| view.devices[0].id),
                    _ => self.rng.chance(0.3).then(|| self.device(view)),
                };
                Placement::cached(extra)
            }
        };
        let device = self.device(view);
        let second = [Second::None, Second::Sync(device), Second::Behind { device, most: Bytes(u64::MAX) }];
        // An answer to another question is legal too, and falls back.
        let answer = if self.rng.chance(0.05) { Placement::write_back(device) } else { placement };
        answer.with_second(second[self.rng.below(3) as usize])
    }

    fn observes(&self) -> bool {
        true
    }

    fn throttle(&mut self, _: &Request, _: &View) -> Nanos {
        if self.rng.chance(0.02) { Nanos(self.rng.below(2_000_000)) } else { Nanos::ZERO }
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], view: &View) {
        copies.rotate_left(view.now.0 as usize % copies.len().max(1));
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if self.habit == Habit::Dirties { device.slots / 2 } else { 3 }
    }

    fn evict(&mut self, device: DeviceId, _: &View) -> Option<BlockId> {
        let here: Vec<BlockId> =
            self.extras.iter().filter(|(_, copy)| copy.device == device).map(|(b, _)| *b).collect();
        (!here.is_empty()).then(|| here[self.rng.below(here.len() as u64) as usize])
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        let place = self.extras.iter().position(|(b, _)| *b == block);
        let known = place.map(|place| self.extras.swap_remove(place).1);
        assert_eq!(before, known, "{block:?} was this");
        assert_ne!(before, now, "{block:?} has changed");
        self.extras.extend(now.map(|copy| (block, copy)));
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        assert_eq!(self.planned, 0, "every move of the last plan has ended");
        let most = if self.habit != Habit::None && self.rng.chance(0.8) { 1 } else { 4 };
        for _ in 0..self.rng.below(most) {
            let (extent, target) = (self.extent(view), self.device(view));
            let block = self.extra().map(|block| view.range_of_block(block));
            plan.moves.push(match (self.rng.below(8), block) {
                (0, Some(range)) => Move::WriteBack { range },
                (1, Some(range)) => Move::Demote { range },
                (2, _) => Move::Mirror { extent, target },
                (3, _) => Move::Promote { range: self.range(view), target },
                (4, _) => Move::WriteBack { range: self.range(view) },
                (5, _) => Move::Resync { range: self.range(view), gap: Move::GAP },
                _ => Move::Migrate { extent, target },
            });
        }
        self.planned = plan.moves.len();
        plan.revise = self.rng.chance(0.3);
        plan.limit(self.device(view), 0.5);
        view.now + Nanos(self.rng.below(3_000_000))
    }

    fn done(&mut self, _: &Move, _: Outcome) {
        self.planned -= 1;
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "chance".to_owned()
    }
}
