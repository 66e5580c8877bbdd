//! Threads of the ghosts.

use crate::{Error, Result};
use braid_lab::guard::{Batch, Ghosts, Like, Verdict};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Ghosts on threads with the lowest priority. The threads end some time after the worker is dropped; the
/// daemon does not wait.
pub(super) struct Worker {
    batches: Sender<(Batch, usize)>,
    verdicts: Receiver<Verdict>,
}

/// Nice value of the threads: the lowest priority.
const NICE: i32 = 19;

impl Worker {
    /// Starts a thread that makes the ghosts of a volume, and returns at once.
    ///
    /// # Errors
    /// If no more threads can be started.
    pub fn new(like: Like, modes: Vec<String>) -> Result<Worker> {
        let (batches, to_serve) = channel::<(Batch, usize)>();
        let (to_daemon, verdicts) = channel();
        let work = move || {
            // The ghosts' threads inherit the priority.
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::warn!("simulations run at the usual priority: {error}");
            }
            let mut ghosts = Ghosts::new(&like, &modes, processor_time);
            while let Ok((batch, present)) = to_serve.recv() {
                if to_daemon.send(ghosts.serve(&batch, present)).is_err() {
                    break;
                }
            }
        };
        beside_guests(work)?;
        Ok(Worker { batches, verdicts })
    }

    /// Sends a batch to the ghosts, with the policy's mode during the batch.
    pub fn give(&self, batch: Batch, present: usize) {
        // If the ghosts have ended, `verdict` reports the error.
        let _ = self.batches.send((batch, present));
    }

    /// Returns the ghosts' verdict, if ready.
    ///
    /// # Errors
    /// If the ghosts have ended.
    pub fn verdict(&self) -> Result<Option<Verdict>> {
        match self.verdicts.try_recv() {
            Ok(verdict) => Ok(Some(verdict)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Error::new(crate::ErrorKind::Io, "a simulation beside the volume failed"))
            }
        }
    }
}

/// Runs `work` in a thread of its own.
///
/// # Errors
/// If no more threads can be started.
pub(super) fn beside_guests(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = std::thread::Builder::new().name("ghosts".to_owned()).spawn(work);
    spawned.map(|_| ()).map_err(|error| Error::io("no thread for simulations", &error))
}

/// Returns the processor time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}
