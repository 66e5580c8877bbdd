//! NBD: wire codec and server.
//!
//! A request's path: [`server`](Server) admits a connection, or `refusal` tells the client why not.
//! `connection` negotiates (`handshake`), then receives (`inbox`) and checks requests. `tags` run each
//! request, at once if no waiting is needed. `request` calls the export. `outbox` sends all ready replies in
//! one call. `memory` bounds the memory of all connections, `wire` knows the bytes.
#![forbid(unsafe_code)]

mod connection;
pub mod handshake;
mod inbox;
mod memory;
mod outbox;
mod refusal;
mod request;
mod server;
mod session;
mod signal;
mod tags;
pub mod wire;

pub use server::{Counters, Server, ServerConfig, check_address};
