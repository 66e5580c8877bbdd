//! The names of devices change between two starts, as in the kernel: a volume finds its devices by content.
//! The oracle: with two copies and one lost device, the volume is served, and only the lost device is
//! missing.

use crate::machine::{Daemon, Machine, number, qemu_io_ok};
use crate::replace::wait_until;
use serde_json::Value;
use std::path::PathBuf;

/// Creates a mirror of two SSDs.
pub fn mirror(machine: &Machine, name: &str, [one, two]: [&str; 2]) {
    let (one, two) = (format!("{one},size=64MiB"), format!("{two},size=64MiB"));
    let copies = ["--copies", "2", "--policy", "ssd-first", "--size", "32MiB"];
    machine.ok(&[&["create", name, "--ssd", &one, "--ssd", &two], &copies[..]].concat());
}

/// Serves a volume, writes `value` to its first 8 MiB, and stops the daemon.
pub fn fill(machine: &Machine, name: &str, value: u8) {
    let daemon = machine.serve(&[name]);
    qemu_io_ok(&daemon.uri, &[&format!("write -P {value} 0 8M"), "flush"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// Serves a volume, and expects `value` in its first 8 MiB.
pub fn serve_with(machine: &Machine, name: &str, value: u8) -> Daemon {
    let daemon = machine.serve(&[name]);
    qemu_io_ok(&daemon.uri, &[&format!("read -P {value} 0 8M")]);
    daemon
}

/// States of a volume's devices, by place.
pub fn states(machine: &Machine, name: &str) -> Vec<String> {
    let status = machine.braid(&["status", name, "--json"]).stdout;
    let status: Value = serde_json::from_str(&status).unwrap();
    let devices = status["devices"].as_array().unwrap();
    devices.iter().map(|device| device["state"].as_str().unwrap().to_owned()).collect()
}

/// File names of a volume's devices in the record.
pub fn noted(machine: &Machine, name: &str) -> Vec<String> {
    let record = std::fs::read_to_string(machine.state().join(name).join("volume.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let file = |device: &Value| {
        let path = device["path"].as_str().map(PathBuf::from).unwrap_or_default();
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    record["devices"].as_array().unwrap().iter().map(file).collect()
}

pub fn rename(machine: &Machine, moves: &[(&str, &str)]) {
    for (from, to) in moves {
        std::fs::rename(machine.path(from), machine.path(to)).unwrap();
    }
}

/// One disk of a mirror died, the kernel renamed the other disks, and a disk of another volume got the name
/// of a remaining disk. All commands then refused the healthy mirror, and the other volume was served from
/// one half, although both halves were present.
#[test]
fn mirrors_are_served_after_disk_loss_and_renaming() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    mirror(&machine, "o", ["c.img", "d.img"]);
    fill(&machine, "m", 3);
    fill(&machine, "o", 4);
    std::fs::remove_file(machine.path("a.img")).unwrap();
    rename(&machine, &[("b.img", "a.img"), ("c.img", "b.img"), ("d.img", "c.img")]);
    let check = machine.braid(&["check", "m", "--json"]);
    let check: Value = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!((&check["degraded"][0], &check["clean"]), (&"d0 is missing".into(), &true.into()), "{check}");
    let o = serve_with(&machine, "o", 4);
    let m = serve_with(&machine, "m", 3);
    assert_eq!(states(&machine, "o"), ["active", "active"]);
    assert_eq!(states(&machine, "m"), ["missing", "active"]);
    assert_eq!(
        (noted(&machine, "m")[1].as_str(), noted(&machine, "o")),
        ("a.img", vec!["b.img".to_owned(), "c.img".to_owned()])
    );
    assert_eq!((m.terminate().status, o.terminate().status), (0, 0));
    // The lost device is replaced; an absent device is named by its place.
    machine.ok(&["device", "replace", "m", "d0", "new.img,size=64MiB"]);
    let m = serve_with(&machine, "m", 3);
    wait_until("the new device is up to date", || machine.braid(&["status", "m"]).status == 0);
    assert_eq!(m.terminate().status, 0);
}

/// The same before any volume was served: each of these commands was refused.
#[test]
fn lost_disk_is_replaced_after_second_volume_took_name() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    mirror(&machine, "o", ["c.img", "d.img"]);
    fill(&machine, "m", 3);
    std::fs::remove_file(machine.path("a.img")).unwrap();
    rename(&machine, &[("b.img", "a.img"), ("c.img", "b.img"), ("d.img", "c.img")]);
    let replaced = machine.json(&["device", "replace", "m", "d0", "new.img,size=64MiB"]);
    assert!(replaced["devices"][1]["path"].as_str().unwrap().ends_with("/a.img"), "{replaced}");
    let m = machine.serve(&["m", "--distrust", "d0"]);
    qemu_io_ok(&m.uri, &["read -P 3 0 8M"]);
    assert_eq!(m.terminate().status, 0);
    assert_eq!(noted(&machine, "m"), ["new.img", "a.img"]);
}

/// After an exchange of two names, the removal of one device deleted the path of the other device from the
/// record: at the next start the good copy was never opened.
#[test]
fn removed_device_clears_only_the_matching_recorded_path() {
    for copies in ["1", "2"] {
        let machine = Machine::new();
        let devices = ["--ssd", "a.img,size=64MiB", "--hdd", "b.img,size=64MiB", "--hdd", "c.img,size=64MiB"];
        let shape = ["--copies", copies, "--policy", "ssd-first", "--size", "24MiB"];
        machine.ok(&[&["create", "m"], &devices[..], &shape[..]].concat());
        fill(&machine, "m", 5);
        rename(&machine, &[("b.img", "x"), ("c.img", "b.img"), ("x", "c.img")]);
        let m = serve_with(&machine, "m", 5);
        // The record is right before the removal changes the record.
        assert_eq!(noted(&machine, "m"), ["a.img", "c.img", "b.img"]);
        machine.ok(&["device", "remove", "m", "d1"]);
        wait_until("it is removed", || noted(&machine, "m") == ["a.img", "", "b.img"]);
        assert_eq!(m.terminate().status, 0);
        let m = serve_with(&machine, "m", 5);
        assert_eq!(states(&machine, "m"), ["active", "active"]);
        assert_eq!(m.terminate().status, 0);
    }
}

/// The message named the surviving disk as the removed disk.
#[test]
fn replace_names_the_path_of_the_leaving_device() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    fill(&machine, "m", 5);
    rename(&machine, &[("a.img", "x"), ("b.img", "a.img"), ("x", "b.img")]);
    let m = serve_with(&machine, "m", 5);
    let report = machine.json(&["device", "replace", "m", "d0", "new.img,size=64MiB"]);
    assert!(report["replaced_path"].as_str().unwrap().ends_with("/b.img"), "{report}");
    wait_until("the old one has left", || noted(&machine, "m") == ["", "a.img", "new.img"]);
    assert_eq!(m.terminate().status, 0);
    assert_eq!(serve_with(&machine, "m", 5).terminate().status, 0);
}

/// Files of two mirrors under random names, with one device of each mirror lost. At the path of a lost device
/// lies a blank device, a device of the other volume, or nothing.
#[test]
fn mirrors_with_one_device_survive_any_renaming() {
    const NAMES: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    mirror(&machine, "o", ["c.img", "d.img"]);
    fill(&machine, "m", 3);
    fill(&machine, "o", 4);
    let kept = NAMES.map(|name| std::fs::read(machine.path(name)).unwrap());
    // The devices of each round are as old as these notes: with newer notes, promised batches would seem
    // lost.
    let of = |name: &str| ["volume.json", "noted.json"].map(|file| machine.state().join(name).join(file));
    let records: Vec<_> = ["m", "o"].into_iter().flat_map(of).collect();
    let texts: Vec<_> = records.iter().map(|record| std::fs::read(record).unwrap()).collect();
    let mut seed = 7u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..12 {
        let mut names: Vec<&str> = [&NAMES[..], &["e.img", "f.img"]].concat();
        (1..names.len()).rev().for_each(|i| names.swap(i, draw(i as u64 + 1) as usize));
        let lost = [draw(3), 2 + draw(3)];
        for name in &names {
            let _ = std::fs::remove_file(machine.path(name));
        }
        for (device, bytes) in kept.iter().enumerate() {
            let path = machine.path(names[device]);
            match lost.contains(&(device as u64)) {
                true if draw(2) == 0 => std::fs::File::create(path).unwrap().set_len(64 << 20).unwrap(),
                true => {}
                false => std::fs::write(path, bytes).unwrap(),
            }
        }
        records.iter().zip(&texts).for_each(|(record, text)| std::fs::write(record, text).unwrap());
        let story = format!("round {round}: names {names:?}, lost {lost:?}");
        for (name, value, first) in [("m", 3, 0u64), ("o", 4, 2)] {
            let expected = [first, first + 1].map(|device| match lost.contains(&device) {
                true => "missing",
                false => "active",
            });
            let all_lost = expected == ["missing"; 2];
            if all_lost {
                machine.refused(&["serve", name], "degraded", &["d0", "d1"]);
                continue;
            }
            let daemon = serve_with(&machine, name, value);
            assert_eq!(states(&machine, name), expected, "{story}");
            assert_eq!(daemon.terminate().status, 0, "{story}");
        }
    }
}

/// An old copy of a lost device lies beside the device's path. The copy is not taken for the device, and the
/// volume is served.
#[test]
fn an_older_copy_beside_a_lost_device_stays_untouched() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    fill(&machine, "m", 3);
    std::fs::copy(machine.path("a.img"), machine.path("a.bak")).unwrap();
    fill(&machine, "m", 4);
    std::fs::remove_file(machine.path("a.img")).unwrap();
    let kept = std::fs::read(machine.path("a.bak")).unwrap();
    for _ in 0..2 {
        let m = serve_with(&machine, "m", 4);
        assert_eq!(states(&machine, "m"), ["missing", "active"]);
        assert_eq!(m.terminate().status, 0);
    }
    assert!(std::fs::read(machine.path("a.bak")).unwrap() == kept, "it is a backup");
}

/// Two copies of one device, neither at a path of the record: the right device is undecidable.
#[test]
fn two_copies_of_a_device_under_new_names_are_refused_by_name() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    fill(&machine, "m", 3);
    std::fs::copy(machine.path("a.img"), machine.path("one")).unwrap();
    rename(&machine, &[("a.img", "two")]);
    machine.refused(&["serve", "m"], "invalid", &["one", "two", "d0"]);
    // A hard link to the same file is no copy.
    std::fs::remove_file(machine.path("one")).unwrap();
    std::fs::hard_link(machine.path("two"), machine.path("one")).unwrap();
    let m = serve_with(&machine, "m", 3);
    assert_eq!(states(&machine, "m"), ["active", "active"]);
    assert_eq!(m.terminate().status, 0);
    // A path of the record decides between two copies.
    rename(&machine, &[("one", "a.img")]);
    let other = std::fs::read(machine.path("two")).unwrap();
    std::fs::remove_file(machine.path("two")).unwrap();
    std::fs::write(machine.path("two"), other).unwrap();
    machine.ok(&["import", "a.img", "b.img"]);
    assert_eq!(serve_with(&machine, "m", 3).terminate().status, 0);
    assert_eq!(noted(&machine, "m"), ["a.img", "b.img"]);
}

