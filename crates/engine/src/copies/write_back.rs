//! Write-back: copies dirty blocks to their home, all dirty blocks within 1 MiB of the volume at a time.
//!
//! Guests continue meanwhile, because the extent's lock is shared: only bytes of blocks that stay dirty
//! change. A guest's write removes its blocks from `State::cleaning` before the write begins. Removed blocks
//! stay dirty, whatever bytes have reached the home. A write begun earlier has ended before the first byte is
//! read. At the end, the blocks still in the set are clean.
//!
//! The lock is exclusive in two cases:
//! - Padding: zeros are written around a block because the home was never written there. A guest may write
//!   there, too.
//! - Gaps: the bytes between dirty blocks are read from the home and written back in one request with the
//!   blocks. A disk transfers an extent in little more time than several blocks with a positioning each.
//!   Rewriting equal bytes loses nothing, whatever part of the write a crash lets through.
//!
//! The blocks themselves need no intent. Until a clean block is durable, the journal says *dirty*, or the
//! span is dirty since the write that dirtied the block.

use crate::copier::{LONGEST_RUN, Mover, RUNS_AT_ONCE};
use crate::core::{Durable, Extents, Store, Upkeep};
use crate::devices::Deadline;
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use crate::{Error, ErrorKind, Result};
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, LockGuard, Mode, RangeGuard, Runtime, join_all};
use std::ops::Range;

/// One part in so many of the journal's room limits the records of a write-back.
const ROOM_SHARE: usize = 4 * RUNS_AT_ONCE;
/// Runs in an extent from which gaps are written, too. Filling the gaps costs one read, and saves all write
/// requests but one.
const FEWEST_FILLED: usize = 3;
/// Longest gap to be filled: a disk passes over a shorter gap faster than the disk can position anew.
const LONGEST_FILLED: Bytes = Bytes(64 << 10);

/// Dirty blocks of an extent, in order of address.
struct Dirty {
    extent: ExtentId,
    blocks: Vec<(BlockId, Extra)>,
    entry: Entry,
    /// Ranges of adjacent blocks in the extent.
    runs: Vec<Range<Bytes>>,
    /// Set if zeros are written around a run.
    pads: bool,
    /// Set if the gaps between runs are written, too.
    fills: bool,
}

impl Dirty {
    /// Range from the first dirty byte to the last.
    fn span(&self) -> Range<Bytes> {
        let (first, last) = (&self.runs[0], &self.runs[self.runs.len() - 1]);
        first.start..last.end
    }

    fn mode(&self) -> Mode {
        if self.pads || self.fills { Mode::Exclusive } else { Mode::Shared }
    }
}

