//! A life after a crash: open, verify all bytes, audit, verify again, and sometimes continue the work.

use crate::campaign::adversary::Truce;
use crate::campaign::guarded::{halt, run_guarded};
use crate::campaign::run::{OpenVolume, close};
use crate::campaign::trial::{End, LifeKind, Trial};
use crate::campaign::{Disturbance, Report, Subject, Tally};
use crate::verify::Verify;
use crate::{Disk, Errors, SharedOracle, StoredMemory, Workload, World};
use braid_base::{Nanos, Rng};
use braid_engine::{Error, ErrorKind};
use braid_runtime::Arena;
use std::cell::Cell;
use std::rc::Rc;

/// Approximate number of cut points that the guests of a later life pass.
const LATEST_CUT: u64 = 200;

/// An opening has no deadlines: recovery retries a silent device again and again.
const LONGEST_OPENING: Nanos = Nanos::from_secs(4 * 3600);

/// Inputs and outputs of a life.
struct Life<S: Subject> {
    subject: S,
    world: World,
    oracle: SharedOracle,
    arena: Arena,
    rng: Rng,
    workload: Workload,
    /// Number of cut points between verification and the power cut; `None` for no such cut.
    cut_while_working: Option<u64>,
    kind: LifeKind,
    /// True if some place of a disk is unreadable, so that guests may meet read errors.
    has_bad_places: bool,
    truce: Truce,
    victim: Option<Disk>,
    /// Place in which the adversary finds the open volume.
    open: OpenVolume<S>,
    is_open: Rc<Cell<bool>>,
    is_verified: Rc<Cell<bool>>,
}

/// Result of a life without a power cut.
enum LifeOutcome {
    Lived { closed: bool },
    Refused(Error),
}

impl<S: Subject> Trial<'_, S> {
    /// Runs one life on the disks in their present state.
    pub(super) fn live(&mut self, kind: LifeKind, report: &mut Report) -> Result<End, String> {
        let world = self.next_world();
        let mut disks: Vec<Disk> = self.disks.iter().map(|disk| disk.attach(&world)).collect();
        let present = disks.clone();
        let tally = Tally::default();
        let is_disturbed = kind == LifeKind::Full && self.rng.chance(0.7);
        let swapped = if is_disturbed { self.swap(&world, &mut disks, &tally) } else { None };
        let has_bad_places = self.disks.iter().any(|disk| disk.count_bad_places() > 0);
        let cut_while_working = self.choose_cut(&world, kind);
        let life = self.prepare(&world, kind, &disks, is_disturbed && swapped.is_none(), &tally);
        let life = Life { cut_while_working, has_bad_places, ..life };
        let (is_open, is_verified) = (life.is_open.clone(), life.is_verified.clone());
        let is_stale = swapped == Some(Disturbance::StaleDevice);
        let present = if is_stale { disks.clone() } else { present };
        let open = life.open.clone();
        self.subject = self.subject.begun();
        let opening = self.subject.clone().open(world.clone(), disks);
        let result = run_guarded(&world, life.run(opening));
        self.was_open = is_open.get();
        if let Some(export) = open.take() {
            self.subject = self.subject.noted(&export);
        }
        self.keep_memory(&world);
        if !self.has_memory && !is_open.get() && self.oracle.borrow().may_have_lost() {
            // An opening that ignores the pending log and ends before a superblock records the opening
            // leaves no sign of the failed flush. Software cannot see then that the log is no better than
            // the devices.
            self.memory.iter_mut().for_each(StoredMemory::restart_machine);
        }
        // A refused old copy is out of play: the disk itself returns.
        if is_open.get() || !is_stale {
            self.disks = present.iter().map(Disk::store).collect();
        }
        halt(&world);
        report.add(&tally);
        let is_disturbed = is_disturbed && !self.run.setup.disturbances.is_empty();
        if is_stale && is_open.get() && self.run.setup.refuses_stale {
            return Err("an old copy of a device was taken for the device".to_owned());
        }
        if swapped == Some(Disturbance::ClonedDevice) && is_open.get() {
            return Err("a device was taken beside a copy of it".to_owned());
        }
        match result? {
            None if is_verified.get() => Ok(End::Cut),
            None => Ok(End::CutInRecovery),
            Some(Ok(LifeOutcome::Lived { closed })) => {
                report.closings += u64::from(closed);
                Ok(End::Peace)
            }
            Some(Ok(LifeOutcome::Refused(error)))
                if is_disturbed && may_refuse_for_a_while(swapped, &error) =>
            {
                Ok(End::RefusedForAWhile)
            }
            Some(Ok(LifeOutcome::Refused(error))) if self.may_refuse(error.kind()) => Ok(End::RefusedForGood),
            Some(Ok(LifeOutcome::Refused(error))) => Err(format!("open failed: {:?}: {error}", error.kind())),
            Some(Err(message)) => Err(message),
        }
    }

    /// Decides whether the power cut of a life comes during opening and verification, or later, while guests
    /// work. For the latter, returns the number of cut points until the cut. Short times are as likely as
    /// long times.
    fn choose_cut(&mut self, world: &World, kind: LifeKind) -> Option<u64> {
        if kind == LifeKind::Recovery || self.rng.chance(0.3) {
            return None;
        }
        let limit = 1 << self.rng.below(12);
        let after = 1 + self.rng.below(limit);
        if self.rng.chance(0.4) {
            return Some(after.min(LATEST_CUT));
        }
        world.power().cut_at(after);
        None
    }

    fn may_refuse(&self, kind: ErrorKind) -> bool {
        self.run.setup.refusals.contains(&kind)
    }

    /// Removes, copies, reorders or replaces disks before an opening, as the campaign allows.
    fn swap(&mut self, world: &World, disks: &mut Vec<Disk>, tally: &Tally) -> Option<Disturbance> {
        let kinds: Vec<Disturbance> =
            self.run.setup.disturbances.iter().copied().filter(|kind| kind.is_of_opening()).collect();
        if kinds.is_empty() || self.rng.chance(0.5) {
            return None;
        }
        let kind = kinds[self.rng.below(kinds.len() as u64) as usize];
        let place = self.run.victim;
        match kind {
            Disturbance::MissingDevice => drop(disks.remove(place)),
            // The newest of `earlier` missed no opening.
            Disturbance::MissingInTurn => {
                drop(disks.remove(self.rng.below(disks.len() as u64) as usize));
            }
            Disturbance::ShuffledDevices => self.rng.shuffle(disks),
            Disturbance::ClonedDevice => {
                let age = self.rng.below(self.earlier.len().max(1) as u64) as usize;
                let copy =
                    self.earlier.get(age).map_or_else(|| self.disks[place].clone(), |old| old[place].clone());
                disks.insert(self.rng.below(disks.len() as u64 + 1) as usize, copy.attach(world));
            }
            _ => {
                disks[place] =
                    self.earlier.iter().rev().nth(self.run.setup.stale_openings)?[place].attach(world)
            }
        }
        tally.count(kind);
        Some(kind)
    }

    fn prepare(
        &mut self,
        world: &World,
        kind: LifeKind,
        disks: &[Disk],
        is_disturbed: bool,
        tally: &Tally,
    ) -> Life<S> {
        let truce = Truce::default();
        let disturbed = match is_disturbed {
            true => self.run.disturb(world, disks, &self.oracle, tally, &truce),
            false => None,
        };
        let (victim, open) = disturbed.map_or_else(Default::default, |(disk, open)| (Some(disk), open));
        let workload = &self.run.setup.workload;
        Life {
            subject: self.subject.clone(),
            world: world.clone(),
            oracle: self.oracle.clone(),
            arena: self.run.arena.clone(),
            rng: self.rng.fork(),
            workload: workload.with_requests(workload.requests / 4),
            cut_while_working: None,
            kind,
            has_bad_places: false,
            truce,
            victim,
            open,
            is_open: Rc::default(),
            is_verified: Rc::default(),
        }
    }
}

