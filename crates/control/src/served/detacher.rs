//! The process that detaches the volume when the daemon ends.
//!
//! A detach needs what a daemon gives up: it looks at all programs of the machine for users of the block
//! device, executes with the powers of root, and waits for requests that the daemon's thread serves. Hence a
//! process of its own, started before the daemon gives up its powers. The process takes no argument from the
//! daemon: all that a daemon can ask for is the detach of its own volume. It ends with the daemon, even after
//! a `kill -9`.

use crate::{Error, Result};
use braid_uring::Ring;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A request for a detach, and the answer once the detach has ended, with any result.
const WORD: [u8; 1] = *b"\n";

/// The process that detaches.
pub(crate) struct Detacher {
    /// The process ends when this end of the pipe is closed.
    requests: File,
    answers: File,
}

impl Detacher {
    /// Starts the process: a command that detaches for each request on its standard input, until the input
    /// ends ([`answer_requests`]).
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start(command: &[OsString]) -> Result<Option<Detacher>> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process group of its own: an interrupt from the terminal is meant for the daemon.
        let started = command.process_group(0).spawn();
        let mut process = started.map_err(|error| Error::io("starting the process that detaches", &error))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Ok(None);
        };
        let (requests, answers) = (OwnedFd::from(requests).into(), OwnedFd::from(answers).into());
        Ok(Some(Detacher { requests, answers }))
    }

    /// Unmounts file systems on the volume and removes the block device, if they are not in use. The process
    /// logs why not.
    pub async fn run(&self, ring: &Ring) {
        if let Err(error) = self.ask(ring).await {
            tracing::error!("unmounting the file systems on the volume: {error}");
        }
    }

    async fn ask(&self, ring: &Ring) -> io::Result<()> {
        (&self.requests).write_all(&WORD)?;
        ring.readable(&self.answers).await?;
        (&self.answers).read_exact(&mut [0; WORD.len()])
    }
}

/// Runs `detach` for each request on standard input, until the daemon ends.
///
/// # Errors
/// If standard output fails.
pub fn answer_requests(mut detach: impl FnMut()) -> Result<()> {
    let mut requests = io::stdin().lock();
    while requests.read_exact(&mut [0; WORD.len()]).is_ok() {
        detach();
        let mut answers = io::stdout().lock();
        let answered = answers.write_all(&WORD).and_then(|()| answers.flush());
        answered.map_err(|error| Error::io("answering the daemon", &error))?;
    }
    Ok(())
}
