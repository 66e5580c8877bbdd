//! Loads that change in the middle: what happens from the first measured request on.

use super::cell::Change;
use super::write::{Draft, EXTENT};
use crate::Stage;
use braid_base::{Bytes, KIB, Nanos, Op, Request, Rng};

/// A load after its change was written into it.
pub(super) struct Changed {
    pub drafts: Vec<Draft>,
    /// Clients of a closed loop.
    pub stages: Vec<Stage>,
    /// Where requests end.
    pub span: Bytes,
}

/// How much more load there is after a surge.
const SURGE: usize = 10;
/// How much less load there is at night.
const NIGHT: usize = 5;
/// Requests of a scan, and of a backup.
const SCAN: Bytes = Bytes(128 << 10);
const BACKUP: Bytes = Bytes(256 << 10);
/// Requests of the load for each request of a scan.
const BESIDE_SCAN: usize = 2;
/// A new programme's data, as a part of what is there.
const NEW: u64 = 4;

/// Writes a change into a load of `warm` and more requests over `span`, of `clients` in a closed loop.
/// `other` is the same load with other popular places.
pub(super) fn changed(
    change: Change,
    mut drafts: Vec<Draft>,
    other: impl FnOnce() -> crate::Result<Vec<Draft>>,
    (warm, span, clients): (usize, Bytes, usize),
    rng: &mut Rng,
) -> crate::Result<Changed> {
    let warm = warm.min(drafts.len());
    let steady = Stage { first: 0, clients };
    let mut stages = vec![steady];
    let mut ends = span;
    match change {
        Change::None => {}
        Change::Surge => {
            drafts[warm..].iter_mut().for_each(|draft| draft.gap /= SURGE as f64);
            stages.push(Stage { first: warm, clients: clients * SURGE });
        }
        Change::Moved => {
            let measured = drafts.len() - warm;
            drafts.truncate(warm);
            drafts.extend(other()?.into_iter().take(measured));
        }
        Change::Scan => {
            let scan = in_order(Op::Read, Bytes::ZERO..span, SCAN);
            let measured = drafts.split_off(warm);
            drafts.extend(beside(measured, scan, BESIDE_SCAN));
        }
        Change::Backup => {
            let backup: Vec<Request> = in_order(Op::Read, Bytes::ZERO..span, BACKUP).collect();
            let mut night = drafts.split_off(warm);
            let day = night.split_off(night.len() / 2);
            night.iter_mut().for_each(|draft| draft.gap *= NIGHT as f64);
            drafts.extend(beside(night, backup.into_iter(), 1));
            stages.push(Stage { first: warm, clients: (clients / NIGHT).max(2) });
            stages.push(Stage { first: drafts.len(), clients });
            drafts.extend(day);
        }
        Change::Fill => {
            let new = (span / (EXTENT * NEW)).max(1);
            ends = span.align_up(EXTENT) + EXTENT * new;
            let area = span.align_up(EXTENT)..ends;
            let mut measured = drafts.split_off(warm);
            let later = measured.split_off(measured.len() / 2);
            drafts.extend(beside(measured, in_order(Op::Write, area.clone(), SCAN), BESIDE_SCAN));
            let blocks = (area.end - area.start) / BLOCK;
            let reads = std::iter::repeat_with(|| {
                let op = if rng.chance(0.7) { Op::Read } else { Op::Write };
                Request { op, offset: area.start + BLOCK * rng.below(blocks), len: BLOCK }
            });
            drafts.extend(beside(later, reads, BESIDE_SCAN));
        }
    }
    Ok(Changed { drafts, stages, span: ends })
}

const BLOCK: Bytes = Bytes(4 * KIB.0);

/// Requests for a range, one after the other.
fn in_order(op: Op, range: std::ops::Range<Bytes>, size: Bytes) -> impl Iterator<Item = Request> {
    let count = (range.end - range.start).0.div_ceil(size.0);
    (0..count).map(move |place| {
        let offset = range.start + size * place;
        Request { op, offset, len: size.min(range.end - offset) }
    })
}

/// A load with another beside it: after each `every` of its own requests one of the other, half-way to the
/// next.
fn beside(load: Vec<Draft>, mut other: impl Iterator<Item = Request>, every: usize) -> Vec<Draft> {
    let mut all = Vec::with_capacity(load.len() * 2);
    for (place, draft) in load.into_iter().enumerate() {
        let more = (place % every == every - 1).then(|| other.next()).flatten();
        match more {
            None => all.push(draft),
            Some(request) => {
                let half = draft.gap / 2.0;
                all.push(Draft { gap: half, think: Nanos::ZERO, request });
                all.push(Draft { gap: half, ..draft });
            }
        }
    }
    all
}
