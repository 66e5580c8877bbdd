//! Runs: adjacent blocks with extra copies side by side on a device, accessed by one request.
//!
//! A request of 128 KiB costs an SSD little more than a request of 4 KiB, and far less than 32 small requests
//! in a row. All runs of a piece are read or written in parallel. Adjacent blocks get adjacent block slots if
//! there are any (`map/extras.rs`).

use crate::Result;
use crate::core::{Extents, Store};
use crate::devices::Deadline;
use crate::journal::Reservation;
use crate::shape::{Piece, Shape};
use braid_base::{BlockId, Bytes, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;

/// Adjacent blocks of an extent (the first and the last perhaps in part) and the place of their extra copies.
pub(super) struct BlockRun {
    pub piece: Piece,
    pub(super) slot: SlotNumber,
    /// Block slot of the first block.
    place: u16,
    /// Set if the block slots were taken for the run and hold no block yet.
    pub is_new: bool,
}

impl BlockRun {
    /// Returns the run extended to its whole block. The run must have only one block.
    pub fn of_all(&self, block: &Piece) -> BlockRun {
        BlockRun { piece: block.clone(), ..*self }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Returns the runs for a write of a piece to extra copies alone: existing copies, and newly taken block
    /// slots for the rest. None without room, or if an existing copy must not become dirty because the copy
    /// and its bytes around the piece may be lost.
    pub(super) fn place_dirty(&self, piece: &Piece, device: DeviceId) -> Option<Vec<BlockRun>> {
        let blocks: Vec<(BlockId, Range<Bytes>)> = self.store.shape.blocks_in(piece).collect();
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < blocks.len() {
            let known = self.store.state.borrow().extras.get(blocks[at].0);
            let placed = match known {
                Some(_) => self.store.kept_place(blocks[at].0),
                None => self.take_blocks(device, piece, self.store.lacking(&blocks[at..])),
            };
            let Some((slot, places)) = placed else {
                self.store.release_new(&runs);
                return None;
            };
            for ((_, range), place) in blocks[at..].iter().zip(places.clone()) {
                let piece = Piece { extent: piece.extent, range: range.clone() };
                self.store
                    .shape
                    .push_run(&mut runs, BlockRun { piece, slot, place, is_new: known.is_none() });
            }
            at += places.len();
        }
        Some(runs)
    }

    /// Takes block slots and journal room for new clean extra copies of a piece's whole, valid blocks, as
    /// many as there is room for.
    pub(super) fn place_clean(
        &self,
        piece: &Piece,
        device: DeviceId,
    ) -> (Vec<BlockRun>, Vec<Reservation<'_>>) {
        let is_wanted = |(block, range): &(BlockId, Range<Bytes>)| {
            *range == self.store.shape.range_of(*block).range && self.store.is_written(piece, range)
        };
        let blocks: Vec<(BlockId, Range<Bytes>)> =
            self.store.shape.blocks_in(piece).filter(is_wanted).collect();
        let (mut runs, mut rooms, mut at) = (Vec::new(), Vec::new(), 0);
        while at < blocks.len() {
            let lacking = self.store.lacking(&blocks[at..]);
            if lacking == 0 {
                at += 1;
                continue;
            }
            let Some((slot, places)) = self.take_blocks(device, piece, lacking) else { break };
            let room = self.durable.reserve_for_clean(places.len());
            let has_room = room.is_some();
            rooms.extend(room);
            for ((_, range), place) in blocks[at..].iter().zip(places.clone()) {
                let piece = Piece { extent: piece.extent, range: range.clone() };
                match has_room {
                    true => {
                        self.store.shape.push_run(&mut runs, BlockRun { piece, slot, place, is_new: true })
                    }
                    false => self.store.release_block(slot, place),
                }
            }
            if !has_room {
                break;
            }
            at += places.len();
        }
        (runs, rooms)
    }

    /// Writes a run's part of a piece's bytes. After an error the device may still write the bytes. Later
    /// writes to the same block slots come after them: a late device gets no other request before its answer.
    pub(super) async fn write_run(
        &self,
        run: &BlockRun,
        piece: &Piece,
        from: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let range = &run.piece.range;
        let part = from.slice(range.start - piece.range.start..range.end - piece.range.start);
        let start =
            self.store.shape.block_size * u64::from(run.place) + range.start % self.store.shape.block_size;
        // All of a block slot counts as valid: if the device needs whole sectors, edges are read first.
        let within = start..start + part.len();
        self.write_slot_by(run.slot, &within, Some(&part), u16::MAX, origin, deadline).await
    }
}

impl Shape {
    /// Iterates over the blocks of a run with their block slots.
    pub(super) fn places_of(
        &self,
        run: &BlockRun,
    ) -> impl Iterator<Item = (BlockId, SlotNumber, u16)> + use<> {
        let slot = run.slot;
        self.blocks_in(&run.piece).zip(run.place..).map(move |((block, _), place)| (block, slot, place))
    }

    /// True if the run covers all its blocks whole.
    pub(super) fn covers_blocks(&self, run: &BlockRun) -> bool {
        self.blocks_in(&run.piece).all(|(block, range)| range == self.range_of(block).range)
    }

    /// Appends a block to the last run, or begins a new run.
    fn push_run(&self, runs: &mut Vec<BlockRun>, next: BlockRun) {
        let goes_on = |last: &&mut BlockRun| {
            let blocks = self.blocks_touched(&last.piece);
            (last.slot, last.is_new) == (next.slot, next.is_new)
                && u64::from(last.place) + blocks == u64::from(next.place)
                && last.piece.range.end == next.piece.range.start
                // A new block that a guest writes in part is filled by its own read.
                && (!next.is_new || self.covers_blocks(last) && self.covers_blocks(&next))
        };
        match runs.last_mut().filter(goes_on) {
            Some(last) => last.piece.range.end = next.piece.range.end,
            None => runs.push(next),
        }
    }
}

impl<D: Device> Store<D> {
    /// Returns the runs of the piece's extra copies that count ([`Store::extra_in`]), and true if all copies
    /// count.
    pub(super) fn runs_of(&self, piece: &Piece) -> (Vec<BlockRun>, bool) {
        let (mut runs, mut is_all) = (Vec::new(), true);
        for (block, range) in self.shape.blocks_in(piece) {
            let state = self.state.borrow();
            let Some(extra) = state.extras.get(block) else { continue };
            if !self.counts(&state, block, &extra) {
                is_all = false;
                continue;
            }
            drop(state);
            let (piece, Extra { slot, place, .. }) = (Piece { extent: piece.extent, range }, extra);
            self.shape.push_run(&mut runs, BlockRun { piece, slot, place, is_new: false });
        }
        (runs, is_all)
    }

    /// True if a block of the run has a dirty extra copy.
    pub(super) fn is_dirty(&self, run: &BlockRun) -> bool {
        let state = self.state.borrow();
        self.shape
            .blocks_in(&run.piece)
            .any(|(block, _)| state.extras.get(block).is_some_and(|extra| extra.dirty))
    }

    /// Frees the block slots taken for new runs.
    pub(super) fn release_new(&self, runs: &[BlockRun]) {
        for run in runs.iter().filter(|run| run.is_new) {
            self.shape.places_of(run).for_each(|(_, slot, place)| self.release_block(slot, place));
        }
    }

    /// Number of consecutive blocks without an extra copy, from the first block on.
    fn lacking(&self, blocks: &[(BlockId, Range<Bytes>)]) -> usize {
        let (state, first) = (self.state.borrow(), blocks[0].0.0);
        let lacks = |(block, at): (BlockId, u64)| block.0 == first + at && state.extras.get(block).is_none();
        blocks.iter().map(|(block, _)| *block).zip(0..).take_while(|&next| lacks(next)).count()
    }

    /// Returns the block slot of an existing extra copy that may become dirty.
    fn kept_place(&self, block: BlockId) -> Option<(SlotNumber, Range<u16>)> {
        let Extra { slot, place, dirty } = self.extra_in(&self.state.borrow(), block)?;
        (dirty || self.locate(slot).0.is_filled()).then_some((slot, place..place + 1))
    }
}
