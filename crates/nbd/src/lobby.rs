//! Connections before TLS: clients that have proved nothing yet.
//!
//! A stranger must cost little, and must not keep clients out. The lobby has [`PLACES`], apart from the
//! places of admitted clients. A handshake that dawdles ends at the server's deadline; if the lobby is full,
//! the oldest one ends after [`PATIENCE`]. Handshakes take a fifth of the shard's thread at most. Further
//! connections wait in the kernel's queue meanwhile. A place costs up to 170 KiB: 64 for the inbox, 32 for
//! received bytes of TLS, 64 for a message of a handshake, keys.

use crate::channel::Channel;
use crate::connection::negotiate;
use crate::handshake::{Facts, Handshake, Step};
use crate::inbox::Inbox;
use crate::newcomer::{Newcomer, Progress};
use crate::tls::Tls;
use crate::wire::options::greeting;
use crate::within::within;
use braid_base::Nanos;
use braid_runtime::{LogLimit, Runtime};
use braid_uring::{Ring, Stream};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// Connections before TLS at the same time: more than the clients that start at once.
pub const PLACES: usize = 64;

/// Time that a connection is in nobody's way: a handshake within a site takes a hundredth.
const PATIENCE: Nanos = Nanos::from_millis(500);

/// Pause before the next look for a place, while the lobby is full.
const LOOK_AGAIN: Nanos = Nanos::from_millis(1);

/// Handshakes take at most one part in `SHARE` of the thread's time: a stranger costs the server a key
/// exchange, and may come back at once. Guests keep the rest.
const SHARE: u64 = 5;

/// Time ahead of the share: the clients of a machine that starts connect at once.
const AHEAD: Nanos = Nanos::from_millis(100);

/// The connections before TLS.
pub struct Lobby {
    /// Connections that have not been ended, the oldest first.
    guests: RefCell<VecDeque<Guest>>,
    /// Connections whose memory is in use.
    held: Cell<usize>,
    pace: Pace,
    log: LogLimit,
}

struct Guest {
    channel: Rc<Channel>,
    since: Nanos,
}

impl Lobby {
    /// Completes once there is a place. Ends a connection for the place, if the connection dawdles. Several
    /// listeners may find the same place: each adds one connection at most.
    pub async fn place(&self, ring: &Ring) {
        while self.held.get() >= PLACES || self.pace.is_exceeded(ring.now()) {
            let oldest = self.guests.borrow().front().map(|guest| guest.since);
            let is_late = oldest.is_some_and(|since| ring.now() >= since + PATIENCE);
            if is_late && self.guests.borrow().len() >= PLACES {
                self.end_oldest();
            }
            ring.sleep(LOOK_AGAIN).await;
        }
    }

    /// Gives a new connection its place. [`Lobby::secure`] follows.
    pub fn enter(&self, ring: &Ring, stream: Stream) -> Rc<Channel> {
        let channel = Rc::new(Channel::new(stream));
        self.guests.borrow_mut().push_back(Guest { channel: channel.clone(), since: ring.now() });
        self.held.set(self.held.get() + 1);
        channel
    }

    /// Leads a connection to TLS within `time`, and takes its place back. `None` if the connection ends
    /// before.
    pub async fn secure(
        &self,
        ring: &Ring,
        channel: Rc<Channel>,
        facts: &Facts,
        tls: &Tls,
        time: Nanos,
    ) -> Option<Newcomer> {
        let secured = within(secure(ring, &channel, facts, tls, &self.pace), ring.sleep(time)).await;
        self.held.set(self.held.get() - 1);
        self.guests.borrow_mut().retain(|guest| !Rc::ptr_eq(&guest.channel, &channel));
        let slow = || Err(io::Error::new(io::ErrorKind::TimedOut, format!("no TLS within {time}")));
        match secured.unwrap_or_else(slow) {
            Ok(newcomer) => newcomer,
            Err(error) => {
                self.tell(ring, &channel, &facts.name, &error);
                None
            }
        }
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.held.get()
    }

    /// Ends all connections before TLS.
    pub fn end_all(&self) {
        while !self.guests.borrow().is_empty() {
            self.end_oldest();
        }
    }

    fn end_oldest(&self) {
        let oldest = self.guests.borrow_mut().pop_front();
        // The connection's task sees the end, and reports it.
        if let Some(guest) = oldest {
            guest.channel.close();
        }
    }

    fn tell(&self, ring: &Ring, channel: &Channel, name: &str, error: &io::Error) {
        if let Some(more) = self.log.admit(ring.now()) {
            let peer = channel.peer();
            tracing::warn!(
                "an NBD client of '{name}' at {peer} did not get as far as TLS ({more} more since the last such \
                 line): {error}"
            );
        }
    }
}

impl Default for Lobby {
    fn default() -> Lobby {
        Lobby {
            guests: RefCell::default(),
            held: Cell::new(0),
            pace: Pace::default(),
            log: LogLimit::new(Nanos::from_secs(10)),
        }
    }
}

/// Negotiates in plain up to TLS, then runs the TLS handshake. `None` if the client leaves.
async fn secure(
    ring: &Ring,
    channel: &Rc<Channel>,
    facts: &Facts,
    tls: &Tls,
    pace: &Pace,
) -> io::Result<Option<Newcomer>> {
    let mut inbox = Inbox::new(ring, channel);
    channel.send_all(&greeting()).await?;
    let step = negotiate(channel, &mut inbox, Handshake::demanding_tls(facts)).await?;
    let Step::Secure(zeroes) = step else { return Ok(None) };
    // A client waits for the reply before its first byte of TLS. Bytes that are here already come from an
    // attacker on the way, who wants them read as if the client had sent them within TLS.
    if !inbox.bytes().is_empty() {
        let problem = "plain bytes came behind NBD_OPT_STARTTLS: somebody on the network may have added them";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    channel.secure(ring, tls.layer()?, |cost| pace.charge(ring.now(), cost)).await?;
    let access = tls.access(&facts.name, channel.names());
    Ok(Some(Newcomer { channel: channel.clone(), progress: Progress::Secured(zeroes, access) }))
}

/// Limit of the processor time for handshakes.
#[derive(Default)]
struct Pace {
    /// Time at which the work so far is within the share.
    paid_at: Cell<Nanos>,
}

impl Pace {
    /// Notes that a handshake took `cost` until `now`.
    fn charge(&self, now: Nanos, cost: Nanos) {
        self.paid_at.set(self.paid_at.get().max(now) + cost * SHARE);
    }

    /// True if new connections must wait.
    fn is_exceeded(&self, now: Nanos) -> bool {
        self.paid_at.get() > now + AHEAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_take_their_share_of_the_thread() {
        let (pace, cost) = (Pace::default(), Nanos::from_micros(300));
        let (mut now, mut work, end) = (Nanos::from_secs(9), Nanos::ZERO, Nanos::from_secs(19));
        let start = now;
        let mut at_once = 0;
        while now < end {
            if pace.is_exceeded(now) {
                now += Nanos::from_millis(1);
                continue;
            }
            at_once += u64::from(now < start + AHEAD / SHARE);
            (now, work) = (now + cost, work + cost);
            pace.charge(now, cost);
        }
        assert!(work * SHARE <= end - start + AHEAD + cost * SHARE, "{work}");
        assert!(work * SHARE >= (end - start) - AHEAD, "{work}");
        assert!(at_once >= PLACES as u64, "{at_once} clients at once");
    }
}
