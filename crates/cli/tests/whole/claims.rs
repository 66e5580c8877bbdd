//! Devices in use: every command refuses such a device, under each of its names.

use crate::machine::{Machine, client, have, have_block_devices, number, qemu_io_ok};
use std::path::{Path, PathBuf};

/// A loop device over a file, removed at the end of the test.
pub struct Loop(pub String);

impl Loop {
    pub fn over(path: &Path) -> Loop {
        Loop::over_part(path, &[])
    }

    /// Makes a loop device over a part of the file, given by options of losetup.
    fn over_part(path: &Path, options: &[&str]) -> Loop {
        let words = [&["-f", "--show"], options, &[path.to_str().unwrap()]].concat();
        Loop(client("losetup", &words).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        client("losetup", &["-d", &self.0]);
    }
}

/// Makes a blank file of 64 MiB as a device.
fn blank(machine: &Machine, name: &str) -> PathBuf {
    let path = machine.path(name);
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    path
}

/// A volume adopted the disk of another volume, despite the superblock on the disk. Guests of the new volume
/// then overwrote flushed data of the other volume.
#[test]
fn a_device_of_a_volume_is_not_adopted() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    for layout in ["head", "tail"] {
        let (ssd, hdd) =
            (format!("{layout}.ssd,size=64MiB"), format!("{layout}.hdd,size=64MiB,layout={layout}"));
        machine.ok(&["create", layout, "--ssd", &ssd, "--hdd", &hdd, "--policy", "hdd-only"]);
        let daemon = machine.serve(&[layout]);
        qemu_io_ok(&daemon.uri, &["write -P 7 0 8M", "flush"]);
        let disk = format!("{layout}.hdd");
        let adopt = ["create", "new", "--adopt", &disk, "--ssd", "new.ssd,size=64MiB"];
        machine.refused(&[&adopt[..], &["--force"]].concat(), "busy", &[&disk]);
        assert_eq!(daemon.terminate().status, 0);
        machine.refused(&adopt, "invalid", &[&disk, &format!("volume '{layout}'"), "d1", "--force"]);
        let linked = format!("{layout}.link");
        std::fs::hard_link(machine.path(&disk), machine.path(&linked)).unwrap();
        let adopt = ["create", "new", "--adopt", &linked, "--ssd", "new.ssd,size=64MiB"];
        machine.refused(&adopt, "invalid", &[&linked, layout]);
        let daemon = machine.serve(&[layout]);
        qemu_io_ok(&daemon.uri, &["read -P 7 0 8M"]);
        assert_eq!(daemon.terminate().status, 0);
    }
    // The administrator insists.
    machine.ok(&["create", "new", "--adopt", "head.hdd", "--ssd", "new.ssd,size=64MiB", "--force"]);
}

/// An adopted disk carries no mark of Braid. `create` and `device add` took an adopted disk with zeros at
/// both ends for an empty disk, and `create --adopt` accepted an adopted disk under another hard link.
#[test]
fn adopted_disk_is_refused_as_device_under_every_name() {
    let machine = Machine::new();
    blank(&machine, "disk.img");
    machine.ok(&["create", "owner", "--adopt", "disk.img", "--ssd", "fast.img,size=64MiB"]);
    std::fs::hard_link(machine.path("disk.img"), machine.path("hard.img")).unwrap();
    std::os::unix::fs::symlink(machine.path("disk.img"), machine.path("soft.img")).unwrap();
    machine.create("other", &[]);
    let other = machine.serve(&["other"]);
    for disk in ["disk.img", "hard.img", "soft.img"] {
        let named = [disk, "volume 'owner'", "--force"];
        machine.refused(&["create", "new", "--hdd", disk, "--ssd", "new.img,size=64MiB"], "invalid", &named);
        machine.refused(&["device", "add", "other", "--hdd", disk], "invalid", &named);
        machine.refused(&["device", "replace", "other", "d1", disk], "invalid", &named);
        let adopt = ["create", "new", "--adopt", disk, "--ssd", "new.img,size=64MiB", "--force"];
        machine.refused(&adopt, "invalid", &[disk, "owner"]);
        assert!(!machine.path("new.img").exists() && !machine.state().join("new/volume.json").exists());
    }
    assert_eq!(other.terminate().status, 0);
    machine.refused(&["device", "replace", "other", "d1", "hard.img"], "invalid", &["hard.img", "'owner'"]);
    // The owner's volume still accepts the disk.
    assert_eq!(machine.serve(&["owner"]).terminate().status, 0);
}

/// A file and a loop device over the file were two devices of one volume. Two daemons with separate state
/// directories served one volume, one by files, one by loop devices over the same files: each flushed with
/// success, and one daemon lost all writes.
#[test]
fn file_and_loop_device_above_are_one_device() {
    if !have_block_devices() || !have(&["losetup"]) {
        return;
    }
    let machine = Machine::new();
    let file = blank(&machine, "file.img");
    let device = Loop::over(&file);
    let twice = ["create", "two", "--ssd", &device.0, "--hdd", "file.img"];
    machine.refused(&twice, "invalid", &[&device.0, "file.img"]);
    machine.refused(&[&twice[..], &["--force"]].concat(), "invalid", &[&device.0, "file.img"]);
    machine.create("vault", &[]);
    let loops = ["vault.ssd", "vault.hdd"].map(|name| Loop::over(&machine.path(name)));
    let elsewhere = |words: &[&str]| {
        let mut command = machine.command(words);
        command.env("BRAID_STATE_DIR", machine.path("elsewhere"));
        crate::machine::run(command)
    };
    let import = ["import", &loops[0].0, &loops[1].0];
    // First by the files.
    let daemon = machine.serve(&["vault"]);
    let ended = elsewhere(&import);
    assert!(ended.status == 1 && ended.stderr.contains("in use"), "{ended:?}");
    machine.refused(&["create", "new", "--ssd", &loops[0].0, "--force"], "busy", &[&loops[0].0]);
    assert_eq!(daemon.terminate().status, 0);
    // First by the loop devices.
    assert_eq!(elsewhere(&import).status, 0);
    let mut command = machine.command(&["serve", "vault"]);
    command.env("BRAID_STATE_DIR", machine.path("elsewhere"));
    let daemon = crate::machine::Daemon::start(command);
    machine.refused(&["serve", "vault"], "busy", &["vault.ssd"]);
    machine.refused(&["create", "new", "--ssd", "vault.ssd", "--force"], "busy", &["vault.ssd"]);
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
}

