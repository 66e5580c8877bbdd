//! The adversary: disturbs one disk of a world, one episode after the other, while guests work.

use crate::campaign::{Disturbance, Subject, Tally};
use crate::{Disk, FaultPlan, SharedOracle, World};
use braid_base::{Bytes, KIB, Nanos, Rng, SECTOR};
use braid_runtime::{Device, Runtime};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// The longest pause between two episodes.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(20);
/// The longest episode; most are far shorter. Flushes are rare, so they fail for up to [`LONGEST_OF_FLUSHES`]; a device
/// hangs for up to [`LONGEST_HANG`].
const LONGEST_EPISODE: Nanos = Nanos::from_millis(100);
const LONGEST_OF_FLUSHES: Nanos = Nanos::from_secs(1);
/// Longer than a request of a guest may take.
const LONGEST_HANG: Nanos = Nanos::from_secs(300);
/// Up to beyond the deadline of requests that another copy answers, or beyond all deadlines.
const STALLS: [Range<Nanos>; 2] =
    [Nanos::from_millis(100)..Nanos::from_secs(8), Nanos::from_secs(8)..Nanos::from_secs(100)];

/// Disturbs one life of a volume.
pub(super) struct Adversary<S: Subject> {
    pub subject: S,
    pub world: World,
    pub victim: Disk,
    /// Which of the disks that is.
    pub place: usize,
    pub oracle: SharedOracle,
    pub kinds: Vec<Disturbance>,
    pub rng: Rng,
    pub tally: Tally,
    pub truce: Truce,
}

/// Ends the disturbances of a life. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub(super) struct Truce {
    is_made: Rc<Cell<bool>>,
    /// The disk lost its cache: what had it open does not get it back.
    is_impossible: Rc<Cell<bool>>,
}

impl Truce {
    /// From now on `victim` is as good as any, or gone.
    pub(super) fn make(&self, victim: &Disk) {
        self.is_made.set(true);
        self.restore(victim);
    }

    fn restore(&self, victim: &Disk) {
        if !self.is_impossible.get() {
            victim.faults().set(FaultPlan::default());
        }
    }
}

impl<S: Subject> Adversary<S> {
    /// Disturbs until the truce. The export is there as soon as the volume is open.
    pub(super) async fn run(mut self, export: Rc<Cell<Option<S::Export>>>) {
        self.kinds.retain(|kind| !kind.is_of_opening());
        while !self.kinds.is_empty() {
            self.world.sleep(Nanos(self.rng.below(LONGEST_PAUSE.0))).await;
            if self.truce.is_made.get() || self.truce.is_impossible.get() {
                return;
            }
            let kind = self.kinds[self.rng.below(self.kinds.len() as u64) as usize];
            let open = export.take();
            export.set(open.clone());
            match (kind, open) {
                (Disturbance::PolicyChanges, None) => {}
                (Disturbance::PolicyChanges, Some(export)) => self.change_policy(export).await,
                (Disturbance::Rot, export) => self.rot(export.as_ref()),
                (kind, export) => self.episode(kind, export.as_ref()).await,
            }
        }
    }

    async fn change_policy(&mut self, export: S::Export) {
        self.tally.count(Disturbance::PolicyChanges);
        // A policy that cannot be written down leaves the volume as it was: its guests tell whether that is true.
        let _told = self.subject.clone().change_policy(export, self.rng.fork()).await;
    }

    /// One plan of faults for a while.
    async fn episode(&mut self, kind: Disturbance, export: Option<&S::Export>) {
        let (plan, longest) = self.plan(kind, self.metadata(export));
        let faults = self.victim.faults();
        self.tally.begin(kind, &faults);
        faults.set(plan);
        if kind == Disturbance::Deaths && self.rng.chance(0.5) {
            self.victim.lose_cache();
            self.truce.is_impossible.set(true);
        }
        self.world.sleep(Nanos(self.rng.below(longest.0))).await;
        self.truce.restore(&self.victim);
        self.tally.end();
    }

    fn plan(&mut self, kind: Disturbance, metadata: Vec<Range<Bytes>>) -> (FaultPlan, Nanos) {
        let rng = &mut self.rng;
        let rate = [0.1, 0.4, 1.0][rng.below(3) as usize];
        let oracle = self.oracle.clone();
        let doubt: Rc<dyn Fn()> = Rc::new(move || oracle.borrow_mut().doubt());
        let mut plan = FaultPlan { metadata: metadata.into(), on_loss: Some(doubt), ..FaultPlan::default() };
        let mut longest = LONGEST_EPISODE;
        match kind {
            Disturbance::ReadErrors => plan.reads = rate,
            Disturbance::WriteErrors => plan.writes = rate,
            Disturbance::BadSectors => {
                let start = Bytes(rng.below(self.victim.geometry().size.0)).align_down(SECTOR);
                let bad = start..start + KIB * rng.between(1, 256);
                (plan.bad_reads, plan.bad_writes) = (Some(bad.clone()), Some(bad));
            }
            Disturbance::FlushErrors => (plan.flushes, longest) = (rate, LONGEST_OF_FLUSHES),
            Disturbance::LossyFlushes => {
                (plan.flushes, plan.flushes_lose, longest) = (rate, true, LONGEST_OF_FLUSHES);
            }
            Disturbance::Stalls => {
                let stall = STALLS[usize::from(rng.chance(0.25))].clone();
                (plan.stalls, plan.stall) = (rate / 5.0, stall);
            }
            Disturbance::Hangs => (plan.hangs, longest) = (true, LONGEST_HANG),
            Disturbance::Deaths => plan.vanished = true,
            Disturbance::LostWrites => plan.lost_writes = rate,
            Disturbance::MisdirectedWrites => plan.misdirected_writes = rate,
            Disturbance::Rot
            | Disturbance::MissingDevice
            | Disturbance::StaleDevice
            | Disturbance::PolicyChanges => unreachable!("{kind} is not a plan of faults"),
        }
        (plan, longest)
    }

    /// A few bytes of one place change.
    fn rot(&mut self, export: Option<&S::Export>) {
        let metadata = self.metadata(export);
        if metadata.is_empty() {
            return;
        }
        let place = &metadata[self.rng.below(metadata.len() as u64) as usize];
        let at = place.start + Bytes(self.rng.below((place.end - place.start).0));
        let mut bytes = vec![0; (place.end - at).0.min(1 << self.rng.below(10)) as usize];
        self.rng.fill(&mut bytes);
        self.victim.poke(at, &bytes);
        self.tally.count(Disturbance::Rot);
    }

    fn metadata(&self, export: Option<&S::Export>) -> Vec<Range<Bytes>> {
        let all = export.map(|export| self.subject.metadata(export)).unwrap_or_default();
        all.into_iter().nth(self.place).unwrap_or_default()
    }
}
