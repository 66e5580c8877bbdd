//! The adversary: disturbs one disk of a world, one episode after another, while guests work.

use crate::campaign::run::Places;
use crate::campaign::{Disturbance, Subject, Tally};
use crate::faults::overlaps;
use crate::{Bad, Disk, FaultPlan, SharedOracle, World};
use braid_base::{Bytes, KIB, Nanos, Rng, SECTOR};
use braid_runtime::{Device, Runtime};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// The longest pause between two episodes.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(20);
/// The longest episode; most are far shorter. Flushes are rare, so they fail for up to
/// [`LONGEST_OF_FLUSHES`]. A device hangs for up to [`LONGEST_HANG`].
const LONGEST_EPISODE: Nanos = Nanos::from_millis(100);
const LONGEST_OF_FLUSHES: Nanos = Nanos::from_secs(1);
/// Longer than a request of a guest may take.
const LONGEST_HANG: Nanos = Nanos::from_secs(300);
/// Durations of stalls: up to beyond the deadline of requests that another copy answers, or beyond all
/// deadlines.
const STALLS: [Range<Nanos>; 2] =
    [Nanos::from_millis(100)..Nanos::from_secs(8), Nanos::from_secs(8)..Nanos::from_secs(100)];

/// The longest range that goes bad by itself.
const LONGEST_BAD: Bytes = Bytes(64 << 10);
/// Maximum number of bad places of a disk in all its lives: a disk with more has failed.
const MOST_BAD_PLACES: usize = 3;

/// Disturbs one life of a volume.
pub(super) struct Adversary<S: Subject> {
    pub subject: S,
    pub world: World,
    pub victim: Disk,
    /// Index of the victim among the disks.
    pub place: usize,
    pub oracle: SharedOracle,
    /// Places of the metadata when the volume was created.
    pub places: Places,
    pub kinds: Vec<Disturbance>,
    pub rng: Rng,
    pub tally: Tally,
    pub truce: Truce,
}

/// Ends the disturbances of a life. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub(super) struct Truce {
    is_made: Rc<Cell<bool>>,
    /// The disk lost its cache: this life must not get the disk back.
    is_impossible: Rc<Cell<bool>>,
}

impl Truce {
    /// From now on `victim` is free of faults, or gone for good.
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
    /// Disturbs until the truce. `export` is set as soon as the volume is open.
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
                (Disturbance::BadPlaces, _) => self.spoil(),
                (kind, export) => self.episode(kind, export.as_ref()).await,
            }
        }
    }

    async fn change_policy(&mut self, export: S::Export) {
        self.tally.count(Disturbance::PolicyChanges);
        // A policy that cannot be recorded leaves the volume unchanged; the guests verify the claim.
        let _told = self.subject.clone().change_policy(export, self.rng.fork()).await;
    }

    /// Applies one plan of faults for a while.
    async fn episode(&mut self, kind: Disturbance, export: Option<&S::Export>) {
        let (plan, longest) = self.plan(kind, self.metadata(export));
        let faults = self.victim.faults();
        self.tally.begin(kind, &faults);
        if matches!(kind, Disturbance::Hangs | Disturbance::Stalls) {
            self.oracle.borrow_mut().suspect_for_good();
        }
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
        let suspicious = oracle.clone();
        let suspect: Rc<dyn Fn()> = Rc::new(move || suspicious.borrow_mut().suspect());
        let doubt: Rc<dyn Fn()> = Rc::new(move || oracle.borrow_mut().doubt());
        let (on_loss, on_failed_flush) = (Some(doubt), Some(suspect));
        let mut plan =
            FaultPlan { metadata: metadata.into(), on_loss, on_failed_flush, ..FaultPlan::default() };
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
            Disturbance::DiscardErrors => plan.discards = rate,
            Disturbance::DiscardHangs => (plan.discards_hang, longest) = (true, LONGEST_HANG),
            Disturbance::BadRegions => {
                let place = bad_part(&self.places.regions, rng, LONGEST_BAD);
                (plan.bad_reads, longest) = (place.clone(), LONGEST_OF_FLUSHES);
                plan.bad_writes = place.filter(|_| rng.chance(0.5));
                plan.bad_until_written = rng.chance(0.5);
            }
            Disturbance::LostWrites => plan.lost_writes = rate,
            Disturbance::MisdirectedWrites => plan.misdirected_writes = rate,
            Disturbance::Rot
            | Disturbance::BadPlaces
            | Disturbance::MissingDevice
            | Disturbance::MissingInTurn
            | Disturbance::StaleDevice
            | Disturbance::ClonedDevice
            | Disturbance::ShuffledDevices
            | Disturbance::PolicyChanges => unreachable!("{kind} is not a plan of faults"),
        }
        (plan, longest)
    }

    /// Changes a few bytes of one metadata range.
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

    /// Makes a place bad, half the time in the metadata, unless enough places are bad already.
    fn spoil(&mut self) {
        let rng = &mut self.rng;
        if self.victim.store().count_bad_places() >= MOST_BAD_PLACES || rng.chance(0.7) {
            return;
        }
        let everywhere = [Bytes::ZERO..self.victim.geometry().size];
        let Places { metadata, regions } = &self.places;
        let within = if rng.chance(0.5) { &regions[..] } else { &everywhere[..] };
        let bad = if rng.chance(0.5) { Bad::UntilWritten } else { Bad::ForEver };
        if let Some(place) = bad_part(within, rng, LONGEST_BAD) {
            // A device with a superblock that is readable but not writable prevents opening.
            let is_essential = |part: &Range<Bytes>| !regions.contains(part) && overlaps(part, &place);
            let bad = if metadata.iter().any(is_essential) { Bad::UntilWritten } else { bad };
            self.victim.spoil(place, bad);
            self.tally.count(Disturbance::BadPlaces);
        }
    }

    fn metadata(&self, export: Option<&S::Export>) -> Vec<Range<Bytes>> {
        let all = export.map(|export| self.subject.metadata(export)).unwrap_or_default();
        all.into_iter().nth(self.place).unwrap_or_default()
    }
}

/// Returns a part of one of the ranges, in whole sectors: half the time one sector.
fn bad_part(ranges: &[Range<Bytes>], rng: &mut Rng, longest: Bytes) -> Option<Range<Bytes>> {
    let range = ranges.get(rng.below(ranges.len().max(1) as u64) as usize)?;
    let start = range.start + Bytes(rng.below((range.end - range.start).0)).align_down(SECTOR);
    let len = if rng.chance(0.5) { SECTOR } else { SECTOR * rng.between(1, longest / SECTOR) };
    Some(start..(start + len).min(range.end))
}
