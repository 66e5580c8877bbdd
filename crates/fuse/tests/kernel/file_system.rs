//! File systems on the block device: filled, unmounted, checked, mounted again; also after the daemon was
//! killed.

use crate::machine::{Machine, MountPoint, Setup, output, run};
use braid_base::{MIB, Rng};
use braid_fuse::Attachment;
use std::fs;
use std::path::Path;

#[test]
fn ext4_files_survive_and_fsck_is_clean() {
    keeps_its_files("mkfs.ext4", &["-q"], "e2fsck", &["-fn"]);
}

#[test]
fn xfs_files_survive_and_repair_is_clean() {
    keeps_its_files("mkfs.xfs", &["-q", "-f"], "xfs_repair", &["-n"]);
}

fn keeps_its_files(make: &str, make_options: &[&str], check: &str, check_options: &[&str]) {
    let Some(mut machine) = Machine::start(Setup::of(MIB * 512), &[make, check]) else { return };
    let device = machine.attach();
    program(make, make_options, &device);
    let point = machine.mount_point("point");
    braid_fuse::mount(&device, &point.0).unwrap();
    let files = fill(&point.0.join("first"), 1);
    point.unmount();
    program(check, check_options, &device);
    braid_fuse::mount(&device, &point.0).unwrap();
    compare(&files);

    // More files, some of them flushed; then the daemon dies.
    let flushed = fill(&point.0.join("second"), 2);
    run("sync", &[&"-f", &point.0]);
    fs::write(point.0.join("not flushed"), vec![1; 8 << 20]).unwrap();
    machine.kill();
    complains(&point);
    point.unmount();
    machine.serve();
    let device = machine.attach();
    // The journal is replayed by the mount.
    braid_fuse::mount(&device, &point.0).unwrap();
    compare(&files);
    compare(&flushed);
    fs::write(point.0.join("third"), [3; 100_000]).unwrap();
    point.unmount();
    program(check, check_options, &device);
    machine.attachment().detach().unwrap();
}

/// A file system whose device fails does not hang: a program that wants a file flushed to it gets an error.
fn complains(point: &MountPoint) {
    let written = output(
        "dd",
        &[&"if=/dev/zero", &format!("of={}/new", point.0.display()), &"bs=1M", &"count=1", &"conv=fsync"],
    );
    let said = String::from_utf8_lossy(&written.stderr).into_owned();
    println!("{}: {}", point.0.display(), said.lines().next().unwrap_or_default());
    assert!(!written.status.success());
    assert_ne!(written.status.code(), Some(124), "dd hung");
    assert!(said.contains("Input/output error") || said.contains("Read-only file system"), "{said}");
}

/// Files of all sizes with random bytes: their paths and contents.
fn fill(directory: &Path, seed: u64) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let sizes = [0, 1, 4095, 4096, 100_000, 5_000_000];
    let mut files = Vec::new();
    for number in 0..120 {
        let folder = directory.join(format!("{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = vec![0; sizes[number % sizes.len()]];
        rng.fill(&mut bytes);
        let path = folder.join(format!("file {number}"));
        fs::write(&path, &bytes).unwrap();
        files.push((path, bytes));
    }
    files
}

fn compare(files: &[(std::path::PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
    }
}

fn program(name: &str, options: &[&str], device: &Path) {
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = Vec::new();
    all.extend(options.iter().map(|option| option as &dyn AsRef<std::ffi::OsStr>));
    all.push(&device);
    run(name, &all);
}
