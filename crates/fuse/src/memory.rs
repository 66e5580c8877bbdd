//! Protection of the daemon against a deadlock on memory. The kernel, short of memory, writes dirty pages of
//! a file system on the volume, and the write is a request to the daemon. To answer, the daemon must not wait
//! for memory that becomes free only when the write is done.
//!
//! Three settings prevent the deadlock. Locked memory: the daemon's memory is never paged out, and is present
//! before use. I/O flusher: the kernel's allocations on the daemon's behalf never wait for I/O, and the
//! daemon's own dirty pages are not throttled behind the guests' dirty pages. Out-of-memory score: the kernel
//! ends some other process first, because ending this process would free little and take the file systems
//! with it.

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs;
use std::io;

/// A protection that failed.
#[derive(Debug)]
pub struct Unprotected {
    /// Name of the protection.
    pub protection: &'static str,
    /// Privilege or limit that the protection needs.
    pub needs: &'static str,
    /// Error of the kernel.
    pub cause: io::Error,
}

impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {} (needs {})", self.protection, self.cause, self.needs)
    }
}

/// Protects this process, which serves a volume to the kernel of its own machine. Returns the protections
/// that failed.
///
/// Call before other threads start, because the flusher mark belongs to a thread and to threads that it
/// starts afterwards. Call after the arenas are made, so that they are filled with memory now. Costs as much
/// memory as the process has mapped. Child processes inherit the mark and the score.
pub fn protect_from_reclaim() -> Vec<Unprotected> {
    let lock = ("lock memory", "CAP_IPC_LOCK, or an unlimited 'ulimit -l'", lock_memory());
    let mark = ("declare an I/O flusher", "CAP_SYS_RESOURCE", mark_as_io_flusher());
    let score = ("lower the out-of-memory score", "CAP_SYS_RESOURCE", lower_oom_score());
    let failed = |(protection, needs, result): (_, _, io::Result<()>)| {
        result.err().map(|cause| Unprotected { protection, needs, cause })
    };
    [lock, mark, score].into_iter().filter_map(failed).collect()
}

/// Locks all present and future mappings, with their pages present: locking on first touch would leave the
/// allocation to the worst moment.
fn lock_memory() -> io::Result<()> {
    // Below a limit, the lock on future mappings would turn some later allocation into an abort of the
    // daemon.
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    if !unlimited && !has_capability(CAP_IPC_LOCK)? {
        return Err(io::Error::from(rustix::io::Errno::PERM));
    }
    Ok(rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}

fn mark_as_io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

fn lower_oom_score() -> io::Result<()> {
    // The lowest: never, as for the daemons of iSCSI and multipath.
    fs::write("/proc/self/oom_score_adj", "-1000")
}

/// Number of the capability in `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;

fn has_capability(number: u32) -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    Ok(bits.is_some_and(|bits| bits >> number & 1 == 1))
}
