//! Sizes of devices given as a share of the load's data.
//!
//! Such a device has exactly as many data slots as the share demands, in whole extents, rounded up. The
//! volume's metadata on the device (journal, map, table of the cache) comes on top, and depends on the sizes
//! of all devices. Sizes therefore begin too large, and shrink by the excess until there is none. Each step
//! leaves at most a little excess, because smaller devices never need more metadata.

use crate::rig::Need;
use crate::{DeviceSetup, Error, Result, Setup, Size};
use braid_base::{Bytes, MIB, SECTOR};
use braid_engine::{CreateOptions, planned_slots};
use braid_format::layout::SMALLEST_DEVICE;
use braid_runtime::Geometry;
use braid_sim::{Hollow, Payload};
use std::rc::Rc;

/// Returns the size of each device.
///
/// # Errors
/// If a share is less than a volume can use of a device, or the devices do not fit together.
pub(crate) fn sizes(
    setup: &Setup,
    kinds: &[DeviceSetup],
    need: &Need,
    options: &CreateOptions,
) -> Result<Vec<Bytes>> {
    let wanted = kinds.iter().map(|kind| wanted_slots(kind, setup, need)).collect::<Result<Vec<_>>>()?;
    let begin = |(kind, wanted): (&DeviceSetup, &Option<u64>)| match (kind.size, wanted) {
        (Size::Bytes(bytes), _) => bytes,
        (Size::Share(_), wanted) => {
            let slots = wanted.unwrap_or(0);
            (setup.extent_size * (slots + slots / 4 + ROOM_FOR_METADATA.0) + ROOM_FOR_METADATA.1)
                .align_up(MIB)
        }
    };
    let mut sizes: Vec<Bytes> = kinds.iter().zip(&wanted).map(begin).collect();
    if wanted.iter().all(Option::is_none) {
        return Ok(sizes);
    }
    for _ in 0..MOST_STEPS {
        let hollow = |(kind, &size): (&DeviceSetup, &Bytes)| {
            let geometry =
                Geometry { size, class: kind.class, alignment: SECTOR, memory_alignment: Bytes(1) };
            Rc::new(Hollow::new(geometry, Payload::Nothing))
        };
        let devices: Vec<Rc<Hollow>> = kinds.iter().zip(&sizes).map(hollow).collect();
        let slots = planned_slots(&devices, options).map_err(|error| Error::setup(error.to_string()))?;
        let mut exact = true;
        for (((size, kind), wanted), slots) in sizes.iter_mut().zip(kinds).zip(&wanted).zip(slots) {
            let Some(wanted) = *wanted else { continue };
            let slots = u64::from(slots);
            exact &= slots == wanted;
            *size = (*size + setup.extent_size * wanted).saturating_sub(setup.extent_size * slots);
            if *size < SMALLEST_DEVICE {
                return Err(Error::setup(format!(
                    "--{} {} of the load's data is {wanted} extents, a device of {size}: use a larger share or a larger --extent; \
                     the smallest device of a volume has {SMALLEST_DEVICE}",
                    kind.class, kind.size
                )));
            }
        }
        if exact {
            return Ok(sizes);
        }
    }
    Err(Error::setup("no sizes of the devices match the requested shares: give sizes in bytes"))
}

/// Slots wanted for a device; `None` if its size is given in bytes.
fn wanted_slots(kind: &DeviceSetup, setup: &Setup, need: &Need) -> Result<Option<u64>> {
    let Size::Share(share) = kind.size else { return Ok(None) };
    let DeviceSetup { class, size, .. } = kind;
    let Some(data) = need.data.filter(|data| *data > Bytes::ZERO) else {
        return Err(Error::setup(format!(
            "--{class} {size} is a share of the load's data, and the load has none: give the device a size in bytes"
        )));
    };
    let extents = data.0.div_ceil(setup.extent_size.0);
    let slots = (extents as f64 * share).ceil() as u64;
    match slots < FEWEST_SLOTS {
        true => Err(Error::setup(format!(
            "--{class} {size} of the load's {data} is {slots} of {extents} extents, and a device has {FEWEST_SLOTS} at least: use a \
             larger share or a smaller --extent"
        ))),
        false => Ok(Some(slots)),
    }
}

/// Initial size beyond the data: a number of extents, and bytes.
const ROOM_FOR_METADATA: (u64, Bytes) = (64, Bytes(256 * MIB.0));
/// Fewest slots: a volume keeps four slots spare on each device, and uses one.
const FEWEST_SLOTS: u64 = 5;
/// Steps after which the search for sizes fails. Two to four are usual.
const MOST_STEPS: usize = 32;
