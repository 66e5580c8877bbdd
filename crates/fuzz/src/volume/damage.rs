//! Changes of a volume's structures: each structure is made again with all of its changes, sealed, and
//! written to its place.

use crate::disk::{VOLUME, seal};
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_format::intent_page::{self, Difference};
use braid_format::journal::{self, Batch, Extra, Record};
use braid_format::layout::superblock_offsets;
use braid_format::map_page::{self, Entry};
use braid_format::proof::{self, Proof};
use braid_format::superblock::{DeviceState, RegionKind, Superblock};
use braid_format::{SlotNumber, SpanId};
use braid_sim::Disk;

/// Length of a change, in bytes.
const CHANGE: usize = 6;
/// Largest number of applied changes.
const MOST_CHANGES: usize = 16;
/// Number of the first of two batches after all earlier batches.
const SEQUENCE: u64 = 1 << 20;

/// A structure to change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Structure {
    Superblock,
    Table,
    /// Newest batch but one: the newest batch lists the extents of this batch.
    Batch,
    NewestBatch,
    MapPage,
    IntentPage,
    Proof,
}

use Structure::{Batch as FirstBatch, IntentPage, MapPage, NewestBatch, Superblock as Block, Table};

const STRUCTURES: [Structure; 7] =
    [Block, Table, FirstBatch, NewestBatch, MapPage, IntentPage, Structure::Proof];

/// Choices of a change's devices: each alone, or all.
const TARGETS: usize = 4;
const ALL: usize = 3;

/// Applies the changes to the disks of a closed volume.
pub fn apply(disks: &[Disk], superblock: &Superblock, changes: &[u8]) {
    let changes: Vec<&[u8]> = changes.chunks_exact(CHANGE).take(MOST_CHANGES).collect();
    for (i, structure) in STRUCTURES.into_iter().enumerate() {
        let here = |change: &&&[u8]| usize::from(change[0]) % STRUCTURES.len() == i;
        if !changes.iter().any(|change| here(&change)) {
            continue;
        }
        for (device, disk) in disks.iter().enumerate() {
            let target = |change: &&&[u8]| {
                let target = usize::from(change[0]) / STRUCTURES.len() % TARGETS;
                target == device || target == ALL
            };
            let mut mine = changes.iter().filter(here).filter(target).peekable();
            // The new batches of a closed volume are on all devices, changed or not.
            if mine.peek().is_some() || matches!(structure, FirstBatch | NewestBatch) {
                let mut bytes = structure.make(superblock, device);
                mine.for_each(|change| put(&mut bytes, change));
                structure.seal(&mut bytes);
                structure.places(superblock, device).into_iter().for_each(|at| disk.poke(at, &bytes));
            }
        }
    }
}

impl Structure {
    /// Makes the valid structure of a device.
    fn make(self, superblock: &Superblock, device: usize) -> Vec<u8> {
        match self {
            Block => superblock.encode(DeviceId(device as u16)),
            Table => superblock.encode_table(),
            FirstBatch => batch(superblock, SEQUENCE, None, &records(superblock.copies)),
            NewestBatch => {
                batch(superblock, SEQUENCE + 1, Some(&[ExtentId(9), ExtentId(10)]), &[Record::Epoch(1)])
            }
            MapPage => a_map_page(superblock),
            IntentPage => an_intent_page(),
            Structure::Proof => {
                let extents = Some(vec![ExtentId(2), ExtentId(9)]);
                let proof =
                    Proof { epoch: superblock.epoch, sequence: 2 * SEQUENCE, extents, witnessed: None };
                proof::encode(VOLUME, &proof).to_vec()
            }
        }
    }

    fn seal(self, bytes: &mut [u8]) {
        match self {
            Block => seal::superblock(bytes),
            Table => seal::table(bytes),
            FirstBatch | NewestBatch => seal::batch(bytes),
            MapPage => seal::page(bytes, RegionKind::Map),
            IntentPage => seal::page(bytes, RegionKind::Intents),
            Structure::Proof => seal::proof(bytes),
        }
    }

    /// Offsets of the structure on a device.
    fn places(self, superblock: &Superblock, device: usize) -> Vec<Bytes> {
        let id = DeviceId(device as u16);
        let region = |kind: RegionKind, at: Bytes| {
            let regions = superblock.regions.iter().filter(move |r| (r.kind, r.device) == (kind, id));
            regions.map(|region| region.offset + at).collect()
        };
        match self {
            Block => {
                let entry = &superblock.devices[device];
                superblock_offsets(entry.size, entry.layout)
            }
            Table => {
                let tables = superblock.tables.iter().filter(|table| table.device == id);
                tables.map(|table| table.half(superblock.sequence)).collect()
            }
            FirstBatch => region(RegionKind::Journal, journal::PAGE * 10),
            NewestBatch => region(RegionKind::Journal, journal::PAGE * 11),
            MapPage => region(RegionKind::Map, Bytes::ZERO),
            IntentPage => region(RegionKind::Intents, Bytes::ZERO),
            Structure::Proof => region(RegionKind::Proof, Bytes::ZERO),
        }
    }
}

