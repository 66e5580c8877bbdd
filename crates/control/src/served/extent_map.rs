//! The last map of the volume: places of the extents at one time, and their report with the heat.

use crate::report::map::{CellsReport, MapReport};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::Region;
use braid_runtime::Semaphore;
use std::cell::RefCell;
use std::sync::Arc;

/// The last map of the volume.
pub(crate) struct ExtentMap {
    pub last: RefCell<Option<Arc<Places>>>,
    /// One examination at a time.
    pub turn: Semaphore,
}

impl Default for ExtentMap {
    fn default() -> ExtentMap {
        ExtentMap { last: RefCell::default(), turn: Semaphore::new(1) }
    }
}

/// Places of the extents at one time.
pub(crate) struct Places {
    pub size: Bytes,
    pub extent: Bytes,
    pub cell: Bytes,
    pub step: u32,
    pub device: Option<DeviceId>,
    pub regions: Vec<Region>,
    /// Blocks of an extent.
    pub blocks: u64,
    pub ended: Nanos,
    /// Time of the reactor.
    pub cost: Nanos,
}

impl Places {
    /// Returns the report, with the heat of the cells.
    pub fn report(&self, name: String, rates: &[f32], age: Nanos) -> MapReport {
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
