//! A client before its first request: the negotiation of a client that is served or refused.

use crate::channel::Channel;
use crate::connection::negotiate;
use crate::handshake::{Access, Agreed, Facts, Handshake, Step, Zeroes};
use crate::inbox::Inbox;
use crate::refusal::Refusal;
use crate::wire::options::greeting;
use braid_uring::Stream;
use std::io;
use std::rc::Rc;

/// A client that has not agreed on an export yet.
pub struct Newcomer {
    /// The client's bytes.
    pub channel: Rc<Channel>,
    /// How far the client has come.
    pub progress: Progress,
}

/// How far a newcomer has come.
pub enum Progress {
    /// Nothing was sent yet, and all will be plain.
    Plain,
    /// TLS has begun. The client has these rights, or is refused.
    Secured(Zeroes, Result<Access, Refusal>),
}

impl Newcomer {
    /// Makes a newcomer of a plain connection.
    pub fn plain(stream: Stream) -> Newcomer {
        Newcomer { channel: Rc::new(Channel::new(stream)), progress: Progress::Plain }
    }

    /// Why the client may not use the export.
    pub fn refusal(&mut self) -> Option<Refusal> {
        match &mut self.progress {
            Progress::Plain | Progress::Secured(_, Ok(_)) => None,
            Progress::Secured(_, access) => std::mem::replace(access, Ok(Access::ReadOnly)).err(),
        }
    }

    /// Negotiates about the export of `facts`, by bytes in `inbox`. With a `refusal`, the client hears the
    /// reason instead. `None` if the client ends, or no agreement is possible.
    ///
    /// # Errors
    /// If the client is gone.
    pub async fn negotiate(
        &self,
        inbox: &mut Inbox,
        facts: &Facts,
        refusal: Option<&str>,
    ) -> io::Result<Option<Agreed>> {
        let handshake = match &self.progress {
            Progress::Plain => {
                self.channel.send_all(&greeting()).await?;
                Handshake::new(facts)
            }
            Progress::Secured(zeroes, access) => {
                let access = access.as_ref().map_or(Access::ReadOnly, |access| *access);
                Handshake::within_tls(facts, *zeroes, access)
            }
        };
        let handshake = match refusal {
            Some(reason) => handshake.refusing(reason),
            None => handshake,
        };
        match negotiate(&self.channel, inbox, handshake).await? {
            Step::Start(agreed) => Ok(Some(agreed)),
            _ => Ok(None),
        }
    }
}
