//! The map of the volume for a picture: places of the extents, and the heat that [`Heat`] measures.
//!
//! Guests come first. The places are examined in slices of [`SLICE`] with pauses, at most [`SAMPLES`] extents
//! of each cell, and all examinations together take at most a hundredth of the time. Requests meanwhile get
//! the last map.

use crate::record::heat::{COOLING_SECONDS, Heat, shape};
use crate::report::map::{CellsReport, MapReport};
use crate::served::ServedVolume;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::{Export, Region, Tally};
use braid_runtime::{Runtime, Semaphore};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Most examined extents of a cell: a share is then accurate to some per cent.
const SAMPLES: u32 = 1024;
/// Longest time for which guests wait: less than a request to an SSD takes.
const SLICE: Nanos = Nanos::from_micros(100);
/// Pause between two slices.
const PAUSE: Nanos = Nanos::from_micros(400);
/// Age up to which a map serves further requests.
const FRESH: Nanos = Nanos::from_secs(5);
/// Divisor of the time that examinations may take.
const ONE_IN: u64 = 100;
/// Longest wait before the examination for another device.
const LONGEST_WAIT: Nanos = Nanos::from_secs(5);

/// The last map of the volume.
pub(crate) struct ExtentMap {
    last: RefCell<Option<Arc<Places>>>,
    /// One examination at a time.
    turn: Semaphore,
}

impl Default for ExtentMap {
    fn default() -> ExtentMap {
        ExtentMap { last: RefCell::default(), turn: Semaphore::new(1) }
    }
}

/// Places of the extents at one time.
struct Places {
    size: Bytes,
    extent: Bytes,
    cell: Bytes,
    step: u32,
    device: Option<DeviceId>,
    regions: Vec<Region>,
    /// Blocks of an extent.
    blocks: u64,
    ended: Nanos,
    /// Time of the reactor.
    cost: Nanos,
}

/// Cools the heat of the volume for as long as the daemon runs.
pub(crate) async fn keep_heat(served: Rc<ServedVolume>) {
    while !served.end.has_begun() {
        served.ring.sleep(Nanos::from_secs(u64::from(COOLING_SECONDS))).await;
        served.heat().cool(served.volume.size());
    }
}

