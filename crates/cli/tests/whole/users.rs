//! Commands that end service check for users first. Remains of a killed daemon are reported and can be
//! removed.

use crate::machine::{Machine, client, have, have_block_devices, qemu_io_ok};
use crate::namespace::{REMOVE_COPIES, make_namespace};
use crate::replace::wait_until;
use std::process::{Command, Stdio};

/// `detach` refused while a program used the volume, but `stop` ended the daemon after 12 seconds, and the
/// program's unsynced data was lost.
#[test]
fn stop_refuses_while_something_uses_the_block_device_and_names_the_user() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let mut daemon = machine.serve_mounted("vault");
    machine.refused(&["stop", "vault"], "busy", &["vault", "mnt", "--force"]);
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    let letter = std::fs::File::open(machine.path("mnt/letter")).unwrap();
    let mut reader = Command::new("sleep").arg("300").stdin(Stdio::from(letter)).spawn().unwrap();
    let process = format!("process {} (sleep)", reader.id());
    machine.refused(&["stop", "vault"], "busy", &["mnt", &process]);
    machine.refused(&["detach", "vault"], "busy", &["mnt", &process]);
    reader.kill().unwrap();
    reader.wait().unwrap();
    // The file system is still mounted, and intact.
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    machine.ok(&["stop", "vault", "--force"]);
    assert_eq!(daemon.wait().status, 0);
    // First a program has the block device open; then the block device has no user.
    let mut daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    let mut reader =
        Command::new("sleep").arg("300").stdin(std::fs::File::open(&device).unwrap()).spawn().unwrap();
    let process = format!("process {} (sleep)", reader.id());
    machine.refused(&["stop", "vault"], "busy", &[&process]);
    reader.kill().unwrap();
    reader.wait().unwrap();
    machine.ok(&["stop", "vault"]);
    assert_eq!(daemon.wait().status, 0);
}

/// The volume was mounted in a container, or was the file of another loop device. `stop` saw no user: the
/// daemon ended, and unsynced data was lost.
#[test]
fn stop_refuses_while_namespace_or_loop_device_uses_volume() {
    if !have_block_devices() || !have(&["mkfs.ext4", "unshare", "losetup"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let mut daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    client("mkfs.ext4", &["-q", &device]);
    std::fs::create_dir(machine.path("elsewhere")).unwrap();
    let point = machine.path("elsewhere").display().to_string();
    let script = format!("{REMOVE_COPIES} mount \"$1\" \"$2\" && echo mounted && read line");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh", &device, &point]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut container = make_namespace(|| {
        let mut container = command.spawn().unwrap();
        let mut said = [0; 8];
        std::io::Read::read_exact(container.stdout.as_mut().unwrap(), &mut said).unwrap();
        container
    });
    machine.refused(&["stop", "vault"], "busy", &[&point, &container.id().to_string(), "--force"]);
    machine.refused(&["detach", "vault"], "busy", &[&point]);
    drop(container.stdin.take());
    container.wait().unwrap();
    let stacked = client("losetup", &["--find", "--show", &device]).trim().to_owned();
    let refused = std::panic::catch_unwind(|| {
        machine.refused(&["stop", "vault"], "busy", &[&stacked]);
    });
    client("losetup", &["--detach", &stacked]);
    assert!(refused.is_ok(), "stop did not name {stacked}");
    // The file beneath the block device, and a file system without a mount point.
    let file = machine.state().join("vault/mount/volume");
    let file = std::fs::canonicalize(file).unwrap();
    let mut reader =
        Command::new("sleep").arg("300").stdin(std::fs::File::open(&file).unwrap()).spawn().unwrap();
    machine.refused(&["stop", "vault"], "busy", &[&format!("process {} (sleep)", reader.id())]);
    reader.kill().unwrap();
    reader.wait().unwrap();
    client("mount", &[&device, &point]);
    let letter = std::fs::File::create(machine.path("elsewhere/letter")).unwrap();
    client("umount", &["--lazy", &point]);
    machine.refused(&["stop", "vault"], "busy", &[&device]);
    drop(letter);
    wait_until("the file system is gone", || {
        let opened = rustix::fs::open(&device, rustix::fs::OFlags::EXCL, rustix::fs::Mode::empty());
        opened.is_ok()
    });
    machine.ok(&["stop", "vault"]);
    assert_eq!(daemon.wait().status, 0);
}

