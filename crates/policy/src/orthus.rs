//! `orthus`: a cache that leaves a part of its hits to the disks, as large a part as pays.
//!
//! Wu, Guo, Hu, Tu, Alagappan, Sen, Park, Arpaci-Dusseau, Arpaci-Dusseau, "The Storage Hierarchy is Not a
//! Hierarchy: Optimizing Caching on Modern Storage Devices with Orthus" (FAST 2021): non-hierarchical
//! caching. If devices are nearly as fast as each other, a cache that serves all hits is the bottleneck, and
//! the devices below idle.
//!
//! | the paper | here |
//! |---|---|
//! | a classic cache in any mode of writing | [`Cache`], with all its settings |
//! | the switch `data_admit`: whether a read that misses fills the cache | `place_read` |
//! | the switch `load_admit`: the probability that a hit is served by the cache | `place_read` |
//! | only clean hits can be served from below; writes follow the cache's mode | `place_read` |
//! | classic caching until the hit ratio is stable, then `data_admit` off and `load_admit` tuned by feedback; again from the beginning when the workload changes, or when the best is that the cache serves all | [`Tuner`] |
//! | the target: throughput, or latency | `target` |
//!
//! The text of the paper was not at hand. Rules and numbers of the tuner are from the authors' code for Open
//! CAS, unless `tuner.rs` says otherwise.
//!
//! Deviations:
//! - Hits for the disks are not drawn at random but taken at regular intervals, so that runs are repeatable.
//!   The share is the same.
//! - A partly cached read is a miss, and is read from the disk as far as the disk is current.
//! - The paper's third target, the tail of the latency, is not implemented.
//! - Settings of the cache itself have Braid's defaults, as under `cache`: streams bypass the cache
//!   (`bypass`).

mod tuner;

use crate::{
    BadSetting, Cache, Completion, DeviceView, Direction, ExtraCopy, Move, Occasion, Origin, Outcome, Piece,
    Placement, Plan, Policy, Request, Settings, View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos};
use tuner::Tuner;

/// A cache with two switches.
pub struct Orthus {
    cache: Cache,
    tuner: Tuner,
    /// True for an SSD, by device.
    is_ssd: Vec<bool>,
    /// Hits owed to the disks.
    owed: f64,
}

impl Orthus {
    /// Returns the policy. Settings: the settings of [`Cache`] and of `orthus/tuner.rs`.
    ///
    /// # Errors
    /// Without both classes of devices, and for invalid settings.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Orthus, BadSetting> {
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new("policy orthus needs an SSD and a disk: use another policy"));
        }
        let is_ssd = devices.iter().map(|device| device.class == DeviceClass::Ssd).collect();
        let (tuner, cache) = (Tuner::take(settings)?, Cache::new(settings, devices)?);
        Ok(Orthus { cache, tuner, is_ssd, owed: 0.0 })
    }

    fn place_read<'a>(&mut self, occasion: &Occasion<'a>, read: &Piece, view: &View) -> Placement<'a> {
        let copies = || read.touched().map(|block| view.homes.extra(block));
        let is_hit = copies().all(|copy| copy.is_some());
        let on_disk = view.homes.home(read.extent).is_some_and(|home| !self.is_ssd[home.index()]);
        if on_disk {
            self.tuner.read(is_hit);
        }
        if !is_hit {
            // The order of eviction counts the read in both cases.
            let filled = self.cache.place(occasion, view);
            return if self.tuner.admits_data() { filled } else { Placement::ALONE };
        }
        let placed = self.cache.place(occasion, view);
        let is_clean = copies().flatten().all(|copy| !copy.dirty);
        match on_disk && is_clean && self.leaves_to_disks() {
            true => Placement::ALONE,
            false => placed,
        }
    }

    /// True if the next clean hit is left to the disks.
    fn leaves_to_disks(&mut self) -> bool {
        self.owed += 1.0 - self.tuner.load_admit();
        let leaves = self.owed >= 1.0;
        self.owed -= f64::from(u8::from(leaves));
        leaves
    }
}

impl Policy for Orthus {
    fn name(&self) -> &'static str {
        "orthus"
    }

    fn settings(&self) -> String {
        [self.tuner.settings(), self.cache.settings()].join(",")
    }

    fn keeps_homes(&self) -> bool {
        self.cache.keeps_homes()
    }

    fn observes(&self) -> bool {
        self.cache.observes()
    }

    fn observe(&mut self, request: &Request, view: &View) {
        self.cache.observe(request, view);
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        self.tuner.advance(view.now);
        match occasion {
            Occasion::ReadMiss(read) => self.place_read(occasion, read, view),
            Occasion::New { .. } | Occasion::Write(_) | Occasion::ReadHit(_) => {
                self.cache.place(occasion, view)
            }
        }
    }

    fn completed(&mut self, io: &Completion) {
        if io.origin == Origin::Guest && io.direction != Direction::Flush {
            self.tuner.completed(io.len, io.latency);
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        self.cache.extra_slots(device)
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.cache.evict(device, view)
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.cache.extra_changed(block, before, now);
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.cache.plan(view, plan)
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        self.cache.done(job, outcome);
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        if self.is_ssd[device.index()] { self.tuner.figures() } else { Vec::new() }
    }

    fn memory(&self) -> usize {
        self.cache.memory()
    }

    fn save(&self, view: &View) -> Vec<u8> {
        self.cache.save(view)
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        self.cache.restore(state, view);
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        format!("{}; {}", self.tuner.explain(), self.cache.explain(extent, view))
    }
}
