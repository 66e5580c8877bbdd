//! Moves everything off a draining device: the volume's metadata ([`super::metadata`]), homes and second
//! copies of extents, and cached copies. The data of a lost device is copied from the other required copies.
//!
//! An extent moves under its lock ([`super::leaving_copy`]). Before the lock, the move waits until both
//! devices have time for moves. With the lock, the move waits only for devices.

use crate::Result;
use crate::copier::{IN_A_ROW, LONGEST_RUN, MOST_IN_RUN, Mover, RUNS_AT_ONCE};
use crate::core::{Store, Upkeep};
use crate::devices::DrainStatus;
use crate::devices::LARGEST_BUFFER;
use crate::map::{IntendedWrite, Other};
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos};
use braid_format::map_page::Entry;
use braid_format::{SlotNumber, SpanId};
use braid_policy::{ByteRange, DeviceView, Move, Origin};
use braid_runtime::{Buf, Device, Runtime, join_all, yield_now};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Largest distance between the copies read by one run.
const WINDOW: Bytes = Bytes(2 << 20);
/// Extents sorted by their slots at a time.
const SORTED: usize = 1024;
/// Blocks with a cached copy sorted by address at a time: 256 MiB of 4 KiB blocks, and some milliseconds.
const BLOCKS_SORTED: usize = 1 << 16;
/// Pause of a drain after an incomplete round.
const REST: Nanos = Nanos::from_secs(1);

/// Extents that move together: the copies are close together on the source device, and share a target.
struct DrainRun {
    extents: Vec<ExtentId>,
    source: Option<DeviceId>,
    /// None without room.
    target: Option<DeviceId>,
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Drains devices until the volume closes.
    pub async fn drain(&self) {
        while !self.jobs.are_ending() {
            let leaving = || {
                self.store
                    .devices
                    .iter()
                    .map(|m| m.id)
                    .filter(|&device| self.store.devices.is_leaving(device))
            };
            self.durable.pause(Nanos::MAX, || leaving().next().is_some()).await;
            let devices: Vec<DeviceId> = leaving().collect();
            for device in devices {
                if let Err(error) = self.move_metadata(device).await {
                    tracing::warn!(%error, "metadata stays on device {device}");
                }
                // The failing device counts its failure; the drain tries again after a pause.
                if self.drain_round(device).await.is_ok() && self.store.is_drained(device) {
                    let ended = self.end_removal(device).await;
                    if let Err(error) = ended {
                        tracing::warn!(%error, "device {device} stays until the volume is served again");
                    }
                }
            }
            let rest = if leaving().next().is_some() { REST } else { Nanos::ZERO };
            self.durable.pause(self.rt.now() + rest, || false).await;
        }
    }

    /// Progress of a device's removal; none if the device stays.
    pub fn drain_status(&self, device: DeviceId) -> Option<DrainStatus> {
        self.store.devices.is_leaving(device).then(|| DrainStatus {
            left_bytes: self.store.shape.extent_size * u64::from(self.store.state.borrow().held(device)),
            bytes_per_second: self.store.devices.drains.per_second(device, self.rt.now()),
        })
    }

    fn may_drain(&self, device: DeviceId) -> bool {
        self.store.devices.is_leaving(device) && !self.jobs.are_ending() && !self.moves.auditing.get()
    }

