//! Decides whether the adopted disk is the same disk, unchanged: by its fingerprint after a shutdown, and by
//! sums and marks at any time.
//!
//! | what is found | clean copies | dirty blocks |
//! |---|---|---|
//! | all that is known is equal | count | are kept |
//! | something differs | are forgotten | the opening is refused, unless it is forced |
//! | half of the samples differ, no serial number or file system is the same | refused | refused |
//! | too little is known after an unclean stop | are forgotten | kept if the serial number is the same |

use super::fingerprint::{Disk, Marks, fingerprint_of, look};
use super::sums::{DiskSums, FEW, SampleState, Sector, SumTable, allows};
use crate::devices::{Deadline, Member};
use crate::journal::Recovery;
use crate::map::State;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::fingerprint::NO_SERIAL;
use braid_format::sums::{HALF, Noted, SAMPLE, Sample, Sums, addresses, decode, sum_of};
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::{Fingerprint, Uuid};
use braid_runtime::{Buf, Device, Semaphore};
use std::io;

/// The adopted disk as found at an opening.
pub(crate) struct Looked {
    disk: DeviceId,
    now: Fingerprint,
    marks: Marks,
    /// Known sums of the disk; `None` if the record is absent or has no region for sums.
    sums: Option<KnownSums>,
    /// True if the disk was changed while Braid did not serve the disk.
    pub has_changed: bool,
    /// True if the disk may have been changed: the record has been excluded, and only the record tells
    /// whether the volume continued without a failed SSD.
    may_have_changed: bool,
    /// True if too little is known of the disk after an unclean stop.
    is_unproved: bool,
    /// True if a serial number identifies the disk.
    is_vouched: bool,
}

/// Known sums of a disk.
struct KnownSums {
    place: (DeviceId, Bytes),
    /// `None` if no half of the table is valid.
    table: Option<Sums>,
    /// Current sums of the samples.
    now: Vec<Sample>,
}

impl KnownSums {
    /// Returns the number of samples with a known sum, and how many of these differ.
    fn compared(&self) -> (usize, usize) {
        let samples = self.table.iter().flat_map(|table| &table.samples).zip(&self.now);
        let known: Vec<_> = samples.filter(|(known, _)| !known.is_written).collect();
        (known.len(), known.iter().filter(|(known, now)| known.sum != now.sum).count())
    }

    /// Known marks, each with a flag: true if the disk has the mark.
    fn marks<'a>(&'a self, now: &'a Marks) -> impl Iterator<Item = (&'a Noted, bool)> {
        let known = self.table.iter().flat_map(|table| &table.marks).filter(|noted| !noted.is_unknown);
        known.map(move |noted| {
            let mark = now.iter().find(|(at, _)| *at == noted.at).and_then(|(_, mark)| *mark);
            (noted, allows(noted, mark))
        })
    }
}

impl Looked {
    /// True if clean cached copies of the disk count.
    pub fn is_as_known(&self) -> bool {
        !self.has_changed && !self.may_have_changed && !self.is_unproved
    }

    /// True if the disk agrees with the adopted disk in more than blanks: in a mark, or in a sample with
    /// content.
    pub(crate) fn is_telling(&self) -> bool {
        let blank = [0, 0xff].map(|byte| sum_of(&[byte; SAMPLE.as_usize()]));
        let Some(sums) = &self.sums else { return false };
        let samples = sums.table.iter().flat_map(|table| &table.samples).zip(&sums.now);
        let has_sample = |(known, now): (&Sample, &Sample)| {
            !known.is_written && known.sum == now.sum && !blank.contains(&now.sum)
        };
        samples.into_iter().any(has_sample) || sums.marks(&self.marks).any(|(_, is_there)| is_there)
    }

    /// Returns the numbers of differing and of known samples if the disk is another disk: half of the known
    /// samples differ, no known file system is present, and no serial number identifies the disk.
    pub(crate) fn is_another(&self) -> Option<(usize, usize)> {
        let sums = self.sums.as_ref()?;
        let (known, differing) = sums.compared();
        let has_one = |noted: &Noted| {
            let mark = self.marks.iter().find(|(at, _)| *at == noted.at).and_then(|(_, mark)| *mark);
            mark.is_some_and(|mark| mark.identity == noted.mark.identity)
        };
        let has_any = sums.marks(&self.marks).any(|(noted, _)| has_one(noted));
        (!self.is_vouched && !has_any && known >= FEW && differing * 2 >= known).then_some((differing, known))
    }
}

