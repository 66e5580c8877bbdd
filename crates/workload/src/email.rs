//! `email-like`: a mail server that appends messages to mailboxes and syncs each one, as Hystor's authors
//! used it after Shah and Noble, "A study of e-mail patterns", Software: Practice and Experience 37(14),
//! 2007.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | what a delivery is | a synchronous append, of different sizes to different places | paper, as presented by Hystor's authors |
//! | most requests | small, random, writes | same |
//! | mailboxes, transactions | 500, 5,000 | memory, weak |
//! | all mailboxes at the start | 125 MiB | derived: 27 MB of SSD are 20 % of Hystor's working set |
//! | mean size of a message | 7,002 B | review: one person's archive of 16,000 messages |
//! | distribution of sizes | log-normal, median 2.75 KiB, σ 1.25; above 100 KB (1 in 450) Pareto, index 1.1, cut at 10 MB | memory, fitted to the mean |
//! | popularity of mailboxes | Zipf, exponent 0.8 | guessed |
//! | deliveries, readings, rewritings | 85 %, 14 %, 1 % | guessed |
//!
//! The parameters of Shah and Noble's distributions were not found. Neither was the shape of the bursts that
//! Hystor's authors mention, so clients pause only if `think` is set.
//!
//! A delivery writes the clusters from the mailbox's end. Then the journal of the file system gets `journal`
//! bytes in sequence (descriptor, attributes, commit, as ext3 with ordered data) [assumed]. A flush ends the
//! delivery. One delivery in 32 also writes the mailbox's attributes in place, like the checkpoint of a
//! journal [guessed]. A reading reads at most the last 64 KiB. A rewriting reads a mailbox and writes half of
//! its bytes to a new file. A delivery that would make a mailbox larger than 4 MiB starts with a rewriting.
//! Nothing is cached. Memory: 4 bytes for each 4 KiB of space.

use crate::draw::{Scatter, Zipf, exp, normal, pareto};
use crate::file_system::{CLUSTER, Extent, File, FileSystem, MOST_CLUSTERS, MOST_FILES};
use crate::pace::{DAY, MOST_CLIENTS, Thinker};
use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, KIB, MIB, Nanos, Op, Request, Rng, Settings};
use std::collections::VecDeque;

pub(crate) const ABOUT: About = About {
    name: "email-like",
    summary: "messages appended to mailboxes and synced one by one (Hystor's e-mail workload)",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "mailboxes", default: "500", meaning: "mailboxes of a client" },
    Setting {
        key: "transactions",
        default: "5K",
        meaning: "deliveries, readings and rewritings of a client",
    },
    Setting { key: "clients", default: "1", meaning: "processes, each with mailboxes of its own" },
    Setting {
        key: "think",
        default: "0s",
        meaning: "mean wait of a client before a transaction, exponentially distributed",
    },
    Setting { key: "filled", default: "256KiB", meaning: "mean size of a mailbox at the start" },
    Setting { key: "read", default: "14%", meaning: "share of transactions that read a mailbox's end" },
    Setting { key: "rewrite", default: "1%", meaning: "share of transactions that rewrite a mailbox" },
    Setting { key: "theta", default: "0.8", meaning: "exponent of the popularity of mailboxes, 0 to 4" },
    Setting {
        key: "journal",
        default: "12KiB",
        meaning: "bytes of journal for each delivery, a multiple of 4 KiB",
    },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let mailboxes = settings.take_count("mailboxes", 500, 1..=1_000_000)?;
    let transactions = settings.take_count("transactions", 5_000, 1..=u64::MAX / 2)?;
    let clients = settings.take_count("clients", 1, 1..=MOST_CLIENTS)?;
    let think = settings.take_time("think", Nanos::ZERO, Nanos::ZERO..=DAY)?;
    let filled = settings.take_bytes("filled", KIB * 256, Bytes(1)..=MIB)?;
    let read = settings.take_share("read")?.unwrap_or(0.14);
    let rewrite = settings.take_share("rewrite")?.unwrap_or(0.01);
    let theta = settings.take_within("theta", 0.8, 0.0, 4.0)?;
    let journal = settings.take_bytes("journal", KIB * 12, CLUSTER..=MIB)?;
    if read + rewrite > 1.0 {
        return Err(settings.bad(
            "rewrite",
            &rewrite.to_string(),
            "shares of reading and rewriting that come to 100% or less",
        ));
    }
    if !journal.is_aligned(CLUSTER) {
        return Err(settings.bad("journal", &journal.to_string(), "a multiple of 4 KiB"));
    }
    // Twice the initial size of all mailboxes, and room for rewritings.
    let clusters = filled * mailboxes * 2 / CLUSTER + mailboxes + LARGEST_MAILBOX / CLUSTER * 8;
    let span = JOURNAL + FileSystem::span(mailboxes, clusters);
    if clusters * clients > MOST_CLUSTERS || mailboxes * clients > MOST_FILES || span * clients > LARGEST_SPAN
    {
        let expected = format!("fewer or smaller ones: at most {MOST_FILES} in {}", CLUSTER * MOST_CLUSTERS);
        return Err(settings.bad("mailboxes", &mailboxes.to_string(), &expected));
    }
    let plan = Plan { mailboxes, transactions, think, filled, read, rewrite, theta, journal, clusters, span };
    let load = move || {
        let mut rng = Rng::new(seed);
        Load::Closed(
            (0..clients).map(|client| Box::new(Mail::new(plan, client, rng.fork())) as Client).collect(),
        )
    };
    Ok(Workload::new(ABOUT.name, span * clients, None, load))
}

