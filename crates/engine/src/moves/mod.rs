//! Background work: the policy's plan, commits, checkpoints, trims, resync. Guests come first.

mod inspect;
mod migrate;
mod probe;
mod progress;
mod ranges;
mod reproduced;
mod resync;
mod together;
mod trim;

pub use progress::MovesStatus;

use crate::copier::{Budget, MigrationRun, MoveTask, Mover, Queue};
use crate::core::{Store, Upkeep};
use crate::shape::Shape;
use braid_base::{Bytes, Nanos, Rng};
use braid_format::superblock::Superblock;
use braid_policy::{Move, Origin, Outcome, Plan};
use braid_runtime::{Device, Runtime, join_all};
use progress::Progress;
use reproduced::Reproduced;
use std::cell::{Cell, RefCell};

/// Longest lag of the map images behind the journal. If the first metadata device is lost, the second image
/// lags by at most this time.
const OLDEST_MAP: Nanos = Nanos::from_secs(30);
/// Longest time that a map change waits for a commit if no guest flushes: as long as in the usual file
/// systems. Slots freed by the change cannot be used again before the commit.
const OLDEST_CHANGE: Nanos = Nanos::from_secs(5);
/// Longest wait of changes that only keep a cache warm after a crash: a commit flushes all devices.
const OLDEST_WARMTH: Nanos = Nanos::from_secs(30);
/// Tasks at the same time: most tasks wait for their turn on a device.
const TASKS_AT_ONCE: usize = 16;
/// Pause before a failed job is tried again.
const REST_AFTER_FAILURE: Nanos = Nanos::from_secs(1);

/// State shared by all moves.
pub(crate) struct Moves {
    /// Moves of the plan that have not begun.
    pub queue: RefCell<Queue>,
    /// Progress of the plan.
    pub progress: Progress,
    /// Time of devices for moves.
    pub budget: Budget,
    /// Moves in flight.
    pub moving: Cell<usize>,
    /// True during an audit: no move begins.
    pub auditing: Cell<bool>,
    /// Set once stale copies were brought up to date: the next background commit is due even without pending
    /// changes.
    pub resynced: Cell<bool>,
    /// Copies made for lost devices.
    reproduced: Reproduced,
    /// Source of random places for probes.
    probe_rng: RefCell<Rng>,
}

impl Moves {
    /// Returns the state of a volume before its first move.
    pub fn new(superblock: &Superblock) -> Moves {
        Moves {
            queue: RefCell::new(Queue::new(Vec::new(), superblock.extent_size, false)),
            progress: Progress::default(),
            budget: Budget::new(superblock.devices.len()),
            moving: Cell::new(0),
            auditing: Cell::new(false),
            resynced: Cell::new(false),
            reproduced: Reproduced::default(),
            probe_rng: RefCell::new(Rng::new(superblock.epoch)),
        }
    }
}

/// The plan in progress.
struct Following {
    /// Changes of policy when the plan was made: after another change, the plan is over.
    policy_changes: u64,
    /// Time after which no move of the plan may begin.
    until: Nanos,
}

