//! Damage is found, reported, and repaired if a second copy is intact.

use crate::machine::{Machine, have, qemu_io, qemu_io_ok};
use serde_json::Value;
use std::os::unix::fs::FileExt;

/// Devices with an image of the map.
const IMAGES: [&str; 2] = ["vault.ssd", "vault.hdd"];

/// Offsets of the first page of the map on a device, in the image and in the double-write area, found by the
/// page's checksum (docs/format.md).
fn map_pages(machine: &Machine, name: &str, uuid: &str) -> Vec<u64> {
    const MAP: u8 = 3;
    let digits: Vec<u8> = uuid.bytes().filter(|&byte| byte != b'-').collect();
    let digits =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    let seed = crc32c::crc32c(&digits.chain([MAP]).collect::<Vec<_>>());
    let bytes = std::fs::read(machine.path(name)).unwrap();
    let is_first = |page: &[u8]| {
        page[..4] == crc32c::crc32c_append(seed, &page[4..]).to_le_bytes() && page[4..8] == [0; 4]
    };
    let pages = (0..).zip(bytes.chunks_exact(4096)).filter(|(_, page)| is_first(page));
    let places: Vec<u64> = pages.map(|(number, _)| number * 4096).collect();
    assert!(!places.is_empty(), "no page of a map");
    places
}

/// Damages the content of a device at these offsets.
fn damage(machine: &Machine, name: &str, offsets: &[u64]) {
    let file = std::fs::OpenOptions::new().write(true).open(machine.path(name)).unwrap();
    offsets.iter().for_each(|offset| file.write_all_at(&[0xee; 512], offset + 64).unwrap());
}

/// Damages the first page of volume `vault`'s map on both devices, so the extents of the page are lost.
pub fn lose_map(machine: &Machine) {
    let uuid = machine.json(&["status", "vault"])["uuid"].as_str().unwrap().to_owned();
    for name in IMAGES {
        damage(machine, name, &map_pages(machine, name, &uuid));
    }
}

/// Report of `braid check --json` for volume `vault`.
fn check(machine: &Machine) -> Value {
    serde_json::from_str(&machine.braid(&["check", "vault", "--json"]).stdout).unwrap()
}

fn repairable(check: &Value) -> Vec<&str> {
    check["repairable"].as_array().unwrap().iter().map(|damage| damage.as_str().unwrap()).collect()
}

#[test]
fn one_damaged_map_image_is_repaired_but_two_reported() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 4 0 8M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    let uuid = machine.json(&["status", "vault"])["uuid"].as_str().unwrap().to_owned();
    let images = IMAGES.map(|name| (name, map_pages(&machine, name, &uuid)));
    damage(&machine, images[0].0, &images[0].1);
    damage(&machine, "vault.hdd", &[0]);
    let found = machine.braid(&["check", "vault"]);
    assert!(found.status == 1 && found.stdout.contains("--repair"), "{found:?}");
    let found = check(&machine);
    // The image on the first device, and the superblock on the second.
    let told = |part: &str| repairable(&found).iter().any(|damage| damage.contains(part));
    assert!(found["fatal"] == Value::Array(vec![]) && told("map image 0") && told("byte 0"), "{found}");
    let repaired = machine.json(&["check", "vault", "--repair"]);
    assert_eq!((repaired["repaired"].as_bool(), repaired["clean"].as_bool()), (Some(true), Some(true)));
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 4 0 8M"]);
    assert_eq!(daemon.terminate().status, 0);

    images.iter().for_each(|(name, pages)| damage(&machine, name, pages));
    assert_eq!(machine.braid(&["check", "vault"]).status, 3);
    let found = check(&machine);
    assert!(!found["fatal"].as_array().unwrap().is_empty(), "{found}");
    machine.refused(&["serve", "vault"], "corrupt", &["braid check vault"]);
    let repaired = machine.braid(&["check", "vault", "--repair", "--json"]);
    assert_eq!(repaired.status, 3, "{repaired:?}");
    let repaired: Value = serde_json::from_str(&repaired.stdout).unwrap();
    assert!(!repaired["lost"].as_array().unwrap().is_empty(), "{repaired}");
    // Lost ranges are reported, and read as errors, not as zeros; a write repairs a range.
    let daemon = machine.serve(&["vault"]);
    let (well, said) = qemu_io(&daemon.uri, &["read -P 4 0 8M"]);
    assert!(!well && said.contains("Input/output error"), "{said}");
    qemu_io_ok(&daemon.uri, &["write -P 5 0 8M", "flush", "read -P 5 0 8M"]);
    assert_eq!(daemon.terminate().status, 0);
}
