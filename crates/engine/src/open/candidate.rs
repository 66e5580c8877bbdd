//! Statements of a given device about itself and the volume: its superblock and its tables of devices.

use super::cut::End;
use super::superblock::{FoundSuperblock, ask_superblock, former_size, read_table};
use super::verdict::refuse;
use crate::devices::answered;
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::superblock::{DeviceTable, Header, Superblock, TablePlace};
use braid_runtime::{Device, Runtime};
use std::cmp::Reverse;
use std::rc::Rc;

/// A given device with its statements. Nothing has been believed yet.
pub(crate) struct Candidate<'a, D> {
    pub device: Rc<D>,
    /// Name of the device in messages.
    pub name: &'a str,
    pub header: Header,
    /// State of the end of the device.
    pub end: End,
    /// Valid tables of devices, the newest first, or the reason for their absence. A device without a place
    /// for tables has an empty list, which is no error.
    pub tables: std::result::Result<Vec<DeviceTable>, String>,
}

impl<'a, D: Device> Candidate<'a, D> {
    /// Reads the superblock, and no table.
    ///
    /// # Errors
    /// `Invalid` if the device belongs to no volume, `Unsupported` if a newer version made the superblock,
    /// `Io` if the device does not answer for a minute.
    pub async fn read<R: Runtime>(rt: &R, device: Rc<D>, name: &'a str) -> Result<Candidate<'a, D>> {
        let FoundSuperblock { header, end, .. } = ask_superblock(rt, &device, name).await?;
        Ok(Candidate { device, name, header, end, tables: Ok(Vec::new()) })
    }

    /// Reads the tables at all places that any device of the volume names. A device that does not answer for
    /// a minute has no tables.
    pub async fn read_tables<R: Runtime>(&mut self, rt: &R, places: &[TablePlace]) {
        let (mut read, mut tables, mut problem) = (Vec::new(), Vec::new(), None);
        for place in places.iter().filter(|place| place.device == self.header.this_device) {
            if read.contains(place) {
                continue;
            }
            read.push(*place);
            let (device, place, volume) = (self.device.clone(), *place, self.header.volume);
            let repair_time = device.repair_time();
            let read = async move { read_table(&*device, place, volume).await };
            match answered(rt, self.name, repair_time, read).await {
                Ok(Ok(valid)) => tables.extend(valid),
                Ok(Err(why)) => problem = Some(why),
                Err(error) => problem = Some(error.to_string()),
            }
        }
        tables.sort_by_key(|table| Reverse(table.sequence));
        self.tables = match problem {
            Some(problem) if tables.is_empty() => Err(problem),
            _ => Ok(tables),
        };
    }

    pub fn tables(&self) -> &[DeviceTable] {
        self.tables.as_deref().unwrap_or_default()
    }

    /// Generation and sequence of the superblock and of each table.
    pub fn numbers(&self) -> impl Iterator<Item = (u64, u64)> {
        let tables = self.tables().iter().map(|table| (table.epoch, table.sequence));
        tables.chain([(self.header.epoch, self.header.sequence)])
    }
}

/// Superblock of this header with the matching table of devices. The header's own device is asked first: two
/// halves of a mirror that were opened apart may both have a table of this number.
///
/// # Errors
/// `Degraded` if the table is absent and a device that holds one is missing; `Corrupt` if no device has the
/// table.
pub(super) fn with_newest_table<D: Device>(
    found: &[Candidate<'_, D>],
    newest: &Header,
    distrusted: &[DeviceId],
) -> Result<Superblock> {
    let (mut best, mut next_best, mut problems) = (None, None, Vec::new());
    let mut places = newest.tables.clone();
    places.sort_by_key(|place| place.device != newest.this_device);
    for place in places.iter().filter(|place| !distrusted.contains(&place.device)) {
        if best.is_some() {
            break;
        }
        let Some(holder) = found.iter().find(|c| c.header.this_device == place.device) else {
            problems.push(format!("{} is missing", place.device));
            continue;
        };
        // A table is written before its superblocks. The table of the previous change is kept beside it, and
        // counts if no superblock belongs to the newer table.
        let is_new = |t: &&DeviceTable| t.sequence >= newest.sequence && t.epoch >= newest.epoch;
        let new = || holder.tables().iter().rev().filter(is_new);
        best = new().find(|table| newest.agrees_with(table));
        next_best = next_best.or_else(|| new().next());
        match &holder.tables {
            Ok(tables) if next_best.is_none() => {
                let newest = tables.first().map_or(0, |table| table.sequence);
                problems.push(format!("the table of {} is older ({newest})", holder.name));
            }
            Ok(_) => {}
            Err(problem) => problems.push(format!("{}: {problem}", holder.name)),
        }
    }
    // For a table that does not match, `with_table` fails with the reason.
    let Some(table) = best.or(next_best) else {
        let missing = newest.tables.iter().any(|p| !found.iter().any(|c| c.header.this_device == p.device));
        let kind = if missing { ErrorKind::Degraded } else { ErrorKind::Corrupt };
        let (name, sequence, problems) = (&newest.name, newest.sequence, problems.join(", "));
        let text = format!(
            "volume '{name}': its table of devices (number {sequence}) is missing: {problems}; bring the \
             missing devices back"
        );
        return refuse(kind, text);
    };
    // The table's number may be higher: the next write must not overwrite this table.
    let sequence = table.sequence;
    let superblock = newest.clone().with_table(table.clone());
    let corrupt = |invalid| Error::new(ErrorKind::Corrupt, format!("volume '{}': {invalid}", newest.name));
    Ok(Superblock { sequence, ..superblock.map_err(corrupt)? })
}

/// Error for a device without superblocks, if the device belongs to the volume and has grown.
///
/// # Errors
/// `Io` if the device does not answer for a minute.
pub(super) async fn refuse_grown<R: Runtime, D: Device>(
    rt: &R,
    found: &[Candidate<'_, D>],
    device: &Rc<D>,
    name: &str,
) -> Result<Option<Error>> {
    for candidate in found {
        let (device, own, volume) = (device.clone(), name.to_owned(), candidate.header.volume);
        let (tables, repair_time) = (candidate.tables().to_vec(), device.repair_time());
        let asked = async move {
            let had = former_size(&*device, &own, volume, &tables).await;
            had.map(|had| (had, device.geometry().size))
        };
        if let Some((had, has)) = answered(rt, name, repair_time, asked).await? {
            let text = format!(
                "{name} has grown: it had {had} as a device of volume '{}', and has {has}, and its \
                 superblocks are at its former end; restore its size (nothing was changed)",
                candidate.header.name
            );
            return Ok(Some(Error::new(ErrorKind::Invalid, text)));
        }
    }
    Ok(None)
}
