//! Work behind the scenes: what the policy plans, checkpoints, and telling devices what they may forget.
//! Guests come first.

mod inspect;
mod migrate;
mod pace;
mod probe;
mod progress;
mod ranges;
mod resync;
mod runs;
mod together;
mod trim;
mod turns;

pub(crate) use pace::Mover;
pub(crate) use progress::Lately;
pub use progress::MovesStatus;

use crate::core::Core;
use crate::life::Drains;
use braid_base::{Bytes, Nanos, Rng};
use braid_format::superblock::Superblock;
use braid_policy::{Move, Origin, Outcome, Plan};
use braid_runtime::{Device, Runtime, join_all};
use pace::Pace;
use progress::Progress;
use runs::{Job, Queue, Run};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use turns::Turns;

/// How far the map images may be behind the journal, in time: so far the second one is behind what a lost
/// first metadata device knew.
const OLDEST_MAP: Nanos = Nanos::from_secs(30);
/// How long a change of the map waits for a commit where no guest flushes: as long as the usual file systems
/// wait. Until then the slots that it freed cannot be used again.
const OLDEST_CHANGE: Nanos = Nanos::from_secs(5);
/// How long what only makes a cache warmer after a crash waits likewise: all devices are flushed for it.
const OLDEST_WARMTH: Nanos = Nanos::from_secs(30);
/// Jobs that run at the same time: most wait for their turn on a device.
const JOBS_AT_ONCE: usize = 16;
/// How long a failed job rests before it is tried again.
const REST_AFTER_FAILURE: Nanos = Nanos::from_secs(1);

/// What moves share.
pub(crate) struct Moves {
    /// What of the plan has not begun.
    pub queue: RefCell<Queue>,
    /// How far the plan is.
    pub progress: Progress,
    /// The limits of the plan.
    pub pace: Pace,
    /// The engine's own budget.
    pub turns: Turns,
    /// When the plan began, if it yields to guests.
    pub yields_since: Cell<Option<Nanos>>,
    /// Moves that have begun and not ended.
    pub moving: Cell<usize>,
    /// An audit is under way: no move begins.
    pub auditing: Cell<bool>,
    /// Whether second copies were brought up to date for the policy since a commit was asked for.
    pub resynced: Cell<bool>,
    /// Whether extents may lack the second copy that the volume requires.
    pub incomplete: Cell<bool>,
    /// Devices that are to be removed.
    pub drains: Drains,
    /// So much behind, the plan's policy is asked again: while no move of the plan is left.
    pub wake_at: Cell<Option<Bytes>>,
    /// Which places are probed.
    probe_rng: RefCell<Rng>,
}

impl Moves {
    /// Those of a volume, before the first one.
    pub fn new(superblock: &Superblock) -> Moves {
        Moves {
            queue: RefCell::new(Queue::new(Vec::new(), superblock.extent_size, false)),
            progress: Progress::default(),
            pace: Pace::new(superblock.devices.len()),
            turns: Turns::new(superblock.devices.len()),
            yields_since: Cell::new(None),
            moving: Cell::new(0),
            auditing: Cell::new(false),
            resynced: Cell::new(false),
            incomplete: Cell::new(superblock.copies > 1),
            drains: Drains::of(superblock),
            wake_at: Cell::new(None),
            probe_rng: RefCell::new(Rng::new(superblock.epoch)),
        }
    }

    /// There are so many devices now.
    pub fn set_devices(&self, devices: usize) {
        self.pace.set_devices(devices);
        self.turns.set_devices(devices);
    }
}

/// The plan that is being followed.
struct Following {
    /// As long as the policy is still the one that made it, …
    policy_changes: u64,
    /// … and up to this time moves may begin.
    until: Nanos,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Starts the background jobs; they end once `closing` is set.
    pub fn start_background(self: &Rc<Self>) {
        self.start(async |core| core.apply_recovered().await);
        self.start_recovered(async |core| core.follow_plan().await);
        self.start(async |core| core.keep_journal_short().await);
        self.start(async |core| core.commit_in_time().await);
        self.start(async |core| core.keep_proof().await);
        if !D::ALWAYS_ANSWERS {
            self.start(async |core| core.keep_witness().await);
        }
        self.start(async |core| core.trim_freed().await);
        if self.keeps_policy_state() {
            self.start(async |core| core.keep_policy_state().await);
        }
        self.start_recovered(async |core| core.drain().await);
        self.start(async |core| core.renew_regions().await);
        if self.has_cache_table() {
            self.start_cache_jobs();
        }
        if self.shape.copies > 1 {
            self.start(async |core| core.mark_given_up().await);
            self.start(async |core| core.clear_idle_spans().await);
            self.start_recovered(async |core| core.resync().await);
        }
        if self.dirty_spans.is_some() {
            self.start(async |core| core.keep_dirty_spans_few().await);
            self.start(async |core| core.keep_sums().await);
        }
        if self.epochs.is_some() {
            self.start_recovered(async |core| core.keep_epochs().await);
            self.start_recovered(async |core| core.sweep_image().await);
        }
    }

