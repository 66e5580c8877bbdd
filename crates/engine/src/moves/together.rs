//! Runs: migrations of adjacent extents. A run is read in one request, and written in one request if the new
//! slots are adjacent, too. Each extent remains a separate migration: a guest's write to one extent stops
//! only the migration of that extent.
//!
//! Extents in the memory cache are copied from memory, because the source may be the loaded device (Wu and
//! Reddy, section II). The copy is taken right after the extent begins to be watched, its lock just held: no
//! write is in flight, and a later write stops the move. A write to the target with the lock held would need
//! no watching, but guests would wait for the target's budget for moves.

use crate::Result;
use crate::copier::{MigrationRun, Mover};
use crate::core::{Store, Upkeep};
use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId, ExtentId, NodeId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_format::superblock::DeviceState;
use braid_policy::Outcome;
use braid_runtime::{Buf, Device, Runtime};

/// A migration in progress.
struct Migrating {
    extent: ExtentId,
    before: Entry,
    /// Slot from which the bytes are read.
    source: SlotNumber,
    /// Slot to which the bytes are written.
    slot: SlotNumber,
    /// True if the bytes have been copied from the memory cache.
    in_memory: bool,
    /// Changes of device states at the beginning.
    states: u64,
    /// Result of the copy, as from [`Upkeep::copy_extent`]. `None` if the extent was not copied with the run.
    copied: Option<Result<Option<Bytes>>>,
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Gives extents a new home, and tells the outcome of each.
    pub(super) async fn migrate(&self, run: &MigrationRun, tell: impl Fn(ExtentId, Outcome)) {
        let Some(_in_place) = self.extents.begin_in_place(run.target) else {
            return run.extents.iter().for_each(|&extent| tell(extent, Outcome::Stopped));
        };
        let len = self.store.shape.extent_size * run.extents.len() as u64;
        let buffer = match len <= self.moves.budget.longest_move() {
            true => self.extents.buffer(&self.extents.buffers.runs, len).await.map(Some),
            false => Ok(None),
        };
        let Ok(buffer) = buffer else {
            return run.extents.iter().for_each(|&extent| tell(extent, Outcome::Failed));
        };
        let mut migrating: Vec<Migrating> = Vec::with_capacity(run.extents.len());
        for &extent in &run.extents {
            let at = self.store.shape.extent_size * migrating.len() as u64;
            let place = buffer.as_ref().map(|buffer| buffer.slice(at..at + self.store.shape.extent_size));
            match self.begin_migration(extent, run.target, place).await {
                Some(begun) => migrating.push(begun),
                None => tell(extent, Outcome::Stopped),
            }
        }
        if let Some(buffer) = buffer {
            self.copy_together(&mut migrating, &buffer).await;
        }
        migrating.sort_by_key(|each| each.copied.is_none());
        for mut each in migrating {
            let from_memory = each.in_memory && each.copied.is_some();
            let copied = match each.copied.take() {
                Some(copied) => copied,
                None => self.copy_extent(each.extent, each.before, each.slot, Mover::Plan).await,
            };
            let outcome = self.end_migration(&each, run.target, copied).await;
            let counts = from_memory && outcome == Outcome::Finished;
            self.durable.background.borrow_mut().migrations_from_memory += u64::from(counts);
            tell(each.extent, outcome);
        }
    }

    /// True if an extent without a second copy may leave its device. If two copies are required, the second
    /// copy is made first: the target may be a device that has just returned, and may be lost again.
    fn may_move_alone(&self, home: DeviceId) -> bool {
        self.store.shape.copies == 1
            || self.extents.active_epochs().is_some()
            || self.store.member(home).state() == DeviceState::Draining
    }

    /// Begins a migration. `place` is the extent's part of the buffer of the run.
    async fn begin_migration(
        &self,
        extent: ExtentId,
        target: DeviceId,
        place: Option<Buf>,
    ) -> Option<Migrating> {
        let wanted = |entry: &Entry, home: DeviceId, second: Option<DeviceId>| {
            entry.home != SlotNumber::NONE
                && home != target
                && second != Some(target)
                && (second.is_some() || self.may_move_alone(home))
        };
        let (before, slot) = self.begin_copy(extent, target, wanted).await?;
        // No other task runs between the release of the lock and the next line.
        let is_in_memory = |place: Buf| self.guests.cache.borrow().copy_whole(extent, &place);
        // With two required copies, memory may hold the bytes of either copy, but a move must copy the one
        // that moves.
        let in_memory = self.store.shape.copies == 1 && place.is_some_and(is_in_memory);
        let states = self.store.devices.changes();
        let source = self.store.copies_of(extent, &before).current;
        Some(Migrating { extent, before, source, slot, in_memory, states, copied: None })
    }

