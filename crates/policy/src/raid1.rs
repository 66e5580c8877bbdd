//! `raid1`: the mirror used as baseline for PASS (Xiao et al., section V), as in Linux md.
//!
//! Each extent has a copy on an SSD, if the volume has one, and the other on a disk. A write is acknowledged
//! once both copies are written. A read comes from the copy with the shortest expected wait.
//!
//! `reads=md`: reads follow the rule of md before Linux 3.x, which treats all devices alike. A read that
//! continues the last read, or the last request of the device that served the last read, goes to that device.
//! Any other read goes to another, idle device, or else to the device with the nearest last request. Half of
//! all random reads therefore come from the disk, and the mirror measured against PASS was hardly faster than
//! a disk alone.
//!
//! `raid1,write-behind`: the disk is written later, as soon as possible, with up to `limit` bytes in flight;
//! beyond the limit a write waits for both copies. The disk is then also *write-mostly*: the disk is read
//! only if the SSD cannot be read. md keeps the bytes of delayed writes in memory. Here the bytes are read
//! from the SSD again, and after a crash the stale ranges are still known.

use crate::{
    BadSetting, ByteRange, CurrentCopy, DeviceView, Move, Occasion, Placement, Plan, Policy, Request, Second,
    Settings, View,
};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos, Op};

/// Two copies of all data, on an SSD and on a disk.
pub struct Raid1 {
    classes: Vec<DeviceClass>,
    /// Bytes that may be stale on the disks; none without write-behind.
    write_behind: Option<Bytes>,
    /// The rule of md for reads; none if the fastest copy is read.
    turns: Option<Turns>,
}

/// State of md's rule for reads.
struct Turns {
    /// Device of the last read, and the end of the last read.
    last: DeviceId,
    next: Bytes,
    /// End of the last request of each device.
    ends: Vec<Bytes>,
}

impl Turns {
    fn read(&mut self, range: ByteRange, view: &View) {
        let ends = &self.ends;
        if range.start != self.next && range.start != ends[self.last.index()] {
            let idle = view.devices.iter().find(|d| d.id != self.last && d.in_flight == 0);
            let distance = |d: &&DeviceView| ends[d.id.index()].0.abs_diff(range.start.0);
            let nearest = || view.devices.iter().min_by_key(distance);
            self.last = idle.or_else(nearest).map_or(self.last, |d| d.id);
        }
        (self.next, self.ends[self.last.index()]) = (range.end, range.end);
    }
}

/// md's own limit: 16K sectors.
const USUAL_LIMIT: Bytes = Bytes(16 * 1024 * 512);
/// Largest limit: stale bytes on the disks are copied again after a crash.
const LARGEST_LIMIT: Bytes = Bytes(1 << 40);
/// Interval of searches for stale ranges.
const LOOK: Nanos = Nanos::from_millis(1);
/// Interval without a disk to copy to.
const WITHOUT_DISK: Nanos = Nanos::from_millis(100);
/// Interval without write-behind: no work.
const REST: Nanos = Nanos::from_secs(3600);
/// Ranges in flight to the disks at the same time.
const ON_THE_WAY: usize = 64;

impl Raid1 {
    /// Creates the policy. Settings: `write-behind`, and with it `limit` (8MiB); without it `reads` (fastest,
    /// or md).
    ///
    /// Fails if a setting is invalid, or if `write-behind` lacks a class of device.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Raid1, BadSetting> {
        let classes: Vec<DeviceClass> = devices.iter().map(|d| d.class).collect();
        let behind = settings.take_flag("write-behind")?;
        let limit = if behind {
            settings.take_bytes("limit", USUAL_LIMIT, Bytes(1)..=LARGEST_LIMIT)?
        } else {
            Bytes::ZERO
        };
        if behind && !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new(
                "policy raid1,write-behind needs an SSD, and a disk to write later: use raid1",
            ));
        }
        let turns = match settings.take_text("reads").as_deref() {
            None | Some("fastest") => None,
            Some("md") if !behind => {
                let ends = vec![Bytes::ZERO; classes.len()];
                Some(Turns { last: DeviceId(0), next: Bytes::ZERO, ends })
            }
            Some(other) => {
                return Err(BadSetting::new(format!(
                    "policy raid1: reads '{other}': use fastest, or md without write-behind"
                )));
            }
        };
        Ok(Raid1 { classes, write_behind: behind.then_some(limit), turns })
    }

    fn is_ssd(&self, device: DeviceId) -> bool {
        self.classes[device.index()] == DeviceClass::Ssd
    }

    /// Returns the device with the most room except `not`, of this class if possible.
    fn roomiest(&self, class: DeviceClass, not: Option<DeviceId>, view: &View) -> Option<DeviceId> {
        let others = view.with_room().filter(|device| Some(device.id) != not);
        others.max_by_key(|device| (device.class == class, device.free)).map(|device| device.id)
    }
}

impl Policy for Raid1 {
    fn name(&self) -> &'static str {
        "raid1"
    }

    fn settings(&self) -> String {
        let reads = || if self.turns.is_some() { "reads=md".to_owned() } else { String::new() };
        self.write_behind.map_or_else(reads, |limit| format!("write-behind,limit={}B", limit.0))
    }

    fn observes(&self) -> bool {
        self.turns.is_some()
    }

    fn observe(&mut self, request: &Request, view: &View) {
        let Some(turns) = &mut self.turns else { return };
        match request.op {
            Op::Read => turns.read(request.range, view),
            Op::Write => turns.ends.fill(request.range.end),
            Op::Flush | Op::Discard => {}
        }
    }

    fn copies(&self) -> u8 {
        2
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        let home = match occasion {
            Occasion::New { .. } => self.roomiest(DeviceClass::Ssd, None, view),
            Occasion::Write(piece) => view.homes.home(piece.extent),
            Occasion::ReadHit(_) | Occasion::ReadMiss(_) => None,
        };
        let Some(home) = home else { return Placement::KEEP };
        let device = self.roomiest(DeviceClass::Hdd, Some(home), view).unwrap_or(home);
        let second = match self.write_behind {
            // If the home is on a disk, the second copy is on an SSD, and never stale.
            Some(most) if self.is_ssd(home) => Second::Behind { device, most },
            _ => Second::Sync(device),
        };
        Placement::on(home).with_second(second)
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], view: &View) {
        view.sort_by_read_wait(copies);
        if self.write_behind.is_some() {
            copies.sort_by_key(|copy| !self.is_ssd(copy.device));
        }
        if let Some(turns) = &self.turns {
            copies.sort_by_key(|copy| copy.device != turns.last);
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        if self.write_behind.is_none() {
            return view.now + REST;
        }
        if !view.homes.can_resync() {
            return view.now + WITHOUT_DISK;
        }
        let mut next = view.homes.next_behind(Bytes::ZERO);
        while let Some(range) = next.filter(|_| plan.moves.len() < ON_THE_WAY) {
            plan.moves.push(Move::Resync { range, gap: Move::GAP });
            next = view.homes.next_behind(range.end);
        }
        view.now + LOOK
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let range = view.range_of_extent(extent);
        let lacks = view.homes.next_behind(range.start).is_some_and(|behind| behind.start < range.end);
        match (self.write_behind, lacks) {
            (None, _) => "the extent has two copies, which are written together".to_owned(),
            (Some(limit), true) => format!(
                "the disk's copy is partly stale, and is being updated; {} are stale, {limit} at most",
                view.homes.behind()
            ),
            (Some(limit), false) => {
                format!("the extent has two copies; {} are stale, {limit} at most", view.homes.behind())
            }
        }
    }
}
