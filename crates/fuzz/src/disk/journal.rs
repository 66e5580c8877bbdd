//! Journal batches with their records, the proof, and the journal of epochs.

use super::{VOLUME, padded, seal};
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos};
use braid_format::epoch_journal::{self, LONGEST_SEGMENT, MOST_ENTRIES, Run, SegmentEntry, State, StatePage};
use braid_format::intent_page::Difference;
use braid_format::journal::{self, Batch, Extra, MOST_PREVIOUS, Record};
use braid_format::map_page::Entry;
use braid_format::proof::{self, MOST_EXTENTS, PAGES, Proof, Witnessed};
use braid_format::recent::{self, Entries, List};
use braid_format::superblock::DeviceState;
use braid_format::witness::{self, Recent, Witness};
use braid_format::{SlotNumber, SpanId};

/// An accepted batch lies within its bytes, lists a bounded number of extents, and its records survive
/// encoding unchanged.
pub fn batch(bytes: &[u8]) {
    let _ = journal::verify(bytes, VOLUME);
    let mut bytes = bytes.to_vec();
    seal::batch(&mut bytes);
    let Ok(header) = journal::verify(&bytes, VOLUME) else { return };
    assert!(header.len <= Bytes::of_len(bytes.len()));
    let previous = journal::previous(&bytes, &header);
    assert!(previous.as_ref().is_none_or(|extents| extents.len() <= MOST_PREVIOUS));
    let Ok(records) = journal::records(&bytes, &header).collect::<Result<Vec<_>, _>>() else { return };
    let mut again = vec![0; journal::room(records.len()).as_usize()];
    let (previous, records) = (previous.as_deref(), &records[..]);
    let (sequence, tail, epoch) = (header.sequence, header.tail, header.epoch);
    journal::encode(&mut again, VOLUME, &Batch { sequence, tail, epoch, previous, records });
    let header = journal::verify(&again, VOLUME).expect("a batch that was just encoded");
    assert_eq!((header.sequence, header.tail, header.epoch), (sequence, tail, epoch));
    assert_eq!(journal::previous(&again, &header).as_deref(), previous);
    let back: Result<Vec<_>, _> = journal::records(&again, &header).collect();
    assert_eq!(back.as_deref(), Ok(records));
}

pub fn batches() -> Vec<Vec<u8>> {
    let extents: Vec<ExtentId> = (0..MOST_PREVIOUS as u32).map(ExtentId).collect();
    let batch = |count: u32, previous: Option<&[ExtentId]>| {
        let records: Vec<Record> = (0..count).map(record).collect();
        let mut bytes = vec![0; journal::room(records.len()).as_usize()];
        let batch = Batch { sequence: 5, tail: 2, epoch: 9, previous, records: &records };
        let taken = journal::encode(&mut bytes, VOLUME, &batch);
        bytes.truncate(taken.as_usize());
        bytes
    };
    vec![
        batch(0, None),
        batch(1, Some(&[])),
        batch(8, Some(&extents[..3])),
        batch(50, Some(&extents)),
        batch(400, None),
    ]
}

/// A record of each kind and shape in turn.
fn record(i: u32) -> Record {
    let (home, second) = (SlotNumber(i * 3), SlotNumber(i * 5));
    match i % 8 {
        0 => Record::Extent(
            ExtentId(i),
            Entry { home, valid: i as u16, second: SlotNumber::NONE, partly_lost: false },
        ),
        1 => Record::Extent(ExtentId(i), Entry { home, valid: 0xffff, second, partly_lost: false }),
        2 => Record::Extra(BlockId(i.into()), Some(Extra { slot: home, place: 3, dirty: true })),
        3 => Record::Extra(BlockId(i.into()), None),
        4 => Record::Intent(SpanId(i), Difference::Dirty),
        5 => Record::Intent(SpanId(i), Difference::Behind),
        6 => Record::Device(DeviceId(1), DeviceState::Missing, u64::from(i)),
        _ => Record::Epoch(u64::from(i)),
    }
}

/// The newest proof of a region is one of the region's two pages, lists a bounded number of extents, and
/// survives encoding unchanged.
pub fn proof(bytes: &[u8]) {
    let mut region = padded(bytes, proof::SIZE * PAGES);
    let _ = proof::newest(&region, VOLUME);
    region.chunks_exact_mut(proof::SIZE.as_usize()).for_each(seal::proof);
    let pages = region.chunks_exact(proof::SIZE.as_usize());
    let all: Vec<Proof> = pages.filter_map(|page| proof::decode(page, VOLUME).ok()).collect();
    assert_eq!(proof::newest(&region, VOLUME).ok(), all.iter().max().cloned());
    for found in all {
        assert!(found.extents.as_ref().is_none_or(|extents| extents.len() <= MOST_EXTENTS));
        assert_eq!(proof::decode(&proof::encode(VOLUME, &found), VOLUME), Ok(found));
    }
}

pub fn proofs() -> Vec<Vec<u8>> {
    let page = |sequence: u64, extents: Option<u32>| {
        let extents = extents.map(|count| (0..count).map(ExtentId).collect());
        let alone = sequence == 77;
        let witnessed = Some(Witnessed { device: DeviceId(1), number: 9, alone }).filter(|_| sequence > 76);
        proof::encode(VOLUME, &Proof { epoch: 3, sequence, extents, witnessed })
    };
    vec![[page(76, Some(2)), page(77, None)].concat(), page(78, Some(MOST_EXTENTS as u32)).to_vec()]
}