/// Two loop devices over one file, and a loop device over a loop device, evaded the lock: two daemons served
/// one volume.
#[test]
fn overlapping_loop_devices_are_refused_while_served() {
    if !have_block_devices() || !have(&["losetup"]) {
        return;
    }
    let machine = Machine::new();
    let file = blank(&machine, "file.img");
    let device = Loop::over(&file);
    machine.ok(&["create", "vault", "--ssd", &device.0]);
    let daemon = machine.serve(&["vault"]);
    for other in [
        Loop::over(&file),
        Loop::over(Path::new(&device.0)),
        Loop::over_part(&file, &["--sizelimit", "1MiB"]),
    ] {
        let mut import = machine.command(&["import", &other.0]);
        import.env("BRAID_STATE_DIR", machine.path("elsewhere"));
        let ended = crate::machine::run(import);
        assert!(ended.status == 1 && ended.stderr.contains("in use"), "{ended:?}");
    }
    assert_eq!(daemon.terminate().status, 0);
    // Parts of a file or of a block device are separate devices.
    let halves = blank(&machine, "halves.img");
    let whole = Loop::over(&halves);
    for (at, lower) in [halves.as_path(), Path::new(&whole.0)].into_iter().enumerate() {
        let first = Loop::over_part(lower, &["--sizelimit", "32MiB"]);
        let second = Loop::over_part(lower, &["--offset", "32MiB"]);
        let names = [format!("one{at}"), format!("two{at}")];
        machine.ok(&["create", &names[0], "--ssd", &first.0, "--force"]);
        machine.ok(&["create", &names[1], "--ssd", &second.0, "--force"]);
        let both = names.each_ref().map(|name| machine.serve(&[name]));
        for daemon in both {
            assert_eq!(daemon.terminate().status, 0);
        }
    }
}

/// A check read stale data from the host's page cache, although another host had written to the device since.
#[test]
fn check_bypasses_the_host_page_cache() {
    if !have_block_devices() || !have(&["losetup", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let file = blank(&machine, "file.img");
    let device = Loop::over(&file);
    machine.ok(&["create", "vault", "--ssd", &device.0]);
    // The kernel keeps the cache of a block device while a process has the device open.
    let _held = std::fs::File::open(&device.0).unwrap();
    let mapped = || {
        let report = machine.ok(&["check", "vault", "--json"]);
        number(&serde_json::from_str(&report).unwrap(), "mapped_extents")
    };
    std::fs::read(&device.0).unwrap();
    assert_eq!(mapped(), 0.0);
    let elsewhere = |words: &[&str]| {
        let mut command = machine.command(words);
        command.env("BRAID_STATE_DIR", machine.path("elsewhere"));
        command
    };
    let ended = crate::machine::run(elsewhere(&["import", file.to_str().unwrap()]));
    assert_eq!(ended.status, 0, "{ended:?}");
    let daemon = crate::machine::Daemon::start(elsewhere(&["serve", "vault"]));
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    assert!(mapped() > 0.0);
}

/// The message "is not empty" did not name the content.
#[test]
fn refusal_names_the_file_system_on_the_device() {
    if !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let disk = blank(&machine, "disk.img");
    client("mkfs.ext4", &["-q", "-F", "-L", "photos", disk.to_str().unwrap()]);
    let create = ["create", "vault", "--hdd", "disk.img", "--ssd", "fast.img,size=64MiB"];
    let named = ["disk.img", "ext4", "photos", "--force"];
    machine.refused(&create, "invalid", &named);
    machine.create("other", &[]);
    machine.refused(&["device", "replace", "other", "d1", "disk.img"], "invalid", &named);
    let other = machine.serve(&["other"]);
    machine.refused(&["device", "add", "other", "--hdd", "disk.img"], "invalid", &named);
    assert_eq!(other.terminate().status, 0);
    machine.ok(&[&create[..], &["--force"]].concat());
}

/// Mounted devices and swap space are refused even with `--force`.
#[test]
fn mounted_disk_is_refused_even_with_force() {
    if !have_block_devices() || !have(&["mkfs.ext4", "losetup", "mount"]) {
        return;
    }
    let machine = Machine::new();
    let disk = blank(&machine, "disk.img");
    client("mkfs.ext4", &["-q", "-F", disk.to_str().unwrap()]);
    let (device, mnt) = (Loop::over(&disk), machine.path("mnt"));
    std::fs::create_dir(&mnt).unwrap();
    client("mount", &[&device.0, mnt.to_str().unwrap()]);
    machine.create("other", &[]);
    let other = machine.serve(&["other"]);
    for disk in ["disk.img", &device.0] {
        let create = ["create", "vault", "--hdd", disk, "--ssd", "fast.img,size=64MiB", "--force"];
        machine.refused(&create, "busy", &[disk, "mnt", "umount"]);
        machine.refused(&["device", "add", "other", "--hdd", disk, "--force"], "busy", &[disk, "mnt"]);
    }
    assert_eq!(other.terminate().status, 0);
    client("umount", &[mnt.to_str().unwrap()]);
}
