//! Drops irrelevant writes to keep a long simulation small and fast.

use super::check::for_each_interval;
use super::{Oracle, Write};
use std::convert::Infallible;
use std::ops::Range;
use std::rc::Rc;

impl Oracle {
    /// Drops writes that come before a durable write, and moves a durable write into the base if nothing
    /// overlaps the write in time. Changes no answer: a write stays as long as a read in flight may find the
    /// older content.
    pub(super) fn settle(&mut self) {
        let horizon = self.reads.iter().map(|(_, begun)| *begun).min().unwrap_or(self.now + 1);
        let Oracle { base, writes, .. } = self;
        let mut kept: Vec<Vec<Range<usize>>> = vec![Vec::new(); writes.len()];
        let base = Rc::make_mut(base);
        let visited = for_each_interval(writes, 0..base.len(), |range, active| {
            let newest = newest_durable(writes, active, horizon);
            let matters = |&at: &usize| newest.is_none_or(|newest| !writes[at].is_before(newest.begun));
            let can_settle = newest.is_some_and(|newest| {
                let later = |other: &Write| newest.is_before(other.begun) || other.id == newest.id;
                active.iter().filter(|&at| matters(at)).all(|&at| later(&writes[at]))
            });
            for &at in active.iter().filter(|&at| matters(at)) {
                if can_settle && newest.is_some_and(|newest| newest.id == writes[at].id) {
                    settle_into(base, &writes[at], &range);
                } else {
                    push(&mut kept[at], range.clone());
                }
            }
            Ok::<(), Infallible>(())
        });
        let Ok(()) = visited;
        for (write, parts) in writes.iter_mut().zip(kept) {
            write.parts = parts;
        }
        writes.retain(|write| !write.parts.is_empty() || write.acknowledged.is_none());
    }
}

/// Returns the durable write that began last, among the writes that every read in flight must see.
fn newest_durable<'a>(writes: &'a [Write], active: &[usize], horizon: u64) -> Option<&'a Write> {
    let durable = active.iter().map(|&at| &writes[at]);
    durable.filter(|w| w.is_durable && w.displaces() && w.is_before(horizon)).max_by_key(|w| w.begun)
}

fn settle_into(base: &mut [u8], write: &Write, part: &Range<usize>) {
    match write.bytes(part) {
        Some(bytes) => base[part.clone()].copy_from_slice(bytes),
        None => base[part.clone()].fill(0),
    }
}

/// Appends a part, joining neighbours.
fn push(parts: &mut Vec<Range<usize>>, part: Range<usize>) {
    match parts.last_mut() {
        Some(last) if last.end == part.start => last.end = part.end,
        _ => parts.push(part),
    }
}
