//! The first life: a workload on a new volume, with snapshots on the way.

use crate::campaign::adversary::{Adversary, Truce};
use crate::campaign::guarded::{halt, run_guarded};
use crate::campaign::{Campaign, Failure, Report, Setup, Subject, Tally, TrialId};
use crate::verify::READ_ALL_PIECE;
use crate::{Disk, LastingBytes, Oracle, SharedOracle, StoredDisk, StoredMemory, World};
use braid_base::{Bytes, Rng};
use braid_engine::Export;
use braid_runtime::{Arena, Runtime};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// One seed of a campaign, with the subject's changes of the setup.
pub(super) struct Run<'a, S> {
    pub campaign: &'a Campaign,
    pub subject: S,
    pub setup: Setup,
    pub id: TrialId,
    pub arena: Arena,
    /// The disk that all disturbances strike, in all lives: copies on other disks make up for the damage to
    /// one disk.
    pub victim: usize,
    /// Places of metadata on the victim when the volume was created.
    pub places: RefCell<Places>,
}

/// Places of metadata on a disk.
#[derive(Clone, Default)]
pub(super) struct Places {
    /// All metadata ranges.
    pub metadata: Vec<Range<Bytes>>,
    /// Metadata ranges that are dispensable for an opening.
    pub regions: Vec<Range<Bytes>>,
}

/// The state of everything at one cut point. Cheap: bytes are shared until they change.
pub(super) struct Snapshot<S> {
    /// Cut point; `None` for the end of the run.
    pub point: Option<u64>,
    pub disks: Vec<StoredDisk>,
    pub oracle: Oracle,
    /// The subject that opens the volume next.
    pub subject: S,
    /// Content of lasting memory, if the world has lasting memory.
    pub memory: Option<StoredMemory>,
}

/// Choice of cut points for snapshots. A run that reaches its end always adds a snapshot there.
#[derive(Clone, Copy)]
pub(super) enum Picks {
    /// At this average distance.
    Spread(u64),
    /// At this point, which ends the run; `None` for the end.
    Only(Option<u64>),
}

/// The volume of a life, once it is open.
pub(super) type OpenVolume<S> = Rc<Cell<Option<<S as Subject>::Export>>>;

/// Stream from which spans are drawn. A separate stream: other spans change nothing else of a seed.
const SPAN_STREAM: u64 = 0x7370_616e;

type Snapshots<S> = Rc<RefCell<Vec<Snapshot<S>>>>;

