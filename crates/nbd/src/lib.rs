//! NBD: wire codec, server and client.
//!
//! A request's path: [`server`](Server) admits a connection, or `refusal` tells the client why not. With
//! [`tls`], the connection passes the `lobby` first. A `newcomer` negotiates (`handshake`). `connection` then
//! receives (`inbox`) and checks requests. `Tags` run each request, at once if no waiting is needed.
//! `request` calls the export. `outbox` sends all ready replies in one call, through the `channel`, which is
//! a socket or TLS over a socket. `memory` bounds the memory of all connections, `wire` knows the bytes.
//!
//! [`client`] is the other side: the export of a server as a device, over the same `channel`, `inbox`, `wire`
//! and `tls`.
#![forbid(unsafe_code)]

mod channel;
pub mod client;
mod connection;
mod gather;
pub mod handshake;
mod inbox;
mod lobby;
mod memory;
mod newcomer;
mod outbox;
mod refusal;
mod request;
mod server;
mod session;
pub mod tls;
pub mod wire;
mod within;

pub use server::{Counters, Server, ServerConfig, check_address};