/// Compares the adopted disk, if any, with the known facts. `lately` are the devices that are lacking from
/// now on. `is_vouched` is true if a serial number identifies the disk.
pub(crate) async fn look_at<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    clean: bool,
    lately: &[DeviceId],
    is_vouched: bool,
) -> Result<Option<Looked>> {
    let Some(disk) = superblock.adopted() else { return Ok(None) };
    let member = &members[disk.index()];
    let table = load(members, superblock, member).await?;
    let read = async |at: Bytes, into: &Buf| member.read(at, into, Deadline::Only).await;
    let mut looked = compare(superblock, table, clean, Disk::of(member), is_vouched, &read).await?;
    let record = superblock.region(RegionKind::DirtySpans, 0).map(|region| region.device);
    looked.may_have_changed = record.is_some_and(|record| lately.contains(&record));
    Ok(Some(looked))
}

/// Compares a disk with the known facts of the adopted disk: the fingerprint, and the table with its
/// location. `clean` is true after a shutdown, `is_vouched` if a serial number identifies the disk. `read`
/// reads whole sectors.
pub(crate) async fn compare(
    superblock: &Superblock,
    table: Option<((DeviceId, Bytes), Option<Sums>)>,
    clean: bool,
    disk: Disk,
    is_vouched: bool,
    read: &impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> Result<Looked> {
    let (now, marks) = fingerprint_of(disk, read).await?;
    let mut sums = None;
    if let Some((place, table)) = table {
        let places = match &table {
            Some(table) => table.samples.iter().map(|sample| sample.at).collect(),
            None => addresses(superblock.volume, disk.size),
        };
        let mut now = Vec::new();
        for at in places {
            let bytes = look(disk, at..at + SAMPLE, read).await?;
            now.push(Sample { at, sum: sum_of(&bytes), is_written: false });
        }
        sums = Some(KnownSums { place, table, now });
    }
    let has_table = sums.as_ref().is_some_and(|sums| sums.table.is_some());
    let (known, differing) = sums.as_ref().map_or((0, 0), KnownSums::compared);
    let (mut known_marks, mut differing_marks) = (0, 0);
    for (_, is_there) in sums.iter().flat_map(|sums| sums.marks(&marks)) {
        known_marks += 1;
        differing_marks += usize::from(!is_there);
    }
    let content = superblock.devices[disk.id.index()].fingerprint.content;
    let has_changed = clean && now.content != content || differing > 0 || differing_marks > 0;
    let is_unproved = !clean && (!has_table || known < FEW && known_marks == 0);
    // Without a table a serial number identifies the disk, but does not prove that the disk is unchanged.
    let is_vouched = is_vouched && (clean || has_table);
    let disk = disk.id;
    Ok(Looked { disk, now, marks, sums, has_changed, may_have_changed: false, is_unproved, is_vouched })
}

/// Reads the table from the record, with its location. The table is `None` if no half is valid.
async fn load<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    disk: &Member<D>,
) -> Result<Option<((DeviceId, Bytes), Option<Sums>)>> {
    let region = superblock.region(RegionKind::Sums, 0);
    let Some(region) = region.filter(|region| members[region.device.index()].is_current()) else {
        return Ok(None);
    };
    let (record, size) = (&members[region.device.index()], disk.entry.size);
    let read = async |at: Bytes, into: &Buf| record.read(at, into, Deadline::Only).await;
    let table = read_table(superblock.volume, size, region.offset, &read).await;
    let table =
        table.map_err(|e| Error::io(format_args!("the sums of the adopted disk on {}", record.id), &e))?;
    Ok(Some(((region.device, region.offset), table)))
}

