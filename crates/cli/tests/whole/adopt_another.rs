//! An adopted disk that is another one, or was mounted elsewhere, after the daemon died.

use crate::machine::{Machine, client, have, have_block_devices, make_file_system, qemu_io_ok};
use std::fs;
use std::path::Path;

const KEEP_DIRTY: &str = "cache,mode=write-back,dirty-high=100%,dirty-low=100%";

/// Two disks without serial numbers changed places after a crash, as `/dev/vdb` and `/dev/vdc` do: dirty
/// blocks were written over the other one.
#[test]
fn after_kill_9_another_disk_at_the_same_path_is_refused_and_neither_disk_changes() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let (disk, other, aside) =
        (machine.path("disk.img"), machine.path("other.img"), machine.path("aside.img"));
    fs::write(&disk, vec![b'A'; 64 << 20]).unwrap();
    fs::write(&other, vec![b'B'; 64 << 20]).unwrap();
    machine.ok(&[
        "create",
        "ad",
        "--adopt",
        "disk.img",
        "--ssd",
        "fast.img,size=128MiB",
        "--policy",
        KEEP_DIRTY,
    ]);
    let daemon = machine.serve(&["ad"]);
    qemu_io_ok(&daemon.uri, &["write -P 0x44 1M 64k", "write -P 0x44 32M 64k", "flush"]);
    daemon.kill();
    let before = fs::read(&disk).unwrap();
    fs::rename(&disk, &aside).unwrap();
    fs::rename(&other, &disk).unwrap();
    machine.refused(&["serve", "ad"], "degraded", &["--distrust", "--force-write-back"]);
    assert!(fs::read(&disk).unwrap() == vec![b'B'; 64 << 20]);
    assert!(fs::read(&aside).unwrap() == before);
    fs::rename(&aside, &disk).unwrap();
    let daemon = machine.serve(&["ad"]);
    qemu_io_ok(&daemon.uri, &["read -P 0x44 1M 64k", "read -P 0x44 32M 64k", "read -P 0x41 40M 64k"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// Makes a file system on an image, and a volume that has adopted it.
fn adopted(machine: &Machine, make: &[&str], policy: &str) {
    let image = machine.path("disk.img");
    fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    make_file_system(make, image.to_str().unwrap());
    machine.ok(&["create", "ad", "--adopt", "disk.img", "--ssd", "fast.img,size=128MiB", "--policy", policy]);
    fs::create_dir(machine.path("mnt")).unwrap();
}

/// Works on the file system through the volume; then the daemon dies.
fn through_braid_until_killed(machine: &Machine, work: impl FnOnce(&Path)) {
    let daemon = machine.serve(&["ad"]);
    machine.ok(&["attach", "ad", "--mount", "mnt"]);
    work(&machine.path("mnt"));
    client("sync", &["-f", machine.path("mnt").to_str().unwrap()]);
    daemon.kill();
    while fs::metadata(machine.state().join("ad/mount/volume")).is_ok() {
        std::thread::yield_now();
    }
    machine.ok(&["detach", "ad"]);
}

/// Works on the file system past Braid.
fn elsewhere(machine: &Machine, work: impl FnOnce(&Path)) {
    let (image, mnt) = (machine.path("disk.img"), machine.path("plain"));
    fs::create_dir_all(&mnt).unwrap();
    client("mount", &["-o", "loop", image.to_str().unwrap(), mnt.to_str().unwrap()]);
    work(&mnt);
    client("umount", &[mnt.to_str().unwrap()]);
}

fn file_systems() -> [&'static [&'static str]; 3] {
    [&["mkfs.ext4", "-q", "-F"], &["mkfs.xfs", "-q", "-f"], &["mkfs.btrfs", "-q", "-f"]]
}

/// Of a disk that was mounted elsewhere after a crash, 219 of 280 files were destroyed by dirty blocks: XFS
/// and btrfs were known by their UUID alone.
#[test]
fn dirty_blocks_are_kept_from_a_file_system_that_was_mounted_elsewhere_after_a_crash() {
    for make in file_systems() {
        if !have_block_devices() || !have(&[make[0], "mount", "sync"]) {
            continue;
        }
        let machine = Machine::new();
        adopted(&machine, make, KEEP_DIRTY);
        // Killed twice: the disk that was left alone is served again, with its dirty blocks.
        for value in [1, 2] {
            through_braid_until_killed(&machine, |mnt| {
                fs::write(mnt.join("old"), vec![value; 20 << 20]).unwrap();
                fs::write(mnt.join(format!("more{value}")), vec![value; 1 << 20]).unwrap();
            });
        }
        let daemon = machine.serve(&["ad"]);
        machine.ok(&["attach", "ad", "--mount", "mnt"]);
        assert!(fs::read(machine.path("mnt/old")).unwrap() == vec![2; 20 << 20], "{make:?}");
        machine.ok(&["detach", "ad"]);
        daemon.kill();
        elsewhere(&machine, |mnt| {
            for i in 0..20 {
                fs::write(mnt.join(format!("new{i}")), vec![b'N'; 1_000_000]).unwrap();
            }
        });
        machine.refused(&["serve", "ad"], "degraded", &["--distrust", "--force-write-back"]);
        elsewhere(&machine, |mnt| {
            for i in 0..20 {
                assert!(fs::read(mnt.join(format!("new{i}"))).unwrap() == vec![b'N'; 1_000_000], "{make:?}");
            }
        });
    }
}

/// A file was read through the volume, and overwritten in place elsewhere after a crash: in the default mode
/// it was served as it had been before.
#[test]
fn clean_copies_are_forgotten_of_a_file_system_that_was_mounted_elsewhere_after_a_crash() {
    for make in file_systems() {
        if !have_block_devices() || !have(&[make[0], "mount", "sync"]) {
            continue;
        }
        let machine = Machine::new();
        adopted(&machine, make, "cache,mode=write-through");
        through_braid_until_killed(&machine, |mnt| fs::write(mnt.join("file"), vec![1; 3_000_000]).unwrap());
        for _ in 0..2 {
            through_braid_until_killed(&machine, |mnt| {
                assert!(fs::read(mnt.join("file")).unwrap() == vec![1; 3_000_000], "{make:?}");
            });
        }
        elsewhere(&machine, |mnt| {
            use std::io::Write;
            let mut file = fs::OpenOptions::new().write(true).open(mnt.join("file")).unwrap();
            file.write_all(&vec![2; 3_000_000]).unwrap();
            file.sync_all().unwrap();
        });
        let daemon = machine.serve(&["ad"]);
        machine.ok(&["attach", "ad", "--mount", "mnt"]);
        assert!(fs::read(machine.path("mnt/file")).unwrap() == vec![2; 3_000_000], "{make:?}");
        machine.ok(&["detach", "ad"]);
        let ended = daemon.terminate();
        assert!(ended.status == 0 && ended.stderr.contains("was changed"), "{make:?}: {ended:?}");
    }
}
