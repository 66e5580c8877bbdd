//! Whether the disk was changed while Braid did not serve it: its fingerprint is written down when the volume opens and closes, and when guests
//! write what tells its file systems from others.

use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::create::buffer;
use crate::journal::Recovery;
use crate::map::State;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_format::Fingerprint;
use braid_format::fingerprint::{EDGE, TABLES, places, telling_places};
use braid_format::superblock::{RegionKind, Superblock};
use braid_runtime::{Buf, Device, Runtime};
use std::cell::Cell;
use std::io;
use std::ops::Range;

/// How soon a file system that guests make or mount is known. Until then a crash makes the disk look as if it had been changed elsewhere.
const LOOK_AFTER: Nanos = Nanos::from_secs(2);

/// Whether guests have written where the fingerprint looks.
pub(crate) struct Watched {
    pub disk: DeviceId,
    places: Vec<Range<Bytes>>,
    is_touched: Cell<bool>,
}

impl Watched {
    /// Some bytes of the disk are written.
    pub fn note(&self, at: Bytes, len: Bytes) {
        if self.places.iter().any(|place| at < place.end && at + len > place.start) {
            self.is_touched.set(true);
        }
    }
}

/// The fingerprint of a disk, and where what tells its file systems lies. `read` reads whole sectors of it.
///
/// # Errors
/// Those of the disk.
pub(crate) async fn fingerprint_of(
    disk: (DeviceId, Bytes, Bytes),
    read: impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> Result<(Fingerprint, Watched)> {
    let (id, size, _) = disk;
    let mut found = vec![look(disk, Bytes::ZERO..EDGE.min(size), &read).await?];
    for place in &places(&found[0], size)[1..] {
        found.push(look(disk, place.clone(), &read).await?);
    }
    let places = telling_places(&found[0]);
    Ok((Fingerprint::of(&found), Watched { disk: id, places, is_touched: Cell::new(false) }))
}

/// What tells the file systems of a disk, of its fingerprint alone.
async fn file_systems_of<D: Device>(member: &Member<D>) -> Result<u32> {
    let (disk, size) = ((member.id, member.entry.size, member.alignment), member.entry.size);
    let read = async |at: Bytes, into: &Buf| member.read(at, into, Deadline::Only).await;
    let mut found = vec![look(disk, Bytes::ZERO..TABLES.min(size), &read).await?, Vec::new()];
    for place in &places(&found[0], size)[2..] {
        found.push(look(disk, place.clone(), &read).await?);
    }
    Ok(Fingerprint::of(&found).file_systems)
}

/// The bytes of a range, whatever its alignment.
async fn look(
    (id, size, alignment): (DeviceId, Bytes, Bytes),
    place: Range<Bytes>,
    read: &impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> Result<Vec<u8>> {
    let around = place.start.align_down(alignment)..place.end.align_up(alignment).min(size);
    let buf = buffer(around.end - around.start).await;
    let done = read(around.start, &buf).await;
    done.map_err(|e| Error::io(format_args!("the adopted disk {id} could not be looked at"), &e))?;
    let wanted = (place.start - around.start).as_usize()..(place.end - around.start).as_usize();
    Ok(buf.with_bytes(|bytes| bytes[wanted].to_vec()))
}

/// The same of a device of a volume.
async fn fingerprint_of_member<D: Device>(member: &Member<D>) -> Result<(Fingerprint, Watched)> {
    let disk = (member.id, member.entry.size, member.alignment);
    fingerprint_of(disk, async |at: Bytes, into: &Buf| member.read(at, into, Deadline::Only).await).await
}

/// The adopted disk at an opening.
pub(crate) struct Looked {
    now: Fingerprint,
    watched: Watched,
    /// Whether it was changed while Braid did not serve it.
    pub has_changed: bool,
    /// Whether it may have been: the record was given up, which alone says whether the volume went on without an SSD that had failed.
    may_have_changed: bool,
}

impl Looked {
    /// Whether clean copies of what it holds count.
    pub fn is_as_known(&self) -> bool {
        !self.has_changed && !self.may_have_changed
    }
}

/// Looks at the adopted disk, if there is one. After an unclean stop only what tells its file systems is known. `lately` are the devices that are lacking from now on.
pub(crate) async fn look_at<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    clean: bool,
    lately: &[DeviceId],
) -> Result<Option<Looked>> {
    let Some(disk) = superblock.adopted() else { return Ok(None) };
    let known = superblock.devices[disk.index()].fingerprint;
    let (now, watched) = fingerprint_of_member(&members[disk.index()]).await?;
    let has_changed = now.file_systems != known.file_systems || clean && now.content != known.content;
    let record = superblock.region(RegionKind::DirtySpans, 0).map(|region| region.device);
    let may_have_changed = record.is_some_and(|record| lately.contains(&record));
    Ok(Some(Looked { now, watched, has_changed, may_have_changed }))
}

/// Takes the disk as it is, if nothing that is to be written back there would destroy what was written elsewhere.
///
/// # Errors
/// `Degraded` if it was changed elsewhere and blocks are dirty, unless that is forced.
pub(crate) fn accept(
    disk: Option<Looked>,
    superblock: &mut Superblock,
    state: &State,
    recovery: &mut Recovery,
    is_forced: bool,
) -> Result<Option<Watched>> {
    let Some(Looked { now, watched, has_changed, may_have_changed }) = disk else { return Ok(None) };
    let dirty = state.extras.dirty();
    if (has_changed || may_have_changed) && dirty > 0 && !is_forced {
        let how = match has_changed {
            true => "was changed elsewhere",
            false => "may have gone on without the SSD, which only the record would tell",
        };
        let text = format!(
            "the disk that volume '{}' adopted {how}, and {dirty} block(s) on the SSD are newer than what it held then: writing \
             them back may destroy its file system; give up what lies on the SSD alone (--distrust), or write them back all the same (--force-write-back)",
            superblock.name
        );
        return Err(Error::new(ErrorKind::Degraded, text));
    }
    recovery.changed_elsewhere = has_changed;
    superblock.devices[watched.disk.index()].fingerprint = now;
    Ok(Some(watched))
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Keeps what tells the disk's file systems up to date until the volume closes.
    pub async fn keep_fingerprint(&self) {
        let Some(watched) = &self.watched else { return };
        while !self.jobs.are_ending() {
            self.pause(self.rt.now() + LOOK_AFTER, || false).await;
            if watched.is_touched.take() && !self.jobs.are_ending() {
                // What fails here is counted by the disk, and the next write there has it looked at again.
                if let Err(error) = self.note_file_systems(watched.disk).await {
                    tracing::warn!(%error, "the fingerprint of the adopted disk is not up to date");
                }
            }
        }
    }

    async fn note_file_systems(&self, disk: DeviceId) -> Result<()> {
        let now = file_systems_of(self.member(disk)).await?;
        if now == self.devices.superblock().devices[disk.index()].fingerprint.file_systems {
            return Ok(());
        }
        let note = |superblock: &mut Superblock| {
            superblock.devices[disk.index()].fingerprint.file_systems = now;
        };
        self.change_superblock(note).await
    }

    /// The fingerprint as it is now, for a shutdown: nothing is written any more.
    pub async fn last_fingerprint(&self) -> Result<Option<(DeviceId, Fingerprint)>> {
        let Some(watched) = &self.watched else { return Ok(None) };
        Ok(Some((watched.disk, fingerprint_of_member(self.member(watched.disk)).await?.0)))
    }
}