#[test]
fn stop_refuses_while_the_volume_is_swap_space() {
    if !have_block_devices() || !have(&["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    client("mkswap", &[&device]);
    let swapped = Command::new("swapon").arg(&device).stderr(Stdio::null()).status().unwrap();
    if !swapped.success() {
        _ = crate::machine::skip("this machine allows no swap space");
        return;
    }
    let refused = std::panic::catch_unwind(|| {
        machine.refused(&["stop", "vault"], "busy", &[&device, "swap", "--force"]);
        machine.refused(&["detach", "vault"], "busy", &[&device, "swap"]);
    });
    client("swapoff", &[&device]);
    assert!(refused.is_ok(), "stop did not name the swap space");
    machine.ok(&["stop", "vault"]);
    drop(daemon);
}

#[test]
fn stop_refuses_while_clients_are_connected_and_names_each() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let mut daemon = machine.serve(&["vault", "--nbd", "127.0.0.1:0", "--nbd", "unix:nbd.sock"]);
    let uris: Vec<&str> = daemon.uri.split(' ').collect();
    let connect = |uri: &str| {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", uri]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut clients: Vec<_> = uris.iter().map(|uri| connect(uri)).collect();
    let connected =
        |count: f64| crate::machine::number(&machine.json(&["status", "vault"]), "nbd_connections") == count;
    wait_until("both are connected", || connected(2.0));
    let local = clients[1].id().to_string();
    machine.refused(&["stop", "vault"], "busy", &["127.0.0.1:", &local, "qemu-io", "--force"]);
    for client in &mut clients {
        drop(client.stdin.take());
        client.wait().unwrap();
    }
    // The clients have just disconnected.
    machine.ok(&["stop", "vault"]);
    assert_eq!(daemon.wait().status, 0);
    // By `--force`, and by SIGTERM, which does not check for users.
    for forced in [true, false] {
        let mut daemon = machine.serve(&["vault"]);
        let mut client = connect(&daemon.uri);
        wait_until("it is connected", || connected(1.0));
        let ended = match forced {
            true => {
                machine.ok(&["stop", "vault", "--force"]);
                daemon.wait()
            }
            false => daemon.terminate(),
        };
        assert_eq!(ended.status, 0, "{ended:?}");
        drop(client.stdin.take());
        client.wait().unwrap();
    }
}

/// For a volume with a dead mounted file system, `status` said "not served" with exit status 0, and `attach
/// --mount` mounted over the dead file system.
#[test]
fn status_names_remains_of_killed_daemon_and_remedy() {
    if !have_block_devices() || !have(&["mkfs.ext4", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve_mounted("vault");
    daemon.kill();
    while std::fs::metadata(machine.state().join("vault/mount/volume")).is_ok() {
        std::thread::yield_now();
    }
    wait_until("the daemon is gone", || machine.braid(&["status", "vault"]).stdout.contains("not served"));
    let status = machine.braid(&["status", "vault"]);
    assert_eq!(status.status, 3, "{status:?}");
    for named in ["unclean", "/dev/loop", "mnt", "braid detach vault"] {
        assert!(status.stdout.contains(named), "{named}: {status:?}");
    }
    assert!(machine.ok(&["status"]).contains("DEAD MOUNT"));
    machine.refused(&["forget", "vault"], "busy", &["braid detach vault"]);
    let daemon = machine.serve(&["vault"]);
    machine.refused(&["attach", "vault", "--mount", "mnt"], "busy", &["mnt", "braid detach vault"]);
    machine.ok(&["detach", "vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    machine.refused(&["detach", "--dead", "vault"], "busy", &["served", "braid detach vault"]);
    // The refusal has detached nothing.
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
    let status = machine.braid(&["status", "vault"]);
    assert!(status.status == 0 && !status.stdout.contains("unclean"), "{status:?}");
    // Without a block device, only the unclean end is reported.
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 5 32M 1M", "flush"]);
    daemon.kill();
    // The kernel closes the sockets of a killed daemon a little later.
    wait_until("the daemon is gone", || machine.braid(&["status", "vault"]).stdout.contains("not served"));
    let status = machine.braid(&["status", "vault"]);
    assert!(status.status == 0 && status.stdout.contains("unclean"), "{status:?}");
    let daemon = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    daemon.kill();
    wait_until("the daemon is gone", || machine.braid(&["status", "vault"]).status == 3);
    machine.ok(&["detach", "--dead", "vault"]);
    assert_eq!(machine.braid(&["status", "vault"]).status, 0);
    machine.ok(&["forget", "vault"]);
}
