//! Spans that were dirty when a daemon or a machine stopped: their copies differ by nothing that was flushed, and either is as good, until a
//! guest reads one. So a guest's request is preceded by a copy of what it touches ([`crate::copies`]), and the journal goes on calling the
//! span dirty: the volume may lose either device. A write that a copy misses makes such a span one that is behind like any other.

use super::{Behind, Recorded, Span};
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

    /// Whether any span is undecided.
    #[inline]
    pub fn any_undecided(&self) -> bool {
        self.undecided > 0
    }

    /// Whether a span is undecided.
    pub fn is_span_undecided(&self, span: SpanId) -> bool {
        self.any_undecided() && self.spans.get(&span).is_some_and(|s| s.undecided)
    }

    /// Whether some of a range of one span is undecided.
    pub fn is_undecided(&self, span: SpanId, range: &Range<Bytes>) -> bool {
        self.is_span_undecided(span) && self.ranges.intersects(range)
    }

    /// Whether all of a range of one span is undecided.
    pub fn is_all_undecided(&self, span: SpanId, range: &Range<Bytes>) -> bool {
        self.is_span_undecided(span) && self.ranges.missing(range) == Bytes::ZERO
    }

    /// Whether the second copy of an extent lacks what was flushed, or what a guest has read.
    pub fn lacks_flushed(&self, extent: ExtentId) -> bool {
        self.lacks_completed(extent) && !self.is_span_undecided(self.shape.span_of(extent))
    }

    /// From now on what is undecided is behind: the first copies count.
    pub fn end_undecided(&mut self) {
        for (&span, entry) in self.spans.iter_mut().filter(|(_, entry)| entry.undecided) {
            entry.undecided = false;
            debug_assert!(entry.recorded != Recorded::Is(Difference::Behind));
            self.wanted.push(span);
        }
        self.undecided = 0;
    }
}
