//! NBD: wire codec and server.
//!
//! A request's path: [`server`](Server) admits a connection, or has `refusal` say why not → `connection`
//! negotiates (`handshake`), then receives (`inbox`) and checks requests → `tags` run each, at once where it
//! need not wait → `request` asks the export → `outbox` sends what is ready in one call. `memory` bounds what
//! all this may hold, `wire` knows the bytes.
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
