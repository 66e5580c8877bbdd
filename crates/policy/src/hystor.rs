//! `hystor`: the SSDs hold the blocks that cost most on the disks, file-system metadata and fresh writes.
//!
//! Chen, Koufaty, Zhang, "Hystor: Making the Best Use of Solid State Drives in High Performance Storage
//! Systems" (ICS 2011), as presented: the paper itself was not available, so headings of the talk are cited.
//!
//! | the talk | here |
//! |---|---|
//! | "Main Architecture": the monitor | [`Policy::observe`] and `hystor/block_table.rs` |
//! | "Representing Indicator Metric": b = 2^max(0, 7 − ⌊log2 N⌋) for a request of N sectors, a measure of frequency / request size | `block_table::inverse_bitmap` |
//! | "A pseudo code of identifying candidate blocks" | `hystor/candidates.rs` |
//! | "Managing the Remap Area": high-cost blocks, moved by the data mover, asynchronously | `hystor/mover.rs` |
//! | a write to a block in the remap area goes to the SSD | [`Hystor::place_write`] |
//! | "Identifying Metadata Blocks": marked in the flag field of their table entries, and remapped at an early stage | `hystor/metadata.rs`, [`Hystor::admit`] |
//! | "Managing the Write-back Area": two lists and two water marks | `hystor/areas.rs`, `caching/write_back.rs` |
//! | "All other requests are directed to the HDD" | homes are on disks, at their own order |
//! | "Chunk size" 4 or 16 KiB | the volume's block size (`braid create --block 16KiB`) |
//!
//! The talk leaves open, and Braid does:
//! - A search begins every `period` and chooses as many blocks as the remap area holds (`quota`). Blocks
//!   chosen earlier stay until room is needed. The block whose last choice is oldest leaves first.
//! - The data mover reads the chosen blocks in the order of addresses.
//! - When the write-back area is full, a write of which only a part lies on the SSD goes to the disk, and the
//!   part on the SSD is brought up to date. The disk gets one request either way.
//! - Metadata has at most half of the remap area.
//! - The block table has bounded memory (`memory`) and drops its coldest regions. The talk keeps the table on
//!   the SSD and loads pages into memory on demand.
//! - Dirty blocks are written back in the order of addresses, and all of them after one second without a
//!   guest's request. A dirty block of the remap area is written back when it leaves the area. Until then a
//!   lost SSD loses the block, as published.
//! - After a restart no copy's area is known. Clean copies count as high-cost blocks and dirty copies as
//!   blocks of the write-back area; searches then correct the areas.
//!
//! Deviations by choice, unless `as-published` is set:
//! - Long streams and writes of a part of a block are left to the disk (`bypass`, `part-writes`).
//! - While guests use a disk, the data mover has `budget` of the disk's time. The budget is small because a
//!   guest may read or write a chosen block first, and the data mover's read is then saved. With 20 % a scan
//!   took a fifth longer than on the disk alone.

mod areas;
mod block_table;
mod candidates;
mod metadata;
mod mover;
mod save;
mod settings;
mod structures;

use crate::caching::{Admission, WriteBack};
use crate::{
    BadSetting, ByteRange, DeviceView, ExtraCopy, Move, Occasion, Outcome, Piece, Placement, Plan, Policy,
    Request, Settings, View,
};
use areas::{Areas, List};
use block_table::BlockTable;
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, Nanos, Op, SECTOR, TIB};
use candidates::Search;
use settings::{AS_PUBLISHED, Constants};
use std::collections::VecDeque;
use structures::{Scan, Structures};

/// High-cost blocks, metadata and fresh writes on the SSDs; homes on the disks.
pub struct Hystor {
    settings: Constants,
    ssds: Vec<DeviceId>,
    /// Made with the first request: the size of the volume is unknown before.
    table: Option<BlockTable>,
    areas: Areas,
    admission: Admission,
    search: Option<Search>,
    /// Blocks that the search chose in a sub-region.
    chosen: Vec<BlockId>,
    /// None before the first plan.
    next_search: Option<Nanos>,
    /// Number of the last search, from 1 to 255 and again from 1: the mark of the blocks chosen by the
    /// search.
    round: u8,
    /// Chosen ranges without a copy on an SSD yet, in the order of addresses.
    queue: VecDeque<ByteRange>,
    /// Requests of guests since the last search began.
    requests: u64,
    searches: u64,
    /// Ranges of file-system metadata.
    structures: Structures,
    scan: Option<Scan>,
    next_scan: Nanos,
}

