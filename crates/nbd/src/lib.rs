//! NBD: wire codec and server.
//!
//! A request's path: [`server`](Server) admits a connection, or `refusal` tells the client why not. With
//! [`tls`], the connection passes the `lobby` first. A `newcomer` negotiates (`handshake`). `connection` then
//! receives (`inbox`) and checks requests. `Tags` run each request, at once if no waiting is needed.
//! `request` calls the export. `outbox` sends all ready replies in one call, through the `channel`, which is
//! a socket or TLS over a socket. `memory` bounds the memory of all connections, `wire` knows the bytes.
#![forbid(unsafe_code)]

mod channel;
mod connection;
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