impl Shape {
    fn in_extents<'a>(&self, blocks: &'a [BlockId]) -> impl Iterator<Item = &'a [BlockId]> + use<'a> {
        let shape = *self;
        blocks.chunk_by(move |&a, &b| shape.range_of(a).extent == shape.range_of(b).extent)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Copies the dirty ones of the given blocks to their home. The blocks must be one group of
    /// [`Durable::to_write_back`]. Afterwards their extra copies are clean, unless a guest has written
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of devices; `Io` if an extent stays locked or a source is late. Unwritten blocks stay dirty.
    pub async fn write_back(&self, blocks: &[BlockId], mover: Mover) -> Result<()> {
        let _permit = self.extents.write_backs.permits.acquire(1).await;
        let _only = self.extents.keep_others_back(blocks).await;
        let all: Vec<Dirty> =
            self.store.shape.in_extents(blocks).filter_map(|blocks| self.store.dirty_of(blocks)).collect();
        let Some(first) = all.first() else { return Ok(()) };
        self.store.refuse_late_sources(&all)?;
        let device = self.store.device_of(first.entry.home);
        let lens: Vec<Bytes> = all.iter().map(|dirty| dirty.span().end - dirty.span().start).collect();
        let len = lens.iter().fold(Bytes::ZERO, |sum, &len| sum + len);
        self.rest(mover, &self.store.sources_of(&all)).await;
        self.rest(mover, &[device]).await;
        self.wait_for_time(mover, &[device], len).await;
        let _room = self
            .durable
            .reserve(all.len() + all.iter().map(|dirty| dirty.blocks.len()).sum::<usize>())
            .await?;
        let bytes = self.extents.buffer(&self.extents.buffers.runs, len).await?;
        let mut at = Bytes::ZERO;
        let works = all.iter().zip(lens).map(|(dirty, len)| {
            let part = bytes.slice(at..at + len);
            at += len;
            self.write_back_locked(dirty, part, mover)
        });
        // Tasks with a turn wait for locks here. The holders of these locks wait only for devices, never for
        // a turn.
        let requests = all.len() as u32;
        let results = self.in_turn_together(mover, device, requests, len, join_all(works)).await;
        results.into_iter().collect()
    }

    async fn write_back_locked(&self, wanted: &Dirty, bytes: Buf, mover: Mover) -> Result<()> {
        let (_guard, dirty) = self.extents.lock_dirty(wanted).await?;
        let Some(dirty) = dirty else { return Ok(()) };
        self.store.refuse_late_sources(std::slice::from_ref(&dirty))?;
        let all = Piece { extent: dirty.extent, range: dirty.span() };
        self.store.state.borrow_mut().cleaning.extend(dirty.blocks.iter().map(|(block, _)| block));
        self.guests.ranges.wait(dirty.extent.0, &all.range).await;
        let differing = if dirty.pads { self.extents.begin_differing(&all).await } else { Ok(None) };
        let result = match &differing {
            Ok(_) => self.copy_home(&dirty, &bytes, mover).await,
            Err(error) => Err(error.clone()),
        };
        for &(block, extra) in &dirty.blocks {
            let is_unchanged = self.store.state.borrow_mut().cleaning.remove(&block);
            if is_unchanged && (result.is_ok() || planted(Bug::WriteBackErrorIgnored)) {
                self.store.change_extra(&self.policy, block, Some(Extra { dirty: false, ..extra }));
                let mut background = self.durable.background.borrow_mut();
                background.write_backs += 1;
                background.written_back_bytes += self.store.shape.block_size.0;
            }
        }
        result
    }

    /// Reads all dirty runs in parallel and writes the bytes to the home.
    async fn copy_home(&self, dirty: &Dirty, bytes: &Buf, mover: Mover) -> Result<()> {
        // The gaps are read first, together with the stale bytes of the blocks; the blocks then overwrite
        // these.
        let filled = dirty.fills && self.extents.read_home(dirty, bytes).await;
        let start = dirty.span().start;
        let reads = dirty.runs.iter().map(async |run| {
            let piece = Piece { extent: dirty.extent, range: run.clone() };
            self.extents
                .read_copies(&piece, &bytes.slice(run.start - start..run.end - start), Origin::Background)
                .await
        });
        let sources = self.store.sources_of(std::slice::from_ref(dirty));
        self.step(mover, &sources, join_all(reads)).await.into_iter().collect::<Result<()>>()?;
        for source in sources.into_iter().map(|device| self.store.member(device)) {
            source.note_source();
            if source.has_lost_writes() {
                // A failed flush may have left older bytes: the home may hold newer, durable bytes.
                let text =
                    format!("{} lost writes: dirty blocks on it are not written back", source.describe());
                return Err(Error::new(ErrorKind::Io, text));
            }
        }
        // A concurrent copy of the home lacks the written bytes, even if the write fails.
        self.store.state.borrow_mut().disturb(dirty.extent);
        if !planted(Bug::WriteBackSkipped) {
            let whole = [dirty.span()];
            let runs = if filled { &whole } else { &dirty.runs[..] };
            self.extents.write_to_home(dirty, runs, bytes).await?;
        }
        let mut state = self.store.state.borrow_mut();
        // Other holders of the shared lock may have made parts valid.
        let now = state.map.get(dirty.extent);
        let valid =
            dirty.runs.iter().fold(now.valid, |valid, run| valid | self.store.shape.parts_touched(run));
        state.set_extent(dirty.extent, Entry { valid, ..now });
        Ok(())
    }

    /// Drops the extra copies of blocks, in order of address, after write-back of the dirty ones. A block
    /// that a guest writes meanwhile keeps its copy.
    pub async fn demote(&self, blocks: &[BlockId], mover: Mover) -> Result<()> {
        for blocks in self.durable.to_write_back(blocks) {
            self.write_back(blocks, mover).await?;
            for blocks in self.store.shape.in_extents(blocks) {
                let _room = self.durable.reserve(blocks.len()).await?;
                let extent = self.store.shape.range_of(blocks[0]).extent;
                let _guard = self.locks.exclusive(extent).await;
                for &block in blocks {
                    if self.store.state.borrow().extras.get(block).is_some_and(|e| !e.dirty) {
                        self.store.drop_extra(&self.policy, block);
                    }
                }
            }
        }
        Ok(())
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Keeps other write-backs out of the extents of the blocks.
    async fn keep_others_back(&self, blocks: &[BlockId]) -> Vec<RangeGuard> {
        let mut guards = Vec::new();
        // Locks are taken in order of address, so no two tasks wait for each other.
        for blocks in self.store.shape.in_extents(blocks) {
            let extent = self.store.shape.range_of(blocks[0]).extent;
            let whole = Bytes::ZERO..self.store.shape.extent_size;
            guards.push(self.write_backs.extents.lock(extent.0, whole).await);
        }
        guards
    }

    /// Locks the extent: exclusive if padding or gaps are written. Returns the blocks that are still dirty.
    ///
    /// # Errors
    /// `Io` if other tasks keep the lock for [`Deadline::BRIEFEST`].
    async fn lock_dirty(&self, wanted: &Dirty) -> Result<(LockGuard, Option<Dirty>)> {
        let blocks: Vec<BlockId> = wanted.blocks.iter().map(|(block, _)| *block).collect();
        if wanted.mode() == Mode::Shared {
            let guard = self.locks.lock(wanted.extent, Mode::Shared).await;
            let dirty = self.store.dirty_of(&blocks);
            if dirty.as_ref().is_none_or(|dirty| dirty.mode() == Mode::Shared) {
                return Ok((guard, dirty));
            }
        }
        let guard = self.durable.lock_briefly(wanted.extent, Deadline::BRIEFEST).await.ok_or_else(|| {
            let text =
                format!("{:?} is in use for {}: a device does not answer", wanted.extent, Deadline::BRIEFEST);
            Error::new(ErrorKind::Io, text)
        })?;
        Ok((guard, self.store.dirty_of(&blocks)))
    }

    /// Reads the home from the first dirty byte to the last. Returns false if the home cannot be read: then
    /// only the dirty blocks are written.
    async fn read_home(&self, dirty: &Dirty, bytes: &Buf) -> bool {
        let (home, span) = (dirty.entry.home, dirty.span());
        let is_kept = || self.store.check_kept(dirty.extent, home, &span).is_ok();
        is_kept() && self.read_slot(home, span.clone(), bytes, Origin::Background).await.is_ok() && is_kept()
    }

    /// Writes runs of an extent to the home. Runs are written in parallel, for the disk to sort, or one after
    /// another if zeros are written around them.
    async fn write_to_home(&self, dirty: &Dirty, runs: &[Range<Bytes>], bytes: &Buf) -> Result<()> {
        let (home, start) = (dirty.entry.home, dirty.span().start);
        assert_eq!(
            dirty.entry.second,
            SlotNumber::NONE,
            "a block is dirty only where one required copy is enough"
        );
        let part_of = |run: &Range<Bytes>| bytes.slice(run.start - start..run.end - start);
        if dirty.pads {
            let mut valid = dirty.entry.valid;
            for run in runs {
                self.write_slot(home, run, Some(&part_of(run)), valid, Origin::Background).await?;
                valid |= self.store.shape.parts_touched(run);
            }
            return Ok(());
        }
        let writes = runs.iter().map(async |run| {
            let valid = dirty.entry.valid;
            self.write_slot(home, run, Some(&part_of(run)), valid, Origin::Background).await
        });
        join_all(writes).await.into_iter().collect()
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Splits blocks, in order of address, into groups for write-back: each within 1 MiB, with homes on one
    /// device.
    pub fn to_write_back<'a>(
        &self,
        blocks: &'a [BlockId],
    ) -> impl Iterator<Item = &'a [BlockId]> + use<'a, R, D> {
        let homes: Vec<SlotNumber> = {
            let state = self.store.state.borrow();
            blocks.iter().map(|&block| state.map.get(self.store.shape.range_of(block).extent).home).collect()
        };
        let device = |slot: SlotNumber| self.store.state.borrow().space.locate(slot).map(|slot| slot.device);
        let (per_window, most) =
            ((LONGEST_RUN / self.store.shape.block_size).max(1), self.most_written_back());
        let (mut cuts, mut start) = (Vec::new(), 0);
        for at in 1..=blocks.len() {
            let goes_on = at < blocks.len()
                && at - start < most
                && blocks[at].0 / per_window == blocks[start].0 / per_window
                && (homes[at] == homes[start] || device(homes[at]) == device(homes[start]));
            if !goes_on {
                cuts.push(start..at);
                start = at;
            }
        }
        cuts.into_iter().filter(|cut| !cut.is_empty()).map(|cut| &blocks[cut])
    }

    /// Largest number of blocks in one write-back.
    fn most_written_back(&self) -> usize {
        // One record for each block, and one for each extent.
        (self.journal.most_pending() / ROOM_SHARE / 2).max(1)
    }
}

impl<D: Device> Store<D> {
    /// Returns the dirty ones of the given blocks of an extent, or `None`.
    fn dirty_of(&self, blocks: &[BlockId]) -> Option<Dirty> {
        let state = self.state.borrow();
        let is_dirty = |&block: &BlockId| {
            let extra = state.extras.get(block).filter(|extra| extra.dirty)?;
            Some((block, extra))
        };
        let extent = self.shape.range_of(*blocks.first()?).extent;
        let blocks: Vec<(BlockId, Extra)> = blocks.iter().filter_map(is_dirty).collect();
        if blocks.is_empty() {
            return None;
        }
        let range_of = |run: &[(BlockId, Extra)]| {
            let (first, last) = (run[0].0, run[run.len() - 1].0);
            self.shape.range_of(first).range.start..self.shape.range_of(last).range.end
        };
        let runs: Vec<Range<Bytes>> =
            blocks.chunk_by(|(a, _), (b, _)| a.0 + 1 == b.0).map(range_of).collect();
        let entry = state.map.get(extent);
        let pads = runs.iter().any(|range| {
            let piece = Piece { extent, range: range.clone() };
            self.shape.padded(&piece, entry.valid).range != *range
        });
        let mut dirty = Dirty { extent, blocks, entry, runs, pads, fills: false };
        dirty.fills = self.pays_to_fill(&dirty);
        Some(dirty)
    }

    /// True if one request for all runs is faster than one for each run: on a disk, if all parts are valid
    /// and no gap is too long.
    fn pays_to_fill(&self, dirty: &Dirty) -> bool {
        let parts = self.shape.parts_touched(&dirty.span());
        let gaps = dirty.runs.windows(2).map(|pair| pair[1].start - pair[0].end);
        dirty.runs.len() >= FEWEST_FILLED
            && dirty.entry.valid & parts == parts
            && self.locate(dirty.entry.home).0.entry.class == DeviceClass::Hdd
            && gaps.max().is_some_and(|longest| longest <= LONGEST_FILLED)
    }

    /// Devices that hold dirty blocks.
    fn sources_of(&self, all: &[Dirty]) -> Vec<DeviceId> {
        let blocks = all.iter().flat_map(|dirty| &dirty.blocks);
        let mut devices: Vec<DeviceId> = blocks.map(|(_, extra)| self.device_of(extra.slot)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Returns an error if a device with dirty blocks is stuck: guests would wait for the device together
    /// with the write-back.
    fn refuse_late_sources(&self, all: &[Dirty]) -> Result<()> {
        let sources = self.sources_of(all);
        let late = sources.into_iter().map(|device| self.member(device)).find(|member| member.is_stuck());
        late.map_or(Ok(()), |member| Err(member.error_of_late()))
    }
}
