//! Models of devices without a model, from the requests that the devices serve for guests
//! ([`braid_model::nearest`]).

use super::Guard;
use super::like::{Known, devices};
use super::worker::beside_guests;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, Nanos};
use braid_format::superblock::DeviceEntry;
use braid_model::{Nearest, Served, Spec, nearest};
use braid_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::mpsc::{TryRecvError, channel};

/// Measured devices, with their nearest models.
pub(super) type Measured = BTreeMap<DeviceId, Nearest>;

/// Requests noted for a model of a device. Nine tenths of these are enough …
const ROOM: usize = 2_048;
/// … within this time. Later, [`Served::FEWEST`] requests are enough.
const LONGEST: Nanos = Nanos::from_secs(60);
/// Delay between two looks.
const LOOK: Nanos = Nanos::from_secs(1);
/// Largest error factor of a usable model.
const MOST_OFF: f64 = 1.5;

/// Returns a model for each device of the volume, after measuring the devices without a model. `None` if the
/// volume changes meanwhile.
///
/// # Errors
/// `Invalid` if a device is not in use, or no model behaves like the device.
pub(super) async fn models(
    guard: &Guard,
    known: &Known,
    measured: &mut Measured,
) -> Result<Option<Vec<Spec>>> {
    let devices = devices(&guard.served);
    let given = guard.models.of(&devices, &guard.served.record()?)?;
    let lacking: Vec<&(DeviceId, DeviceEntry)> = devices
        .iter()
        .zip(&given)
        .filter(|((id, _), given)| given.is_none() && !measured.contains_key(id))
        .map(|(device, _)| device)
        .collect();
    // A device that has left, or has a model now, is no longer a measured device.
    let is_measured =
        |id: &DeviceId| devices.iter().zip(&given).any(|((known, _), given)| known == id && given.is_none());
    measured.retain(|id, _| is_measured(id));
    if !lacking.is_empty() {
        match measure(guard, known, &lacking).await? {
            Some(more) => measured.extend(more),
            None => return Ok(None),
        }
    }
    let own = |id| measured.get(id).map(|nearest| nearest.spec.clone());
    Ok(devices.iter().zip(given).map(|((id, _), given)| given.or_else(|| own(id))).collect())
}

async fn measure(
    guard: &Guard,
    known: &Known,
    lacking: &[&(DeviceId, DeviceEntry)],
) -> Result<Option<Measured>> {
    let Some(served) = observe(guard, known, lacking).await? else { return Ok(None) };
    let names: Vec<String> = lacking.iter().map(|(id, _)| id.to_string()).collect();
    guard.tell(Some(format!("searching for models of {}", names.join(", "))));
    let (sender, found) = channel();
    let parts: Vec<_> =
        lacking.iter().map(|(id, device)| (*id, device.class, device.size)).zip(served).collect();
    beside_guests(move || {
        let near = |((id, class, size), served): (_, Vec<Served>)| {
            let name = format!("{id}");
            nearest(&name, class, size, &served).map(|nearest| (id, nearest))
        };
        // The daemon may have ended.
        let _ = sender.send(parts.into_iter().filter_map(near).collect::<Measured>());
    })?;
    let measured = loop {
        match found.try_recv() {
            Ok(measured) => break measured,
            Err(TryRecvError::Empty) => guard.served.ring().sleep(LOOK).await,
            Err(TryRecvError::Disconnected) => {
                return Err(Error::new(ErrorKind::Io, "the search for models of the devices failed"));
            }
        }
    };
    for (id, device) in lacking {
        let Some(nearest) = measured.get(id).filter(|nearest| nearest.off <= MOST_OFF) else {
            let off = measured.get(id).map_or(f64::INFINITY, |nearest| nearest.off);
            let (class, path) = (device.class, guard.served.name_of(*id).unwrap_or_default());
            let problem = format!(
                "no model matches {id} ({path}): the nearest is off by a factor of {off:.2}: while the \
                 volume is not served, measure the device with braid device calibrate {path} --output \
                 mine.toml, and serve with --{class}-model mine.toml"
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        };
        tracing::info!(
            "{id} of volume '{}' was measured during operation: off by a factor of {:.2}",
            guard.served.name(),
            nearest.off
        );
    }
    Ok(Some(measured))
}

/// Returns the requests served by each of these devices, once all have served enough. `None` if the volume
/// changes before.
async fn observe(
    guard: &Guard,
    known: &Known,
    lacking: &[&(DeviceId, DeviceEntry)],
) -> Result<Option<Vec<Vec<Served>>>> {
    let mut opened = Vec::new();
    for (id, _) in lacking {
        let missing = || Error::new(ErrorKind::Invalid, format!("{id} is missing, and cannot be measured"));
        opened.push(guard.served.device(*id).ok_or_else(missing)?);
    }
    opened.iter().for_each(|device| device.served().start(ROOM));
    let begun = guard.served.ring().now();
    loop {
        guard.served.ring().sleep(LOOK).await;
        if guard.served.end().has_begun() || *known != Known::of(&guard.served) {
            opened.iter().for_each(|device| drop(device.served().take()));
            return Ok(None);
        }
        let least = if guard.served.ring().now() - begun < LONGEST { ROOM * 9 / 10 } else { Served::FEWEST };
        let ended: Vec<usize> = opened.iter().map(|device| device.served().ended()).collect();
        let short = ended.iter().position(|&ended| ended < least);
        guard.tell(short.map(|place| {
            let (id, ended) = (lacking[place].0, ended[place]);
            format!(
                "{id} is measured during operation: {ended} of at least {} requests so far",
                Served::FEWEST
            )
        }));
        if short.is_none() {
            return Ok(Some(opened.iter().map(|device| device.served().take()).collect()));
        }
    }
}
