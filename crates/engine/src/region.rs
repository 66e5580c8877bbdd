//! Where the extents of a part of the volume lie, for a picture of the whole volume. A part is examined at
//! once; the caller cuts the volume into parts small enough that guests do not wait.

use crate::{Shape, Volume};
use braid_base::{DeviceClass, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_runtime::{Device, Runtime};
use std::ops::Range;

/// Counts of the examined extents of a part of the volume.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Region {
    /// Examined extents.
    pub examined: u32,
    /// Extents with a home, lost homes included.
    pub mapped: u32,
    /// Extents whose home is on an SSD.
    pub on_ssds: u32,
    /// Extents with lost bytes.
    pub lost: u32,
    /// Extents with a required copy on the device in question.
    pub on_device: u32,
    /// Blocks with an extra copy.
    pub extra_blocks: u64,
    /// First examined extent with a home.
    pub first_mapped: Option<ExtentId>,
    /// The device with most of the homes.
    pub main_device: Option<DeviceId>,
}

/// Homes by device, kept between two parts.
#[derive(Default)]
pub struct Tally {
    homes: Vec<u32>,
}

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Returns the sizes of the volume and its units.
    pub fn shape(&self) -> Shape {
        self.core.store.shape
    }

    /// Examines one extent of each `step` extents of a range, at most as far as the end of the volume.
    /// `device` is the device in question. Takes a few nanoseconds for each examined extent.
    ///
    /// # Panics
    /// Panics if `step` is no power of two.
    pub fn region(
        &self,
        extents: Range<u32>,
        step: u32,
        device: Option<DeviceId>,
        tally: &mut Tally,
    ) -> Region {
        assert!(step.is_power_of_two(), "steps of {step} extents");
        let state = self.core.store.state.borrow();
        let end = extents.end.min(state.map.extents());
        tally.homes.clear();
        tally.homes.resize(state.views.len(), 0);
        let mut region = Region::default();
        let mut at = extents.start;
        while at < end {
            let extent = ExtentId((at + phase(at, step)).min(end - 1));
            let (entry, extras) = state.map.peek(extent);
            region.examined += 1;
            region.extra_blocks += u64::from(extras);
            if entry.home != SlotNumber::NONE {
                region.mapped += 1;
                region.first_mapped = region.first_mapped.or(Some(extent));
                region.lost += u32::from(entry.partly_lost || entry.home == SlotNumber::LOST);
                let home = state.space.locate(entry.home).map(|slot| slot.device);
                let second = state.space.locate(entry.second).map(|slot| slot.device);
                if let Some(home) = home {
                    tally.homes[home.index()] += 1;
                    region.on_ssds += u32::from(state.views[home.index()].class == DeviceClass::Ssd);
                }
                region.on_device += u32::from(device.is_some() && (home == device || second == device));
            }
            let Some(next) = at.checked_add(step) else { break };
            at = next;
        }
        let homes = tally.homes.iter().enumerate().filter(|(_, count)| **count > 0);
        // Of equal devices the first one.
        let main = homes.max_by_key(|&(place, &count)| (count, std::cmp::Reverse(place)));
        region.main_device = main.map(|(place, _)| DeviceId(place as u16));
        region
    }
}

/// Returns the place of the examined extent within its step: another one in each step, so that content with a
/// period is not missed.
fn phase(at: u32, step: u32) -> u32 {
    (at / step).wrapping_mul(0x9e37_79b1) >> 7 & (step - 1)
}
