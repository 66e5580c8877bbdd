//! A cell's load as a script: the same text and seed give the same entries on every machine.
//!
//! A generated closed loop is written as if each request took 4 ms: that decides only the order in which the
//! requests of its clients stand in the list. Loads over more than 1 GiB are written on their touched extents
//! alone, as traces are: a cell has some ten thousand requests, and an SSD for a tenth of what they never
//! touch would hold all that they touch.

use super::cell::{Cell, Change, Pace, Requests};
use super::change::{Changed, changed};
use super::heat::Costs;
use super::traces::{Numbered, window};
use crate::{Drive, Entry, Error, Result, Script, Stage};
use braid_base::{Bytes, GIB, Nanos, Request, Rng};
use braid_workload::{Client, Load, Step};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The unit of placement in all cells.
pub const EXTENT: Bytes = Bytes(128 << 10);

/// A request of a script whose pace is not decided yet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Draft {
    /// The time since the request before, in nanoseconds of the load's own clock.
    pub gap: f64,
    /// How long its client waits by itself.
    pub think: Nanos,
    /// What is asked for.
    pub request: Request,
}

/// A script, and how many of its entries are the warm-up.
pub struct Written {
    pub script: Script,
    pub warm: usize,
}

/// What a load is before its pace and its change.
struct Natural {
    drafts: Vec<Draft>,
    filled: Vec<Range<Bytes>>,
    span: Bytes,
}

/// A load over more than this is written on its touched extents.
const MOST_SPAN: Bytes = GIB;
/// A client that thinks longer than this would leave a cell without a load.
const MOST_THINK: Nanos = Nanos::from_secs(1);
/// How long a request takes while a closed loop is written.
const NOMINAL: Nanos = Nanos::from_millis(4);
/// Loads between which a trace's own times are kept, per cent of what the disks could serve, and the load
/// otherwise.
const KEPT: [f64; 2] = [2.0, 100.0];
const OTHERWISE: f64 = 50.0;

/// Writes the load of a cell down.
///
/// # Errors
/// A load that is none, a trace that cannot be read, or a load with next to no requests.
pub fn write(cell: &Cell, repetition: usize) -> Result<Written> {
    let seed = cell.seeds[repetition];
    let [warm, measured] = cell.lengths;
    let Natural { drafts, filled, span } = natural(cell, seed, warm + measured)?;
    if drafts.len() < FEWEST {
        return Err(Error::setup(format!(
            "cell {}: {} requests, fewer than {FEWEST}",
            cell.name,
            drafts.len()
        )));
    }
    // A load that ends early is divided as a longer one would be.
    let warm = if drafts.len() < warm + measured { drafts.len() * warm / (warm + measured) } else { warm };
    let costs = Costs::of_model(cell.hdd)?;
    let cost = costs.mean_ns(drafts[..warm].iter().map(|draft| &draft.request));
    let factor = factor(cell, &drafts[..warm], cost);
    let mut rng = Rng::new(seed ^ 0x5c71_9f00_d2a4_be01);
    let clients = match cell.pace {
        Pace::Closed { clients, .. } => clients,
        Pace::Open { .. } | Pace::Recorded => 1,
    };
    let other = || Ok(natural(cell, seed ^ 1 << 63, warm + measured)?.drafts);
    let Changed { drafts, stages, span } =
        changed(cell.change, drafts, other, (warm, span, clients), &mut rng)?;
    let (entries, drive) = match cell.pace {
        Pace::Open { .. } | Pace::Recorded => (open(&drafts, factor), Drive::Open),
        Pace::Closed { think_ms, .. } => (closed(&drafts, think_ms, &mut rng), Drive::Closed(stages)),
    };
    let script = Script { name: cell.name.clone(), entries, drive, filled, span };
    Ok(Written { script, warm })
}

/// A load with fewer requests is none.
const FEWEST: usize = 2000;

fn natural(cell: &Cell, seed: u64, count: usize) -> Result<Natural> {
    let mut natural = match &cell.requests {
        Requests::Generated { load, .. } => generated(load, seed, count)?,
        Requests::Recorded { path, first, again } => {
            let count = if *again { count / 2 } else { count };
            let (mut drafts, span) = window(path, *first, count)?;
            if *again {
                drafts.extend_from_within(..);
            }
            let all = Bytes::ZERO..span;
            Natural { drafts, filled: vec![all], span }
        }
    };
    if natural.span > MOST_SPAN || matches!(cell.requests, Requests::Recorded { .. }) {
        natural = natural.compacted();
    }
    debug_assert!(cell.change == Change::None || natural.filled.len() == 1);
    Ok(natural)
}

