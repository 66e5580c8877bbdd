//! `exclusive`: an SSD tier for the busiest pages, and an SSD cache for data on the disks only. Also
//! `inclusive`, the paper's baseline for comparison.
//!
//! Hayashi and Komoda, "Evaluation of Exclusive Data Allocation Between SSD Tier and SSD Cache in Storage
//! Systems" (ICEIS 2014). The paper's segment is the volume's block, its page a run of extents, and its two
//! tiers are homes on SSDs and on disks.
//!
//! | what the paper says | where |
//! |---|---|
//! | 2.2: pages are ranked by their I/Os in a period; the first N h belong to the SSD tier: formula (1) | `ranking.rs` |
//! | 2.2: "when NewTier_i is different from the current tier", the page is migrated; 4.3: at 10 % of the disk's transfer rate | `migration.rs` |
//! | 4.3: the SSD cache rate, the share of the SSDs for the cache | `split.rs`, `cache` |
//! | 2.3: a segment that was asked for once is stored; the least recently used is purged | `caching/` |
//! | 2.3: a write is stored in the cache, and written to its tier when it is purged | `place_write`, `write_back_purged` |
//! | 3: "only the data allocated on the HDD tier are allocated to the SSD cache" | `admit` |
//! | 3: when data are purged, "data on the SSD tier on a priority basis"; nothing is purged when its page migrates | `evict` |
//! | 2.4: the combination, whose cache also holds what lies on the SSD tier | `inclusive` |
//!
//! Volume tiering alone is `cache=0%`, and the SSD cache alone `cache=100%`.
//!
//! Deviations that are necessary:
//! - No guest waits for a purge. Dirty blocks next in the order of purging are written back when earlier
//!   blocks are purged, and a write that finds no room goes to its tier.
//! - A new extent goes to the SSD tier as long as the tier has room. In the paper all pages exist from the
//!   beginning.
//! - Dirty blocks of an extent that has migrated to the SSD tier are written back soon: dirty blocks could
//!   not be purged first.
//! - A write to the SSD tier drops the written blocks from the cache: an update of the cached copy would be a
//!   second write to the SSDs.
//! - There is no write-back DRAM cache in front (2.4, 4.2): a volume's memory cache is written through.
//!
//! The paper is silent on the place of counting: I/Os are counted above the SSD cache and below the memory
//! cache, by extent.
//!
//! Deviations by choice, unless `as-published` is set:
//! - Pages without a request in a period are not migrated to the SSD tier even if the tier has room: a
//!   migration would cost and gain nothing (`fill=asked`).
//! - Dirty blocks are written back ahead of need, because a guest would wait for the disk
//!   (`dirty-until=mark`).
//! - Long streams and writes of a part of a block are left to the disks (`bypass`, `part-writes`).

mod migration;
mod ranking;
mod split;

use crate::caching::{Admission, Eviction, LOOKED_AT, WriteBack};
use crate::{
    BadSetting, DeviceView, ExtraCopy, LONGEST_STATE, Move, Occasion, Outcome, Piece, Placement, Plan,
    Policy, Request, Settings, View,
};
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, GIB, KIB, Nanos};
use migration::{Migration, TICK};
use ranking::{Fill, Ranking};
use split::Split;
use std::collections::VecDeque;
use std::ops::Range;

/// The policy: tier and cache on the same SSDs.
pub struct Exclusive {
    constants: Constants,
    split: Split,
    ranking: Ranking,
    migration: Migration,
    admission: Admission,
    eviction: Eviction,
    write_back: WriteBack,
    /// By device: blocks of extents that have migrated to the SSD tier and may still be cached. Each block is
    /// examined once.
    moved: Vec<VecDeque<Range<u64>>>,
    /// Extents that have just migrated to the SSD tier, or been written back after a migration.
    arrived: Vec<ExtentId>,
    /// Migrated extents with dirty blocks still to be written back.
    unclean: Vec<ExtentId>,
    /// Extents whose write-back the last plan requested: done by the next plan.
    cleaned: Vec<ExtentId>,
    /// Purges since the last plan, by device.
    purged: Vec<usize>,
}

/// The constants of the policy, each with its default.
struct Constants {
    /// True if the cache also holds blocks of the SSD tier.
    inclusive: bool,
    /// True if writes are stored in the cache.
    writes_back: bool,
    /// True if dirty blocks are written back only when purged.
    until_purge: bool,
    page: Bytes,
    period: Nanos,
    rate: Bytes,
}

/// The policy as published.
const AS_PUBLISHED: &str =
    "page=10MB,period=1h,rate=12MB,fill=all,mode=write-back,dirty-until=purge,bypass=off,part-writes=cache";
/// Extents written back in one plan.
const AT_ONCE: usize = 64;
/// Maximum number of runs of migrated blocks for a device: 1 MiB of memory. The oldest runs are forgotten
/// first, and their blocks purged in the usual order.
const MOST_MOVED: usize = 1 << 16;

