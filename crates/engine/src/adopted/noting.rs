//! Keeps the sums and marks of an adopted disk up to date: before a guest's write, in the background, and at
//! a shutdown.

use super::fingerprint::{Disk, look};
use super::sums::{Begun, DiskSums, DiskWrite, FEW};
use crate::buffer::buffer;
use crate::core::Durable;
use crate::devices::{Deadline, Member};
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, Nanos, SECTOR};
use braid_format::Uuid;
use braid_format::fingerprint::{Mark, TABLES, mark_in, marked_sectors};
use braid_format::sums::{HALF, Noted, SAMPLE, Sample, Sums, addresses, encode, sum_of};
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::io;

/// Interval for noting samples and marks again that guests have written.
const NOTE_EVERY: Nanos = Nanos::from_secs(10);
/// Most samples noted again at once: 0.3 s of a disk, at 8 ms each.
const MOST_AT_ONCE: usize = 32;

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Waits until bytes of a device may change. On the adopted disk, the table first says durably that
    /// samples may be written, and allows new marks. `from` is `None` for a discard. The write is in flight
    /// until the returned value is dropped.
    #[inline]
    pub async fn begin_disk_write(
        &self,
        device: DeviceId,
        at: Bytes,
        len: Bytes,
        from: Option<&Buf>,
    ) -> Option<DiskWrite<'_>> {
        let sums = self.sums.as_ref().filter(|sums| sums.disk == device)?;
        loop {
            match sums.begin(at..at + len, from) {
                Begun::Ready(number) => return number.map(|number| DiskWrite { sums, number }),
                Begun::Note => Box::pin(self.note_written(sums)).await,
                Begun::Mark(sector, mark) => Box::pin(self.note_mark(sums, sector, mark)).await,
            }
        }
    }

    /// Writes the table, if a write waits for an entry.
    async fn note_written(&self, sums: &DiskSums) {
        let _alone = sums.writer.acquire(1).await;
        if sums.table.borrow().is_behind() {
            self.write_sums(sums).await;
        }
    }

    /// Writes the table. The caller keeps other writers out.
    async fn write_sums(&self, sums: &DiskSums) {
        if sums.table.borrow().has_failed {
            return;
        }
        let next = sums.table.borrow_mut().next();
        let bytes = encode(self.store.devices.superblock().volume, &next);
        let (device, region) = sums.place;
        let written = async {
            let buf = buffer(HALF).await;
            buf.copy_from_slice(Bytes::ZERO, &bytes);
            let member = self.store.member(device);
            let at = region + HALF * (next.sequence % 2);
            self.device_write(member, at, &buf, Origin::Background).await?;
            self.flush_member(member, "the sums of the adopted disk").await
        };
        let written = written.await;
        let mut table = sums.table.borrow_mut();
        match written {
            Ok(()) => table.note(&next),
            Err(error) => {
                tracing::error!(%error, "after an unclean shutdown the adopted disk will appear changed");
                table.has_failed = true;
            }
        }
    }

    /// Makes the table allow the mark that a write brings to a sector.
    async fn note_mark(&self, sums: &DiskSums, at: Bytes, mark: Option<Mark>) {
        let _alone = sums.writer.acquire(1).await;
        let known = {
            let table = sums.table.borrow();
            let Some(sector) = table.sectors.iter().find(|sector| sector.at == at) else { return };
            if table.has_failed || sector.allows(mark) {
                return;
            }
            let wanted = sector.wanted.filter(|noted| !noted.is_unknown);
            wanted.filter(|noted| mark.is_some_and(|mark| mark.identity == noted.mark.identity))
        };
        let next = match (known, mark) {
            (Some(noted), Some(mark)) => {
                // If another change of the mark is on its way, the sector is flushed and read for its current
                // mark.
                let now = match noted.next == noted.mark.change {
                    true => Some(noted.mark),
                    false => self.durable_mark(sums, at).await,
                };
                now.filter(|now| now.identity == mark.identity).map(|now| (now, mark.change))
            }
            _ => None,
        };
        sums.table.borrow_mut().want(at, next);
        self.write_sums(sums).await;
    }

    /// Returns the durable mark of a sector; `None` if unknown, as while a write to the sector is in flight.
    async fn durable_mark(&self, sums: &DiskSums, at: Bytes) -> Option<Mark> {
        let writes = || {
            let table = sums.table.borrow();
            let sector = table.sectors.iter().find(|sector| sector.at == at)?;
            (!table.is_under_way(&(at..at + SECTOR))).then_some(sector.writes)
        };
        let before = writes()?;
        let member = self.store.member(sums.disk);
        let bytes = async {
            self.flush_member(member, "what guests wrote to the adopted disk").await?;
            self.look_at_disk(member, at, SECTOR).await
        };
        let bytes = bytes.await.ok()?;
        (writes()? == before).then(|| mark_in(&bytes))?
    }

    async fn look_at_disk(&self, member: &Member<D>, at: Bytes, len: Bytes) -> Result<Vec<u8>> {
        let read = async |at: Bytes, into: &Buf| member.read(at, into, Deadline::Only).await;
        look(Disk::of(member), at..at + len, &read).await
    }

    /// Notes samples and marks again that guests have written, until the volume closes.
    pub async fn keep_sums(&self) {
        let Some(sums) = &self.sums else { return };
        while !self.jobs.are_ending() {
            // The disk counts the error; the next round tries again.
            if let Err(error) = self.note_again(sums, false).await {
                tracing::warn!(%error, "the identity data of the adopted disk is not up to date");
            }
            self.pause(self.rt.now() + NOTE_EVERY, || false).await;
        }
    }

    /// Notes all samples and marks that guests have written, at a shutdown: nothing is written any more. On
    /// failure the rest stays unknown.
    pub async fn note_all_sums(&self) {
        let Some(sums) = &self.sums else { return };
        if let Err(error) = self.note_again(sums, true).await {
            tracing::warn!(%error, "the identity data of the adopted disk is not up to date");
        }
    }

    /// Reads samples and sectors that guests have written, once durable, and notes the results. In the
    /// background, busy samples are skipped, unless few other samples are left.
    async fn note_again(&self, sums: &DiskSums, all: bool) -> Result<()> {
        let known = sums.table.borrow().known();
        let few = known < FEW.min(sums.table.borrow().samples.len());
        if few && !std::mem::replace(&mut sums.table.borrow_mut().told_few, true) {
            tracing::warn!(
                "guests have rewritten nearly all of the adopted disk within seconds: {known} sums are \
                 left; after a crash at this moment only the serial number and the file systems identify \
                 the disk"
            );
        }
        sums.table.borrow_mut().told_few &= few;
        let most = if all || few { usize::MAX } else { MOST_AT_ONCE };
        let (samples, sectors, is_touched) = sums.table.borrow_mut().pick(all || few, most);
        if samples.is_empty() && sectors.is_empty() && !is_touched {
            return Ok(());
        }
        let member = self.store.member(sums.disk);
        self.flush_member(member, "what guests wrote to the adopted disk").await?;
        let mut found = Vec::new();
        for (at, writes) in samples {
            let bytes = self.look_at_disk(member, at, SAMPLE).await?;
            found.push((at, writes, sum_of(&bytes)));
        }
        let mut marks = Vec::new();
        for (at, writes) in sectors {
            marks.push((at, writes, mark_in(&self.look_at_disk(member, at, SECTOR).await?)));
        }
        // Guests may have created partitions.
        let size = member.entry.size;
        let places = match is_touched {
            true => {
                Some(marked_sectors(&self.look_at_disk(member, Bytes::ZERO, TABLES.min(size)).await?, size))
            }
            false => None,
        };
        let _alone = sums.writer.acquire(1).await;
        if sums.table.borrow_mut().take(&found, &marks, places) {
            self.write_sums(sums).await;
        }
        Ok(())
    }
}

