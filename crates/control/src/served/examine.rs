//! The map of the volume for a picture: places of the extents, and the heat that [`Heat`] measures.
//!
//! Guests come first. The places are examined in slices of [`SLICE`] with pauses, at most [`SAMPLES`] extents
//! of each cell, and all examinations together take at most a hundredth of the time. Requests meanwhile get
//! the last map.

use crate::record::heat::{COOLING_SECONDS, Heat, shape};
use crate::served::ServedVolume;
use crate::served::extent_map::Places;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::{Export, Tally};
use braid_runtime::Runtime;
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

/// Cools the heat of the volume for as long as the daemon runs.
pub(crate) async fn keep_heat(served: Rc<ServedVolume>) {
    while !served.end.has_begun() {
        served.ring.sleep(Nanos::from_secs(u64::from(COOLING_SECONDS))).await;
        served.heat().cool(served.volume.size());
    }
}

impl ServedVolume {
    /// Returns the map of the volume as JSON: a [`crate::MapReport`]. `device` is the number of the device in
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
