//! The command line's end of a recording: receives a trace in the compact format from the daemon.

use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::{Error, Result};
use std::io::{BufReader, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A recording in progress.
pub struct Recording {
    stream: BufReader<UnixStream>,
    name: String,
}

/// Next event of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// This number of bytes.
    Bytes(usize),
    /// No bytes within [`Recording::PATIENCE`].
    Nothing,
    /// The recording has ended.
    End,
}

impl Recording {
    /// Time limit of [`Recording::receive`].
    pub const PATIENCE: Duration = Duration::from_millis(100);

    /// Starts to record the guests' requests to the volume.
    ///
    /// # Errors
    /// `Busy` if the volume is being recorded already, and errors of [`Client::call`].
    pub fn start(mut client: Client) -> Result<Recording> {
        client.call::<serde_json::Value>(Request::Record)?;
        let (name, stream) = client.into_stream();
        let limited = stream.get_ref().set_read_timeout(Some(Recording::PATIENCE));
        limited.map_err(|error| failed(&name, &error))?;
        Ok(Recording { stream, name })
    }

    /// Receives the next bytes.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Received> {
        match self.stream.read(into) {
            Ok(0) => Ok(Received::End),
            Ok(count) => Ok(Received::Bytes(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(Received::Nothing),
                // The daemon died: the bytes sent before are complete.
                ErrorKind::ConnectionReset => Ok(Received::End),
                _ => Err(failed(&self.name, &error)),
            },
        }
    }

    /// Asks the daemon to end the recording. Requests noted until now still come, then [`Received::End`].
    pub fn stop(&self) -> Result<()> {
        match self.stream.get_ref().shutdown(Shutdown::Write) {
            // The daemon ended the connection first.
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            ended => ended.map_err(|error| failed(&self.name, &error)),
        }
    }
}

fn failed(name: &str, error: &std::io::Error) -> Error {
    Error::io(format_args!("recording volume '{name}'"), error)
}
