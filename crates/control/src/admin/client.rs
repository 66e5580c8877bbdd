//! Client of the admin socket, for the command line. Synchronous: one connection, one request at a time.

use crate::admin::protocol::{Envelope, LONGEST_REPLY, PROTOCOL_VERSION, Reply, Request};
use crate::admin::silence::Silence;
use crate::device::room::over_committed_bytes;
use crate::device::spec::{DeviceSpec, absolute};
use crate::report::changes::{AddReport, PolicyReport, ReplaceReport};
use crate::report::resting::resting_report;
use crate::report::types::{ExplainReport, StatusReport, VolumeReport};
use crate::state::lock::waiting;
use crate::state::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId};
use braid_uring::connect_unix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to the daemon of a volume.
pub struct Client {
    state: StateDir,
    name: VolumeName,
    stream: BufReader<UnixStream>,
}

/// Result of a connection attempt.
pub(crate) enum Reached {
    /// A daemon that answers.
    Answers(Client),
    /// A daemon that does not answer.
    Silent(Silence),
}

/// Time limit for a reply: a flush of slow devices takes long, and a daemon that hangs never replies.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Time limit for a reply that needs no device.
const ANSWER: Duration = Duration::from_secs(10);
/// Time limit for a map: several requests for the maps of different devices wait for one another.
const LOOK: Duration = Duration::from_secs(30);
/// Time limit for another size: room for metadata is made first, and a large volume closes and opens.
const RESIZE: Duration = Duration::from_secs(3600);
/// Time limit for the process to end after the volume was closed.
const LAST_STEPS: Duration = Duration::from_secs(5);

impl Client {
    /// Connects to the daemon of a volume, and checks that the daemon answers within ten seconds. Waits for a
    /// daemon that is opening its volume.
    ///
    /// # Errors
    /// `NotServed` if there is no daemon; `Invalid` if there is no such volume; `Io` if the daemon does not
    /// answer: names the process.
    pub fn connect(state: &StateDir, name: &VolumeName) -> Result<Client> {
        match Client::reach(state, name, PATIENCE)? {
            Reached::Answers(client) => Ok(client),
            Reached::Silent(silence) => Err(silence.error()),
        }
    }

