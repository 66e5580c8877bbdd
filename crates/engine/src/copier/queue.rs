//! Order of the moves of a plan.
//!
//! The policy names moves in order of importance. Migrations are taken from the front of the list, many at a
//! time, and sorted by source device and slot, so that a disk passes over its surface once. Migrations from
//! neighbouring slots to the same device are one *run*, read in one request. Runs from different devices take
//! turns. All other moves keep the policy's order.

use super::run::{LONGEST_RUN, LONGEST_YIELDING};
use braid_base::{Bytes, DeviceId, ExtentId, Slot};
use braid_policy::Move;
use std::collections::VecDeque;

/// Unit of work: a move, or migrations that are read in one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MoveTask {
    One(Move),
    Run(MigrationRun),
}

/// Migrations of adjacent extents of one device to another device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MigrationRun {
    /// In the order of their slots.
    pub extents: Vec<ExtentId>,
    pub target: DeviceId,
}

/// The moves of a plan that have not begun.
pub(crate) struct Queue {
    /// In the policy's order.
    moves: VecDeque<Move>,
    /// The first moves, in the order of execution.
    next: VecDeque<MoveTask>,
    /// Most extents in a run.
    longest: usize,
}

/// Moves sorted at a time. The bound keeps the most important moves first in a plan that is cancelled before
/// its end.
const SORTED: usize = 1024;

impl MoveTask {
    /// Returns the number of moves.
    pub fn len(&self) -> usize {
        match self {
            MoveTask::One(_) => 1,
            MoveTask::Run(run) => run.extents.len(),
        }
    }

    /// Returns the moves as the policy named them.
    pub fn moves(&self) -> Vec<Move> {
        match self {
            MoveTask::One(job) => vec![*job],
            MoveTask::Run(MigrationRun { extents, target }) => {
                extents.iter().map(|&extent| Move::Migrate { extent, target: *target }).collect()
            }
        }
    }
}

impl Queue {
    pub fn new(moves: Vec<Move>, extent_size: Bytes, yields: bool) -> Queue {
        let longest = if yields { LONGEST_YIELDING } else { LONGEST_RUN };
        let longest = (longest / extent_size).max(1) as usize;
        Queue { moves: moves.into(), next: VecDeque::new(), longest }
    }

    /// Returns the number of moves that have not begun.
    pub fn len(&self) -> usize {
        self.moves.len() + self.next.iter().map(MoveTask::len).sum::<usize>()
    }

    /// Takes the first task that is `ready`. `slot` returns the slot of an extent's home.
    pub fn take(
        &mut self,
        slot: impl Fn(ExtentId) -> Option<Slot>,
        ready: impl FnMut(&MoveTask) -> bool,
    ) -> Option<MoveTask> {
        if self.next.is_empty() {
            self.sort(slot);
        }
        let place = self.next.iter().position(ready)?;
        self.next.remove(place)
    }

    /// Takes all remaining moves.
    pub fn drain(&mut self) -> Vec<Move> {
        let mut left: Vec<Move> = self.next.drain(..).flat_map(|task| task.moves()).collect();
        left.extend(self.moves.drain(..));
        left
    }

    fn sort(&mut self, slot: impl Fn(ExtentId) -> Option<Slot>) {
        let mut migrations = Vec::new();
        for job in self.moves.drain(..SORTED.min(self.moves.len())) {
            match job {
                Move::Migrate { extent, target } => migrations.push((slot(extent), extent, target)),
                _ => self.next.push_back(MoveTask::One(job)),
            }
        }
        // Extents without a home come first: their moves end at once.
        migrations.sort_by_key(|&(slot, ..)| slot.map(|slot| (slot.device, slot.index)));
        let mut sources: Vec<VecDeque<MigrationRun>> = Vec::new();
        for from_one in migrations.chunk_by(|(a, ..), (b, ..)| a.map(|s| s.device) == b.map(|s| s.device)) {
            let beside = |(a, _, to): &Migration, (b, _, other): &Migration| {
                let index = |slot: &Option<Slot>| slot.map(|slot| slot.index);
                to == other && a.is_some() && index(a).map(|index| index + 1) == index(b)
            };
            let chunks = from_one.chunk_by(beside).flat_map(|chunk| chunk.chunks(self.longest));
            let run = |chunk: &[Migration]| MigrationRun {
                extents: chunk.iter().map(|&(_, extent, _)| extent).collect(),
                target: chunk[0].2,
            };
            sources.push(chunks.map(run).collect());
        }
        while sources.iter().any(|runs| !runs.is_empty()) {
            self.next.extend(sources.iter_mut().filter_map(VecDeque::pop_front).map(MoveTask::Run));
        }
    }
}

/// Source slot, extent, target.
type Migration = (Option<Slot>, ExtentId, DeviceId);

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::KIB;
    use braid_policy::Direction;

    const DISK: DeviceId = DeviceId(0);
    const SSD: DeviceId = DeviceId(1);

    /// Extents below 100 lie on the disk in order, from slot 1000 on, other extents on the SSD.
    fn slot(extent: ExtentId) -> Option<Slot> {
        let device = if extent.0 < 100 { DISK } else { SSD };
        Some(Slot { device, index: 1000 + extent.0 })
    }

    fn migrate(extent: u32) -> Move {
        Move::Migrate { extent: ExtentId(extent), target: if extent < 100 { SSD } else { DISK } }
    }

    fn tasks(moves: Vec<Move>) -> Vec<Vec<u32>> {
        let mut queue = Queue::new(moves, KIB * 256, false);
        let next = std::iter::from_fn(|| queue.take(slot, |_| true));
        next.map(|task| match task {
            MoveTask::One(_) => Vec::new(),
            MoveTask::Run(run) => run.extents.iter().map(|extent| extent.0).collect(),
        })
        .collect()
    }

    #[test]
    fn neighbours_join_into_1_mib_runs_with_alternating_devices() {
        let moves = [5, 103, 7, 3, 4, 50, 8, 6, 101].map(migrate);
        assert_eq!(tasks(moves.to_vec()), [vec![3, 4, 5, 6], vec![101], vec![7, 8], vec![103], vec![50]]);
    }

    #[test]
    fn neighbours_with_different_targets_are_separate_runs() {
        let elsewhere = Move::Migrate { extent: ExtentId(4), target: DeviceId(2) };
        assert_eq!(tasks(vec![migrate(5), elsewhere, migrate(3)]), [[3], [4], [5]]);
    }

    #[test]
    fn probe_precedes_migrations_and_no_move_is_lost() {
        let probe = Move::Probe { device: SSD, direction: Direction::Read, len: KIB };
        assert_eq!(tasks(vec![migrate(5), probe, migrate(4)]), [vec![], vec![4, 5]]);
        let mut queue = Queue::new((0..90).map(migrate).collect(), KIB * 256, false);
        assert_eq!(queue.take(slot, |_| true).map(|task| task.len()), Some(4));
        assert_eq!(queue.len(), 86);
        assert_eq!(queue.drain(), (4..90).map(migrate).collect::<Vec<_>>());
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn the_most_important_moves_come_first_in_a_long_plan() {
        let far: Vec<Move> = (0..2 * SORTED as u32).rev().map(|extent| migrate(extent + 100)).collect();
        let first = tasks(far).into_iter().flatten().take(SORTED).min();
        assert_eq!(first, Some(100 + SORTED as u32));
    }
}
