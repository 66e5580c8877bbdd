//! Write-back: brings the home of dirty blocks up to date, some blocks of one extent at a time. Neighbours are written as one request.
//!
//! Guests go on meanwhile, for the extent's lock is shared: nothing but the bytes of blocks that stay dirty changes under it. A guest's write
//! takes its blocks out of `State::cleaning` before it begins, and with that they stay dirty, whatever of them reached the home. A write that
//! had begun before has ended when the first byte is read. At the end those that are still in the set are clean.
//!
//! Where zeros must be written around a block, because the home was never written there, the lock is exclusive: a guest may write there, too.
//!
//! No intent for the blocks themselves: until one is durable, the journal says "dirty", or the span is dirty since the write that made it so.

use crate::core::Core;
use crate::moves::Mover;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, LockGuard, Mode, RangeTable, Runtime, Semaphore, join_all};
use std::ops::Range;
use std::rc::Rc;

/// So many extents are written back at the same time: as many requests of moves as a disk sorts.
pub(crate) const AT_ONCE: usize = 8;
/// Of what fits in the journal, one part in so many for the changes of each.
const ROOM_SHARE: usize = 4 * AT_ONCE;

/// What all write-backs share.
pub(crate) struct WriteBacks {
    permits: Semaphore,
    /// By extent: of two, the one that wrote last might have read first.
    extents: RangeTable,
}

impl Default for WriteBacks {
    fn default() -> WriteBacks {
        WriteBacks { permits: Semaphore::new(AT_ONCE), extents: RangeTable::default() }
    }
}

/// Dirty blocks of an extent, in the order of their addresses, with what was true of them when the lock was taken.
struct Dirty {
    blocks: Vec<(BlockId, Extra)>,
    /// Where the blocks lie in the extent, neighbours together.
    runs: Vec<Range<Bytes>>,
    entry: Entry,
    /// Whether zeros are written around a run.
    pads: bool,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Brings the home of those of these blocks of an extent up to date that are dirty: at most [`Core::most_written_back`] of them, in the order
    /// of their addresses. Their extra copies are clean then, unless a guest has written to them meanwhile.
    ///
    /// # Errors
    /// If a device fails: blocks that were not written stay dirty.
    pub async fn write_back(
        self: &Rc<Self>,
        extent: ExtentId,
        blocks: &[BlockId],
        mover: Mover,
    ) -> Result<()> {
        let _permit = self.write_backs.permits.acquire(1).await;
        let _alone = self.write_backs.extents.lock(extent.0, Bytes::ZERO..self.shape.extent_size).await;
        let dirty = self.dirty_of(extent, blocks);
        if dirty.blocks.is_empty() {
            return Ok(());
        }
        let blocks: Vec<BlockId> = dirty.blocks.iter().map(|(block, _)| *block).collect();
        let (device, len) = (self.device_of(dirty.entry.home), self.shape.block_size * blocks.len() as u64);
        self.rest(mover, &self.sources_of(&dirty)).await;
        self.rest(mover, &[device]).await;
        self.give_way(mover, device, len).await;
        let _room = self.reserve(1 + blocks.len()).await?;
        let bytes = self.buffer(&self.buffers.runs, len).await?;
        // A task with a turn waits for the lock here: those that hold it wait for devices, and for no turn.
        self.in_turn(mover, device, len, self.write_back_locked(extent, &blocks, &bytes, mover)).await
    }

    /// As many blocks as one write-back takes.
    pub fn most_written_back(&self) -> usize {
        let room = self.journal.most_pending() / ROOM_SHARE;
        ((self.bounce_limit() / self.shape.block_size) as usize).min(room).max(1)
    }

    async fn write_back_locked(
        self: &Rc<Self>,
        extent: ExtentId,
        blocks: &[BlockId],
        bytes: &Buf,
        mover: Mover,
    ) -> Result<()> {
        let (_guard, dirty) = self.lock_dirty(extent, blocks).await;
        let (Some(first), Some(last)) = (dirty.runs.first(), dirty.runs.last()) else { return Ok(()) };
        let all = Piece { extent, range: first.start..last.end };
        self.state.borrow_mut().cleaning.extend(dirty.blocks.iter().map(|(block, _)| block));
        self.guests.ranges.wait(extent.0, &all.range).await;
        let differing = if dirty.pads { self.begin_differing(&all).await } else { Ok(None) };
        let result = match &differing {
            Ok(_) => self.copy_home(extent, &dirty, bytes, mover).await,
            Err(error) => Err(error.clone()),
        };
        for &(block, extra) in &dirty.blocks {
            let is_unchanged = self.state.borrow_mut().cleaning.remove(&block);
            if is_unchanged && result.is_ok() {
                self.change_extra(block, Some(Extra { dirty: false, ..extra }));
                let mut background = self.background.borrow_mut();
                background.write_backs += 1;
                background.written_back_bytes += self.shape.block_size.0;
            }
        }
        self.end_differing(differing.ok().flatten());
        result
    }

