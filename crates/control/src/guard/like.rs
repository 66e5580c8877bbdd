//! Description of the volume for ghosts: devices with timing models, and the extents with homes.

use crate::model::library::{find_model, reopen};
use crate::served::ServedVolume;
use crate::served::options::ServeOptions;
use crate::state::state_dir::VolumeRecord;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, Nanos};
use braid_engine::{Export, SPARE_SLOTS};
use braid_format::superblock::{DeviceEntry, DeviceState};
use braid_lab::Size;
use braid_lab::guard::{Homes, Like, LikeDevice, Scale};
use braid_model::Spec;
use braid_runtime::Runtime;

/// Models for real devices, by class.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Models {
    ssd: Option<Spec>,
    hdd: Option<Spec>,
}

impl Models {
    /// Finds models by names in the library or by files.
    ///
    /// # Errors
    /// `Usage` if a name is unknown, or a file is invalid or of the other class.
    pub fn find(ssd: Option<&str>, hdd: Option<&str>) -> Result<Models> {
        let find = |class, model: Option<&str>| model.map(|model| find_model(class, model)).transpose();
        Ok(Models { ssd: find(DeviceClass::Ssd, ssd)?, hdd: find(DeviceClass::Hdd, hdd)? })
    }

    /// Returns a model for each device of a volume; `None` for a device that must be measured.
    ///
    /// # Errors
    /// `Invalid` if a device is not in use.
    pub fn of(
        &self,
        devices: &[(DeviceId, DeviceEntry)],
        record: &VolumeRecord,
    ) -> Result<Vec<Option<Spec>>> {
        let of_device = |(id, device): &(DeviceId, DeviceEntry)| {
            if !is_in_use(device) {
                let problem = format!("{id} is {}: simulations need devices in use", device.state);
                return Err(Error::new(ErrorKind::Invalid, problem));
            }
            if !device.model.is_empty() {
                return reopen(device.class, &device.model, &record.models).map(Some);
            }
            Ok(if device.class == DeviceClass::Ssd { self.ssd.clone() } else { self.hdd.clone() })
        };
        devices.iter().map(of_device).collect()
    }
}

/// True if a device is in normal use.
pub(super) fn is_in_use(device: &DeviceEntry) -> bool {
    matches!(device.state, DeviceState::Active | DeviceState::Slow)
}

/// Returns the devices of a volume, without removed devices.
pub(super) fn devices(served: &ServedVolume) -> Vec<(DeviceId, DeviceEntry)> {
    let entries = served.volume().superblock().devices;
    let all = (0..).map(DeviceId).zip(entries);
    all.filter(|(_, device)| device.state != DeviceState::Removed).collect()
}

/// The modes and devices for which ghosts are made.
#[derive(PartialEq)]
pub(super) struct Known {
    pub modes: Vec<String>,
    /// Each device with its number of slots, and true if it is in use.
    devices: Vec<(DeviceId, u32, bool)>,
}

impl Known {
    pub fn of(served: &ServedVolume) -> Known {
        let devices = devices(served);
        Known {
            modes: served.volume().modes(1).0,
            devices: devices.iter().map(|(id, device)| (*id, device.slots, is_in_use(device))).collect(),
        }
    }
}

/// Limit of a ghost's extents, unless so small a part does not represent the volume: some 100 bytes each.
const MOST_EXTENTS: u64 = 1 << 16;
/// Extents whose homes are looked up before guests get a turn.
const AT_ONCE: usize = 1 << 10;

/// Describes the volume for ghosts of at most one part in `one_in`, on devices with these models.
pub(super) async fn like(
    served: &ServedVolume,
    options: &ServeOptions,
    specs: Vec<Spec>,
    is_measured: bool,
    one_in: u64,
) -> Like {
    let (volume, superblock) = (served.volume(), served.volume().superblock());
    let (extent, size) = (superblock.extent_size, volume.size());
    let scale = Scale::of(one_in.max((size / extent).div_ceil(MOST_EXTENTS)), size, extent);
    let image = scale.image(size);
    let listed = devices(served);
    let largest = listed.iter().max_by_key(|(_, device)| device.slots).map(|(id, _)| *id);
    let share = |id: DeviceId, device: &DeviceEntry| {
        let slots = u64::from(device.slots.saturating_sub(SPARE_SLOTS)) / u64::from(scale.one_in());
        // A ghost of a full volume may have one piece more than its part of the volume.
        let more = if Some(id) == largest { scale.piece() / extent } else { 0 };
        (slots + more + u64::from(SPARE_SLOTS)) as f64 / image.0.div_ceil(extent.0) as f64
    };
    let device = |((id, device), spec): (&(DeviceId, DeviceEntry), Spec)| LikeDevice {
        class: device.class,
        spec,
        size: Size::Share(share(*id, device)),
    };
    let devices = listed.iter().zip(specs).map(device).collect();
    let class = |id: DeviceId| superblock.devices.get(id.index()).map(|device| device.class);
    let (mut homes, mut at, mut looked) = (Homes::default(), Bytes::ZERO, 0);
    while at < image {
        let range = at..(at + extent).min(image);
        if let Some(class) = volume.home(scale.place(at)).and_then(class) {
            homes.add(range.clone(), class);
        }
        (at, looked) = (range.end, looked + 1);
        if looked % AT_ONCE == 0 {
            served.ring().sleep(Nanos::from_millis(1)).await;
        }
    }
    Like {
        scale,
        size,
        extent_size: extent,
        block_size: superblock.block_size,
        cache_extents: options.cache_extents,
        readahead: options.readahead,
        ahead: options.ahead,
        devices,
        is_measured,
        homes,
        seed: 1,
    }
}