/// A record of each kind.
fn records(copies: u8) -> Vec<Record> {
    let extra = Extra { slot: SlotNumber(90), place: 2, dirty: true };
    let second = if copies > 1 { SlotNumber(200) } else { SlotNumber::NONE };
    vec![
        Record::Extent(ExtentId(9), Entry { home: SlotNumber(80), valid: 3, second, partly_lost: false }),
        Record::Extra(BlockId(72), Some(extra)),
        Record::Extra(BlockId(10), None),
        Record::Intent(SpanId(9), Difference::Dirty),
        Record::Intent(SpanId(3), Difference::Behind),
        Record::Device(DeviceId(1), DeviceState::Active, 1),
        Record::Epoch(1),
    ]
}

fn batch(
    superblock: &Superblock,
    sequence: u64,
    previous: Option<&[ExtentId]>,
    records: &[Record],
) -> Vec<u8> {
    let mut bytes = vec![0; journal::room(records.len()).as_usize()];
    let batch = Batch { sequence, tail: SEQUENCE, epoch: superblock.epoch, previous, records };
    journal::encode(&mut bytes, VOLUME, &batch);
    bytes.truncate(256);
    bytes
}

fn a_map_page(superblock: &Superblock) -> Vec<u8> {
    let mut page = vec![0; map_page::SIZE.as_usize()];
    let second = |i: u32| if superblock.copies > 1 { SlotNumber(210 + i) } else { SlotNumber::NONE };
    let entry =
        |i: u32| Entry { home: SlotNumber(70 + i), valid: 0xff, second: second(i), partly_lost: false };
    map_page::encode(&mut page, VOLUME, 0, 1, superblock.copies, (0..4).map(entry));
    page
}

fn an_intent_page() -> Vec<u8> {
    let mut page = vec![0; intent_page::SIZE.as_usize()];
    intent_page::encode(&mut page, VOLUME, 0, SEQUENCE - 1, |span| match span.0 {
        1 => Difference::Dirty,
        2 => Difference::Behind,
        _ => Difference::None,
    });
    page
}

/// Applies a change: writes a number of one, two, four or eight bytes. The number is a small number, a single
/// bit, a number near the largest, or a multiple of 4096.
fn put(bytes: &mut [u8], change: &[u8]) {
    let value = u64::from(change[4]) | u64::from(change[5]) << 8;
    let number = match change[3] >> 2 & 3 {
        0 => value,
        1 => 1 << (value % 64),
        2 => u64::MAX - value,
        _ => value << 12,
    };
    let width = 1 << (change[3] & 3);
    let at = (usize::from(change[1]) | usize::from(change[2]) << 8) % (bytes.len() - width);
    bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
}

/// Inputs. Some change single fields of each structure on all devices, with one kind of number after the
/// other. Some change many fields at once, and some change nothing.
pub fn damages() -> Vec<Vec<u8>> {
    let fields: [(u8, Vec<u16>); 7] = [
        (0, (16..160).step_by(4).chain((1280..1344).step_by(4)).collect()),
        (1, (12..48).chain(48..48 + 3 * 128 + 8 * 32).step_by(4).collect()),
        (2, (12..160).step_by(2).collect()),
        (3, (12..64).step_by(2).collect()),
        (4, (4..56).step_by(2).collect()),
        (5, (4..20).step_by(2).collect()),
        (6, (32..72).step_by(2).collect()),
    ];
    let all = |structure: u8| structure + (ALL * STRUCTURES.len()) as u8;
    let changes: Vec<[u8; CHANGE]> = fields
        .into_iter()
        .flat_map(|(structure, places)| places.into_iter().map(move |at| (all(structure), at.to_le_bytes())))
        .zip([0u8, 2, 3, 10, 11].into_iter().cycle())
        .map(|((structure, [low, high]), kind)| [structure, low, high, kind, 1, 0])
        .collect();
    let single = changes.iter().enumerate().map(|(i, change)| [&[i as u8 & 1], &change[..]].concat());
    let many = (0..32).map(|first| {
        let spread = changes.iter().skip(first).step_by(32).take(MOST_CHANGES);
        [vec![first as u8 & 1], spread.flatten().copied().collect()].concat()
    });
    let unchanged = [0u8, 1, 6, 7, 25].map(|how| vec![how]);
    single.chain(many).chain(unchanged).chain(FAILED.iter().map(|input| input.to_vec())).collect()
}

/// Inputs that once failed.
const FAILED: &[&[u8]] = &[
    // A batch with a tail 2^32 batches earlier: recovery looked for all batches between.
    &[1, 23, 16, 0, 10, 1, 0],
    // A dirty cached copy of a block without a home for write-back: the extent has no home.
    &[0, 23, 52, 0, 0, 1, 0],
    // A second copy without a home.
    &[1, 23, 56, 0, 2, 1, 0],
    // Batches out of the order of their numbers: the ring had no room for the end of a checkpoint.
    &[
        72, 72, 109, 5, 17, 115, 0, 198, 16, 1, 80, 141, 0, 47, 134, 0, 192, 25, 0, 43, 44, 0, 156, 149, 0,
        240, 35, 0, 61, 41, 179, 39, 45, 0, 247, 220, 37, 150, 89, 0, 179, 134, 0,
    ],
    // Pages with a sequence near the largest number: the journal continued from this number.
    &[0, 25, 8, 0, 11, 1, 0],
    &[1, 26, 8, 0, 11, 1, 0],
];
