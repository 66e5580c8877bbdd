//! Connecting to a server: name resolution and connect in a thread of their own, with a time limit.

use crate::short_path::connect_unix_of_any;
use crate::{Ring, Stream, run_blocking};
use braid_base::Nanos;
use braid_runtime::Runtime;
use rustix::net::sockopt;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Location of a server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    /// A port of a host.
    Tcp {
        /// Name of the host, or a numeric address: IPv6 without brackets.
        host: String,
        /// Number of the port.
        port: u16,
    },
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// Time limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectLimits {
    /// Time for name resolution and connect, over all addresses of the host.
    pub connect: Nanos,
    /// TCP only: a host that acknowledges nothing for this time is gone, and the connection breaks. Also for
    /// an idle connection, by keepalive probes. Rounded up to 4 seconds.
    pub silence: Nanos,
}

impl Stream {
    /// Connects to a server. The addresses of a host are tried in the order of the resolver.
    ///
    /// The future may be dropped at any time.
    ///
    /// # Errors
    /// `TimedOut` at the time limit; errors of the resolver and of connect(2), naming the destination.
    pub async fn connect(
        ring: &Ring,
        destination: &Destination,
        limits: ConnectLimits,
    ) -> io::Result<Stream> {
        let target = destination.clone();
        let work = run_blocking(ring, "connect", move || connect(&target, limits));
        let (mut work, mut limit) = (pin!(work), pin!(ring.sleep(limits.connect)));
        let connected = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(connected) => Poll::Ready(connected.flatten()),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        });
        let failed = |error: io::Error| {
            let kind = error.kind();
            let problem = match kind {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    format!("no connection to {destination} within {}: is the server up?", limits.connect)
                }
                _ => format!("no connection to {destination}: {error}"),
            };
            io::Error::new(kind, problem)
        };
        Stream::from_fd(ring, connected.await.map_err(failed)?)
    }
}

/// Connects in this thread.
fn connect(destination: &Destination, limits: ConnectLimits) -> io::Result<OwnedFd> {
    let (host, port) = match destination {
        Destination::Unix(path) => return connect_unix_of_any(path).map(OwnedFd::from),
        Destination::Tcp { host, port } => (host.as_str(), *port),
    };
    let end = Instant::now() + Duration::from_nanos(limits.connect.0);
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return watched(stream.into(), limits.silence),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Makes the kernel end the connection if the other host falls silent, and drop unsent bytes if this process
/// dies: a request must not arrive at the server after the requests of the next process.
fn watched(socket: OwnedFd, silence: Nanos) -> io::Result<OwnedFd> {
    // The first probe after a part of the time, then the rest in equal parts.
    let part = Duration::from_secs((silence.0 / u64::from(PARTS)).div_ceil(1_000_000_000).clamp(1, 3_600));
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, part)?;
    sockopt::set_tcp_keepintvl(&socket, part)?;
    sockopt::set_tcp_keepcnt(&socket, PARTS - 1)?;
    sockopt::set_tcp_user_timeout(&socket, part.as_millis() as u32 * PARTS)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(socket)
}

/// The time before the first probe, and the times after three probes.
const PARTS: u32 = 4;

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Destination::Tcp { host, port } => write!(f, "{host}:{port}"),
            Destination::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;
    use braid_runtime::Arena;
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    const LIMITS: ConnectLimits =
        ConnectLimits { connect: Nanos::from_secs(10), silence: Nanos::from_secs(75) };

    fn attempt(destination: &Destination, limits: ConnectLimits) -> io::Result<String> {
        let ring = Ring::new(8, &Arena::new(MIB)).unwrap();
        ring.block_on(Stream::connect(&ring, destination, limits)).map(|stream| stream.peer())
    }

    #[test]
    fn servers_are_reached_by_name_number_and_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "127.0.0.1"] {
            let destination = Destination::Tcp { host: host.to_owned(), port };
            assert_eq!(attempt(&destination, LIMITS).unwrap(), format!("127.0.0.1:{port}"));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        attempt(&Destination::Unix(path), LIMITS).unwrap();
    }

    #[test]
    fn refusal_and_missing_socket_keep_their_kinds() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let closed = Destination::Tcp { host: "127.0.0.1".to_owned(), port };
        assert_eq!(attempt(&closed, LIMITS).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let missing = Destination::Unix("/nowhere/socket".into());
        assert_eq!(attempt(&missing, LIMITS).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn full_queue_of_a_listener_ends_at_the_time_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        let destination = Destination::Tcp { host: "127.0.0.1".to_owned(), port };
        let limits = ConnectLimits { connect: Nanos::from_millis(300), ..LIMITS };
        let ring = Ring::new(8, &Arena::new(MIB)).unwrap();
        let mut held = Vec::new();
        let error = loop {
            match ring.block_on(Stream::connect(&ring, &destination, limits)) {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
            assert!(held.len() < 10, "the queue of the listener never fills");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn host_that_acknowledges_nothing_is_limited_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = watched(stream.into(), Nanos::from_secs(75)).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(19));
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 76_000);
        assert_eq!(sockopt::socket_linger(&socket).unwrap(), Some(Duration::ZERO));
    }

    /// Bytes that wait in this kernel while the other host does not read must not reach the host after a
    /// reset.
    #[test]
    fn reset_drops_unsent_bytes_and_finish_sends_them() {
        for is_reset in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut theirs = listener.accept().unwrap().0;
            let ring = Ring::new(8, &Arena::new(MIB)).unwrap();
            let ours = watched(stream.into(), Nanos::from_secs(75)).unwrap();
            let ours = Stream::from_fd(&ring, ours).unwrap();
            let bytes = vec![7; 64 << 10];
            let mut sent = 0;
            while let Some(count) = ours.try_send(&[io::IoSlice::new(&bytes)]).unwrap() {
                sent += count;
            }
            if is_reset {
                ours.reset();
            } else {
                ours.finish().unwrap();
            }
            drop(ours);
            let mut received = 0;
            let mut part = vec![0; 64 << 10];
            let end = loop {
                match theirs.read(&mut part) {
                    Ok(0) => break None,
                    Ok(count) => received += count,
                    Err(error) => break Some(error.kind()),
                }
            };
            match is_reset {
                true => assert!(received < sent && end == Some(io::ErrorKind::ConnectionReset)),
                false => assert_eq!((received, end), (sent, None)),
            }
        }
    }
}
