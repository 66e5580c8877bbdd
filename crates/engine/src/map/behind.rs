//! Spans with copies that may differ, and the journal's state of each.
//!
//! A span is a run of extents. Before the first write to a clean span, the journal records that the copies
//! may differ ([`Difference::Dirty`]). The record stays while guests go on writing in the span, so a busy
//! mirror pays once. If a copy missed a write, the span is [`Difference::Behind`]. The stale copy is the copy
//! on a device that is not current, else the second copy.
//!
//! The journal names whole spans; memory knows the stale ranges. So a resync copies stale ranges alone, and
//! an extent without stale ranges is read from both copies again. A crash forgets the ranges: all of a span
//! that was behind is stale, and all of a span that was dirty is [`undecided`].
//!
//! ```text
//! clean ── first write, once the journal has it ──> dirty ── a copy missed a write ──> behind
//!   ^                                                 │  ^                                │
//!   └── idle, and both copies were flushed since ─────┘  └──────── resynchronised ────────┘
//! ```

mod deferred;
mod undecided;

use super::ranges::Ranges;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use braid_base::{Bytes, ExtentId, Nanos};
use braid_format::SpanId;
use braid_format::intent_page::Difference;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Limit of remembered ranges, about 40 bytes of memory each. Beyond the limit, a new range is widened to its
/// whole span, unless a remembered range overlaps.
const MOST_RANGES: usize = 1 << 20;

/// Spans that are not clean.
pub(crate) struct Behind {
    shape: Shape,
    spans: HashMap<SpanId, Span, FixedState>,
    /// Number of spans with [`Difference::Behind`].
    behind: usize,
    /// Stale ranges, as bytes of the volume.
    ranges: Ranges,
    /// Part of `ranges`: stale because of deferred writes in flight alone.
    begun: Ranges,
    /// Part of `ranges`: undecided.
    undecided: Ranges,
    /// Ranges of deferred writes in flight: at most as many as guests have requests.
    deferring: Vec<Range<Bytes>>,
    /// Spans with a state to be recorded in a separate batch, ahead of a write. A set: the return of a device
    /// without content asks once for each extent.
    wanted: BTreeSet<SpanId>,
}

#[derive(Clone, Copy)]
struct Span {
    /// State in the journal, and actual state.
    recorded: Recorded,
    difference: Difference,
    /// True while a separate batch in flight names the span.
    recording: bool,
    /// True if all stale ranges of the span are undecided: the journal keeps calling the span dirty.
    undecided: bool,
    /// True if the policy deferred the second copy, and asks for the resync itself.
    deferred: bool,
    /// Number of writes in flight.
    writes: u32,
    /// Time of the last completed write.
    written: Nanos,
    /// How often an extent became stale because a device's content was in doubt. A copy begun before the last
    /// doubt does not count.
    doubts: u32,
    /// How often the span became [`Difference::Behind`].
    lapses: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// Durably recorded.
    Is(Difference),
    /// Recorded, but the running commit removes the record: a new write must wait for the end of the commit.
    Clearing(Difference),
}

/// Step required before a write may change a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// No step: the write has begun, and ends by [`Behind::end_write`].
    Begun,
    /// Have the journal record the wanted states, then ask again.
    Record,
    /// Wait for the running commit, then ask again.
    Wait,
}

impl Span {
    fn new(recorded: Difference, difference: Difference) -> Span {
        Span {
            recorded: Recorded::Is(recorded),
            difference,
            recording: false,
            undecided: false,
            deferred: false,
            writes: 0,
            written: Nanos::ZERO,
            doubts: 0,
            lapses: 0,
        }
    }

    /// True if the span is dirty, recorded, and without writes in flight.
    fn is_idle(&self) -> bool {
        let known = matches!(self.recorded, Recorded::Is(Difference::Dirty | Difference::Behind));
        let is_quiet = self.writes == 0 || planted(Bug::ClearedWhileWriting);
        is_quiet && self.difference == Difference::Dirty && known
    }
}

impl Behind {
    pub fn new(shape: Shape) -> Behind {
        Behind {
            shape,
            spans: HashMap::default(),
            behind: 0,
            ranges: Ranges::default(),
            begun: Ranges::default(),
            undecided: Ranges::default(),
            deferring: Vec::new(),
            wanted: BTreeSet::new(),
        }
    }

    /// True if any span is behind.
    #[inline]
    pub fn any_behind(&self) -> bool {
        self.behind > 0
    }

