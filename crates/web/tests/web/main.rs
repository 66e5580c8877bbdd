//! The dashboard on daemons made of values: no daemon runs.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod access;
mod advice;
mod alerts;
mod api;
mod daemons;
mod events;
mod metrics;
mod page;
mod server;