impl Exclusive {
    /// Returns the policy `exclusive` or `inclusive`. Settings:
    /// - `cache` (20%): share of the SSDs for the cache.
    /// - `page` (10MB) and `period` (1h).
    /// - `rate` (12MB): bytes that migrate each second from and to each disk, a tenth of the transfer rate of
    ///   disks of the paper's time.
    /// - `fill` (asked; or all): pages that the SSD tier takes.
    /// - `mode` (write-back; or write-through).
    /// - With mode=write-back `dirty-until` (mark; or purge) and, until a mark, the settings of
    ///   [`WriteBack`].
    /// - The settings of [`Admission`] and [`Eviction`].
    /// - `as-published`: sets them as in the paper.
    ///
    /// Fails on a bad setting, and without an SSD or a disk.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Exclusive, BadSetting> {
        let inclusive = settings.name() == "inclusive";
        let name = if inclusive { "inclusive" } else { "exclusive" };
        for class in [DeviceClass::Ssd, DeviceClass::Hdd] {
            if DeviceView::of_class(devices, class).next().is_none() {
                return Err(BadSetting::new(format!(
                    "policy {name} needs a device of class {class}, and the volume has none: use another policy"
                )));
            }
        }
        settings.take_preset("as-published", AS_PUBLISHED)?;
        let cache = settings.take_share("cache")?.unwrap_or(0.2);
        let writes_back = match settings.take_text("mode").as_deref() {
            None | Some("write-back") => true,
            Some("write-through") => false,
            Some(other) => return Err(settings.bad("mode", other, "write-back or write-through")),
        };
        let until_purge = writes_back && takes_until_purge(settings)?;
        let write_back = match (writes_back, until_purge) {
            (true, false) => WriteBack::take(settings)?,
            (true, true) => WriteBack::never(),
            (false, _) => WriteBack::all(),
        };
        let fills = match settings.take_text("fill").as_deref() {
            None | Some("asked") => Fill::Asked,
            Some("all") => Fill::All,
            Some(other) => return Err(settings.bad("fill", other, "asked or all")),
        };
        let longest = Nanos::from_secs(3600 * 24 * 365);
        let constants = Constants {
            inclusive,
            writes_back,
            until_purge,
            page: settings.take_bytes("page", Bytes(10_000_000), KIB * 4..=GIB * 1024)?,
            period: settings.take_time("period", Nanos::from_secs(3600), Nanos::from_millis(10)..=longest)?,
            rate: settings.take_bytes("rate", Bytes(12_000_000), KIB..=GIB * 1024)?,
        };
        let mut admission = Admission::take(settings)?.with_filter(settings)?;
        if writes_back {
            admission = admission.with_writes(settings)?;
        }
        let mut eviction = Eviction::take(settings, devices.len())?;
        if until_purge {
            eviction = eviction.with_dirty(settings)?;
        }
        Ok(Exclusive {
            split: Split::new(cache, devices),
            ranking: Ranking::new(constants.page, constants.period, fills),
            migration: Migration::new(constants.rate, devices.len()),
            admission,
            eviction,
            write_back,
            moved: vec![VecDeque::new(); devices.len()],
            arrived: Vec::new(),
            unclean: Vec::new(),
            cleaned: Vec::new(),
            purged: vec![0; devices.len()],
            constants,
        })
    }

    /// Returns the device for a new extent: on the SSD tier as long as the tier has room. `None` if all
    /// devices are full.
    fn place_new(&self, extent: ExtentId, view: &View) -> Option<DeviceId> {
        let room: Vec<i64> = view.devices.iter().map(|device| self.split.room(device, view)).collect();
        let target = |class| self.split.target(self.ranking.page_of(extent), class, &room);
        target(DeviceClass::Ssd).or_else(|| target(DeviceClass::Hdd))
    }

    fn place_read(&mut self, read: &Piece, view: &View) -> Placement<'static> {
        let admitted = self.admission.admits(read);
        self.eviction.used(read, view);
        let goes = admitted
            && self.caches(view.homes.home(read.extent))
            && self.admission.lets_in(read, self.split.cache.blocks(view), view);
        Placement::cached(goes.then(|| self.split.cache.next_ssd()))
    }

    fn place_write(&mut self, write: &Piece, view: &View) -> Placement<'static> {
        if self.admission.passes_by(write) {
            return Placement::ALONE;
        }
        let home = view.homes.home(write.extent);
        match self.write_to(write, home, view) {
            Some(ssd) => Placement::write_back(ssd),
            None if self.caches(home) => Placement::KEEP,
            // The cache no longer serves the extent: an update of the cached copy would be a second write to
            // the SSDs.
            None => Placement::ALONE,
        }
    }

    /// Returns the SSD that takes a write as a dirty copy, if any.
    fn write_to(&mut self, write: &Piece, home: Option<DeviceId>, view: &View) -> Option<DeviceId> {
        let admitted = self.admission.admits_write(write, view);
        self.eviction.used(write, view);
        let blocks = self.split.cache.blocks(view);
        let goes = self.constants.writes_back
            && admitted
            && self.caches(home)
            && self.admission.lets_in(write, blocks, view);
        let mut has_room = || self.write_back.has_room(blocks);
        (goes && (self.constants.until_purge || has_room())).then(|| self.split.cache.next_ssd())
    }

    /// True if the cache serves an extent with the given home: a home on a disk, or any home under
    /// `inclusive`.
    fn caches(&self, home: Option<DeviceId>) -> bool {
        let admits = |home| self.constants.inclusive || self.split.is_disk(home);
        self.split.cache.share() > 0.0 && home.is_some_and(admits)
    }

    /// Section 2.3: a purge "writes the cached data onto the SSD or HDD tier". The engine purges only clean
    /// copies, so the next dirty copies in the order are written back after other copies were purged.
    fn write_back_purged(&mut self, view: &View, moves: &mut Vec<Move>) {
        for (place, purged) in self.purged.iter_mut().enumerate() {
            let most = match std::mem::take(purged) {
                0 => continue,
                // At least as many as a search for a clean block looks at.
                purged => (purged * 2).max(LOOKED_AT),
            };
            let next = self.eviction.next_dirty(DeviceId(place as u16), most, view);
            moves.extend(next.into_iter().map(|block| Move::WriteBack { range: view.range_of_block(block) }));
        }
    }

    /// Returns a clean cached block with its home on the SSD tier.
    fn first_moved(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.purge_arrived_first(view);
        let moved = &mut self.moved[device.index()];
        for _ in 0..LOOKED_AT {
            let Some(block) = moved.front_mut()?.next().map(BlockId) else {
                moved.pop_front();
                continue;
            };
            let extent = ExtentId((view.range_of_block(block).start / view.extent_size) as u32);
            let is_in_tier = view.homes.home(extent).is_some_and(|home| !self.split.is_disk(home));
            let is_clean = |copy: ExtraCopy| copy.device == device && !copy.dirty;
            if is_in_tier && view.homes.extra(block).is_some_and(is_clean) {
                return Some(block);
            }
        }
        None
    }

    /// Queues the cached blocks of extents that have reached the SSD tier for purging first. Blocks dirty now
    /// are examined again after their write-back.
    fn purge_arrived_first(&mut self, view: &View) {
        for extent in self.arrived.drain(..) {
            let range = view.range_of_extent(extent);
            let blocks = range.start / view.block_size..range.end.0.div_ceil(view.block_size.0);
            for moved in &mut self.moved {
                moved.push_back(blocks.clone());
                if moved.len() > MOST_MOVED {
                    moved.pop_front();
                }
            }
        }
    }
}