/// Flag of a block: holds metadata of a file system.
const METADATA: u16 = 1;
/// Lowest bit of the round in a block's flags: the round of the last search that chose the block.
const ROUND: u32 = 8;
/// Time between two looks at the water marks. A fast SSD fills the quarter above the high mark, of 20 % of 32
/// GB, in seconds.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);

impl Hystor {
    /// Returns the policy with the given settings; `hystor/settings.rs` lists their defaults. Fails on a bad
    /// setting, and without an SSD or a disk.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Hystor, BadSetting> {
        settings.take_preset("as-published", AS_PUBLISHED)?;
        let admission = Admission::take(settings)?.with_writes(settings)?;
        let settings = Constants::read(settings)?;
        let of_class = |class| DeviceView::of_class(devices, class).map(|d| d.id);
        let ssds: Vec<DeviceId> = of_class(DeviceClass::Ssd).collect();
        for (lacking, what) in
            [(ssds.is_empty(), "an SSD"), (of_class(DeviceClass::Hdd).count() == 0, "a disk")]
        {
            if lacking {
                let text = format!("policy hystor needs {what}, and the volume has none: use another policy");
                return Err(BadSetting::new(text));
            }
        }
        Ok(Hystor {
            settings,
            ssds,
            table: None,
            areas: Areas::new(
                devices.len(),
                settings.write_back,
                WriteBack::between(settings.low, settings.high),
            ),
            admission,
            search: None,
            chosen: Vec::new(),
            next_search: None,
            round: 0,
            queue: VecDeque::new(),
            requests: 0,
            searches: 0,
            structures: Structures::default(),
            scan: None,
            next_scan: Nanos::ZERO,
        })
    }

    fn table(&mut self, view: &View) -> &mut BlockTable {
        self.table.get_or_insert_with(|| {
            let volume = view.extent_size * u64::from(view.homes.extents());
            let tebibytes = volume.align_up(TIB) / TIB;
            BlockTable::new(blocks_of(view), self.settings.memory * tebibytes)
        })
    }

    fn is_metadata(&self, block: BlockId) -> bool {
        self.settings.metadata && self.flags(block) & METADATA != 0
    }

    fn flags(&self, block: BlockId) -> u16 {
        self.table.as_ref().map_or(0, |table| table.flags(block))
    }

    /// True if a block belongs into the remap area.
    fn is_wanted(&self, block: BlockId) -> bool {
        let flags = self.flags(block);
        self.settings.metadata && flags & METADATA != 0
            || self.round > 0 && flags >> ROUND == u16::from(self.round)
    }

    /// Places the home of a new extent on the disk with most room.
    fn place_new(&mut self, write: Option<&Piece>, view: &View) -> Placement<'static> {
        let disks = view.with_room().filter(|d| d.class == DeviceClass::Hdd);
        let Some(disk) = disks.max_by_key(|d| d.free) else { return Placement::KEEP };
        let write = write.filter(|write| !self.admission.passes_by(write));
        Placement::on(disk.id).with_extra(write.and_then(|write| self.write_to(write, view)))
    }

    fn place_write(&mut self, write: &Piece, view: &View) -> Placement<'static> {
        if self.admission.passes_by(write) {
            return Placement::ALONE;
        }
        match self.write_to(write, view).filter(|_| self.is_on_disk(write.extent, view)) {
            Some(ssd) => Placement::write_back(ssd),
            None => Placement::KEEP,
        }
    }

    /// Returns the SSD for a write: for blocks already on an SSD, for metadata, or if the write-back area has
    /// room. All other writes go to the disk.
    fn write_to(&mut self, write: &Piece, view: &View) -> Option<DeviceId> {
        if !self.admission.admits_write(write, view) {
            return None;
        }
        let room = |d: &DeviceId| {
            let size = self.areas.write_back_size(&view.devices[d.index()], view);
            size.saturating_sub(self.areas.count(*d, List::Dirty))
        };
        let roomiest = self.ssds.iter().copied().max_by_key(room).expect("there is an SSD");
        let has_room = self.areas.write_back.has_room(self.write_back_size(view));
        let is_on_ssd = |block| view.homes.extra(block).is_some();
        if has_room || write.touched().all(is_on_ssd) {
            return Some(roomiest);
        }
        let is_metadata = write.touched().all(|block| self.is_metadata(block));
        if is_metadata { self.take_room(write, view) } else { None }
    }

    /// Returns the SSD that gets a copy of the blocks read, if all of the blocks belong into the remap area
    /// or are on an SSD already.
    fn admit(&mut self, read: &Piece, view: &View) -> Option<DeviceId> {
        if !self.admission.admits(read) {
            return None;
        }
        let is_on_ssd = |block| view.homes.extra(block).is_some();
        let is_admitted = read.touched().all(|block| self.is_wanted(block) || is_on_ssd(block))
            && !read.touched().all(is_on_ssd)
            && self.is_on_disk(read.extent, view);
        if is_admitted { self.take_room(read, view) } else { None }
    }

    /// Returns an SSD after making room for a piece in its remap area. `None` if the room cannot be made.
    fn take_room(&mut self, piece: &Piece, view: &View) -> Option<DeviceId> {
        let device = self.roomiest_remap_area(view);
        self.areas.make_room(&view.devices[device.index()], piece.blocks, view).then_some(device)
    }

    fn roomiest_remap_area(&self, view: &View) -> DeviceId {
        let room = |d: &DeviceId| {
            let size = self.areas.remap_size(&view.devices[d.index()], view);
            size.saturating_sub(self.areas.remapped(*d))
        };
        self.ssds.iter().copied().max_by_key(room).expect("there is an SSD")
    }

    /// Number of blocks that the write-back areas of all SSDs hold.
    fn write_back_size(&self, view: &View) -> u64 {
        let size = |d: &DeviceId| u64::from(self.areas.write_back_size(&view.devices[d.index()], view));
        self.ssds.iter().map(size).sum()
    }

    fn is_on_disk(&self, extent: ExtentId, view: &View) -> bool {
        view.homes.home(extent).is_some_and(|home| !self.ssds.contains(&home))
    }

    /// Evicts copies beyond the remap area's size from the area.
    fn keep_to_size(&mut self, device: DeviceId, view: &View) {
        self.areas.make_room(&view.devices[device.index()], 0, view);
    }
}