impl Natural {
    fn compacted(self) -> Natural {
        let numbers = Numbered::of(&self.drafts);
        let place = |draft: Draft| Some(Draft { request: numbers.place(draft.request)?, ..draft });
        let range = |range: &Range<Bytes>| numbers.bound(range.start)..numbers.bound(range.end);
        let filled = self.filled.iter().map(range).filter(|range| !range.is_empty()).collect();
        Natural { drafts: self.drafts.into_iter().filter_map(place).collect(), filled, span: numbers.span() }
    }
}

fn generated(load: &str, seed: u64, count: usize) -> Result<Natural> {
    let workload = braid_workload::parse(load, seed)?;
    let drafts = match workload.start() {
        Load::Open(arrivals) => {
            let mut last = Nanos::ZERO;
            let draft = |arrival: braid_base::Arrival| {
                let gap = arrival.at.saturating_sub(last).0 as f64;
                last = arrival.at;
                Draft { gap, think: Nanos::ZERO, request: arrival.request }
            };
            arrivals.take(count).map(draft).collect()
        }
        Load::Closed(clients) => side_by_side(clients, count),
    };
    Ok(Natural { drafts, filled: workload.filled().to_vec(), span: workload.span() })
}

/// The requests of clients in one list.
fn side_by_side(mut clients: Vec<Client>, count: usize) -> Vec<Draft> {
    let mut waiting: BinaryHeap<Reverse<(Nanos, usize)>> =
        (0..clients.len()).map(|client| Reverse((Nanos::ZERO, client))).collect();
    let (mut drafts, mut last) = (Vec::with_capacity(count), Nanos::ZERO);
    // A request is drawn when its client's turn comes, and noted when its thinking is over.
    let mut thinking: BinaryHeap<Reverse<(Nanos, usize, u64)>> = BinaryHeap::new();
    let mut drawn: Vec<Option<(Nanos, Request)>> = vec![None; clients.len()];
    while drafts.len() < count {
        let next_free = waiting.peek().map(|Reverse((at, _))| *at);
        let next_made = thinking.peek().map(|Reverse((at, ..))| *at);
        match (next_free, next_made) {
            (Some(free), made) if made.is_none_or(|made| free <= made) => {
                let Some(Reverse((at, client))) = waiting.pop() else { break };
                if let Some((think, request)) = next_request(&mut clients[client]) {
                    drawn[client] = Some((think, request));
                    thinking.push(Reverse((at + think, client, drafts.len() as u64)));
                }
            }
            (_, Some(_)) => {
                let Some(Reverse((at, client, _))) = thinking.pop() else { break };
                let Some((think, request)) = drawn[client].take() else { break };
                drafts.push(Draft { gap: at.saturating_sub(last).0 as f64, think, request });
                last = at;
                waiting.push(Reverse((at + NOMINAL, client)));
            }
            _ => break,
        }
    }
    drafts
}

/// The next request of a client, and how long the client thinks, computes and pauses before it.
fn next_request(client: &mut Client) -> Option<(Nanos, Request)> {
    let mut before = Nanos::ZERO;
    for step in client {
        match step {
            Step::Request { think, request } => return Some(((before + think).min(MOST_THINK), request)),
            Step::Operation { think, .. } | Step::Pause(think) => before += think,
            Step::Meet => {}
        }
    }
    None
}

/// What natural times are multiplied by, if a disk serves a request in `cost` nanoseconds on average.
fn factor(cell: &Cell, drafts: &[Draft], cost: f64) -> f64 {
    let gap = drafts.iter().map(|draft| draft.gap).sum::<f64>() / drafts.len() as f64;
    let own = cost / cell.disks as f64 / gap * 100.0;
    let percent = match cell.pace {
        Pace::Open { percent } => f64::from(percent),
        Pace::Recorded if (KEPT[0]..=KEPT[1]).contains(&own) => return 1.0,
        Pace::Recorded | Pace::Closed { .. } => OTHERWISE,
    };
    own / percent
}

/// Times of an open loop.
fn open(drafts: &[Draft], factor: f64) -> Vec<Entry> {
    let mut at = 0.0;
    let entry = |draft: &Draft| {
        at += draft.gap * factor;
        Entry { wait: Nanos(at as u64), request: draft.request }
    };
    drafts.iter().map(entry).collect()
}

/// Waits of a closed loop: the load's own, and one between half and one and a half of what the cell adds.
fn closed(drafts: &[Draft], think_ms: u32, rng: &mut Rng) -> Vec<Entry> {
    let added = Nanos::from_millis(u64::from(think_ms)).0 as f64;
    let mut entry = |draft: &Draft| {
        let more = Nanos((added * (0.5 + rng.unit())) as u64);
        Entry { wait: draft.think + more, request: draft.request }
    };
    drafts.iter().map(&mut entry).collect()
}

/// The stage of a closed loop that an entry belongs to.
pub(super) fn clients_at(stages: &[Stage], place: usize) -> usize {
    let next = stages.partition_point(|stage| stage.first <= place);
    stages[next.saturating_sub(1)].clients
}