/// A refused return left its path in the record: then the healthy volume was refused.
#[test]
fn refused_device_return_leaves_the_record_unchanged() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    let m = machine.serve(&["m"]);
    qemu_io_ok(&m.uri, &["write -P 6 0 8M", "flush"]);
    machine.ok(&["device", "fail", "m", "d1"]);
    let bytes = std::fs::read(machine.path("b.img")).unwrap();
    std::fs::write(machine.path("short.img"), &bytes[..32 << 20]).unwrap();
    machine.refused(&["device", "return", "m", "d1", "short.img"], "invalid", &["short.img"]);
    machine.refused(&["device", "return", "m", "d1", "nowhere.img"], "io", &["nowhere.img"]);
    assert_eq!(noted(&machine, "m"), ["a.img", "b.img"]);
    // An accepted device is noted in the record.
    rename(&machine, &[("b.img", "c.img")]);
    machine.ok(&["device", "return", "m", "d1", "c.img"]);
    assert_eq!(noted(&machine, "m"), ["a.img", "c.img"]);
    wait_until("it is up to date", || states(&machine, "m") == ["active", "active"]);
    // Without a path, the device is found under any name.
    machine.ok(&["device", "fail", "m", "d1"]);
    rename(&machine, &[("c.img", "e.img")]);
    machine.ok(&["device", "return", "m", "d1"]);
    assert_eq!(noted(&machine, "m"), ["a.img", "e.img"]);
    wait_until("it is up to date", || states(&machine, "m") == ["active", "active"]);
    assert_eq!(m.terminate().status, 0);
}