/// Size of the journal of each file system.
const JOURNAL: Bytes = Bytes(32 << 20);
/// Limit of a mailbox: a delivery that would exceed the limit rewrites the mailbox first.
const LARGEST_MAILBOX: Bytes = Bytes(4 << 20);
/// Clusters that deliveries leave free, so that the largest mailbox can be rewritten.
const RESERVE: u64 = 4096;
/// Most bytes that a reading reads.
const RECENT: Bytes = Bytes(64 << 10);
/// Largest request.
const REQUEST: Bytes = Bytes(128 << 10);
/// Deliveries for each in-place write of attributes.
const IN_PLACE: u64 = 32;

#[derive(Clone, Copy)]
struct Plan {
    mailboxes: u64,
    transactions: u64,
    think: Nanos,
    filled: Bytes,
    read: f64,
    rewrite: f64,
    theta: f64,
    journal: Bytes,
    clusters: u64,
    /// Bytes of one client: journal, then file system.
    span: Bytes,
}

struct Mail {
    plan: Plan,
    rng: Rng,
    thinker: Thinker,
    disk: FileSystem,
    mailboxes: Vec<File>,
    ranks: Zipf,
    order: Scatter,
    start: Bytes,
    /// Offset of the next write within the journal.
    journal: Bytes,
    transactions: u64,
    /// Remaining parts of the present transaction, in order.
    parts: VecDeque<Part>,
}

enum Part {
    Extent(Extent),
    One(Request),
    /// Frees the clusters of the old file of a rewritten mailbox.
    Gone(File),
}

impl Mail {
    fn new(plan: Plan, client: u64, mut rng: Rng) -> Mail {
        let start = plan.span * client;
        let mut disk = FileSystem::new(start + JOURNAL, plan.mailboxes, plan.clusters);
        let mut mailboxes = Vec::with_capacity(plan.mailboxes as usize);
        for number in 0..plan.mailboxes as u32 {
            let mut file = FileSystem::create(number);
            // Uniform up to twice the mean.
            disk.append(&mut file, Bytes(1 + rng.below(plan.filled.0 * 2)));
            mailboxes.push(file);
        }
        Mail {
            plan,
            thinker: Thinker::new(plan.think, rng.fork()),
            mailboxes,
            ranks: Zipf::new(plan.mailboxes, plan.theta),
            order: Scatter::new(plan.mailboxes, &mut rng.fork()),
            disk,
            rng,
            start,
            journal: Bytes::ZERO,
            transactions: plan.transactions,
            parts: VecDeque::with_capacity(16),
        }
    }

