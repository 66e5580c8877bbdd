//! `db2-like`: consecutive queries to a parallel relational database, after the workload "DB2 Parallel
//! Edition" of the working-set paper.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | queries | five, one after the other | paper: Chen et al., "Using Working Set Reorganization…", section IV-A |
//! | data | 5.2 GB | same |
//! | operations | join, set and aggregate, on indexed and non-indexed relations | same |
//! | nodes | 8 clients, each with its part of the relations | assumed |
//! | indices, and what they lead to | a fifth of the data, in pages of 4 KiB that are read at random by Zipf's law, exponent 0.9 | assumed |
//! | lookups | 4,000 of each client in a query | assumed |
//! | scans | a tenth of the two other relations in a query, in requests of 64 KiB, the relations in turn | assumed |
//! | sorts and joins | every second query writes a twentieth of the data to a temporary table, and reads it again | assumed |
//! | between queries | all clients are done, and nobody asks for anything for 10 s | assumed: in the paper the system is idle at times, and it does not say when |
//!
//! The trace comes from the Maryland applications (Uysal, Acharya, Saltz, 1998) and is not published in this
//! form. This workload is a substitute, not the trace. A reorganization needs idle time: hence the setting
//! `pause`. The setting `repeat` runs the same five queries again.

use crate::draw::{Scatter, Zipf};
use crate::pace::{DAY, MOST_CLIENTS};
use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, MIB, Nanos, Op, Request, Rng, Settings};
use std::sync::Arc;

pub(crate) const ABOUT: About = About {
    name: "db2-like",
    summary: "queries to a parallel database: index lookups, scans, temporary tables, and pauses",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "span", default: "5.2GB", meaning: "bytes of the database" },
    Setting { key: "clients", default: "8", meaning: "nodes that work on a query together" },
    Setting { key: "repeat", default: "1", meaning: "how often the five queries are asked" },
    Setting { key: "lookups", default: "4000", meaning: "index lookups of each client in a query" },
    Setting { key: "index", default: "20%", meaning: "share of the data that is found by indices" },
    Setting { key: "scan", default: "10%", meaning: "share of the other relations that a query scans" },
    Setting { key: "theta", default: "0.9", meaning: "exponent of Zipf's law for lookups, 0 to 4" },
    Setting { key: "pause", default: "10s", meaning: "time between queries without requests" },
];

const QUERIES: u64 = 5;
const PAGE: Bytes = Bytes(4 << 10);
const PIECE: Bytes = Bytes(64 << 10);
/// Divisor of the data: a temporary table holds a twentieth of the data.
const TEMPORARY: u64 = 20;

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let span =
        settings.take_bytes("span", Bytes(5_200_000_000), MIB * 64..=LARGEST_SPAN / 2)?.align_down(MIB);
    let clients = settings.take_count("clients", 8, 1..=MOST_CLIENTS.min(span / MIB))?;
    let repeat = settings.take_count("repeat", 1, 1..=1_000_000)?;
    let lookups = settings.take_count("lookups", 4_000, 0..=1_000_000_000)?;
    let index = settings.take_share("index")?.unwrap_or(0.2);
    let scan = settings.take_share("scan")?.unwrap_or(0.1);
    let theta = settings.take_within("theta", 0.9, 0.0, 4.0)?;
    let pause = settings.take_time("pause", Nanos::from_secs(10), Nanos::ZERO..=DAY)?;
    if !(0.01..=0.9).contains(&index) {
        return Err(settings.bad("index", &index.to_string(), "1% to 90%"));
    }
    let indexed = Bytes((span.0 as f64 * index) as u64).align_down(PIECE);
    let pieces = |bytes: Bytes| bytes / PIECE / clients;
    let scanned = pieces(Bytes(((span - indexed).0 as f64 * scan) as u64));
    let plan = Plan {
        queries: QUERIES * repeat,
        lookups,
        indexed,
        relation: ((span - indexed) / 2).align_down(PIECE),
        scanned,
        temporary: pieces(span / TEMPORARY),
        end: span,
        pause,
    };
    let requests = u128::from(clients) * u128::from(plan.queries) * u128::from(lookups + scanned)
        + u128::from(clients) * u128::from(plan.queries / 2) * u128::from(2 * plan.temporary);
    let ranks = Arc::new(Zipf::new(indexed / PAGE, theta));
    let load = move || {
        let pages = Arc::new(Scatter::new(indexed / PAGE, &mut Rng::new(!seed)));
        let mut rng = Rng::new(seed);
        let mut node = |client| Node {
            plan,
            ranks: ranks.clone(),
            pages: pages.clone(),
            rng: rng.fork(),
            client,
            query: 0,
            next: Next::Begin,
        };
        Load::Closed((0..clients).map(|client| Box::new(node(client)) as Client).collect())
    };
    let all = span + PIECE * clients * plan.temporary;
    let filled = [Bytes::ZERO..span].to_vec();
    Ok(Workload::new(ABOUT.name, all, u64::try_from(requests).ok(), load).with_filled(filled))
}

