//! What lies on devices: superblock, journal batch, map page.

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, GIB, KIB, MIB};
use braid_format::journal::{Extra, Record};
use braid_format::map_page::Entry;
use braid_format::superblock::{self, DeviceEntry, Features, Superblock};
use braid_format::{SlotNumber, Uuid, journal, map_page};

const VOLUME: Uuid = Uuid([7; 16]);

/// A superblock that is believed comes back as it was after it is written again.
pub fn superblock(bytes: &[u8]) {
    let mut block = padded(bytes, superblock::SIZE);
    let _ = Superblock::decode(&block);
    block[..8].copy_from_slice(b"BRAIDVOL");
    let crc = crc32c::crc32c(&block[12..]);
    block[8..12].copy_from_slice(&crc.to_le_bytes());
    if let Ok(found) = Superblock::decode(&block) {
        assert!(found.this_entry().size >= Bytes(1), "a device that is believed has a size");
        assert_eq!(Superblock::decode(&found.encode()), Ok(found));
    }
}

pub fn superblocks() -> Vec<Vec<u8>> {
    let device = |i: u8, class, first_slot| DeviceEntry {
        uuid: Uuid([i; 16]),
        size: GIB,
        class,
        model: "x25-m".to_owned(),
        slots: 8000,
        first_slot,
        slots_offset: MIB * 2,
        journal: (i == 0).then_some((KIB * 32, MIB)),
        map: [(i == 0).then_some(KIB * 32 + MIB), (i == 1).then_some(KIB * 32)],
    };
    let one = Superblock {
        sequence: 7,
        generation: 3,
        features: Features::default(),
        volume: VOLUME,
        name: "vault".to_owned(),
        volume_size: GIB,
        extent_size: KIB * 128,
        block_size: KIB * 4,
        copies: 1,
        this_device: DeviceId(1),
        metadata_device: DeviceId(0),
        second_metadata_device: DeviceId(1),
        policy: "wardrop,period=2s".to_owned(),
        devices: vec![device(0, DeviceClass::Ssd, 1), device(1, DeviceClass::Hdd, 8001)],
    };
    let two = Superblock { copies: 2, ..one.clone() };
    [one, two].iter().map(Superblock::encode).collect()
}

/// A batch that is believed lies within its bytes, and its records come back as they were.
pub fn journal(bytes: &[u8]) {
    let _ = journal::verify(bytes, VOLUME);
    let mut batch = bytes.to_vec();
    if batch.len() < 32 {
        return;
    }
    batch[..8].copy_from_slice(b"BRAIDJRN");
    let len = u32::from_le_bytes([batch[12], batch[13], batch[14], batch[15]]) as usize;
    let len = if (32..=batch.len()).contains(&len) { len } else { batch.len() };
    let len = len - (len - 32) % 20;
    batch[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&VOLUME.0), &batch[12..len]);
    batch[8..12].copy_from_slice(&crc.to_le_bytes());
    let header = journal::verify(&batch, VOLUME).expect("a batch whose checksum fits");
    assert!(header.len <= Bytes::of_len(batch.len()));
    let Ok(records) = journal::records(&batch, &header).collect::<Result<Vec<_>, _>>() else { return };
    let mut again = vec![0; journal::room(records.len()).as_usize()];
    journal::encode(&mut again, VOLUME, header.sequence, header.tail, &records);
    let header = journal::verify(&again, VOLUME).expect("a batch that was just encoded");
    let back: Result<Vec<_>, _> = journal::records(&again, &header).collect();
    assert_eq!(back.as_ref(), Ok(&records));
}

pub fn journals() -> Vec<Vec<u8>> {
    let records = |count: u32| -> Vec<Record> {
        let record = |i: u32| match i % 3 {
            0 => Record::Extent(ExtentId(i), entry(i)),
            1 => Record::Extra(BlockId(i.into()), Some(Extra { slot: SlotNumber(i), place: 3, dirty: true })),
            _ => Record::Extra(BlockId(i.into()), None),
        };
        (0..count).map(record).collect()
    };
    let batch = |count: u32| {
        let mut bytes = vec![0; journal::room(count as usize).as_usize()];
        journal::encode(&mut bytes, VOLUME, 5, 2, &records(count));
        bytes
    };
    [0, 1, 3, 50].map(batch).into()
}

/// A page that is believed names no extent beyond its entries.
pub fn map_page(bytes: &[u8]) {
    for copies in [1, 2] {
        let mut page = padded(bytes, map_page::SIZE);
        let number = u32::from_le_bytes([page[4], page[5], page[6], page[7]]);
        let _ = map_page::decode(&page, VOLUME, number, copies, |_, _| ());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&VOLUME.0), &page[4..]);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        let mut entries = vec![Entry::default(); map_page::extents_per_page(copies) as usize];
        let decoded = map_page::decode(&page, VOLUME, number, copies, |place, entry| {
            entries[place as usize] = entry;
        });
        decoded.expect("a page whose checksum and number fit");
        let mut again = padded(&[], map_page::SIZE);
        let sequence = u64::from_le_bytes(std::array::from_fn(|i| page[8 + i]));
        map_page::encode(&mut again, VOLUME, number, sequence, copies, entries.iter().copied());
        let used = 16 + entries.len() * if copies == 1 { 6 } else { 12 };
        assert_eq!(again[4..used], page[4..used], "entries come back as they were");
    }
}

pub fn map_pages() -> Vec<Vec<u8>> {
    let page = |copies| {
        let mut page = padded(&[], map_page::SIZE);
        let count = map_page::extents_per_page(copies);
        map_page::encode(&mut page, VOLUME, 9, 44, copies, (0..count).map(entry));
        page
    };
    vec![page(1), page(2)]
}

fn entry(i: u32) -> Entry {
    Entry { home: SlotNumber(i * 3), valid: i as u16, second: SlotNumber(i * 5), behind: 1 }
}

fn padded(bytes: &[u8], len: Bytes) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(len.as_usize(), 0);
    padded
}
