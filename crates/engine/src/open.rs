//! Opening a volume from its devices alone: find the superblocks, refuse what does not belong, recover the map, note
//! the new generation.

use crate::create::buffer;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::Invalid;
use braid_format::layout::{SMALLEST_DEVICE, superblock_offsets};
use braid_format::superblock::{self, Superblock};
use braid_runtime::Device;

/// What the copies of a superblock on one device say.
pub(crate) struct Found {
    /// The newest valid one.
    pub superblock: Superblock,
    /// Copies that could not be believed, by place.
    pub damaged: Vec<Bytes>,
}

/// Reads the superblock of a device. An error says whether it is foreign, damaged or from the future.
pub(crate) async fn read_superblock<D: Device>(device: &D, name: &str) -> Result<Found> {
    let size = device.geometry().size;
    if size < SMALLEST_DEVICE {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{name} has only {size}: it is no device of a volume"),
        ));
    }
    let buf = buffer(superblock::SIZE).await;
    let (mut newest, mut damaged, mut refused): (Option<Superblock>, _, _) = (None, Vec::new(), None);
    for offset in superblock_offsets(size) {
        let read = device.read(offset, &buf).await;
        match read.map(|()| buf.with_bytes(Superblock::decode)) {
            Err(error) => {
                damaged.push(offset);
                refused.get_or_insert(Error::io(
                    format_args!("{name} could not be read at byte {}", offset.0),
                    &error,
                ));
            }
            Ok(Err(Invalid::Feature(text))) => {
                return Err(Error::new(ErrorKind::Unsupported, format!("{name}: {text}")));
            }
            Ok(Err(_)) => damaged.push(offset),
            Ok(Ok(found)) if newest.as_ref().is_none_or(|n| found.sequence > n.sequence) => {
                newest = Some(found)
            }
            Ok(Ok(_)) => {}
        }
    }
    match (newest, refused) {
        (Some(superblock), _) => Ok(Found { superblock, damaged }),
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "{name} belongs to no volume: no valid superblock is on it; give the devices that the volume was made of"
            ),
        )),
    }
}

/// The superblock of a device: which volume it belongs to, as which of its devices, and what it emulates. Reads only.
///
/// # Errors
/// `Invalid` where the device belongs to no volume, `Unsupported` where a newer version made it.
pub async fn identify<D: Device>(device: &D, name: &str) -> Result<Superblock> {
    Ok(read_superblock(device, name).await?.superblock)
}

/// Puts the devices of a volume in order, and decides which superblock counts.
///
/// Refuses: a device of another volume, one given twice, one that is missing, one that took no part in the last
/// openings, and one that has shrunk. `names` says what to call each.
pub(crate) async fn assemble<D: Device>(
    devices: Vec<D>,
    names: &[String],
) -> Result<(Superblock, Vec<D>, Vec<usize>)> {
    let mut found = Vec::new();
    for (device, name) in devices.into_iter().zip(names) {
        let superblock = read_superblock(&device, name).await?.superblock;
        found.push((device, name, superblock));
    }
    let refuse = |kind, message: String| Err(Error::new(kind, message));
    let Some((_, _, newest)) = found.iter().max_by_key(|(_, _, s)| s.sequence) else {
        return refuse(ErrorKind::Invalid, "no device was given: name the devices of the volume".to_owned());
    };
    let newest = newest.clone();
    let mut places: Vec<Option<(D, u64)>> = newest.devices.iter().map(|_| None).collect();
    let mut seen: Vec<Option<&String>> = vec![None; places.len()];
    for (device, name, superblock) in found {
        let place = superblock.this_device.index();
        if superblock.volume != newest.volume {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name} belongs to another volume, '{}' ({}), not to '{}' ({}): give only devices of one volume",
                    superblock.name, superblock.volume, newest.name, newest.volume
                ),
            );
        }
        let entry = newest.devices.get(place).filter(|e| e.uuid == superblock.this_entry().uuid);
        let Some(entry) = entry else {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name} was a device of volume '{}' once, but is none any more: leave it out",
                    newest.name
                ),
            );
        };
        if let Some(other) = seen[place].replace(name) {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{other} and {name} are both device d{place} of volume '{}': one is a copy of the other; give only \
                     the one that was in use last",
                    newest.name
                ),
            );
        }
        // One opening may have been cut short before it reached this device, two may not.
        if superblock.generation + 1 < newest.generation {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name} is an old copy of device d{place} of volume '{}': it was left behind {} openings ago; give \
                     the one that was in use last",
                    newest.name,
                    newest.generation - superblock.generation
                ),
            );
        }
        if device.geometry().size < entry.size {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name} has shrunk: it had {}, it has {}; restore its size",
                    entry.size,
                    device.geometry().size
                ),
            );
        }
        places[place] = Some((device, superblock.generation));
    }
    let missing: Vec<String> =
        places.iter().enumerate().filter(|(_, p)| p.is_none()).map(|(i, _)| describe(&newest, i)).collect();
    if !missing.is_empty() {
        return refuse(
            ErrorKind::Degraded,
            format!(
                "volume '{}' lacks {} of its {} devices: {}; bring them back (nothing was changed)",
                newest.name,
                missing.len(),
                places.len(),
                missing.join(", ")
            ),
        );
    }
    // Whoever is behind is brought up first, so that no opening leaves a device two behind.
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&i| places[i].as_ref().map(|(_, generation)| *generation));
    let devices = places.into_iter().flatten().map(|(device, _)| device).collect();
    Ok((newest, devices, order))
}

fn describe(superblock: &Superblock, place: usize) -> String {
    let entry = &superblock.devices[place];
    format!("d{place} ({}, {}, {})", entry.class, entry.size, entry.uuid)
}

/// Writes a superblock to all its places on all devices, in the given order: one place after the other, each flushed,
/// so that each device has a valid copy at every instant.
pub(crate) async fn write_superblocks<D: Device>(
    devices: &[&D],
    superblock: &Superblock,
    order: &[usize],
) -> Result<()> {
    let buf = buffer(superblock::SIZE).await;
    for &place in order {
        let (device, size) = (devices[place], superblock.devices[place].size);
        let this = Superblock { this_device: braid_base::DeviceId(place as u16), ..superblock.clone() };
        buf.copy_from_slice(Bytes::ZERO, &this.encode());
        for offset in superblock_offsets(size) {
            let failed = |e| Error::io(format_args!("the superblock could not be written to d{place}"), &e);
            device.write(offset, &buf).await.map_err(failed)?;
            device.flush().await.map_err(failed)?;
        }
    }
    Ok(())
}