impl Shape {
    /// Returns the length of a move in bytes.
    fn len_of_move(&self, job: &Move) -> Bytes {
        match job {
            Move::Migrate { .. } | Move::Mirror { .. } => self.extent_size,
            Move::Promote { range, .. }
            | Move::Demote { range }
            | Move::WriteBack { range }
            | Move::Resync { range, .. }
            | Move::Inspect { range } => range.len(),
            Move::Probe { len, .. } => *len,
            Move::EndEpoch => Bytes::ZERO,
        }
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Starts the background jobs, which end when the volume closes.
    pub fn start_background(&self) {
        self.start(async |upkeep| upkeep.extents.apply_recovered().await);
        self.start_recovered(async |upkeep| upkeep.follow_plan().await);
        self.start(async |upkeep| upkeep.keep_journal_short().await);
        self.start(async |upkeep| upkeep.commit_in_time().await);
        self.start(async |upkeep| upkeep.durable.keep_proof().await);
        if !D::ALWAYS_ANSWERS {
            self.start(async |upkeep| upkeep.durable.keep_witness().await);
        }
        self.start(async |upkeep| upkeep.trim_freed().await);
        if self.store.devices.keeps_policy_state() {
            self.start(async |upkeep| upkeep.extents.keep_policy_state().await);
        }
        self.start_recovered(async |upkeep| upkeep.drain().await);
        self.start(async |upkeep| upkeep.renew_regions().await);
        if self.store.devices.has_cache_table() {
            self.start_cache_jobs();
        }
        if self.store.shape.copies > 1 {
            self.start(async |upkeep| upkeep.extents.mark_given_up().await);
            self.start(async |upkeep| upkeep.clear_idle_spans().await);
            self.start_recovered(async |upkeep| upkeep.resync().await);
        }
        if self.durable.dirty_spans.is_some() {
            self.start(async |upkeep| upkeep.durable.keep_dirty_spans_few().await);
            self.start(async |upkeep| upkeep.durable.keep_sums().await);
        }
        if self.extents.epochs.is_some() {
            self.start_recovered(async |upkeep| upkeep.keep_epochs().await);
            self.start_recovered(async |upkeep| upkeep.sweep_image().await);
        }
    }

    /// Starts the jobs of a volume that may have extra copies.
    pub fn start_cache_jobs(&self) {
        self.start(async |upkeep| upkeep.durable.keep_block_slots_free().await);
        if self.store.shape.copies == 1 {
            self.start(async |upkeep| upkeep.clear_idle_spans().await);
        }
    }

    /// Starts the job that checks for a newer opening of the devices.
    pub fn start_fence(&self) {
        if !D::ALWAYS_ANSWERS {
            self.start(async |upkeep| upkeep.durable.keep_fence().await);
        }
    }

    /// Starts a job, which ends when the volume closes.
    fn start(&self, job: impl AsyncFnOnce(&Self) + 'static) {
        self.jobs.begin();
        let upkeep = self.own.handle();
        self.rt.spawn(async move {
            job(&upkeep).await;
            upkeep.jobs.end();
        });
    }

    /// Starts a job that moves or copies extents, once recovery has ended.
    fn start_recovered(&self, job: impl AsyncFnOnce(&Self) + 'static) {
        self.start(async |upkeep| {
            upkeep.extents.wait_until_recovered().await;
            job(upkeep).await;
        });
    }

    /// Asks the policy for a plan whenever the policy is due, and carries out the plan, several moves at a
    /// time.
    async fn follow_plan(&self) {
        let mut plan = Plan::default();
        while !self.jobs.are_ending() {
            plan.clear();
            self.store.show_written();
            let next = self.extents.with_policy(|policy, view| policy.plan(view, &mut plan));
            self.moves.budget.follow(&plan, self.rt.now());
            let following = Following {
                policy_changes: self.policy.changes(),
                until: if plan.revise { next } else { Nanos::MAX },
            };
            self.moves.progress.begin(plan.moves.iter().map(|job| self.store.shape.len_of_move(job)));
            let queue = &self.moves.queue;
            *queue.borrow_mut() =
                Queue::new(std::mem::take(&mut plan.moves), self.store.shape.extent_size, plan.yields);
            let at_once = TASKS_AT_ONCE.min(queue.borrow().len());
            join_all((0..at_once).map(|_| self.run_tasks(&following))).await;
            plan.moves = queue.borrow_mut().drain();
            for job in &plan.moves {
                self.end_move(job, Outcome::Stopped, following.policy_changes);
            }
            self.rest_until_planned(next, &following, plan.wake).await;
        }
    }

    /// Waits until the policy is due again.
    async fn rest_until_planned(&self, next: Nanos, plan: &Following, wake: Option<Bytes>) {
        self.store.wake_at.set(wake);
        // Stale bytes that the plan left behind wake the policy only after a short pause.
        let soon = self.rt.now() + Nanos::from_millis(1);
        let (next, is_full) = if self.store.is_awakened() { (soon, true) } else { (next.max(soon), false) };
        let is_over = || self.policy.changes() != plan.policy_changes || !is_full && self.store.is_awakened();
        self.durable.pause(next, is_over).await;
        self.store.wake_at.set(None);
    }

    /// Runs tasks one after the other, until none is left or the plan is over.
    async fn run_tasks(&self, plan: &Following) {
        let over = || {
            self.jobs.are_ending()
                || self.moves.auditing.get()
                || self.policy.changes() != plan.policy_changes
                || plan.until < Nanos::MAX && self.rt.now() >= plan.until
                || self.must_yield()
        };
        while let Some((task, _claim)) = self.next_task(plan.until, over).await {
            match task {
                MoveTask::One(job) => {
                    // A failed move changes nothing. The device that failed counts the error.
                    let outcome = self.run_move(job, Mover::Plan).await.unwrap_or(Outcome::Failed);
                    self.end_move(&job, outcome, plan.policy_changes);
                }
                MoveTask::Run(run) => self.run_run(&run, plan.policy_changes).await,
            }
        }
    }

    async fn run_run(&self, run: &MigrationRun, policy_changes: u64) {
        let target = run.target;
        self.moves.moving.set(self.moves.moving.get() + 1);
        self.migrate(run, |extent, outcome| {
            self.end_move(&Move::Migrate { extent, target }, outcome, policy_changes);
        })
        .await;
        self.moves.moving.set(self.moves.moving.get() - 1);
    }

    /// Runs a move. `mover` decides whether the limits of the plan apply. Of the engine's own moves, only
    /// mirrors run without these limits.
    async fn run_move(&self, job: Move, mover: Mover) -> crate::Result<Outcome> {
        self.moves.moving.set(self.moves.moving.get() + 1);
        let outcome = match job {
            Move::Migrate { extent, target } => {
                let outcome = Cell::new(Outcome::Stopped);
                self.migrate(&MigrationRun { extents: vec![extent], target }, |_, o| outcome.set(o)).await;
                Ok(outcome.get())
            }
            Move::Mirror { extent, target } => self.mirror(extent, target, mover).await,
            Move::Promote { range, target } => self.promote_range(range, target).await,
            Move::Demote { range } => self.demote_range(range).await,
            Move::WriteBack { range } => self.write_back_range(range).await,
            Move::Resync { range, gap } => self.resync_range(range, gap).await,
            Move::Inspect { range } => self.inspect(range).await,
            Move::EndEpoch => self.extents.wait_for_epoch().await,
            Move::Probe { device, direction, len } => self.probe(device, direction, len).await,
        };
        self.moves.moving.set(self.moves.moving.get() - 1);
        outcome
    }

    /// Runs a move that no policy asked for.
    pub async fn run_own_move(&self, job: Move) -> crate::Result<Outcome> {
        self.run_move(job, Mover::Engine).await
    }

    /// Tells the policy the outcome of its move. A policy that became active later is not told.
    fn end_move(&self, job: &Move, outcome: Outcome, policy_changes: u64) {
        let moved = outcome == Outcome::Finished;
        self.moves.progress.end(self.store.shape.len_of_move(job), moved, self.rt.now());
        if self.policy.changes() == policy_changes {
            self.policy.borrow_mut().done(job, outcome);
        }
    }

    /// Commits pending changes that no guest has flushed.
    async fn commit_in_time(&self) {
        while !self.jobs.are_ending() {
            self.durable.pause(self.rt.now() + OLDEST_CHANGE, || false).await;
            let resynced = self.moves.resynced.take();
            if self.jobs.are_ending() || self.store.state.borrow().pending() == 0 && !resynced {
                continue;
            }
            let is_old = self.rt.now() >= self.durable.journal.commits.took_all() + OLDEST_WARMTH;
            if !is_old && !resynced && !self.store.state.borrow().is_commit_due() {
                continue;
            }
            // The failure is remembered: every later flush fails.
            let _told = self.durable.commit(Origin::Background).await;
        }
    }

    async fn keep_journal_short(&self) {
        while !self.jobs.are_ending() {
            let oldest = self.rt.now() + OLDEST_MAP;
            let is_wanted =
                || self.durable.journal.wants_checkpoint() || self.store.state.borrow().lacks_checkpoint();
            self.durable.pause(oldest, is_wanted).await;
            if self.jobs.are_ending() {
                return;
            }
            // A checkpoint in flight elsewhere has taken the stale pages. A wanted checkpoint then waits for
            // the end of the other.
            if self.store.state.borrow().stale_pages() == 0 && !is_wanted() {
                continue;
            }
            if let Err(error) = self.durable.checkpoint().await {
                // The journal cannot free room: tasks that wait for room must fail, too.
                self.durable.fail(error);
                self.durable.pause(self.rt.now() + REST_AFTER_FAILURE, || false).await;
            }
        }
    }
}

impl<D: Device> Store<D> {
    /// True if enough bytes are stale for the policy to be asked.
    pub fn is_awakened(&self) -> bool {
        self.wake_at.get().is_some_and(|at| self.state.borrow().behind.total() >= at)
    }

    /// Shows the policy the bytes written to each device.
    fn show_written(&self) {
        let mut state = self.state.borrow_mut();
        for member in self.devices.iter() {
            state.views[member.id.index()].written = Bytes(member.written_bytes.get());
        }
    }
}
