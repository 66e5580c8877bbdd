//! Set-up of an io_uring: flags that lower its cost, the registered arena, the table of registered files. If
//! the kernel refuses a feature, a sentence names the feature and the remedy. Nothing falls back silently.
#![allow(unsafe_code)]

use io_uring::{Builder, IoUring};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Places in the table of registered files: 64 devices for each of four volumes. Sockets do not take any.
pub(crate) const FILES: u32 = 256;

/// Largest registered buffer that the kernel takes, in bytes. An arena's buffers never cross a multiple of
/// this size, because no buffer crosses a multiple of its own size.
pub(crate) const REGION: usize = 1 << 30;

/// Opens a new ring with the best flags of this kernel. Adds missing features to `fallbacks`.
///
/// # Errors
/// If the kernel has no io_uring, or forbids it; the message names the remedy.
pub(crate) fn open(entries: u32, fallbacks: &mut Vec<String>) -> io::Result<IoUring> {
    // One thread submits and reaps, and completions are worked off only when the thread asks (Linux 6.1); or
    // at least without interrupting the thread (5.19).
    let deferred: fn(&mut Builder) = |b| {
        b.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag();
    };
    let cooperative: fn(&mut Builder) = |b| {
        b.setup_coop_taskrun().setup_taskrun_flag();
    };
    let plain: fn(&mut Builder) = |_| {};
    let mut refused = None;
    for (flags, lack) in [
        (deferred, None),
        (
            cooperative,
            Some(
                "io_uring without SINGLE_ISSUER and DEFER_TASKRUN: completions cost more; Linux 6.1 or \
                 newer has both",
            ),
        ),
        (
            plain,
            Some(
                "io_uring without COOP_TASKRUN: completions interrupt the shard; Linux 5.19 or newer avoids that",
            ),
        ),
    ] {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(entries.saturating_mul(4).max(4096));
        flags(&mut builder);
        match builder.build(entries) {
            Ok(uring) => {
                fallbacks.extend(lack.map(str::to_owned));
                return supported(uring);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
            Err(error) => return Err(explain(error)),
        }
    }
    Err(explain(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))))
}

fn supported(uring: IoUring) -> io::Result<IoUring> {
    let params = uring.params();
    if params.is_feature_ext_arg() && params.is_feature_nodrop() {
        return Ok(uring);
    }
    let problem =
        "this kernel's io_uring has no timed waits (IORING_FEAT_EXT_ARG): Linux 5.11 or newer is needed";
    Err(io::Error::new(io::ErrorKind::Unsupported, problem))
}

fn explain(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden here: see sysctl kernel.io_uring_disabled; in a container allow the io_uring system calls \
             in the seccomp profile"
        }
        Some(libc::ENOSYS) => "this kernel has no io_uring: Linux 5.11 or newer is needed",
        Some(libc::ENOMEM) => {
            "not enough lockable memory for the queues: raise `ulimit -l` (systemd: LimitMEMLOCK=)"
        }
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise `ulimit -n` (systemd: LimitNOFILE=)",
        _ => "see dmesg",
    };
    io::Error::new(error.kind(), format!("cannot set up io_uring: {error}: {remedy}"))
}

/// Registers the arena's memory as fixed buffers, which saves the kernel a page lookup for each request.
///
/// # Errors
/// The reason of the refusal, with the remedy. All works without registration, at about a tenth more CPU for
/// each request.
pub(crate) fn register_arena(uring: &IoUring, start: *mut u8, len: usize) -> Result<(), String> {
    raise_memlock();
    // SAFETY: the region is the arena's own, and stays allocated as long as the ring, which holds the arena.
    // The advice changes no byte; where it is refused the pages are small, which is slower to register and
    // nothing else.
    let _ = unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage) };
    let regions: Vec<libc::iovec> = (0..len)
        .step_by(REGION)
        .map(|at| libc::iovec { iov_base: start.wrapping_add(at).cast(), iov_len: REGION.min(len - at) })
        .collect();
    // SAFETY: as above: the regions lie in the arena, which the ring's reactor keeps until the ring is
    // closed.
    let registered = unsafe { uring.submitter().register_buffers(&regions) };
    registered.map_err(|error| {
        let mib = len >> 20;
        let limit = match getrlimit(Resource::Memlock).current {
            Some(bytes) => format!("{} KiB", bytes >> 10),
            None => "unlimited".to_owned(),
        };
        format!(
            "the buffer arena of {mib} MiB is not registered with the kernel ({error}; RLIMIT_MEMLOCK is {limit}): \
             requests cost about a tenth more CPU; raise the limit with `ulimit -l`, LimitMEMLOCK= in systemd, or \
             give CAP_IPC_LOCK"
        )
    })
}

/// Raises the soft limit of lockable memory to the hard limit, as every process may.
fn raise_memlock() {
    let limit = getrlimit(Resource::Memlock);
    if limit.current != limit.maximum {
        // Refused or not, the registration itself will tell.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Makes an empty table of registered files, which saves the kernel a lookup for each request.
///
/// # Errors
/// The reason of the refusal. All works without the table.
pub(crate) fn register_files(uring: &IoUring) -> Result<(), String> {
    uring.submitter().register_files_sparse(FILES).map_err(|error| {
        format!("no table of registered files ({error}): Linux 5.19 and `ulimit -n` above {FILES} are needed")
    })
}
