//! `quiet=20/day`: disks without requests of guests rest, and are woken at most so often.
//!
//! A disk stops by itself once nothing was asked of it for some time, which its owner sets in the disk
//! (`hdparm -S 120`); ten minutes are counted on here. A disk that guests have not asked for anything in that
//! time is left alone: nothing moves from it or to it, what is dirty stays dirty while there is room, no
//! device is probed, and new extents go to SSDs that have room. A disk that was woken so often within a day
//! that it must not be woken again is kept from stopping, by a read every four minutes, and is used as
//! always.
//!
//! What guests ask of a disk moves to SSDs that have room, so that it need not be woken for that again.
//!
//! What was woken before the daemon started is not known. The engine wakes disks, too: a disk that has the
//! second list of what the journal promises is written within seconds of each change of where data lies.

use crate::{BadSetting, Completion, Direction, Move, Origin, Settings, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};
use std::collections::VecDeque;

/// The bound, and when each disk was used.
pub(super) struct Rest {
    per_day: usize,
    /// By device; none of an SSD.
    disks: Vec<Option<Disk>>,
    /// What guests asked of disks since the last plan.
    wanted: Vec<ExtentId>,
    /// The last plan.
    now: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// A request has ended since the last plan, and one of a guest.
    was_used: bool,
    was_asked: bool,
    /// When the last request ended, or one was sent to keep it from stopping; and when the last one of a
    /// guest did.
    used: Nanos,
    asked: Nanos,
    /// When it was woken, of the last day; no more than may be.
    woken: VecDeque<Nanos>,
}

/// A disk that nobody uses for so long has stopped.
const STOPS: Nanos = Nanos::from_secs(600);
/// One that must not stop is read after so long.
const KEPT: Nanos = Nanos::from_secs(240);
const DAY: Nanos = Nanos::from_secs(86_400);
/// Times of all of them are kept.
const MOST: usize = 1000;
/// Extents that move to SSDs in one plan.
const MOST_WANTED: usize = 64;
const EXPECTED: &str = "times a day from 0 to 1000, such as 20/day";

impl Rest {
    /// Setting: `quiet` (none), such as `20/day`.
    pub fn take(settings: &mut Settings, classes: &[DeviceClass]) -> Result<Option<Rest>, BadSetting> {
        let Some(text) = settings.take_text("quiet") else { return Ok(None) };
        let number = text.strip_suffix("/day").unwrap_or(&text);
        let per_day = number.parse().ok().filter(|&per_day| per_day <= MOST);
        let per_day = per_day.ok_or_else(|| settings.bad("quiet", &text, EXPECTED))?;
        let disk = |class: &DeviceClass| (*class == DeviceClass::Hdd).then(Disk::default);
        let disks = classes.iter().map(disk).collect();
        Ok(Some(Rest { per_day, disks, wanted: Vec::new(), now: Nanos::ZERO }))
    }

    pub fn written(&self) -> String {
        format!(",quiet={}/day", self.per_day)
    }

    /// A guest asks a device for something.
    pub fn wants(&mut self, extent: ExtentId, home: DeviceId) {
        let is_on_disk = self.disks[home.index()].is_some();
        if is_on_disk && self.wanted.len() < MOST_WANTED && !self.wanted.contains(&extent) {
            self.wanted.push(extent);
        }
    }

    /// What guests asked of disks since this was asked.
    pub fn take_wanted(&mut self) -> Vec<ExtentId> {
        std::mem::take(&mut self.wanted)
    }

    /// A device has done something.
    pub fn completed(&mut self, io: &Completion) {
        if let Some(disk) = &mut self.disks[io.device.index()] {
            disk.was_used = true;
            disk.was_asked |= io.origin == Origin::Guest;
        }
    }

    /// At each plan. A new policy takes all disks for used.
    pub fn see(&mut self, view: &View) {
        let is_first = self.now == Nanos::ZERO;
        self.now = view.now;
        for (disk, device) in self.disks.iter_mut().zip(view.devices) {
            let Some(disk) = disk else { continue };
            if std::mem::take(&mut disk.was_used) || is_first || device.in_flight > 0 {
                if view.now >= disk.used + STOPS && !is_first {
                    disk.woken.push_back(view.now);
                }
                disk.used = view.now;
            }
            if std::mem::take(&mut disk.was_asked) || is_first || device.in_flight > 0 {
                disk.asked = view.now;
            }
            disk.woken.retain(|woken| *woken + DAY > view.now);
        }
    }

    /// Reads from disks that must not stop.
    pub fn keep_turning(&mut self, view: &View, moves: &mut Vec<Move>) {
        for (disk, device) in self.disks.iter_mut().zip(view.devices) {
            let Some(disk) = disk else { continue };
            if !disk.may_stop(self.per_day) && view.now >= disk.used + KEPT && device.slots > 0 {
                disk.used = view.now;
                let len = view.block_size;
                moves.push(Move::Probe { device: device.id, direction: Direction::Read, len });
            }
        }
    }

    /// Whether a device is left alone.
    pub fn rests(&self, device: DeviceId) -> bool {
        self.disks[device.index()].as_ref().is_some_and(|disk| disk.rests(self.now, self.per_day))
    }

    /// Whether one of the disks is left alone.
    pub fn any_rests(&self) -> bool {
        self.disks.iter().flatten().any(|disk| disk.rests(self.now, self.per_day))
    }

    /// Leaves out what asks something of a device that rests.
    pub fn leave_alone(&self, moves: &mut Vec<Move>, view: &View) {
        moves.retain(|job| match job {
            Move::Migrate { extent, target } => {
                !self.rests(*target) && view.homes.home(*extent).is_none_or(|home| !self.rests(home))
            }
            Move::Probe { device, .. } => !self.rests(*device),
            _ => true,
        });
    }

    /// Why a device is left alone, if it is.
    pub fn refusal(&self, device: DeviceId) -> Option<String> {
        let disk = self.disks[device.index()].as_ref().filter(|_| self.rests(device))?;
        let (idle, per_day) = (self.now - disk.asked, self.per_day);
        Some(format!("quiet={per_day}/day leaves {device} alone, of which guests asked nothing for {idle}"))
    }

    /// What is known of a disk; nothing of an SSD.
    pub fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let woken = self.disks[device.index()].as_ref().map(|disk| disk.woken.len() as f64);
        woken.map(|woken| vec![("spin_ups_per_day", woken)]).unwrap_or_default()
    }
}

impl Disk {
    /// Whether it may be woken once more.
    fn may_stop(&self, per_day: usize) -> bool {
        self.woken.len() < per_day
    }

    fn rests(&self, now: Nanos, per_day: usize) -> bool {
        self.may_stop(per_day) && now >= self.asked + STOPS
    }
}
