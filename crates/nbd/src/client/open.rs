//! Opening an export: connect, TLS, negotiate, on one connection or on several.

use super::address::Address;
use super::identity::ClientIdentity;
use super::negotiation::{Negotiation, Security, Turn};
use super::offer::{Offer, Terms};
use super::pipeline::Pipeline;
use super::remote::say_goodbye;
use crate::channel::Channel;
use crate::handshake::Access;
use crate::inbox::Inbox;
use crate::within::within;
use braid_base::{DeviceClass, Nanos};
use braid_runtime::{Runtime, join_all};
use braid_uring::{ConnectLimits, Ring, Stream, run_blocking};
use std::io::{self, ErrorKind};
use std::rc::Rc;

/// Limits of a device. [`Limits::default`] is right outside tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Time for name resolution and connect.
    pub connect: Nanos,
    /// Time for TLS and negotiation.
    pub negotiation: Nanos,
    /// Time without a reply to a request after which the device is lost. A quarter more may pass before the
    /// watchdog notices.
    pub silence: Nanos,
    /// Connections to a server that allows several.
    pub connections: usize,
}

impl Default for Limits {
    /// 10 s to connect, 10 s to negotiate, 75 s for a reply (an engine with a second copy tries the copy much
    /// sooner), and four connections as other clients.
    fn default() -> Limits {
        let ten = Nanos::from_secs(10);
        Limits { connect: ten, negotiation: ten, silence: Nanos::from_secs(75), connections: 4 }
    }
}

/// A negotiated connection.
struct Opened {
    channel: Rc<Channel>,
    inbox: Inbox,
    offer: Offer,
}

/// Opens an export. Returns the terms, and the connections: several if the server allows several.
///
/// # Errors
/// If the first connection fails, or if the export does not fit. Names the reason and the remedy.
pub async fn open(
    ring: &Ring,
    address: &Address,
    class: DeviceClass,
    access: Access,
    limits: Limits,
) -> io::Result<(Terms, Vec<(Pipeline, Inbox)>)> {
    let identity = read_identity(ring, address, limits.connect).await?;
    let first = connect(ring, address, identity.as_ref(), limits).await?;
    let terms = first.offer.terms(class, access).inspect_err(|_| first.close())?;
    let more = if terms.multi_conn { limits.connections.saturating_sub(1) } else { 0 };
    let mut all = vec![first];
    let others = (0..more).map(|_| connect(ring, address, identity.as_ref(), limits));
    for opened in join_all(others).await {
        match opened {
            Ok(opened) => all.push(opened),
            // The server may limit its connections: fewer connections serve as well.
            Err(error) => tracing::warn!("{address}: a further connection failed: {error}"),
        }
    }
    if all.iter().any(|opened| opened.offer != all[0].offer) {
        all.iter().for_each(Opened::close);
        let problem = "the server offers another size or other flags on each connection: the export has \
                       changed meanwhile, or the address leads to several servers: try again";
        return Err(io::Error::new(ErrorKind::InvalidData, problem));
    }
    let links =
        all.into_iter().map(|opened| (Pipeline::new(opened.channel, opened.offer.structured), opened.inbox));
    Ok((terms, links.collect()))
}

/// Reads the files for TLS in a thread of its own: the folder may be on a hanging server.
async fn read_identity(ring: &Ring, address: &Address, time: Nanos) -> io::Result<Option<ClientIdentity>> {
    let Some(tls) = address.tls().cloned() else { return Ok(None) };
    let work = run_blocking(ring, "certificates", move || ClientIdentity::read(&tls));
    let slow = || {
        let problem = format!("the folder of certificates does not answer within {time}");
        Err(io::Error::new(ErrorKind::TimedOut, problem))
    };
    within(work, ring.sleep(time)).await.map_or_else(slow, Result::flatten).map(Some)
}

/// Connects and negotiates once.
async fn connect(
    ring: &Ring,
    address: &Address,
    identity: Option<&ClientIdentity>,
    limits: Limits,
) -> io::Result<Opened> {
    let times = ConnectLimits { connect: limits.connect, silence: limits.silence };
    let stream = Stream::connect(ring, address.destination(), times).await?;
    let negotiated = negotiate(ring, Rc::new(Channel::new(stream)), address.export(), identity);
    let slow = || {
        let problem = format!("the server did not finish the negotiation within {}", limits.negotiation);
        Err(io::Error::new(ErrorKind::TimedOut, problem))
    };
    within(negotiated, ring.sleep(limits.negotiation)).await.unwrap_or_else(slow)
}

async fn negotiate(
    ring: &Ring,
    channel: Rc<Channel>,
    export: &str,
    identity: Option<&ClientIdentity>,
) -> io::Result<Opened> {
    let mut inbox = Inbox::sleeping(ring, &channel);
    let security = if identity.is_some() { Security::Tls } else { Security::Plain };
    let mut negotiation = Negotiation::new(export, security);
    let mut output = Vec::new();
    loop {
        let (used, turn) = negotiation.receive(inbox.bytes(), &mut output)?;
        inbox.consume(used);
        match turn {
            Turn::Next => {}
            Turn::More => match inbox.receive().await {
                Ok(0) => return Err(ended()),
                Ok(_) => {}
                Err(error) => return Err(failed(&error)),
            },
            Turn::Secure => {
                secure(ring, &channel, &inbox, identity).await?;
                negotiation.within_tls(&mut output);
            }
            Turn::Start(offer) => return Ok(Opened { channel, inbox, offer }),
        }
        if let Err(error) = channel.send_all(&output).await {
            return Err(last_words(&mut inbox, error).await);
        }
        output.clear();
    }
}

/// A server that ends the connection may have said why before: an alert of TLS is the better error.
async fn last_words(inbox: &mut Inbox, error: io::Error) -> io::Error {
    match inbox.receive().await {
        Err(alert) if alert.kind() == ErrorKind::InvalidData => failed(&alert),
        _ => failed(&error),
    }
}

async fn secure(
    ring: &Ring,
    channel: &Channel,
    inbox: &Inbox,
    identity: Option<&ClientIdentity>,
) -> io::Result<()> {
    let identity = identity.expect("only an address with TLS asks for TLS");
    if !inbox.bytes().is_empty() {
        let problem = "plain bytes came behind the answer to NBD_OPT_STARTTLS: somebody on the network may \
                       have added them";
        return Err(io::Error::new(ErrorKind::InvalidData, problem));
    }
    channel.secure(ring, identity.layer()?, |_| {}).await.map_err(|error| {
        let problem = format!("no TLS with the server: {error}: check names and files of the certificates");
        io::Error::new(error.kind(), problem)
    })
}

fn failed(error: &io::Error) -> io::Error {
    let problem = format!("the negotiation with the server failed: {error}: see the log of the server");
    io::Error::new(error.kind(), problem)
}

fn ended() -> io::Error {
    let problem = "the server ended the connection during the negotiation: look into its log (it may not know \
                   the export, or not allow this client)";
    io::Error::new(ErrorKind::UnexpectedEof, problem)
}

impl Opened {
    /// Says goodbye to the server.
    fn close(&self) {
        say_goodbye(&self.channel);
        self.channel.close();
    }
}
