//! After an opening, or a change of policy, it is not known what the image lacks: it is compared with the volume.

use super::{Epochs, Stage};
use crate::Result;
use crate::copies::Other;
use crate::core::Core;
use crate::map::Arrival;
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{Move, Origin};
use braid_runtime::{Device, Mode, Runtime};
use std::ops::Range;
use std::rc::Rc;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Compares all that is not known, from the first address on. What differs the image lacks; as long as it is no state of the volume, that is
    /// written in its place.
    pub(super) async fn examine(self: &Rc<Self>, epochs: &Epochs) -> Result<()> {
        let mut at = Bytes::ZERO;
        loop {
            let next = epochs.next_of(|lacks| &lacks.unknown, &(at..self.image_len()));
            let Some(range) = next else { return Ok(()) };
            if self.jobs.are_ending() || !self.member(epochs.device()).is_current() {
                return Ok(());
            }
            let extent = self.shape.extent_of(range.start);
            let most = (range.start + self.bounce_limit() / 2).min(self.shape.bytes_of(extent).end);
            let range = range.start..range.end.min(most);
            at = range.end;
            if epochs.stage.get() == Stage::Void {
                self.leave_image(epochs, extent).await?;
            }
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            let mut from = range.start;
            while let Some(part) = epochs.next_of(|lacks| &lacks.unknown, &(from..range.end)) {
                from = part.end;
                self.compare_with_image(epochs, extent, &part).await?;
            }
            if epochs.stage.get() == Stage::Void {
                self.join_image(epochs, extent);
            }
        }
    }

    /// The caller holds the extent's lock, exclusive.
    async fn compare_with_image(
        self: &Rc<Self>,
        epochs: &Epochs,
        extent: ExtentId,
        range: &Range<Bytes>,
    ) -> Result<()> {
        let (member, len) = (self.member(epochs.device()), range.end - range.start);
        let place = member.entry.slots_offset + range.start;
        let content = self.buffer(&self.buffers.moves, len).await?;
        self.read_image_bytes(range, &content).await?;
        let image = self.buffer(&self.buffers.bounce, len).await?;
        self.device_read(member, place, &image, Origin::Background).await?;
        let block = self.shape.block_size;
        let is_same = |at: Bytes, end: Bytes| {
            content.slice(at..end).with_bytes(|a| image.slice(at..end).with_bytes(|b| a == b))
        };
        let is_void = epochs.stage.get() == Stage::Void;
        let home = self.state.borrow().map.get(extent).home;
        let is_own =
            home != SlotNumber::NONE && home != SlotNumber::LOST && self.device_of(home) == epochs.device();
        if is_void && !is_own && !is_same(Bytes::ZERO, len) {
            self.device_write(member, place, &content, Origin::Background).await?;
        }
        let mut lacks = epochs.lacks.borrow_mut();
        if is_void && is_own {
            return Ok(());
        }
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

    /// The home of an extent must not be in the image: what guests write there would change it.
    async fn leave_image(self: &Rc<Self>, epochs: &Epochs, extent: ExtentId) -> Result<()> {
        let entry = self.state.borrow().map.get(extent);
        let is_in_image = |slot: SlotNumber| {
            slot != SlotNumber::NONE && slot != SlotNumber::LOST && self.device_of(slot) == epochs.device()
        };
        if !is_in_image(entry.home) {
            return Ok(());
        }
        if entry.second == SlotNumber::NONE {
            let roomiest: Option<DeviceId> = self.with_policy(|_, view| {
                let others = view.with_room().filter(|device| device.id != epochs.device());
                others.max_by_key(|device| device.free).map(|device| device.id)
            });
            let Some(target) = roomiest else { return Ok(()) };
            self.run_own_move(Move::Mirror { extent, target }).await?;
        }
        let _room = self.reserve(1).await?;
        let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
        let entry = self.state.borrow().map.get(extent);
        if is_in_image(entry.home)
            && let Other::Equal(_) = self.copies_of(extent, &entry).other
        {
            let mut state = self.state.borrow_mut();
            state.disturb(extent);
            state.set_extent(extent, Entry { home: entry.second, second: entry.home, ..entry });
        }
        Ok(())
    }

    /// An extent that has one copy gets its second one in the image, which holds its bytes already. The caller holds its lock, exclusive.
    fn join_image(&self, epochs: &Epochs, extent: ExtentId) {
        let mut state = self.state.borrow_mut();
        let entry = state.map.get(extent);
        let lacks = entry.home != SlotNumber::NONE
            && entry.home != SlotNumber::LOST
            && entry.second == SlotNumber::NONE;
        let is_elsewhere =
            state.space.locate(entry.home).is_some_and(|place| place.device != epochs.device());
        if lacks
            && is_elsewhere
            && let Some(second) = state.take_for(extent, epochs.device(), Arrival::Moved)
        {
            state.disturb(extent);
            state.set_extent(extent, Entry { second, ..entry });
        }
    }
}
