//! A volume adopts a disk with a file system; at the end the disk is a plain disk again.

use crate::machine::{Machine, client, have, have_block_devices, number, qemu_io_ok};
use crate::replace::wait_until;
use std::path::Path;

const CREATE: [&str; 6] = ["create", "vault", "--adopt", "disk.img", "--ssd", "fast.img,size=64MiB"];
const WRITE_BACK: [&str; 2] = ["--policy", "cache,mode=write-back"];

/// Makes an image of 64 MiB and 5 sectors, with ext4 and a letter if this machine has the tools.
fn image(machine: &Machine, with_letter: bool) {
    let file = std::fs::File::create(machine.path("disk.img")).unwrap();
    file.set_len((64 << 20) + 5 * 512).unwrap();
    if !have(&["mkfs.ext4", "e2fsck"]) {
        return;
    }
    let path = machine.path("disk.img");
    client("mkfs.ext4", &["-q", "-F", path.to_str().unwrap(), "60m"]);
    if with_letter {
        mounted(machine, |mnt| std::fs::write(mnt.join("letter"), "dear reader").unwrap());
    }
}

/// Mounts the file system on the image without Braid, and runs `work`.
fn mounted(machine: &Machine, work: impl FnOnce(&Path)) {
    let (image, mnt) = (machine.path("disk.img"), machine.path("plain"));
    std::fs::create_dir_all(&mnt).unwrap();
    client("mount", &["-o", "loop", image.to_str().unwrap(), mnt.to_str().unwrap()]);
    work(&mnt);
    client("umount", &[mnt.to_str().unwrap()]);
}

fn check_file_system(machine: &Machine) {
    client("e2fsck", &["-f", "-n", machine.path("disk.img").to_str().unwrap()]);
}

/// Life of an adopted disk: adopt, mount, write, give back.
#[test]
fn adopted_file_system_is_returned_with_all_writes() {
    if !have_block_devices() || !have(&["mkfs.ext4", "e2fsck", "mount"]) {
        return;
    }
    let machine = Machine::new();
    image(&machine, true);
    let size = std::fs::metadata(machine.path("disk.img")).unwrap().len();
    let made = machine.json(&[&CREATE[..], &WRITE_BACK].concat());
    assert_eq!(number(&made, "size_bytes"), size as f64);
    assert_eq!(
        (&made["devices"][1]["adopted"], &made["devices"][0]["adopted"]),
        (&true.into(), &false.into())
    );
    let vault = machine.serve(&["vault"]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    for i in 0..20 {
        std::fs::write(machine.path(&format!("mnt/file{i}")), vec![i; 300_000]).unwrap();
    }
    std::fs::remove_file(machine.path("mnt/letter")).unwrap();
    machine.ok(&["detach", "vault"]);
    let status = machine.json(&["status", "vault"]);
    assert!(number(&status, "extra_bytes") > 0.0 && status["devices"][1]["adopted"] == true, "{status}");
    // The volume outlives its daemon.
    assert_eq!(vault.terminate().status, 0);
    let vault = machine.serve(&["vault"]);
    machine.ok(&["device", "remove", "vault", "d0"]);
    let is_left = || machine.json(&["status", "vault"])["devices"].as_array().unwrap().len() == 3;
    wait_until("the SSD has left", || !is_left());
    wait_until("its superblock is erased", || {
        std::fs::read(machine.path("fast.img")).unwrap()[..8192].iter().all(|&byte| byte == 0)
    });
    // The volume continues without the SSD and is not degraded. Once, `status` said DEGRADED for ever.
    let status = machine.ok(&["status", "vault"]);
    assert!(!status.contains("DEGRADED") && status.contains("NOTE"), "{status}");
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    std::fs::write(machine.path("mnt/last"), "without a cache").unwrap();
    machine.ok(&["detach", "vault"]);
    assert_eq!(vault.terminate().status, 0);
    // Once, the message named a path "removed" and an impossible import.
    let forgotten = machine.ok(&["forget", "vault"]);
    assert!(forgotten.contains("disk.img") && !forgotten.contains("import"), "{forgotten}");
    assert!(!machine.state().join("vault").exists());
    check_file_system(&machine);
    assert_eq!(std::fs::metadata(machine.path("disk.img")).unwrap().len(), size);
    mounted(&machine, |mnt| {
        for i in 0..20 {
            assert!(std::fs::read(mnt.join(format!("file{i}"))).unwrap() == vec![i; 300_000]);
        }
        assert_eq!(std::fs::read_to_string(mnt.join("last")).unwrap(), "without a cache");
        assert!(!mnt.join("letter").exists());
    });
}

#[test]
fn missing_ssd_blocks_serve_only_while_holding_sole_copy() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    image(&machine, false);
    machine.ok(&CREATE);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 62M 1M", "flush", "read -P 6 62M 1M"]);
    vault.kill();
    std::fs::remove_file(machine.path("fast.img")).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 62M 1M"]);
    let status = machine.braid(&["status", "vault"]).status;
    assert_eq!(status, 3, "a device is missing");
    machine.ok(&["device", "remove", "vault", "d0"]);
    wait_until("the lost SSD is forgotten", || machine.braid(&["status", "vault"]).status == 0);
    // Another SSD, with blocks that no other device holds.
    machine.ok(&["device", "add", "vault", "--ssd", "new.img,size=64MiB"]);
    machine.ok(&["policy", "vault", "cache,mode=write-back"]);
    assert_eq!(vault.terminate().status, 0);
    // If all blocks are written back before the daemon is killed, try again.
    loop {
        let vault = machine.serve(&["vault"]);
        qemu_io_ok(&vault.uri, &["write -P 7 61M 64k", "flush"]);
        vault.kill();
        std::fs::rename(machine.path("new.img"), machine.far_away("new.img")).unwrap();
        let check = machine.braid(&["check", "vault", "--json"]);
        let check: serde_json::Value = serde_json::from_str(&check.stdout).unwrap();
        let only = check["only_on_missing"].as_array().unwrap();
        if only
            .iter()
            .any(|range| range["device"] == "d3" && number(range, "offset_bytes") <= 61.0 * 1048576.0)
        {
            break;
        }
        std::fs::rename(machine.far_away("new.img"), machine.path("new.img")).unwrap();
    }
    machine.refused(&["serve", "vault"], "degraded", &["d3"]);
    std::fs::rename(machine.far_away("new.img"), machine.path("new.img")).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 7 61M 64k"]);
    vault.kill();
    std::fs::write(machine.path("new.img"), vec![0; 64 << 20]).unwrap();
    let vault = machine.serve(&["vault", "--distrust", "d3"]);
    qemu_io_ok(&vault.uri, &["read -P 6 62M 1M"]);
    assert_eq!(vault.terminate().status, 0);
}