/// `--distrust` accepted a place that the volume does not have, without a message.
#[test]
fn distrust_of_an_unknown_device_is_refused() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    machine.refused(&["serve", "m", "--distrust", "d7"], "usage", &["d7", "d0, d1"]);
    machine.refused(&["check", "m", "--repair", "--distrust", "d7"], "usage", &["d7", "d0, d1"]);
    let m = machine.serve(&["m"]);
    machine.ok(&["device", "add", "m", "--ssd", "c.img,size=64MiB"]);
    machine.ok(&["device", "remove", "m", "d1"]);
    wait_until("it is removed", || noted(&machine, "m") == ["a.img", "", "c.img"]);
    assert_eq!(m.terminate().status, 0);
    machine.refused(&["serve", "m", "--distrust", "d1"], "usage", &["d1", "d0, d2"]);
    assert_eq!(machine.serve(&["m"]).terminate().status, 0);
}

/// A device without read permission is not a missing device.
#[test]
fn a_device_without_permission_is_an_error_and_not_missing() {
    use std::os::unix::process::CommandExt;
    const OTHER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        crate::machine::skip("only root can become another user");
        return;
    }
    let machine = Machine::open_to_all();
    mirror(&machine, "m", ["a.img", "b.img"]);
    let mode = |path: PathBuf, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    for folder in ["state", "state/m"] {
        mode(machine.path(folder), 0o755);
    }
    for file in ["state/m/volume.json", "state/m/lock", "b.img"] {
        mode(machine.path(file), 0o644);
    }
    let mut check = machine.command(&["check", "m"]);
    check.uid(OTHER).gid(OTHER);
    let ended = crate::machine::run(check);
    assert!(ended.status == 1 && ended.stderr.contains("a.img"), "{ended:?}");
    assert!(ended.stderr.contains("its owner, root or a member"), "{ended:?}");
}

