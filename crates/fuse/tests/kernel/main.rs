//! The whole way, with the real kernel: an export, served by a process of its own that can be killed, under a
//! loop device, under file systems. Needs root, `/dev/fuse`, loop devices and the programs named in each
//! test; where one is missing, the test says `SKIPPED` and why.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod block_device;
mod file_export;
mod file_system;
mod kill;
mod machine;
mod measure;
mod serving;