    /// True if a copy of any extent in this span may lack a write.
    pub fn is_any_behind(&self, span: SpanId) -> bool {
        self.behind > 0 && self.spans.get(&span).is_some_and(|s| s.difference == Difference::Behind)
    }

    /// First stale range at or after `from`. May extend over several spans.
    pub fn next(&self, from: Bytes) -> Option<Range<Bytes>> {
        self.ranges.next(from)
    }

    /// Stale ranges.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Number of stale bytes.
    pub fn total(&self) -> Bytes {
        self.ranges.total()
    }

    /// Number of stale bytes in spans deferred by the policy.
    pub fn deferred(&self) -> Bytes {
        let deferred = |(span, s): (&SpanId, &Span)| {
            let range = self.shape.bytes_of_span(*span);
            let is_deferred = s.deferred && s.difference == Difference::Behind;
            is_deferred.then(|| range.end - range.start - self.ranges.missing(&range))
        };
        self.spans.iter().filter_map(deferred).fold(Bytes::ZERO, |sum, bytes| sum + bytes)
    }

    /// True if a copy of an extent may lack a write.
    #[inline]
    pub fn is_behind(&self, extent: ExtentId) -> bool {
        self.behind > 0 && self.ranges.intersects(&self.shape.bytes_of(extent))
    }

    /// True if a copy of an extent may lack more than deferred writes in flight: bytes that a guest may count
    /// on, or has read. Readers of a deferred range wait for the end of the write ([`crate::request`]), so
    /// until then the copy still serves reads.
    pub fn lacks_completed(&self, extent: ExtentId) -> bool {
        let bytes = self.shape.bytes_of(extent);
        // `begun` is a part of `ranges`.
        self.is_behind(extent) && self.ranges.missing(&bytes) < self.begun.missing(&bytes)
    }

    /// Number of spans with copies that may differ, and number of spans that are behind.
    pub fn len(&self) -> (usize, usize) {
        (self.spans.len(), self.behind)
    }

    /// Spans that are behind and not deferred by the policy, in order.
    pub fn behind_spans(&self) -> Vec<SpanId> {
        let behind = self.spans.iter().filter(|(_, s)| s.difference == Difference::Behind && !s.deferred);
        let mut all: Vec<SpanId> = behind.map(|(&span, _)| span).collect();
        all.sort_unstable();
        all
    }

