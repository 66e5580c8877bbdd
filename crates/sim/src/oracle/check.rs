//! Compares found bytes with legal values, interval by interval. Between two neighbouring borders of writes,
//! every byte has the same candidates, so whole intervals compare at the speed of memory.

use super::history::EventKind;
use super::{Moment, Oracle, Write, WriteContent, WriteId, WriteOutcome};
use crate::stamp::read_stamp;
use braid_base::Bytes;
use std::fmt;
use std::ops::Range;

/// A byte with an illegal value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Place in the volume.
    pub offset: Bytes,
    /// Value found.
    pub found: u8,
    /// Number of wrong bytes from `offset` to `end`.
    pub wrong: Bytes,
    /// End of the last wrong byte with the same legal writes.
    pub end: Bytes,
    /// Legal values with their reasons.
    pub legal: Vec<(u8, String)>,
    /// Write whose stamp the found bytes carry, and the offset in the stamp.
    pub stamp: Option<(WriteId, Bytes)>,
    /// Events on the range from `offset` to `end`, one line each, in order.
    pub history: Vec<String>,
}

/// Maximum number of lines of history in a message.
const HISTORY_LINES: usize = 40;

/// An interval with the same candidates for every byte.
struct Interval<'a> {
    range: Range<usize>,
    /// Legal writes.
    writes: &'a [&'a Write],
    /// True if the content beneath the writes is legal too.
    base_is_legal: bool,
    /// True if every write in the interval was acknowledged before the moment in question.
    is_quiet: bool,
}

impl Oracle {
    /// Checks a read that began at `begun` and ends now.
    pub(super) fn check_read(&mut self, start: usize, found: &[u8], begun: Moment) -> Result<(), Mismatch> {
        if self.doubted.is_some() || begun < self.known {
            return Ok(());
        }
        let mut observed = Vec::new();
        self.check(start, found, begun, |write| write.is_before(begun), &mut observed)?;
        for part in observed {
            self.observe(part.clone(), &found[part.start - start..part.end - start]);
        }
        Ok(())
    }

    pub(super) fn check_after_crash(&self, start: usize, found: &[u8]) -> Result<(), Mismatch> {
        self.check(start, found, Moment::MAX, |write| write.is_durable, &mut Vec::new())
    }

    /// Checks `found` at `start`: writes that `counts` accepts hide earlier writes. Adds the quiet intervals
    /// with several legal values to `observed`.
    fn check(
        &self,
        start: usize,
        found: &[u8],
        begun: Moment,
        counts: impl Fn(&Write) -> bool,
        observed: &mut Vec<Range<usize>>,
    ) -> Result<(), Mismatch> {
        let whole = start..start + found.len();
        let mut legal = Vec::new();
        for_each_interval(&self.writes, whole.clone(), |range, active| {
            let newest = active.iter().map(|&at| &self.writes[at]).filter(|w| w.displaces() && counts(w));
            let newest = newest.map(|write| write.begun).max();
            legal.clear();
            let candidates = active.iter().map(|&at| &self.writes[at]);
            legal.extend(candidates.filter(|w| newest.is_none_or(|newest| !w.is_before(newest))));
            let is_quiet = active.iter().all(|&at| self.writes[at].is_before(begun));
            let interval =
                Interval { range: range.clone(), writes: &legal, base_is_legal: newest.is_none(), is_quiet };
            let part = &found[range.start - start..range.end - start];
            if self.check_interval(&interval, part)? && interval.is_quiet {
                observed.push(range);
            }
            Ok(())
        })
    }

    /// Checks one interval. True if `found` differs from some other legal value.
    fn check_interval(&self, interval: &Interval, found: &[u8]) -> Result<bool, Mismatch> {
        let range = &interval.range;
        let base = interval.base_is_legal.then(|| &self.base[range.clone()]);
        let choices = interval.writes.len() + usize::from(base.is_some());
        let mut equal = usize::from(base.is_some_and(|base| base == found));
        for write in interval.writes {
            match write.bytes(range) {
                Some(bytes) => equal += usize::from(bytes == found),
                None => equal += usize::from(is_zero(found)),
            }
        }
        if equal > 0 {
            return Ok(equal < choices);
        }
        let is_legal = |at: usize| {
            base.is_some_and(|base| base[at] == found[at])
                || interval.writes.iter().any(|write| value(write, range.start + at) == found[at])
        };
        let wrong: Vec<usize> = (0..found.len()).filter(|&at| !is_legal(at)).collect();
        if wrong.is_empty() { Ok(true) } else { Err(self.mismatch(interval, &wrong, found)) }
    }