    /// Moves everything off a device, makes the moves durable, and frees the slots.
    async fn drain_round(&self, device: DeviceId) -> Result<()> {
        let (mut from, stuck, mut has_freed) = (0, Cell::new(0), false);
        let before = self.durable.background.borrow().migrations;
        while let Some(extents) = self.extents_on(device, &mut from).await {
            let (extents, others): (Vec<_>, Vec<_>) =
                extents.into_iter().partition(|&extent| self.store.may_move(extent, device));
            stuck.set(stuck.get() + others.len());
            // Cached copies may have taken the room.
            let short =
                others.iter().filter(|&&extent| self.store.targets(extent, device).is_empty()).count();
            has_freed |=
                (0..short).take_while(|_| self.durable.reclaim_extras(|other| other != device)).count() > 0;
            let intended = self.intend_all(&extents).await?;
            let queue = RefCell::new(VecDeque::from(extents));
            let next = || self.next_to_move(&mut queue.borrow_mut(), device);
            let work = async || {
                while let Some(run) = next() {
                    self.moves.moving.set(self.moves.moving.get() + 1);
                    let moved = self.move_run_off(&run, device).await;
                    self.moves.moving.set(self.moves.moving.get() - 1);
                    moved?;
                    let is_left = |&&extent: &&ExtentId| self.store.index_on(extent, device).is_some();
                    stuck.set(stuck.get() + run.extents.iter().filter(is_left).count());
                }
                Ok(())
            };
            let moved = join_all((0..RUNS_AT_ONCE).map(|_| work())).await;
            drop(intended);
            self.settle_reproduced().await?;
            moved.into_iter().collect::<Result<()>>()?;
        }
        self.drop_extras_on(device).await?;
        let has_moved = stuck.get() == 0 || self.durable.background.borrow().migrations > before;
        if (has_moved || has_freed) && self.may_drain(device) {
            // The flush of the copies proves the sources, too. The slots are free once no map image names
            // them.
            self.durable.commit(Origin::Background).await?;
            self.durable.checkpoint().await?;
            self.store.release_trims();
        }
        Ok(())
    }

