mod resized;
use super::*;
use crate::checksum::checksum;
use crate::layout::{
    cache_table_len, device_table_room, dirty_spans_len, double_write_len, intents_len, map_len,
    most_regions, policy_state_len, proof_len,
};
use crate::{Fingerprint, LARGEST_COUNT};
use braid_base::{DeviceClass, GIB, KIB, MIB, Rng, TIB};

const METADATA: Role = Role::METADATA;

/// Two SSDs with metadata and a disk; two required copies; regions of every kind (sixth: second journal).
fn volume() -> Superblock {
    let device = |i: u8, class, role, first_slot| DeviceEntry {
        uuid: Uuid([i; 16]),
        size: GIB,
        class,
        model: "x25-m".to_owned(),
        slots: 8000,
        first_slot,
        slots_offset: MIB,
        state: DeviceState::Active,
        role,
        layout: Layout::Head,
        in_step: 3,
        fingerprint: Fingerprint { content: u32::from(i) },
    };
    let (data, cache) = (Role::DATA, Role::CACHE);
    let table = |device| TablePlace { device, offset: KIB * 32, len: device_table_room(3) * 2 };
    let mut superblock = Superblock {
        sequence: 7,
        epoch: 3,
        phase: Phase::Open,
        features: Features { compat: 1, ..Features::default() },
        volume: Uuid([9; 16]),
        name: "vault".to_owned(),
        volume_size: GIB * 5,
        extent_size: KIB * 128,
        block_size: KIB * 4,
        span_extents: 4,
        copies: 2,
        policy: "wardrop,period=2s".to_owned(),
        dirty_blocks: DirtyBlocks::Possible,
        tables: vec![table(DeviceId(0)), table(DeviceId(1))],
        owner: 0x0123_4567_89ab_cdef,
        devices: vec![
            device(1, DeviceClass::Ssd, data | METADATA | cache, 1),
            device(2, DeviceClass::Ssd, data | METADATA, 8001),
            device(3, DeviceClass::Hdd, data, 17_000),
        ],
        regions: vec![],
    };
    let map = map_len(superblock.extents(), 2);
    let cache_table = cache_table_len(8000, superblock.extent_size, superblock.block_size);
    for (kind, copy, device, len) in [
        (RegionKind::Journal, 0, 0, MIB),
        (RegionKind::Proof, 0, 0, proof_len()),
        (RegionKind::Map, 0, 0, map),
        (RegionKind::Intents, 0, 0, intents_len(superblock.spans())),
        (RegionKind::CacheTable, 0, 0, cache_table),
        (RegionKind::Journal, 1, 1, MIB),
        (RegionKind::Map, 1, 1, map),
        (RegionKind::PolicyState, 0, 1, policy_state_len()),
        (RegionKind::Checksums, 0, 2, MIB),
        (RegionKind::EpochJournal, 0, 2, MIB),
        (RegionKind::CacheTable, 0, 2, cache_table),
        (RegionKind::DoubleWrite, 0, 0, double_write_len(1000)),
        (RegionKind::DoubleWrite, 1, 1, double_write_len(1000)),
    ] {
        let on_same = superblock.regions.iter().rfind(|region| region.device == DeviceId(device));
        let offset = on_same.map_or(MIB, |region| region.offset + region.len);
        superblock.regions.push(Region { kind, copy, device: DeviceId(device), offset, len, void: false });
    }
    superblock
}

/// Makes the third device a device that keeps the addresses of a smaller volume.
fn keep_addresses(superblock: &mut Superblock) {
    superblock.volume_size = GIB / 2;
    let device = &mut superblock.devices[2];
    (device.layout, device.slots_offset) = (Layout::Tail, Bytes::ZERO);
    for region in superblock.regions.iter_mut().filter(|region| region.device == DeviceId(2)) {
        region.offset += GIB / 2;
    }
}

