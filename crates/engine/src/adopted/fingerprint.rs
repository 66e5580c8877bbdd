//! Reads an adopted disk: the fingerprint, a sum that is compared after a shutdown, and sectors that may hold
//! marks.

use crate::buffer::buffer;
use crate::core::Durable;
use crate::devices::{Deadline, Member};
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, SECTOR};
use braid_format::Fingerprint;
use braid_format::fingerprint::{EDGE, Mark, mark_in, marked_sectors, places};
use braid_runtime::{Buf, Device, Runtime};
use std::io;
use std::ops::Range;

/// Sectors that may hold marks, with their marks.
pub(super) type Marks = Vec<(Bytes, Option<Mark>)>;

/// Facts that a reader of an adopted disk, or of a candidate, needs.
#[derive(Clone, Copy)]
pub(crate) struct Disk {
    pub id: DeviceId,
    pub size: Bytes,
    /// Requests start and end at multiples.
    pub alignment: Bytes,
}

impl Disk {
    /// Describes a device of a volume.
    pub(super) fn of<D: Device>(member: &Member<D>) -> Self {
        Self { id: member.id, size: member.entry.size, alignment: member.alignment }
    }
}

/// Returns the fingerprint of a disk, and its marks. `read` reads whole sectors.
///
/// # Errors
/// The errors of the disk.
pub(crate) async fn fingerprint_of(
    disk: Disk,
    read: impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> Result<(Fingerprint, Marks)> {
    let size = disk.size;
    let mut found = vec![look(disk, Bytes::ZERO..EDGE.min(size), &read).await?];
    let places = places(&found[0], size);
    for place in &places[1..] {
        found.push(look(disk, place.clone(), &read).await?);
    }
    let mut marks = Vec::new();
    for at in marked_sectors(&found[0], size) {
        let place = (0..places.len()).find(|&i| places[i].start <= at && at + SECTOR <= places[i].end);
        let mark = place.and_then(|i| {
            let first = (at - places[i].start).as_usize();
            mark_in(&found[i][first..first + SECTOR.as_usize()])
        });
        marks.push((at, mark));
    }
    Ok((Fingerprint::of(&found), marks))
}

/// Reads a range of any alignment.
pub(super) async fn look(
    disk: Disk,
    place: Range<Bytes>,
    read: &impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> Result<Vec<u8>> {
    let Disk { id, size, alignment } = disk;
    let around = place.start.align_down(alignment)..place.end.align_up(alignment).min(size);
    let buf = buffer(around.end - around.start).await;
    let done = read(around.start, &buf).await;
    done.map_err(|e| Error::io(format_args!("the adopted disk {id} could not be inspected"), &e))?;
    let wanted = (place.start - around.start).as_usize()..(place.end - around.start).as_usize();
    Ok(buf.with_bytes(|bytes| bytes[wanted].to_vec()))
}

/// As [`fingerprint_of`], for a device of a volume.
pub(super) async fn fingerprint_of_member<D: Device>(member: &Member<D>) -> Result<(Fingerprint, Marks)> {
    fingerprint_of(Disk::of(member), async |at: Bytes, into: &Buf| {
        member.read(at, into, Deadline::Only).await
    })
    .await
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Returns the fingerprint at a shutdown: nothing is written any more.
    pub async fn last_fingerprint(&self) -> Result<Option<(DeviceId, Fingerprint)>> {
        let Some(disk) = self.store.devices.superblock().adopted() else { return Ok(None) };
        self.note_all_sums().await;
        Ok(Some((disk, fingerprint_of_member(self.store.member(disk)).await?.0)))
    }
}
