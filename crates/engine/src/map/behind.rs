//! The set of spans in which the copies of an extent may differ, and what the journal says of it.
//!
//! A span is a run of extents. Before the first write to a clean span, the journal says that its copies may
//! differ ([`Difference::Dirty`]); that entry stays while guests go on writing there, so a busy mirror pays
//! for it once. A copy that missed a write is [`Difference::Behind`]. Which copy that is follows from the
//! devices: the one on a device that is not current, else the second one.
//!
//! The journal speaks of whole spans. Memory knows which ranges of them lack something, so that a resync
//! copies these and no others, and an extent is read from both copies again once nothing of it is left. A
//! crash forgets that: then all of a span that was behind is behind, and all of one that was dirty is
//! [`undecided`].
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
use std::ops::Range;

/// Ranges that are remembered: beyond that all of a span is behind where anything is. Some 40 bytes of memory
/// each.
const MOST_RANGES: usize = 1 << 20;

/// The spans that are not clean.
pub(crate) struct Behind {
    shape: Shape,
    spans: HashMap<SpanId, Span, FixedState>,
    /// How many of them are behind: those in which a range is.
    behind: usize,
    /// What a copy lacks, as bytes of the volume.
    ranges: Ranges,
    /// Of that, what is behind for no other reason than deferred writes under way.
    begun: Ranges,
    /// Of that, what is undecided.
    undecided: Ranges,
    /// The ranges of deferred writes under way: at most as many as guests have requests.
    deferring: Vec<Range<Bytes>>,
    /// Spans whose state waits to be recorded in a batch of its own, ahead of a write.
    wanted: Vec<SpanId>,
    /// Spans that such a batch speaks of which is on its way.
    recording: Vec<SpanId>,
}

#[derive(Clone, Copy)]
struct Span {
    /// What the journal says, and what is true now.
    recorded: Recorded,
    difference: Difference,
    /// Whether all that is behind in it is undecided: the journal goes on calling it dirty.
    undecided: bool,
    /// Whether the policy wanted it behind, and resynchronises it when it wants to.
    deferred: bool,
    /// Writes in flight.
    writes: u32,
    /// When the last write completed.
    written: Nanos,
    /// How often an extent was put behind, because what a device holds was not known any more: what was
    /// copied before that does not count.
    doubts: u32,
    /// How often a copy came to be behind.
    lapses: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// This, durably.
    Is(Difference),
    /// This, and a commit that runs removes it: a new write must wait for the end of that commit.
    Clearing(Difference),
}

/// What a write must do before it may change a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// Nothing: it has begun, and ends by [`Behind::end_write`].
    Begun,
    /// Have the journal record what is wanted, and ask again.
    Record,
    /// Wait for the commit that runs, and ask again.
    Wait,
}

impl Span {
    fn new(recorded: Difference, difference: Difference) -> Span {
        Span {
            recorded: Recorded::Is(recorded),
            difference,
            undecided: false,
            deferred: false,
            writes: 0,
            written: Nanos::ZERO,
            doubts: 0,
            lapses: 0,
        }
    }

