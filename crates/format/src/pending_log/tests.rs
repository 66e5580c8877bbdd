use super::*;
use crate::SlotNumber;
use crate::journal::Extra;
use crate::map_page::Entry;
use braid_base::{BlockId, ExtentId, Rng};

const HEAD_OF_TEST: Head = Head {
    volume: Uuid([7; 16]),
    life: [3; 16],
    epoch: 5,
    owner: Some(u64::MAX - 4),
    capacity: 100,
    reader: Some(6),
    reader_owners: [77, 1 << 47],
    first: 250,
    end: 330,
    newest: 17,
    loss: Loss::Owed,
};

fn records() -> [Record; 4] {
    let entry = Entry { home: SlotNumber(9), valid: 0xf00f, second: SlotNumber(11), partly_lost: false };
    let extra = Extra { slot: SlotNumber(u32::MAX - 1), place: 16_383, dirty: true };
    [
        Record::Extent(ExtentId(3), entry),
        Record::Extent(ExtentId(3), Entry::default()),
        Record::Extra(BlockId(1 << 45), Some(extra)),
        Record::Extra(BlockId(0), None),
    ]
}

#[test]
fn log_head_round_trips() {
    let bytes = encode_head(&HEAD_OF_TEST);
    assert_eq!(decode_head(&bytes, len(100)), Ok(HEAD_OF_TEST));
    assert_eq!(decode_head(&bytes, len(1 << 40)), Ok(HEAD_OF_TEST));
}

/// A daemon died during an upgrade, and the new version refused the old version's log.
#[test]
fn a_head_of_the_layout_without_owners_is_read() {
    let head = Head { owner: None, reader_owners: [0; 2], ..HEAD_OF_TEST };
    let mut bytes = encode_head(&head);
    assert_eq!((&bytes[..8], &bytes[104..]), (&b"BRAIDPL1"[..], &[0; 24][..]));
    assert_eq!(decode_head(&bytes, len(100)), Ok(head));
    // The checksum as the older version computed it.
    assert_eq!(bytes[8..12], checksum(head.volume, &bytes[12..64]).to_le_bytes());
    assert!(head.knows(1) && head.knows(0));
    bytes[127] = 1;
    assert_eq!(decode_head(&bytes, len(100)), Err(Invalid::Checksum));
}

/// A copy of the volume, opened equally often, accepted the log of the original.
#[test]
fn log_recognises_own_opening_and_openings_of_reader() {
    let known = [u64::MAX - 4, 77, (9 << 48) + 77, 1 << 47];
    assert_eq!(known.map(|owner| HEAD_OF_TEST.knows(owner)), [true; 4]);
    assert_eq!([0, 78, u64::MAX - 5].map(|owner| HEAD_OF_TEST.knows(owner)), [false; 3]);
    let unread = Head { reader: None, ..HEAD_OF_TEST };
    assert_eq!(known.map(|owner| unread.knows(owner)), [true, false, false, false]);
    assert!(!Head { reader_owners: [0; 2], ..unread }.knows(0), "no reader is none without an owner");
    let mut bytes = encode_head(&HEAD_OF_TEST);
    bytes[121] ^= 1;
    assert_eq!(decode_head(&bytes, len(100)), Err(Invalid::Checksum));
}

#[test]
fn log_head_with_impossible_capacity_or_end_is_rejected() {
    let of = |head: Head| decode_head(&encode_head(&head), len(100));
    assert!(of(Head { capacity: 101, ..HEAD_OF_TEST }).is_err(), "the log was cut short");
    assert!(of(Head { capacity: 0, ..HEAD_OF_TEST }).is_err());
    assert!(of(Head { end: 351, ..HEAD_OF_TEST }).is_err());
    assert!(of(Head { end: 249, ..HEAD_OF_TEST }).is_err());
    let huge = Head { capacity: MOST_ENTRIES + 1, ..HEAD_OF_TEST };
    assert!(decode_head(&encode_head(&huge), Bytes(1 << 50)).is_err());
}

/// A daemon of another version left a log of another layout, and no message told the administrator.
#[test]
fn unknown_log_layout_is_distinguished_from_absent_log() {
    let mut bytes = encode_head(&HEAD_OF_TEST);
    bytes[7] = b'3';
    assert!(matches!(decode_head(&bytes, len(100)), Err(Invalid::Feature(_))));
    bytes[0] = b'X';
    assert!(matches!(decode_head(&bytes, len(100)), Err(Invalid::Value(_))));
    bytes[..8].fill(0);
    assert_eq!(decode_head(&bytes, len(100)), Err(Invalid::Absent));
}

/// The number of the first entry was damaged, and a part of the log was skipped silently.
#[test]
fn damaged_log_position_is_rejected() {
    for at in [READER, FIRST, END, NEWEST, LOSS, READER_OWNER, FOUND_OWNER] {
        for bit in 0..64 {
            let mut bytes = encode_head(&HEAD_OF_TEST);
            bytes[at.as_usize() + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_head(&bytes, len(100)), Err(Invalid::Checksum), "bit {bit} at {at}");
        }
    }
    let seal = Seal::new(Uuid([7; 16]), 5, Some(3));
    let word = seal.position(FIRST, 7);
    assert_eq!((seal.value(FIRST, word), seal.value(END, word)), (Ok(7), Err(Invalid::Checksum)));
    assert_eq!(seal.value(END, seal.position(END, u64::MAX)), Ok(MOST_POSITION - 1));
}

#[test]
fn entry_requires_same_number_opening_and_volume() {
    let seal = Seal::new(Uuid([7; 16]), 5, Some(3));
    for record in records() {
        let bytes = seal.encode(40, &record);
        assert_eq!(seal.decode(40, &bytes), Ok(record));
        assert_eq!(seal.decode(140, &bytes), Err(Invalid::Checksum), "the lap before");
        for (volume, epoch, owner) in [(7, 4, Some(3)), (8, 5, Some(3)), (7, 5, Some(4)), (7, 5, None)] {
            let other = Seal::new(Uuid([volume; 16]), epoch, owner);
            assert_eq!(other.decode(40, &bytes), Err(Invalid::Checksum));
        }
    }
}

/// Arbitrary bytes in the file give an error or a value, but no panic.
#[test]
fn no_bytes_are_too_strange() {
    let mut rng = Rng::new(1);
    let seal = HEAD_OF_TEST.seal();
    for _ in 0..20_000 {
        let mut head = encode_head(&HEAD_OF_TEST);
        head[rng.below(HEAD_USED as u64) as usize] ^= 1 << rng.below(8);
        let _ = decode_head(&head, Bytes(rng.below(1 << 20)));
        rng.fill(&mut head);
        assert!(decode_head(&head, LARGEST).is_err());
        let mut entry = seal.encode(1, &records()[rng.below(4) as usize]);
        entry[rng.below(ENTRY.0) as usize] ^= 1 << rng.below(8);
        assert_eq!(seal.decode(1, &entry), Err(Invalid::Checksum));
        // A sealed record with wrong content.
        rng.fill(&mut entry);
        let crc = seal.checksum(1, &entry).to_le_bytes();
        entry[..RECORD].copy_from_slice(&crc);
        let _ = seal.decode(1, &entry);
    }
}
