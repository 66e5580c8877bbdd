//! Refusal of clients: beyond the limit of connections, or without rights at the export. Each client gets the
//! reason, as far as the protocol can carry a reason.
//!
//! A refusal costs memory too, and a client may be slow to read its reason. A few refusals run at a time, for
//! a short while; further connections are closed without a word. The log has a line every ten seconds.

use crate::handshake::Facts;
use crate::inbox::Inbox;
use crate::newcomer::Newcomer;
use crate::within::within;
use braid_base::Nanos;
use braid_runtime::{LogLimit, Runtime};
use braid_uring::Ring;
use std::cell::Cell;

/// Why a client is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For the client and the log.
    pub reason: String,
    /// For the log: the administrator's remedy.
    pub remedy: String,
}

/// The refusals of a server.
pub struct Refusals {
    running: Cell<usize>,
    log: LogLimit,
}

impl Refusals {
    /// Tells a client why it is refused.
    pub async fn refuse(&self, ring: &Ring, newcomer: Newcomer, facts: &Facts, refusal: Refusal) {
        let Refusal { reason, remedy } = refusal;
        if let Some(more) = self.log.admit(ring.now()) {
            let (name, peer) = (&facts.name, newcomer.channel.peer());
            tracing::warn!(
                "an NBD client of '{name}' at {peer} was refused ({more} more since the last such line): \
                 {reason}: {remedy}"
            );
        }
        if self.running.get() == AT_A_TIME {
            return;
        }
        self.running.set(self.running.get() + 1);
        // The outcome does not matter: the client hears the reason, or has left.
        let mut inbox = Inbox::new(ring, &newcomer.channel);
        let told = newcomer.negotiate(&mut inbox, facts, Some(&reason));
        let _ = within(told, ring.sleep(PATIENCE)).await;
        newcomer.channel.announce_end();
        self.running.set(self.running.get() - 1);
    }
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { running: Cell::new(0), log: LogLimit::new(Nanos::from_secs(10)) }
    }
}

/// Refusals at a time. Each takes 64 KiB, and 100 KiB more within TLS.
const AT_A_TIME: usize = 16;
/// Time for a client to ask for the export, and so to learn the reason of its refusal.
const PATIENCE: Nanos = Nanos::from_secs(2);