/// Returns the newest valid half of a table for a disk of this size; `None` if no half is valid.
pub(crate) async fn read_table(
    volume: Uuid,
    size: Bytes,
    at: Bytes,
    read: &impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> io::Result<Option<Sums>> {
    let buf = crate::buffer::buffer(HALF).await;
    let mut table: Option<Sums> = None;
    for at in [at, at + HALF] {
        read(at, &buf).await?;
        let Ok(found) = buf.with_bytes(|bytes| decode(bytes, volume)) else { continue };
        let is_newer = table.as_ref().is_none_or(|table| table.sequence < found.sequence);
        if is_newer && found.samples.last().is_none_or(|last| last.at.0 <= size.0.saturating_sub(SAMPLE.0)) {
            table = Some(found);
        }
    }
    Ok(table)
}

/// Accepts the disk as found, unless a write-back would destroy data that was written elsewhere.
///
/// # Errors
/// For another disk `Invalid`, or `Degraded` if blocks are dirty, unless `is_forced` or a device is
/// `distrusted`.
/// `Degraded` if the disk was changed elsewhere, or may have been, and blocks are dirty, unless `is_forced`.
pub(crate) fn accept(
    disk: Option<Looked>,
    superblock: &mut Superblock,
    state: &State,
    recovery: &mut Recovery,
    distrusted: &[DeviceId],
    is_forced: bool,
) -> Result<Option<DiskSums>> {
    let Some(looked) = disk else { return Ok(None) };
    let (dirty, name) = (state.extras.dirty(), &superblock.name);
    if let Some((differing, known)) = looked.is_another()
        && !is_forced
        && distrusted.is_empty()
    {
        let text = format!(
            "the disk is not the disk that volume '{name}' adopted, or nearly all of the disk was written \
             elsewhere: {differing} of {known} unmodified places differ; give the adopted disk, or, if this \
             is the disk, exclude the SSD, which loses data on the SSD alone (--distrust), or keep that \
             data (--force-write-back)"
        );
        return Err(Error::new(if dirty > 0 { ErrorKind::Degraded } else { ErrorKind::Invalid }, text));
    }
    let is_doubted = looked.is_unproved && !looked.is_vouched;
    if (looked.has_changed || looked.may_have_changed || is_doubted) && dirty > 0 && !is_forced {
        let how = match (looked.has_changed, looked.may_have_changed) {
            (true, _) => "was changed elsewhere",
            (false, true) => "may have been used without the SSD, and only the record can tell",
            (false, false) => {
                "may be another disk, or may have been changed elsewhere: too little is known of the disk \
                 after the unclean shutdown"
            }
        };
        let text = format!(
            "the disk that volume '{name}' adopted {how}, and {dirty} block(s) on the SSD are newer than \
             the disk was: writing these blocks back may destroy the disk's file system; exclude the SSD, \
             which loses data on the SSD alone (--distrust), or write the blocks back nevertheless \
             (--force-write-back)"
        );
        return Err(Error::new(ErrorKind::Degraded, text));
    }
    if looked.is_unproved && !looked.has_changed {
        tracing::warn!(
            "too little is known of the disk that volume '{name}' adopted to prove that nothing has changed \
             since the unclean shutdown: clean copies on the SSD are dropped"
        );
    }
    recovery.changed_elsewhere = looked.has_changed;
    superblock.devices[looked.disk.index()].fingerprint = looked.now;
    let (disk, marks) = (looked.disk, looked.marks);
    Ok(looked.sums.map(|known| sums_of(disk, known, &marks, looked.has_changed)))
}

/// Builds the sums of an accepted disk. For a changed disk everything is unknown until noted again: the
/// caller writes this table first.
fn sums_of(disk: DeviceId, known: KnownSums, marks: &Marks, has_changed: bool) -> DiskSums {
    let KnownSums { place, table, now } = known;
    let mut sectors: Vec<Sector> = marks.iter().map(|&(at, _)| Sector::new(at)).collect();
    for noted in table.iter().flat_map(|table| &table.marks) {
        let Ok(i) = sectors.binary_search_by_key(&noted.at, |sector| sector.at) else { continue };
        let noted = Noted { is_unknown: noted.is_unknown || has_changed, ..*noted };
        (sectors[i].noted, sectors[i].wanted) = (Some(noted), Some(noted));
    }
    let sample = |(i, now): (usize, &Sample)| {
        // Without a valid table no sample is known.
        let before = table.as_ref().map_or(Sample { is_written: true, ..*now }, |table| table.samples[i]);
        let is_written = before.is_written || has_changed;
        let sample = Sample { is_written, ..before };
        SampleState { sample, is_noted: is_written, writes: 0, writes_before: 0 }
    };
    let samples = now.iter().enumerate().map(sample).collect();
    let sequence = table.as_ref().map_or(0, |table| table.sequence);
    // No warning about samples that are unknown already.
    let table = SumTable { sequence, samples, sectors, told_few: true, ..SumTable::default() };
    DiskSums { disk, place, table: table.into(), writer: Semaphore::new(1) }
}

/// True if a serial number identifies a disk as the adopted disk.
pub(crate) fn is_vouched(known: braid_format::Uuid, found: braid_format::Uuid) -> bool {
    known == found && found != NO_SERIAL
}