    /// Switches the map, if the copy is whole and no guest wrote meanwhile.
    async fn end_migration(
        &self,
        &Migrating { extent, before, slot, states, .. }: &Migrating,
        target: DeviceId,
        copied: Result<Option<Bytes>>,
    ) -> Outcome {
        // Journal room comes before the lock.
        let (copied, _room) = match (copied, self.durable.reserve(1).await) {
            (Ok(copied), Ok(room)) => (Some(copied), Some(room)),
            _ => (None, None),
        };
        let _guard = self.locks.exclusive(extent).await;
        let whole = copied.flatten().is_some() && self.store.devices.changes() == states;
        let mut state = self.store.state.borrow_mut();
        let mut background = self.durable.background.borrow_mut();
        if !self.store.devices.end_copy(&mut state, extent, target, slot, whole) {
            background.migrations_stopped += 1;
            return if copied.is_some() { Outcome::Stopped } else { Outcome::Failed };
        }
        state.set_extent(extent, Entry { home: slot, ..before });
        state.retire(before.home);
        background.migrations += 1;
        background.migrated_bytes += copied.flatten().unwrap_or_default().0;
        Outcome::Finished
    }

    /// Copies extents from memory, and adjacent extents without invalid parts. After a failed read, the
    /// extents of the request are left: each is later copied separately, from another copy if possible.
    async fn copy_together(&self, migrating: &mut [Migrating], buffer: &Buf) {
        let mut at = Bytes::ZERO;
        let all_parts = self.store.shape.all_parts();
        let is_whole = |each: &Migrating| each.in_memory || each.before.valid == all_parts;
        let beside = |a: &Migrating, b: &Migrating| {
            is_whole(a) && is_whole(b) && self.store.are_side_by_side(a.source, b.source)
        };
        for run in migrating.chunk_by_mut(beside) {
            let len = self.store.shape.extent_size * run.len() as u64;
            let bytes = buffer.slice(at..at + len);
            at += len;
            if is_whole(&run[0]) && self.read_together(run, &bytes).await {
                self.write_together(run, &bytes).await;
            }
        }
    }

    /// Reads adjacent extents, except extents already in memory. False if a device could not read.
    async fn read_together(&self, run: &[Migrating], bytes: &Buf) -> bool {
        let mut at = Bytes::ZERO;
        for part in run.chunk_by(|a, b| a.in_memory == b.in_memory) {
            let len = self.store.shape.extent_size * part.len() as u64;
            let into = bytes.slice(at..at + len);
            at += len;
            if part[0].in_memory {
                continue;
            }
            let whole = Bytes::ZERO..self.store.shape.extent_size;
            let are_kept =
                || part.iter().all(|each| self.store.check_kept(each.extent, each.source, &whole).is_ok());
            if !are_kept() {
                return false;
            }
            let (member, first) = self.store.locate(part[0].source);
            let read = self.durable.device_read_to_move(member, first, &into);
            // A flush may have failed meanwhile.
            if self.in_turn(Mover::Plan, member.id, len, read).await.is_err() || !are_kept() {
                return false;
            }
        }
        true
    }

    /// Writes extents to their new slots, from the bytes of the whole run. With two required copies, intents
    /// in the journal say meanwhile that the copies may differ, as in [`Upkeep::copy_extent`].
    async fn write_together(&self, run: &mut [Migrating], bytes: &Buf) {
        let needs_intent = self.store.shape.copies > 1 && !planted(Bug::MoveWithoutIntent);
        let mut intended = Vec::new();
        if needs_intent {
            for each in run.iter_mut() {
                match self.durable.intend(self.store.shape.span_of(each.extent)).await {
                    Ok(begun) => intended.push(begun),
                    Err(error) => each.copied = Some(Err(error)),
                }
            }
        }
        let size = self.store.shape.extent_size;
        let mut at = Bytes::ZERO;
        let is_one = |a: &Migrating, b: &Migrating| {
            self.store.are_side_by_side(a.slot, b.slot) && self.store.bytes_on(a) == self.store.bytes_on(b)
        };
        for part in run.chunk_by_mut(is_one) {
            let len = size * part.len() as u64;
            let (first, node) = (part[0].slot, self.store.bytes_on(&part[0]));
            let written = self.write_slots(first, &bytes.slice(at..at + len), node).await;
            let alone = part.len() == 1;
            for each in part {
                let own = bytes.slice(at..at + size);
                at += size;
                let done = match &written {
                    Ok(()) => Ok(()),
                    Err(error) if alone => Err(error.clone()),
                    // One bad sector must not fail the neighbours.
                    Err(_) => self.write_slots(each.slot, &own, node).await,
                };
                // An extent without a durable intent has already failed.
                each.copied.get_or_insert(done.map(|()| Some(size)));
            }
        }
    }

    /// Writes adjacent slots, beginning with `first`, from bytes on a node.
    async fn write_slots(&self, first: SlotNumber, bytes: &Buf, node: Option<NodeId>) -> Result<()> {
        let (member, at) = self.store.locate(first);
        let write = self.durable.device_write_moved(member, at, bytes, node);
        self.in_turn(Mover::Plan, member.id, bytes.len(), write).await
    }
}

impl<D: Device> Store<D> {
    fn are_side_by_side(&self, slot: SlotNumber, next: SlotNumber) -> bool {
        next.0 == slot.0 + 1 && self.device_of(slot) == self.device_of(next)
    }

    /// Returns the node with an extent's bytes: the node of the source device, or `None` if the bytes come
    /// from memory.
    fn bytes_on(&self, each: &Migrating) -> Option<NodeId> {
        if each.in_memory { None } else { self.locate(each.source).0.node() }
    }
}
