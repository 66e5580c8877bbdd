//! What the policy wants behind: a second copy that has writes later, by a resync that the policy asks for.

use super::{Behind, MOST_RANGES};
use crate::map::ranges::Ranges;
use braid_base::Bytes;
use braid_format::SpanId;
use braid_format::intent_page::Difference;
use std::ops::Range;

impl Behind {
    /// From now on the second copy lacks this range of a span, because the policy wants it so. False, and
    /// nothing has changed, if more than `most` would be behind then, or more ranges than are remembered.
    pub fn defer(&mut self, span: SpanId, range: Range<Bytes>, most: Bytes) -> bool {
        if !self.may_defer(&range, most) {
            return false;
        }
        self.begun.remove(range.clone());
        self.undecided.remove(range.clone());
        self.put_deferred(span, range);
        true
    }

    /// As [`Behind::defer`], for a write that is about to begin: until [`Behind::end_deferred_write`] the
    /// home holds nothing of it that counts. What is undecided beside the write stays so
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

    /// A deferred write has ended, and what it was to bring is behind like anything else. If another one is
    /// under way in the same block, so is that.
    pub fn end_deferred_write(&mut self, range: Range<Bytes>) {
        self.stop_deferring(&range);
        self.begun.remove(range);
    }

    /// A deferred write ends before it reached a copy: no copy lacks anything by that write. What other
    /// deferred writes under way put behind stays.
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

    /// What the policy wanted behind is resynchronised like anything else from now on.
    pub fn end_deferring(&mut self) {
        self.spans.values_mut().for_each(|span| span.deferred = false);
    }
}