    /// Starts the jobs of a volume in which extra copies may lie.
    pub fn start_cache_jobs(self: &Rc<Self>) {
        self.start(async |core| core.keep_block_slots_free().await);
        if self.shape.copies == 1 {
            self.start(async |core| core.clear_idle_spans().await);
        }
    }

    /// Starts the job that looks whether another opening has taken the devices over.
    pub fn start_fence(self: &Rc<Self>) {
        if !D::ALWAYS_ANSWERS {
            self.start(async |core| core.keep_fence().await);
        }
    }

    /// Starts a job that ends once `closing` is set.
    fn start(self: &Rc<Self>, job: impl AsyncFnOnce(&Rc<Self>) + 'static) {
        self.jobs.begin();
        let core = self.clone();
        self.rt.spawn(async move {
            job(&core).await;
            core.jobs.end();
        });
    }

    /// Starts a job that moves or copies extents: not before a recovery has ended.
    fn start_recovered(self: &Rc<Self>, job: impl AsyncFnOnce(&Rc<Self>) + 'static) {
        self.start(async |core| {
            core.wait_until_recovered().await;
            job(core).await;
        });
    }

    /// Asks the policy when it wants to be asked, and does what it says, some moves at a time.
    async fn follow_plan(self: &Rc<Self>) {
        let mut plan = Plan::default();
        while !self.jobs.are_ending() {
            plan.clear();
            self.show_written();
            let next = self.with_policy(|policy, view| policy.plan(view, &mut plan));
            self.moves.pace.follow(&plan);
            self.moves.yields_since.set(plan.yields.then(|| self.rt.now()));
            let following = Following {
                policy_changes: self.policy.changes(),
                until: if plan.revise { next } else { Nanos::MAX },
            };
            self.moves.progress.begin(plan.moves.iter().map(|job| self.len_of(job)));
            let queue = &self.moves.queue;
            *queue.borrow_mut() =
                Queue::new(std::mem::take(&mut plan.moves), self.shape.extent_size, plan.yields);
            let at_once = JOBS_AT_ONCE.min(queue.borrow().len());
            join_all((0..at_once).map(|_| self.run_jobs(&following))).await;
            plan.moves = queue.borrow_mut().drain();
            for job in &plan.moves {
                self.end_move(job, Outcome::Stopped, following.policy_changes);
            }
            self.rest_until_planned(next, &following, plan.wake).await;
        }
    }

    /// Waits until the policy wants to be asked again.
    async fn rest_until_planned(&self, next: Nanos, plan: &Following, wake: Option<Bytes>) {
        self.moves.wake_at.set(wake);
        // What came while the plan was carried out does not make it ask without a rest.
        let soon = self.rt.now() + Nanos::from_millis(1);
        let (next, is_full) = if self.is_awakened() { (soon, true) } else { (next.max(soon), false) };
        let is_over = || self.policy.changes() != plan.policy_changes || !is_full && self.is_awakened();
        self.pause(next, is_over).await;
        self.moves.wake_at.set(None);
    }

    /// Whether so much is behind that the policy wants to be asked.
    fn is_awakened(&self) -> bool {
        self.moves.wake_at.get().is_some_and(|at| self.state.borrow().behind.total() >= at)
    }

    /// A write has put something behind.
    pub fn note_behind(&self) {
        if self.is_awakened() {
            self.jobs.wake();
        }
    }

    /// Lets the policy see how much was written to each device.
    fn show_written(&self) {
        let mut state = self.state.borrow_mut();
        for member in self.devices.iter() {
            state.views[member.id.index()].written = Bytes(member.written_bytes.get());
        }
    }

    /// Runs one job after the other, as long as there are any and the plan holds.
    async fn run_jobs(self: &Rc<Self>, plan: &Following) {
        let over = || {
            self.jobs.are_ending()
                || self.moves.auditing.get()
                || self.policy.changes() != plan.policy_changes
                || plan.until < Nanos::MAX && self.rt.now() >= plan.until
                || self.must_yield()
        };
        while let Some((job, _claim)) = self.next_job(plan.until, over).await {
            match job {
                Job::One(job) => {
                    // A failed move leaves everything as it was, and is counted by the device that failed it.
                    let outcome = self.run_move(job, Mover::Plan).await.unwrap_or(Outcome::Failed);
                    self.end_move(&job, outcome, plan.policy_changes);
                }
                Job::Run(run) => self.run_run(&run, plan.policy_changes).await,
            }
        }
    }

