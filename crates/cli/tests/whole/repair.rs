//! Damage: found, told, and made good where a second copy is whole.

use crate::machine::{Machine, have, qemu_io_ok};
use std::os::unix::fs::FileExt;

/// Where image 0 of the map begins on the SSD: after two superblocks and a journal of 1 MiB. Image 1 on the disk.
const IMAGES: [(&str, u64); 2] = [("vault.ssd", (32 << 10) + (1 << 20)), ("vault.hdd", 32 << 10)];

#[test]
fn damage_of_one_image_is_repaired_and_of_both_is_told() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 4 0 8M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    let damage = |(name, offset): (&str, u64)| {
        let file = std::fs::OpenOptions::new().write(true).open(machine.path(name)).unwrap();
        file.write_all_at(&[0xee; 512], offset + 64).unwrap();
    };

    damage(IMAGES[0]);
    damage(("vault.hdd", 0));
    let found = machine.braid(&["check", "vault"]);
    assert_eq!(found.status, 1, "{found:?}");
    assert!(found.stdout.contains("map image 0") && found.stdout.contains("--repair"), "{found:?}");
    assert!(found.stdout.contains("superblock copy at byte 0"), "{found:?}");
    let repaired = machine.json(&["check", "vault", "--repair"]);
    assert_eq!((repaired["repaired"].as_bool(), repaired["clean"].as_bool()), (Some(true), Some(true)));
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 4 0 8M"]);
    assert_eq!(daemon.terminate().status, 0);

    damage(IMAGES[0]);
    damage(IMAGES[1]);
    let found = machine.braid(&["check", "vault"]);
    assert_eq!(found.status, 3, "{found:?}");
    assert!(found.stdout.contains("neither image"), "{found:?}");
    machine.refused(&["check", "vault", "--repair"], 3, &["cannot be repaired", "nothing was changed"]);
    machine.refused(&["serve", "vault"], 3, &["neither image", "braid check vault"]);
}
