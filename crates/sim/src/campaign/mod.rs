//! Crash after crash: run a workload, keep the state of all disks at many points, and recover each of these
//! states in several ways, comparing every byte with the oracle.
//!
//! ```text
//! plan.rs subject.rs disturbance.rs   declaration of a campaign
//! run.rs       a workload on a new volume, with snapshots
//! trial.rs     one outcome of a snapshot: power cut or kill, recovery, verification, further lives
//! life.rs      one later life            adversary.rs   disturbances of a life
//! shorten.rs   shortens a failed trial
//! trial_id.rs  name of a trial, for the command that replays the trial
//! report.rs    counts and failures       guarded.rs     panics and deadlocks as failures
//! ```
//!
//! A *run* is one seed. Its first life creates a volume and runs the workload to its end, or to a clean
//! shutdown. At some cut points, the campaign takes a snapshot of all disks (durable, unflushed and in
//! flight) and of the oracle, without ending the run.
//!
//! A *trial* is one outcome of one snapshot: another fate of the unflushed writes. A trial costs one
//! recovery: open, read all, audit, read all again. Some trials continue: cut again (also within recovery),
//! killed, closed, disturbed, with more work in between. Everything in a trial follows from its [`TrialId`].
//! follows from its [`TrialId`].

mod adversary;
mod disturbance;
mod guarded;
mod life;
mod plan;
mod report;
mod run;
mod shorten;
mod subject;
mod trial;
mod trial_id;

pub use disturbance::Disturbance;
pub use plan::{Campaign, Setup, States};
pub use report::{Failure, Report};
pub use subject::Subject;
pub use trial_id::TrialId;

use report::Tally;
use run::{Picks, Run};
use trial::Trial;

impl Campaign {
    /// Runs the listed regressions, then all seeds, until a trial fails. `BRAID_CRASH_TRIAL` restricts the
    /// campaign to one trial.
    ///
    /// # Errors
    /// The first failure; failures of seeds are shortened.
    pub fn run<S: Subject>(&self, subject: &S) -> Result<Report, Box<Failure>> {
        let mut report = Report::default();
        if let Some(trial) = TrialId::asked_for() {
            self.run_trial(subject, &trial, &mut report)?;
            return Ok(report);
        }
        for trial in TrialId::listed(self.regressions, self.name) {
            self.run_trial(subject, &trial, &mut report)?;
        }
        for seed in self.seeds.clone() {
            self.run_seed(subject, seed, &mut report).map_err(|failure| self.shorten(subject, failure))?;
        }
        Ok(report)
    }

    /// Runs one seed with all its crash states.
    fn run_seed<S: Subject>(&self, subject: &S, seed: u64, report: &mut Report) -> Result<(), Box<Failure>> {
        let run = Run::new(self, subject, TrialId { seed, ..TrialId::default() });
        for snapshot in run.first_life(Picks::Spread(self.states.every), report)? {
            for outcome in 0..self.states.outcomes {
                Trial::new(&run, &snapshot, outcome).run(report)?;
            }
        }
        Ok(())
    }

    /// Runs one trial: the run up to the trial's point, then the outcome.
    fn run_trial<S: Subject>(
        &self,
        subject: &S,
        trial: &TrialId,
        report: &mut Report,
    ) -> Result<(), Box<Failure>> {
        let run = Run::new(self, subject, trial.clone());
        let snapshots = run.first_life(Picks::Only(trial.point), report)?;
        snapshots.iter().try_for_each(|snapshot| Trial::new(&run, snapshot, trial.outcome).run(report))
    }
}