/// Makes the third device an adopted disk: the whole volume.
fn adopt(superblock: &mut Superblock) {
    let size = GIB - Bytes(512);
    (superblock.volume_size, superblock.copies) = (size, 1);
    let extents = superblock.extents();
    let device = &mut superblock.devices[2];
    (device.layout, device.slots_offset) = (Layout::Adopted, Bytes::ZERO);
    (device.size, device.slots) = (size, extents);
    let is_left = |region: &Region| region.device != DeviceId(2) && region.kind != RegionKind::Map;
    superblock.regions.retain(is_left);
    let (kind, device) = (RegionKind::DirtySpans, DeviceId(1));
    let (offset, len) = (MIB * 900, dirty_spans_len(superblock.spans()));
    superblock.regions.push(Region { kind, copy: 0, device, offset, len, void: false });
}

fn table(superblock: &Superblock) -> DeviceTable {
    DeviceTable::decode(&superblock.encode_table(), superblock.volume).unwrap()
}

/// Decodes like an opening: the superblock of one device, then the table.
fn reopened(superblock: &Superblock, device: u16) -> Result<Superblock, Invalid> {
    Header::decode(&superblock.encode(DeviceId(device)))?.with_table(table(superblock))
}

/// Makes the checksum match the bytes.
fn forge_superblock(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[COVERED..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

fn forge_table(bytes: &mut [u8], volume: Uuid) {
    let len = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    let crc = checksum(volume, &bytes[COVERED..len.min(bytes.len()).max(COVERED)]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn volume_round_trips_from_any_device() {
    let superblock = volume();
    assert_eq!(superblock.verify(), Ok(()));
    for device in 0..3 {
        let header = Header::decode(&superblock.encode(DeviceId(device))).unwrap();
        assert_eq!((header.this_device, header.device_count), (DeviceId(device), 3));
        assert_eq!(header.device, superblock.devices[usize::from(device)]);
        assert_eq!(header.tables, superblock.tables);
        assert_eq!(header.with_table(table(&superblock)), Ok(superblock.clone()));
    }
}

#[test]
fn marking_device_failed_changes_only_the_mark() {
    let mut bytes = volume().encode(DeviceId(1));
    let before = Header::decode(&bytes).unwrap();
    assert!(!before.given_up);
    Header::mark_given_up(&mut bytes).unwrap();
    assert_eq!(Header::decode(&bytes), Ok(Header { given_up: true, ..before }));
    let mut damaged = bytes.clone();
    damaged[200] ^= 1;
    assert_eq!(Header::mark_given_up(&mut damaged), Err(Invalid::Checksum));
    bytes[103] = 2;
    forge_superblock(&mut bytes);
    assert!(matches!(Header::decode(&bytes), Err(Invalid::Value(_))));
}

#[test]
fn every_state_phase_layout_and_role_round_trips() {
    use DeviceState::*;
    let states = [Active, Missing, Failed, Draining, Slow, Returning, Removed];
    let phases = [Phase::Closed, Phase::Opening, Phase::Open, Phase::Closing];
    let roles = [Role::DATA, Role::METADATA, Role::CACHE | Role::DATA, Role::LEAVING, Role::default()];
    for i in 0..6 {
        let mut superblock = volume();
        superblock.phase = phases[i % 4];
        superblock.devices[2].state = states[i];
        if i % 2 == 1 {
            keep_addresses(&mut superblock);
        }
        superblock.devices[2].role = roles[i % 4];
        assert_eq!(reopened(&superblock, 2), Ok(superblock));
    }
}

#[test]
fn adopted_disk_holds_only_the_volume() {
    let mut superblock = volume();
    adopt(&mut superblock);
    assert_eq!((superblock.adopted(), superblock.mapping()), (Some(DeviceId(2)), Mapping::OwnAddress));
    assert_eq!(reopened(&superblock, 0), Ok(superblock.clone()));
    let region = Region { device: DeviceId(2), ..*superblock.region(RegionKind::Proof, 0).unwrap() };
    let wrong: [&dyn Fn(&mut Superblock); 6] = [
        &|s| s.copies = 2,
        &|s| s.volume_size -= Bytes(512),
        &|s| s.devices[2].slots -= 1,
        &|s| s.devices[2].slots_offset = MIB,
        &|s| s.regions.push(region),
        &|s| s.tables[1].device = DeviceId(2),
    ];
    for (i, change) in wrong.iter().enumerate() {
        let mut changed = superblock.clone();
        change(&mut changed);
        assert!(changed.verify().is_err(), "change {i}");
    }
    // A device table of a volume without a map does not fit the superblock of one with a map.
    let header = Header::decode(&volume().encode(DeviceId(0))).unwrap();
    assert!(header.with_table(table(&superblock)).is_err());
}

#[test]
fn largest_device_table_fits_reserved_room() {
    let mut superblock = volume();
    let room = device_table_room(MOST_DEVICES);
    for table in &mut superblock.tables {
        table.len = room * 2;
    }
    for i in 3..MOST_DEVICES as u32 {
        let mut device = superblock.devices[2].clone();
        device.uuid.0[..4].copy_from_slice(&i.to_le_bytes());
        device.first_slot = 8000 * (i + 1);
        superblock.devices.push(device);
    }
    superblock.regions.retain(|region| region.kind != RegionKind::CacheTable);
    for i in superblock.regions.len()..most_regions(MOST_DEVICES) {
        let kind = [RegionKind::CacheTable, RegionKind::Checksums, RegionKind::EpochJournal][i % 3];
        let device = DeviceId((i / 6 + 3) as u16);
        let (offset, len) = (MIB * 100 + MIB * 2 * (i as u64 % 6), MIB * 2);
        superblock.regions.push(Region { kind, copy: (i / 3 % 2) as u8, device, offset, len, void: false });
    }
    assert!(superblock.encode_table().len() <= room.as_usize());
    assert_eq!(reopened(&superblock, 1023), Ok(superblock));
}

#[test]
fn device_table_of_older_opening_is_accepted() {
    let superblock = volume();
    let mut older = superblock.clone();
    (older.epoch, older.sequence) = (2, 5);
    let header = Header::decode(&superblock.encode(DeviceId(0))).unwrap();
    let table = table(&older);
    assert_eq!((table.epoch, table.sequence), (2, 5));
    assert_eq!(header.with_table(table), Ok(superblock));
}

#[test]
fn halves_of_the_table_alternate() {
    let place = volume().tables[0];
    assert_eq!(place.half(6), place.offset);
    assert_eq!(place.half(7), place.offset + place.len / 2);
}

#[test]
fn every_torn_sector_of_superblock_and_table_is_noticed() {
    let superblock = volume();
    let (whole, table) = (superblock.encode(DeviceId(1)), superblock.encode_table());
    for sector in 0..whole.len() / 512 {
        let mut torn = whole.clone();
        torn[sector * 512..][..512].fill(0xaa);
        assert!(Header::decode(&torn).is_err(), "sector {sector} of the superblock");
    }
    let len = table::table_len(superblock.devices.len(), superblock.regions.len());
    for sector in 0..len.div_ceil(512) {
        let mut torn = table.clone();
        torn[sector * 512..][..512].fill(0xaa);
        assert!(DeviceTable::decode(&torn, superblock.volume).is_err(), "sector {sector} of the table");
    }
}

#[test]
fn foreign_structures_are_distinguished_from_zeros() {
    let superblock = volume();
    assert_eq!(DeviceTable::decode(&superblock.encode_table(), Uuid([1; 16])), Err(Invalid::Checksum));
    assert_eq!(DeviceTable::decode(&[0; 4096], superblock.volume), Err(Invalid::Absent));
    assert_eq!(DeviceTable::decode(&[], superblock.volume), Err(Invalid::Absent));
    assert_eq!(Header::decode(&[0; 8192]), Err(Invalid::Absent));
}

#[test]
fn unknown_feature_or_format_version_is_rejected() {
    let mut newer = volume();
    newer.features.incompat = 1 << 63;
    let error = Header::decode(&newer.encode(DeviceId(0))).unwrap_err();
    assert!(matches!(&error, Invalid::Feature(_)), "{error}");
    for version in [1, 3] {
        let mut bytes = volume().encode(DeviceId(0));
        bytes[12] = version;
        forge_superblock(&mut bytes);
        let error = Header::decode(&bytes).unwrap_err();
        assert!(matches!(&error, Invalid::Feature(text) if text.contains(&version.to_string())), "{error}");
    }
}

#[test]
fn a_text_without_an_end_or_not_in_utf8_is_rejected() {
    for (place, byte) in [(160..224, b'x'), (224..1248, b'x'), (1344..1392, b'x'), (160..161, 0xff)] {
        let mut bytes = volume().encode(DeviceId(0));
        bytes[place.clone()].fill(byte);
        forge_superblock(&mut bytes);
        let error = Header::decode(&bytes).unwrap_err();
        assert!(names(&error, &[]), "{place:?}: {error}");
    }
}

#[test]
fn unknown_codes_are_rejected() {
    // Phase, mapping, tables; the device's class, state, role (three of its bits are known) and layout.
    for (at, code) in [
        (92, "99"),
        (94, "99"),
        (95, "99"),
        (1280 + 48, "99"),
        (1280 + 49, "99"),
        (1280 + 50, "0x60"),
        (1280 + 51, "99"),
    ] {
        let mut bytes = volume().encode(DeviceId(0));
        bytes[at] = 99;
        forge_superblock(&mut bytes);
        let error = Header::decode(&bytes).unwrap_err();
        assert!(names(&error, &[code]), "byte {at}: {error}");
    }
    let (mut table, volume) = (volume().encode_table(), volume().volume);
    table[table::table_len(3, 0)] = 99;
    forge_table(&mut table, volume);
    let error = DeviceTable::decode(&table, volume).unwrap_err();
    assert!(names(&error, &["99"]), "{error}");
}

#[test]
fn device_table_with_counts_contradicting_length_is_rejected() {
    for (at, value) in [(32, 4), (33, 5), (34, 12), (35, 200)] {
        let (mut table, volume) = (volume().encode_table(), volume().volume);
        table[at] = value;
        forge_table(&mut table, volume);
        assert!(matches!(DeviceTable::decode(&table, volume), Err(Invalid::Value(_))), "byte {at}");
    }
}

/// True if the error is a wrong value and names all of these.
fn names(error: &Invalid, values: &[&str]) -> bool {
    matches!(error, Invalid::Value(what) if values.iter().all(|value| what.contains(value)))
}

type Change = fn(&mut Superblock);

fn region(superblock: &mut Superblock, kind: RegionKind, copy: u8) -> &mut Region {
    let found = superblock.regions.iter_mut().find(|region| (region.kind, region.copy) == (kind, copy));
    found.unwrap()
}

fn without(superblock: &mut Superblock, kind: RegionKind, copy: u8) {
    superblock.regions.retain(|region| (region.kind, region.copy) != (kind, copy));
}

/// Broken rules that a single superblock shows, each with the values in the error.
const OF_THE_HEADER: &[(&[&str], Change)] = &[
    (&["3 KiB"], |s| s.extent_size = KIB * 3),
    (&["256 KiB"], |s| s.block_size = KIB * 256),
    (&["0 B"], |s| s.volume_size = Bytes::ZERO),
    (&["976.56 PiB"], |s| s.volume_size = TIB * 1_000_000),
    (&["3"], |s| s.copies = 3),
    (&["3", "40960"], |s| s.span_extents = 3),
    (&["0", "40960"], |s| s.span_extents = 0),
    (&["1", "8388608", "65536"], |s| (s.volume_size, s.span_extents) = (TIB, 1)),
    (&["0", "3"], |s| s.tables.clear()),
    (&["2", "3"], |s| s.tables[0].device = DeviceId(3)),
    (&["d0", "16.00 EiB"], |s| s.tables[0].offset = Bytes(u64::MAX - 4095)),
    (&["d0", "512 B"], |s| s.tables[0].offset = Bytes(512)),
    (&["d0", "0 B"], |s| s.tables[0].len = Bytes::ZERO),
    (&["d0", "24.00 KiB"], |s| s.tables[0].len = KIB * 24 + Bytes(1)),
    (&["d0", "20 KiB"], |s| s.tables[0].len = KIB * 20),
    (&["d0", "1 MiB"], |s| s.tables[0].len = MIB),
    (&["1152921504606846976"], |s| s.sequence = LARGEST_COUNT),
    (&["1152921504606846976"], |s| s.epoch = LARGEST_COUNT),
    (&["0"], |s| s.epoch = 0),
    (&["18446744073709551615"], |s| s.devices[0].in_step = u64::MAX),
    (&["64 KiB", "4 MiB"], |s| s.devices[0].size = KIB * 64),
    (&["9000"], |s| s.devices[0].slots = 9000),
    (&["8000", "16 KiB"], |s| s.devices[0].slots_offset = KIB * 16),
    (&["8000", "1.00 MiB"], |s| s.devices[0].slots_offset = MIB + Bytes(512)),
    (&["8000", "16.00 EiB"], |s| s.devices[0].slots_offset = Bytes(u64::MAX - 4095)),
];

/// Broken rules that only the device table shows: an opening would panic or read another structure's bytes.
const OF_THE_VOLUME: &[(&[&str], Change)] = &[
    (&["02020202-0202-0202-0202-020202020202"], |s| s.devices[2].uuid = Uuid([2; 16])),
    (&["0 B", "4 MiB"], |s| s.devices[2].size = Bytes::ZERO),
    (&["4294967295"], |s| s.devices[2].slots = u32::MAX),
    (&["d1", "8000"], |s| s.devices[1].first_slot = 8000),
    (&["d0", "0"], |s| s.devices[0].first_slot = 0),
    (&["4294967296"], |s| s.devices[2].first_slot = u32::MAX - 7999),
    (&["03030303-0303-0303-0303-030303030303", "1 MiB"], |s| s.devices[2].layout = Layout::Tail),
    (&["d2"], |s| {
        keep_addresses(s);
        s.regions.retain(|region| region.device != DeviceId(2));
        s.devices[2].slots = s.extents() - 1;
    }),
    (&["d2"], |s| {
        keep_addresses(s);
        let (offset, len) = (s.extent_size * u64::from(s.extents() - 1), MIB * 2);
        s.regions.push(Region {
            kind: RegionKind::Checksums,
            copy: 0,
            device: DeviceId(2),
            offset,
            len,
            void: false,
        });
    }),
    (&["journal copy 0", "d3"], |s| region(s, RegionKind::Journal, 0).device = DeviceId(3)),
    (&["journal copy 0", "512 KiB"], |s| region(s, RegionKind::Journal, 0).offset = KIB * 512),
    (&["journal copy 0", "1.00 MiB"], |s| region(s, RegionKind::Journal, 0).offset = MIB + Bytes(512)),
    (&["journal copy 0", "1001 MiB"], |s| region(s, RegionKind::Journal, 0).offset = MIB * 1001),
    (&["journal copy 0", "16.00 EiB"], |s| region(s, RegionKind::Journal, 0).offset = Bytes(u64::MAX - 4095)),
    (&["journal copy 0", "1.00 MiB"], |s| region(s, RegionKind::Journal, 0).len = MIB + Bytes(512)),
    (&["cache table copy 0", "0 B"], |s| region(s, RegionKind::CacheTable, 0).len = Bytes::ZERO),
    (&["cache table copy 0", "1 MiB"], |s| region(s, RegionKind::CacheTable, 0).len = MIB),
    (&["journal copy 2"], |s| region(s, RegionKind::Journal, 1).copy = 2),
    (&["d0", "8 KiB"], |s| (s.tables[0].len, s.regions) = (KIB * 8, vec![s.regions[0]; 150])),
    (&["d0", "0 B"], |s| s.tables[0].offset = Bytes::ZERO),
    (&["d0", "1023.98 MiB"], |s| s.tables[0].offset = GIB - KIB * 16),
    (&[], |s| s.tables[1].device = DeviceId(0)),
    (&["d0", "1 MiB"], |s| region(s, RegionKind::Proof, 0).offset = MIB),
    (&["d0", "1 MiB"], |s| s.tables[0].offset = MIB),
    (&["journal copy 0", "d1"], |s| region(s, RegionKind::Journal, 1).copy = 0),
    (&["map copy 0", "d1"], |s| region(s, RegionKind::Map, 1).copy = 0),
    (&["journal copy 0"], |s| without(s, RegionKind::Journal, 0)),
    (&["proof copy 0"], |s| without(s, RegionKind::Proof, 0)),
    (&["map copy 0"], |s| without(s, RegionKind::Map, 0)),
    (&["map copy 1"], |s| without(s, RegionKind::Map, 1)),
    (&["intents copy 0"], |s| without(s, RegionKind::Intents, 0)),
    (&["journal copy 0", "512 KiB"], |s| region(s, RegionKind::Journal, 0).len = KIB * 512),
    (&["journal copy 1", "65 MiB"], |s| (s.regions[5].offset, s.regions[5].len) = (MIB * 500, MIB * 65)),
    (&["journal copy 1", "2 MiB", "1 MiB"], |s| {
        (s.regions[5].offset, s.regions[5].len) = (MIB * 500, MIB * 2);
    }),
    (&["proof copy 0", "4 KiB"], |s| region(s, RegionKind::Proof, 0).len = KIB * 4),
    (&["map copy 1", "64 KiB"], |s| region(s, RegionKind::Map, 1).len = KIB * 64),
    (&["map copy 0"], |s| s.features.incompat |= Features::MAP_SUMMARY),
    (&["intents copy 0"], |s| s.span_extents = 1),
    (&["policy state copy 0", "256 KiB"], |s| region(s, RegionKind::PolicyState, 0).len = KIB * 256),
];

#[test]
fn violation_of_each_superblock_rule_is_rejected() {
    for (i, (values, change)) in OF_THE_HEADER.iter().enumerate() {
        let mut superblock = volume();
        change(&mut superblock);
        let error = Header::decode(&superblock.encode(DeviceId(0))).unwrap_err();
        assert!(names(&error, values), "change {i}, {values:?}: {error}");
        assert!(superblock.verify().is_err(), "change {i}, {values:?}: creation must notice it too");
    }
}

#[test]
fn violation_of_each_volume_rule_is_rejected() {
    for (i, (values, change)) in OF_THE_VOLUME.iter().enumerate() {
        let mut superblock = volume();
        change(&mut superblock);
        let error = superblock.verify().expect_err("the change breaks a rule");
        assert!(names(&error, values), "change {i}, {values:?}: {error}");
        // The first device's own superblock may already fail; no superblock may be accepted.
        assert!(reopened(&superblock, 1).is_err(), "change {i}, {values:?}");
    }
}

#[test]
fn device_table_contradicting_superblock_is_rejected() {
    let superblock = volume();
    let header = || Header::decode(&superblock.encode(DeviceId(2))).unwrap();
    let mut fewer = table(&superblock);
    fewer.devices.pop();
    let mut another = table(&superblock);
    another.devices[2].uuid = Uuid([5; 16]);
    for wrong in [fewer, another] {
        assert!(matches!(header().with_table(wrong), Err(Invalid::Value(_))));
    }
}

#[test]
fn volume_without_optional_regions_is_accepted() {
    let mut superblock = volume();
    for (kind, copy) in [(RegionKind::Journal, 1), (RegionKind::PolicyState, 0), (RegionKind::Intents, 0)] {
        without(&mut superblock, kind, copy);
    }
    superblock.tables.pop();
    superblock.copies = 1;
    assert_eq!(reopened(&superblock, 0), Ok(superblock));
}

#[test]
fn hostile_superblocks_and_tables_do_not_panic() {
    let mut rng = Rng::new(5);
    let superblock = volume();
    let (good, good_table) = (superblock.encode(DeviceId(1)), superblock.encode_table());
    let mut accepted = 0;
    for _ in 0..20_000 {
        let (mut bytes, mut table) = (good.clone(), good_table.clone());
        for _ in 0..rng.between(1, 5) {
            bytes[rng.between(16, 1408) as usize] = rng.next_u64() as u8;
            table[rng.between(12, 1000) as usize] = rng.next_u64() as u8;
        }
        forge_superblock(&mut bytes);
        forge_table(&mut table, superblock.volume);
        let table = DeviceTable::decode(&table, superblock.volume);
        let header = Header::decode(&bytes);
        if let Ok(header) = &header {
            let _ = header.tables.iter().map(|place| place.half(header.sequence)).max();
        }
        if let (Ok(header), Ok(table)) = (header, table) {
            accepted += usize::from(header.with_table(table).is_ok());
        }
    }
    assert!(accepted > 0, "some changes are harmless, so the rules are reached");
}
