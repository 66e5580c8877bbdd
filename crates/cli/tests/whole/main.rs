//! Tests of the whole program with real clients: the built `braid`, its daemons, and qemu, libnbd and fio.
//!
//! Each test has its own state directory and devices, in a temporary directory. If a tool, root or a kernel
//! feature is missing, a test prints `SKIPPED` and the reason.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod admin;
mod adopt;
mod adopt_another;
mod advice;
mod advise;
mod alert;
mod attach;
mod browser;
mod ceph;
mod claims;
mod config;
mod death;
mod devices;
mod failing;
mod full;
mod guide;
mod hanging;
mod help;
mod install;
mod journal;
mod json;
mod kill;
mod lab;
mod libvirt;
mod lifecycle;
mod lost_state;
mod lying;
mod machine;
mod man;
mod models;
mod names;
mod namespace;
mod notify;
mod outdated;
mod output;
mod passing;
mod paths;
mod permissions;
mod plan;
mod policy;
mod postgres;
mod powers;
mod read_only;
mod record;
mod recover;
mod refused;
mod remote;
mod repair;
mod replace;
mod resize;
mod shapes;
mod silent;
mod simulate;
mod status;
mod tls;
mod trace;
mod ublk;
mod upgrade;
mod users;
mod vanished;
mod virtual_machine;
mod web;
