//! The state directory of a host is lost, old, doubled or damaged: no older half of a volume is served as the
//! newest, and the commands in messages work.

use crate::machine::{Ended, Machine, number, qemu_io_ok};
use crate::names::{fill, mirror, noted, rename, serve_with, states};
use crate::recover::behind_its_ssd;
use crate::replace::wait_until;

/// Returns the command in a message that begins with `begin`, up to the next punctuation of the message.
fn command(message: &str, begin: &str) -> Vec<String> {
    let at = message.find(begin).unwrap_or_else(|| panic!("no '{begin}' in: {message}"));
    let text = &message[at..];
    let end = text.find(['(', ';', '\n']).unwrap_or(text.len());
    text[..end].split_whitespace().skip(1).map(str::to_owned).collect()
}

fn typed(machine: &Machine, words: &[String]) -> Ended {
    machine.braid(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The disk with the state directory died together with one half of a mirror: no command opened the other
/// half.
#[test]
fn mirror_without_state_directory_continues_from_one_half() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    fill(&machine, "m", 3);
    std::fs::remove_dir_all(machine.state()).unwrap();
    std::fs::remove_file(machine.path("a.img")).unwrap();
    let said = machine.refused(&["import", "b.img"], "degraded", &["d0", "ssd", "64 MiB", "older"]);
    let import = command(&said, "braid import");
    assert_eq!(&import[2..], ["--without", "d0"]);
    machine.refused(&["import", "b.img", "--without", "d1"], "usage", &["d1", "b.img"]);
    machine.refused(&["import", "b.img", "--without", "d7"], "usage", &["d7"]);
    assert!(!machine.state().join("m").exists());
    assert_eq!(typed(&machine, &import).status, 1, "a device is missing");
    assert_eq!(noted(&machine, "m"), ["", "b.img"]);
    let m = serve_with(&machine, "m", 3);
    assert_eq!(states(&machine, "m"), ["missing", "active"]);
    assert_eq!(m.terminate().status, 0);
    machine.ok(&["device", "replace", "m", "d0", "new.img,size=64MiB"]);
    let m = serve_with(&machine, "m", 3);
    wait_until("the new device is up to date", || machine.braid(&["status", "m"]).status == 0);
    assert_eq!(m.terminate().status, 0);
}

/// The same for a disk with epochs: epochs exist for this case.
#[test]
fn epoch_disk_is_recovered_without_ssd_and_state() {
    let machine = Machine::new();
    behind_its_ssd(&machine);
    std::fs::remove_dir_all(machine.state()).unwrap();
    machine.refused(&["recover", "vault"], "invalid", &["braid import"]);
    let said = machine.refused(&["import", "slow.img"], "degraded", &["d0"]);
    typed(&machine, &command(&said, "braid import"));
    let said = machine.refused(&["serve", "vault"], "degraded", &["d0"]);
    let recovered = typed(&machine, &command(&said, "braid recover"));
    assert_eq!(recovered.status, 0, "{recovered:?}");
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 4M", "read -P 0 20M 1M"]);
    assert_eq!(vault.terminate().status, 0);
}

/// If both SSDs are lost, the map is lost: only the disk with epochs still has metadata.
#[test]
fn epoch_disk_is_recovered_without_both_ssds_and_state() {
    let machine = Machine::new();
    let ssds = ["--ssd", "s0.img,size=64MiB", "--ssd", "s1.img,size=64MiB"];
    let disk = ["--hdd", "slow.img,size=96MiB,layout=tail", "--copies", "2", "--size", "48MiB"];
    machine.ok(&[&["create", "v", "--policy", "pass,order=epoch,idle=50ms"], &ssds[..], &disk[..]].concat());
    let v = machine.serve(&["v"]);
    qemu_io_ok(&v.uri, &["write -P 6 0 4M", "flush"]);
    wait_until("the disk is the volume", || {
        let status = machine.json(&["status", "v"]);
        !status["epoch"].is_null() && number(&status, "deferred_bytes") == 0.0
    });
    v.kill();
    std::fs::remove_dir_all(machine.state()).unwrap();
    for lost in ["s0.img", "s1.img"] {
        std::fs::remove_file(machine.path(lost)).unwrap();
    }
    let said = machine.refused(&["import", "slow.img"], "degraded", &["d0", "d1"]);
    typed(&machine, &command(&said, "braid import"));
    machine.refused(&["serve", "v"], "degraded", &["d0", "d1"]);
    machine.ok(&["recover", "v"]);
    let v = machine.serve(&["v"]);
    qemu_io_ok(&v.uri, &["read -P 6 0 4M", "read -P 0 4M 1M"]);
    assert_eq!(v.terminate().status, 0);
}

/// A missing cache without dirty blocks does not prevent the import of the disk.
#[test]
fn volume_is_imported_without_the_clean_cache() {
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=128MiB"];
    machine.ok(&[&["create", "v", "--policy", "cache", "--size", "64MiB"], &devices[..]].concat());
    fill(&machine, "v", 5);
    std::fs::remove_dir_all(machine.state()).unwrap();
    std::fs::remove_file(machine.path("fast.img")).unwrap();
    let said = machine.refused(&["import", "slow.img"], "degraded", &["d0"]);
    typed(&machine, &command(&said, "braid import"));
    assert_eq!(serve_with(&machine, "v", 5).terminate().status, 0);
}

/// A volume imported under another name had two records. A device was failed under one name, and served alone
/// under the other name.
#[test]
fn renamed_volume_has_a_single_record() {
    let machine = Machine::new();
    mirror(&machine, "n", ["a.img", "b.img"]);
    fill(&machine, "n", 1);
    machine.ok(&["import", "a.img", "b.img", "--as", "n2"]);
    machine.refused(&["serve", "n"], "invalid", &["'n'", "n2"]);
    assert!(!machine.state().join("n").exists());
    let said =
        machine.refused(&["import", "a.img", "b.img"], "invalid", &["'n2'", "braid serve n2", "--as n2"]);
    assert_eq!(typed(&machine, &command(&said, "braid import")).status, 0);
    let n2 = machine.serve(&["n2"]);
    machine.refused(&["import", "a.img", "b.img", "--as", "n"], "busy", &[]);
    machine.ok(&["device", "fail", "n2", "d1"]);
    qemu_io_ok(&n2.uri, &["write -P 2 0 8M", "flush"]);
    assert_eq!(n2.terminate().status, 0);
    rename(&machine, &[("a.img", "away")]);
    std::fs::create_dir(machine.path("far")).unwrap();
    rename(&machine, &[("away", "far/away")]);
    machine.refused(&["serve", "n2"], "degraded", &["--distrust d0"]);
    // The knowledge about the volume moves to the new name.
    machine.refused(&["import", "b.img", "--as", "n"], "degraded", &["--without d0"]);
    machine.braid(&["import", "b.img", "--as", "n", "--without", "d0"]);
    machine.refused(&["serve", "n"], "degraded", &["--distrust d0"]);
    rename(&machine, &[("far/away", "a.img")]);
    assert_eq!(serve_with(&machine, "n", 2).terminate().status, 0);
}

/// A copy of the volume's record under another name, as made by an older version: each record lacks later
/// knowledge of the other.
#[test]
fn of_two_records_neither_serves_an_older_half() {
    let machine = Machine::new();
    mirror(&machine, "n", ["a.img", "b.img"]);
    fill(&machine, "n", 1);
    let text = std::fs::read_to_string(machine.state().join("n/volume.json")).unwrap();
    std::fs::create_dir(machine.state().join("old")).unwrap();
    let text = text.replace("\"name\": \"n\"", "\"name\": \"old\"");
    std::fs::write(machine.state().join("old/volume.json"), text).unwrap();
    let n = machine.serve(&["n"]);
    machine.ok(&["device", "fail", "n", "d1"]);
    qemu_io_ok(&n.uri, &["write -P 2 0 8M", "flush"]);
    assert_eq!(n.terminate().status, 0);
    // If all devices are present, their metadata decides.
    let old = serve_with(&machine, "old", 2);
    machine.ok(&["device", "fail", "old", "d1"]);
    assert_eq!(old.terminate().status, 0);
    std::fs::create_dir(machine.path("far")).unwrap();
    rename(&machine, &[("a.img", "far/a.img")]);
    for name in ["n", "old"] {
        let said = machine.refused(&["serve", name], "degraded", &["'n'", "'old'", "d0"]);
        assert!(said.contains("--without d0"), "{said}");
    }
    rename(&machine, &[("far/a.img", "a.img")]);
    machine.braid(&["import", "a.img", "b.img", "--as", "n"]);
    assert!(!machine.state().join("old").exists());
    assert_eq!(serve_with(&machine, "n", 2).terminate().status, 0);
}

/// A state directory from before the replacement of one device and the addition of another: the record led to
/// the old device, and did not know the new device.
#[test]
fn an_old_state_directory_leads_to_the_devices_of_now() {
    let machine = Machine::new();
    mirror(&machine, "m", ["a.img", "b.img"]);
    fill(&machine, "m", 3);
    let file = machine.state().join("m/volume.json");
    let text = std::fs::read(&file).unwrap();
    machine.ok(&["device", "replace", "m", "d0", "new.img,size=64MiB"]);
    let m = serve_with(&machine, "m", 3);
    wait_until("the new device is up to date", || machine.braid(&["status", "m"]).status == 0);
    machine.ok(&["device", "add", "m", "--ssd", "more.img,size=64MiB"]);
    qemu_io_ok(&m.uri, &["write -P 4 0 8M", "flush"]);
    assert_eq!(m.terminate().status, 0);
    std::fs::write(&file, text).unwrap();
    let m = serve_with(&machine, "m", 4);
    assert_eq!(states(&machine, "m"), ["active"; 3]);
    assert_eq!(noted(&machine, "m"), ["new.img", "b.img", "more.img"]);
    assert_eq!(m.terminate().status, 0);
}

/// A killed `create` left files that blocked the name for ever. A refused `create` left a directory.
#[test]
fn failed_create_leaves_the_name_free() {
    let machine = Machine::new();
    std::fs::write(machine.path("disk.img"), vec![9; 32 << 20]).unwrap();
    let create = ["create", "v", "--adopt", "disk.img", "--ssd", "s.img,size=64MiB"];
    machine.refused(
        &["create", "v", "--adopt", "none.img", "--ssd", "s.img,size=64MiB"],
        "io",
        &["none.img"],
    );
    assert!(!machine.state().join("v").exists(), "a refused creation leaves nothing");
    for left in ["record", "record.new"] {
        std::fs::create_dir_all(machine.state().join("v")).unwrap();
        std::fs::write(machine.state().join("v/lock"), "created 1\n").unwrap();
        std::fs::write(machine.state().join("v").join(left), vec![0; 4096]).unwrap();
        machine.ok(&create);
        assert_eq!(serve_with(&machine, "v", 9).terminate().status, 0);
        assert!(!machine.state().join("v/record.new").exists());
        std::fs::remove_dir_all(machine.state()).unwrap();
        std::fs::remove_file(machine.path("s.img")).unwrap();
    }
}

/// A zeroed or truncated record of an adopted disk was worse than a missing record: even `--distrust` did not
/// help.
#[test]
fn a_damaged_record_of_an_adopted_disk_counts_as_missing() {
    for damaged in [vec![], vec![0; 1 << 20]] {
        let machine = Machine::new();
        std::fs::write(machine.path("disk.img"), vec![9; 32 << 20]).unwrap();
        machine.ok(&["create", "v", "--adopt", "disk.img", "--ssd", "s.img,size=64MiB"]);
        assert_eq!(serve_with(&machine, "v", 9).terminate().status, 0);
        std::fs::write(machine.state().join("v/record"), &damaged).unwrap();
        machine.refused(&["serve", "v"], "degraded", &["d2", "--distrust"]);
        let v = machine.serve(&["v", "--distrust", "d2"]);
        qemu_io_ok(&v.uri, &["read -P 9 0 8M"]);
        let status = machine.braid(&["status", "v", "--json"]).stdout;
        assert_eq!(number(&serde_json::from_str(&status).unwrap(), "lost_bytes"), 0.0);
        assert_eq!(v.terminate().status, 0);
    }
}
