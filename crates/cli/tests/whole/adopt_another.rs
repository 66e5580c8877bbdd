//! After the death of the daemon: an adopted disk was exchanged, or mounted without Braid.

use crate::machine::{Machine, client, have, have_block_devices, make_file_system, qemu_io_ok};
use std::fs;
use std::path::Path;

const KEEP_DIRTY: &str = "cache,mode=write-back,dirty-high=100%,dirty-low=100%";

/// Two disks without serial numbers exchanged names after a crash, as `/dev/vdb` and `/dev/vdc` do: dirty
/// blocks were written to the wrong disk.
#[test]
fn foreign_disk_at_adopted_path_is_refused_unchanged() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let (disk, other, aside) =
        (machine.path("disk.img"), machine.path("other.img"), machine.far_away("aside.img"));
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

/// Makes a file system on an image, and a volume that adopts the image.
fn adopted(machine: &Machine, make: &[&str], policy: &str) {
    let image = machine.path("disk.img");
    fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    make_file_system(make, image.to_str().unwrap());
    machine.ok(&["create", "ad", "--adopt", "disk.img", "--ssd", "fast.img,size=128MiB", "--policy", policy]);
    fs::create_dir(machine.path("mnt")).unwrap();
}

/// Runs `work` on the file system through the volume, and kills the daemon.
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

/// Runs `work` on the file system without Braid.
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

