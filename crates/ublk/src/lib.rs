//! A volume as a block device of the kernel's ublk driver (`linux/ublk_cmd.h`, Linux 6.12 or later), which
//! outlives the daemon.
//!
//! A [`Server`] makes the device `/dev/ublkbN` and answers the kernel's requests. If the daemon dies, the
//! kernel keeps the device: requests wait, also requests that the daemon had not answered. The next daemon of
//! the volume finds the device by [`mark_of`] its UUID, and continues ([`Server::take_over`]). A guest sees a
//! pause and no error, since the engine's pending log keeps acknowledged writes over the death of a daemon.
//!
//! ```text
//!            ┌──────── start ────────► served ──── death of the daemon, leave ────► waiting
//!   no device                          │   ▲                                        │   │
//!            ◄─── stop, by the daemon ─┘   └──────────────── take_over ─────────────┘   │
//!            ◄──────────────────────────────── Device::remove: requests fail ───────────┘
//! ```
//!
//! ```text
//! server.rs     life of a device, a task for each tag      take_over.rs  the device of a dead daemon
//! serve.rs      one request upon the verbs of an export    devices.rs    devices of a volume, by the mark
//! queue.rs      /dev/ublkcN and the table of requests      control.rs    /dev/ublk-control
//! disk.rs       parameters and mark                        wire.rs       the protocol as values
//! ```

mod control;
mod devices;
mod disk;
mod queue;
mod serve;
mod server;
mod take_over;
mod wire;

pub use devices::{Device, State, devices, number_of};
pub use disk::mark_of;
pub use server::{Server, Settings};
pub use wire::{DESCRIPTOR as REQUEST_ENTRY, describe_request};