    /// Records all spans of these extents as dirty, and begins a write in each. New copies may differ until
    /// flushed, since a device may fail before. A batch for each extent would interrupt copying on the disk
    /// with the journal.
    pub(super) async fn intend_all(&self, extents: &[ExtentId]) -> Result<Vec<IntendedWrite<'_, R>>> {
        if self.store.shape.copies == 1 {
            return Ok(Vec::new());
        }
        let spans: BTreeSet<SpanId> =
            extents.iter().map(|&extent| self.store.shape.span_of(extent)).collect();
        join_all(spans.iter().map(|&span| self.durable.intend(span))).await.into_iter().collect()
    }

    /// Takes the first extents that can move together.
    fn next_to_move(&self, queue: &mut VecDeque<ExtentId>, device: DeviceId) -> Option<DrainRun> {
        if !self.may_drain(device) {
            return None;
        }
        let first = queue.pop_front()?;
        let source = self.store.read_from(first, device);
        let target = self.store.targets(first, device).first().copied();
        let mut run =
            DrainRun { extents: vec![first], source: source.map(|slot| self.store.device_of(slot)), target };
        let most = ((LONGEST_RUN / self.store.shape.extent_size) as usize).min(MOST_IN_RUN);
        let fits = |&extent: &ExtentId| {
            let next = self.store.read_from(extent, device);
            let (Some(first), Some(next)) = (source, next) else { return false };
            let between = self.store.shape.extent_size * u64::from(next.0.abs_diff(first.0));
            self.store.device_of(first) == self.store.device_of(next)
                && between <= WINDOW
                && target.is_some_and(|target| self.store.targets(extent, device).contains(&target))
        };
        while run.extents.len() < most
            && let Some(next) = queue.pop_front_if(|next| fits(next))
        {
            run.extents.push(next);
        }
        Some(run)
    }

    /// Returns the next extents with a required copy on a device, in the order of reading. None at the end of
    /// the volume, or if the drain is over.
    async fn extents_on(&self, device: DeviceId, from: &mut u32) -> Option<Vec<ExtentId>> {
        let mut found = Vec::new();
        if self.store.state.borrow().map.is_of_adopted() {
            // All extents lie on the adopted disk.
            return None;
        }
        while *from < self.store.shape.extents() && found.len() < SORTED {
            let extent = ExtentId(*from);
            if self.store.index_on(extent, device).is_some() {
                found.push((self.store.read_from(extent, device).map_or(u32::MAX, |slot| slot.0), extent));
            }
            *from += 1;
            if from.is_multiple_of(IN_A_ROW) {
                yield_now().await;
            }
        }
        if found.is_empty() || !self.may_drain(device) {
            return None;
        }
        found.sort_unstable();
        Some(found.into_iter().map(|(_, extent)| extent).collect())
    }

    /// Moves a run's copies to slots of the target, in one turn of the devices.
    async fn move_run_off(&self, run: &DrainRun, device: DeviceId) -> Result<()> {
        let Some(target) = run.target else { return Ok(()) };
        for &extent in &run.extents {
            self.end_behind(extent, device).await?;
        }
        let len = LARGEST_BUFFER.min(self.store.shape.extent_size);
        let all = len * run.extents.len() as u64;
        let _room = self.durable.reserve(run.extents.len()).await?;
        let bytes = self.extents.buffer(&self.extents.buffers.runs, all).await?;
        let devices: Vec<DeviceId> = run.source.into_iter().chain([target]).collect();
        let _turn = self.take_turn(Mover::Engine, &devices, run.extents.len() as u32, all).await;
        let works = run.extents.iter().zip(0..).map(|(&extent, place)| {
            let bytes = bytes.slice(len * place..len * (place + 1));
            self.move_off(extent, device, target, bytes)
        });
        join_all(works).await.into_iter().collect()
    }

    /// Moves one extent. Nothing changes while a copy is behind or another job moves the extent.
    async fn move_off(&self, extent: ExtentId, device: DeviceId, target: DeviceId, bytes: Buf) -> Result<()> {
        let _guard = self.locks.exclusive(extent).await;
        if self.durable.journal.commits.have_failed()
            || !self.may_drain(device)
            || self.extents.is_image(target)
        {
            return Ok(());
        }
        let is_lost = !self.store.member(device).is_current();
        let is_on = |slot: SlotNumber| {
            self.store.state.borrow().space.locate(slot).is_some_and(|slot| slot.device == device)
        };
        let others = self.store.targets(extent, device);
        let targets = others.contains(&target).then_some(target).into_iter().chain(others);
        let Some(begun) = self.begin_leaving_copy(extent, is_on, is_lost, targets) else { return Ok(()) };
        let doubts = self.store.state.borrow().behind.doubts(self.store.shape.span_of(extent));
        if self.move_leaving_copy(begun, &bytes).await? {
            self.store.devices.drains.count(device, self.store.shape.extent_size, self.rt.now());
            if is_lost {
                self.moves.note_reproduced(&self.store, extent, doubts);
            }
        }
        Ok(())
    }

    /// Resynchronises an extent that a policy keeps behind, before the move.
    pub(super) async fn end_behind(&self, extent: ExtentId, device: DeviceId) -> Result<()> {
        let entry = self.store.state.borrow().map.get(extent);
        let is_on = self.store.member(device).is_current() && self.store.index_on(extent, device).is_some();
        if is_on && matches!(self.store.copies_of(extent, &entry).other, Other::Behind(_)) {
            let Range { start, end } = self.store.shape.bytes_of(extent);
            self.resync_range(ByteRange { start, end }, Move::GAP).await?;
        }
        Ok(())
    }

    /// Drops the cached copies on a device; dirty copies are written back first. Blocks go in batches by
    /// address, since a disk positions once for adjacent blocks.
    ///
    /// # Errors
    /// The first error. The other copies have been dropped all the same.
    async fn drop_extras_on(&self, device: DeviceId) -> Result<()> {
        let (mut from, failed) = (0, RefCell::new(Ok(())));
        let drop = async |blocks: &[BlockId]| {
            if self.may_drain(device) {
                if let Err(error) = self.demote(blocks, Mover::Engine).await {
                    let mut failed = failed.borrow_mut();
                    if failed.is_ok() {
                        *failed = Err(error);
                    }
                }
                let gone = blocks.iter().filter(|&&block| !self.store.has_extra_on(block, device)).count();
                let len = self.store.shape.block_size * gone as u64;
                self.store.devices.drains.count(device, len, self.rt.now());
                // Clean copies cost no wait.
                yield_now().await;
            }
            Ok(())
        };
        while self.may_drain(device) {
            let blocks = self.store.extras_on(device, &mut from).await;
            if blocks.is_empty() {
                break;
            }
            self.in_order(&blocks, Mover::Engine, drop).await?;
        }
        failed.into_inner()
    }
}

