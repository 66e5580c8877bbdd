//! Cached copies on the SSDs of blocks with a home on a disk: clean copies of blocks read, dirty copies of
//! blocks written. Admission, eviction and write-back work as under `cache,mode=write-back,evict=s3-fifo`.

use crate::caching::{Admission, Eviction, Room, WriteBack};
use crate::{
    BadSetting, DeviceView, ExtraCopy, Move, Outcome, Piece, Placement, Plan, Request, Settings, View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, Nanos};

pub(super) struct Copies {
    room: Room,
    admission: Admission,
    eviction: Eviction,
    write_back: WriteBack,
    /// Blocks held, by device.
    held: Vec<u64>,
}

impl Copies {
    /// Creates the cache on this share of the SSDs. Fails if a setting is invalid.
    pub fn new(share: f64, devices: &[DeviceView]) -> Result<Copies, BadSetting> {
        let mut usual = Settings::parse("policy", "equi,evict=s3-fifo")?;
        Ok(Copies {
            room: Room::new(share, devices),
            admission: Admission::take(&mut usual)?,
            eviction: Eviction::take(&mut usual, devices.len())?,
            write_back: if share > 0.0 { WriteBack::usual() } else { WriteBack::all() },
            held: vec![0; devices.len()],
        })
    }

    /// Changes the share of the SSDs. Dirty blocks beyond the new share are written back first.
    pub fn resize(&mut self, share: f64) {
        self.room.resize(share);
        self.write_back.keep_dirty(share > 0.0);
    }

    pub fn are_wanted(&self) -> bool {
        self.room.share() > 0.0
    }

    pub fn slots(&self, device: &DeviceView) -> u32 {
        self.room.slots(device)
    }

    /// Returns the slots of a device that homes leave free for further cached copies.
    pub fn kept(&self, device: &DeviceView, view: &View) -> u32 {
        let held = self.held[device.id.index()].div_ceil(view.extent_size / view.block_size);
        self.slots(device).saturating_sub(held as u32)
    }

    /// Returns the capacity in blocks: blocks held, and blocks of free slots, up to the share.
    fn blocks(&self, view: &View) -> u64 {
        let per_slot = view.extent_size / view.block_size;
        let of = |device: &DeviceView| {
            let free = u64::from(device.free) * per_slot;
            (u64::from(self.slots(device)) * per_slot).min(self.held[device.id.index()] + free)
        };
        view.devices.iter().filter(|device| device.class == DeviceClass::Ssd).map(of).sum()
    }

    pub fn observe(&mut self, request: &Request) {
        self.admission.observe(request);
    }

    pub fn requested(&mut self, now: Nanos) {
        self.write_back.requested(now);
    }

    pub fn used(&mut self, piece: &Piece, view: &View) {
        self.eviction.used(piece, view);
    }

    /// Places a read of an extent with a home on a disk: an admitted block gets a cached copy on the next
    /// SSD.
    pub fn place_read(&mut self, read: &Piece, view: &View) -> Placement<'static> {
        let admitted = self.admission.admits(read);
        self.eviction.used(read, view);
        Placement::cached(admitted.then(|| self.room.next_ssd()))
    }

    /// Places a write to an extent with a home on a disk.
    pub fn place_write(&mut self, write: &Piece, view: &View) -> Placement<'static> {
        if self.admission.passes_by(write) {
            return Placement::ALONE;
        }
        let admitted = self.admission.admits_write(write, view);
        self.eviction.used(write, view);
        match admitted && self.write_back.has_room(self.blocks(view)) {
            true => Placement::write_back(self.room.next_ssd()),
            false => Placement::KEEP,
        }
    }

    pub fn victim(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.eviction.victim(device, view)
    }

    pub fn changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.eviction.changed(block, before, now);
        self.write_back.changed(block, before, now);
        if let Some(copy) = before {
            self.held[copy.device.index()] -= 1;
        }
        if let Some(copy) = now {
            self.held[copy.device.index()] += 1;
        }
    }

    /// Plans the write-back, or only the write-back needed to make room. Returns the time of the next call.
    pub fn plan(&mut self, only_forced: bool, view: &View, plan: &mut Plan) -> Nanos {
        self.write_back.only_forced(only_forced);
        self.write_back.plan(self.blocks(view), view, plan)
    }

    pub fn done(&mut self, job: &Move, outcome: Outcome) {
        if let Move::WriteBack { .. } = job {
            self.write_back.done(outcome);
        }
    }

    pub fn memory(&self) -> usize {
        self.eviction.memory() + self.write_back.memory()
    }
}