#[derive(Clone, Copy)]
struct Plan {
    queries: u64,
    lookups: u64,
    /// Length of the indexed data, from the start of the volume.
    indexed: Bytes,
    /// Length of each of the two relations behind the indexed data.
    relation: Bytes,
    /// Pieces that a client reads in a scan.
    scanned: u64,
    /// Pieces of a client's temporary table. The temporary tables begin at `end`.
    temporary: u64,
    end: Bytes,
    pause: Nanos,
}

/// A client. Its state is the next step of its query.
struct Node {
    plan: Plan,
    ranks: Arc<Zipf>,
    pages: Arc<Scatter>,
    rng: Rng,
    client: u64,
    query: u64,
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    Begin,
    Pause,
    Look(u64),
    Scan(u64),
    Write(u64),
    Read(u64),
}

impl Iterator for Node {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let plan = self.plan;
        loop {
            if self.query == plan.queries {
                return None;
            }
            let read = |offset, len| Request { op: Op::Read, offset, len };
            let temporary = plan.end + PIECE * (self.client * plan.temporary);
            let (request, next) = match self.next {
                Next::Begin => {
                    self.next = if self.query == 0 { Next::Look(0) } else { Next::Pause };
                    return Some(Step::Meet);
                }
                Next::Pause => {
                    self.next = Next::Look(0);
                    return Some(Step::Pause(plan.pause));
                }
                Next::Look(i) if i < plan.lookups => {
                    let page = self.pages.place(self.ranks.draw(&mut self.rng));
                    (read(PAGE * page, PAGE), Next::Look(i + 1))
                }
                Next::Look(_) => {
                    self.next = Next::Scan(0);
                    continue;
                }
                Next::Scan(i) if i < plan.scanned => {
                    let piece = (self.client * plan.scanned + i) % (plan.relation / PIECE);
                    let start = plan.indexed + plan.relation * (self.query % 2);
                    (read(start + PIECE * piece, PIECE), Next::Scan(i + 1))
                }
                Next::Scan(_) if self.query % 2 == 1 => {
                    self.next = Next::Write(0);
                    continue;
                }
                Next::Write(i) if i < plan.temporary => {
                    let request = Request { op: Op::Write, offset: temporary + PIECE * i, len: PIECE };
                    (request, Next::Write(i + 1))
                }
                Next::Write(_) => {
                    self.next = Next::Read(0);
                    continue;
                }
                Next::Read(i) if i < plan.temporary => {
                    (read(temporary + PIECE * i, PIECE), Next::Read(i + 1))
                }
                Next::Scan(_) | Next::Read(_) => {
                    (self.query, self.next) = (self.query + 1, Next::Begin);
                    continue;
                }
            };
            self.next = next;
            return Some(Step::Request { think: Nanos::ZERO, request });
        }
    }
}
