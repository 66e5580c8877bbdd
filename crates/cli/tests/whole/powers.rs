//! Powers that the daemon has given up, and what the daemon can still do.

use crate::machine::{Daemon, Machine, client, have, have_block_devices, qemu_io_ok, skip};
use crate::remote::wait_until_whole;
use crate::replace::wait_until;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// `CAP_DAC_OVERRIDE`, `CAP_IPC_LOCK`, `CAP_SYS_ADMIN` and `CAP_SYS_RESOURCE`.
const KEPT: u64 = 1 << 1 | 1 << 14 | 1 << 21 | 1 << 24;

/// A line of a thread's status.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name}: {status}")).trim().to_owned()
}

/// Checks all threads of the daemon; `own` is the status of this process, which had all powers at the start.
fn assert_narrow(daemon: &Daemon) {
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let bits = |status: &str, name: &str| u64::from_str_radix(&field(status, name), 16).unwrap();
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.process())).unwrap();
    for thread in threads.flatten() {
        // A thread may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        for set in ["CapEff", "CapPrm"] {
            assert_eq!(bits(&status, set), bits(&own, set) & KEPT, "{set}: {status}");
        }
        assert_eq!((bits(&status, "CapInh"), bits(&status, "CapAmb")), (0, 0), "{status}");
        // Without CAP_SETPCAP the bounding set stays; with it, nothing but the kept capabilities.
        if bits(&own, "CapEff") & 1 << 8 != 0 {
            assert_eq!(bits(&status, "CapBnd"), bits(&own, "CapBnd") & KEPT, "{status}");
        }
        assert_eq!(
            (field(&status, "NoNewPrivs"), field(&status, "Seccomp")),
            ("1".into(), "2".into()),
            "{status}"
        );
    }
}

/// A daemon started by hand kept all powers of root for as long as it served.
#[test]
fn daemon_gives_up_powers_and_still_adds_returns_attaches_and_detaches() {
    let machine = Machine::new();
    machine.create("vault", &["--copies", "2"]);
    let daemon = machine.serve(&["vault"]);
    assert_narrow(&daemon);
    machine.ok(&["device", "fail", "vault", "d1"]);
    machine.ok(&["device", "return", "vault", "d1"]);
    wait_until_whole(&machine);
    // An image that only its owner, another user, may open.
    let image = machine.path("other.hdd");
    std::fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&image, Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    machine.ok(&["device", "add", "vault", "--hdd", "other.hdd"]);
    if have_block_devices() && have(&["mkfs.ext4"]) {
        for _ in 0..2 {
            let device = machine.ok(&["attach", "vault"]).trim().to_owned();
            client("mkfs.ext4", &["-q", "-F", &device]);
            machine.ok(&["detach", "vault"]);
        }
        // The end of the daemon unmounts, by a process that kept its powers and ends with the daemon.
        std::fs::create_dir_all(machine.path("mnt")).unwrap();
        machine.ok(&["attach", "vault", "--mount", "mnt"]);
        std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    }
    assert_narrow(&daemon);
    let ended = daemon.terminate();
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(!machine.path("mnt/letter").exists());
    assert!(!ended.stderr.contains("could not lock memory"), "{}", ended.stderr);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// The process that detaches outlived a killed daemon, if it held a copy of the pipe's other end.
#[test]
fn process_that_detaches_ends_with_a_killed_daemon() {
    if !rustix::process::geteuid().is_root() {
        skip("only the daemon of root can be attached");
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let children = format!("/proc/{0}/task/{0}/children", daemon.process());
    let Ok(children) = std::fs::read_to_string(children) else {
        skip("the kernel does not list children");
        daemon.terminate();
        return;
    };
    let child: u32 = children.trim().parse().expect("one child");
    let words = std::fs::read(format!("/proc/{child}/cmdline")).unwrap();
    assert!(String::from_utf8_lossy(&words).contains("detach"), "{words:?}");
    daemon.kill();
    wait_until("the process that detaches has ended", || has_ended(child));
}

fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.map_or(true, |stat| {
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    })
}

/// `--user`: root opens devices that the user may not open, and what is left of the process is a user.
#[test]
fn daemon_becomes_another_user_and_serves_without_any_capability() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let machine = Machine::open_to_all();
    machine.create("vault", &["--copies", "2"]);
    chown(machine.runtime(), Some(NOBODY), Some(NOBODY)).unwrap();
    for (user, name) in [("root", "root"), ("nobody-of-that-name", "useradd")] {
        machine.refused(&["serve", "vault", "--user", user], "usage", &[name]);
    }
    let daemon = machine.serve(&["vault", "--user", "nobody"]);
    for thread in std::fs::read_dir(format!("/proc/{}/task", daemon.process())).unwrap().flatten() {
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        if field(&status, "Name").starts_with("iou-wrk") {
            // The kernel's worker for a request has the user of the request.
            continue;
        }
        assert_eq!(field(&status, "Uid"), "65534\t65534\t65534\t65534", "{status}");
        assert_eq!(field(&status, "Gid"), "65534\t65534\t65534\t65534", "{status}");
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(field(&status, set), "0000000000000000", "{set}: {status}");
        }
        assert_eq!(
            (field(&status, "NoNewPrivs"), field(&status, "Seccomp")),
            ("1".into(), "2".into()),
            "{status}"
        );
    }
    qemu_io_ok(&daemon.uri, &["write -P 7 0 1M", "flush", "read -P 7 0 1M"]);
    machine.ok(&["policy", "vault", "raid1"]);
    // Without a look at the other volumes, no device is added. Then: root's device cannot return to a user's
    // daemon; the user's device can.
    machine.ok(&["device", "fail", "vault", "d1"]);
    machine.refused(&["device", "return", "vault", "d1"], "io", &["--user"]);
    chown(machine.state(), Some(NOBODY), None).unwrap();
    machine.refused(&["device", "return", "vault", "d1"], "io", &["vault.hdd", "its owner"]);
    chown(machine.path("vault.hdd"), Some(NOBODY), None).unwrap();
    machine.ok(&["device", "return", "vault", "d1"]);
    wait_until_whole(&machine);
    if have_block_devices() {
        let ended = machine.braid(&["attach", "vault"]);
        assert!(ended.status == 1 && ended.stderr.contains("--user"), "{ended:?}");
    }
    let ended = daemon.terminate();
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
    // A crash, and the next daemon of the same user finds the pending log.
    let daemon = machine.serve(&["vault", "--user", "nobody"]);
    qemu_io_ok(&daemon.uri, &["write -P 8 0 1M"]);
    daemon.kill();
    let daemon = machine.serve(&["vault", "--user", "nobody"]);
    qemu_io_ok(&daemon.uri, &["read -P 8 0 1M"]);
    assert_eq!(daemon.terminate().status, 0);
    // Root again.
    chown(machine.runtime(), Some(0), Some(0)).unwrap();
    let daemon = machine.serve(&["vault"]);
    assert_eq!(daemon.terminate().status, 0);
}
