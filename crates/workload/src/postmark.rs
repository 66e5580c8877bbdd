//! `postmark-like`: many small files, created, read, appended to and deleted as by PostMark.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | files, transactions, sizes | 10,000, 50,000, 4 KB to 500 KB | paper: Xiao et al., PASS, section V |
//! | algorithm | below | paper: C source of PostMark 1.5 (Katcher, Network Appliance TR-3022, 1997) |
//! | a transaction | read a whole file or append to it (1 in 2); then create a file or delete one (1 in 2) | same |
//! | size of a file | uniform between the two limits | same |
//! | size of an append | uniform up to what is left to the largest size | same |
//! | table of files | twice the files at the start; what does not fit is not created | same |
//! | sync | none; each file is opened and closed for each operation | same |
//!
//! PASS, table I, has 86.9 MB written for 71.2 MB read, a ratio of 1.22. With these parameters, the algorithm
//! gives 1.4, with any share of cached reads. The paper's different parameter is unknown.
//!
//! First all files are created. Then come the transactions, and finally all files are deleted. Each client
//! has its own files. The operations of the program are the transactions, with the bytes of files read and
//! written, in memory or not.
//!
//! Model of the page cache and its flusher at block level [assumed]:
//!
//! - A file is read and written in sequence, in requests of up to `size`.
//! - Every write reaches the device, once.
//! - `cached` is the share of reads that the cache answers.
//! - The attributes of a file (a block holds 16 files) are written for the share `attributes` of creations,
//!   appends and deletions.
//!
//! The file system is a model (see `file_system.rs`). Without room, no file is created. Memory: 4 bytes for
//! each 4 KiB of space, 32 bytes for each file.

use crate::file_system::{CLUSTER, Extent, File, FileSystem, MOST_CLUSTERS, MOST_FILES};
use crate::pace::MOST_CLIENTS;
use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, KIB, MIB, Nanos, Op, Request, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "postmark-like",
    summary: "small files created, read, appended to and deleted (PostMark)",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "files", default: "10K", meaning: "files of a client at the start" },
    Setting { key: "transactions", default: "50K", meaning: "transactions of a client" },
    Setting { key: "low", default: "4KB", meaning: "size of the smallest file" },
    Setting { key: "high", default: "500KB", meaning: "size of the largest file" },
    Setting { key: "clients", default: "1", meaning: "processes, each with files of its own" },
    Setting { key: "size", default: "128KiB", meaning: "largest request, a multiple of 4 KiB" },
    Setting { key: "cached", default: "0%", meaning: "share of files that the page cache reads from memory" },
    Setting {
        key: "attributes",
        default: "25%",
        meaning: "share of changes of files that write a block of attributes",
    },
    Setting {
        key: "discard",
        default: "no",
        meaning: "`yes`: the space of deleted files is discarded; `no`",
    },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let files = settings.take_count("files", 10_000, 1..=4_000_000)?;
    let transactions = settings.take_count("transactions", 50_000, 0..=u64::MAX / 2)?;
    let low = settings.take_bytes("low", Bytes(4_000), Bytes(1)..=MIB * 1024)?;
    let high = settings.take_bytes("high", Bytes(500_000), Bytes(1)..=MIB * 1024)?;
    let clients = settings.take_count("clients", 1, 1..=MOST_CLIENTS)?;
    let size = settings.take_bytes("size", KIB * 128, CLUSTER..=MIB * 64)?;
    let cached = settings.take_share("cached")?.unwrap_or(0.0);
    let attributes = settings.take_share("attributes")?.unwrap_or(0.25);
    let discards = settings.take("discard", Discards::No, "yes or no")?;
    if low > high {
        return Err(settings.bad("low", &low.to_string(), &format!("at most high, {high}")));
    }
    if !size.is_aligned(CLUSTER) {
        return Err(settings.bad("size", &size.to_string(), "a multiple of 4 KiB"));
    }
    // Room for twice the initial files, of mean size, with half a cluster lost in each.
    let clusters = ((low + high) * files).align_up(CLUSTER) / CLUSTER + files + high / CLUSTER + 1;
    let span = FileSystem::span(files * 2, clusters);
    if clusters * clients > MOST_CLUSTERS || files * clients > MOST_FILES || span * clients > LARGEST_SPAN {
        let expected = format!("fewer or smaller files: at most {MOST_FILES} in {}", CLUSTER * MOST_CLUSTERS);
        return Err(settings.bad("files", &files.to_string(), &expected));
    }
    let plan = Plan { files, transactions, low, high, size, cached, attributes, discards, clusters, span };
    let load = move || {
        let mut rng = Rng::new(seed);
        Load::Closed(
            (0..clients).map(|client| Box::new(PostMark::new(plan, client, rng.fork())) as Client).collect(),
        )
    };
    Ok(Workload::new(ABOUT.name, span * clients, None, load).with_filled(Vec::new()))
}