    /// Dirty, with nothing under way.
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
            wanted: Vec::new(),
            recording: Vec::new(),
        }
    }

    /// Whether a copy may be behind anywhere.
    #[inline]
    pub fn any_behind(&self) -> bool {
        self.behind > 0
    }

    /// Whether a copy of any extent in this span may lack a write.
    pub fn is_any_behind(&self, span: SpanId) -> bool {
        self.behind > 0 && self.spans.get(&span).is_some_and(|s| s.difference == Difference::Behind)
    }

    /// The first range from `from` on that a copy may lack. It may go on over several spans.
    pub fn next(&self, from: Bytes) -> Option<Range<Bytes>> {
        self.ranges.next(from)
    }

    /// What a copy may lack.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// How much a copy may lack in all.
    pub fn total(&self) -> Bytes {
        self.ranges.total()
    }

    /// How much of that the policy wants behind.
    pub fn deferred(&self) -> Bytes {
        let deferred = |(span, s): (&SpanId, &Span)| {
            let range = self.shape.bytes_of_span(*span);
            let is_deferred = s.deferred && s.difference == Difference::Behind;
            is_deferred.then(|| range.end - range.start - self.ranges.missing(&range))
        };
        self.spans.iter().filter_map(deferred).fold(Bytes::ZERO, |sum, bytes| sum + bytes)
    }

    /// Whether a copy of an extent may lack a write.
    #[inline]
    pub fn is_behind(&self, extent: ExtentId) -> bool {
        self.behind > 0 && self.ranges.intersects(&self.shape.bytes_of(extent))
    }

    /// Whether a copy of an extent may lack more than deferred writes that are under way: what a guest may
    /// count on, or have read. Until such a write ends, readers of its range wait for it
    /// ([`crate::request`]), so the copy that lacks no more than these still serves.
    pub fn lacks_completed(&self, extent: ExtentId) -> bool {
        let bytes = self.shape.bytes_of(extent);
        // What has begun is a part of what is behind.
        self.is_behind(extent) && self.ranges.missing(&bytes) < self.begun.missing(&bytes)
    }

    /// Spans whose copies may differ, and how many of them are behind.
    pub fn len(&self) -> (usize, usize) {
        (self.spans.len(), self.behind)
    }

    /// Spans in which a copy is behind though no policy wanted that, in order.
    pub fn behind_spans(&self) -> Vec<SpanId> {
        let behind = self.spans.iter().filter(|(_, s)| s.difference == Difference::Behind && !s.deferred);
        let mut all: Vec<SpanId> = behind.map(|(&span, _)| span).collect();
        all.sort_unstable();
        all
    }

    /// The spans whose copies may differ, in order.
    pub fn all(&self) -> Vec<SpanId> {
        let mut all: Vec<SpanId> = self.spans.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Whether the copies of a span may differ.
    pub fn is_known(&self, span: SpanId) -> bool {
        self.spans.contains_key(&span)
    }

    /// What recovery found in the journal: `difference` is what must be assumed now.
    pub fn restore(&mut self, span: SpanId, recorded: Difference, difference: Difference) {
        self.insert_restored(span, Span::new(recorded, difference));
        if recorded != difference {
            self.wanted.push(span);
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

    /// A guest is about to write to both copies of an extent in this span.
    pub fn begin_write(&mut self, span: SpanId) -> Intent {
        let entry = self.spans.entry(span).or_insert(Span::new(Difference::None, Difference::None));
        match entry.recorded {
            Recorded::Clearing(_) => Intent::Wait,
            Recorded::Is(Difference::None) => {
                if entry.difference == Difference::None {
                    entry.difference = Difference::Dirty;
                }
                if !self.wanted.contains(&span) {
                    self.wanted.push(span);
                }
                Intent::Record
            }
            Recorded::Is(_) => {
                entry.writes += 1;
                Intent::Begun
            }
        }
    }

    /// Begins a write of which the journal says nothing yet: a bug on purpose.
    pub fn begin_unrecorded(&mut self, span: SpanId) {
        self.spans.get_mut(&span).expect("a write has asked for it").writes += 1;
    }

    /// A write has ended. `missed` is what a copy lacks of it: then the caller has the journal record that
    /// before the guest hears of success. What is undecided beside the write stays so
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

    /// What a copy has of an extent is not known any more: all of it is behind from now on.
    pub fn doubt_extent(&mut self, extent: ExtentId) {
        let span = self.shape.span_of(extent);
        self.mark_behind(span, self.shape.bytes_of(extent));
        if let Some(entry) = self.spans.get_mut(&span) {
            entry.doubts += 1;
        }
    }

    /// From now on a copy lacks this range of a span, and is not read until that has been resynchronised.
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
        if entry.recorded != Recorded::Is(Difference::Behind) && !self.wanted.contains(&span) {
            self.wanted.push(span);
        }
    }

    /// Whether a copy of this span is behind, and the journal does not say so yet.
    pub fn is_unrecorded(&self, span: SpanId) -> bool {
        let unrecorded = |s: &Span| {
            s.difference == Difference::Behind
                && !s.undecided
                && s.recorded != Recorded::Is(Difference::Behind)
        };
        self.spans.get(&span).is_some_and(unrecorded)
    }

    /// Whether the journal said at the opening that a copy of this span was behind.
    pub fn was_behind(&self, span: SpanId) -> bool {
        self.spans.get(&span).is_some_and(|s| s.recorded == Recorded::Is(Difference::Behind))
    }

    /// Spans whose state the journal must say before a guest goes on, with that state. Those that the commit
    /// which runs removes stay for later: its batch must not come after theirs.
    pub fn take_wanted(&mut self) -> Vec<(SpanId, Difference)> {
        let (spans, mut taken) = (&self.spans, Vec::new());
        self.wanted.retain(|span| {
            let Some(entry) = spans.get(span) else { return false };
            let waits = matches!(entry.recorded, Recorded::Clearing(_));
            if !waits {
                taken.push((*span, entry.difference));
            }
            waits
        });
        self.recording.extend(taken.iter().map(|(span, _)| *span));
        taken
    }

    /// Whether the journal must say something before a guest goes on.
    pub fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The journal says this now.
    pub fn recorded(&mut self, spans: &[(SpanId, Difference)]) {
        for (span, difference) in spans {
            self.recording.retain(|recording| recording != span);
            if let Some(entry) = self.spans.get_mut(span) {
                entry.recorded = Recorded::Is(*difference);
            }
        }
    }

    /// How often an extent of this span was put behind as a whole so far.
    pub fn doubts(&self, span: SpanId) -> u32 {
        self.spans.get(&span).map_or(0, |s| s.doubts)
    }

    /// Both copies have a range of a span again, unless an extent was put behind since `doubts` was asked
    /// for. They are not flushed yet.
    pub fn copied(&mut self, span: SpanId, range: Range<Bytes>, doubts: u32) {
        if self.doubts(span) != doubts || !self.spans.contains_key(&span) {
            return;
        }
        self.begun.remove(range.clone());
        self.undecided.remove(range.clone());
        self.ranges.remove(range);
        self.note_caught_up(span);
    }

    /// A span is behind no more once none of its ranges is.
    fn note_caught_up(&mut self, span: SpanId) {
        let is_behind = self.ranges.intersects(&self.shape.bytes_of_span(span));
        let entry = self.spans.get_mut(&span).filter(|entry| entry.difference == Difference::Behind);
        if let Some(entry) = entry.filter(|_| !is_behind) {
            entry.difference = Difference::Dirty;
            self.behind -= 1;
            entry.undecided = false;
        }
    }

    /// Spans of which the journal says that a copy is behind, though none is any more; with how often one
    /// was.
    pub fn caught_up(&self) -> Vec<(SpanId, u32)> {
        let caught_up = |s: &Span| {
            let said = s.recorded == Recorded::Is(Difference::Behind);
            said && s.difference == Difference::Dirty && !s.deferred
        };
        self.spans.iter().filter(|(_, s)| caught_up(s)).map(|(&span, s)| (span, s.lapses)).collect()
    }

    /// What was copied to these is durable: the journal is to say that the copies differ at most by what is
    /// being written. Else a crash would leave the copy that was behind as one that cannot do without the
    /// other.
    pub fn end_lapses(&mut self, spans: &[(SpanId, u32)]) {
        for &(span, lapses) in spans {
            let Some(entry) = self.spans.get_mut(&span) else { continue };
            let said = entry.recorded == Recorded::Is(Difference::Behind);
            if said && entry.difference == Difference::Dirty && entry.lapses == lapses {
                // From now on, so that a copy that comes to be behind again is recorded anew.
                entry.recorded = Recorded::Is(Difference::Dirty);
                self.wanted.push(span);
            }
        }
    }

    /// Spans that nothing was written to since `before`, at most so many, the oldest first: a commit may call
    /// them clean.
    pub fn idle_since(&self, before: Nanos, most: usize) -> Vec<SpanId> {
        let idle = |s: &Span| s.is_idle() && s.written <= before;
        let mut all: Vec<(Nanos, SpanId)> =
            self.spans.iter().filter(|(_, s)| idle(s)).map(|(&span, s)| (s.written, span)).collect();
        all.sort_unstable();
        all.truncate(most);
        all.into_iter().map(|(_, span)| span).collect()
    }

    /// Whether no guest wrote anywhere since `before`.
    pub fn is_idle_since(&self, before: Nanos) -> bool {
        self.spans.values().all(|s| s.writes == 0 && s.written <= before)
    }

    /// A commit that begins now flushes both copies and then removes these from the journal's set. Gives
    /// those for which that is right: no write is in flight, no copy is behind, and no batch that says so is
    /// on its way. A write that comes meanwhile waits for the end of the commit.
    pub fn begin_clearing(&mut self, spans: &[SpanId]) -> Vec<SpanId> {
        let still = |span: &SpanId| {
            let entry = self.spans.get_mut(span)?;
            let Recorded::Is(known) = entry.recorded else { return None };
            let is_spoken_of = self.recording.contains(span) && !planted(Bug::ClearedBesideBatch);
            let is_free = entry.is_idle() && !is_spoken_of;
            is_free.then(|| entry.recorded = Recorded::Clearing(known)).map(|()| *span)
        };
        spans.iter().filter_map(still).collect()
    }

    /// The commit that was to remove these has ended. If the journal has its batch, or may have it, they are
    /// clean, but for those of which a copy is behind now.
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

    /// What the journal says of each span now, for a checkpoint: a span that is being cleared is still in it.
    pub fn durable(&self, span: SpanId) -> Difference {
        match self.spans.get(&span).map(|s| s.recorded) {
            None => Difference::None,
            Some(Recorded::Is(difference)) => difference,
            Some(Recorded::Clearing(difference)) => difference,
        }
    }

    /// Bytes of memory that the set takes.
    pub fn memory(&self) -> usize {
        self.spans.capacity() * (size_of::<Span>() + size_of::<SpanId>() + 1)
            + self.ranges.memory()
            + self.begun.memory()
            + self.undecided.memory()
    }
}

#[cfg(test)]
mod tests;
