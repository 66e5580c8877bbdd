//! NBD exports as devices: a mirror goes on without its remote half, and takes the half back by itself.

use crate::machine::{
    Daemon, Machine, client, have, have_block_devices, number, qemu_io, qemu_io_ok, run, skip,
};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An export of nbdkit; ended with the value.
struct Export {
    server: Child,
    socket: PathBuf,
}

impl Export {
    /// Serves a file of the machine by a Unix socket, with further arguments of nbdkit.
    fn of(machine: &Machine, file: &str, size: u64, more: &[&str]) -> Export {
        let (path, socket) = (machine.path(file), machine.path(&format!("{file}.sock")));
        if !path.exists() {
            std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        }
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket).args(more);
        command.arg("file").arg(&path);
        let server = command.stdin(Stdio::null()).spawn().unwrap();
        let export = Export { server, socket };
        wait_until("nbdkit listens", || export.socket.exists());
        export
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.server), signal).unwrap();
    }

    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.end();
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < end, "{what}: two minutes are enough");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The status of the volume, whose exit status is 3 while a device is missing.
fn status_of(machine: &Machine) -> Value {
    let ended = machine.braid(&["status", "vault", "--json"]);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn state(machine: &Machine, device: usize) -> String {
    let status = status_of(machine);
    status["devices"][device]["state"].as_str().unwrap().to_owned()
}

pub fn wait_until_whole(machine: &Machine) {
    wait_until("both halves are in step", || {
        let status = status_of(machine);
        let is_active = |device: usize| status["devices"][device]["state"] == "active";
        is_active(0) && is_active(1) && number(&status, "behind_bytes") == 0.0
    });
}

const MIB: u64 = 1 << 20;

/// A mirror of a file and an export.
fn mirror(machine: &Machine, uri: &str) -> Daemon {
    machine.ok(&["create", "vault", "--ssd", "near,size=64MiB", "--hdd", uri, "--copies", "2"]);
    machine.serve(&["vault"])
}

#[test]
fn mirror_continues_without_its_export_and_takes_the_export_back() {
    if !have(&["qemu-io", "nbdkit"]) {
        return;
    }
    let machine = Machine::new();
    let export = Export::of(&machine, "export", 64 * MIB, &[]);
    let uri = export.uri();
    let daemon = mirror(&machine, &uri);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    export.kill();
    qemu_io_ok(&daemon.uri, &["write -P 2 4M 8M", "flush", "read -P 1 0 4M", "read -P 2 4M 8M"]);
    assert_eq!(state(&machine, 1), "failed");
    let export = Export::of(&machine, "export", 64 * MIB, &[]);
    wait_until_whole(&machine);
    let report = status_of(&machine);
    assert_eq!(report["devices"][1]["path"], uri.as_str());
    assert_eq!(daemon.terminate().status, 0);
    // The export alone holds all data.
    std::fs::rename(machine.path("near"), machine.far_away("near")).unwrap();
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 4M", "read -P 2 4M 8M"]);
    assert_eq!((state(&machine, 0).as_str(), state(&machine, 1).as_str()), ("missing", "active"));
    assert_eq!(daemon.terminate().status, 0);
    drop(export);
}

#[test]
fn stopped_server_does_not_stop_guests_and_returns() {
    if !have(&["qemu-io", "nbdkit"]) {
        return;
    }
    let machine = Machine::new();
    let export = Export::of(&machine, "export", 64 * MIB, &[]);
    let daemon = mirror(&machine, &export.uri());
    export.signal(rustix::process::Signal::STOP);
    qemu_io_ok(&daemon.uri, &["write -P 3 0 4M", "flush", "read -P 3 0 4M"]);
    assert_eq!(state(&machine, 1), "failed");
    export.signal(rustix::process::Signal::CONT);
    wait_until_whole(&machine);
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// An administrator excludes the export: only a command returns the export.
#[test]
fn excluded_export_stays_excluded() {
    if !have(&["qemu-io", "nbdkit"]) {
        return;
    }
    let machine = Machine::new();
    let export = Export::of(&machine, "export", 64 * MIB, &[]);
    let daemon = mirror(&machine, &export.uri());
    machine.ok(&["device", "fail", "vault", "d1"]);
    // Three attempts of the daemon would fit.
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(state(&machine, 1), "failed");
    machine.ok(&["device", "return", "vault", "d1"]);
    wait_until_whole(&machine);
    assert_eq!(daemon.terminate().status, 0);
}

/// A volume with one copy cannot go on. It says so, and nothing that was flushed is lost.
#[test]
fn single_copy_on_a_lost_export_fails_flushes_until_it_is_served_again() {
    if !have(&["qemu-io", "nbdkit"]) {
        return;
    }
    let machine = Machine::new();
    let export = Export::of(&machine, "export", 64 * MIB, &[]);
    machine.ok(&["create", "vault", "--hdd", &export.uri()]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 5 0 4M", "flush"]);
    export.kill();
    let _export = Export::of(&machine, "export", 64 * MIB, &[]);
    let (is_written, said) = qemu_io(&daemon.uri, &["write -P 6 0 4M", "flush"]);
    assert!(!is_written, "{said}");
    assert_eq!(daemon.terminate().status, 3);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 5 2M 2M", "write -P 6 0 4M", "flush", "read -P 6 0 4M"]);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn unfit_exports_are_refused_by_name() {
    if !have(&["nbdkit"]) {
        return;
    }
    let machine = Machine::new();
    let create = |uri: &str| ["create", "vault", "--hdd", uri].map(str::to_owned);
    let refused = |uri: &str, kind: &str, named: &[&str]| {
        let words = create(uri);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        machine.refused(&words, kind, named);
    };
    let nowhere = format!("nbd+unix:///?socket={}", machine.path("nowhere").display());
    refused(&nowhere, "io", &["nowhere"]);
    refused("nbd+unix:///a", "usage", &["socket"]);
    refused("nbd://host/a,size=1GiB", "usage", &["size="]);
    refused("nbd://host/a,model=x25-m", "usage", &["model="]);
    refused("rbd:pool", "usage", &["rbd:"]);
    let read_only = Export::of(&machine, "export", 64 * MIB, &["--readonly"]);
    refused(&read_only.uri(), "io", &[&read_only.uri()]);
    drop(read_only);
    // Swap space: as `mkswap` writes it.
    let mut bytes = vec![0; 64 << 20];
    bytes[1024] = 1;
    bytes[1028..1032].copy_from_slice(&(16383u32).to_le_bytes());
    bytes[4086..4096].copy_from_slice(b"SWAPSPACE2");
    std::fs::write(machine.path("swap"), bytes).unwrap();
    let swap = Export::of(&machine, "swap", 0, &[]);
    refused(&swap.uri(), "invalid", &["swap", "--force"]);
    machine.ok(&["create", "vault", "--hdd", &swap.uri(), "--force"]);
    refused(&swap.uri().replace("vault", "other"), "invalid", &["vault"]);
    let adopt = ["create", "third", "--ssd", "cache,size=64MiB", "--adopt", &swap.uri()];
    machine.refused(&adopt, "usage", &["--adopt"]);
}

/// Braid serves the far half, too; its daemon is killed, and started again.
#[test]
fn volume_of_another_daemon_is_a_device() {
    if !have(&["qemu-io"]) {
        return;
    }
    let (machine, other) = (Machine::new(), Machine::new());
    other.ok(&["create", "store", "--hdd", "disk,size=96MiB", "--size", "64MiB"]);
    let store = other.serve(&["store"]);
    let daemon = mirror(&machine, &store.uri);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    store.kill();
    qemu_io_ok(&daemon.uri, &["write -P 2 4M 8M", "flush"]);
    let store = other.serve(&["store"]);
    wait_until_whole(&machine);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 4M", "read -P 2 4M 8M"]);
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
    assert_eq!(store.terminate().status, 0);
}

/// Two hosts see one export. The second host is refused while the first lives, and shuts the first out when
/// told to.
#[test]
fn second_host_is_refused_until_the_first_is_gone_or_shut_out() {
    if !have(&["qemu-io", "nbdkit"]) {
        return;
    }
    let (first, second) = (Machine::new(), Machine::new());
    let export = Export::of(&first, "export", 64 * MIB, &[]);
    first.ok(&["create", "vault", "--hdd", &export.uri()]);
    let daemon = first.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 4M", "flush"]);
    second.braid(&["import", &export.uri()]);
    second.refused(&["serve", "vault"], "busy", &["vault", "--take-over"]);
    qemu_io_ok(&daemon.uri, &["write -P 2 0 2M", "flush"]);
    daemon.kill();
    let daemon = second.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 2 0 2M", "read -P 1 2M 2M", "write -P 3 0 1M", "flush"]);
    // The first host comes again, by force: the second host's guests can change nothing any more.
    let other = first.serve(&["vault", "--take-over"]);
    let (is_written, said) = qemu_io(&daemon.uri, &["write -P 4 0 4M", "flush"]);
    assert!(!is_written, "{said}");
    qemu_io_ok(
        &other.uri,
        &["read -P 3 0 1M", "read -P 2 1M 1M", "read -P 1 2M 2M", "write -P 5 0 4M", "flush"],
    );
    assert_eq!(daemon.terminate().status, 3);
    qemu_io_ok(&other.uri, &["read -P 5 0 4M"]);
    assert_eq!(other.terminate().status, 0);
    assert_eq!(first.json(&["check", "vault"])["clean"], true);
}

/// Two machines as network namespaces, joined by a cable. `BRAID_CABLE_SECONDS=n` cuts the cable for longer.
struct Cable {
    name: String,
    address: String,
}

impl Cable {
    fn new() -> Option<Cable> {
        let number = std::process::id() % 250;
        let name = format!("braid{number}");
        let (near, far) = (format!("10.211.{number}.1/24"), format!("10.211.{number}.2/24"));
        let cable = Cable { name: name.clone(), address: far.trim_end_matches("/24").to_owned() };
        let made = ip(&["netns", "add", &name])
            && ip(&["link", "add", &name, "type", "veth", "peer", "name", "far", "netns", &name])
            && ip(&["addr", "add", &near, "dev", &name])
            && ip(&["link", "set", &name, "up"])
            && ip(&["-n", &name, "addr", "add", &far, "dev", "far"])
            && ip(&["-n", &name, "link", "set", "far", "up"]);
        made.then_some(cable)
    }

    fn set(&self, state: &str) {
        assert!(ip(&["link", "set", &self.name, state]));
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&["link", "delete", &self.name]);
        ip(&["netns", "delete", &self.name]);
    }
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// ext4 on the start of the volume, mounted on `mnt`, with a verifying guest of its own.
struct FileSystem<'a>(&'a Machine);

impl<'a> FileSystem<'a> {
    /// Makes and mounts the file system; none where block devices cannot be made.
    fn make(machine: &'a Machine) -> Option<FileSystem<'a>> {
        if !have_block_devices() || !have(&["mkfs.ext4", "e2fsck"]) {
            return None;
        }
        let device = machine.ok(&["attach", "vault"]);
        client("mkfs.ext4", &["-q", device.trim(), &format!("{FILE_SYSTEM}M")]);
        std::fs::create_dir(machine.path("mnt")).unwrap();
        machine.ok(&["attach", "vault", "--mount", "mnt"]);
        Some(FileSystem(machine))
    }

    fn fio(&self, more: &[&str]) -> Command {
        let mut fio = Command::new("fio");
        fio.args(["--name=file", "--size=8m", "--rw=randwrite", "--bs=4k", "--fsync=16", "--verify=crc32c"]);
        fio.args(["--verify_fatal=1", &format!("--directory={}", self.0.path("mnt").display())]).args(more);
        fio
    }

    /// Mounts the file system of a new daemon, and verifies the file, then the file system.
    fn verify(&self) {
        let device = self.0.ok(&["attach", "vault", "--mount", "mnt"]);
        let verified = run(self.fio(&["--verify_only"]));
        assert_eq!(verified.status, 0, "{device}: {verified:?}");
        self.0.ok(&["detach", "vault"]);
        let device = self.0.ok(&["attach", "vault"]);
        client("e2fsck", &["-fn", device.trim()]);
        self.0.ok(&["detach", "vault"]);
    }
}

/// Size of the file system, in MiB. The guest of NBD has the 16 MiB behind it.
const FILE_SYSTEM: u64 = 24;

#[test]
fn cable_is_cut_and_mended_under_verifying_guests() {
    if !have(&["fio", "nbdkit", "ip"]) {
        return;
    }
    let Some(cable) = Cable::new() else {
        skip("network namespaces cannot be made here");
        return;
    };
    let seconds = std::env::var("BRAID_CABLE_SECONDS").map_or(40, |text| text.parse().unwrap());
    let machine = Machine::new();
    std::fs::File::create(machine.path("far")).unwrap().set_len(64 * MIB).unwrap();
    let mut server = Command::new("ip");
    server.args(["netns", "exec", &cable.name, "nbdkit", "--foreground", "--exit-with-parent", "file"]);
    let server = server.arg(machine.path("far")).stdin(Stdio::null()).spawn().unwrap();
    let _server = Export { server, socket: PathBuf::new() };
    let uri = format!("nbd://{}/", cable.address);
    wait_until("nbdkit listens", || run_quietly("nbdinfo", &["--size", &uri]));
    let daemon = mirror(&machine, &uri);
    // Each start of the daemon has the same address.
    let guest_uri = daemon.uri.clone();
    let fio = |more: &[&str]| {
        let mut fio = Command::new("fio");
        fio.args(["--name=guest", "--ioengine=nbd", &format!("--uri={guest_uri}"), "--rw=randwrite"]);
        fio.args([
            "--bs=4k",
            "--iodepth=8",
            "--size=16m",
            &format!("--offset={FILE_SYSTEM}m"),
            "--verify=crc32c",
            "--verify_fatal=1",
            "--fsync=64",
        ]);
        fio.args(more);
        fio
    };
    let filled = run(fio(&["--end_fsync=1"]));
    assert_eq!(filled.status, 0, "{filled:?}");
    let file_system = FileSystem::make(&machine);
    let runtime = format!("--runtime={seconds}");
    let during = ["--time_based", &runtime, "--do_verify=0"];
    let mut writer = file_system.as_ref().map(|made| {
        let filled = run(made.fio(&["--end_fsync=1"]));
        assert_eq!(filled.status, 0, "{filled:?}");
        made.fio(&during).stdout(Stdio::null()).spawn().unwrap()
    });
    let mut guest = fio(&during).stdout(Stdio::null()).spawn().unwrap();
    // Short cuts heal by themselves, long ones cost the connection.
    let (mut cuts, mut failures) = (0, 0);
    for (cut, mended) in [(1, 2), (8, 6), (3, 1), (12, 8)].into_iter().cycle() {
        if guest.try_wait().unwrap().is_some() {
            break;
        }
        cable.set("down");
        std::thread::sleep(Duration::from_secs(cut));
        failures += usize::from(state(&machine, 1) == "failed");
        cable.set("up");
        std::thread::sleep(Duration::from_secs(mended));
        cuts += 1;
    }
    cable.set("up");
    assert!(guest.wait().unwrap().success(), "the guest met an error");
    if let Some(writer) = &mut writer {
        assert!(writer.wait().unwrap().success(), "the file system met an error");
        machine.ok(&["detach", "vault"]);
    }
    assert!(cuts > 3 && failures > 0, "{cuts} cuts, {failures} failures");
    wait_until_whole(&machine);
    let verified = run(fio(&["--verify_only"]));
    assert_eq!(verified.status, 0, "{verified:?}");
    assert_eq!(daemon.terminate().status, 0);
    // Each half alone holds all data.
    for (hidden, without) in [("far", "d1"), ("near", "d0")] {
        let daemon = machine.serve(&["vault", "--distrust", without]);
        assert_eq!(daemon.uri, guest_uri);
        let verified = run(fio(&["--verify_only"]));
        assert_eq!(verified.status, 0, "without {hidden}: {verified:?}");
        if let Some(made) = &file_system {
            made.verify();
        }
        wait_until_whole(&machine);
        assert_eq!(daemon.terminate().status, 0);
    }
}

fn run_quietly(programme: &str, words: &[&str]) -> bool {
    let output = Command::new(programme).args(words).output();
    output.is_ok_and(|output| output.status.success())
}
