//! Powers that a process has given up. The tests run in a process of their own, which cannot take the powers
//! back: this programme once more.
#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::MIB;
use braid_runtime::{Arena, Runtime};
use braid_uring::{CallFilter, Ring, give_up_powers};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use std::process::Command;

const CHILD: &str = "BRAID_TEST_POWERS";

#[test]
fn refused_calls_are_errors_and_the_process_continues() {
    if std::env::var_os(CHILD).is_some() {
        return in_child();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "refused_calls_are_errors_and_the_process_continues", "--nocapture"]);
    let ended = child.env(CHILD, "1").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn in_child() {
    let left = give_up_powers().unwrap();
    // In a container, the manager's filter may stand alone.
    if left.filter != CallFilter::Own {
        eprintln!("SKIPPED: {:?}", left.filter);
        return;
    }
    let refused = Err(Errno::PERM);
    assert_eq!(Command::new("true").status().unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
    assert_eq!(socket(AddressFamily::PACKET, SocketType::DGRAM, None).map(drop), refused);
    assert_eq!(
        socket(AddressFamily::from_raw(libc::AF_ALG as u16), SocketType::SEQPACKET, None).map(drop),
        refused
    );
    socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let mounted =
        rustix::mount::mount("none", "/proc/self/task", "tmpfs", rustix::mount::MountFlags::empty(), None);
    assert_eq!(mounted, refused);
    // Threads, files and rings go on.
    assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    let ring = Ring::new(8, &Arena::new(MIB)).unwrap();
    ring.block_on(async { ring.sleep(braid_base::Nanos::from_millis(1)).await });
    std::fs::read("/proc/self/status").unwrap();
    // Twice: a filter may be added.
    assert_eq!(give_up_powers().unwrap().filter, CallFilter::Own);
}
