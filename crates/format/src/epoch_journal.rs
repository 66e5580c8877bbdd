//! The journal of epochs: makes an image disk, by itself, the volume as of a past instant.
//!
//! ```text
//! 0     state page 0     written alternately with page 1: the valid one with the highest sequence counts
//! 4096  state page 1
//! 8192  ring of segments, one behind the other, each in whole pages: an index page, then the bytes that it speaks of;
//!       where less than 1 MiB is left up to the end of the region, the next one lies at the beginning of the ring
//!
//! state page                                          index page
//! 0   8  magic "BRAIDEPS"                             0   8  magic "BRAIDEPI"
//! 8   4  CRC-32C of the volume's UUID, bytes 12..4096 8   4  CRC-32C of the volume's UUID, bytes 12..4096
//! 12  4  state: 1 void, 2 image, 3 being adopted,     12  4  entries
//!        4 recovered
//! 16  8  sequence of this page                        16  8  number of the segment: one more than that before it
//! 24  8  epoch                                        24  4  CRC-32C of the volume's UUID and the bytes
//! 32  8  byte of the ring at which the run begins     28  16 n entries: byte of the volume (8), length (4), 1 if zeros (4)
//! 40  8  number of its first segment
//! 48  4  its segments
//! 52  8  when the epoch ended, in ns since 1970; 0: not known
//! 60  4000 if recovered: what has been applied, a bit each
//! ```
//!
//! - Void: the disk alone is not a state of the volume.
//! - Image: the disk is the volume at the end of the epoch, after the run's segments are applied in order.
//!   Applying the segments again is harmless.
//! - Being adopted: as Image, while the map is written that has all homes on the disk.
//! - Recovered: the map counts, and guests have written since. Only the extents of the run without a set bit
//!   remain to be applied.
//!
//! Bit `i` (of byte `i / 8`, the lowest first) stands for extents `i · n` to `(i + 1) · n - 1` of the run's
//! extents, ordered by number. `n` is the smallest number for which the bits suffice.

use crate::checksum::checksum;
use crate::{Invalid, Uuid, count};
use braid_base::{Bytes, Nanos};
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a state page and of an index page.
pub const PAGE: Bytes = Bytes(4096);
/// State pages in the region.
pub const STATE_PAGES: u64 = 2;
/// Start of the first segment.
pub const SEGMENTS: Bytes = Bytes(4096 * STATE_PAGES);
/// The longest segment, with its index page.
pub const LONGEST_SEGMENT: Bytes = Bytes(1 << 20);
/// The most entries of a segment.
pub const MOST_ENTRIES: usize = (PAGE.as_usize() - size_of::<RawIndex>()) / size_of::<RawEntry>();
/// Bytes of a state page that record the applied extents of a run.
pub const APPLIED: usize = 4000;
/// Exclusive bound of a ring's length.
pub const LONGEST_RING: Bytes = Bytes(1 << 32);
/// The most segments of a run: index pages alone would fill the longest ring.
pub const MOST_SEGMENTS: u32 = 1 << 20;

const STATE_MAGIC: [u8; 8] = *b"BRAIDEPS";
const INDEX_MAGIC: [u8; 8] = *b"BRAIDEPI";
/// Start of the checksums' ranges.
const COVERED: usize = 12;

/// The state of the disk alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not a state of the volume.
    Void,
    /// The volume at the end of the epoch, after the run is applied.
    Image,
    /// As `Image`; the disk is becoming the volume.
    Adopting,
    /// The volume, after the rest of the run is applied.
    Recovered,
}

/// Consecutive segments that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Start of the first segment, or of the next segment if the run is empty: a byte of the ring.
    pub at: Bytes,
    /// The number of the first segment.
    pub first: u64,
    /// The number of segments.
    pub segments: u32,
}

impl Run {
    /// The run without its segments. Their numbers are not used again.
    pub fn emptied(self) -> Run {
        Run { at: self.at, first: self.first + u64::from(self.segments), segments: 0 }
    }
}

/// A state page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatePage {
    /// One more than the previous page's sequence.
    pub sequence: u64,
    /// The newest epoch that ended.
    pub epoch: u64,
    /// The state of the disk.
    pub state: State,
    /// The segments to apply for that state.
    pub run: Run,
    /// When the epoch ended, since 1970; zero if unknown.
    pub ended: Nanos,
}

impl StatePage {
    /// The state before the first write.
    pub const NOTHING: StatePage = StatePage {
        sequence: 0,
        epoch: 0,
        state: State::Void,
        run: Run { at: Bytes::ZERO, first: 0, segments: 0 },
        ended: Nanos::ZERO,
    };
}

/// Start of the segment that follows a segment ending at byte `at` of a ring of length `ring`.
pub fn next_place(at: Bytes, ring: Bytes) -> Bytes {
    if at + LONGEST_SEGMENT > ring { Bytes::ZERO } else { at }
}