/// An SSD of an adopted disk was given to another volume: all commands refused the first volume, despite its
/// intact disk.
#[test]
fn adopted_disk_is_served_after_second_volume_took_ssd() {
    let machine = Machine::new();
    for disk in ["one.img", "two.img"] {
        std::fs::write(machine.path(disk), vec![9; 32 << 20]).unwrap();
    }
    machine.ok(&["create", "a", "--adopt", "one.img", "--ssd", "s.img,size=64MiB"]);
    machine.ok(&["create", "b", "--adopt", "two.img", "--ssd", "s.img", "--force"]);
    assert_eq!(machine.braid(&["check", "a"]).status, 1, "a device is missing");
    let a = serve_with(&machine, "a", 9);
    let b = serve_with(&machine, "b", 9);
    assert_eq!(states(&machine, "a")[0], "missing");
    assert_eq!(states(&machine, "b")[0], "active");
    machine.ok(&["device", "remove", "a", "d0"]);
    wait_until("it is forgotten", || noted(&machine, "a")[0].is_empty());
    assert_eq!((a.terminate().status, b.terminate().status), (0, 0));
    machine.ok(&["forget", "a"]);
    assert_eq!(number(&machine.json(&["check", "b"]), "resync_bytes"), 0.0);
}

/// An old copy lay at the recorded path, and the current device beside the copy under a new name. The volume
/// with one copy was refused, and the advice would have discarded all data on the device.
#[test]
fn current_device_is_preferred_to_old_copy_at_path() {
    for copies in ["1", "2"] {
        let machine = Machine::new();
        let shape = ["--copies", copies, "--policy", "ssd-first", "--size", "32MiB"];
        let devices = ["--ssd", "a.img,size=64MiB", "--ssd", "b.img,size=64MiB"];
        machine.ok(&[&["create", "m"], &devices[..], &shape[..]].concat());
        fill(&machine, "m", 3);
        let backup = std::fs::read(machine.path("a.img")).unwrap();
        fill(&machine, "m", 4);
        rename(&machine, &[("a.img", "true.img")]);
        std::fs::write(machine.path("a.img"), &backup).unwrap();
        let m = serve_with(&machine, "m", 4);
        assert_eq!(states(&machine, "m"), ["active", "active"]);
        assert_eq!(m.terminate().status, 0);
        assert_eq!(noted(&machine, "m"), ["true.img", "b.img"]);
        assert!(std::fs::read(machine.path("a.img")).unwrap() == backup, "it is a backup");
        if copies == "1" {
            // Without the device, no command can keep its data, and the message names none.
            rename(&machine, &[("true.img", "gone"), ("a.img", "true.img")]);
            std::fs::create_dir(machine.path("away")).unwrap();
            rename(&machine, &[("gone", "away/gone")]);
            let words = ["true.img", "--distrust d0 discards all data"];
            machine.refused(&["serve", "m"], "invalid", &words);
        }
    }
}

/// Old copies of all devices agree with each other: the copies were taken for the volume, although the
/// current devices lay beside the copies.
#[test]
fn old_copy_of_all_devices_is_not_served() {
    let machine = Machine::new();
    machine.ok(&["create", "m", "--ssd", "a.img,size=64MiB", "--size", "32MiB"]);
    fill(&machine, "m", 3);
    std::fs::copy(machine.path("a.img"), machine.path("a.bak")).unwrap();
    fill(&machine, "m", 4);
    rename(&machine, &[("a.img", "true.img"), ("a.bak", "a.img")]);
    assert_eq!(serve_with(&machine, "m", 4).terminate().status, 0);
    assert_eq!(noted(&machine, "m"), ["true.img"]);
}