/// An accepted witness lists a bounded number of runs in order, and survives encoding unchanged.
pub fn witness(bytes: &[u8]) {
    let mut page = padded(bytes, witness::SIZE);
    let _ = witness::decode(&page, VOLUME);
    seal::witness(&mut page);
    if let Ok(found) = witness::decode(&page, VOLUME) {
        let second = found.recent.as_ref().map_or(0, |recent| recent.runs.len());
        if found.runs.len().max(second) > witness::MOST_RUNS {
            // Only older versions wrote more runs.
            assert!(found.runs.len() <= witness::MOST_RUNS || found.left.is_none());
            return;
        }
        let recent = found.recent.iter().flat_map(|recent| witness::ranges(&recent.runs));
        let left = found.left.iter().flat_map(|left| witness::ranges(left));
        assert!(witness::ranges(&found.runs).chain(recent).chain(left).all(|range| range.start < range.end));
        assert_eq!(witness::decode(&witness::encode(VOLUME, &found), VOLUME), Ok(found));
    }
}

pub fn witnesses() -> Vec<Vec<u8>> {
    let page = |runs, recent| {
        let left = Some(vec![(3, 1), (70, 5)]);
        let witness =
            Witness { epoch: 3, number: 5, promised: 77, listed: 99, runs, contained: 60, recent, left };
        witness::encode(VOLUME, &witness).to_vec()
    };
    let recent = Recent { batch: 70, number: 4, pages: 2, runs: vec![(9, 2)] };
    vec![page(Vec::new(), None), page(vec![(4, 1), (9, 100)], Some(recent))]
}

/// An accepted page of recent entries has a bounded number of entries, and survives encoding unchanged.
pub fn recent_entries(bytes: &[u8]) {
    let list = List { epoch: 3, number: 4, batch: 70 };
    let mut page = padded(bytes, recent::SIZE);
    let _ = recent::decode(&page, VOLUME, list, 1);
    seal::recent_entries(&mut page);
    if let Ok(found) = recent::decode(&page, VOLUME, list, 1) {
        let mut again = vec![0; page.len()];
        match &found {
            Entries::Extents(entries) => recent::encode(&mut again, VOLUME, list, 1, entries),
            Entries::Blocks(blocks) => recent::encode_blocks(&mut again, VOLUME, list, 1, blocks),
        }
        assert_eq!(recent::decode(&again, VOLUME, list, 1), Ok(found));
    }
}

pub fn recent_lists() -> Vec<Vec<u8>> {
    let page = |count: u32| {
        let entry = |i| Entry { home: SlotNumber(i * 3), valid: i as u16, ..Entry::default() };
        let entries: Vec<(ExtentId, Entry)> = (0..count).map(|i| (ExtentId(i * 2), entry(i))).collect();
        let mut page = vec![0; recent::SIZE.as_usize()];
        recent::encode(&mut page, VOLUME, List { epoch: 3, number: 4, batch: 70 }, 1, &entries);
        page
    };
    let mut blocks = vec![0; recent::SIZE.as_usize()];
    let extra = Extra { slot: SlotNumber(9), place: 3, dirty: true };
    let some = [(BlockId(7), Some(extra)), (BlockId(8), None)];
    recent::encode_blocks(&mut blocks, VOLUME, List { epoch: 3, number: 4, batch: 70 }, 1, &some);
    vec![page(0), page(2), page(recent::PER_PAGE as u32), blocks]
}

/// A state page survives encoding unchanged. An index page names ranges of the volume, as many as fit,
/// shorter than a segment in total.
pub fn epoch(bytes: &[u8]) {
    let size = Bytes(1 << 30);
    let mut page = padded(bytes, epoch_journal::PAGE);
    let _ = epoch_journal::decode_state(&page, VOLUME);
    seal::epoch_page(&mut page, b"BRAIDEPS");
    if let Ok(found) = epoch_journal::decode_state(&page, VOLUME) {
        let again = epoch_journal::encode_state(VOLUME, &found, &[]);
        assert_eq!(epoch_journal::decode_state(&again, VOLUME), Ok(found));
    }
    seal::epoch_page(&mut page, b"BRAIDEPI");
    let number = u64::from_le_bytes(page[16..24].try_into().expect("eight bytes"));
    let Ok(index) = epoch_journal::decode_index(&page, VOLUME, number, size) else { return };
    assert!(index.entries.len() <= MOST_ENTRIES && index.stored() < LONGEST_SEGMENT);
    assert!(index.entries.iter().all(|entry| entry.range.start < entry.range.end && entry.range.end <= size));
    let again = epoch_journal::encode_index(VOLUME, number, &index.entries, &[]);
    let again =
        epoch_journal::decode_index(&again, VOLUME, number, size).expect("an index that was just encoded");
    assert_eq!(again.entries, index.entries);
}

pub fn epochs() -> Vec<Vec<u8>> {
    let state = |state, segments| {
        let run = Run { at: epoch_journal::PAGE * 5, first: 9, segments };
        let page = StatePage { sequence: 7, epoch: 3, state, run, ended: Nanos(1) };
        epoch_journal::encode_state(VOLUME, &page, &[]).to_vec()
    };
    let index = |count: u64| {
        let entry = |i: u64| SegmentEntry {
            range: Bytes(i * 8192)..Bytes(i * 8192 + 4096),
            zeros: i.is_multiple_of(3),
        };
        let entries: Vec<SegmentEntry> = (0..count).map(entry).collect();
        epoch_journal::encode_index(VOLUME, 4, &entries, &[5; 100]).to_vec()
    };
    let states = [state(State::Void, 0), state(State::Image, 9), state(State::Recovered, 9)];
    states.into_iter().chain([index(0), index(3), index(MOST_ENTRIES as u64)]).collect()
}
