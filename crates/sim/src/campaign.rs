//! Crash after crash: run a workload, cut the power at a point, reopen, and compare every byte with the oracle.
//!
//! A *trial* is one seed and one cut point. Its first life creates the volume on new disks and runs the workload up to
//! the cut. Each later life opens what the cut left (often cut again, also while opening), reads all bytes, verifies
//! them, reads them again, and goes on working. Point 0 stands for a first life without a cut: it ends in peace, and
//! the power goes off afterwards. Everything in a trial follows from its seed and point, so one command replays it.

use crate::workload::{READ_ALL_PIECE, describe, read_all};
use crate::{Disk, DiskOptions, Oracle, SharedOracle, Workload, World};
use braid_base::{Bytes, Rng};
use braid_engine::{Export, Result as EngineResult};
use braid_runtime::Arena;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::str::FromStr;

/// What is put to the test: something that makes an export on disks, and finds it again.
pub trait Subject: Clone + 'static {
    /// What guests use.
    type Export: Export;

    /// Makes a new volume. It is durable once this has ended: no cut falls into it.
    fn create(self, world: World, disks: Vec<Disk>) -> impl Future<Output = EngineResult<Self::Export>>;

    /// Opens the volume that these disks hold, after a crash or not.
    fn open(self, world: World, disks: Vec<Disk>) -> impl Future<Output = EngineResult<Self::Export>>;
}

/// A plan of crashes.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The command that runs the test which owns this campaign; a failure prints it with its seed and point.
    pub command: &'static str,
    /// Each seed is another workload and another schedule.
    pub seeds: Range<u64>,
    /// Where each seed's first life is cut.
    pub points: Points,
    /// The disks of a new volume.
    pub disks: Vec<DiskOptions>,
    /// What guests do in the first life; later lives do a quarter of it.
    pub workload: Workload,
}

/// Which cut points are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    /// Every one.
    All,
    /// This many, spread evenly, each at random within its share.
    Spread(u64),
}

/// What a campaign that found nothing wrong has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Seeds with their cut points.
    pub trials: u64,
    /// Times that a volume was opened, or began to be.
    pub lives: u64,
    /// Lives that a power cut ended before they had verified all bytes: cuts within opening and recovery.
    pub cuts_in_recovery: u64,
    /// Cut points that were passed in all first lives together.
    pub points_passed: u64,
}

/// What went wrong, and how to see it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed of the workload and the schedule.
    pub seed: u64,
    /// The cut point of the first life; 0 for none.
    pub point: u64,
    /// In which life it was found; the first is 0.
    pub life: u64,
    /// What was wrong.
    pub message: String,
    /// The command that replays it.
    pub command: String,
}

/// Lives after the first that may be cut again.
const CUT_LIVES: u64 = 3;

/// The seed and the point to replay, from the environment.
const SEED_VARIABLE: &str = "BRAID_CRASH_SEED";
const POINT_VARIABLE: &str = "BRAID_CRASH_POINT";

impl Campaign {
    /// Runs all trials until one fails. `BRAID_CRASH_SEED` and `BRAID_CRASH_POINT` restrict it to one.
    ///
    /// # Errors
    /// The first failure.
    pub fn run<S: Subject>(&self, subject: &S) -> Result<Report, Failure> {
        let mut report = Report::default();
        let (only_seed, only_point) = (variable(SEED_VARIABLE), variable(POINT_VARIABLE));
        let arena = Arena::new(self.arena_size());
        let seeds = only_seed.map_or(self.seeds.clone(), |seed| seed..seed + 1);
        for seed in seeds {
            let trial = |point, report: &mut Report| {
                Trial { campaign: self, subject, arena: &arena, seed, point, life: 0 }.run(report)
            };
            if let Some(point) = only_point {
                trial(point, &mut report)?;
                continue;
            }
            let points = trial(0, &mut report)?;
            for point in self.points.choose(points, seed) {
                trial(point, &mut report)?;
            }
        }
        Ok(report)
    }

    fn arena_size(&self) -> Bytes {
        Bytes(self.workload.largest.0.next_power_of_two()) * self.workload.clients + READ_ALL_PIECE
    }
}

impl Points {
    /// Points of `range`, in order.
    fn choose(self, range: Range<u64>, seed: u64) -> Vec<u64> {
        let len = range.end - range.start;
        match self {
            Points::Spread(count) if count < len => {
                let mut rng = Rng::new(seed);
                let share = |at: u64| range.start + at * len / count;
                (0..count).map(|at| rng.between(share(at), share(at + 1))).collect()
            }
            _ => range.collect(),
        }
    }
}

/// One seed and one cut point.
struct Trial<'a, S> {
    campaign: &'a Campaign,
    subject: &'a S,
    arena: &'a Arena,
    seed: u64,
    point: u64,
    life: u64,
}

/// How a life ended.
enum End {
    /// All was done.
    Peace,
    /// Power cut, after all bytes had been verified.
    Cut,
    /// Power cut, before that.
    CutInRecovery,
}

