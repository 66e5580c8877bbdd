//! The dashboard on daemons made of values: no daemon runs.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod access;
mod api;
mod daemons;
mod events;
mod metrics;
mod page;
mod server;
