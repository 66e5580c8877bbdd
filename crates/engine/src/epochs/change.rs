//! How a guest's change begins while epochs are kept: the change waits for the bound, and bytes that the
//! journal still needs are read before the change.

use super::{Captured, Epochs, Stage, len};
use crate::Result;
use crate::core::Extents;
use crate::devices::LARGEST_BUFFER;
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use braid_base::Bytes;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;

/// A guest's change, admitted by epochs and under way until dropped.
pub(crate) struct AdmittedChange<'a> {
    epochs: &'a Epochs,
    reserved: Bytes,
}

impl Drop for AdmittedChange<'_> {
    fn drop(&mut self) {
        let Epochs { changing, reserved, event, .. } = self.epochs;
        changing.set(changing.get() - 1);
        reserved.set(reserved.get() - self.reserved);
        event.notify();
    }
}

impl Shape {
    /// Padding of a change, in bytes: blocks and parts around the change that become valid.
    fn around_change(&self) -> Bytes {
        self.part_size * 2
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Longest change, in bytes, that is admitted as a whole. Longer changes are cut, but never below one
    /// extent. If the image lacks nothing, any change is admitted. One change, with its padding, must
    /// therefore fit the bound.
    pub fn longest_change(&self) -> Bytes {
        let Some(epochs) = self.active_epochs() else { return Bytes(u64::MAX) };
        let bound = self.with_policy(|policy, view| policy.longest_change(view));
        let most = (epochs.place.capacity() / 4).min(bound.saturating_sub(self.store.shape.around_change()));
        most.align_down(self.store.shape.extent_size).max(self.store.shape.extent_size)
    }

    /// Admits a guest's change of `len` bytes: waits until no epoch is about to end, and until the image
    /// would lag within the bound. The change is under way until the returned value is dropped. Returns
    /// `None` if no epochs are kept. The caller holds no lock.
    pub async fn admit_change(&self, len: Bytes) -> Option<AdmittedChange<'_>> {
        let epochs = self.active_epochs()?;
        let len = len + self.store.shape.around_change();
        let may_begin = || {
            // Until all missing ranges are known, no epoch can end in time: guests would wait for a
            // comparison of the whole volume.
            let bound = self.with_policy(|policy, view| match epochs.stage.get() {
                Stage::Noted => policy.epoch_bound(view),
                Stage::Void | Stage::Compared => policy.longest_change(view),
            });
            if !epochs.active.get() || self.durable.journal.commits.have_failed() {
                return Some(false);
            }
            let may = !epochs.closed.get() && epochs.has_room(len, bound);
            // If nothing is left for an epoch to take, room appears once the journal has been applied.
            if !may && epochs.lacks.borrow().known() > Bytes::ZERO {
                epochs.wanted.set(true);
                self.jobs.wake();
            }
            may.then_some(true)
        };
        if !epochs.event.wait_for(may_begin).await {
            return None;
        }
        epochs.changing.set(epochs.changing.get() + 1);
        epochs.reserved.set(epochs.reserved.get() + len);
        Some(AdmittedChange { epochs, reserved: len })
    }

    /// Waits until the image may be written like any other copy. Shortly after the last SSD was lost, the
    /// image is not yet writable, and new extents find no room. Returns false if another device is current:
    /// the lack of room then has another cause. Returns false, too, if the volume closes or a commit has
    /// failed meanwhile. The caller holds no lock, and no change.
    pub async fn wait_for_room_in_image(&self) -> bool {
        let Some(epochs) = self.active_epochs() else { return true };
        if self.store.devices.iter().any(|member| member.id != epochs.device() && member.is_current()) {
            return false;
        }
        self.jobs.wake();
        let will_be_kept = || self.jobs.are_ending() || self.durable.journal.commits.have_failed();
        let is_over = || (!epochs.active.get() || will_be_kept()).then_some(());
        epochs.event.wait_for(is_over).await;
        !epochs.active.get()
    }

    /// Records that a range of the volume, in whole blocks of one extent, is about to change. Bytes of the
    /// range that the journal still needs are read first. The caller holds the extent's lock, either
    /// exclusive or with the range's lock.
    pub async fn note_change(&self, range: &Range<Bytes>) -> Result<()> {
        let Some(epochs) = self.active_epochs() else { return Ok(()) };
        if !planted(Bug::EpochReadsLater) {
            self.capture(epochs, range, None).await;
        }
        if self.durable.journal.commits.have_failed() {
            // No epoch ends any more.
            return Ok(());
        }
        let mut lacks = epochs.lacks.borrow_mut();
        match epochs.stage.get() {
            // The range is compared again.
            Stage::Void => lacks.unknown.insert(range.clone()),
            Stage::Compared | Stage::Noted => {
                lacks.unknown.remove(range.clone());
                lacks.open.insert(range.clone());
            }
        }
        Ok(())
    }

    /// Reads the frozen bytes of a range of one extent for the journal. `memory`, if given, was taken before
    /// the lock and holds the whole range; otherwise the bytes go to the guests' arena. If a read fails, the
    /// epoch fails, but the guest's change continues: the new bytes may repair the bad place. The caller
    /// holds the extent's lock, either exclusive or with the range's lock.
    pub(super) async fn capture(&self, epochs: &Epochs, range: &Range<Bytes>, memory: Option<&Buf>) {
        let mut at = range.start;
        while let Some(part) = epochs.next_of(|lacks| &lacks.frozen, &(at..range.end)) {
            let part = part.start..part.end.min(part.start + LARGEST_BUFFER / 2);
            let given_up = epochs.given_up.get();
            let read = async {
                let bytes = match memory {
                    Some(memory) => memory.slice(part.start - range.start..part.end - range.start),
                    None => self.buffer(&epochs.guests_arena, len(&part)).await?,
                };
                let lies = self.read_image_bytes(&part, &bytes).await?;
                Ok(lies.then_some(bytes))
            };
            let read: Result<Option<Buf>> = read.await;
            if epochs.given_up.get() != given_up {
                // The epoch was abandoned, and the bytes belong to no epoch. The next epoch may have begun
                // and lack the same range.
                continue;
            }
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(error) => {
                    epochs.unreadable.replace(Some((part, error)));
                    epochs.event.notify();
                    return;
                }
            };
            at = part.end;
            let mut lacks = epochs.lacks.borrow_mut();
            lacks.frozen.remove(part.clone());
            lacks.leaving.insert(part.clone());
            epochs.captured.borrow_mut().push(Captured { range: part, bytes });
            epochs.event.notify();
        }
    }

    /// Reads the bytes of a range of one extent for the image. Returns false, and zeros, if the extent has no
    /// home. The caller holds the extent's lock.
    pub(super) async fn read_image_bytes(&self, range: &Range<Bytes>, into: &Buf) -> Result<bool> {
        let extent = self.store.shape.extent_of(range.start);
        let entry = self.store.state.borrow().map.get(extent);
        if entry.home == braid_format::SlotNumber::NONE {
            into.fill_zero();
            return Ok(false);
        }
        let start = self.store.shape.bytes_of(extent).start;
        let piece = Piece { extent, range: range.start - start..range.end - start };
        self.read_copies(&piece, into, Origin::Background).await?;
        // If the source device lost these bytes before the read, its next flush fails. The device must then
        // not be excluded on the grounds that the image has the bytes.
        self.store.note_source(extent, entry.home);
        Ok(true)
    }
}