    /// Connects as [`Client::connect`]. Waits up to `opening` longer for a daemon that is opening its volume.
    pub(crate) fn reach(state: &StateDir, name: &VolumeName, opening: Duration) -> Result<Reached> {
        let path = state.admin_socket(name);
        let stream = match connect_unix(&path) {
            Ok(stream) => stream,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        Err(not_served(state, name))
                    }
                    io::ErrorKind::WouldBlock => Ok(Reached::Silent(Silence::of(state, name))),
                    _ => Err(state.failed("connect to", &path, &error)),
                };
            }
        };
        let limited = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
        limited.map_err(|e| state.failed("use", &path, &e))?;
        let mut client = Client { state: state.clone(), name: name.clone(), stream: BufReader::new(stream) };
        // Any version of a daemon answers this request at once, whatever else the daemon does.
        client.send(Request::Policy)?;
        if !client.hears(ANSWER)? {
            let silence = Silence::of(state, name);
            if !silence.is_opening() {
                return Ok(Reached::Silent(silence));
            }
            if !client.hears(opening)? {
                return Ok(Reached::Silent(Silence::of(state, name)));
            }
        }
        client.receive::<serde_json::Value>()?;
        Ok(Reached::Answers(client))
    }

    /// Returns the status of the volume.
    pub fn status(&mut self) -> Result<StatusReport> {
        self.call(Request::Status)
    }

    /// Explains where a byte lies, and why.
    pub fn explain(&mut self, offset: Bytes) -> Result<ExplainReport> {
        self.call(Request::Explain { offset_bytes: offset.0 })
    }

    /// Returns the active policy.
    pub fn policy(&mut self) -> Result<PolicyReport> {
        self.call(Request::Policy)
    }

    /// Fails a device: it is no longer used.
    ///
    /// # Errors
    /// `Invalid` if the device is not in use, `Degraded` if it holds the only copy of some data.
    pub fn fail_device(&mut self, device: DeviceId) -> Result<()> {
        self.call::<serde_json::Value>(Request::FailDevice { device: device.0 }).map(drop)
    }

    /// Adds a device to the volume while guests work.
    ///
    /// # Errors
    /// `Usage` for a device in memory, `Invalid` for a device that does not fit or holds something.
    pub fn add_device(&mut self, new: &DeviceSpec, overwrite: bool) -> Result<AddReport> {
        self.call(Request::AddDevice { class: new.class.to_string(), new: new.absolute_text()?, overwrite })
    }

    /// Starts to drain a device, which is removed from the volume when empty. [`Client::status`] shows the
    /// progress.
    ///
    /// # Errors
    /// `Invalid` if the device is not in use or keeps epochs, `NoSpace` if the other devices lack room.
    pub fn remove_device(&mut self, device: DeviceId) -> Result<()> {
        self.call::<serde_json::Value>(Request::RemoveDevice { device: device.0 }).map(drop)
    }

    /// Adds a device and drains another device. The data moves to the new device and to other devices; the
    /// old device is removed when empty.
    ///
    /// # Errors
    /// Errors of [`Client::add_device`] and [`Client::remove_device`].
    pub fn replace_device(
        &mut self,
        device: DeviceId,
        new: &DeviceSpec,
        overwrite: bool,
    ) -> Result<ReplaceReport> {
        self.call(Request::ReplaceDevice { device: device.0, new: new.absolute_text()?, overwrite })
    }

    /// Cancels the removal of a device: the device stays.
    ///
    /// # Errors
    /// `Invalid` if the device is not draining.
    pub fn keep_device(&mut self, device: DeviceId) -> Result<()> {
        self.call::<serde_json::Value>(Request::KeepDevice { device: device.0 }).map(drop)
    }

    /// Uses a device again that failed or was missing: at `path`, or at the place where the daemon finds the
    /// device.
    ///
    /// # Errors
    /// `Invalid` if another device is there, or the device is in use or has unanswered requests; `Degraded`
    /// if it was used apart from the other devices.
    pub fn return_device(&mut self, device: DeviceId, path: Option<&Path>) -> Result<AddReport> {
        self.call(Request::ReturnDevice { device: device.0, path: path.map(absolute).transpose()? })
    }

    /// Makes all earlier writes durable.
    pub fn flush(&mut self) -> Result<()> {
        self.call::<serde_json::Value>(Request::Flush).map(drop)
    }

    /// Writes a checkpoint, which shortens the journal.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.call::<serde_json::Value>(Request::Checkpoint).map(drop)
    }

    /// Drains and stops the daemon. Returns when the volume is closed and the process has ended: until then
    /// the process holds its locks, and the next command would be refused.
    ///
    /// # Errors
    /// `Unsafe` if the volume could not be closed.
    pub fn stop(&mut self) -> Result<()> {
        let process = watch_process(self.status()?.process_id);
        let stopped = self.call::<serde_json::Value>(Request::Stop).map(drop);
        if let Some(process) = process {
            let seconds = Timespec { tv_sec: LAST_STEPS.as_secs() as i64, tv_nsec: 0 };
            // The volume is closed, whether or not the process ended in time.
            let _ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&seconds));
        }
        stopped
    }

    /// Sends any request, and returns the reply as the type in the request's documentation.
    pub fn call<T: DeserializeOwned>(&mut self, request: Request) -> Result<T> {
        let limit = match request {
            Request::Status | Request::Explain { .. } | Request::Policy => ANSWER,
            Request::Map { .. } => LOOK,
            Request::Resize { .. } => RESIZE,
            _ => PATIENCE,
        };
        match self.send(request) {
            // A daemon that refuses a connection replies at once, and the request finds its end.
            Err(error) if is_ended(&error) => {}
            sent => sent.map_err(|error| self.failed(&error))?,
        }
        if !self.hears(limit)? {
            return Err(self.silence());
        }
        self.receive()
    }

    fn send(&mut self, request: Request) -> io::Result<()> {
        let envelope = Envelope { version: PROTOCOL_VERSION, request };
        let mut line = serde_json::to_vec(&envelope).expect("a request is plain text and numbers");
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    /// True if the daemon begins its reply in time, or ends the connection.
    fn hears(&self, limit: Duration) -> Result<bool> {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
        let stream = self.stream.get_ref();
        let heard = retry_on_intr(|| poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)));
        heard.map(|count| count > 0).map_err(|e| self.failed(&e.into()))
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut reply = Vec::new();
        let read = (&mut self.stream).take(LONGEST_REPLY as u64).read_until(b'\n', &mut reply);
        read.map_err(|e| self.failed(&e))?;
        if reply.is_empty() {
            return Err(self.ended());
        }
        if reply.len() >= LONGEST_REPLY {
            let problem =
                format!("the daemon of volume '{}' replied with more than {LONGEST_REPLY} bytes", self.name);
            return Err(Error::new(
                ErrorKind::Io,
                problem + ": the daemon may be of another version of Braid",
            ));
        }
        let odd = |error: serde_json::Error| {
            let problem = format!("the daemon of volume '{}' gave no valid reply ({error})", self.name);
            Error::new(
                ErrorKind::Io,
                problem + ": the daemon may be of another version of Braid, or may have just ended",
            )
        };
        match serde_json::from_slice(&reply).map_err(odd)? {
            Reply::Ok(value) => serde_json::from_value(value).map_err(odd),
            Reply::Error(error) => Err(error),
        }
    }

    /// Returns the volume's name, and the connection for bytes outside the protocol.
    pub(crate) fn into_stream(self) -> (String, BufReader<UnixStream>) {
        (self.name.to_string(), self.stream)
    }

    fn failed(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.silence(),
            _ if is_ended(error) => self.ended(),
            _ => Error::io(format_args!("talking to the daemon of volume '{}'", self.name), error),
        }
    }

    fn silence(&self) -> Error {
        Silence::of(&self.state, &self.name).error()
    }

    /// Error for an ended connection: a killed process accepts connections until the kernel has closed its
    /// socket.
    fn ended(&self) -> Error {
        let problem = format!("the daemon of volume '{}' ended before it replied", self.name);
        Error::new(
            ErrorKind::NotServed,
            problem + ": see the daemon's log, and the volume with 'braid status'",
        )
    }
}