impl<D: Device> Store<D> {
    /// True if nothing lies on a device, and no crash would bring old contents back.
    pub fn is_drained(&self, device: DeviceId) -> bool {
        let state = self.state.borrow();
        state.held(device) == 0 && state.extras.divided(device) == 0 && !self.devices.holds_metadata(device)
    }

    /// True if another device has room for the copy of an extent, and a source for the copy exists.
    fn may_move(&self, extent: ExtentId, device: DeviceId) -> bool {
        let entry = self.state.borrow().map.get(extent);
        let is_other_away = self.copies_of(extent, &entry).other == Other::Away;
        is_other_away != self.member(device).is_current() && !self.targets(extent, device).is_empty()
    }

    /// Source for moving the copy on a device: the copy itself, or, if the device is lost, the other required
    /// copy.
    fn read_from(&self, extent: ExtentId, device: DeviceId) -> Option<SlotNumber> {
        let state = self.state.borrow();
        let Entry { home, second, .. } = state.map.get(extent);
        let is_there = self.member(device).is_current();
        let is_read =
            |slot: &SlotNumber| state.space.locate(*slot).is_some_and(|s| (s.device == device) == is_there);
        [home, second].into_iter().find(is_read)
    }

    /// Slot of an extent's required copy on a device.
    fn index_on(&self, extent: ExtentId, device: DeviceId) -> Option<u32> {
        let state = self.state.borrow();
        let Entry { home, second, .. } = state.map.get(extent);
        let places = [home, second].into_iter().filter_map(|slot| state.space.locate(slot));
        places.filter(|slot| slot.device == device).map(|slot| slot.index).next()
    }

    /// Possible targets for an extent of this device: devices of the same class first, then by most free
    /// slots.
    pub(super) fn targets(&self, extent: ExtentId, device: DeviceId) -> Vec<DeviceId> {
        let state = self.state.borrow();
        let Entry { home, second, .. } = state.map.get(extent);
        let is_used =
            |id| [home, second].iter().any(|&s| state.space.locate(s).is_some_and(|s| s.device == id));
        let class = self.member(device).entry.class;
        let fits =
            |view: &&DeviceView| view.free > 0 && !is_used(view.id) && self.member(view.id).is_filled();
        let mut targets: Vec<&DeviceView> = state.views.iter().filter(fits).collect();
        targets.sort_by_key(|view| (view.class != class, Reverse(view.free)));
        targets.into_iter().map(|view| view.id).collect()
    }

    fn has_extra_on(&self, block: BlockId, device: DeviceId) -> bool {
        self.state.borrow().extras.get(block).is_some_and(|extra| self.device_of(extra.slot) == device)
    }

    /// Returns the next blocks with a cached copy on a device, sorted by address. `from` is the position of
    /// the search.
    async fn extras_on(&self, device: DeviceId, from: &mut u32) -> Vec<BlockId> {
        let (mut blocks, mut passed) = (Vec::new(), 0);
        while blocks.len() < BLOCKS_SORTED {
            let next = self.state.borrow().extras.next(*from);
            let Some((after, block, extra)) = next else { break };
            *from = after;
            passed += 1;
            if u32::is_multiple_of(passed, IN_A_ROW) {
                yield_now().await;
            }
            if self.device_of(extra.slot) == device {
                blocks.push(block);
            }
        }
        blocks.sort_unstable();
        // A copy may have gone meanwhile, and come back in another place.
        blocks.dedup();
        blocks
    }
}
