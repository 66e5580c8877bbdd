//! The service manager that started the daemon, if one did: systemd, by the protocol of `sd_notify(3)`.
//!
//! A message is one datagram. No message makes guests wait: if the manager's socket is full, the daemon's
//! thread goes on. Beats of the watchdog come from a task of the reactor, so a reactor that stands still is
//! noticed.

use braid_base::Nanos;
use braid_runtime::Runtime;
use braid_uring::Ring;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;

/// The service manager; without one, messages go nowhere.
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Time between two beats of the watchdog, if the manager wants beats.
    beat: Option<Nanos>,
}

/// Attempts to send a message to a full socket.
const TRIES: u32 = 100;
/// Delay between two attempts.
const TRY_AGAIN: Nanos = Nanos::from_millis(10);

impl ServiceManager {
    /// Finds the manager by `NOTIFY_SOCKET`, and the watchdog by `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_environment() -> ServiceManager {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let socket = set("NOTIFY_SOCKET").and_then(|address| {
            let connected = connect(&address);
            connected.inspect_err(|error| tracing::warn!("NOTIFY_SOCKET={}: {error}", address.display())).ok()
        });
        let number = |name: &str| set(name).and_then(|value| value.to_str()?.parse::<u64>().ok());
        let is_own = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let interval = number("WATCHDOG_USEC").filter(|&micros| is_own && micros > 0).map(Nanos::from_micros);
        ServiceManager { socket, beat: interval.map(|interval| interval / 2) }
    }

    /// Reports that the daemon is ready, and starts the beats of the watchdog.
    pub async fn ready(self: &Rc<ServiceManager>, ring: &Ring, status: &str) {
        self.tell(ring, &format!("READY=1\nSTATUS={status}")).await;
        let Some(beat) = self.beat.filter(|_| self.socket.is_some()) else { return };
        let (manager, timer) = (self.clone(), ring.clone());
        ring.spawn(async move {
            loop {
                // A lost beat is no reason to wait: the next one comes in time.
                let _ = manager.send("WATCHDOG=1");
                timer.sleep(beat).await;
            }
        });
    }

    /// Reports that the daemon ends.
    pub async fn stopping(&self, ring: &Ring) {
        self.tell(ring, "STOPPING=1").await;
    }

    /// Sends a message, for at most a second.
    async fn tell(&self, ring: &Ring, message: &str) {
        for _ in 0..TRIES {
            match self.send(message) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ring.sleep(TRY_AGAIN).await,
                Err(error) => {
                    return tracing::warn!("the service manager cannot be told {message:?}: {error}");
                }
            }
        }
        tracing::warn!("the service manager does not read: it was not told {message:?}");
    }

    fn send(&self, message: &str) -> io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), |socket| socket.send(message.as_bytes()).map(drop))
    }
}

/// Connects to a path, or to an abstract name after `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match address.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(address)?,
    }
    Ok(socket)
}