impl Policy for Hystor {
    fn name(&self) -> &'static str {
        "hystor"
    }

    fn settings(&self) -> String {
        let shared = self.admission.settings().into_iter();
        [self.settings.to_string()].into_iter().chain(shared).collect::<Vec<_>>().join(",")
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, request: &Request, view: &View) {
        self.admission.observe(request);
        if !matches!(request.op, Op::Read | Op::Write) || request.range.is_empty() {
            return;
        }
        self.requests += 1;
        self.areas.write_back.requested(view.now);
        let size = view.block_size;
        let first = BlockId(request.range.start / size);
        let blocks = request.range.end.align_up(size) / size - first.0;
        let sectors = request.range.len().align_up(SECTOR) / SECTOR;
        self.table(view).access(first, blocks, sectors);
        if self.settings.metadata {
            self.note_request(request, view);
        }
    }

    /// Always true: no move changes a home, and a home on a disk is not placed again.
    fn keeps_homes(&self) -> bool {
        true
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { write, .. } => self.place_new(write.as_ref(), view),
            Occasion::Write(piece) => self.place_write(piece, view),
            Occasion::ReadHit(_) => Placement::KEEP,
            Occasion::ReadMiss(piece) => Placement::cached(self.admit(piece, view)),
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.next_search.get_or_insert(view.now + self.settings.period);
        self.search(view);
        self.look_for_structures(view, plan);
        let (size, before) = (self.write_back_size(view), plan.moves.len());
        let next = self.areas.write_back.plan(size, view, plan);
        let is_writing_back = plan.moves.len() > before;
        if !is_writing_back && self.search.is_none() {
            self.promote(view, plan);
        }
        let is_going_on = is_writing_back || self.search.is_some() || self.scan.is_some();
        if is_going_on { view.now + Nanos::from_millis(1) } else { next.min(view.now + LOOK_EVERY) }
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        if let Move::WriteBack { .. } = job {
            self.areas.write_back.done(outcome);
        }
        match (job, outcome, &mut self.scan) {
            (Move::Promote { range, .. }, Outcome::Stopped, _) => self.queue.push_back(*range),
            (Move::Inspect { range }, Outcome::Failed, Some(scan)) => scan.leave_out(*range),
            _ => {}
        }
    }

    fn inspected(&mut self, range: ByteRange, bytes: &[u8], _: &View) {
        if let Some(scan) = &mut self.scan {
            scan.take(range, bytes);
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.class == DeviceClass::Ssd { device.slots } else { 0 }
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        view.homes.block_in(self.areas.evict(device, view)?)
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        let was = before.and_then(|copy| self.areas.list_of(copy.cell));
        if let Some(copy) = before.filter(|copy| now.is_none_or(|now| now.cell != copy.cell)) {
            self.areas.remove(block, copy);
        }
        let Some(copy) = now else { return };
        let list = match was {
            Some(list @ (List::HighCost | List::Metadata)) if self.areas.list_of(copy.cell).is_none() => list,
            Some(List::HighCost | List::Metadata) => return,
            _ if before.is_none() && self.is_metadata(block) => List::Metadata,
            None if before.is_none() && !copy.dirty => List::HighCost,
            _ if copy.dirty => List::Dirty,
            _ => List::Clean,
        };
        self.areas.put(block, copy, list);
    }

    fn uses(&self, device: &DeviceView) -> bool {
        device.class == DeviceClass::Hdd
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let (mut high_cost, mut metadata, mut clean, mut dirty, mut highest) = (0, 0, 0, 0, 0);
        for block in view.blocks_of(view.range_of_extent(extent)) {
            highest = highest.max(self.table.as_ref().map_or(0, |table| table.counter(block)));
            let list = view.homes.extra(block).and_then(|copy| self.areas.list_of(copy.cell));
            match list {
                Some(List::HighCost) => high_cost += 1,
                Some(List::Metadata) => metadata += 1,
                Some(List::Clean) => clean += 1,
                Some(List::Dirty) => dirty += 1,
                None => {}
            }
        }
        let home = match view.homes.home(extent) {
            None => "the first write allocates its home on a disk".to_owned(),
            Some(home) => format!("its home is on {home}"),
        };
        format!(
            "{home}; of its blocks {high_cost} high-cost and {metadata} metadata block(s) are in the remap area, {clean} clean and \
             {dirty} dirty one(s) in the write-back area; the highest counter of a block is {highest}, and search {} \
             follows within {} ms",
            self.searches + 1,
            self.settings.period.0 / 1_000_000
        )
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        if !self.ssds.contains(&device) {
            return Vec::new();
        }
        let count = |list| f64::from(self.areas.count(device, list));
        let queued = self.queue.iter().fold(Bytes::ZERO, |sum, range| sum + range.len());
        vec![
            ("high_cost_blocks", count(List::HighCost)),
            ("metadata_blocks", count(List::Metadata)),
            ("write_back_clean_blocks", count(List::Clean)),
            ("write_back_dirty_blocks", count(List::Dirty)),
            ("waiting_bytes", queued.0 as f64),
            ("searches", self.searches as f64),
            ("structures_bytes", self.structures.bytes().0 as f64),
            ("block_table_bytes", self.table.as_ref().map_or(0, BlockTable::memory) as f64),
        ]
    }

    fn memory(&self) -> usize {
        let table = self.table.as_ref().map_or(0, BlockTable::memory);
        table
            + self.areas.memory()
            + self.structures.memory()
            + self.queue.capacity() * size_of::<ByteRange>()
    }

    fn save(&self, _: &View) -> Vec<u8> {
        self.table.as_ref().map_or_else(Vec::new, save::save)
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        let blocks = blocks_of(view);
        save::restore(self.table(view), state, blocks);
    }
}

/// Number of blocks of the volume.
fn blocks_of(view: &View) -> u64 {
    view.extent_size * u64::from(view.homes.extents()) / view.block_size
}