/// A range of the volume in a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentEntry {
    /// The bytes of the volume.
    pub range: Range<Bytes>,
    /// True if the range is zeros. The segment then stores no bytes for the range.
    pub zeros: bool,
}

impl SegmentEntry {
    /// Bytes that the entry takes in the segment.
    pub fn stored(&self) -> Bytes {
        if self.zeros { Bytes::ZERO } else { self.range.end - self.range.start }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawState {
    magic: [u8; 8],
    crc: U32,
    state: U32,
    sequence: U64,
    epoch: U64,
    at: U64,
    first: U64,
    segments: U32,
    ended: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIndex {
    magic: [u8; 8],
    crc: U32,
    entries: U32,
    number: U64,
    content: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    start: U64,
    len: U32,
    zeros: U32,
}

const _: () =
    assert!(size_of::<RawState>() == 60 && size_of::<RawIndex>() == 28 && size_of::<RawEntry>() == 16);
const _: () = assert!(size_of::<RawState>() + APPLIED <= PAGE.as_usize());

fn sealed<T: IntoBytes + Immutable>(raw: &T, rest: &[u8], volume: Uuid) -> [u8; PAGE.as_usize()] {
    let mut page = [0; PAGE.as_usize()];
    let head = size_of::<T>();
    page[..head].copy_from_slice(raw.as_bytes());
    page[head..head + rest.len()].copy_from_slice(rest);
    let crc = checksum(volume, &page[COVERED..]);
    page[8..COVERED].copy_from_slice(&crc.to_le_bytes());
    page
}

fn opened<T>(bytes: &[u8], magic: [u8; 8], volume: Uuid) -> Result<(&T, &[u8]), Invalid>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let page = bytes.get(..PAGE.as_usize()).filter(|page| page[..8] == magic).ok_or(Invalid::Absent)?;
    if page[8..COVERED] != checksum(volume, &page[COVERED..]).to_le_bytes() {
        return Err(Invalid::Checksum);
    }
    T::ref_from_prefix(page).map_err(|_| Invalid::Absent)
}

/// Encodes a state page. `applied`: the bits of a recovered disk, at most [`APPLIED`] bytes.
///
/// # Panics
/// If `applied` is longer.
pub fn encode_state(volume: Uuid, page: &StatePage, applied: &[u8]) -> [u8; PAGE.as_usize()] {
    assert!(applied.len() <= APPLIED, "a state page has room for {APPLIED} bytes of bits");
    let state: u32 = match page.state {
        State::Void => 1,
        State::Image => 2,
        State::Adopting => 3,
        State::Recovered => 4,
    };
    let raw = RawState {
        magic: STATE_MAGIC,
        crc: U32::ZERO,
        state: state.into(),
        sequence: page.sequence.into(),
        epoch: page.epoch.into(),
        at: page.run.at.0.into(),
        first: page.run.first.into(),
        segments: page.run.segments.into(),
        ended: page.ended.0.into(),
    };
    sealed(&raw, applied, volume)
}

/// Verifies the state page at the start of `bytes`.
pub fn decode_state(bytes: &[u8], volume: Uuid) -> Result<StatePage, Invalid> {
    let (raw, _) = opened::<RawState>(bytes, STATE_MAGIC, volume)?;
    count::verify(raw.sequence.get(), "the sequence of the epochs' state")?;
    count::verify(raw.epoch.get(), "the epoch of a disk")?;
    count::verify(raw.first.get(), "the number of a segment")?;
    let run = Run { at: Bytes(raw.at.get()), first: raw.first.get(), segments: raw.segments.get() };
    if !run.at.is_aligned(PAGE) || run.at >= LONGEST_RING {
        return Err(Invalid::Value(format!("a run of segments begins at byte {} of its ring", run.at.0)));
    }
    let state = match (raw.state.get(), run.segments) {
        (1, 0) => State::Void,
        (2, 0..=MOST_SEGMENTS) => State::Image,
        (3, 0..=MOST_SEGMENTS) => State::Adopting,
        (4, 0..=MOST_SEGMENTS) => State::Recovered,
        (state, segments) => {
            let text = format!("state {state} of a disk's epochs with {segments} segments is unknown");
            return Err(Invalid::Value(text));
        }
    };
    Ok(StatePage {
        sequence: raw.sequence.get(),
        epoch: raw.epoch.get(),
        state,
        run,
        ended: Nanos(raw.ended.get()),
    })
}

/// The newest valid state page of a region; `None` if no page is valid.
pub fn newest_state(region: &[u8], volume: Uuid) -> Option<StatePage> {
    newest(region, volume).map(|(page, _)| page)
}

/// The bits of the newest valid state page, [`APPLIED`] bytes; `None` unless the page is of a recovered disk.
pub fn newest_applied(region: &[u8], volume: Uuid) -> Option<&[u8]> {
    let (page, bytes) = newest(region, volume)?;
    let applied = &bytes[size_of::<RawState>()..][..APPLIED];
    (page.state == State::Recovered).then_some(applied)
}

fn newest(region: &[u8], volume: Uuid) -> Option<(StatePage, &[u8])> {
    let pages = region.chunks_exact(PAGE.as_usize()).take(STATE_PAGES as usize);
    let valid = pages.filter_map(|bytes| Some((decode_state(bytes, volume).ok()?, bytes)));
    valid.max_by_key(|(page, _)| page.sequence)
}

/// The index page of a segment with these entries, at most [`MOST_ENTRIES`], and these bytes.
pub fn encode_index(
    volume: Uuid,
    number: u64,
    entries: &[SegmentEntry],
    content: &[u8],
) -> [u8; PAGE.as_usize()] {
    let raw = RawIndex {
        magic: INDEX_MAGIC,
        crc: U32::ZERO,
        entries: (entries.len() as u32).into(),
        number: number.into(),
        content: checksum(volume, content).into(),
    };
    let raw_entry = |entry: &SegmentEntry| RawEntry {
        start: entry.range.start.0.into(),
        len: ((entry.range.end - entry.range.start).0 as u32).into(),
        zeros: u32::from(entry.zeros).into(),
    };
    let raw_entries: Vec<RawEntry> = entries.iter().map(raw_entry).collect();
    sealed(&raw, raw_entries.as_bytes(), volume)
}

/// The index of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// The entries, in the order of their bytes in the segment.
    pub entries: Vec<SegmentEntry>,
    content: u32,
}

impl Index {
    /// How many bytes follow the index page.
    pub fn stored(&self) -> Bytes {
        self.entries.iter().map(SegmentEntry::stored).sum()
    }