    /// Begins a transaction.
    fn transact(&mut self) {
        let at = self.order.place(self.ranks.draw(&mut self.rng)) as usize;
        let drawn = self.rng.unit();
        if drawn < self.plan.read {
            let extent = self.disk.tail(&self.mailboxes[at], Op::Read, RECENT);
            self.parts.push_back(Part::Extent(extent));
        } else if drawn < self.plan.read + self.plan.rewrite {
            self.rewrite(at);
        } else {
            self.deliver(at);
        }
    }

    fn deliver(&mut self, at: usize) {
        let message = Bytes(message(&mut self.rng));
        if self.mailboxes[at].len + message > LARGEST_MAILBOX {
            self.rewrite(at);
        }
        if self.disk.free() < RESERVE {
            // The disk is full of mailboxes: halve the mailbox instead of growing it.
            return self.rewrite(at);
        }
        self.parts.extend(self.disk.append(&mut self.mailboxes[at], message).map(Part::Extent));
        self.sync();
        if self.rng.below(IN_PLACE) == 0 {
            self.parts.push_back(Part::One(self.disk.attributes_of(at as u32)));
        }
    }

    /// Reads a mailbox and writes half of its bytes to a new file that takes the mailbox's place.
    fn rewrite(&mut self, at: usize) {
        let old = self.mailboxes[at];
        let mut file = FileSystem::create(old.number);
        let Some(extent) = self.disk.append(&mut file, Bytes(old.len.0.div_ceil(2))) else { return };
        self.mailboxes[at] = file;
        self.parts.push_back(Part::Extent(FileSystem::whole(&old, Op::Read)));
        self.parts.push_back(Part::Extent(extent));
        self.sync();
        self.parts.push_back(Part::Gone(old));
    }

    /// Writes the journal, then flushes.
    fn sync(&mut self) {
        if self.journal + self.plan.journal > JOURNAL {
            self.journal = Bytes::ZERO;
        }
        let (offset, len) = (self.start + self.journal, self.plan.journal);
        self.journal += len;
        self.parts.push_back(Part::One(Request { op: Op::Write, offset, len }));
        self.parts.push_back(Part::One(Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO }));
    }

    fn request(&mut self) -> Option<Request> {
        loop {
            match self.parts.front_mut()? {
                Part::Extent(extent) => {
                    if let Some(request) = self.disk.request(extent, REQUEST) {
                        return Some(request);
                    }
                    self.parts.pop_front();
                }
                Part::One(request) => {
                    let request = *request;
                    self.parts.pop_front();
                    return Some(request);
                }
                Part::Gone(file) => {
                    let file = *file;
                    self.disk.delete(file);
                    self.parts.pop_front();
                }
            }
        }
    }
}

impl Iterator for Mail {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let mut think = Nanos::ZERO;
        loop {
            if let Some(request) = self.request() {
                return Some(Step::Request { think, request });
            }
            self.transactions = self.transactions.checked_sub(1)?;
            self.transact();
            think = self.thinker.think();
        }
    }
}

/// Draws the size of a message, in bytes.
fn message(rng: &mut Rng) -> u64 {
    const MEDIAN: f64 = 2816.0;
    const SIGMA: f64 = 1.25;
    const TAIL: f64 = 100e3;
    let size = MEDIAN * exp(SIGMA * normal(rng));
    let size = if size > TAIL { pareto(rng, TAIL, 1.1, 10e6) } else { size };
    size as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One person's archive: 7,002 B. The tail is heavy, hence the width.
    #[test]
    fn messages_have_the_mean_size_of_an_archive_and_a_median_far_below() {
        let mut rng = Rng::new(1);
        let mut sizes: Vec<u64> = (0..1_000_000).map(|_| message(&mut rng)).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        sizes.sort_unstable();
        assert!((mean / 7002.0 - 1.0).abs() < 0.05, "mean {mean}");
        assert!((2700..2950).contains(&sizes[500_000]), "median {}", sizes[500_000]);
    }
}