impl<S: Subject> Trial<'_, S> {
    /// Runs all lives. Gives the cut points of the first, after the volume was created.
    fn run(mut self, report: &mut Report) -> Result<Range<u64>, Failure> {
        let _replay = ReplayOnPanic(self.command());
        // Apart from the world's stream, so that a trial's later lives do not depend on how the first ran.
        let mut rng = Rng::new(self.seed ^ self.point.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        report.trials += 1;
        let (mut disks, oracle, points) = self.first_life()?;
        report.points_passed += points.end - points.start;
        loop {
            oracle.borrow_mut().crash();
            disks.iter().for_each(|disk| disk.power_cut(&mut rng));
            self.life += 1;
            report.lives += 1;
            match self.later_life(&mut disks, &oracle, &mut rng)? {
                End::CutInRecovery => report.cuts_in_recovery += 1,
                End::Cut => {}
                // Sometimes the power goes off once more, with nothing under way.
                End::Peace if self.life <= CUT_LIVES && rng.chance(0.3) => {}
                End::Peace => return Ok(points),
            }
        }
    }

    fn first_life(&self) -> Result<(Vec<Disk>, SharedOracle, Range<u64>), Failure> {
        let world = World::new(self.seed);
        let disks: Vec<Disk> =
            self.campaign.disks.iter().map(|options| Disk::new(&world, options.clone())).collect();
        let export = world.block_on(self.subject.clone().create(world.clone(), disks.clone()));
        let export = export.map_err(|error| self.failure(format!("create failed: {error}")))?;
        let oracle = Rc::new(RefCell::new(Oracle::new(export.size())));
        let created = world.power().points();
        if self.point > 0 {
            world.power().cut_at(self.point);
        }
        let workload = self.campaign.workload.clone();
        let (guests, arena, truth, mut rng) =
            (world.clone(), self.arena.clone(), oracle.clone(), world.fork_rng());
        let result = world.block_on_until_cut(async move {
            workload.run(&guests, &export, &truth, &arena, &mut rng).await
        });
        let points = created + 1..world.power().points() + 1;
        world.halt();
        result.unwrap_or(Ok(())).map_err(|message| self.failure(message))?;
        Ok((disks, oracle, points))
    }

    fn later_life(
        &self,
        disks: &mut Vec<Disk>,
        oracle: &SharedOracle,
        rng: &mut Rng,
    ) -> Result<End, Failure> {
        let world = World::new(rng.next_u64());
        *disks = disks.iter().map(|disk| disk.restart(&world)).collect();
        if self.life <= CUT_LIVES && rng.chance(0.6) {
            // Short lives are as likely as long ones: opening may take few operations or many.
            let limit = 1 << rng.below(12);
            world.power().cut_at(1 + rng.below(limit));
        }
        let life = Life {
            world: world.clone(),
            oracle: oracle.clone(),
            arena: self.arena.clone(),
            rng: rng.fork(),
            workload: self.campaign.workload.with_requests(self.campaign.workload.requests / 4),
            is_verified: Rc::default(),
        };
        let is_verified = life.is_verified.clone();
        let opening = self.subject.clone().open(world.clone(), disks.clone());
        let result = world.block_on_until_cut(async move {
            let export =
                opening.await.map_err(|error| format!("open failed: {:?}: {error}", error.kind()))?;
            life.run(export).await
        });
        world.halt();
        match result {
            Some(Ok(())) => Ok(End::Peace),
            Some(Err(message)) => Err(self.failure(message)),
            None if is_verified.get() => Ok(End::Cut),
            None => Ok(End::CutInRecovery),
        }
    }

    fn failure(&self, message: String) -> Failure {
        let Trial { seed, point, life, .. } = *self;
        Failure { seed, point, life, message, command: self.command() }
    }

    fn command(&self) -> String {
        let Trial { seed, point, campaign, .. } = self;
        format!("{SEED_VARIABLE}={seed} {POINT_VARIABLE}={point} {}", campaign.command)
    }
}

/// What happens to a volume after it was opened again.
struct Life {
    world: World,
    oracle: SharedOracle,
    arena: Arena,
    rng: Rng,
    workload: Workload,
    is_verified: Rc<Cell<bool>>,
}

impl Life {
    async fn run<E: Export>(mut self, export: E) -> Result<(), String> {
        let found = read_all(&export, &self.arena).await?;
        let verified = self.oracle.borrow_mut().verify_after_crash(&found);
        verified.map_err(|mismatch| describe("after the crash, reading all", &mismatch))?;
        self.is_verified.set(true);
        self.expect_all(&export, "reading all a second time").await?;
        self.workload.run(&self.world, &export, &self.oracle, &self.arena, &mut self.rng).await?;
        self.expect_all(&export, "at the end of a life, reading all").await
    }

    async fn expect_all<E: Export>(&self, export: &E, occasion: &str) -> Result<(), String> {
        let id = self.oracle.borrow_mut().begin_read();
        let found = read_all(export, &self.arena).await?;
        let result = self.oracle.borrow_mut().end_read(id, Bytes::ZERO, &found);
        result.map_err(|mismatch| describe(occasion, &mismatch))
    }
}

/// Prints how to replay a trial that panicked: in the engine, or in the oracle.
struct ReplayOnPanic(String);

impl Drop for ReplayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: {}", self.0);
        }
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let value = text.parse().ok();
    assert!(value.is_some(), "{name}={text} is no number");
    value
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, point, life, message, command } = self;
        write!(f, "seed {seed}, cut point {point}, life {life}: {message}\nreplay: {command}")
    }
}

impl std::error::Error for Failure {}