    /// Verifies the bytes that follow the index page.
    pub fn verify(&self, volume: Uuid, content: &[u8]) -> Result<(), Invalid> {
        if checksum(volume, content) == self.content { Ok(()) } else { Err(Invalid::Checksum) }
    }
}

/// Verifies the index page at the start of `bytes`, of segment `number` of a volume of `volume_size`.
pub fn decode_index(bytes: &[u8], volume: Uuid, number: u64, volume_size: Bytes) -> Result<Index, Invalid> {
    let (raw, rest) = opened::<RawIndex>(bytes, INDEX_MAGIC, volume)?;
    if raw.number.get() != number {
        let text = format!("segment {} lies where segment {number} is expected", raw.number.get());
        return Err(Invalid::Value(text));
    }
    let listed = raw.entries.get() as usize;
    let too_many = || Invalid::Value(format!("a segment lists {listed} ranges, {MOST_ENTRIES} at most"));
    let rest = rest.get(..listed.saturating_mul(size_of::<RawEntry>())).ok_or_else(too_many)?;
    let raw_entries = <[RawEntry]>::ref_from_bytes(rest).map_err(|_| too_many())?;
    let mut entries = Vec::with_capacity(listed);
    for entry in raw_entries {
        let (start, len) = (Bytes(entry.start.get()), Bytes(u64::from(entry.len.get())));
        let end = start.checked_add(len).filter(|&end| end <= volume_size && len > Bytes::ZERO);
        let (Some(end), zeros @ (0 | 1)) = (end, entry.zeros.get()) else {
            let text = format!("a segment holds {len} at byte {} of a volume of {volume_size}", start.0);
            return Err(Invalid::Value(text));
        };
        entries.push(SegmentEntry { range: start..end, zeros: zeros == 1 });
    }
    let index = Index { entries, content: raw.content.get() };
    let stored = index.entries.iter().try_fold(PAGE, |sum, entry| sum.checked_add(entry.stored()));
    match stored {
        Some(stored) if stored <= LONGEST_SEGMENT => Ok(index),
        _ => Err(Invalid::Value(format!("a segment is longer than {LONGEST_SEGMENT}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([9; 16]);
    const SIZE: Bytes = Bytes(1 << 20);

    fn state(sequence: u64, state: State, segments: u32) -> StatePage {
        StatePage {
            sequence,
            epoch: 5,
            state,
            run: Run { at: PAGE * 3, first: 70, segments },
            ended: Nanos(7),
        }
    }

    #[test]
    fn the_newest_valid_state_counts() {
        let all = [
            (State::Void, 0),
            (State::Image, 0),
            (State::Image, 7),
            (State::Adopting, 0),
            (State::Adopting, 7),
            (State::Recovered, 7),
        ];
        for (i, (kind, segments)) in all.into_iter().enumerate() {
            let (other, others) = all[(i + 1) % all.len()];
            let (old, new) = (state(3, other, others), state(4, kind, segments));
            let pages = [old, new].map(|page| encode_state(VOLUME, &page, &[]));
            assert_eq!(newest_state(&pages.concat(), VOLUME), Some(new));
            let mut torn = pages;
            torn[1][20] ^= 1;
            assert_eq!(newest_state(&torn.concat(), VOLUME), Some(old));
            assert_eq!(newest_state(&pages.concat(), Uuid([1; 16])), None);
        }
        assert_eq!(newest_state(&[0; 8192], VOLUME), None);
        assert_eq!(newest_state(&[], VOLUME), None);
    }

    #[test]
    fn applied_bits_come_from_newest_state_of_recovered_disk() {
        let applied: Vec<u8> = (0..APPLIED).map(|i| i as u8 ^ 0x5a).collect();
        let pages = [(State::Recovered, 3), (State::Image, 3)];
        let [recovered, image] = pages.map(|(kind, sequence)| state(sequence, kind, 7));
        let older = encode_state(VOLUME, &recovered, &applied);
        let newest = encode_state(VOLUME, &StatePage { sequence: 4, ..recovered }, &applied[..9]);
        let found = newest_applied([older, newest].as_flattened(), VOLUME).unwrap().to_vec();
        assert_eq!((&found[..9], found[9..].iter().any(|&byte| byte != 0)), (&applied[..9], false));
        assert_eq!(newest_applied(&older, VOLUME), Some(&applied[..]));
        assert_eq!(newest_applied(&encode_state(VOLUME, &image, &[]), VOLUME), None);
        assert_eq!(newest_applied(&older, Uuid([1; 16])), None);
    }

    #[test]
    fn impossible_state_page_is_rejected() {
        let at =
            |at: Bytes| StatePage { run: Run { at, first: 0, segments: 0 }, ..state(1, State::Image, 0) };
        let refused = [
            state(1, State::Image, MOST_SEGMENTS + 1),
            state(1, State::Void, 1),
            state(1, State::Recovered, MOST_SEGMENTS + 1),
            state(u64::MAX, State::Void, 0),
            at(Bytes(512)),
            at(LONGEST_RING),
        ];
        for page in refused {
            let bytes = encode_state(VOLUME, &page, &[]);
            assert!(matches!(decode_state(&bytes, VOLUME), Err(Invalid::Value(_))), "{page:?}");
        }
    }

    #[test]
    fn ring_wraps_if_longest_segment_does_not_fit() {
        let ring = LONGEST_SEGMENT * 3 + PAGE;
        assert_eq!(next_place(LONGEST_SEGMENT * 2 + PAGE, ring), LONGEST_SEGMENT * 2 + PAGE);
        assert_eq!(next_place(LONGEST_SEGMENT * 2 + PAGE * 2, ring), Bytes::ZERO);
    }

    fn entries() -> Vec<SegmentEntry> {
        let at = |start: u64, end: u64, zeros| SegmentEntry { range: Bytes(start)..Bytes(end), zeros };
        vec![at(4096, 8192, false), at(0, 4096, true), at(65536, 65536 + 512, false)]
    }

    #[test]
    fn index_round_trips_and_rejects_wrong_place_and_content() {
        let content = vec![3; 4096 + 512];
        let page = encode_index(VOLUME, 82, &entries(), &content);
        let index = decode_index(&page, VOLUME, 82, SIZE).unwrap();
        assert_eq!((index.entries.clone(), index.stored()), (entries(), Bytes(4096 + 512)));
        assert_eq!(index.verify(VOLUME, &content), Ok(()));
        assert_eq!(index.verify(VOLUME, &content[1..]), Err(Invalid::Checksum));
        for number in [81, 83] {
            assert!(matches!(decode_index(&page, VOLUME, number, SIZE), Err(Invalid::Value(_))));
        }
        assert!(matches!(decode_index(&page, VOLUME, 82, Bytes(65536)), Err(Invalid::Value(_))));
        for sector in 0..8 {
            let mut torn = page;
            torn[sector * 512..][..512].fill(0xaa);
            assert!(decode_index(&torn, VOLUME, 82, SIZE).is_err(), "sector {sector}");
        }
        assert_eq!(decode_index(&page[..4095], VOLUME, 82, SIZE), Err(Invalid::Absent));
    }

    #[test]
    fn impossible_segment_lengths_are_rejected() {
        let long = SegmentEntry { range: Bytes::ZERO..LONGEST_SEGMENT, zeros: false };
        let page = encode_index(VOLUME, 1, &[long], &[]);
        assert!(matches!(decode_index(&page, VOLUME, 1, LONGEST_SEGMENT), Err(Invalid::Value(_))));
        let mut page = encode_index(VOLUME, 1, &[], &[]);
        page[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = checksum(VOLUME, &page[COVERED..]);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(decode_index(&page, VOLUME, 1, SIZE), Err(Invalid::Value(_))));
    }
}
