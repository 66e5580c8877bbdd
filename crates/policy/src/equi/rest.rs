//! `quiet=20/day`: disks without requests of guests rest, and are woken at most 20 times a day.
//!
//! A disk stops by itself after a time without requests, set by the owner in the disk (`hdparm -S 120`);
//! Braid assumes ten minutes. A disk without requests of guests in ten minutes is left alone. Nothing moves
//! from or to the disk, dirty blocks stay dirty while there is room, no device is probed, and new extents go
//! to SSDs with room. A disk that has used up the wake-ups of a day is kept from stopping by a read every
//! four minutes, and is used as usual.
//!
//! Extents that guests request from a disk move to SSDs with room, so that the same requests need not wake
//! the disk again.
//!
//! Wake-ups before the start of the daemon are unknown. The engine wakes disks, too: a disk that holds the
//! witness is written within seconds of each change of the map.

use crate::{BadSetting, Completion, Direction, Move, Origin, Settings, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};
use std::collections::VecDeque;

/// Bound on wake-ups, and the last use of each disk.
pub(super) struct Rest {
    per_day: usize,
    /// By device; none for an SSD.
    disks: Vec<Option<Disk>>,
    /// Extents requested by guests from disks since the last plan.
    wanted: Vec<ExtentId>,
    /// Time of the last plan.
    now: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// True if a request has ended since the last plan; `was_asked`: a request of a guest.
    was_used: bool,
    was_asked: bool,
    /// End of the last request, or time of the last read to keep the disk from stopping; `asked`: end of the
    /// last request of a guest.
    used: Nanos,
    asked: Nanos,
    /// Wake-ups of the last day; usually at most the bound, since the disk is then kept from stopping.
    woken: VecDeque<Nanos>,
}

/// A disk without use for this time has stopped.
const STOPS: Nanos = Nanos::from_secs(600);
/// Interval of reads that keep a disk from stopping.
const KEPT: Nanos = Nanos::from_secs(240);
const DAY: Nanos = Nanos::from_secs(86_400);
/// Largest bound: the times of all wake-ups of a day are kept.
const MOST: usize = 1000;
/// Largest number of extents that move to SSDs in one plan.
const MOST_WANTED: usize = 64;
const EXPECTED: &str = "times a day from 0 to 1000, such as 20/day";

impl Rest {
    /// Reads the setting `quiet` (none), such as `20/day`. Fails if the text is no such rate.
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

    /// Records a guest's request to an extent with this home.
    pub fn wants(&mut self, extent: ExtentId, home: DeviceId) {
        let is_on_disk = self.disks[home.index()].is_some();
        if is_on_disk && self.wanted.len() < MOST_WANTED && !self.wanted.contains(&extent) {
            self.wanted.push(extent);
        }
    }

    /// Returns and clears the extents requested from disks since the last call.
    pub fn take_wanted(&mut self) -> Vec<ExtentId> {
        std::mem::take(&mut self.wanted)
    }

    /// Records the end of a request on a device.
    pub fn completed(&mut self, io: &Completion) {
        if let Some(disk) = &mut self.disks[io.device.index()] {
            disk.was_used = true;
            disk.was_asked |= io.origin == Origin::Guest;
        }
    }

    /// Updates the state of all disks, at each plan. At the first plan all disks count as just used.
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

    /// Plans reads from disks that must not stop.
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

    /// True if a device is left alone.
    pub fn rests(&self, device: DeviceId) -> bool {
        self.disks[device.index()].as_ref().is_some_and(|disk| disk.rests(self.now, self.per_day))
    }

    /// True if any disk is left alone.
    pub fn any_rests(&self) -> bool {
        self.disks.iter().flatten().any(|disk| disk.rests(self.now, self.per_day))
    }

    /// Removes moves and probes that use a resting device.
    pub fn leave_alone(&self, moves: &mut Vec<Move>, view: &View) {
        moves.retain(|job| match job {
            Move::Migrate { extent, target } => {
                !self.rests(*target) && view.homes.home(*extent).is_none_or(|home| !self.rests(home))
            }
            Move::Probe { device, .. } => !self.rests(*device),
            _ => true,
        });
    }

    /// Returns the reason if a device is left alone.
    pub fn refusal(&self, device: DeviceId) -> Option<String> {
        let disk = self.disks[device.index()].as_ref().filter(|_| self.rests(device))?;
        let (idle, per_day) = (self.now - disk.asked, self.per_day);
        Some(format!("quiet={per_day}/day leaves {device} alone: no requests of guests for {idle}"))
    }

    /// Figures of a disk; none for an SSD.
    pub fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let woken = self.disks[device.index()].as_ref().map(|disk| disk.woken.len() as f64);
        woken.map(|woken| vec![("spin_ups_per_day", woken)]).unwrap_or_default()
    }
}

impl Disk {
    /// True if the disk may be woken once more.
    fn may_stop(&self, per_day: usize) -> bool {
        self.woken.len() < per_day
    }

    fn rests(&self, now: Nanos, per_day: usize) -> bool {
        self.may_stop(per_day) && now >= self.asked + STOPS
    }
}