/// Writes a table without any knowledge of the disk, before an opening accepts the disk as found. Cached
/// copies must be forgotten first, even if the opening is interrupted.
///
/// # Errors
/// The errors of the record.
pub(crate) async fn write_unknown<R: Runtime, D: Device>(
    rt: &R,
    members: &[Member<D>],
    volume: Uuid,
    sums: &DiskSums,
) -> Result<()> {
    let next = sums.table.borrow_mut().next();
    let (member, region) = (&members[sums.place.0.index()], sums.place.1);
    let buf = buffer(HALF).await;
    buf.copy_from_slice(Bytes::ZERO, &encode(volume, &next));
    let failed = |e| Error::io("the sums of the adopted disk could not be written", &e);
    member.write(region + HALF * (next.sequence % 2), &buf, Deadline::Only).await.map_err(failed)?;
    member.flush(rt).await.map_err(failed)?;
    Ok(())
}

/// Writes the first table of a disk: all samples and marks are known.
///
/// # Errors
/// The errors of the disk and of the record.
pub(crate) async fn write_first_sums<D: Device>(
    record: &D,
    region: Bytes,
    volume: Uuid,
    disk: Disk,
    sectors: &[(Bytes, Option<Mark>)],
    read: impl AsyncFn(Bytes, &Buf) -> io::Result<()>,
) -> Result<()> {
    let mut samples = Vec::new();
    for at in addresses(volume, disk.size) {
        let bytes = look(disk, at..at + SAMPLE, &read).await?;
        samples.push(Sample { at, sum: sum_of(&bytes), is_written: false });
    }
    let noted = |&(at, mark): &(Bytes, Option<Mark>)| {
        mark.map(|mark| Noted { at, mark, next: mark.change, is_unknown: false })
    };
    let marks: Vec<Noted> = sectors.iter().filter_map(noted).collect();
    let failed = |e| Error::io("the sums of the adopted disk could not be written", &e);
    let buf = buffer(HALF).await;
    for sequence in [1, 2] {
        let sums = Sums { sequence, samples: samples.clone(), marks: marks.clone() };
        buf.copy_from_slice(Bytes::ZERO, &encode(volume, &sums));
        record.write(region + HALF * (sequence % 2), &buf).await.map_err(failed)?;
    }
    record.flush().await.map_err(failed)
}
