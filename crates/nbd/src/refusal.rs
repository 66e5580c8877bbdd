//! Clients that there is no room for: each is told why, as far as the protocol lets a server say it.
//!
//! A refusal costs memory too, and a client may take its time to hear it: a few are told at a time, for a
//! short while; beyond that, connections are closed without a word. The log has a line every ten seconds.

use crate::connection::negotiate;
use crate::handshake::{Facts, Handshake};
use crate::inbox::Inbox;
use braid_base::Nanos;
use braid_runtime::{LogLimit, Runtime};
use braid_uring::{Ring, Stream};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The refusals of a server.
pub struct Refusals {
    running: Cell<usize>,
    log: LogLimit,
}

impl Refusals {
    /// Tells a client that all of `connections` are in use.
    pub async fn refuse(&self, ring: &Ring, stream: Stream, facts: &Facts, connections: usize) {
        let reason = format!(
            "all {connections} connections to this export are in use: end one, or start the server with more (--clients)"
        );
        if let Some(more) = self.log.admit(ring.now()) {
            let name = &facts.name;
            tracing::warn!(
                "an NBD client of '{name}' was refused ({more} more since the last such line): {reason}"
            );
        }
        if self.running.get() == AT_A_TIME {
            return;
        }
        self.running.set(self.running.get() + 1);
        let mut inbox = Inbox::new(ring, &stream);
        let told = negotiate(&stream, &mut inbox, Handshake::refusing(facts, &reason));
        within(told, ring.sleep(PATIENCE)).await;
        self.running.set(self.running.get() - 1);
    }
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { running: Cell::new(0), log: LogLimit::new(Nanos::from_secs(10)) }
    }
}

/// Each takes 64 KiB.
const AT_A_TIME: usize = 16;
/// How long a client may take to ask for the export, and so to hear why it does not get it.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// Waits for `work`, until `limit` completes.
async fn within<T>(work: impl Future<Output = T>, limit: impl Future<Output = ()>) {
    let (mut work, mut limit) = (pin!(work), pin!(limit));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => limit.as_mut().poll(cx),
    })
    .await;
}
