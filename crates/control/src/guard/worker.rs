//! The threads of the ghosts.

use crate::{Error, Result};
use braid_lab::guard::{Batch, Ghosts, Like, Verdict};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Ghosts, on threads at the lowest priority. They end some time after this is dropped: nobody waits for them.
pub(super) struct Worker {
    batches: Sender<(Batch, usize)>,
    served: Receiver<Served>,
}

/// A batch that was served.
pub(super) struct Served {
    pub verdict: Verdict,
    /// What that took, of all ghosts together.
    pub processor: Duration,
}

/// The priority of what may wait.
const NICE: i32 = 19;

impl Worker {
    /// Ghosts of a volume, which are made meanwhile.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn new(like: Like, modes: Vec<String>) -> Result<Worker> {
        let (batches, to_serve) = channel::<(Batch, usize)>();
        let (done, served) = channel();
        let work = move || {
            // The threads of the ghosts inherit it.
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::warn!("ghosts run at the usual priority: {error}");
            }
            let mut ghosts = Ghosts::new(&like, &modes);
            while let Ok((batch, present)) = to_serve.recv() {
                let begun = Instant::now();
                let verdict = ghosts.serve(&batch, present);
                // At most that: they run side by side, and may have waited for a processor.
                let processor = begun.elapsed() * modes.len() as u32;
                if done.send(Served { verdict, processor }).is_err() {
                    break;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("ghosts".to_owned()).spawn(work);
        spawned.map_err(|error| Error::io("no thread for ghosts", &error))?;
        Ok(Worker { batches, served })
    }

    /// Gives them a batch, while the policy is in that mode.
    pub fn give(&self, batch: Batch, present: usize) {
        // Ghosts that have ended are met by `served`.
        let _ = self.batches.send((batch, present));
    }

    /// What they said, once they have.
    ///
    /// # Errors
    /// If they have ended.
    pub fn served(&self) -> Result<Option<Served>> {
        match self.served.try_recv() {
            Ok(served) => Ok(Some(served)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Error::new(crate::ErrorKind::Io, "a simulation beside the volume failed"))
            }
        }
    }
}
