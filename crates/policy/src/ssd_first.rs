//! `ssd-first`: fill the SSDs, then the disks; once the SSDs are full, cache reads from the disks on the
//! SSDs.
//!
//! The first of the two systems compared by Wu and Reddy (section II): capacity on the SSD is allocated
//! first, and caching on the SSD begins when the capacity is exhausted. The paper does not say where the
//! cache finds room on a full SSD: here a share of the slots (`cache`) is reserved. Blocks are admitted at
//! the first read, written through, and evicted least recently used first; `evict=s3-fifo` and `bypass=1MiB`
//! are Braid's own.

use crate::caching::{Admission, Eviction, Room, WriteBack};
use crate::{
    BadSetting, DeviceView, ExtraCopy, Move, Occasion, Outcome, Piece, Placement, Plan, Policy, Settings,
    View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos};

/// Fills the SSDs first, then caches on the SSDs.
pub struct SsdFirst {
    /// Part of the SSDs that homes leave to the cache.
    kept: Room,
    admission: Admission,
    eviction: Eviction,
    /// Write-back of blocks that became dirty under another policy.
    write_back: WriteBack,
}

impl SsdFirst {
    /// Creates the policy. Settings: `cache` (10%), the share of the SSDs reserved for caching, and the
    /// settings of [`Admission`] and [`Eviction`].
    ///
    /// Fails if a setting is invalid, or the volume has no SSD.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<SsdFirst, BadSetting> {
        let kept = Room::new(settings.take_share("cache")?.unwrap_or(0.1), devices);
        if kept.ssds().is_empty() {
            return Err(BadSetting::new(
                "policy ssd-first needs an SSD, and the volume has none: use another policy",
            ));
        }
        let admission = Admission::take(settings)?.with_filter(settings)?;
        let eviction = Eviction::take(settings, devices.len())?;
        Ok(SsdFirst { kept, admission, eviction, write_back: WriteBack::all() })
    }

    fn has_room_for_homes(&self, device: &DeviceView) -> bool {
        device.free > self.extra_slots(device)
    }

    /// Returns the device of a new extent.
    fn place_new(&self, view: &View) -> DeviceId {
        let ssds = view.devices.iter().filter(|d| d.class == DeviceClass::Ssd && self.has_room_for_homes(d));
        let disks = view.with_room().filter(|d| d.class == DeviceClass::Hdd);
        let roomiest = ssds.max_by_key(|d| d.free).or_else(|| disks.max_by_key(|d| d.free));
        roomiest.or_else(|| view.with_room().next()).map_or(view.devices[0].id, |d| d.id)
    }

    /// Returns the SSD for a cached copy of the blocks read, if the home is on a disk and the SSDs are full.
    fn admit(&mut self, read: &Piece, view: &View) -> Option<DeviceId> {
        let home = view.homes.home(read.extent)?;
        let full = view.devices.iter().all(|d| !self.kept.is_ssd(d.id) || !self.has_room_for_homes(d));
        if self.kept.is_ssd(home) || !full || self.kept.share() == 0.0 || !self.admission.admits(read) {
            return None;
        }
        let blocks = self.kept.blocks(view);
        self.admission.lets_in(read, blocks, view).then(|| self.kept.next_ssd())
    }
}

impl Policy for SsdFirst {
    fn name(&self) -> &'static str {
        "ssd-first"
    }

    fn settings(&self) -> String {
        let cache = format!("cache={}%", self.kept.share() * 100.0);
        let all = [vec![cache], self.eviction.settings(), self.admission.settings()];
        all.concat().join(",")
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(self.place_new(view)),
            Occasion::Write(_) => Placement::KEEP,
            Occasion::ReadHit(piece) => {
                self.eviction.used(piece, view);
                Placement::KEEP
            }
            Occasion::ReadMiss(piece) => {
                self.eviction.used(piece, view);
                Placement::cached(self.admit(piece, view))
            }
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        self.kept.slots(device)
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.eviction.victim(device, view)
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.eviction.changed(block, before, now);
        self.write_back.changed(block, before, now);
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.write_back.plan(0, view, plan)
    }

    fn done(&mut self, _: &Move, outcome: Outcome) {
        self.write_back.done(outcome);
    }

    fn memory(&self) -> usize {
        self.admission.memory() + self.eviction.memory()
    }

    fn save(&self, view: &View) -> Vec<u8> {
        self.eviction.save(view)
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        self.eviction.restore(state, view);
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let cached = self.eviction.len();
        let room: u32 = view.devices.iter().map(|d| d.free.saturating_sub(self.extra_slots(d))).sum();
        let next = match view.homes.home(extent) {
            None => "the next write allocates it: on an SSD with room, else on a disk",
            Some(home) if self.kept.is_ssd(home) => "its home is on an SSD and stays there",
            Some(_) => "its home is on a disk; read blocks are cached on an SSD once the SSDs are full",
        };
        format!(
            "{room} slot(s) for homes are free, {:.0} % of each SSD is kept for the cache, {cached} block(s) are \
             cached; {next}",
            self.kept.share() * 100.0
        )
    }
}
