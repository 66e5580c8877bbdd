//! `cache`: all homes on the disks, and a cache of blocks on the SSDs, as in bcache and dm-cache. The
//! baseline for Hystor and for the exclusive tier with its cache.
//!
//! Read misses are admitted. Under `mode=write-through` a write goes to the disk, and to the cached copy if
//! present, so that a lost SSD costs nothing. Under `mode=write-back` a write goes to the SSD alone and is
//! dirty until written back to the disk ([`WriteBack`]). Flushed data then survives a power cut, but not the
//! loss of the SSD.

use crate::caching::{Admission, Eviction, Room, WriteBack};
use crate::{
    BadSetting, DeviceView, ExtraCopy, Move, Occasion, Outcome, Piece, Placement, Plan, Policy, Request,
    Settings, View,
};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos};

/// Homes on the disks, a cache on the SSDs.
pub struct Cache {
    room: Room,
    mode: WriteMode,
    admission: Admission,
    eviction: Eviction,
    write_back: WriteBack,
}

/// Target of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteMode {
    /// The home, and the cached copy if present.
    WriteThrough,
    /// A cached copy.
    WriteBack,
}

impl Cache {
    /// Creates the policy. Settings: `cache` (100%), the share of the SSDs, `mode` (write-through), and the
    /// settings of [`Admission`], [`Eviction`] and, with mode=write-back, [`WriteBack`].
    ///
    /// Fails if a setting is invalid, or the volume lacks a class of device.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Cache, BadSetting> {
        let room = Room::new(settings.take_share("cache")?.unwrap_or(1.0), devices);
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new(
                "policy cache needs an SSD and a disk, and the volume has one class of device: use another policy",
            ));
        }
        let (mode, write_back) = match settings.take_text("mode").as_deref() {
            None | Some("write-through") => (WriteMode::WriteThrough, WriteBack::all()),
            Some("write-back") => (WriteMode::WriteBack, WriteBack::take(settings)?),
            Some(other) => return Err(settings.bad("mode", other, "write-through or write-back")),
        };
        let mut admission = Admission::take(settings)?.with_filter(settings)?;
        if mode == WriteMode::WriteBack {
            admission = admission.with_writes(settings)?;
        }
        let eviction = Eviction::take(settings, devices.len())?;
        Ok(Cache { room, mode, admission, eviction, write_back })
    }

    fn place_read(&mut self, read: &Piece, view: &View) -> Placement<'static> {
        if !self.admission.admits(read) {
            return Placement::KEEP;
        }
        self.eviction.used(read, view);
        match view.homes.home(read.extent) {
            Some(home)
                if !self.room.is_ssd(home) && self.admission.lets_in(read, self.room.blocks(view), view) =>
            {
                Placement::cached(Some(self.room.next_ssd()))
            }
            _ => Placement::KEEP,
        }
    }

    fn place_write(&mut self, write: &Piece, view: &View) -> Placement<'static> {
        if self.admission.passes_by(write) {
            return Placement::ALONE;
        }
        let on_disk = view.homes.home(write.extent).is_some_and(|home| !self.room.is_ssd(home));
        match self.write_to(write, view).filter(|_| on_disk) {
            Some(ssd) => Placement::write_back(ssd),
            None => Placement::KEEP,
        }
    }

    /// Places a new extent: the home goes to the disk with the most room.
    fn place_new(&mut self, write: Option<&Piece>, view: &View) -> Placement<'static> {
        let disks = view.with_room().filter(|d| d.class == DeviceClass::Hdd);
        let Some(disk) = disks.max_by_key(|d| d.free) else { return Placement::KEEP };
        let write = write.filter(|write| !self.admission.passes_by(write));
        Placement::on(disk.id).with_extra(write.and_then(|write| self.write_to(write, view)))
    }

    /// Returns the SSD for a write to an extent on a disk, if the write goes to an SSD.
    fn write_to(&mut self, write: &Piece, view: &View) -> Option<DeviceId> {
        let admitted = self.admission.admits_write(write, view);
        self.eviction.used(write, view);
        let (blocks, goes) = (self.room.blocks(view), self.mode == WriteMode::WriteBack && admitted);
        let goes = goes && self.admission.lets_in(write, blocks, view) && self.write_back.has_room(blocks);
        goes.then(|| self.room.next_ssd())
    }
}

impl Policy for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn settings(&self) -> String {
        let mode = match self.mode {
            WriteMode::WriteThrough => ("write-through", Vec::new()),
            WriteMode::WriteBack => ("write-back", self.write_back.settings()),
        };
        let cache = (self.room.share() < 1.0).then(|| format!("cache={}%", self.room.share() * 100.0));
        let mut all: Vec<String> = cache.into_iter().chain([format!("mode={}", mode.0)]).collect();
        all.extend(mode.1.into_iter().chain(self.eviction.settings()).chain(self.admission.settings()));
        all.join(",")
    }

    /// No home is moved, and an extent with a home on a disk is not placed.
    fn keeps_homes(&self) -> bool {
        true
    }

    fn observes(&self) -> bool {
        self.mode == WriteMode::WriteBack
    }

    fn observe(&mut self, request: &Request, _: &View) {
        self.admission.observe(request);
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        self.write_back.requested(view.now);
        match occasion {
            Occasion::New { write, .. } => self.place_new(write.as_ref(), view),
            Occasion::Write(piece) => self.place_write(piece, view),
            Occasion::ReadHit(piece) => {
                self.eviction.used(piece, view);
                Placement::KEEP
            }
            Occasion::ReadMiss(piece) => self.place_read(piece, view),
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        self.room.slots(device)
    }

    fn evict(&mut self, device: DeviceId, view: &View) -> Option<BlockId> {
        self.eviction.victim(device, view)
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.eviction.changed(block, before, now);
        self.write_back.changed(block, before, now);
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.write_back.plan(self.room.blocks(view), view, plan)
    }

    fn done(&mut self, _: &Move, outcome: Outcome) {
        self.write_back.done(outcome);
    }

    fn memory(&self) -> usize {
        self.admission.memory() + self.eviction.memory() + self.write_back.memory()
    }

    fn save(&self, view: &View) -> Vec<u8> {
        self.eviction.save(view)
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        self.eviction.restore(state, view);
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let (cached, dirty, room) = (self.eviction.len(), self.write_back.dirty(), self.room.blocks(view));
        let next = match (view.homes.home(extent), self.mode) {
            (None, _) => "the next write allocates it on a disk",
            (Some(home), _) if self.room.is_ssd(home) => {
                "its home is on an SSD and stays there: no disk had room"
            }
            (Some(_), WriteMode::WriteThrough) => {
                "its home is on a disk; read blocks are cached, and writes go to the disk"
            }
            (Some(_), WriteMode::WriteBack) => {
                "its home is on a disk; read or written blocks are cached, and dirty blocks written back \
                 later"
            }
        };
        format!("{cached} block(s) of {room} are cached, {dirty} of them dirty; {next}")
    }
}
