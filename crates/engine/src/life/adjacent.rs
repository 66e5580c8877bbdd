//! Makes adjacent slots free for metadata: homes, second copies and cached copies in a window of the device
//! go elsewhere, and nothing new comes there ([`crate::map::State::begin_window`]).
//!
//! Extents move as from a draining device ([`super::leaving_copy`]). The other slots of the same device come
//! first.

use crate::Result;
use crate::copier::{IN_A_ROW, Mover};
use crate::core::{Store, Upkeep};
use crate::devices::{Devices, LARGEST_BUFFER};
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_format::superblock::Superblock;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime, yield_now};
use std::ops::Range;

/// Rounds without progress before the window is given up.
const MOST_IDLE: u32 = 5;
/// Pause after a round without progress.
const REST: Nanos = Nanos::from_secs(1);

impl<D: Device> Devices<D> {
    /// Slots of a device with metadata.
    fn metadata_slots(&self, device: DeviceId) -> Vec<Range<u32>> {
        let superblock: Superblock = self.superblock().clone();
        let (entry, size) = (&superblock.devices[device.index()], superblock.extent_size);
        let tables = superblock.tables.iter().filter(|table| table.device == device);
        let tables = tables.map(|table| table.offset..table.offset + table.len);
        let within = |place: Range<Bytes>| {
            let [start, end] = [place.start, place.end].map(|at| at.saturating_sub(entry.slots_offset));
            (start / size) as u32..end.0.div_ceil(size.0) as u32
        };
        superblock.regions_on(device).chain(tables).map(within).collect()
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Takes `count` adjacent slots of a device for metadata of a volume of `extents`, and empties them first
    /// if need be. Returns the first slot; `None` if the device has no such slots.
    pub(super) async fn make_run(&self, device: DeviceId, count: u32, extents: u32) -> Result<Option<u32>> {
        let reserve = || self.store.state.borrow_mut().reserve_run(device, count, extents);
        if let Some(first) = reserve() {
            return Ok(Some(first));
        }
        let metadata = self.store.devices.metadata_slots(device);
        let begun = {
            let mut state = self.store.state.borrow_mut();
            let least = if state.space.keeps_addresses(device) { extents } else { 0 };
            state.begin_window(device, count, least, &metadata)
        };
        let Some(slots) = begun else { return Ok(None) };
        let emptied = self.empty_window(device).await;
        let is_done = self.store.state.borrow_mut().end_window();
        emptied.map(|()| is_done.then_some(slots.start))
    }

    /// Moves everything out of the window, until all its slots are gathered or nothing moves any more.
    async fn empty_window(&self, device: DeviceId) -> Result<()> {
        let (mut idle, mut left) = (0, usize::MAX);
        while idle < MOST_IDLE && !self.jobs.are_ending() {
            self.durable.commit(Origin::Background).await?;
            let blocks = self.store.blocks_in_window().await;
            self.in_order(&blocks, Mover::Engine, async |blocks| self.demote(blocks, Mover::Engine).await)
                .await?;
            for extent in self.store.extents_in_window() {
                self.move_out(extent, device).await?;
            }
            self.durable.commit(Origin::Background).await?;
            self.durable.checkpoint().await?;
            self.store.release_trims();
            let now = self.store.state.borrow().window_left();
            if now == 0 {
                return Ok(());
            }
            if now < left {
                (left, idle) = (now, 0);
                continue;
            }
            idle += 1;
            self.durable.pause(self.rt.now() + REST, || self.jobs.are_ending()).await;
        }
        Ok(())
    }

    /// Moves an extent's copy out of the window. Nothing changes while a copy is behind or another job moves
    /// the extent.
    async fn move_out(&self, extent: ExtentId, device: DeviceId) -> Result<()> {
        self.end_behind(extent, device).await?;
        let _room = self.durable.reserve(1).await?;
        let _intended = self.intend_all(&[extent]).await?;
        let len = LARGEST_BUFFER.min(self.store.shape.extent_size);
        let bytes = self.extents.buffer(&self.extents.buffers.runs, len).await?;
        let _turn = self.take_turn(Mover::Engine, &[device], 1, len).await;
        self.move_copy(extent, device, &bytes).await
    }

    async fn move_copy(&self, extent: ExtentId, device: DeviceId, bytes: &Buf) -> Result<()> {
        let _guard = self.locks.exclusive(extent).await;
        let is_left = |slot| self.store.state.borrow().is_in_window(slot);
        let targets = [device].into_iter().chain(self.store.targets(extent, device));
        match self.begin_leaving_copy(extent, is_left, false, targets) {
            Some(begun) => self.move_leaving_copy(begun, bytes).await.map(drop),
            None => Ok(()),
        }
    }
}

impl<D: Device> Store<D> {
    async fn blocks_in_window(&self) -> Vec<BlockId> {
        let (mut from, mut passed, mut blocks) = (0, 0u32, Vec::new());
        loop {
            let next = self.state.borrow().extras.next(from);
            let Some((after, block, extra)) = next else { break };
            (from, passed) = (after, passed + 1);
            if self.state.borrow().is_in_window(extra.slot) {
                blocks.push(block);
            }
            if passed.is_multiple_of(IN_A_ROW) {
                yield_now().await;
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    fn extents_in_window(&self) -> Vec<ExtentId> {
        let state = self.state.borrow();
        let is_in = |entry: &Entry| state.is_in_window(entry.home) || state.is_in_window(entry.second);
        state.map.iter().filter(|(_, entry)| is_in(entry)).map(|(extent, _)| extent).collect()
    }
}
