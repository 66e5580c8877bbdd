//! Pending log, left in memory by a daemon that died.

use super::{VOLUME, padded, seal};
use braid_base::{BlockId, Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_format::journal::{Extra, Record};
use braid_format::map_page::Entry;
use braid_format::pending_log::{
    HEAD, HEAD_USED, Head, Loss, MOST_ENTRIES, decode_head, encode_head, len, place, records,
};

/// An accepted log has a bounded number of entries, and survives encoding unchanged.
pub fn log(bytes: &[u8]) {
    let mut log = padded(bytes, HEAD.max(Bytes::of_len(bytes.len())));
    let _ = read(&log);
    seal::pending_log(&mut log);
    let Some((head, changes)) = read(&log) else { return };
    assert!(head.end - head.first <= head.capacity && head.capacity <= MOST_ENTRIES);
    assert!(len(head.capacity) <= Bytes::of_len(log.len()));
    assert_eq!(encode_head(&head), log[..HEAD_USED]);
    let Some(changes) = changes else { return };
    let entries = head.seal();
    for (number, record) in (head.first..head.end).zip(changes) {
        assert_eq!(entries.decode(number, &entries.encode(number, &record)), Ok(record));
    }
}

/// Reads a log as an opening does: the head, and the records if all entries are sound.
fn read(log: &[u8]) -> Option<(Head, Option<Vec<Record>>)> {
    let head = decode_head(log.first_chunk()?, Bytes::of_len(log.len())).ok()?;
    let load = |at: Bytes, into: &mut [u8]| into.copy_from_slice(&log[at.as_usize()..][..into.len()]);
    Some((head, records(&head, load).ok()))
}

pub fn logs() -> Vec<Vec<u8>> {
    let log = |owner: Option<u64>, capacity: u64, first: u64, end: u64, loss: Loss| {
        let mut bytes = vec![0; len(capacity).as_usize()];
        let (volume, life, reader) = (VOLUME, [3; 16], (first > 0).then_some(6));
        let reader_owners = owner.map_or([0; 2], |owner| [owner + 1, owner]);
        let head = Head {
            volume,
            life,
            epoch: 5,
            owner,
            capacity,
            reader,
            reader_owners,
            first,
            end,
            newest: 9,
            loss,
        };
        bytes[..HEAD_USED].copy_from_slice(&encode_head(&head));
        for number in first..end {
            let entry = head.seal().encode(number, &record(number as u32));
            bytes[place(number, capacity).as_usize()..][..entry.len()].copy_from_slice(&entry);
        }
        bytes
    };
    vec![
        log(Some(3), 1, 0, 0, Loss::None),
        log(Some(3), 6, 0, 6, Loss::Owed),
        log(None, 10, 7, 12, Loss::None),
        log(Some(3), 50, 1_000, 1_040, Loss::Possible),
    ]
}

/// A record of each kind of a log, in turn.
fn record(i: u32) -> Record {
    let (home, second) = (SlotNumber(i * 3), SlotNumber(i * 5));
    match i % 4 {
        0 => Record::Extent(ExtentId(i), Entry { home, valid: i as u16, second, partly_lost: false }),
        1 => Record::Extent(ExtentId(i), Entry::default()),
        2 => Record::Extra(
            BlockId(u64::from(i)),
            Some(Extra { slot: home, place: i as u16 % 64, dirty: true }),
        ),
        _ => Record::Extra(BlockId(u64::from(i)), None),
    }
}