/// A disk was mounted without Braid after a crash, and dirty blocks then destroyed 219 of 280 files: Braid
/// compared only the UUID of XFS and btrfs.
#[test]
fn dirty_blocks_are_withheld_after_mount_elsewhere() {
    for make in file_systems() {
        if !have_block_devices() || !have(&[make[0], "mount", "sync"]) {
            continue;
        }
        let machine = Machine::new();
        adopted(&machine, make, KEEP_DIRTY);
        // Killed twice: an unchanged disk is served again, with its dirty blocks.
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

/// A file was read through the volume, and overwritten in place without Braid after a crash. In the default
/// mode, the old content was served.
#[test]
fn clean_copies_are_dropped_after_mount_elsewhere() {
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

/// Content unique to a seed.
fn content(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(&mut next).take(32 << 20).collect()
}

/// Creates a volume that adopts a disk with the content of `seed`, and writes dirty blocks of this value.
fn with_dirty(machine: &Machine, name: &str, disk: &str, seed: u64) {
    fs::write(machine.path(disk), content(seed)).unwrap();
    let ssd = format!("{name}.ssd,size=16MiB");
    machine.ok(&["create", name, "--adopt", disk, "--ssd", &ssd, "--policy", KEEP_DIRTY]);
    let daemon = machine.serve(&[name]);
    qemu_io_ok(&daemon.uri, &[&format!("write -P {seed} 8M 1M"), "flush"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// Serves a volume of [`with_dirty`], checks the dirty blocks, and ends the daemon, cleanly or by a kill.
fn has_dirty(machine: &Machine, name: &str, seed: u64, is_killed: bool) {
    let daemon = machine.serve(&[name]);
    qemu_io_ok(&daemon.uri, &[&format!("read -P {seed} 8M 1M")]);
    match is_killed {
        true => daemon.kill(),
        false => assert_eq!(daemon.terminate().status, 0),
    }
}

/// File name of the adopted disk in the record of the volume.
fn at(machine: &Machine, name: &str) -> String {
    crate::names::noted(machine, name)[1].clone()
}

/// Disks without serial numbers exchanged names, as `/dev/vdb` and `/dev/vdc` do. Each volume refused the
/// other volume's disk, but no command accepted the right disk.
#[test]
fn renamed_adopted_disks_are_found_by_content() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    with_dirty(&machine, "m", "vdb", 3);
    with_dirty(&machine, "o", "vdc", 4);
    for is_killed in [true, false] {
        crate::names::rename(&machine, &[("vdb", "x"), ("vdc", "vdb"), ("x", "vdc")]);
        for (name, seed) in [("m", 3), ("o", 4)] {
            machine.braid(&["check", name]);
            has_dirty(&machine, name, seed, is_killed);
        }
    }
    assert_eq!([at(&machine, "m"), at(&machine, "o")], ["vdb", "vdc"]);
    // One disk has a new name, and the other disk has the former name of the SSD.
    crate::names::rename(&machine, &[("vdb", "vdd"), ("vdc", "x"), ("o.ssd", "vdc"), ("x", "o.ssd")]);
    has_dirty(&machine, "m", 3, false);
    has_dirty(&machine, "o", 4, false);
    assert_eq!([at(&machine, "m"), at(&machine, "o")], ["vdd", "o.ssd"]);
}

/// If two disks may be the adopted disk, the message names both, and neither is written to.
#[test]
fn copy_of_adopted_disk_is_never_chosen_automatically() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    with_dirty(&machine, "m", "vdb", 3);
    crate::names::rename(&machine, &[("vdb", "one")]);
    fs::copy(machine.path("one"), machine.path("two")).unwrap();
    machine.refused(&["serve", "m"], "invalid", &["one", "two", "m"]);
    // An older copy lies at the recorded path: the message names the right disk.
    fs::remove_file(machine.path("two")).unwrap();
    let mut older = content(3);
    older[..4096].fill(9);
    fs::write(machine.path("vdb"), older).unwrap();
    machine.refused(&["serve", "m"], "invalid", &["one", "vdb", "detach the copy"]);
    fs::remove_file(machine.path("vdb")).unwrap();
    has_dirty(&machine, "m", 3, false);
    assert_eq!(at(&machine, "m"), "one");
}

/// A disk in another directory: the message advised `import`, but `import` refuses such a volume.
#[test]
fn device_return_command_finds_a_missing_adopted_disk() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    with_dirty(&machine, "m", "vdb", 3);
    fs::create_dir(machine.path("away")).unwrap();
    crate::names::rename(&machine, &[("vdb", "away/vdz")]);
    for other in [None, Some("another disk")] {
        if other.is_some() {
            fs::write(machine.path("vdb"), content(5)).unwrap();
        }
        for verb in ["serve", "check"] {
            let said = machine.refused(&[verb, "m"], "degraded", &["vdb", "braid device return m d1 PATH"]);
            assert!(!said.contains("import"), "{said}");
        }
    }
    for command in [&["import", "m.ssd"][..], &["device", "replace", "m", "d1", "away/vdz"]] {
        let said = machine.braid(command).stderr;
        assert!(said.contains("braid device return m d1 PATH"), "{command:?}: {said}");
    }
    machine.refused(&["device", "return", "m", "d1", "vdb"], "invalid", &["vdb"]);
    machine.refused(&["device", "return", "m", "d1", "none"], "io", &["none"]);
    machine.ok(&["device", "return", "m", "d1", "away/vdz"]);
    has_dirty(&machine, "m", 3, false);
    assert_eq!(at(&machine, "m"), "vdz");
}

/// Disks made from one image are equal until guests write; each still belongs to its own volume.
#[test]
fn identical_disk_of_a_second_volume_is_not_taken() {
    let machine = Machine::new();
    for (name, disk) in [("m", "vdb"), ("o", "vdc")] {
        fs::write(machine.path(disk), content(7)).unwrap();
        machine.ok(&["create", name, "--adopt", disk, "--ssd", &format!("{name}.ssd,size=16MiB")]);
    }
    fs::rename(machine.path("vdb"), machine.far_away("vdb")).unwrap();
    machine.refused(&["serve", "m"], "degraded", &["vdb", "braid device return m d1 PATH"]);
    machine.refused(&["device", "return", "m", "d1", "vdc"], "invalid", &["vdc", "another volume"]);
    machine.ok(&["device", "return", "m", "d1", "far/vdb"]);
    assert_eq!(machine.serve(&["m"]).terminate().status, 0);
    assert_eq!(machine.serve(&["o"]).terminate().status, 0);
}
