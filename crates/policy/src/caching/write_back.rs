//! Write-back: when dirty blocks are written back. Write-back begins above a high water mark and ends at the
//! low water mark; while guests leave the disks alone, all dirty blocks are written back. Blocks are written
//! in the order of addresses, round and round, from the end of the last plan: a disk moves its heads by short
//! steps, and neighbours are one request.
//!
//! The marks are ahead of need. Beyond halfway from the high mark to the whole cache no more blocks become
//! dirty, so that a clean copy that can make room always exists.
//!
//! A cache with that many dirty blocks is *full*: the disks cannot take the guests' writes, whether from
//! guests or from the cache. Guests then write to the disks until the low mark is reached, and write-back has
//! a tenth of the disks' time. With half of the time each, or with each write placed by the room of the
//! moment, the disks would move their heads to and fro. Under a load too large for the SSD such a cache would
//! be up to a fifth slower than the disks alone.

use super::written;
use crate::{BadSetting, ByteRange, ExtraCopy, Move, Outcome, Plan, Settings, View};
use braid_base::{BlockId, DeviceClass, Nanos};
use std::collections::BTreeMap;

/// Dirty blocks of a cache, and the limits on their number.
pub struct WriteBack {
    low: f64,
    high: f64,
    /// Number of dirty blocks in each run of `RUN` blocks with any.
    runs: BTreeMap<u64, u16>,
    dirty: usize,
    /// Run at which the next plan begins.
    next: u64,
    /// True from the high mark until the low mark is reached.
    busy: bool,
    /// Time of the last request of a guest.
    last_request: Nanos,
    /// True if a write-back has failed since the last plan.
    failed: bool,
    /// True from the largest number of dirty blocks until the low mark is reached.
    full: bool,
    /// True if no more is written back than needed to make room.
    only_forced: bool,
}

const LOW: f64 = 0.6;
/// Blocks written repeatedly shall stay dirty. Under Zipf's law (1.1) with 30 % writes, marks of 50 and 40 %
/// write 1.25 times as many blocks to the disk as marks of 75 and 74 %.
const HIGH: f64 = 0.75;
/// Blocks of a run: 128 KiB of blocks of 4 KiB, an extent.
const RUN: u64 = 32;
/// Runs of a plan: the disk sorts some, and the next plan continues at the end of this plan.
const RUNS_PLANNED: usize = 64;
/// Runs of a plan while the cache is full: few, for each takes ten times as long, and guests may stop
/// meanwhile.
const RUNS_PLANNED_FULL: usize = 8;
/// Share of the disks' time for write-back while the cache is full.
const SHARE_FULL: f64 = 0.1;
/// Time without requests after which the volume counts as idle.
const IDLE: Nanos = Nanos::from_secs(1);
/// Interval of checks of the high mark while blocks are dirty.
const OFTEN: Nanos = Nanos::from_millis(20);
const SELDOM: Nanos = Nanos::from_secs(1);

impl WriteBack {
    /// Reads the settings `dirty-high` (75%) and `dirty-low` (60%), the water marks as shares of the cache.
    /// Fails if the low mark is above the high mark.
    pub fn take(settings: &mut Settings) -> Result<WriteBack, BadSetting> {
        let high = settings.take_share("dirty-high")?.unwrap_or(HIGH);
        let low = settings.take_share("dirty-low")?.unwrap_or(LOW.min(high));
        if low > high {
            return Err(settings.bad("dirty-low", &low.to_string(), "a share that is not above dirty-high"));
        }
        Ok(WriteBack { low, high, ..WriteBack::all() })
    }

    /// Writes back all dirty blocks as soon as the disks can. For policies without dirty blocks of their own,
    /// after a policy that left dirty blocks.
    pub fn all() -> WriteBack {
        WriteBack {
            low: 0.0,
            high: 0.0,
            runs: BTreeMap::new(),
            dirty: 0,
            next: 0,
            busy: false,
            last_request: Nanos::ZERO,
            failed: false,
            full: false,
            only_forced: false,
        }
    }

    /// Keeps the dirty blocks between the usual water marks.
    pub fn usual() -> WriteBack {
        let mut usual = WriteBack::all();
        usual.keep_dirty(true);
        usual
    }

    /// Switches to the usual water marks, or, if `keeps` is false, to writing back all dirty blocks.
    pub fn keep_dirty(&mut self, keeps: bool) {
        (self.low, self.high) = if keeps { (LOW, HIGH) } else { (0.0, 0.0) };
        // Fullness by the new marks is decided at the next guest's write; no write may ever come.
        self.full = false;
    }

    /// Sets whether only the dirty blocks beyond the high mark are written back.
    pub fn only_forced(&mut self, only: bool) {
        self.only_forced = only;
    }

    /// Keeps the dirty blocks between these water marks.
    pub fn between(low: f64, high: f64) -> WriteBack {
        WriteBack { low, high, ..WriteBack::all() }
    }

    /// Writes back nothing ahead of need: the policy plans the write-back.
    pub fn never() -> WriteBack {
        WriteBack { only_forced: true, ..WriteBack::between(1.0, 1.0) }
    }

    /// Returns the settings as text, without defaults.
    pub fn settings(&self) -> Vec<String> {
        let share = |key: &str, share: f64, default: f64| {
            (share != default).then(|| format!("{key}={}%", share * 100.0))
        };
        written([share("dirty-high", self.high, HIGH), share("dirty-low", self.low, LOW.min(self.high))])
    }

