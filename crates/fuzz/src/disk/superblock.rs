//! Superblock, device table and policy state.

use super::{VOLUME, padded, seal};
use braid_base::{DeviceClass, DeviceId, GIB, KIB, MIB};
use braid_format::layout::{
    MOST_DEVICES, SMALLEST_DEVICE, device_table_room, double_write_len, intents_len, journal_len, map_len,
    proof_len,
};
use braid_format::policy_state::{self, PolicyState};
use braid_format::superblock::{
    self, DeviceEntry, DeviceState, DeviceTable, DirtyBlocks, Features, Header, Layout, Phase, Region,
    RegionKind, Role, Superblock, TablePlace,
};
use braid_format::{Fingerprint, Uuid};

/// An accepted header has bounded lengths. With a fitting device table, the header survives encoding
/// unchanged.
pub fn header(bytes: &[u8]) {
    let mut block = padded(bytes, superblock::SIZE);
    let _ = Header::decode(&block);
    seal::superblock(&mut block);
    let Ok(header) = Header::decode(&block) else { return };
    assert!(header.device.size >= SMALLEST_DEVICE);
    assert!(header.tables.iter().all(|place| place.len / 2 <= device_table_room(MOST_DEVICES)));
    let volume = if header.copies == 1 { one_copy() } else { two_copies() };
    if let Ok(whole) = header.clone().with_table(table_of(&volume)) {
        // The entry of the table counts, not the header's own.
        let device = whole.devices[header.this_device.index()].clone();
        // No superblock is encoded with the mark `given_up`, which is set separately.
        let expected = Header { device, given_up: false, ..header };
        assert_eq!(Header::decode(&whole.encode(expected.this_device)), Ok(expected));
    }
}

pub fn headers() -> Vec<Vec<u8>> {
    let of = |volume: Superblock| [DeviceId(0), DeviceId(1)].map(|device| volume.encode(device));
    [of(one_copy()), of(two_copies())].concat()
}

/// An accepted table has as many entries as its bytes hold. With a fitting header, the table survives
/// encoding unchanged.
pub fn device_table(bytes: &[u8]) {
    let _ = DeviceTable::decode(bytes, VOLUME);
    let mut bytes = bytes.to_vec();
    seal::table(&mut bytes);
    let Ok(table) = DeviceTable::decode(&bytes, VOLUME) else { return };
    assert!(table.devices.len() * 128 + table.regions.len() * 32 + 48 <= bytes.len());
    for volume in [one_copy(), two_copies()] {
        let header = Header::decode(&volume.encode(DeviceId(0))).expect("a header that was just encoded");
        if let Ok(whole) = header.with_table(table.clone()) {
            let again = DeviceTable::decode(&whole.encode_table(), VOLUME);
            let expected = DeviceTable { sequence: whole.sequence, epoch: whole.epoch, ..table.clone() };
            assert_eq!(again, Ok(expected));
        }
    }
}

pub fn device_tables() -> Vec<Vec<u8>> {
    [one_copy(), two_copies()].map(|volume| volume.encode_table()).into()
}

/// An accepted state lies within its half, and survives encoding unchanged.
pub fn policy(bytes: &[u8]) {
    let _ = policy_state::decode(bytes, VOLUME);
    let mut bytes = bytes.to_vec();
    seal::policy_state(&mut bytes);
    let Ok(found) = policy_state::decode(&bytes, VOLUME) else { return };
    assert!(found.state.len() <= policy_state::MOST_STATE);
    let again = policy_state::encode(VOLUME, &found);
    assert_eq!(policy_state::decode(&again, VOLUME), Ok(found));
}

pub fn policies() -> Vec<Vec<u8>> {
    let encoded = |len| {
        let state = &vec![0x5a; len][..];
        policy_state::encode(
            VOLUME,
            &PolicyState { epoch: 3, sequence: 8, policy: "hystor".to_owned(), state },
        )
    };
    [0, 1, 5000].map(encoded).into()
}

fn table_of(volume: &Superblock) -> DeviceTable {
    let (devices, regions) = (volume.devices.clone(), volume.regions.clone());
    DeviceTable { sequence: volume.sequence, epoch: volume.epoch, devices, regions }
}

fn one_copy() -> Superblock {
    volume(1)
}

fn two_copies() -> Superblock {
    volume(2)
}

/// A volume on an SSD and a disk, each with all possible regions.
fn volume(copies: u8) -> Superblock {
    let (extent_size, table) = (KIB * 128, device_table_room(2) * 2);
    let mut volume = Superblock {
        sequence: 7,
        epoch: 3,
        phase: Phase::Closed,
        features: Features::default(),
        volume: VOLUME,
        name: "vault".to_owned(),
        volume_size: GIB,
        extent_size,
        block_size: KIB * 4,
        span_extents: 1,
        copies,
        policy: "wardrop,period=2s".to_owned(),
        dirty_blocks: DirtyBlocks::Possible,
        tables: [0, 1].map(|i| TablePlace { device: DeviceId(i), offset: KIB * 32, len: table }).into(),
        owner: 7,
        devices: vec![device(0, DeviceClass::Ssd), device(1, DeviceClass::Hdd)],
        regions: Vec::new(),
    };
    let lens = [
        (RegionKind::Journal, journal_len(volume.volume_size)),
        (RegionKind::Proof, proof_len()),
        (RegionKind::Map, map_len(volume.extents(), copies)),
        (RegionKind::Intents, intents_len(volume.spans())),
        (RegionKind::DoubleWrite, double_write_len(u32::MAX)),
    ];
    for (copy, device) in [(0, DeviceId(0)), (1, DeviceId(1))] {
        let mut offset = MIB;
        for (kind, len) in lens {
            volume.regions.push(Region { kind, copy, device, offset, len, void: false });
            offset += len;
        }
    }
    volume.verify().expect("the volume keeps all rules");
    volume
}

fn device(id: u8, class: DeviceClass) -> DeviceEntry {
    DeviceEntry {
        uuid: Uuid([id; 16]),
        size: GIB * 2,
        class,
        model: "x25-m".to_owned(),
        slots: 8000,
        first_slot: 1 + u32::from(id) * 8000,
        slots_offset: MIB,
        state: DeviceState::Active,
        role: Role::DATA | Role::METADATA,
        layout: Layout::Head,
        in_step: 3,
        fingerprint: Fingerprint::default(),
    }
}