    /// Describes the wrong bytes of an interval; `wrong` are their places within the interval.
    fn mismatch(&self, interval: &Interval, wrong: &[usize], found: &[u8]) -> Mismatch {
        let (first, last) = (wrong[0], wrong[wrong.len() - 1]);
        let offset = interval.range.start + first;
        let mut legal = Vec::new();
        if interval.base_is_legal {
            legal.push((self.base[offset], "durable, or never written".to_owned()));
        }
        legal.extend(interval.writes.iter().map(|write| (value(write, offset), write.to_string())));
        Mismatch {
            offset: Bytes::of_len(offset),
            found: found[first],
            wrong: Bytes::of_len(wrong.len()),
            end: Bytes::of_len(interval.range.start + last + 1),
            legal,
            stamp: self.stamp_in(interval.range.start, first..last + 1, found),
            history: self.history.of(&(offset..interval.range.start + last + 1)),
        }
    }

    /// The first whole word among the wrong bytes, if it carries a stamp.
    fn stamp_in(&self, start: usize, wrong: Range<usize>, found: &[u8]) -> Option<(WriteId, Bytes)> {
        let first = (start + wrong.start).next_multiple_of(8) - start;
        let word = found.get(first..first + 8).filter(|_| first + 8 <= wrong.end)?;
        let (number, offset) = read_stamp(word.try_into().ok()?, self.next_write, self.size())?;
        Some((WriteId(number), offset))
    }

    /// Counts the result of a read as written, so that the next read must find the same bytes.
    fn observe(&mut self, range: Range<usize>, found: &[u8]) {
        let overlapping =
            |write: &&Write| write.parts.iter().any(|p| p.start < range.end && range.start < p.end);
        let is_durable = self.writes.iter().filter(overlapping).all(|write| write.is_durable);
        let write = self.push(range.clone(), WriteContent::Bytes(found.into()));
        write.acknowledged = Some(write.begun);
        write.outcome = WriteOutcome::Observed;
        write.is_durable = is_durable;
        let (id, begun) = (write.id, write.begun);
        self.history.add(begun, Some(range), EventKind::Observed(id));
    }
}

/// Calls `visit` for each interval of `whole` with the indexes of the writes that matter in the interval.
/// The intervals come in order, without gaps.
pub(super) fn for_each_interval<E>(
    writes: &[Write],
    whole: Range<usize>,
    mut visit: impl FnMut(Range<usize>, &[usize]) -> Result<(), E>,
) -> Result<(), E> {
    let clip = |part: &Range<usize>| part.start.max(whole.start)..part.end.min(whole.end);
    let mut parts: Vec<(Range<usize>, usize)> = Vec::new();
    let mut borders = vec![whole.start, whole.end];
    for (at, write) in writes.iter().enumerate() {
        for part in write.parts.iter().map(clip).filter(|part| part.start < part.end) {
            borders.extend([part.start, part.end]);
            parts.push((part, at));
        }
    }
    borders.sort_unstable();
    borders.dedup();
    parts.sort_unstable_by_key(|(part, at)| (part.start, *at));
    let mut coming = parts.iter().peekable();
    let mut active: Vec<(usize, usize)> = Vec::new();
    let mut indexes = Vec::new();
    for pair in borders.windows(2) {
        active.retain(|&(end, _)| end > pair[0]);
        while let Some((part, at)) = coming.next_if(|(part, _)| part.start == pair[0]) {
            active.push((part.end, *at));
        }
        indexes.clear();
        indexes.extend(active.iter().map(|&(_, at)| at));
        visit(pair[0]..pair[1], &indexes)?;
    }
    Ok(())
}

fn value(write: &Write, offset: usize) -> u8 {
    write.bytes(&(offset..offset + 1)).map_or(0, |bytes| bytes[0])
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match (self.outcome, &self.content) {
            (WriteOutcome::Observed, _) => "read",
            (_, WriteContent::Bytes(_)) => "write",
            (_, WriteContent::Zeros) => "zeroing",
        };
        let state = match (self.outcome, self.acknowledged, self.is_durable) {
            (WriteOutcome::Failed, ..) => "failed, or unproved",
            (_, None, _) => "in flight",
            (_, Some(_), true) => "durable",
            (_, Some(_), false) => "acknowledged, not flushed",
        };
        let Range { start, end } = self.range;
        write!(f, "{verb} {} of {} bytes at {start:#x}, {state}", self.id.0, end - start)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { offset, wrong, end, found, .. } = self;
        write!(f, "{} wrong bytes from offset {:#x} to {:#x}: {found:#04x}", wrong.0, offset.0, end.0)?;
        if let Some((write, offset)) = self.stamp {
            write!(f, ", which is what write {} wrote at {:#x}", write.0, offset.0)?;
        }
        f.write_str("; legal:")?;
        for (value, reason) in &self.legal {
            write!(f, " {value:#04x} ({reason})")?;
        }
        let omitted = self.history.len().saturating_sub(HISTORY_LINES);
        if omitted > 0 {
            write!(f, "\n  … {omitted} earlier events")?;
        }
        self.history.iter().skip(omitted).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Mismatch {}
