//! Deferred second copies: stale by the policy's wish, until a resync that the policy asks for.

use super::{Behind, MOST_RANGES};
use crate::map::ranges::Ranges;
use braid_base::Bytes;
use braid_format::SpanId;
use braid_format::intent_page::Difference;
use std::ops::Range;

impl Behind {
    /// Marks a range of a span as stale because the policy defers the second copy. Returns false, without a
    /// change, if more than `most` bytes would be stale (not counting undecided bytes), or if the limit of
    /// ranges is reached.
    pub fn defer(&mut self, span: SpanId, range: Range<Bytes>, most: Bytes) -> bool {
        if !self.may_defer(&range, most) {
            return false;
        }
        self.begun.remove(range.clone());
        self.undecided.remove(range.clone());
        self.put_deferred(span, range);
        true
    }

    /// Begins a deferred write, as [`Behind::defer`]. Until [`Behind::end_deferred_write`], the new bytes on
    /// the home do not count. Undecided blocks beside the write stay undecided
    /// ([`Behind::decided_by_write`]).
    pub fn begin_deferred_write(&mut self, span: SpanId, range: Range<Bytes>, most: Bytes) -> bool {
        if !self.may_defer(&range, most) {
            return false;
        }
        self.ranges.gaps(&range).for_each(|gap| self.begun.insert(gap));
        self.deferring.push(range.clone());
        self.put_deferred(span, range);
        true
    }

    /// Ends a deferred write: its range is stale like any other. Overlapping parts of other deferred writes
    /// in flight become stale likewise.
    pub fn end_deferred_write(&mut self, range: Range<Bytes>) {
        self.stop_deferring(&range);
        self.begun.remove(range);
    }

    /// Cancels a deferred write before any copy was written: no copy is stale because of the write. Ranges of
    /// other deferred writes in flight stay stale.
    pub fn cancel_deferred_write(&mut self, span: SpanId, range: &Range<Bytes>) {
        self.stop_deferring(range);
        let mut others = Ranges::default();
        self.deferring.iter().for_each(|other| others.insert(other.clone()));
        let mut at = range.start;
        while let Some(begun) = self.begun.next(at).filter(|begun| begun.start < range.end) {
            at = begun.end.min(range.end);
            for only in others.gaps(&(begun.start..at)) {
                self.begun.remove(only.clone());
                self.ranges.remove(only);
            }
        }
        self.note_caught_up(span);
    }

    fn stop_deferring(&mut self, range: &Range<Bytes>) {
        if let Some(at) = self.deferring.iter().position(|other| other == range) {
            self.deferring.swap_remove(at);
        }
    }

    fn may_defer(&self, range: &Range<Bytes>, most: Bytes) -> bool {
        let is_remembered = self.ranges.len() < MOST_RANGES || self.ranges.intersects(range);
        is_remembered && self.lacking() + self.ranges.missing(range) <= most
    }

    fn put_deferred(&mut self, span: SpanId, range: Range<Bytes>) {
        let deferred = self.spans.get(&span).is_none_or(|s| s.difference != Difference::Behind || s.deferred);
        self.put_behind(span, range);
        if let Some(entry) = self.spans.get_mut(&span) {
            entry.deferred = deferred;
        }
    }

    /// Ends all deferring: deferred ranges are resynchronised like any other from now on.
    pub fn end_deferring(&mut self) {
        self.spans.values_mut().for_each(|span| span.deferred = false);
    }
}