#[test]
fn unsuitable_adopted_disks_are_refused_by_name() {
    let machine = Machine::new();
    image(&machine, false);
    machine.refused(&["create", "vault", "--adopt", "disk.img"], "usage", &["--ssd"]);
    machine.refused(
        &["serve", "--temporary", "--adopt", "disk.img", "--ssd", "memory,size=64MiB"],
        "usage",
        &[],
    );
    let moving = [&CREATE[..], &["--policy", "wardrop"]].concat();
    machine.refused(&moving, "invalid", &["wardrop", "cache"]);
    machine.refused(&[&CREATE[..], &["--size", "1MiB"]].concat(), "invalid", &[]);
    machine.refused(&[&CREATE[..], &["--copies", "2"]].concat(), "invalid", &[]);
    let missing = ["create", "vault", "--adopt", "none.img", "--ssd", "fast.img,size=64MiB"];
    machine.refused(&missing, "io", &["none.img"]);
    assert!(!machine.path("fast.img").exists() && !machine.state().join("vault/record").exists());
    machine.ok(&CREATE);
    let again = ["create", "other", "--adopt", "disk.img", "--ssd", "other.img,size=64MiB"];
    machine.refused(&again, "invalid", &["disk.img", "vault"]);
    machine.refused(&["device", "replace", "vault", "d0", "other.img,size=64MiB"], "unsupported", &["d0"]);
    machine.refused(&["forget", "vault"], "degraded", &["d0", "braid forget vault --force"]);
    // Another disk, and a disk that has grown.
    std::fs::rename(machine.path("disk.img"), machine.far_away("aside.img")).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["disk.img"]);
    std::fs::copy(machine.far_away("aside.img"), machine.path("disk.img")).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(machine.path("disk.img")).unwrap();
    file.set_len(80 << 20).unwrap();
    machine.refused(&["serve", "vault"], "invalid", &["disk.img"]);
    std::fs::rename(machine.far_away("aside.img"), machine.path("disk.img")).unwrap();
    assert_eq!(machine.braid(&["check", "vault"]).status, 0);
    // The SSD is lost, and the disk becomes a plain disk again.
    machine.ok(&["forget", "vault", "--force"]);
    assert!(!machine.state().join("vault").exists());
    machine.ok(&["create", "again", "--adopt", "disk.img", "--ssd", "new.img,size=64MiB"]);
}

#[test]
fn mounted_disk_is_neither_adopted_nor_served() {
    if !have_block_devices() || !have(&["mkfs.ext4", "e2fsck", "mount"]) {
        return;
    }
    let machine = Machine::new();
    image(&machine, true);
    mounted(&machine, |_| drop(machine.refused(&CREATE, "busy", &["disk.img", "plain"])));
    assert!(!machine.path("fast.img").exists());
    machine.ok(&CREATE);
    mounted(&machine, |_| drop(machine.refused(&["serve", "vault"], "busy", &["disk.img", "plain"])));
    // The disk was mounted without Braid meanwhile: cached blocks are discarded, and the volume is served.
    let vault = machine.serve(&["vault"]);
    let ended = vault.terminate();
    assert!(ended.status == 0 && ended.stderr.contains("was changed"), "{ended:?}");
    check_file_system(&machine);
}