    /// Takes the lock that the dirty ones of these blocks need.
    async fn lock_dirty(&self, extent: ExtentId, blocks: &[BlockId]) -> (LockGuard, Dirty) {
        let lock = Self::lock_number(extent);
        let guard = self.locks.lock(lock, Mode::Shared).await;
        let dirty = self.dirty_of(extent, blocks);
        if !dirty.pads {
            return (guard, dirty);
        }
        drop(guard);
        let guard = self.locks.lock(lock, Mode::Exclusive).await;
        (guard, self.dirty_of(extent, blocks))
    }

    fn dirty_of(&self, extent: ExtentId, blocks: &[BlockId]) -> Dirty {
        let state = self.state.borrow();
        let is_dirty = |&block: &BlockId| {
            let extra = state.extras.get(block).filter(|extra| extra.dirty)?;
            Some((block, extra))
        };
        let blocks: Vec<(BlockId, Extra)> =
            blocks.iter().filter_map(is_dirty).take(self.most_written_back()).collect();
        let range_of = |run: &[(BlockId, Extra)]| {
            let (first, last) = (run[0].0, run[run.len() - 1].0);
            self.shape.range_of(first).range.start..self.shape.range_of(last).range.end
        };
        let runs: Vec<Range<Bytes>> =
            blocks.chunk_by(|(a, _), (b, _)| a.0 + 1 == b.0).map(range_of).collect();
        let entry = state.map.get(extent);
        let pads = runs.iter().any(|range| {
            let piece = Piece { extent, range: range.clone() };
            self.padded(&piece, entry.valid).range != *range
        });
        Dirty { blocks, runs, entry, pads }
    }

    /// Reads dirty blocks, all at the same time, and writes them to the home.
    async fn copy_home(
        self: &Rc<Self>,
        extent: ExtentId,
        dirty: &Dirty,
        bytes: &Buf,
        mover: Mover,
    ) -> Result<()> {
        let size = self.shape.block_size;
        let reads = (0..).zip(&dirty.blocks).map(async |(i, &(block, _))| {
            let part = bytes.slice(size * i..size * (i + 1));
            self.read_copies(&self.shape.range_of(block), &part, Origin::Background).await
        });
        let sources = self.sources_of(dirty);
        self.step(mover, &sources, join_all(reads)).await.into_iter().collect::<Result<()>>()?;
        for source in sources.into_iter().map(|device| self.member(device)) {
            if source.has_lost_writes() {
                // What was read may be what a failed flush left there: the home may hold better, durable bytes.
                let text = format!(
                    "{} lost writes: dirty blocks on it are not written back",
                    self.describe(source.id)
                );
                return Err(Error::new(ErrorKind::Io, text));
            }
        }
        // A copy of the home that is under way lacks this, whatever becomes of it.
        self.state.borrow_mut().disturb(extent);
        if !planted(Bug::WriteBackSkipped) {
            self.write_to_home(dirty, bytes).await?;
        }
        let mut state = self.state.borrow_mut();
        // Others who share the lock may have made parts valid.
        let now = state.map.get(extent);
        let valid = dirty.runs.iter().fold(now.valid, |valid, run| valid | self.shape.parts_touched(run));
        state.set_extent(extent, Entry { valid, ..now });
        Ok(())
    }

    /// The devices that hold dirty blocks.
    fn sources_of(&self, dirty: &Dirty) -> Vec<DeviceId> {
        let mut devices: Vec<DeviceId> =
            dirty.blocks.iter().map(|(_, extra)| self.device_of(extra.slot)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Writes the runs of an extent: at the same time, for the disk to sort them; one after the other where each makes zeros of what is not
    /// valid yet around it.
    async fn write_to_home(&self, Dirty { runs, entry, pads, .. }: &Dirty, bytes: &Buf) -> Result<()> {
        assert_eq!(entry.second, SlotNumber::NONE, "a block is dirty only where one required copy is enough");
        let mut at = Bytes::ZERO;
        let parts = runs.iter().map(|run| {
            let start = at;
            at += run.end - run.start;
            (run, bytes.slice(start..at))
        });
        if *pads {
            let mut valid = entry.valid;
            for (run, part) in parts {
                self.write_slot(entry.home, run, Some(&part), valid, Origin::Background).await?;
                valid |= self.shape.parts_touched(run);
            }
            return Ok(());
        }
        let writes = parts.map(async |(run, part)| {
            self.write_slot(entry.home, run, Some(&part), entry.valid, Origin::Background).await
        });
        join_all(writes).await.into_iter().collect()
    }

    /// Drops the extra copies of these blocks of an extent, written back before where they are dirty. A block that a guest writes to meanwhile
    /// keeps its copy.
    pub async fn demote(self: &Rc<Self>, extent: ExtentId, blocks: &[BlockId], mover: Mover) -> Result<()> {
        for blocks in blocks.chunks(self.most_written_back()) {
            self.write_back(extent, blocks, mover).await?;
            let _room = self.reserve(blocks.len()).await?;
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            for &block in blocks {
                if self.state.borrow().extras.get(block).is_some_and(|e| !e.dirty) {
                    self.drop_extra(block);
                }
            }
        }
        Ok(())
    }
}
