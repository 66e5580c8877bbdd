//! Runs: neighbouring blocks whose extra copies lie side by side on a device, and are one request to it.
//!
//! A request of 128 KiB costs an SSD little more than one of 4 KiB, and far less than 32 of them one after
//! the other. All runs of a piece are read or written at the same time. Neighbours get block slots side by
//! side as far as there are any (`map/extras.rs`).

use crate::Result;
use crate::copies::Deadline;
use crate::core::Core;
use crate::journal::Reservation;
use crate::shape::Piece;
use braid_base::{BlockId, Bytes, DeviceId};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;

/// Blocks of an extent, the first and the last perhaps in part, and where their extra copies lie.
pub(super) struct Run {
    pub piece: Piece,
    pub(super) slot: SlotNumber,
    /// That of the first block.
    place: u16,
    /// The block slots were taken for it, and hold nothing yet.
    pub is_new: bool,
}

impl Run {
    /// The same of the whole of its only block.
    pub fn of_all(&self, block: &Piece) -> Run {
        Run { piece: block.clone(), ..*self }
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// The runs in which the extra copies of a piece lie that count, and whether all copies do
    /// ([`Core::extra_in`]).
    pub(super) fn runs_of(&self, piece: &Piece) -> (Vec<Run>, bool) {
        let (mut runs, mut is_all) = (Vec::new(), true);
        for (block, range) in self.blocks_of(piece) {
            let state = self.state.borrow();
            let Some(extra) = state.extras.get(block) else { continue };
            if !self.counts(&state, block, &extra) {
                is_all = false;
                continue;
            }
            drop(state);
            let (piece, Extra { slot, place, .. }) = (Piece { extent: piece.extent, range }, extra);
            self.push_run(&mut runs, Run { piece, slot, place, is_new: false });
        }
        (runs, is_all)
    }

    /// Where a piece is written if extra copies alone get it: to those that it has, and to block slots that
    /// are taken for the rest. None if there is no room, or if a copy must not become dirty: it may be lost,
    /// and with it what it holds around the piece.
    pub(super) fn place_dirty(&self, piece: &Piece, device: DeviceId) -> Option<Vec<Run>> {
        let blocks: Vec<(BlockId, Range<Bytes>)> = self.blocks_of(piece).collect();
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < blocks.len() {
            let known = self.state.borrow().extras.get(blocks[at].0);
            let placed = match known {
                Some(_) => self.kept_place(blocks[at].0),
                None => self.take_blocks(device, piece, self.lacking(&blocks[at..])),
            };
            let Some((slot, places)) = placed else {
                self.release_new(&runs);
                return None;
            };
            for ((_, range), place) in blocks[at..].iter().zip(places.clone()) {
                let piece = Piece { extent: piece.extent, range: range.clone() };
                self.push_run(&mut runs, Run { piece, slot, place, is_new: known.is_none() });
            }
            at += places.len();
        }
        Some(runs)
    }

    /// Block slots, and room in the journal, for those of a piece's blocks that are to get clean extra
    /// copies: as many as there is room for.
    pub(super) fn place_clean(&self, piece: &Piece, device: DeviceId) -> (Vec<Run>, Vec<Reservation<'_>>) {
        let is_wanted = |(block, range): &(BlockId, Range<Bytes>)| {
            *range == self.shape.range_of(*block).range && self.is_written(piece, range)
        };
        let blocks: Vec<(BlockId, Range<Bytes>)> = self.blocks_of(piece).filter(is_wanted).collect();
        let (mut runs, mut rooms, mut at) = (Vec::new(), Vec::new(), 0);
        while at < blocks.len() {
            let lacking = self.lacking(&blocks[at..]);
            if lacking == 0 {
                at += 1;
                continue;
            }
            let Some((slot, places)) = self.take_blocks(device, piece, lacking) else { break };
            let room = self.reserve_for_clean(places.len());
            let has_room = room.is_some();
            rooms.extend(room);
            for ((_, range), place) in blocks[at..].iter().zip(places.clone()) {
                let piece = Piece { extent: piece.extent, range: range.clone() };
                match has_room {
                    true => self.push_run(&mut runs, Run { piece, slot, place, is_new: true }),
                    false => self.release_block(slot, place),
                }
            }
            if !has_room {
                break;
            }
            at += places.len();
        }
        (runs, rooms)
    }

    /// Writes a run: its part of a piece's bytes. After an error the device may still write them; what comes
    /// to these block slots then it writes later: it gets nothing else before it has answered.
    pub(super) async fn write_run(
        &self,
        run: &Run,
        piece: &Piece,
        from: &Buf,
        by: (Origin, Deadline),
    ) -> Result<()> {
        let range = &run.piece.range;
        let part = from.slice(range.start - piece.range.start..range.end - piece.range.start);
        let start = self.shape.block_size * u64::from(run.place) + range.start % self.shape.block_size;
        // All of a block slot counts as valid: what was not written is read first where the device needs
        // whole sectors.
        self.write_slot_by(run.slot, &(start..start + part.len()), Some(&part), u16::MAX, by).await
    }

    /// The blocks of a run, each with its block slot.
    pub(super) fn places_of(
        &self,
        run: &Run,
    ) -> impl Iterator<Item = (BlockId, SlotNumber, u16)> + use<R, D> {
        let slot = run.slot;
        self.blocks_of(&run.piece).zip(run.place..).map(move |((block, _), place)| (block, slot, place))
    }

    /// Whether a block of a run has a dirty extra copy.
    pub(super) fn is_dirty(&self, run: &Run) -> bool {
        let state = self.state.borrow();
        self.blocks_of(&run.piece).any(|(block, _)| state.extras.get(block).is_some_and(|extra| extra.dirty))
    }

    /// Whether a run covers all of its blocks.
    pub(super) fn covers_blocks(&self, run: &Run) -> bool {
        self.blocks_of(&run.piece).all(|(block, range)| range == self.shape.range_of(block).range)
    }

    /// Gives back the block slots that were taken for these.
    pub(super) fn release_new(&self, runs: &[Run]) {
        for run in runs.iter().filter(|run| run.is_new) {
            self.places_of(run).for_each(|(_, slot, place)| self.release_block(slot, place));
        }
    }

    /// How many of the blocks, from the first one on, have no extra copy, and follow each other.
    fn lacking(&self, blocks: &[(BlockId, Range<Bytes>)]) -> usize {
        let (state, first) = (self.state.borrow(), blocks[0].0.0);
        let lacks = |(block, at): (BlockId, u64)| block.0 == first + at && state.extras.get(block).is_none();
        blocks.iter().map(|(block, _)| *block).zip(0..).take_while(|&next| lacks(next)).count()
    }

    /// The block slot of an extra copy that may become dirty.
    fn kept_place(&self, block: BlockId) -> Option<(SlotNumber, Range<u16>)> {
        let Extra { slot, place, dirty } = self.extra_in(&self.state.borrow(), block)?;
        (dirty || self.locate(slot).0.is_filled()).then_some((slot, place..place + 1))
    }

    /// Appends a block to the last run, or as a new one.
    fn push_run(&self, runs: &mut Vec<Run>, next: Run) {
        let goes_on = |last: &&mut Run| {
            let blocks = self.shape.blocks_touched(&last.piece);
            (last.slot, last.is_new) == (next.slot, next.is_new)
                && u64::from(last.place) + blocks == u64::from(next.place)
                && last.piece.range.end == next.piece.range.start
                // What a guest does not write of a new block is read first, block by block.
                && (!next.is_new || self.covers_blocks(last) && self.covers_blocks(&next))
        };
        match runs.last_mut().filter(goes_on) {
            Some(last) => last.piece.range.end = next.piece.range.end,
            None => runs.push(next),
        }
    }
}
