//! Results of the libraries as errors.

use std::fmt;
use std::io;

/// Error number in an error of this crate, as the cluster or librbd replied.
///
/// None if no reply is the cause: a refused range, a device given up, a missing library, an expired limit of
/// time.
pub fn errno(error: &io::Error) -> Option<i32> {
    let explained = error.get_ref().and_then(|inner| inner.downcast_ref::<Explained>());
    explained.map(|explained| explained.cause.raw_os_error()).unwrap_or(error.raw_os_error())
}

/// Ok for a result of zero or above, else an error that says `tried` with the error number as its source.
pub(crate) fn check(result: i32, tried: impl FnOnce() -> String) -> io::Result<i32> {
    if result >= 0 { Ok(result) } else { Err(failed(result.into(), &tried())) }
}

/// The error of a negative result: the operation, the reason, and the remedy if there is one.
pub(crate) fn failed(result: i64, tried: &str) -> io::Error {
    let cause = io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO));
    let remedy = match cause.raw_os_error() {
        Some(libc::ESHUTDOWN) => {
            ": the cluster has shut this client out (`ceph osd blocklist ls`), because another client took the \
             image over: open the device anew once the other client has ended"
        }
        Some(libc::EPERM | libc::EACCES) => {
            ": the client needs the rights 'profile rbd' on monitors and pool: see `ceph auth caps`"
        }
        Some(libc::ETIMEDOUT) => ": see `ceph -s` for the state of the cluster",
        Some(libc::ENOSPC | libc::EDQUOT) => ": see `ceph df` for the free space of the pool",
        _ => "",
    };
    let problem = format!("cannot {tried}: {cause}{remedy}");
    explained(cause.kind(), problem, cause)
}

/// An error with a kind of its own, that keeps the error number of `result`.
pub(crate) fn failed_as(kind: io::ErrorKind, result: i64, problem: String) -> io::Error {
    explained(kind, problem, io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO)))
}

fn explained(kind: io::ErrorKind, problem: String, cause: io::Error) -> io::Error {
    io::Error::new(kind, Explained { problem, cause })
}

/// An error with the operation and the remedy.
#[derive(Debug)]
struct Explained {
    problem: String,
    cause: io::Error,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Explained {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