impl ServedVolume {
    /// Returns the map of the volume as JSON: a [`MapReport`]. `device` is the number of the device in
    /// question.
    ///
    /// # Errors
    /// `Invalid` if the volume has no such device; `Busy` if the size of the volume changes meanwhile.
    pub async fn extent_map(&self, device: Option<u16>) -> Result<Vec<u8>> {
        let device = device.map(DeviceId);
        if let Some(device) = device.filter(|device| self.name_of(*device).is_none()) {
            let problem = format!("volume '{}' has no device {device}: see braid status", self.name);
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let places = {
            let _turn = self.map.turn.acquire(1).await;
            self.places(device).await?
        };
        let (name, rates) = (self.name.to_string(), self.heat().requests_per_second());
        let age = self.ring.now().saturating_sub(places.ended);
        self.aside(move || {
            serde_json::to_vec(&places.report(name, &rates, age)).map_err(|error| {
                Error::new(ErrorKind::Io, format!("the map cannot be written as JSON: {error}"))
            })
        })
        .await
    }

    fn heat(&self) -> &Heat {
        self.frontends.recorder().heat()
    }

    /// Returns the last examination, or examines anew.
    async fn places(&self, device: Option<DeviceId>) -> Result<Arc<Places>> {
        let last = self.map.last.borrow().clone();
        if let Some(last) = last {
            let age = self.ring.now().saturating_sub(last.ended);
            let rest = last.cost * ONE_IN;
            if last.size == self.volume.size() && last.device == device && age < FRESH.max(rest) {
                return Ok(last);
            }
            let early = rest.saturating_sub(age).min(LONGEST_WAIT);
            if early > Nanos::ZERO {
                self.ring.sleep(early).await;
            }
        }
        let places = Arc::new(self.examine(device).await?);
        self.map.last.replace(Some(places.clone()));
        Ok(places)
    }

    async fn examine(&self, device: Option<DeviceId>) -> Result<Places> {
        let volume_shape = self.volume().shape();
        let (size, extent) = (volume_shape.volume_size, volume_shape.extent_size);
        let (shift, cells) = shape(size, extent);
        let extents = ((1 << shift) / extent.0) as u32;
        let step = (extents / SAMPLES).max(1);
        let mut places = Places {
            size,
            extent,
            cell: Bytes(1 << shift),
            step,
            device,
            regions: Vec::with_capacity(cells),
            blocks: extent / volume_shape.block_size,
            ended: Nanos::ZERO,
            cost: Nanos::ZERO,
        };
        let (mut tally, mut begun) = (Tally::default(), self.ring.now());
        for cell in 0..cells as u32 {
            let volume = self.volume();
            if volume.size() != size {
                let problem = format!("the size of volume '{}' changes: repeat the request", self.name);
                return Err(Error::new(ErrorKind::Busy, problem));
            }
            let first = cell * extents;
            places.regions.push(volume.region(
                first..first.saturating_add(extents),
                step,
                device,
                &mut tally,
            ));
            places.ended = self.ring.now();
            if places.ended.saturating_sub(begun) >= SLICE {
                places.cost += places.ended.saturating_sub(begun);
                self.ring.sleep(PAUSE).await;
                begun = self.ring.now();
            }
        }
        places.cost += places.ended.saturating_sub(begun);
        Ok(places)
    }
}

impl Places {
    fn report(&self, name: String, rates: &[f32], age: Nanos) -> MapReport {
        let each = |count: fn(&Region) -> u32, of: fn(&Region) -> u32| -> Vec<f64> {
            let share = |region| share(u64::from(count(region)), u64::from(of(region)));
            self.regions.iter().map(share).collect()
        };
        let examined = |region: &Region| region.examined;
        let rate = |cell: usize| rates.get(cell).map(|&rate| rounded(f64::from(rate)));
        MapReport {
            name,
            size_bytes: self.size.0,
            cell_bytes: self.cell.0,
            examined_one_in: self.step,
            examined_seconds_ago: rounded(age.as_secs_f64()),
            on_device: self.device.map(|device| device.to_string()),
            map_cells: CellsReport {
                mapped_share: each(|region| region.mapped, examined),
                ssd_share: each(|region| region.on_ssds, |region| region.mapped),
                on_device_share: match self.device {
                    Some(_) => each(|region| region.on_device, examined),
                    None => Vec::new(),
                },
                extra_share: self
                    .regions
                    .iter()
                    .map(|region| share(region.extra_blocks, u64::from(region.examined) * self.blocks))
                    .collect(),
                lost_share: each(|region| region.lost, examined),
                main_device: self
                    .regions
                    .iter()
                    .map(|region| region.main_device.map(|device| device.to_string()))
                    .collect(),
                first_mapped_bytes: self
                    .regions
                    .iter()
                    .map(|region| region.first_mapped.map(|extent| (self.extent * u64::from(extent.0)).0))
                    .collect(),
                cell_requests_per_second: (0..self.regions.len()).map(rate).collect(),
            },
        }
    }
}

/// A share, rounded. A small part of a whole stays visible.
fn share(part: u64, whole: u64) -> f64 {
    match part {
        0 => 0.0,
        _ => rounded(part as f64 / whole as f64).max(0.001),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{ExtentId, MIB};

    #[test]
    fn report_has_a_value_for_each_cell_and_shows_small_parts() {
        let region = Region {
            examined: 1024,
            mapped: 512,
            on_ssds: 128,
            lost: 1,
            on_device: 1024,
            extra_blocks: 1,
            first_mapped: Some(ExtentId(3)),
            main_device: Some(DeviceId(2)),
        };
        let places = Places {
            size: MIB * 256,
            extent: MIB,
            cell: MIB * 128,
            step: 4,
            device: Some(DeviceId(7)),
            regions: vec![region, Region { examined: 9, ..Region::default() }],
            blocks: 256,
            ended: Nanos::ZERO,
            cost: Nanos::ZERO,
        };
        let report = places.report("vault".to_owned(), &[0.123_456], Nanos::from_millis(2500));
        assert_eq!((report.on_device.as_deref(), report.examined_seconds_ago), (Some("d7"), 2.5));
        let expected = CellsReport {
            mapped_share: vec![0.5, 0.0],
            ssd_share: vec![0.25, 0.0],
            on_device_share: vec![1.0, 0.0],
            extra_share: vec![0.001, 0.0],
            lost_share: vec![0.001, 0.0],
            main_device: vec![Some("d2".to_owned()), None],
            first_mapped_bytes: vec![Some(3 << 20), None],
            cell_requests_per_second: vec![Some(0.123), None],
        };
        assert_eq!(report.map_cells, expected);
    }
}