#[derive(Clone, Copy)]
struct Plan {
    files: u64,
    transactions: u64,
    low: Bytes,
    high: Bytes,
    size: Bytes,
    cached: f64,
    attributes: f64,
    discards: Discards,
    clusters: u64,
    /// Bytes of one client.
    span: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Discards {
    Yes,
    No,
}

impl std::str::FromStr for Discards {
    type Err = ();
    fn from_str(text: &str) -> Result<Discards, ()> {
        match text {
            "yes" => Ok(Discards::Yes),
            "no" => Ok(Discards::No),
            _ => Err(()),
        }
    }
}

struct PostMark {
    plan: Plan,
    rng: Rng,
    disk: FileSystem,
    /// Existing files, in no order.
    live: Vec<File>,
    /// Unused file numbers.
    numbers: Vec<u32>,
    phase: Phase,
    /// Remaining clusters of the present operation.
    extent: Option<Extent>,
    attributes: Option<Request>,
    /// A deleted file, whose clusters become free after the discard.
    gone: Option<File>,
    /// Bytes of files read and written by the present transaction.
    transaction: Option<Bytes>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Files still to be created.
    Create(u64),
    /// Remaining halves of transactions. An even number is left before the first half of a transaction.
    Transactions(u64),
    Delete,
}

impl PostMark {
    fn new(plan: Plan, client: u64, rng: Rng) -> PostMark {
        let disk = FileSystem::new(plan.span * client, plan.files * 2, plan.clusters);
        let most = plan.files as usize * 2;
        PostMark {
            plan,
            rng,
            disk,
            live: Vec::with_capacity(most),
            numbers: (0..plan.files as u32 * 2).rev().collect(),
            phase: Phase::Create(plan.files),
            extent: None,
            attributes: None,
            gone: None,
            transaction: None,
        }
    }

    /// Begins the next operation. Returns false at the end. An operation may have no requests.
    fn operate(&mut self) -> bool {
        match self.phase {
            Phase::Create(left) => {
                self.phase = Phase::Create(left - 1);
                self.create();
            }
            Phase::Transactions(0) => self.phase = Phase::Delete,
            Phase::Transactions(_) if self.live.is_empty() => return false,
            Phase::Transactions(left) => {
                self.phase = Phase::Transactions(left - 1);
                self.transaction.get_or_insert_default();
                match (left % 2, self.rng.chance(0.5)) {
                    (0, true) => self.read(),
                    (0, false) => self.append(),
                    (_, true) => self.create(),
                    (_, false) => self.delete(),
                }
            }
            Phase::Delete if self.live.is_empty() => return false,
            Phase::Delete => self.delete(),
        }
        true
    }

    fn any(&mut self) -> usize {
        self.rng.below(self.live.len() as u64) as usize
    }

    fn read(&mut self) {
        let at = self.any();
        if !self.rng.chance(self.plan.cached) {
            self.extent = Some(FileSystem::whole(&self.live[at], Op::Read));
        }
        self.count(self.live[at].len);
    }

    fn append(&mut self) {
        let at = self.any();
        let left = self.plan.high.saturating_sub(self.live[at].len);
        if left > Bytes::ZERO {
            let len = Bytes(1 + self.rng.below(left.0));
            self.extent = self.disk.append(&mut self.live[at], len);
            self.count(len);
            self.touch(self.live[at].number);
        }
    }

    fn create(&mut self) {
        let len = self.plan.low + Bytes(self.rng.below((self.plan.high - self.plan.low).0 + 1));
        let Some(number) = self.numbers.pop() else { return };
        let mut file = FileSystem::create(number);
        self.extent = self.disk.append(&mut file, len);
        match self.extent {
            Some(_) => self.live.push(file),
            None => return self.numbers.push(number),
        }
        self.count(len);
        self.touch(number);
    }

    fn delete(&mut self) {
        let at = self.any();
        let file = self.live.swap_remove(at);
        self.numbers.push(file.number);
        if self.plan.discards == Discards::Yes {
            self.extent = Some(FileSystem::whole(&file, Op::Discard));
        }
        self.gone = Some(file);
        self.touch(file.number);
    }

    /// Adds bytes read or written to the present transaction.
    fn count(&mut self, len: Bytes) {
        if let Some(bytes) = &mut self.transaction {
            *bytes += len;
        }
    }

    /// Writes the attributes of a changed file, with the probability `attributes`.
    fn touch(&mut self, number: u32) {
        if self.rng.chance(self.plan.attributes) {
            self.attributes = Some(self.disk.attributes_of(number));
        }
    }

    /// Returns the step that ends a transaction or the creation of the first files, if due.
    fn ended(&mut self) -> Option<Step> {
        match self.phase {
            Phase::Create(0) => {
                self.phase = Phase::Transactions(self.plan.transactions * 2);
                // The first transaction begins now.
                Some(Step::Pause(Nanos::ZERO))
            }
            Phase::Transactions(left) if left % 2 == 0 => {
                self.transaction.take().map(|bytes| Step::Operation { think: Nanos::ZERO, bytes })
            }
            _ => None,
        }
    }

    fn step(&mut self) -> Option<Step> {
        let made = |request| Some(Step::Request { think: Nanos::ZERO, request });
        loop {
            if let Some(extent) = &mut self.extent
                && let Some(request) = self.disk.request(extent, self.plan.size)
            {
                return made(request);
            }
            if let Some(request) = self.attributes.take() {
                return made(request);
            }
            if let Some(file) = self.gone.take() {
                self.disk.delete(file);
            }
            self.extent = None;
            if let Some(step) = self.ended() {
                return Some(step);
            }
            if !self.operate() {
                return None;
            }
        }
    }
}

impl Iterator for PostMark {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.step()
    }
}