impl<'a, S: Subject> Run<'a, S> {
    pub(super) fn new(campaign: &'a Campaign, subject: &S, id: TrialId) -> Run<'a, S> {
        let mut setup = campaign.setup.clone();
        let drawn = Rng::new(id.seed ^ SPAN_STREAM).below(setup.spans.len() as u64) as usize;
        setup.spans = vec![id.span.unwrap_or(setup.spans[drawn])];
        // Separate from the world's stream: the configuration does not depend on the schedule.
        let mut rng = Rng::new(!id.seed);
        let subject = subject.prepare(&mut rng, &mut setup);
        id.shorten(&mut setup);
        let (workload, piece) = (&setup.workload, READ_ALL_PIECE);
        let size = Bytes(workload.room().0.next_power_of_two()) * workload.clients + piece;
        let victim = rng.below(setup.disks.len() as u64) as usize;
        Run { campaign, subject, setup, id, arena: Arena::new(size), victim, places: RefCell::default() }
    }

    /// Runs the workload, and returns its snapshots.
    pub(super) fn first_life(
        &self,
        picks: Picks,
        report: &mut Report,
    ) -> Result<Vec<Snapshot<S>>, Box<Failure>> {
        let world = World::new(self.id.seed);
        if self.campaign.states.deaths > 0.0 {
            world.give_memory(StoredMemory::default());
        }
        let result = self.live(&world, picks, report);
        halt(&world);
        // Fields for later lives do not matter to a failure of the first life.
        let id = || TrialId { point: None, outcome: 0, lives: None, ..self.id.clone() };
        result.map_err(|message| self.failure(id(), 0, message))
    }

    fn live(&self, world: &World, picks: Picks, report: &mut Report) -> Result<Vec<Snapshot<S>>, String> {
        let disks: Vec<Disk> =
            self.setup.disks.iter().map(|options| Disk::new(world, options.clone())).collect();
        let creation = self.subject.clone().create(world.clone(), disks.clone());
        let created = run_guarded(world, creation)?.ok_or("the power was cut during creation")?;
        let export = created.map_err(|error| format!("create failed: {:?}: {error}", error.kind()))?;
        let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(export.size())));
        let of_victim = |all: Vec<Vec<Range<Bytes>>>| all.into_iter().nth(self.victim).unwrap_or_default();
        let (metadata, regions) = (self.subject.metadata(&export), self.subject.regions(&export));
        self.places.replace(Places { metadata: of_victim(metadata), regions: of_victim(regions) });
        let noted = {
            let (subject, export) = (self.subject.clone(), export.clone());
            move || subject.noted(&export)
        };
        let snapshots = watch(world, picks, &disks, &oracle, noted.clone());
        let (tally, truce, before) = (Tally::default(), Truce::default(), world.power().points());
        let victim = self.disturb(world, &disks, &oracle, &tally, &truce);
        let victim = victim.map(|(victim, open)| {
            open.set(Some(export.clone()));
            victim
        });
        let done = run_guarded(world, self.work(world, export, &oracle, &truce, victim))?;
        report.runs += 1;
        report.points_passed += world.power().points() - before;
        report.add(&tally);
        let mut snapshots = snapshots.take();
        if let Some(outcome) = done {
            report.closings += u64::from(outcome?);
            snapshots.push(Snapshot::of(None, world.memory().as_ref(), &disks, &oracle, noted()));
        }
        Ok(snapshots)
    }

    /// Guests do all their work, and sometimes the volume is closed. True if the volume was closed.
    fn work(
        &self,
        world: &World,
        export: S::Export,
        oracle: &SharedOracle,
        truce: &Truce,
        victim: Option<Disk>,
    ) -> impl Future<Output = Result<bool, String>> + use<S> {
        let (world, arena, oracle, truce) =
            (world.clone(), self.arena.clone(), oracle.clone(), truce.clone());
        let (workload, subject, mut rng) =
            (self.setup.workload.clone(), self.subject.clone(), world.fork_rng());
        async move {
            workload.run(&world, &export, &oracle, &arena, &mut rng).await?;
            if rng.chance(0.5) {
                return Ok(false);
            }
            let quiet = !rng.chance(0.3);
            if let Some(victim) = victim.as_ref().filter(|_| quiet) {
                truce.make(victim);
            }
            close(subject, &world, export, &oracle, &workload).await
        }
    }

    /// Spawns the adversary, if the campaign has disturbances. Returns the victim, and the place in which
    /// the adversary finds the open volume.
    pub(super) fn disturb(
        &self,
        world: &World,
        disks: &[Disk],
        oracle: &SharedOracle,
        tally: &Tally,
        truce: &Truce,
    ) -> Option<(Disk, OpenVolume<S>)> {
        if self.setup.disturbances.is_empty() {
            return None;
        }
        let (victim, export) = (disks[self.victim].clone(), Rc::new(Cell::new(None)));
        let adversary = Adversary {
            subject: self.subject.clone(),
            world: world.clone(),
            victim: victim.clone(),
            place: self.victim,
            oracle: oracle.clone(),
            places: self.places.borrow().clone(),
            kinds: self.setup.disturbances.clone(),
            rng: world.fork_rng(),
            tally: tally.clone(),
            truce: truce.clone(),
        };
        world.spawn(adversary.run(export.clone()));
        Some((victim, export))
    }

    pub(super) fn failure(&self, trial: TrialId, life: u64, message: String) -> Box<Failure> {
        let command = trial.command(&self.campaign.command);
        Box::new(Failure { trial, life, message, found_by: None, command })
    }
}

/// Closes a volume. True on success. An error is a failure of the trial unless devices may fail.
pub(super) async fn close<S: Subject>(
    subject: S,
    world: &World,
    export: S::Export,
    oracle: &SharedOracle,
    workload: &crate::Workload,
) -> Result<bool, String> {
    let flush = oracle.borrow_mut().begin_flush();
    let closed = world.within(workload.limit, subject.close(export)).await;
    let closed = closed.ok_or_else(|| format!("closing has not ended after {}", workload.limit))?;
    match closed {
        Ok(()) => oracle.borrow_mut().end_flush(flush),
        Err(error) if workload.errors == crate::Errors::Forbidden => {
            return Err(format!("close failed: {:?}: {error}", error.kind()));
        }
        Err(_) => {
            oracle.borrow_mut().fail_flush(flush);
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes snapshots of a world from now on.
fn watch<S: Subject>(
    world: &World,
    picks: Picks,
    disks: &[Disk],
    oracle: &SharedOracle,
    noted: impl Fn() -> S + 'static,
) -> Snapshots<S> {
    let (power, mut rng) = (world.power(), world.fork_rng());
    let mut gap = move |every: u64| 1 + rng.below((2 * every).max(2) - 1);
    let first = match picks {
        Picks::Spread(every) => power.points() + gap(every),
        Picks::Only(Some(point)) if point > power.points() => point,
        Picks::Only(_) => return Rc::default(),
    };
    let snapshots: Snapshots<S> = Rc::default();
    let (taken, disks, oracle, cutter) = (snapshots.clone(), disks.to_vec(), oracle.clone(), power.clone());
    let memory = world.memory();
    power.watch(first, move |point| {
        taken.borrow_mut().push(Snapshot::of(Some(point), memory.as_ref(), &disks, &oracle, noted()));
        match picks {
            Picks::Spread(every) => Some(point + gap(every)),
            Picks::Only(_) => {
                cutter.cut();
                None
            }
        }
    });
    snapshots
}

impl<S> Snapshot<S> {
    fn of(
        point: Option<u64>,
        memory: Option<&LastingBytes>,
        disks: &[Disk],
        oracle: &SharedOracle,
        subject: S,
    ) -> Snapshot<S> {
        let disks = disks.iter().map(Disk::store).collect();
        let memory = memory.map(LastingBytes::store_away);
        Snapshot { point, disks, oracle: oracle.borrow().clone(), subject, memory }
    }
}