impl Policy for Exclusive {
    fn name(&self) -> &'static str {
        if self.constants.inclusive { "inclusive" } else { "exclusive" }
    }

    fn settings(&self) -> String {
        let Constants { writes_back, until_purge, page, period, rate, .. } = &self.constants;
        let mode = if *writes_back { "write-back" } else { "write-through" };
        let cache = self.split.cache.share() * 100.0;
        let (page, period, rate) = (page.0, period.0 / 1_000_000, rate.0);
        let fill = if self.ranking.fills() == Fill::All { ",fill=all" } else { "" };
        let own = format!("cache={cache}%,page={page}B,period={period}ms,rate={rate}B{fill},mode={mode}");
        let write_back = match (*writes_back, *until_purge) {
            (true, false) => self.write_back.settings(),
            (true, true) => vec!["dirty-until=purge".to_owned()],
            (false, _) => Vec::new(),
        };
        let shared = write_back.into_iter().chain(self.eviction.settings()).chain(self.admission.settings());
        [own].into_iter().chain(shared).collect::<Vec<_>>().join(",")
    }

    fn observes(&self) -> bool {
        self.constants.writes_back
    }

    fn observe(&mut self, request: &Request, _: &View) {
        self.admission.observe(request);
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        self.write_back.requested(view.now);
        match occasion {
            Occasion::New { extent, write } => {
                if write.is_some() {
                    self.ranking.count(*extent);
                }
                let Some(home) = self.place_new(*extent, view) else { return Placement::KEEP };
                let write = write.as_ref().filter(|write| !self.admission.passes_by(write));
                let ssd = write.and_then(|write| self.write_to(write, Some(home), view));
                Placement::on(home).with_extra(ssd)
            }
            Occasion::Write(piece) => {
                self.ranking.count(piece.extent);
                self.place_write(piece, view)
            }
            Occasion::ReadMiss(piece) => {
                self.ranking.count(piece.extent);
                self.place_read(piece, view)
            }
            Occasion::ReadHit(piece) => {
                self.eviction.used(piece, view);
                Placement::KEEP
            }
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        self.split.cache.slots(device)
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.purged[device.index()] += 1;
        let first = if self.constants.inclusive { None } else { self.first_moved(device, view) };
        first.or_else(|| self.eviction.victim(device, view))
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.eviction.changed(block, before, now);
        self.write_back.changed(block, before, now);
        self.split.changed(before, now);
    }

    /// Ranks pages when due, then plans write-backs and migrations.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let capacity = |on_ssd| self.split.tier_capacity(on_ssd, view);
        if let Some(changes) = self.ranking.advance(view, capacity) {
            self.migration.begin(changes);
        }
        self.arrived.append(&mut self.cleaned);
        self.purge_arrived_first(view);
        self.cleaned.extend(self.unclean.drain(..self.unclean.len().min(AT_ONCE)));
        let unclean =
            self.cleaned.iter().map(|&extent| Move::WriteBack { range: view.range_of_extent(extent) });
        plan.moves.extend(unclean);
        let next =
            self.write_back.plan(self.split.cache.blocks(view), view, plan).min(self.ranking.due(view));
        if self.constants.until_purge {
            self.write_back_purged(view, &mut plan.moves);
        }
        self.migration.plan(&self.ranking, &self.split, view, &mut plan.moves);
        match self.migration.pages() + self.unclean.len() {
            0 => next,
            _ => next.min(view.now + TICK),
        }
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        let Move::Migrate { extent, target } = *job else { return self.write_back.done(outcome) };
        match outcome {
            Outcome::Finished if !self.constants.inclusive && !self.split.is_disk(target) => {
                self.arrived.push(extent);
                self.unclean.push(extent);
            }
            Outcome::Finished => {}
            Outcome::Stopped | Outcome::Failed => {
                let to = if self.split.is_disk(target) { DeviceClass::Hdd } else { DeviceClass::Ssd };
                self.migration.stopped(self.ranking.page_of(extent), to);
            }
        }
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let page = self.ranking.page_of(extent);
        let (last, now) = self.ranking.requests(page);
        let (in_tier, home) = (self.ranking.is_in_tier(page), view.homes.home(extent));
        let next = match home.map(|home| (home, self.split.is_disk(home))) {
            None => {
                "the next write allocates it: on the SSD tier if that has room, else on a disk".to_owned()
            }
            Some((home, true)) if in_tier => format!("its home is on {home} and migrates to the SSD tier"),
            Some((home, false)) if !in_tier => format!("its home is on {home} and migrates to a disk"),
            Some((home, true)) => format!("its home is on {home}, and its requested blocks are cached"),
            Some((home, false)) => {
                format!("its home is on {home} and stays while the rank of its page is as high")
            }
        };
        format!(
            "page {page} had {last} request(s) in the last period and {now} in this one; {} page(s) belong to the SSD tier, this one {}; \
             {} page(s) migrate; {} block(s) are cached, {} of them dirty; {next}",
            self.ranking.tier(),
            if in_tier { "among them" } else { "not" },
            self.migration.pages(),
            self.eviction.len(),
            self.write_back.dirty()
        )
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        if self.split.is_disk(device) {
            return Vec::new();
        }
        vec![
            ("tier_pages", self.ranking.tier() as f64),
            ("migrating_pages", self.migration.pages() as f64),
            ("cached_blocks", self.eviction.len() as f64),
        ]
    }

    fn memory(&self) -> usize {
        self.ranking.memory() + self.admission.memory() + self.eviction.memory() + self.write_back.memory()
    }

    /// Saves the length of the ranking's state (4 bytes, little-endian), the state, and the order of eviction
    /// in the remaining room.
    fn save(&self, view: &View) -> Vec<u8> {
        let ranking = self.ranking.save(view.now, LONGEST_STATE.as_usize() / 2);
        let mut state = (ranking.len() as u32).to_le_bytes().to_vec();
        state.extend(ranking);
        state.extend(self.eviction.save(view));
        state.truncate(LONGEST_STATE.as_usize());
        state
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        let Some((len, rest)) = state.split_first_chunk() else { return };
        let Some((ranking, eviction)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else {
            return;
        };
        self.ranking.restore(ranking, view);
        self.eviction.restore(eviction, view);
    }
}

/// True if blocks stay dirty until purged, false if until a mark of the cache is reached.
fn takes_until_purge(settings: &mut Settings) -> Result<bool, BadSetting> {
    match settings.take_text("dirty-until").as_deref() {
        None | Some("mark") => Ok(false),
        Some("purge") => Ok(true),
        Some(other) => Err(settings.bad("dirty-until", other, "mark or purge")),
    }
}