    /// As [`crate::Policy::extra_changed`].
    pub fn changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        let is_dirty = |copy: Option<ExtraCopy>| copy.is_some_and(|copy| copy.dirty);
        match (is_dirty(before), is_dirty(now)) {
            (false, true) => self.add(block),
            (true, false) => self.remove(block),
            _ => {}
        }
    }

    /// Adds a block that has become dirty.
    pub fn add(&mut self, block: BlockId) {
        *self.runs.entry(block.0 / RUN).or_default() += 1;
        self.dirty += 1;
    }

    /// Removes a block that has become clean. Panics if the block was not dirty.
    pub fn remove(&mut self, block: BlockId) {
        let run = block.0 / RUN;
        let dirty = self.runs.get_mut(&run).expect("a block that was dirty is in a run");
        *dirty -= 1;
        if *dirty == 0 {
            self.runs.remove(&run);
        }
        self.dirty -= 1;
    }

    /// Records the arrival of a guest's request.
    pub fn requested(&mut self, now: Nanos) {
        self.last_request = now;
    }

    /// As [`crate::Policy::done`].
    pub fn done(&mut self, outcome: Outcome) {
        self.failed |= outcome == Outcome::Failed;
    }

    /// Number of dirty blocks.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// True if more blocks may become dirty now, in a cache of `blocks` blocks. Called for a guest's write.
    pub fn has_room(&mut self, blocks: u64) -> bool {
        let (dirty, blocks) = (self.dirty as f64, blocks as f64);
        self.full = dirty >= blocks * (1.0 + self.high) / 2.0 || self.full && dirty > blocks * self.low;
        !self.full
    }

    /// Plans the write-back due now, in a cache of `blocks` blocks. Returns the time of the next call.
    pub fn plan(&mut self, blocks: u64, view: &View, plan: &mut Plan) -> Nanos {
        let failed = std::mem::take(&mut self.failed);
        if self.dirty == 0 || failed {
            self.busy = false;
            return view.now + SELDOM;
        }
        let mark = if self.busy && !self.only_forced { self.low } else { self.high };
        self.busy = self.dirty as f64 > blocks as f64 * mark;
        let are_guests_gone = view.now >= self.last_request + IDLE;
        let is_idle = !self.only_forced && are_guests_gone;
        if !self.busy && !is_idle {
            return view.now + if are_guests_gone { SELDOM } else { OFTEN };
        }
        self.full &= self.busy && !is_idle;
        let runs = if self.full { RUNS_PLANNED_FULL } else { RUNS_PLANNED };
        plan.moves.extend(self.next_ranges(runs, view).map(|range| Move::WriteBack { range }));
        if self.full {
            let disks = view.devices.iter().filter(|device| device.class == DeviceClass::Hdd);
            disks.for_each(|disk| plan.limit(disk.id, SHARE_FULL));
        }
        view.now
    }

    /// Returns the next runs in the order of addresses, neighbours as one range.
    fn next_ranges(&mut self, most: usize, view: &View) -> impl Iterator<Item = ByteRange> + use<> {
        let runs = self.runs.range(self.next..).chain(self.runs.range(..self.next));
        let runs: Vec<u64> = runs.map(|(&run, _)| run).take(most).collect();
        self.next = runs.last().map_or(0, |last| last + 1);
        let len = view.block_size * RUN;
        let beside = runs.chunk_by(|a, b| a + 1 == *b);
        let ranges: Vec<ByteRange> =
            beside.map(|runs| ByteRange::new(len * runs[0], len * runs.len() as u64)).collect();
        ranges.into_iter()
    }

    /// Bytes of memory used, about: a node of the tree has room for eleven runs, and is usually at least half
    /// full.
    pub fn memory(&self) -> usize {
        self.runs.len() * 2 * size_of::<(u64, u16)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceView, Homes};
    use braid_base::{Bytes, DeviceId, ExtentId};

    struct Nothing;
    impl Homes for Nothing {
        fn extents(&self) -> u32 {
            0
        }

        fn home(&self, _: ExtentId) -> Option<DeviceId> {
            None
        }
    }

    /// A full cache was switched to a mode without new dirty blocks. No guest's write checked for room any
    /// more, and the rest was written back in a tenth of the disks' time.
    #[test]
    fn write_back_share_is_unlimited_without_new_dirty_blocks() {
        let devices = [DeviceView::empty(DeviceId(0), DeviceClass::Hdd, 100)];
        let (now, homes) = (Nanos::ZERO, &Nothing);
        let view =
            View { now, extent_size: Bytes(128 << 10), block_size: Bytes(4096), devices: &devices, homes };
        let mut write_back = WriteBack::usual();
        let blocks = 100 * RUN;
        (0..blocks).for_each(|block| write_back.add(BlockId(block)));
        assert!(!write_back.has_room(blocks));
        let planned = |write_back: &mut WriteBack| {
            let mut plan = Plan::default();
            write_back.plan(blocks, &view, &mut plan);
            let bytes = plan.moves.iter().map(|planned| match planned {
                Move::WriteBack { range } => range.len().0,
                other => panic!("{other:?}"),
            });
            (plan.share(DeviceId(0)), bytes.sum::<u64>() / (RUN * 4096))
        };
        assert_eq!(planned(&mut write_back), (Some(SHARE_FULL), RUNS_PLANNED_FULL as u64));
        write_back.keep_dirty(false);
        assert_eq!(planned(&mut write_back), (None, RUNS_PLANNED as u64));
    }
}
