//! Writes superblocks and device tables to the devices.

use super::{Deadline, Member};
use crate::buffer::buffer;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, Superblock};
use braid_runtime::{Buf, Device, Runtime};
use std::io;
use std::rc::Rc;

/// Sequence numbers that each change leaves free below its own, for renewals of the lease on shared devices.
/// Even, as the parity of a sequence number selects a half of the table. A day of renewals; the numbers then
/// begin again.
pub(crate) const RENEWALS: u64 = 1 << 16;

/// Outcome of a write of all superblocks.
pub(crate) enum SuperblockWrite {
    /// The superblocks are durable on all written devices.
    All,
    /// This device failed. The devices before it are written.
    Failed { device: DeviceId, error: Error, table: NeededTable },
}

/// Table of devices that the superblocks need after a device could not be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeededTable {
    /// The new table: a superblock may name it.
    New,
    /// The previous table: no superblock was written.
    Before,
}

/// Gives the superblocks their next sequence number. Returns true if the number leaves room for renewals of
/// the lease: a device is shared.
pub(crate) fn number_next<'a, D: Device>(
    superblock: &mut Superblock,
    mut members: impl Iterator<Item = &'a Member<D>>,
) -> bool {
    let is_renewed = members.any(Member::is_shared);
    superblock.sequence += if is_renewed { RENEWALS + 1 } else { 1 };
    is_renewed
}

/// Writes device tables, then superblocks, to all written devices, and makes them durable. Devices without a
/// table come last: every device with a table already knows their news.
///
/// With one required copy, a table that cannot be written costs only that copy of the table, if another
/// device has the table. With two, the device fails: its own table must say when it was excluded. No
/// superblock is written before one table is complete. `is_renewed` is the result of [`number_next`].
pub(crate) async fn write_superblocks<'a, R: Runtime, D: Device>(
    rt: &R,
    members: impl Iterator<Item = &'a Member<D>> + Clone,
    superblock: &Superblock,
    is_renewed: bool,
) -> SuperblockWrite {
    let renewable = is_renewed.then(|| Rc::new(superblock.clone()));
    let has_table = |member: &&Member<D>| superblock.tables.iter().any(|place| place.device == member.id);
    let written = || members.clone().filter(|member| member.is_written() && member.has_superblock());
    let mut needed = NeededTable::Before;
    let (mut whole, mut spared) = (0, None);
    for table in [true, false] {
        for member in written().filter(has_table).chain(written().filter(|member| !has_table(member))) {
            let write = async |at: Bytes, buf: &Buf| {
                let result = member.write(at, buf, Deadline::Only).await;
                member.note_write();
                result
            };
            let flush = async || member.flush(rt).await.map(drop);
            let failed = |what: &str, error: io::Error| {
                let (device, table) = (member.id, needed);
                let error = Error::io(format_args!("the {what} could not be written to {device}"), &error);
                SuperblockWrite::Failed { device, error, table }
            };
            if !table {
                // A renewal of the lease may be in flight.
                let _alone = member.superblocks.acquire(1).await;
                if let Err(error) = write_copies(superblock, member.id, &write, &flush).await {
                    return failed("superblock", error);
                }
                member.note_renewable(renewable.clone());
                needed = NeededTable::New;
                continue;
            }
            match write_table(superblock, member.id, &write, &flush).await {
                Ok(Ok(())) => whole += usize::from(has_table(&member)),
                // A device that went out of use meanwhile needs another superblock, with its new state.
                Ok(Err(error)) if superblock.copies == 1 && member.is_written() => {
                    tracing::warn!("the table of devices could not be written to {}: {error}", member.id);
                    spared.get_or_insert(failed("table of devices", error));
                }
                Ok(Err(error)) | Err(error) => return failed("table of devices", error),
            }
        }
        if let Some(failed) = spared.take().filter(|_| table && whole == 0) {
            return failed;
        }
    }
    SuperblockWrite::All
}

/// As [`write_superblocks`], for devices by id, of a new volume or of a volume that is not open. All tables
/// come first, then the superblocks of the first group, then of the next.
pub(crate) async fn write_new<D: Device>(groups: &[&[Option<&D>]], superblock: &Superblock) -> Result<()> {
    for table in [true, false] {
        let devices = groups.iter().flat_map(|devices| (0..).map(DeviceId).zip(*devices));
        let devices = devices.filter(|(id, _)| superblock.adopted() != Some(*id));
        for (id, device) in devices.filter_map(|(id, device)| device.map(|device| (id, device))) {
            let write = async |at: Bytes, buf: &Buf| device.write(at, buf).await;
            let flush = async || device.flush().await;
            let result = match table {
                true => write_table(superblock, id, &write, &flush).await.and_then(|written| written),
                false => write_copies(superblock, id, &write, &flush).await,
            };
            result.map_err(|e| Error::io(format_args!("the superblock could not be written to {id}"), &e))?;
        }
    }
    Ok(())
}

/// The inner error is a failed write of the table, the outer error a failed flush.
async fn write_table(
    superblock: &Superblock,
    device: DeviceId,
    write: &impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
    flush: &impl AsyncFn() -> io::Result<()>,
) -> io::Result<io::Result<()>> {
    let place = superblock.tables.iter().find(|place| place.device == device);
    let Some(place) = place else { return Ok(Ok(())) };
    let table = superblock.encode_table();
    let buf = buffer(Bytes::of_len(table.len())).await;
    buf.copy_from_slice(Bytes::ZERO, &table);
    match write(place.half(superblock.sequence), &buf).await {
        Ok(()) => flush().await.map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

/// Writes and flushes the first copy before the rest: one copy is complete at every instant. One place that
/// cannot be written costs only its copy.
async fn write_copies(
    superblock: &Superblock,
    device: DeviceId,
    write: &impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
    flush: &impl AsyncFn() -> io::Result<()>,
) -> io::Result<()> {
    let entry = &superblock.devices[device.index()];
    let buf = buffer(superblock::SIZE).await;
    buf.copy_from_slice(Bytes::ZERO, &superblock.encode(device));
    let places = superblock_offsets(entry.size, entry.layout);
    let mut failed = None;
    for (i, offset) in places.iter().enumerate() {
        if let Err(error) = write(*offset, &buf).await {
            if failed.is_some() {
                return Err(error);
            }
            failed = Some(error);
        }
        // After a failure, each remaining copy is flushed, since it may be the only complete copy.
        if i == 0 || i + 1 == places.len() || failed.is_some() {
            flush().await?;
        }
    }
    Ok(())
}
