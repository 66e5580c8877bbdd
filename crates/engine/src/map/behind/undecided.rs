//! What was dirty when a daemon or a machine stopped: the copies differ by nothing that was flushed, and
//! either is as good, until a guest reads one. So a guest's request is preceded by a copy of what it touches
//! ([`crate::copies`]), and the journal goes on calling the span dirty: the volume may lose either device.
//! Once a copy misses a write somewhere in a span, the journal calls the span behind; the rest of the span
//! stays undecided in memory.

use super::{Behind, Span};
use crate::map::ranges::Ranges;
use braid_base::{Bytes, ExtentId};
use braid_format::SpanId;
use braid_format::intent_page::Difference;
use std::ops::Range;

impl Behind {
    /// What recovery found in the journal: the span was dirty, and all current devices are there.
    pub fn restore_undecided(&mut self, span: SpanId) {
        let undecided = Span { undecided: true, ..Span::new(Difference::Dirty, Difference::Behind) };
        self.insert_restored(span, undecided);
    }

    /// Whether anything is undecided.
    #[inline]
    pub fn any_undecided(&self) -> bool {
        self.undecided.len() > 0
    }

    /// Whether some of a range is undecided.
    pub fn is_undecided(&self, range: &Range<Bytes>) -> bool {
        self.any_undecided() && self.undecided.intersects(range)
    }

    /// Whether all of a range is undecided.
    pub fn is_all_undecided(&self, range: &Range<Bytes>) -> bool {
        self.any_undecided() && self.undecided.missing(range) == Bytes::ZERO
    }

    /// The first part of a range that is undecided.
    pub fn next_undecided(&self, range: &Range<Bytes>) -> Option<Range<Bytes>> {
        let next = self.undecided.next(range.start).filter(|next| next.start < range.end)?;
        Some(next.start..next.end.min(range.end))
    }

    /// Up to where a range is undecided from its start on, or is not.
    pub fn alike_undecided(&self, range: &Range<Bytes>) -> Bytes {
        match self.undecided.next(range.start).filter(|next| next.start < range.end) {
            Some(next) if next.start <= range.start => next.end.min(range.end),
            Some(next) => next.start,
            None => range.end,
        }
    }

    /// Whether the journal calls a span dirty of which something is undecided.
    pub fn is_span_undecided(&self, span: SpanId) -> bool {
        self.spans.get(&span).is_some_and(|s| s.undecided)
    }

    /// Whether there are such spans.
    pub fn any_span_undecided(&self) -> bool {
        self.any_undecided() && self.spans.values().any(|s| s.undecided)
    }

    /// How much a copy lacks in all, without what is undecided.
    pub fn lacking(&self) -> Bytes {
        self.ranges.total() - self.undecided.total()
    }

    /// Whether the second copy of an extent lacks what was flushed, or what a guest has read.
    pub fn lacks_flushed(&self, extent: ExtentId) -> bool {
        self.is_behind(extent) && self.lacks_flushed_in(&self.shape.bytes_of(extent))
    }

    /// The same of what lies beside a range of an extent.
    pub fn lacks_flushed_beside(&self, extent: ExtentId, range: &Range<Bytes>) -> bool {
        let bytes = self.shape.bytes_of(extent);
        self.is_behind(extent)
            && (self.lacks_flushed_in(&(bytes.start..range.start))
                || self.lacks_flushed_in(&(range.end..bytes.end)))
    }

    fn lacks_flushed_in(&self, bytes: &Range<Bytes>) -> bool {
        // What has begun and what is undecided are two parts of what is behind.
        self.ranges.missing(bytes) + (bytes.end - bytes.start)
            < self.begun.missing(bytes) + self.undecided.missing(bytes)
    }

    /// What is undecided in a range of one span is behind from now on: the first copy counts.
    pub fn end_undecided_in(&mut self, span: SpanId, range: &Range<Bytes>) {
        while let Some(next) = self.undecided.next(range.start).filter(|next| next.start < range.end) {
            self.mark_behind(span, next.start.max(range.start)..next.end.min(range.end));
        }
    }

    /// A write that a copy lacks covers this: the rest of its blocks is undecided as before.
    pub fn decided_by_write(&mut self, range: Range<Bytes>) {
        self.undecided.remove(range);
    }

    /// What deferred writes under way are to bring to an extent is behind like anything else.
    pub fn end_deferred_in(&mut self, extent: ExtentId) {
        let (span, bytes) = (self.shape.span_of(extent), self.shape.bytes_of(extent));
        while let Some(next) = self.begun.next(bytes.start).filter(|next| next.start < bytes.end) {
            self.mark_behind(span, next.start..next.end.min(bytes.end));
        }
    }

    /// What is undecided anywhere is behind from now on.
    pub fn end_undecided(&mut self) {
        self.undecided = Ranges::default();
        for (&span, entry) in self.spans.iter_mut().filter(|(_, entry)| entry.undecided) {
            entry.undecided = false;
            self.wanted.push(span);
        }
    }
}
