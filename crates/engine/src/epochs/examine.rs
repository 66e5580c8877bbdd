//! Comparison of the image with the volume: after an opening or a change of policy, the ranges that the image
//! lacks are unknown.

use super::{Epochs, Stage};
use crate::Result;
use crate::core::{Extents, Store, Upkeep};
use crate::devices::LARGEST_BUFFER;
use crate::map::{Arrival, Other};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{Move, Origin};
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Compares all unknown ranges, in the order of addresses. Differing ranges are noted as lacking. While
    /// the image is void, differing ranges are written in place instead.
    pub(super) async fn examine(&self, epochs: &Epochs) -> Result<()> {
        let mut at = Bytes::ZERO;
        loop {
            let next = epochs.next_of(|lacks| &lacks.unknown, &(at..self.store.shape.image_len()));
            let Some(range) = next else { return Ok(()) };
            if self.jobs.are_ending() || !self.store.member(epochs.device()).is_current() {
                return Ok(());
            }
            let extent = self.store.shape.extent_of(range.start);
            let most = (range.start + LARGEST_BUFFER / 2).min(self.store.shape.bytes_of(extent).end);
            let range = range.start..range.end.min(most);
            at = range.end;
            if epochs.stage.get() == Stage::Void {
                self.leave_image(epochs, extent).await?;
            }
            let _room = self.durable.reserve(1).await?;
            // Before the lock: tasks that hold such buffers wait for turns, whose holders wait for extents.
            let buf = self.extents.buffer(&self.extents.buffers.moves, range.end - range.start).await?;
            let _guard = self.locks.exclusive(extent).await;
            let mut from = range.start;
            while let Some(part) = epochs.next_of(|lacks| &lacks.unknown, &(from..range.end)) {
                from = part.end;
                self.extents.compare_with_image(epochs, extent, &part, &buf).await?;
                // The less remains to be found, the more guests may write.
                epochs.event.notify();
            }
            if epochs.stage.get() == Stage::Void {
                self.extents.join_image(epochs, extent).await?;
            }
        }
    }

    /// Moves the home of an extent off the image: guests' writes to the home would change the image.
    async fn leave_image(&self, epochs: &Epochs, extent: ExtentId) -> Result<()> {
        let entry = self.store.state.borrow().map.get(extent);
        if !self.store.lies_in_image(epochs, entry.home) {
            return Ok(());
        }
        // The image alone has writes that guests made while the device of the second copy was absent or late.
        self.resync_extent(extent).await?;
        if entry.second == SlotNumber::NONE {
            let roomiest: Option<DeviceId> = self.extents.with_policy(|_, view| {
                let others = view.with_room().filter(|device| device.id != epochs.device());
                others.max_by_key(|device| device.free).map(|device| device.id)
            });
            let Some(target) = roomiest else { return Ok(()) };
            self.run_own_move(Move::Mirror { extent, target }).await?;
        }
        let _room = self.durable.reserve(1).await?;
        let _guard = self.locks.exclusive(extent).await;
        let entry = self.store.state.borrow().map.get(extent);
        if self.store.lies_in_image(epochs, entry.home)
            && let Other::Equal(_) = self.store.copies_of(extent, &entry).other
        {
            let mut state = self.store.state.borrow_mut();
            state.disturb(extent);
            state.set_extent(extent, Entry { home: entry.second, second: entry.home, ..entry });
        }
        Ok(())
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// The caller holds the extent's lock, exclusive.
    async fn compare_with_image(
        &self,
        epochs: &Epochs,
        extent: ExtentId,
        range: &Range<Bytes>,
        buf: &Buf,
    ) -> Result<()> {
        let (member, len) = (self.store.member(epochs.device()), range.end - range.start);
        let place = member.entry.slots_offset + range.start;
        let content = buf.slice(Bytes::ZERO..len);
        self.read_image_bytes(range, &content).await?;
        let image = self.buffer(&self.buffers.bounce, len).await?;
        // An unreadable place of the disk counts as different and is rewritten.
        let is_read = self.durable.device_read(member, place, &image, Origin::Background).await.is_ok();
        let block = self.store.shape.block_size;
        let is_same = |at: Bytes, end: Bytes| {
            is_read && content.slice(at..end).with_bytes(|a| image.slice(at..end).with_bytes(|b| a == b))
        };
        let is_void = epochs.stage.get() == Stage::Void;
        let is_own = self.store.lies_in_image(epochs, self.store.state.borrow().map.get(extent).home);
        if is_void && !is_own && !is_same(Bytes::ZERO, len) {
            let written = self.durable.device_write(member, place, &content, Origin::Background).await;
            if let Err(error) = written {
                self.durable.give_up(epochs.device(), error.clone()).await?;
                return Err(error);
            }
        }
        if is_own {
            // The range would be compared with itself.
            epochs.is_home.set(!is_void);
            return Ok(());
        }
        let mut lacks = epochs.lacks.borrow_mut();
        lacks.unknown.remove(range.clone());
        let mut at = Bytes::ZERO;
        while !is_void && at < len {
            let end = (at + block).min(len);
            if !is_same(at, end) {
                lacks.open.insert(range.start + at..range.start + end);
            }
            at = end;
        }
        Ok(())
    }

    /// Places the second copy of an extent with one copy in the image. During the comparison the extent's
    /// place there was not yet free.
    pub async fn complete_by_epoch(&self, epochs: &Epochs, extent: ExtentId) -> Result<()> {
        let _room = self.durable.reserve(1).await?;
        let _guard = self.locks.exclusive(extent).await;
        match self.are_epochs_wanted() && epochs.active.get() {
            true => self.join_image(epochs, extent).await,
            false => Ok(()),
        }
    }

    /// Makes the image the second copy of an extent, wherever the second copy lay before. The image has the
    /// extent's bytes already, except for ranges that are behind. From now on only epochs bring the second
    /// copy up to date. The copies may differ until the image is flushed: the disk may fail before. The
    /// caller holds the extent's lock, exclusive.
    async fn join_image(&self, epochs: &Epochs, extent: ExtentId) -> Result<()> {
        if !self.store.may_join_image(epochs, extent) {
            return Ok(());
        }
        let _intended = self.durable.intend(self.store.shape.span_of(extent)).await?;
        let entry = self.store.state.borrow().map.get(extent);
        // Without either device epochs end.
        let devices = [epochs.device(), self.store.device_of(entry.home)];
        let are_there = devices.into_iter().all(|device| self.store.member(device).is_current());
        let mut state = self.store.state.borrow_mut();
        if are_there && let Some(second) = state.take_for(extent, epochs.device(), Arrival::Moved) {
            state.disturb(extent);
            state.set_extent(extent, Entry { second, ..entry });
            if entry.second != SlotNumber::NONE {
                state.retire(entry.second);
            }
        }
        Ok(())
    }
}

