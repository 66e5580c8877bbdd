//! Requests at any byte and of any length, with device files on various file systems.

use crate::machine::{
    Machine, client, have, have_block_devices, make_file_system, number, qemu_io_ok, run, skip,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Within an extent and over several, at sectors and at any byte.
const COMMANDS: [&str; 16] = [
    "write -P 2 512 300032",
    "read -P 2 512 300032",
    "write -P 3 1 300001",
    "read -P 3 1 300001",
    "read -P 2 300002 542",
    "write -P 4 4097 9000",
    "read -P 4 4097 9000",
    "read -P 3 13097 200000",
    "write -P 5 1048575 300001",
    "read -P 5 1048575 300001",
    "write -P 6 33554431 1",
    "read -P 6 33554431 1",
    "write -P 7 8389120 4194304",
    "read -P 7 8389120 4194304",
    "flush",
    "read -P 5 1048575 300001",
];

const POLICIES: [&[&str]; 7] = [
    &["--policy", "hdd-only"],
    &["--policy", "cache,mode=write-back"],
    &["--policy", "hystor"],
    &["--copies", "2", "--policy", "raid1"],
    &["--copies", "2", "--policy", "raid1,write-behind"],
    &["--copies", "2", "--policy", "pass"],
    &["--copies", "2", "--policy", "pass,order=epoch"],
];

/// Serves a volume of each policy, with device files in `directory`: all requests succeed, and no device
/// counts an error.
fn serve_shapes(machine: &Machine, directory: &str) {
    let path = |name: &str| if directory == "." { name.to_owned() } else { format!("{directory}/{name}") };
    let (ssd, hdd) = (path("ssd"), path("hdd"));
    // Epochs need a disk with `layout=tail`.
    let (new_ssd, new_hdd) = (format!("{ssd},size=64MiB"), format!("{hdd},size=96MiB,layout=tail"));
    for policy in POLICIES {
        machine.ok(&[&["create", "v", "--ssd", &new_ssd, "--hdd", &new_hdd], policy].concat());
        serve_one(machine, &format!("{policy:?} on {directory}"));
        remove(machine, &[&ssd, &hdd]);
    }
    let disk = std::fs::File::create(machine.path(&hdd)).unwrap();
    disk.set_len(64 << 20).unwrap();
    machine.ok(&["create", "v", "--adopt", &hdd, "--ssd", &new_ssd, "--policy", "cache,mode=write-back"]);
    serve_one(machine, &format!("an adopted disk on {directory}"));
    remove(machine, &[&ssd, &hdd]);
}

fn serve_one(machine: &Machine, what: &str) {
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &COMMANDS);
    let status = machine.json(&["status", "v"]);
    for device in 0..status["devices"].as_array().unwrap().len() {
        assert_eq!(number(&status, &format!("devices.{device}.errors")), 0.0, "{what}: {status}");
    }
    assert_eq!(daemon.terminate().status, 0, "{what}");
}

fn remove(machine: &Machine, devices: &[&str]) {
    std::fs::remove_dir_all(machine.state()).unwrap();
    devices.iter().for_each(|device| std::fs::remove_file(machine.path(device)).unwrap());
}

/// A guest's buffer was aligned to a page regardless of the request's offset, and direct I/O refused
/// unaligned parts of the request: EIO on healthy devices, and a mirror became degraded.
#[test]
fn requests_of_any_shape_succeed_on_host_file_system() {
    if have(&["qemu-io"]) {
        serve_shapes(&Machine::new(), ".");
    }
}

/// File systems without reported alignment of direct I/O get requests of whole pages, from page-aligned
/// memory.
#[test]
fn requests_of_any_shape_succeed_on_tmpfs() {
    if !have(&["qemu-io", "mount", "umount"]) {
        return;
    }
    let machine = Machine::new();
    if let Some(_mounted) = Mounted::new(&machine, &["-t", "tmpfs", "-o", "size=512m", "braid-test"]) {
        serve_shapes(&machine, "place");
    }
}

#[test]
fn requests_of_any_shape_succeed_on_btrfs() {
    if !have(&["qemu-io", "mount", "umount", "mkfs.btrfs"]) || !have_block_devices() {
        return;
    }
    let machine = Machine::new();
    let image = machine.path("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    let image = image.to_str().unwrap();
    make_file_system(&["mkfs.btrfs", "-q"], image);
    if let Some(_mounted) = Mounted::new(&machine, &["-t", "btrfs", "-o", "loop", image]) {
        serve_shapes(&machine, "place");
    }
}

/// `dd` with an odd block size to the file of an attached volume failed with EIO.
#[test]
fn writes_of_odd_lengths_reach_the_file_of_an_attached_volume() {
    if !have_block_devices() || !have(&["qemu-io", "dd"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("v", &["--copies", "2", "--policy", "raid1"]);
    let daemon = machine.serve(&["v"]);
    machine.ok(&["attach", "v"]);
    std::fs::write(machine.path("threes"), vec![3; 2_000_000]).unwrap();
    let file = machine.state().join("v/mount/volume");
    let (from, to) = (machine.path("threes"), file.display().to_string());
    let (from, to) = (format!("if={}", from.display()), format!("of={to}"));
    client("dd", &[&from, &to, "bs=300001", "count=3", "seek=1", "conv=notrunc,fsync"]);
    qemu_io_ok(&daemon.uri, &["read -P 0 0 300001", "read -P 3 300001 900003", "read -P 0 1200004 4096"]);
    let expected: Vec<u8> = (0..900_009).map(|at| if at < 300_001 { 0 } else { 3 }).collect();
    assert!(read_by_dd(&file, 300_003) == expected);
    let status = machine.json(&["status", "v"]);
    assert_eq!((number(&status, "devices.0.errors"), number(&status, "devices.1.errors")), (0.0, 0.0));
    machine.ok(&["detach", "v"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// Reads three blocks of the file by `dd`.
fn read_by_dd(file: &Path, block: usize) -> Vec<u8> {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", file.display())).arg(format!("bs={block}")).arg("count=3");
    command.output().unwrap().stdout
}

/// A file system mounted on the directory `place` of a machine, until dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(machine: &Machine, words: &[&str]) -> Option<Mounted> {
        let path = machine.path("place");
        std::fs::create_dir(&path).unwrap();
        let mut command = Command::new("mount");
        command.args(words).arg(&path);
        let mounted = run(command);
        if mounted.status != 0 {
            skip(&format!("a file system of its own needs root: {}", mounted.stderr.trim()));
            return None;
        }
        Some(Mounted(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        command.arg("--lazy").arg(&self.0);
        run(command);
    }
}
