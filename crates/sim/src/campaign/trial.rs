//! A trial: the fate of one snapshot.

use crate::campaign::run::{Run, Snapshot};
use crate::campaign::{Failure, Report, Subject, TrialId};
use crate::{SharedOracle, StoredDisk, StoredMemory, World};
use braid_base::Rng;
use std::cell::RefCell;
use std::rc::Rc;

/// One outcome of one snapshot, and the lives that follow.
pub(super) struct Trial<'a, S> {
    pub run: &'a Run<'a, S>,
    pub id: TrialId,
    pub disks: Vec<StoredDisk>,
    /// States of the disks after lives with an open volume, oldest first.
    pub earlier: Vec<Vec<StoredDisk>>,
    /// True if the volume was open in the previous life.
    pub was_open: bool,
    pub oracle: SharedOracle,
    /// The subject that opens the volume next.
    pub subject: S,
    /// Memory left by dead software, if worlds have lasting memory.
    pub memory: Option<StoredMemory>,
    /// True if the software of this life finds the memory.
    pub has_memory: bool,
    pub rng: Rng,
    pub life: u64,
}

/// Kind of a life after the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LifeKind {
    /// Open, verify, audit, verify again, without disturbances. The trial ends afterwards.
    Recovery,
    /// More work, cuts, disturbances.
    Full,
    /// As `Full`, but without disturbances: the previous opening was refused.
    Undisturbed,
}

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// All work was done.
    Peace,
    /// Power cut, kill or death after the verification of all bytes.
    Cut,
    /// Power cut, kill or death before the verification of all bytes.
    CutInRecovery,
    /// A disturbed opening was refused.
    RefusedForAWhile,
    /// Opening was refused, as the campaign allows.
    RefusedForGood,
}

/// Share of deaths after which the next software finds the memory. Otherwise the software counts as started
/// elsewhere.
const WITH_MEMORY: f64 = 0.9;

/// Number of lives that may end early: the next life is a mere recovery.
const FULL_LIVES: u64 = 3;

impl<'a, S: Subject> Trial<'a, S> {
    pub(super) fn new(run: &'a Run<'a, S>, snapshot: &Snapshot<S>, outcome: u64) -> Trial<'a, S> {
        let place = snapshot.point.unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Trial {
            run,
            id: TrialId { point: snapshot.point, outcome, ..run.id.clone() },
            disks: snapshot.disks.clone(),
            earlier: Vec::new(),
            was_open: true,
            oracle: Rc::new(RefCell::new(snapshot.oracle.clone())),
            subject: snapshot.subject.clone(),
            memory: snapshot.memory.clone(),
            has_memory: snapshot.memory.is_some(),
            // Separate from the world's stream: outcomes do not depend on the remainder of the run.
            rng: Rng::new(run.id.seed ^ place ^ (outcome << 56)),
            life: 0,
        }
    }

    /// Ends the previous life, and runs all further lives.
    pub(super) fn run(mut self, report: &mut Report) -> Result<(), Box<Failure>> {
        report.states += 1;
        let goes_on = self.rng.chance(self.run.campaign.states.go_on);
        let mut kind = if goes_on { LifeKind::Full } else { LifeKind::Recovery };
        loop {
            self.end_life(report);
            self.life += 1;
            if self.life > FULL_LIVES || self.run.id.lives.is_some_and(|lives| self.life >= lives) {
                kind = LifeKind::Recovery;
            }
            report.lives += 1;
            let end = self.live(kind, report);
            let end = end.map_err(|message| self.run.failure(self.id.clone(), self.life, message))?;
            match end {
                End::RefusedForGood => {
                    report.refused_for_good += 1;
                    return Ok(());
                }
                End::RefusedForAWhile => report.refused_for_a_while += 1,
                End::CutInRecovery => report.cuts_in_recovery += 1,
                End::Peace if kind == LifeKind::Recovery => return Ok(()),
                End::Peace | End::Cut => {}
            }
            kind = if end == End::RefusedForAWhile { LifeKind::Undisturbed } else { LifeKind::Full };
        }
    }

    /// Ends a life: by a death of the software, a kill, or a power cut.
    fn end_life(&mut self, report: &mut Report) {
        let deaths = self.run.campaign.states.deaths;
        if deaths > 0.0 && self.rng.chance(deaths) {
            report.deaths += 1;
            let had_memory = std::mem::replace(&mut self.has_memory, self.rng.chance(WITH_MEMORY));
            match had_memory && self.has_memory {
                true => self.oracle.borrow_mut().die(),
                false => self.oracle.borrow_mut().kill(),
            }
            self.disks.iter_mut().for_each(|disk| disk.end_in_flight(&mut self.rng));
        } else if self.rng.chance(self.run.campaign.states.killed) {
            report.kills += 1;
            if let Some(memory) = &mut self.memory {
                memory.restart_machine();
            }
            self.oracle.borrow_mut().kill();
            self.disks.iter_mut().for_each(StoredDisk::kill);
        } else {
            report.power_cuts += 1;
            if let Some(memory) = &mut self.memory {
                memory.restart_machine();
            }
            self.oracle.borrow_mut().crash();
            self.disks.iter_mut().for_each(|disk| disk.power_cut(&mut self.rng));
        }
        if self.was_open && !self.run.setup.disturbances.is_empty() {
            self.earlier.push(self.disks.clone());
        }
    }

    /// Creates a world for the next life. A world without lasting memory leaves the stored memory as it is.
    pub(super) fn next_world(&mut self) -> World {
        let world = World::new(self.rng.next_u64());
        if let Some(memory) = self.memory.as_ref().filter(|_| self.has_memory) {
            world.give_memory(memory.clone());
        }
        world
    }

    /// Stores the memory of a life that has ended.
    pub(super) fn keep_memory(&mut self, world: &World) {
        if let Some(memory) = world.memory() {
            self.memory = Some(memory.store_away());
        }
    }
}