    async fn run_run(self: &Rc<Self>, run: &Run, policy_changes: u64) {
        let target = run.target;
        self.moves.moving.set(self.moves.moving.get() + 1);
        self.migrate(run, |extent, outcome| {
            self.end_move(&Move::Migrate { extent, target }, outcome, policy_changes);
        })
        .await;
        self.moves.moving.set(self.moves.moving.get() - 1);
    }

    /// Runs a move. Whether the plan's limits hold for it, its mover says; only the engine makes second
    /// copies without them.
    async fn run_move(self: &Rc<Self>, job: Move, mover: Mover) -> crate::Result<Outcome> {
        self.moves.moving.set(self.moves.moving.get() + 1);
        let outcome = match job {
            Move::Migrate { extent, target } => {
                let outcome = Cell::new(Outcome::Stopped);
                self.migrate(&Run { extents: vec![extent], target }, |_, o| outcome.set(o)).await;
                Ok(outcome.get())
            }
            Move::Mirror { extent, target } => self.mirror(extent, target, mover).await,
            Move::Promote { range, target } => self.promote_range(range, target).await,
            Move::Demote { range } => self.demote_range(range).await,
            Move::WriteBack { range } => self.write_back_range(range).await,
            Move::Resync { range, gap } => self.resync_range(range, gap).await,
            Move::Inspect { range } => self.inspect(range).await,
            Move::EndEpoch => self.wait_for_epoch().await,
            Move::Probe { device, direction, len } => self.probe(device, direction, len).await,
        };
        self.moves.moving.set(self.moves.moving.get() - 1);
        outcome
    }

    /// Runs a move that no policy asked for.
    pub async fn run_own_move(self: &Rc<Self>, job: Move) -> crate::Result<Outcome> {
        self.run_move(job, Mover::Engine).await
    }

    /// Tells the policy that asked for a move what became of it; one that has taken charge since knows
    /// nothing of it.
    fn end_move(&self, job: &Move, outcome: Outcome, policy_changes: u64) {
        let moved = outcome == Outcome::Finished;
        self.moves.progress.end(self.len_of(job), moved, self.rt.now());
        if self.policy.changes() == policy_changes {
            self.policy.borrow_mut().done(job, outcome);
        }
    }

    /// How many bytes a move concerns.
    fn len_of(&self, job: &Move) -> Bytes {
        match job {
            Move::Migrate { .. } | Move::Mirror { .. } => self.shape.extent_size,
            Move::Promote { range, .. }
            | Move::Demote { range }
            | Move::WriteBack { range }
            | Move::Resync { range, .. }
            | Move::Inspect { range } => range.len(),
            Move::Probe { len, .. } => *len,
            Move::EndEpoch => Bytes::ZERO,
        }
    }

    /// Commits what no guest has flushed.
    async fn commit_in_time(&self) {
        while !self.jobs.are_ending() {
            self.pause(self.rt.now() + OLDEST_CHANGE, || false).await;
            let resynced = self.moves.resynced.take();
            if self.jobs.are_ending() || self.state.borrow().pending() == 0 && !resynced {
                continue;
            }
            let is_old = self.rt.now() >= self.journal.commits.took_all() + OLDEST_WARMTH;
            if !is_old && !resynced && !self.state.borrow().is_commit_due() {
                continue;
            }
            // A failure is remembered, and told to every flush from now on.
            let _told = self.commit(Origin::Background).await;
        }
    }

    async fn keep_journal_short(&self) {
        while !self.jobs.are_ending() {
            let oldest = self.rt.now() + OLDEST_MAP;
            let is_wanted = || self.journal.wants_checkpoint() || self.state.borrow().lacks_checkpoint();
            self.pause(oldest, is_wanted).await;
            if self.jobs.are_ending() {
                return;
            }
            // One that runs elsewhere has taken the pages: then the next one waits for its end.
            if self.state.borrow().stale_pages() == 0 && !is_wanted() {
                continue;
            }
            if let Err(error) = self.checkpoint().await {
                // The journal cannot be freed: tasks that wait for room in it must hear of that.
                self.fail(error);
                self.pause(self.rt.now() + REST_AFTER_FAILURE, || false).await;
            }
        }
    }

    /// Waits until `deadline`, until the volume closes, or until `interrupt` becomes true at a notification.
    pub async fn pause(&self, deadline: Nanos, interrupt: impl Fn() -> bool) {
        let mut sleep = pin!(self.rt.sleep_until(deadline));
        let mut notified = pin!(self.jobs.wait_for(|| (self.jobs.are_ending() || interrupt()).then_some(())));
        poll_fn(|cx| {
            let over = sleep.as_mut().poll(cx).is_ready() || notified.as_mut().poll(cx).is_ready();
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
