//! vhost-user-blk: a volume as a disk of a virtual machine.
//!
//! A request's path: the guest puts descriptors into its memory and kicks. `queue` takes the chain and marks
//! the chain as in flight (`inflight`). `chain` reads and bounds the chain, `decode` checks the request.
//! `request` serves, at once if no waiting is needed: copies between guest memory (`memory`) and buffers of
//! the arena (`budget`), and calls the export. `queue` returns the chain and calls the guest.
//!
//! The messages of the virtual machine's process come by a Unix socket: [`server`](Server) admits a
//! connection, `session` waits for whole messages and stops the queues while a message changes their state,
//! `device` holds that state. `channel` is for the other direction: the disk has another size. `wire` knows
//! the bytes of virtio-blk.
//!
//! Guest memory is never registered with the kernel: a copy costs little, and the memory may come and go.
#![forbid(unsafe_code)]

mod budget;
pub mod chain;
mod channel;
pub mod decode;
mod device;
mod inflight;
mod memory;
mod queue;
mod request;
mod server;
mod session;
pub mod wire;

pub use server::{Counters, Server, ServerConfig};
