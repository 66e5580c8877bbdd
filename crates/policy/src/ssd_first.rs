//! `ssd-first`: fill the SSDs, then the disks; once the SSDs are full, cache reads from the disks on them.
//!
//! The first of the two systems that Wu and Reddy compare with (section II): capacity on the SSD is allocated first, and
//! caching on the SSD begins when that is exhausted. The paper does not say where the cache finds room on a full SSD:
//! here a share of its slots (`cache`) is kept for it. Blocks are admitted at the first read, written through, and
//! evicted least recently used first.

use crate::{
    BadSetting, CellLists, DeviceView, ExtraCopy, LONGEST_STATE, Occasion, Piece, Placement, Plan, Policy,
    Settings, View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos};
use std::iter;

/// Of what is saved.
const VERSION: u8 = 1;

/// Fill the SSDs first, then cache on them.
pub struct SsdFirst {
    /// Share of an SSD's slots for extra copies.
    cache: f64,
    ssds: Vec<DeviceId>,
    /// The extra copies on each device.
    cached: CellLists,
    /// Which SSD gets the next cached block.
    turn: usize,
}

impl SsdFirst {
    /// Settings: `cache` (10%), the share of the SSDs that is kept for caching.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<SsdFirst, BadSetting> {
        let ssds: Vec<DeviceId> =
            devices.iter().filter(|d| d.class == DeviceClass::Ssd).map(|d| d.id).collect();
        if ssds.is_empty() {
            return Err(BadSetting::new(
                "policy ssd-first needs an SSD, and the volume has none: use another policy",
            ));
        }
        let cache = settings.take_share("cache")?.unwrap_or(0.1);
        Ok(SsdFirst { cache, ssds, cached: CellLists::new(devices.len()), turn: 0 })
    }

    /// Blocks that are read, or were before a restart, are the last that the cache gives up.
    fn touch_cached(&mut self, block: BlockId, view: &View) {
        if let Some(copy) = view.homes.extra(block) {
            self.cached.touch_member(copy.device, copy.cell);
        }
    }

    fn has_room_for_homes(&self, device: &DeviceView) -> bool {
        device.free > self.extra_slots(device)
    }

    fn is_ssd(&self, device: DeviceId) -> bool {
        self.ssds.contains(&device)
    }

    /// The device of a new extent.
    fn place_new(&self, view: &View) -> DeviceId {
        let ssds = view.devices.iter().filter(|d| d.class == DeviceClass::Ssd && self.has_room_for_homes(d));
        let disks = view.with_room().filter(|d| d.class == DeviceClass::Hdd);
        let roomiest = ssds.max_by_key(|d| d.free).or_else(|| disks.max_by_key(|d| d.free));
        roomiest.or_else(|| view.with_room().next()).map_or(view.devices[0].id, |d| d.id)
    }

    /// The SSD on which blocks that are read get an extra copy, if they come from a disk and the SSDs are full.
    fn admit(&mut self, read: &Piece, view: &View) -> Option<DeviceId> {
        let home = view.homes.home(read.extent)?;
        let full = view.devices.iter().all(|d| !self.is_ssd(d.id) || !self.has_room_for_homes(d));
        if self.is_ssd(home) || !full || self.cache == 0.0 {
            return None;
        }
        self.turn = (self.turn + 1) % self.ssds.len();
        Some(self.ssds[self.turn])
    }

    fn touch(&mut self, read: &Piece, view: &View) {
        if self.cached.is_empty() {
            return;
        }
        read.touched().for_each(|block| self.touch_cached(block, view));
    }
}

impl Policy for SsdFirst {
    fn name(&self) -> &'static str {
        "ssd-first"
    }

    fn settings(&self) -> String {
        format!("cache={}%", self.cache * 100.0)
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(self.place_new(view)),
            Occasion::Write(_) => Placement::KEEP,
            Occasion::ReadHit(piece) => {
                self.touch(piece, view);
                Placement::KEEP
            }
            Occasion::ReadMiss(piece) => {
                self.touch(piece, view);
                Placement::cached(self.admit(piece, view))
            }
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        match device.class {
            DeviceClass::Ssd => (f64::from(device.slots) * self.cache) as u32,
            DeviceClass::Hdd => 0,
        }
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        view.homes.block_in(self.cached.oldest(device)?)
    }

    fn extra_changed(&mut self, _: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        if let Some(copy) = before {
            self.cached.remove(copy.device, copy.cell);
        }
        if let Some(copy) = now {
            self.cached.touch(copy.device, copy.cell);
        }
    }

    fn plan(&mut self, view: &View, _plan: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(3600)
    }

    fn memory(&self) -> usize {
        self.cached.memory()
    }

    /// A version, then the blocks that were used last on each device, latest first, 8 bytes each.
    fn save(&self, view: &View) -> Vec<u8> {
        let most = (LONGEST_STATE.as_usize() - 1) / size_of::<u64>() / self.ssds.len();
        let of_device = |&device| {
            self.cached.newest_first(device).filter_map(|cell| view.homes.block_in(cell)).take(most)
        };
        let blocks = self.ssds.iter().flat_map(of_device);
        iter::once(VERSION).chain(blocks.flat_map(|block| block.0.to_le_bytes())).collect()
    }

    /// The order in which blocks were used, as far as they are cached still.
    fn restore(&mut self, state: &[u8], view: &View) {
        let Some((&VERSION, blocks)) = state.split_first() else { return };
        let (blocks, _) = blocks.as_chunks();
        blocks.iter().rev().for_each(|&block| self.touch_cached(BlockId(u64::from_le_bytes(block)), view));
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let cached = self.cached.len();
        let room: u32 = view.devices.iter().map(|d| d.free.saturating_sub(self.extra_slots(d))).sum();
        let next = match view.homes.home(extent) {
            None => "the next write allocates it: on an SSD with room, else on a disk",
            Some(home) if self.is_ssd(home) => "it lies on an SSD and stays",
            Some(_) => "it lies on a disk; blocks that are read are cached on an SSD once the SSDs are full",
        };
        format!(
            "{room} slot(s) for homes are free, {:.0} % of each SSD is kept for the cache, {cached} block(s) are \
             cached; {next}",
            self.cache * 100.0
        )
    }
}
