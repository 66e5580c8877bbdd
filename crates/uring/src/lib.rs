//! The runtime on a real machine: one io_uring for each shard, and its files: block devices, regular files,
//! memory, sockets, messages from other threads, signals.
//!
//! A [`Ring`] is a shard's [`braid_runtime::Runtime`]. Everything here belongs to the thread of its ring;
//! only a mailbox's [`Sender`] may leave the thread. Every operation in flight owns the memory that the
//! kernel works on. A dropped future therefore loses a result and is never a memory error.
//!
//! Linux 5.11 is the oldest kernel that works (timed waits of the ring); Linux 6.1 has every feature.
//! Features that the kernel refuses are listed by [`Ring::fallbacks`].

mod beneath;
mod blocking;
mod call_filter;
mod command;
mod connect;
mod content;
mod doorbell;
mod file;
mod inherited;
mod lasting_file;
mod listener;
mod locked_file;
mod mailbox;
mod memory;
mod open;
mod operation;
mod peer;
mod powers;
mod reactor;
mod readiness;
mod ring;
mod ring_file;
mod setup;
mod short_path;
mod signals;
mod stream;

pub use beneath::path_beneath;
pub use blocking::run_blocking;
pub use connect::{ConnectLimits, Destination};
pub use content::{Content, Usage, content};
pub use doorbell::Doorbell;
pub use file::{FileDevice, Flush};
pub use inherited::inherited;
pub use lasting_file::{LastingFile, boot_id};
pub use listener::{Address, Listener};
pub use mailbox::{Receiver, Sender, TrySendError, mailbox};
pub use memory::MemoryDevice;
pub use open::{Access, lock_patiently, wait_until_free};
pub use powers::{CallFilter, PowersLeft, give_up_powers};
pub use ring::Ring;
pub use short_path::{LONGEST_SOCKET_PATH, connect_unix};
pub use signals::{Signal, Signals};
pub use stream::Stream;
