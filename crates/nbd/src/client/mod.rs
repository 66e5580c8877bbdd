//! The client: an export of a remote server as a device.
//!
//! ```text
//! address       the URI of an export
//! open          connect, TLS, negotiate: on each connection
//! negotiation   the negotiation as a state machine, bytes in and bytes out
//! offer         what a server offers, checked
//! identity      files of a client for TLS
//! device        the device: requests cut to the server's limits, rules of flush and discard
//! remote        connections of a device, and their common end
//! pipeline      requests in flight on one connection: sent together, answered in any order
//! replies       the decoder of replies: bytes in, parts out
//! coverage      ranges of a read that have been answered
//! ```
//!
//! **A lost connection is final.** A protocol error, an end, or silence on one connection ends all
//! connections of the device, and every later request fails with the same reason. Writes without a flush may
//! be lost together with the server. A reconnect would hide such a loss: only a new [`RemoteDevice`] connects
//! again.

mod address;
mod coverage;
mod device;
mod identity;
mod negotiation;
mod offer;
mod open;
mod pipeline;
mod remote;
mod replies;

pub use crate::handshake::Access;
pub use address::Address;
pub use device::RemoteDevice;
pub use negotiation::{Negotiation, Security, Turn};
pub use offer::{BlockSizes, Offer};
pub use open::Limits;
pub use replies::{Command, Replies, ReplyStep};
