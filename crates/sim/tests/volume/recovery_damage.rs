//! Bad places in the journal of a disk that keeps epochs, and their legal cost.

use crate::epochs::{BLOCK, EXTENT, SIZE};
use crate::recovery_campaign::{SECTOR, Sectors};
use braid_base::{Bytes, MIB, Rng};
use braid_engine::Result;
use braid_format::epoch_journal::{
    PAGE, Run, SEGMENTS, SegmentEntry, State, StatePage, decode_index, newest_state, next_place,
};
use braid_format::superblock::{RegionKind, Superblock};
use braid_runtime::{Arena, Device};
use braid_sim::{Disk, FaultPlan, Faults, World};
use std::collections::BTreeSet;
use std::ops::Range;

/// Blocks that may be errors, because an unreadable segment names the blocks.
#[derive(Clone, Default)]
pub struct Damage {
    pub blocks: BTreeSet<Bytes>,
    /// Extents that guests have changed: these extents need nothing of the journal.
    pub changed: BTreeSet<Bytes>,
}

impl Damage {
    /// Adds the damage of an unreadable place of the disk.
    fn add(&mut self, segments: &[Segment], bad: &Range<Bytes>) {
        let is_bad = |segment: &&Segment| segment.lies.start < bad.end && bad.start < segment.lies.end;
        for SegmentEntry { range, .. } in segments.iter().filter(is_bad).flat_map(|segment| &segment.entries)
        {
            self.blocks.extend((range.start / BLOCK..range.end.0.div_ceil(BLOCK.0)).map(|i| BLOCK * i));
        }
    }

    pub fn may_fail(&self, block: Bytes) -> bool {
        self.blocks.contains(&block) && !self.changed.contains(&block.align_down(EXTENT))
    }

    pub fn is_in(&self, range: &Range<Bytes>) -> bool {
        self.blocks.range(range.start.align_down(BLOCK)..range.end).any(|block| self.may_fail(*block))
    }

    /// Notes a guest's change of some extents, or its failure.
    pub fn note(&mut self, sectors: &mut Sectors, range: &Range<Bytes>, changed: Result<()>) {
        let extents = range.start.align_down(EXTENT)..range.end.align_up(EXTENT);
        match changed {
            Ok(()) => self.changed.extend((extents.start / EXTENT..extents.end / EXTENT).map(|i| EXTENT * i)),
            Err(error) => {
                assert!(self.is_in(&extents), "{range:?} is sound: {error}");
                sectors.doubt(range);
            }
        }
    }
}

/// A segment of the journal on a disk.
pub struct Segment {
    /// Place of the segment's bytes on the disk, behind the segment's index page.
    pub lies: Range<Bytes>,
    /// Ranges in the segment.
    pub entries: Vec<SegmentEntry>,
}

/// Reads the state page of a disk that keeps epochs, and the segments of its run, the oldest first.
pub async fn journal_of(disk: &Disk, superblock: &Superblock) -> (StatePage, Vec<Segment>) {
    let region = superblock.region(RegionKind::EpochJournal, 0).expect("it has a journal of epochs");
    let (volume, ring, arena) = (superblock.volume, region.offset + SEGMENTS, Arena::new(MIB));
    let states = arena.alloc(SEGMENTS).await;
    disk.read(region.offset, &states).await.expect("the disk is sound");
    let state = states.with_bytes(|bytes| newest_state(bytes, volume)).expect("one is valid");
    let (mut segments, Run { mut at, first, segments: count }) = (Vec::new(), state.run);
    for number in first..first + u64::from(count) {
        let page = arena.alloc(PAGE).await;
        disk.read(ring + at, &page).await.expect("the disk is sound");
        let index = page.with_bytes(|bytes| decode_index(bytes, volume, number, SIZE)).expect("it is valid");
        let start = ring + at + PAGE;
        segments.push(Segment { lies: start..start + index.stored(), entries: index.entries.clone() });
        at = next_place(at + PAGE + index.stored().align_up(PAGE), region.len - SEGMENTS);
    }
    (state, segments)
}

/// Draws a place within one of the segments, if there is a segment.
fn bad_place(segments: &[Segment], rng: &mut Rng) -> Option<Range<Bytes>> {
    let segments: Vec<&Segment> =
        segments.iter().filter(|segment| segment.lies.start < segment.lies.end).collect();
    let Segment { lies, .. } = segments.get(rng.below(segments.len().max(1) as u64) as usize)?;
    let sectors = (lies.end - lies.start) / SECTOR;
    let start = rng.below(sectors);
    let len = rng.between(1, (sectors - start).min(20) + 1);
    Some(lies.start + SECTOR * start..lies.start + SECTOR * (start + len))
}

/// A disk with a possible bad place, and the legal cost of the place.
pub struct Bad {
    pub faults: Faults,
    pub damage: Damage,
}

impl Bad {
    /// Draws a bad place with probability `often`, on a disk after guests have changed some extents.
    pub async fn draw(
        world: &World,
        (disk, superblock): (&Disk, &Superblock),
        changed: BTreeSet<Bytes>,
        (often, rng): (f64, &mut Rng),
    ) -> Bad {
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let mut bad = Bad { faults, damage: Damage { blocks: BTreeSet::new(), changed } };
        if rng.chance(often) {
            go_bad(&bad.faults, &mut bad.damage, (disk, superblock), rng).await;
        }
        bad
    }
}

/// Makes a place of a journal bad.
pub async fn go_bad(
    faults: &Faults,
    damage: &mut Damage,
    (disk, superblock): (&Disk, &Superblock),
    rng: &mut Rng,
) {
    let (state, segments) = journal_of(disk, superblock).await;
    if state.state == State::Recovered && rng.chance(0.2) {
        // One of the two state pages with the progress of the recovery.
        let region = superblock.region(RegionKind::EpochJournal, 0).expect("it has a journal of epochs");
        let page = region.offset + PAGE * rng.below(2);
        faults.set(FaultPlan { bad_reads: Some(page..page + SECTOR), ..FaultPlan::default() });
        return;
    }
    if let Some(place) = bad_place(&segments, rng) {
        damage.add(&segments, &place);
        faults.set(FaultPlan { bad_reads: Some(place), ..FaultPlan::default() });
    }
}
