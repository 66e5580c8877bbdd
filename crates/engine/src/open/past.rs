//! Read-only access to the past state on a disk alone: the image, overlaid with the journal. Nothing is
//! written to the disk: a recovery remains possible afterwards.

use super::{Assembled, Attempts, Lacking, assemble};
use crate::devices::{Deadline, Member, watched};
use crate::epochs::{Index, Lies, nowhere, past_of};
use crate::shape::Shape;
use crate::{Allocation, Durability, Error, ErrorKind, Export, PastState, Result, Zeroing};
use braid_base::Bytes;
use braid_format::epoch_journal::{PAGE, State};
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// A past state of the volume on a disk alone, read-only. Clones are handles of the same state.
pub struct Past<D> {
    inner: Rc<Inner<D>>,
}

struct Inner<D> {
    member: Member<D>,
    volume_size: Bytes,
    block_size: Bytes,
    index: Index,
    arena: Arena,
}

/// Memory for reads, in bytes.
const MEMORY: Bytes = Bytes(16 << 20);
/// Longest read of the disk, in bytes.
const LONGEST: Bytes = Bytes(512 << 10);

impl<D> Clone for Past<D> {
    fn clone(&self) -> Past<D> {
        Past { inner: self.inner.clone() }
    }
}

impl<D: Device> Past<D> {
    /// Opens the past state on the disk, without the missing devices. Reads the journal once, at most an
    /// eighth of the volume and 1 GiB, and keeps 60 bytes of memory for each of its ranges. `names` are the
    /// names of the devices in messages.
    ///
    /// # Errors
    /// `Degraded` if the disk is not a state of the volume, if another device is there, or if the volume
    /// continued without the other devices or has been recovered. `Corrupt` for a damaged journal.
    pub async fn open<R: Runtime>(rt: &R, devices: Vec<D>, names: &[String]) -> Result<(Past<D>, PastState)> {
        let devices = devices.into_iter().map(Rc::new).collect();
        let Assembled { superblock, devices, went_without, anew, .. } =
            assemble(rt, devices, names, &[], None, Lacking::Recovered, &Attempts::default()).await?;
        let shape = Shape::of(&superblock);
        let mut members = Member::all(&superblock, devices, &anew);
        let past = watched(rt, &members, past_of(&members, &superblock, went_without)).await?;
        let (place, page) = past;
        if page.state == State::Recovered {
            let text = format!(
                "volume '{}' has been recovered already: serve the volume without recovery",
                superblock.name
            );
            return Err(Error::new(ErrorKind::Degraded, text));
        }
        let image_len = shape.extent_size * u64::from(shape.extents());
        let member = members.swap_remove(place.device.index());
        let index = Index::read(&member, &place, page.run, image_len).await?;
        let (volume_size, block_size) = (shape.volume_size, shape.block_size);
        let arena = Arena::new(MEMORY);
        let inner = Inner { member, volume_size, block_size, index, arena };
        Ok((Past { inner: Rc::new(inner) }, PastState::of(place.device, &page)))
    }

    /// Bytes of the volume that are in the journal, and not in place.
    pub fn journaled(&self) -> Bytes {
        self.inner.index.ranges().map(|range| range.end - range.start).sum()
    }

    /// Ranges of the volume that were in a damaged part of the journal: reads of these ranges fail.
    pub fn damaged(&self) -> Vec<Range<Bytes>> {
        self.inner.index.damaged()
    }

    /// Reads the first contiguous part of a range, and returns its length.
    async fn read_part(&self, range: &Range<Bytes>, into: &Buf) -> Result<Bytes> {
        let Inner { member, index, .. } = &*self.inner;
        let (end, lies) = index.locate(range);
        let at = match lies {
            Lies::Zeros => None,
            Lies::Damaged => return Err(nowhere(&(range.start..end))),
            Lies::InJournal(at) => Some(at),
            Lies::InPlace => Some(member.entry.slots_offset + range.start),
        };
        let into = into.slice(Bytes::ZERO..end - range.start);
        match at {
            None => into.fill_zero(),
            Some(at) => {
                let read = member.read(at, &into, Deadline::Only).await;
                read.map_err(|e| Error::io(format_args!("byte {} of the volume's disk", at.0), &e))?;
            }
        }
        Ok(end - range.start)
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, "the volume is open read-only: braid recover makes it writable"))
}

impl<D: Device> Export for Past<D> {
    fn size(&self) -> Bytes {
        self.inner.volume_size
    }

    fn preferred_block(&self) -> Bytes {
        self.inner.block_size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        let Inner { volume_size, arena, .. } = &*self.inner;
        let Some(end) = offset.checked_add(into.len()).filter(|end| end <= volume_size) else {
            let text = format!("{} at byte {} is beyond the volume of {volume_size}", into.len(), offset.0);
            return Err(Error::new(ErrorKind::Invalid, text));
        };
        let mut at = offset;
        while at < end {
            // Whole pages: a disk may be unable to read less.
            let start = at.align_down(PAGE);
            let aligned = start..end.align_up(PAGE).min(start + LONGEST);
            let page = arena.alloc(aligned.end - aligned.start).await;
            let len = self.read_part(&aligned, &page).await?;
            let until = (start + len).min(end);
            into.slice(at - offset..until - offset)
                .copy_from(Bytes::ZERO, &page.slice(at - start..until - start));
            at = until;
        }
        Ok(())
    }

    async fn write(&self, _: Bytes, _: &Buf, _: Durability) -> Result<()> {
        refused()
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn discard(&self, _: Bytes, _: Bytes) -> Result<()> {
        refused()
    }

    async fn write_zeroes(&self, _: Bytes, _: Bytes, _: Zeroing, _: Durability) -> Result<()> {
        refused()
    }

    async fn prefetch(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn allocation(&self, _: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        (Allocation::Data, limit)
    }
}