    /// Spans with copies that may differ, in order.
    pub fn all(&self) -> Vec<SpanId> {
        let mut all: Vec<SpanId> = self.spans.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// True if the copies of a span may differ.
    pub fn is_known(&self, span: SpanId) -> bool {
        self.spans.contains_key(&span)
    }

    /// Restores a span from the journal at recovery. `recorded` is the journal's state, `difference` the
    /// state to assume now. If the two differ, the journal must record `difference`.
    pub fn restore(&mut self, span: SpanId, recorded: Difference, difference: Difference) {
        self.insert_restored(span, Span::new(recorded, difference));
        if recorded != difference {
            self.wanted.insert(span);
        }
    }

    fn insert_restored(&mut self, span: SpanId, restored: Span) {
        let before = self.spans.insert(span, restored);
        self.behind -= usize::from(before.is_some_and(|s| s.difference == Difference::Behind));
        if restored.difference == Difference::Behind {
            self.behind += 1;
            let whole = self.shape.bytes_of_span(span);
            let first = whole.start..(whole.start + self.shape.extent_size).min(whole.end);
            let range = if planted(Bug::FirstExtentBehind) { first } else { whole };
            if restored.undecided {
                self.undecided.insert(range.clone());
            }
            self.ranges.insert(range);
        }
    }

    /// Begins a guest write to both copies of an extent in this span. The write has begun only if
    /// [`Intent::Begun`] is returned.
    pub fn begin_write(&mut self, span: SpanId) -> Intent {
        let entry = self.spans.entry(span).or_insert(Span::new(Difference::None, Difference::None));
        match entry.recorded {
            Recorded::Clearing(_) => Intent::Wait,
            Recorded::Is(Difference::None) => {
                if entry.difference == Difference::None {
                    entry.difference = Difference::Dirty;
                }
                self.wanted.insert(span);
                Intent::Record
            }
            Recorded::Is(_) => {
                entry.writes += 1;
                Intent::Begun
            }
        }
    }

    /// Begins a write without a record in the journal: a planted bug. Panics if the span is unknown.
    pub fn begin_unrecorded(&mut self, span: SpanId) {
        self.spans.get_mut(&span).expect("a write has asked for it").writes += 1;
    }

    /// Ends a write. `missed` is the range that a copy lacks. The caller must record the range in the journal
    /// before the guest hears of success. Undecided blocks beside the write stay undecided
    /// ([`Behind::decided_by_write`]).
    pub fn end_write(&mut self, span: SpanId, missed: Option<Range<Bytes>>, now: Nanos) {
        let entry = self.spans.get_mut(&span).expect("a write that ends in a span has begun there");
        entry.writes -= 1;
        entry.written = now;
        if let Some(range) = missed {
            self.begun.remove(range.clone());
            self.put_behind(span, range);
        }
    }

    /// Marks an extent as stale, because the content of a copy is in doubt.
    pub fn doubt_extent(&mut self, extent: ExtentId) {
        let span = self.shape.span_of(extent);
        self.mark_behind(span, self.shape.bytes_of(extent));
        if let Some(entry) = self.spans.get_mut(&span) {
            entry.doubts += 1;
        }
    }

    /// Marks a range of a span as stale: not read from the stale copy until a resync.
    pub fn mark_behind(&mut self, span: SpanId, range: Range<Bytes>) {
        self.begun.remove(range.clone());
        self.undecided.remove(range.clone());
        self.put_behind(span, range);
    }

    fn put_behind(&mut self, span: SpanId, range: Range<Bytes>) {
        let remembered = self.ranges.len() < MOST_RANGES || self.ranges.intersects(&range);
        let range = if remembered { range } else { self.shape.bytes_of_span(span) };
        self.ranges.insert(range);
        let entry = self.spans.entry(span).or_insert(Span::new(Difference::None, Difference::None));
        entry.deferred = false;
        entry.undecided = false;
        if entry.difference != Difference::Behind {
            entry.difference = Difference::Behind;
            entry.lapses += 1;
            self.behind += 1;
        }
        if entry.recorded != Recorded::Is(Difference::Behind) {
            self.wanted.insert(span);
        }
    }

    /// True if a span is behind and the journal does not record the state yet. False while all stale ranges
    /// are undecided.
    pub fn is_unrecorded(&self, span: SpanId) -> bool {
        let unrecorded = |s: &Span| {
            s.difference == Difference::Behind
                && !s.undecided
                && s.recorded != Recorded::Is(Difference::Behind)
        };
        self.spans.get(&span).is_some_and(unrecorded)
    }

    /// Takes the spans to record before a guest goes on, with their states. Spans being cleared by the
    /// running commit stay for later: the commit's batch must not come after the batch with the new state.
    pub fn take_wanted(&mut self) -> Vec<(SpanId, Difference)> {
        let (spans, mut taken) = (&mut self.spans, Vec::new());
        self.wanted.retain(|span| {
            let Some(entry) = spans.get_mut(span) else { return false };
            let waits = matches!(entry.recorded, Recorded::Clearing(_));
            if !waits {
                entry.recording = true;
                taken.push((*span, entry.difference));
            }
            waits
        });
        taken
    }

    /// True if the journal must record a state before a guest goes on.
    pub fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Notes the states now durable in the journal.
    pub fn recorded(&mut self, spans: &[(SpanId, Difference)]) {
        for (span, difference) in spans {
            if let Some(entry) = self.spans.get_mut(span) {
                (entry.recorded, entry.recording) = (Recorded::Is(*difference), false);
            }
        }
    }

    /// How often an extent of this span was put in doubt so far.
    pub fn doubts(&self, span: SpanId) -> u32 {
        self.spans.get(&span).map_or(0, |s| s.doubts)
    }

    /// Notes that both copies have a range again, not flushed yet. Ignored if an extent was put in doubt
    /// since `doubts` was read.
    pub fn copied(&mut self, span: SpanId, range: Range<Bytes>, doubts: u32) {
        if self.doubts(span) != doubts || !self.spans.contains_key(&span) {
            return;
        }
        self.begun.remove(range.clone());
        self.undecided.remove(range.clone());
        self.ranges.remove(range);
        self.note_caught_up(span);
    }

    /// Returns a span to dirty if no stale range is left.
    fn note_caught_up(&mut self, span: SpanId) {
        let is_behind = self.ranges.intersects(&self.shape.bytes_of_span(span));
        let entry = self.spans.get_mut(&span).filter(|entry| entry.difference == Difference::Behind);
        if let Some(entry) = entry.filter(|_| !is_behind) {
            entry.difference = Difference::Dirty;
            self.behind -= 1;
            entry.undecided = false;
        }
    }

    /// Resynchronised spans still recorded as behind, with their number of lapses. Spans deferred by the
    /// policy are left out.
    pub fn caught_up(&self) -> Vec<(SpanId, u32)> {
        let caught_up = |s: &Span| {
            let said = s.recorded == Recorded::Is(Difference::Behind);
            said && s.difference == Difference::Dirty && !s.deferred
        };
        self.spans.iter().filter(|(_, s)| caught_up(s)).map(|(&span, s)| (span, s.lapses)).collect()
    }

    /// Has the journal record spans as dirty once their resync is durable. Otherwise the resynchronised copy
    /// would be stale after a crash, and useless without the other copy. Skips spans with another lapse
    /// since.
    pub fn end_lapses(&mut self, spans: &[(SpanId, u32)]) {
        for &(span, lapses) in spans {
            let Some(entry) = self.spans.get_mut(&span) else { continue };
            let said = entry.recorded == Recorded::Is(Difference::Behind);
            if said && entry.difference == Difference::Dirty && entry.lapses == lapses {
                // Set at once: if a copy becomes stale again, the state is recorded anew.
                entry.recorded = Recorded::Is(Difference::Dirty);
                self.wanted.insert(span);
            }
        }
    }

    /// Idle spans without a write since `before`, at most `most`, the oldest first. A commit may clear these.
    pub fn idle_since(&self, before: Nanos, most: usize) -> Vec<SpanId> {
        let idle = |s: &Span| s.is_idle() && s.written <= before;
        let mut all: Vec<(Nanos, SpanId)> =
            self.spans.iter().filter(|(_, s)| idle(s)).map(|(&span, s)| (s.written, span)).collect();
        all.sort_unstable();
        all.truncate(most);
        all.into_iter().map(|(_, span)| span).collect()
    }

    /// True if no guest wrote anywhere since `before`.
    pub fn is_idle_since(&self, before: Nanos) -> bool {
        self.spans.values().all(|s| s.writes == 0 && s.written <= before)
    }

    /// Begins to clear spans: the commit flushes both copies, then removes the spans from the journal's set.
    /// Returns the spans that may be cleared: no write in flight, no stale copy, and no batch in flight that
    /// names the span. A write that comes meanwhile waits for the end of the commit.
    pub fn begin_clearing(&mut self, spans: &[SpanId]) -> Vec<SpanId> {
        let still = |span: &SpanId| {
            let entry = self.spans.get_mut(span)?;
            let Recorded::Is(known) = entry.recorded else { return None };
            let is_spoken_of = entry.recording && !planted(Bug::ClearedBesideBatch);
            let is_free = entry.is_idle() && !is_spoken_of;
            is_free.then(|| entry.recorded = Recorded::Clearing(known)).map(|()| *span)
        };
        spans.iter().filter_map(still).collect()
    }

    /// Ends the clearing of spans. If the batch is recorded, or may be, the spans are clean, except for spans
    /// that are behind now.
    pub fn end_clearing(&mut self, spans: &[SpanId], recorded: bool) {
        for span in spans {
            let Some(entry) = self.spans.get_mut(span) else { continue };
            let Recorded::Clearing(known) = entry.recorded else { continue };
            match recorded {
                true if entry.difference == Difference::Dirty => drop(self.spans.remove(span)),
                true => entry.recorded = Recorded::Is(Difference::None),
                false => entry.recorded = Recorded::Is(known),
            }
        }
    }

    /// Durable state of a span, for a checkpoint. A span being cleared still counts as recorded.
    pub fn durable(&self, span: SpanId) -> Difference {
        match self.spans.get(&span).map(|s| s.recorded) {
            None => Difference::None,
            Some(Recorded::Is(difference)) => difference,
            Some(Recorded::Clearing(difference)) => difference,
        }
    }

    /// Bytes of memory used by the set.
    pub fn memory(&self) -> usize {
        self.spans.capacity() * (size_of::<Span>() + size_of::<SpanId>() + 1)
            + self.ranges.memory()
            + self.begun.memory()
            + self.undecided.memory()
    }
}

#[cfg(test)]
mod tests;
