//! Makes the checksum of a damaged structure fit: otherwise only the checksum would be tested.

use super::VOLUME;
use braid_base::Bytes;
use braid_format::pending_log::{
    END, ENTRY, FIRST, FOUND_OWNER, HEAD_USED, LOSS, MAGIC, MAGIC_WITHOUT_OWNER, MOST_POSITION, NEWEST,
    READER, READER_OWNER, Seal, decode_head, place,
};
use braid_format::superblock::RegionKind;

/// A superblock: magic and checksum.
pub fn superblock(bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(b"BRAIDVOL");
    let crc = crc32c::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// A device table: magic and checksum.
pub fn table(bytes: &mut [u8]) {
    with_length(bytes, b"BRAIDTBL", 48);
}

/// A journal batch: magic and checksum.
pub fn batch(bytes: &mut [u8]) {
    with_length(bytes, b"BRAIDJN2", 48);
}

/// A policy's state: magic and checksum.
pub fn policy_state(bytes: &mut [u8]) {
    with_length(bytes, b"BRAIDPOL", 96);
}

/// A page of the proof: magic, volume and checksum.
pub fn proof(page: &mut [u8]) {
    page[..8].copy_from_slice(b"BRAIDPRF");
    page[16..32].copy_from_slice(&VOLUME.0);
    let crc = of_volume(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// A page of the witness: magic, volume and checksum.
pub fn witness(page: &mut [u8]) {
    page[..8].copy_from_slice(b"BRAIDWIT");
    page[16..32].copy_from_slice(&VOLUME.0);
    let crc = of_volume(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Page 1 of a list of recent entries: magic, page and checksum.
pub fn recent_entries(page: &mut [u8]) {
    page[..8].copy_from_slice(b"BRAIDREC");
    page[12..16].copy_from_slice(&1u32.to_le_bytes());
    let crc = of_volume(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// A page of the journal of epochs: magic and checksum.
pub fn epoch_page(page: &mut [u8], magic: &[u8; 8]) {
    page[..8].copy_from_slice(magic);
    let crc = of_volume(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// A table of `spans` dirty spans: magic, number of spans and checksum.
pub fn dirty_spans(half: &mut [u8], spans: u32) {
    half[..8].copy_from_slice(b"BRAIDDSP");
    half[12..16].copy_from_slice(&spans.to_le_bytes());
    let crc = of_volume(&half[12..32 + (spans as usize).div_ceil(8)]);
    half[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Fingerprint of an adopted disk: magic, possible numbers of entries, and checksum.
pub fn sums(half: &mut [u8]) {
    half[..8].copy_from_slice(b"BRAIDSUM");
    let number = |bytes: &[u8], most: u16| u16::from_le_bytes([bytes[0], bytes[1]]).min(most);
    let (samples, marks) = (number(&half[12..], 256), number(&half[14..], 100));
    half[12..14].copy_from_slice(&samples.to_le_bytes());
    half[14..16].copy_from_slice(&marks.to_le_bytes());
    let end = 32 + usize::from(samples) * 16 + usize::from(marks) * 32;
    let crc = of_volume(&half[12..end]);
    half[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// A pending log, at least as long as its head: magic, volume, and checksums of the head, of the positions,
/// and of the entries between the positions. With the magic of a log without owners, the log has no owners.
pub fn pending_log(log: &mut [u8]) {
    let has_owners = log[..8] != MAGIC_WITHOUT_OWNER.to_le_bytes();
    if has_owners {
        log[..8].copy_from_slice(&MAGIC.to_le_bytes());
    } else {
        log[READER_OWNER.as_usize()..HEAD_USED].fill(0);
    }
    log[12..32].copy_from_slice(&[&[0; 4], &VOLUME.0[..]].concat());
    let number = |log: &[u8], at: usize| u64::from_le_bytes(std::array::from_fn(|i| log[at + i]));
    let (epoch, owner) = (number(log, 48), has_owners.then(|| number(log, 120)));
    let owned = |crc: u32| owner.map_or(crc, |owner| crc32c::crc32c_append(crc, &owner.to_le_bytes()));
    let crc = owned(of_volume(&log[12..64]));
    log[8..12].copy_from_slice(&crc.to_le_bytes());
    let seal = Seal::new(VOLUME, epoch, owner);
    let of_reader = [READER_OWNER, FOUND_OWNER].into_iter().filter(|_| has_owners);
    for at in [READER, FIRST, END, NEWEST, LOSS].into_iter().chain(of_reader) {
        let value = number(log, at.as_usize()) & (MOST_POSITION - 1);
        log[at.as_usize()..][..8].copy_from_slice(&seal.position(at, value).to_le_bytes());
    }
    let Some(Ok(bytes)) = log.get(..HEAD_USED).map(TryInto::try_into) else { return };
    let Ok(head) = decode_head(bytes, Bytes::of_len(log.len())) else { return };
    let seeded = owned(of_volume(&epoch.to_le_bytes()));
    for number in head.first..head.end {
        let entry = &mut log[place(number, head.capacity).as_usize()..][..ENTRY.as_usize()];
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(seeded, &number.to_le_bytes()), &entry[4..]);
        entry[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A checkpointed page of a region.
pub fn page(page: &mut [u8], kind: RegionKind) {
    let seeded = of_volume(&[kind as u8]);
    let crc = crc32c::crc32c_append(seeded, &page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// A structure with its length at byte 12. An impossible length becomes the length of all bytes.
fn with_length(bytes: &mut [u8], magic: &[u8; 8], least: usize) {
    if bytes.len() < least {
        return;
    }
    bytes[..8].copy_from_slice(magic);
    let len = u32::from_le_bytes(std::array::from_fn(|i| bytes[12 + i])) as usize;
    let len = if (least..=bytes.len()).contains(&len) { len } else { bytes.len() };
    bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = of_volume(&bytes[12..len]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

fn of_volume(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&VOLUME.0), bytes)
}