impl<D: Device> Store<D> {
    pub(super) fn lies_in_image(&self, epochs: &Epochs, slot: SlotNumber) -> bool {
        slot != SlotNumber::NONE && slot != SlotNumber::LOST && self.device_of(slot) == epochs.device()
    }

    /// True if the home of any extent lies in the image.
    pub(super) fn has_home_in_image(&self, epochs: &Epochs) -> bool {
        self.state.borrow().map.iter().any(|(_, entry)| self.lies_in_image(epochs, entry.home))
    }

    /// True if an extent with unknown ranges has its home in the image. The cost is linear in the number of
    /// such extents.
    pub(super) fn is_home_in_image(&self, epochs: &Epochs) -> bool {
        let lacks = epochs.lacks.borrow();
        let is_in_image = |extent| self.lies_in_image(epochs, self.state.borrow().map.get(extent).home);
        let extents = |range: Range<Bytes>| {
            let last = self.shape.extent_of(range.end - Bytes(1));
            (self.shape.extent_of(range.start).0..=last.0).map(ExtentId)
        };
        lacks.unknown.iter().flat_map(extents).any(is_in_image)
    }

    /// True if the home of an extent lies elsewhere, no second copy lies in the image, and the image has all
    /// bytes of the extent except for ranges that are behind.
    fn may_join_image(&self, epochs: &Epochs, extent: ExtentId) -> bool {
        let state = self.state.borrow();
        let entry = state.map.get(extent);
        let on = |slot: SlotNumber| state.space.locate(slot).map(|place| place.device);
        let is_elsewhere = on(entry.home).is_some_and(|device| device != epochs.device());
        if !is_elsewhere || on(entry.second) == Some(epochs.device()) {
            return false;
        }
        let (lacks, extent_bytes) = (epochs.lacks.borrow(), self.shape.bytes_of(extent));
        let mut at = extent_bytes.start;
        while let Some(unknown) = super::next_within(&lacks.unknown, &(at..extent_bytes.end)) {
            if state.behind.ranges().missing(&unknown) > Bytes::ZERO {
                // The range has not been compared yet.
                return false;
            }
            at = unknown.end;
        }
        true
    }
}