/// Returns a handle of the daemon's process. `None` if the process is this process, as in tests, or not
/// visible.
fn watch_process(id: u32) -> Option<OwnedFd> {
    if id == std::process::id() {
        return None;
    }
    pidfd_open(Pid::from_raw(id as i32)?, PidfdFlags::empty()).ok()
}

/// Returns the report of a volume, served or not, within seconds, whatever its daemon does.
pub fn volume_report(state: &StateDir, name: &VolumeName) -> Result<VolumeReport> {
    let status = match Client::reach(state, name, Duration::ZERO) {
        Ok(Reached::Answers(mut client)) => client.status(),
        Ok(Reached::Silent(silence)) => return Ok(VolumeReport::Silent(silence.report())),
        Err(error) => Err(error),
    };
    match status {
        Ok(mut status) => {
            // Computed here, since the daemon must not wait for a file system that hangs.
            let paths = status.devices.iter().map(|device| Path::new(&device.path));
            status.over_committed_bytes = over_committed_bytes(paths);
            Ok(VolumeReport::Served(Box::new(status)))
        }
        Err(error) if error.kind() == ErrorKind::NotServed => {
            Ok(VolumeReport::Resting(resting_report(state, name)?))
        }
        Err(error) => Err(error),
    }
}

fn not_served(state: &StateDir, name: &VolumeName) -> Error {
    match state.load(name) {
        Ok(_) => {
            let problem = waiting(state, name);
            let problem =
                problem.unwrap_or_else(|| format!("volume '{name}' is not served: braid serve {name}"));
            Error::new(ErrorKind::NotServed, problem)
        }
        Err(error) => error,
    }
}

/// True if the other side has closed the connection.
fn is_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::types::DeviceReport;
    use braid_format::layout::MOST_DEVICES;
    use std::os::unix::net::UnixListener;

    /// Regression: `braid status` just after the daemon was killed failed with "Connection reset by peer",
    /// and said nothing about the volume.
    #[test]
    fn connection_closed_before_reply_counts_as_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name): (_, VolumeName) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        state.make_dir(&state.volume_dir(&name)).unwrap();
        for reads_first in [true, false] {
            let path = state.admin_socket(&name);
            let listener = UnixListener::bind(&path).unwrap();
            let daemon = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                if reads_first {
                    let read = stream.read(&mut [0; 4096]).unwrap();
                    assert!(read > 0);
                }
            });
            let Err(error) = Client::connect(&state, &name) else { panic!("nothing replied") };
            assert_eq!(error.kind(), ErrorKind::NotServed, "{error}");
            daemon.join().unwrap();
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Regression: replies were cut at 1 MiB. With 1,001 devices and long paths, `braid status` failed with
    /// "no valid reply" from the first seconds of load.
    #[test]
    fn status_reply_of_the_maximum_device_count_arrives_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (state, name): (_, VolumeName) = (StateDir::new(dir.path()).unwrap(), "vault".parse().unwrap());
        state.make_dir(&state.volume_dir(&name)).unwrap();
        let listener = UnixListener::bind(state.admin_socket(&name)).unwrap();
        let path = "/\u{e9}\"".repeat(1_365);
        let device = DeviceReport {
            last_error: Some(format!("{path}: Input/output error (os error 5)")),
            policy_figures: (0..32).map(|i| (format!("requests_per_second_{i}"), 0.123_456_789)).collect(),
            path,
            ..DeviceReport::default()
        };
        let sent = vec![device; MOST_DEVICES];
        let reply = serde_json::to_vec(&Reply::Ok(serde_json::to_value(&sent).unwrap())).unwrap();
        assert!(reply.len() > 1 << 20 && reply.len() < LONGEST_REPLY, "{}", reply.len());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"ok\":{}}\n").unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            assert!(requests.next().unwrap().unwrap().contains("policy"));
            stream.write_all(&[&reply[..], b"\n"].concat()).unwrap();
        });
        let received: Vec<DeviceReport> =
            Client::connect(&state, &name).unwrap().call(Request::Status).unwrap();
        server.join().unwrap();
        assert!(received == sent);
    }
}
