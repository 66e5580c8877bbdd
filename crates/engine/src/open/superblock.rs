//! Reads and writes superblocks and device tables, at all places of their copies.

use super::cut::{self, End};
use crate::buffer::buffer;
use crate::devices::answered;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::layout::{SMALLEST_DEVICE, superblock_offsets};
use braid_format::superblock::{self, DeviceEntry, DeviceTable, Header, Layout, TablePlace};
use braid_format::{Invalid, Uuid};
use braid_runtime::{Device, Runtime};
use std::cmp::Reverse;
use std::io;
use std::rc::Rc;

/// Result of reading all superblock copies on one device.
pub(crate) struct FoundSuperblock {
    /// The newest valid copy.
    pub header: Header,
    /// Places of damaged or foreign copies.
    pub damaged: Vec<Bytes>,
    /// State of the end of the device.
    pub end: End,
}

impl FoundSuperblock {
    /// Place of the last copy, on a device that lost data with its end.
    pub fn lost_end(&self) -> Option<Bytes> {
        self.damaged.last().copied().filter(|_| cut::is_lost(&self.header, self.end))
    }
}

/// Reads the superblock of a device. The error distinguishes foreign, damaged, and newer-version devices.
pub(super) async fn read_superblock<D: Device>(device: &D, name: &str) -> Result<FoundSuperblock> {
    let size = device.geometry().size;
    if size < SMALLEST_DEVICE {
        let problem =
            format!("{name}: {size} are too few for a device of a volume: at least {SMALLEST_DEVICE}");
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let (mut newest, mut problem) = (None, None);
    for layout in layouts(device, size, name).await {
        for offset in superblock_offsets(size, layout) {
            match read_copy(device, offset, name).await {
                Ok(header) if header.device.layout == layout => newest = newer(newest, header),
                Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
                Err(error) if error.kind() == ErrorKind::Io => drop(problem.get_or_insert(error)),
                Ok(_) | Err(_) => {}
            }
        }
        if newest.is_some() {
            break;
        }
    }
    let nothing = || {
        let text = format!(
            "{name}: no valid superblock, so it belongs to no volume; give the devices of the volume. A \
             disk with layout=tail has its superblocks at its end: if this disk has grown, restore its \
             former size"
        );
        Error::new(ErrorKind::Invalid, text)
    };
    let header = newest.ok_or_else(|| problem.unwrap_or_else(nothing))?;
    // A device that grew has its last copy at its former end.
    let (mut damaged, mut is_last_absent) = (Vec::new(), false);
    for offset in superblock_offsets(header.device.size.min(size), header.device.layout) {
        let copy = try_copy(device, offset).await;
        let is_own = matches!(&copy, Ok(Ok(copy)) if copy.volume == header.volume);
        if !is_own {
            damaged.push(offset);
        }
        is_last_absent = matches!(copy, Ok(Ok(_) | Err(Invalid::Absent))) && !is_own;
    }
    let end = match is_last_absent {
        _ if size < header.device.size => End::Short,
        true => End::Absent,
        false => End::There,
    };
    Ok(FoundSuperblock { header, damaged, end })
}

/// Possible layouts of a device. The last copy, at the same place in both layouts, decides. Guests' bytes lie
/// at the places of the other layout, and a guest may have written a false superblock there.
async fn layouts<D: Device>(device: &D, size: Bytes, name: &str) -> Vec<Layout> {
    let last = superblock_offsets(size, Layout::Head)[2];
    match read_copy(device, last, name).await {
        Ok(header) => vec![header.device.layout],
        // The copy is damaged, or the device has grown.
        Err(_) => vec![Layout::Head, Layout::Tail],
    }
}

/// Former size of a device without a superblock, if the device has grown: with layout tail, the superblocks
/// lie at the former end. `tables` belong to the other devices of the volume.
pub(crate) async fn former_size<D: Device>(
    device: &D,
    name: &str,
    volume: Uuid,
    tables: &[DeviceTable],
) -> Option<Bytes> {
    let size = device.geometry().size;
    let entries = tables.iter().flat_map(|table| &table.devices);
    let had = |entry: &&DeviceEntry| (SMALLEST_DEVICE..size).contains(&entry.size);
    let mut asked = Vec::new();
    for entry in entries.filter(|entry| entry.layout == Layout::Tail).filter(had) {
        if asked.contains(&(entry.uuid, entry.size)) {
            continue;
        }
        asked.push((entry.uuid, entry.size));
        for offset in superblock_offsets(entry.size, entry.layout) {
            let header = read_copy(device, offset, name).await;
            if header.is_ok_and(|header| header.volume == volume && header.device.uuid == entry.uuid) {
                return Some(entry.size);
            }
        }
    }
    None
}

fn newer(newest: Option<Header>, header: Header) -> Option<Header> {
    match newest {
        Some(newest) if newest.sequence >= header.sequence => Some(newest),
        _ => Some(header),
    }
}

async fn try_copy<D: Device>(device: &D, offset: Bytes) -> io::Result<std::result::Result<Header, Invalid>> {
    let buf = buffer(superblock::SIZE).await;
    device.read(offset, &buf).await?;
    Ok(buf.with_bytes(Header::decode))
}

async fn read_copy<D: Device>(device: &D, offset: Bytes, name: &str) -> Result<Header> {
    let failed = |e| Error::io(format_args!("{name} could not be read at byte {}", offset.0), &e);
    try_copy(device, offset).await.map_err(failed)?.map_err(|invalid| match invalid {
        Invalid::Feature(text) => Error::new(ErrorKind::Unsupported, format!("{name}: {text}")),
        other => Error::new(ErrorKind::Corrupt, format!("{name}, superblock at byte {}: {other}", offset.0)),
    })
}

/// Valid device tables of the two halves of a place, the newest first.
pub(crate) async fn read_table<D: Device>(
    device: &D,
    place: TablePlace,
    volume: Uuid,
) -> std::result::Result<Vec<DeviceTable>, String> {
    let half = buffer(place.len / 2).await;
    let mut tables = Vec::new();
    let mut problem = String::new();
    for sequence in 0..2 {
        match device.read(place.half(sequence), &half).await {
            Err(error) => problem = error.to_string(),
            Ok(()) => match half.with_bytes(|bytes| DeviceTable::decode(bytes, volume)) {
                Err(invalid) => problem = invalid.to_string(),
                Ok(table) => tables.push(table),
            },
        }
    }
    tables.sort_by_key(|table| Reverse(table.sequence));
    if tables.is_empty() { Err(problem) } else { Ok(tables) }
}

/// Reads the superblock of a device: its volume, its number there, and the model that it emulates. Writes
/// nothing.
///
/// # Errors
/// `Invalid` if the device belongs to no volume, `Unsupported` if a newer version made the superblock, `Io`
/// if the device does not answer for a minute.
pub async fn identify<R: Runtime, D: Device>(rt: &R, device: Rc<D>, name: &str) -> Result<Header> {
    Ok(ask_superblock(rt, &device, name).await?.header)
}

/// As [`read_superblock`], with a limit of time for the answer.
pub(crate) async fn ask_superblock<R: Runtime, D: Device>(
    rt: &R,
    device: &Rc<D>,
    name: &str,
) -> Result<FoundSuperblock> {
    let (device, own) = (device.clone(), name.to_owned());
    let repair_time = device.repair_time();
    answered(rt, name, repair_time, async move { read_superblock(&*device, &own).await }).await?
}
