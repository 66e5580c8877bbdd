//! Refusal of clients beyond the limit of connections: each client gets the reason, as far as the protocol
//! can carry a reason.
//!
//! A refusal costs memory too, and a client may be slow to read its reason. A few refusals run at a time, for
//! a short while; further connections are closed without a word. The log has a line every ten seconds.

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
    /// Tells a client that all `connections` are in use.
    pub async fn refuse(&self, ring: &Ring, stream: Stream, facts: &Facts, connections: usize) {
        let reason = format!(
            "all {connections} connections to this export are in use: end one, or serve with a higher limit \
             (--clients)"
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

/// Refusals at a time. Each takes 64 KiB.
const AT_A_TIME: usize = 16;
/// Time for a client to ask for the export, and so to learn the reason of its refusal.
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
