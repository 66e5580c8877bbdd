//! The command line's end of a recording: bytes of a trace in the compact format, as they come from the
//! daemon.

use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::{Error, Result};
use std::io::{BufReader, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A recording that runs.
pub struct Recording {
    stream: BufReader<UnixStream>,
    name: String,
}

/// What comes next of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing came for [`Recording::PATIENCE`].
    Nothing,
    /// It is over.
    End,
}

impl Recording {
    /// How long [`Recording::receive`] waits.
    pub const PATIENCE: Duration = Duration::from_millis(100);

    /// Begins to record what guests ask of the volume.
    ///
    /// # Errors
    /// `Busy` if it is recorded already, and what [`Client::call`] says.
    pub fn start(mut client: Client) -> Result<Recording> {
        client.call::<serde_json::Value>(Request::Record)?;
        let (name, stream) = client.into_stream();
        let limited = stream.get_ref().set_read_timeout(Some(Recording::PATIENCE));
        limited.map_err(|error| failed(&name, &error))?;
        Ok(Recording { stream, name })
    }

    /// Receives what comes next.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Received> {
        match self.stream.read(into) {
            Ok(0) => Ok(Received::End),
            Ok(count) => Ok(Received::Bytes(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(Received::Nothing),
                // A daemon that dies leaves what it has sent.
                ErrorKind::ConnectionReset => Ok(Received::End),
                _ => Err(failed(&self.name, &error)),
            },
        }
    }

    /// Asks for the end: what was noted until now comes, and then [`Received::End`].
    pub fn stop(&self) -> Result<()> {
        match self.stream.get_ref().shutdown(Shutdown::Write) {
            // The daemon was faster.
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            ended => ended.map_err(|error| failed(&self.name, &error)),
        }
    }
}

fn failed(name: &str, error: &std::io::Error) -> Error {
    Error::io(format_args!("recording volume '{name}'"), error)
}
