//! Keeps [`crate::map::Behind`] in step with [`Lacks`]: ranges that the image lacks are behind, and no
//! others. No range of [`Lacks`] is ever missing in [`crate::map::Behind`].

use super::{Epochs, Lacks, next_within};
use crate::Result;
use crate::core::{Extents, Store, Upkeep};
use crate::map::{Behind, IntendedWrite};
use crate::shape::Piece;
use braid_base::Bytes;
use braid_format::SpanId;
use braid_runtime::{Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Records in the journal that the image lacks a piece, before a guest changes the piece by other means
    /// than a write to its copies. The change ends when the intent is dropped.
    pub async fn begin_image_change(&self, piece: &Piece) -> Result<Option<IntendedWrite<'_, R>>> {
        if self.active_epochs().is_none() {
            return Ok(None);
        }
        let (start, block) = (self.store.shape.bytes_of(piece.extent).start, self.store.shape.block_size);
        let range = start + piece.range.start.align_down(block)..start + piece.range.end.align_up(block);
        self.note_change(&range).await?;
        let span = self.store.shape.span_of(piece.extent);
        self.put_behind(span, range);
        self.durable.record_behind(span).await?;
        self.durable.intend(span).await.map(Some)
    }

    /// As [`Extents::put_behind`], for a range of any length.
    pub(super) fn put_gap_behind(&self, range: Range<Bytes>) {
        let mut at = range.start;
        while at < range.end {
            let span = self.store.shape.span_of(self.store.shape.extent_of(at));
            let end = self.store.shape.bytes_of_span(span).end.min(range.end);
            self.put_behind(span, at..end);
            at = end;
        }
    }

    /// Marks a range of a span as missing in the image. An epoch will bring the range, or a resync if epochs
    /// have ended.
    pub fn put_behind(&self, span: SpanId, range: Range<Bytes>) {
        self.put(span, range, Behind::defer);
    }

    /// As [`Extents::put_behind`], for a write to the home that is about to begin and ends with
    /// [`Behind::end_deferred_write`].
    pub fn begin_behind(&self, span: SpanId, range: Range<Bytes>) {
        self.put(span, range, Behind::begin_deferred_write);
    }

    fn put(
        &self,
        span: SpanId,
        range: Range<Bytes>,
        defer: impl FnOnce(&mut Behind, SpanId, Range<Bytes>, Bytes) -> bool,
    ) {
        let is_kept = self.active_epochs().is_some();
        let behind = &mut self.store.state.borrow_mut().behind;
        behind.decided_by_write(range.clone());
        if !is_kept || !defer(behind, span, range.clone(), Bytes(u64::MAX)) {
            behind.mark_behind(span, range);
        }
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Drops parts of some ranges from `Behind` that the image does not lack any more.
    pub(super) fn settle_image(&self, epochs: &Epochs, within: impl Iterator<Item = Range<Bytes>>) {
        let lacks = epochs.lacks.borrow();
        let mut all_alike = true;
        within.for_each(|within| all_alike &= self.store.settle_within(epochs, &lacks, &within));
        if !all_alike {
            // A commit first makes the present places durable; then the whole image is settled again.
            epochs.unsettled.set(true);
            self.moves.resynced.set(true);
        }
    }
}

impl<D: Device> Store<D> {
    /// Returns false if parts of the range stay behind, because a crash would make these parts stale again.
    fn settle_within(&self, epochs: &Epochs, lacks: &Lacks, within: &Range<Bytes>) -> bool {
        let mut all_alike = true;
        let mut at = within.start;
        loop {
            let next = next_within(self.state.borrow().behind.ranges(), &(at..within.end));
            let Some(range) = next else { return all_alike };
            let extent = self.shape.extent_of(range.start);
            let range = range.start..range.end.min(self.shape.bytes_of(extent).end);
            at = range.end;
            if !lacks.any(&range) {
                all_alike &= self.settle_alike(epochs, range);
            } else {
                let step = self.shape.block_size;
                for start in (range.start.0..range.end.0).step_by(step.0 as usize).map(Bytes) {
                    let block = start..(start + step).min(range.end);
                    if !lacks.any(&block) {
                        all_alike &= self.settle_alike(epochs, block);
                    }
                }
            }
        }
    }

    /// Drops a range of one extent from `Behind`: the image equals the home. Returns false if the range stays
    /// behind, because a crash would bring back an older place, or because the home lies in the image.
    fn settle_alike(&self, epochs: &Epochs, range: Range<Bytes>) -> bool {
        let extent = self.shape.extent_of(range.start);
        let start = self.shape.bytes_of(extent).start;
        let piece = Piece { extent, range: range.start - start..range.end - start };
        if self.lies_in_image(epochs, self.state.borrow().map.get(extent).home) {
            // The image alone has the extent: its bytes at the end of an epoch are unknown.
            epochs.is_home.set(true);
            return false;
        }
        if self.is_older_needed(extent, &piece.range) {
            return false;
        }
        let span = self.shape.span_of(extent);
        let mut state = self.state.borrow_mut();
        let doubts = state.behind.doubts(span);
        state.behind.copied(span, range, doubts);
        true
    }
}
