//! Undecided ranges: dirty when a daemon or a machine stopped. The copies differ by unflushed writes alone,
//! and either is as good until a guest reads one. So a guest's request is preceded by a copy of the ranges
//! touched ([`crate::copies`]). The journal keeps calling the span dirty: the volume may lose either device.
//! Once a copy misses a write in the span, the journal calls the span behind. The rest of the span stays
//! undecided in memory.

use super::{Behind, Span};
use crate::map::ranges::Ranges;
use braid_base::{Bytes, ExtentId};
use braid_format::SpanId;
use braid_format::intent_page::Difference;
use std::ops::Range;

impl Behind {
    /// Restores a span that the journal calls dirty, with all current devices present.
    pub fn restore_undecided(&mut self, span: SpanId) {
        let undecided = Span { undecided: true, ..Span::new(Difference::Dirty, Difference::Behind) };
        self.insert_restored(span, undecided);
    }

    /// True if anything is undecided.
    #[inline]
    pub fn any_undecided(&self) -> bool {
        self.undecided.len() > 0
    }

    /// True if a part of a range is undecided.
    pub fn is_undecided(&self, range: &Range<Bytes>) -> bool {
        self.any_undecided() && self.undecided.intersects(range)
    }

    /// True if all of a range is undecided.
    pub fn is_all_undecided(&self, range: &Range<Bytes>) -> bool {
        self.any_undecided() && self.undecided.missing(range) == Bytes::ZERO
    }

    /// First undecided part of a range.
    pub fn next_undecided(&self, range: &Range<Bytes>) -> Option<Range<Bytes>> {
        let next = self.undecided.next(range.start).filter(|next| next.start < range.end)?;
        Some(next.start..next.end.min(range.end))
    }

    /// End of the first run of a range, either undecided or not.
    pub fn alike_undecided(&self, range: &Range<Bytes>) -> Bytes {
        match self.undecided.next(range.start).filter(|next| next.start < range.end) {
            Some(next) if next.start <= range.start => next.end.min(range.end),
            Some(next) => next.start,
            None => range.end,
        }
    }

    /// True if the journal calls a span dirty although parts are undecided.
    pub fn is_span_undecided(&self, span: SpanId) -> bool {
        self.spans.get(&span).is_some_and(|s| s.undecided)
    }

    /// True if any such span exists.
    pub fn any_span_undecided(&self) -> bool {
        self.any_undecided() && self.spans.values().any(|s| s.undecided)
    }

    /// Number of stale bytes, without undecided bytes.
    pub fn lacking(&self) -> Bytes {
        self.ranges.total() - self.undecided.total()
    }

    /// True if the second copy of an extent lacks flushed bytes, or bytes read by a guest.
    pub fn lacks_flushed(&self, extent: ExtentId) -> bool {
        self.is_behind(extent) && self.lacks_flushed_in(&self.shape.bytes_of(extent))
    }

    /// As [`Behind::lacks_flushed`], for the extent without a range.
    pub fn lacks_flushed_beside(&self, extent: ExtentId, range: &Range<Bytes>) -> bool {
        let bytes = self.shape.bytes_of(extent);
        self.is_behind(extent)
            && (self.lacks_flushed_in(&(bytes.start..range.start))
                || self.lacks_flushed_in(&(range.end..bytes.end)))
    }

    fn lacks_flushed_in(&self, bytes: &Range<Bytes>) -> bool {
        // `begun` and `undecided` are two parts of `ranges`.
        self.ranges.missing(bytes) + (bytes.end - bytes.start)
            < self.begun.missing(bytes) + self.undecided.missing(bytes)
    }

    /// Makes undecided parts of a range of one span stale: the home's bytes count.
    pub fn end_undecided_in(&mut self, span: SpanId, range: &Range<Bytes>) {
        while let Some(next) = self.undecided.next(range.start).filter(|next| next.start < range.end) {
            self.mark_behind(span, next.start.max(range.start)..next.end.min(range.end));
        }
    }

    /// Ends the undecided state of a range covered by a write that a copy lacks. The rest of the blocks stays
    /// undecided.
    pub fn decided_by_write(&mut self, range: Range<Bytes>) {
        self.undecided.remove(range);
    }

    /// Makes the ranges of deferred writes in flight in an extent stale like any other.
    pub fn end_deferred_in(&mut self, extent: ExtentId) {
        let (span, bytes) = (self.shape.span_of(extent), self.shape.bytes_of(extent));
        while let Some(next) = self.begun.next(bytes.start).filter(|next| next.start < bytes.end) {
            self.mark_behind(span, next.start..next.end.min(bytes.end));
        }
    }

    /// Makes all undecided ranges stale.
    pub fn end_undecided(&mut self) {
        self.undecided = Ranges::default();
        for (&span, entry) in self.spans.iter_mut().filter(|(_, entry)| entry.undecided) {
            entry.undecided = false;
            self.wanted.insert(span);
        }
    }
}