impl<S: Subject> Life<S> {
    async fn run(
        mut self,
        opening: impl Future<Output = Result<S::Export, Error>>,
    ) -> Result<LifeOutcome, String> {
        let limit = LONGEST_OPENING;
        let opened = self.world.within(limit, opening).await;
        let export = match opened.ok_or_else(|| format!("opening has not ended after {limit}"))? {
            Ok(export) => export,
            Err(error) => return Ok(LifeOutcome::Refused(error)),
        };
        self.is_open.set(true);
        self.open.set(Some(export.clone()));
        let verify = self.verify(self.victim.is_some() || self.has_bad_places);
        verify.after_crash(&export, &self.oracle).await?;
        self.is_verified.set(true);
        self.audit(&export).await?;
        verify.again(&export, &self.oracle, "reading all a second time").await?;
        if self.kind == LifeKind::Recovery {
            return Ok(LifeOutcome::Lived { closed: false });
        }
        if let Some(points) = self.cut_while_working {
            let power = self.world.power();
            power.cut_at(power.points() + points);
        }
        self.workload.run(&self.world, &export, &self.oracle, &self.arena, &mut self.rng).await?;
        if let Some(victim) = &self.victim {
            self.truce.make(victim);
        }
        verify.again(&export, &self.oracle, "at the end of a life, reading all").await?;
        self.audit(&export).await?;
        if self.rng.chance(0.5) {
            return Ok(LifeOutcome::Lived { closed: false });
        }
        let closed = close(self.subject, &self.world, export, &self.oracle, &self.workload).await?;
        Ok(LifeOutcome::Lived { closed })
    }

    fn verify(&self, is_disturbed: bool) -> Verify {
        let errors = if is_disturbed { self.workload.errors } else { Errors::Forbidden };
        Verify { world: self.world.clone(), arena: self.arena.clone(), errors, limit: self.workload.limit }
    }

    async fn audit(&self, export: &S::Export) -> Result<(), String> {
        let limit = self.workload.limit;
        let audit = self.subject.clone().audit(export.clone());
        let audited = self.world.within(limit, audit).await;
        audited.unwrap_or_else(|| Err(format!("the audit has not ended after {limit}")))
    }
}

/// True if `error` is a legal reason to refuse an opening after `swapped`. Faults may cause any error.
fn may_refuse_for_a_while(swapped: Option<Disturbance>, error: &Error) -> bool {
    match swapped {
        Some(Disturbance::MissingDevice | Disturbance::MissingInTurn) => error.kind() == ErrorKind::Degraded,
        Some(Disturbance::ClonedDevice) => error.kind() == ErrorKind::Invalid,
        Some(Disturbance::ShuffledDevices) => false,
        _ => true,
    }
}
