//! Repair of bad places: a range that one required copy cannot read is rewritten from the other copy. If the
//! write fails, the copy is behind.

use super::Copies;
use crate::core::Extents;
use crate::devices::LARGEST_BUFFER;
use crate::map::Other;
use crate::{Error, Result};
use braid_base::{Bytes, ExtentId, SECTOR};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Starts a task that rewrites an unreadable range from the other copy, beside the guests.
    pub(super) fn repair_later(&self, extent: ExtentId, bad: SlotNumber, range: Range<Bytes>) {
        // With many bad places, a later read asks again.
        let Some(permit) = self.store.devices.repairs.try_acquire(1) else { return };
        let extents = self.own.handle();
        self.jobs.begin();
        self.rt.spawn(async move {
            // The device counts a failure, and the copy is behind. The commit flushes the source: from then
            // on the source's device may fail.
            if extents.repair(extent, bad, range).await.is_ok() {
                let _told = extents.durable.commit(Origin::Background).await;
            }
            drop(permit);
            extents.jobs.end();
        });
    }

    async fn repair(&self, extent: ExtentId, bad: SlotNumber, range: Range<Bytes>) -> Result<()> {
        let _room = self.durable.reserve(1).await?;
        // Before the lock: tasks that hold such buffers wait for turns, whose holders wait for extents.
        let widest = self.store.devices.iter().map(|member| member.alignment).max().unwrap_or(SECTOR);
        let len = range.end.align_up(widest) - range.start.align_down(widest);
        let buf = self.buffer(&self.buffers.moves, len.min(LARGEST_BUFFER)).await?;
        let _guard = self.locks.exclusive(extent).await;
        let entry = self.store.state.borrow().map.get(extent);
        let good = match self.store.copies_of(extent, &entry) {
            Copies { current, other: Other::Equal(other) } if other == bad => current,
            Copies { current, other: Other::Equal(other) } if current == bad => other,
            _ => return Ok(()),
        };
        // A bad place covers at least one sector: whole sectors are rewritten.
        let align = self.store.locate(bad).0.alignment.max(self.store.locate(good).0.alignment);
        let (mut at, end) = (range.start.align_down(align), range.end.align_up(align));
        while at < end {
            let part = at..(at + LARGEST_BUFFER).min(end);
            let bytes = buf.slice(Bytes::ZERO..part.end - part.start);
            self.read_kept(extent, good, part.clone(), &bytes, Origin::Background).await?;
            if !self.store.locate(good).0.is_current() {
                return Ok(());
            }
            self.store.note_source(extent, good);
            let written = self.write_slot(bad, &part, Some(&bytes), u16::MAX, Origin::Background).await;
            if let Err(error) = written {
                self.lose_copy(extent, entry, bad, &error).await?;
                return Err(error);
            }
            at = part.end;
        }
        self.durable.background.borrow_mut().repairs += 1;
        tracing::info!(
            device = %self.store.locate(bad).0.describe(), ?extent,
            "an unreadable place was rewritten from the other copy"
        );
        Ok(())
    }

    /// Handles a copy that can be neither read nor written: the copy becomes the second copy, and behind.
    ///
    /// With epochs, no home may lie on the image disk: guests write to homes. No epoch would repair a copy
    /// that is behind for another reason than a guest's change. So with epochs the bad copy's device is
    /// excluded, as after a failed guest write. If data lies on the device alone, nothing changes, and the
    /// other copy answers for the range.
    pub(super) async fn lose_copy(
        &self,
        extent: ExtentId,
        entry: Entry,
        bad: SlotNumber,
        error: &Error,
    ) -> Result<()> {
        if self.active_epochs().is_some() {
            let device = self.store.device_of(bad);
            return if self.durable.survives(device) {
                self.durable.give_up(device, error.clone()).await
            } else {
                Ok(())
            };
        }
        let span = self.store.shape.span_of(extent);
        if entry.home == bad {
            let swapped = Entry { home: entry.second, second: bad, ..entry };
            {
                let mut state = self.store.state.borrow_mut();
                state.disturb(extent);
                state.set_extent(extent, swapped);
                state.note_exchange(extent);
            }
            // The commit comes before the journal says *behind*. After a crash in between, the copy that
            // counts would otherwise have the bad place.
            self.durable.commit(Origin::Background).await?;
        }
        {
            let mut state = self.store.state.borrow_mut();
            // A copy in progress, or not settled yet, does not count against the new mark.
            state.disturb(extent);
            state.behind.mark_behind(span, self.store.shape.bytes_of(extent));
        }
        self.durable.record_behind(span).await?;
        self.durable.commit(Origin::Background).await
    }
}
