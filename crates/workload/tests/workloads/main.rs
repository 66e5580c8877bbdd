//! Workloads against the figures that they claim.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod file_servers;
mod files;
mod measure;
mod published;
mod refill;
mod reorganized;
mod simple;
mod streams;
mod terminals;
mod traces_like;
