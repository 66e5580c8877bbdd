//! `checkpoint`: a parallel program. Its processes compute, write their state together, and later read the
//! state.
//!
//! Chen et al., "Using Working Set Reorganization to Manage Storage Systems with Hard and Solid State Disks",
//! section III, spread new writes over all devices and move data that is read later. Their method targets
//! this pattern: a checkpoint is written once, at full bandwidth, and is read after a crash or by the
//! analysis. The paper gives no figures of such a run. Sizes and times are guessed.
//!
//! A round: every process computes for the same time, writes its state in sequence, flushes, and meets the
//! other processes. Then come `reads` passes over the checkpoint, with a meeting after each pass. Checkpoints
//! alternate between two places, because the last checkpoint must survive the writing of the next checkpoint.
//! `layout=own`: a file per process. `layout=shared`: one file with interleaved requests of all processes. A
//! process reads the data of another process, as after a restart on other nodes. `read=written`: in the order
//! of writing. `read=order`: a part of the checkpoint from start to end. `read=stride`: every `clients`-th
//! piece.

use crate::pace::{DAY, MOST_CLIENTS};
use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, GIB, KIB, MIB, Nanos, Op, Request, SECTOR, Settings};

pub(crate) const ABOUT: About = About {
    name: "checkpoint",
    summary: "parallel program: compute, write a checkpoint together, read it",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "clients", default: "16", meaning: "processes" },
    Setting { key: "state", default: "64MiB", meaning: "bytes that each process writes in a checkpoint" },
    Setting { key: "size", default: "1MiB", meaning: "size of a request, a multiple of 512 B" },
    Setting { key: "rounds", default: "5", meaning: "checkpoints" },
    Setting { key: "reads", default: "1", meaning: "how often each checkpoint is read" },
    Setting { key: "compute", default: "10s", meaning: "time between checkpoints" },
    Setting { key: "wait", default: "0s", meaning: "time before each pass of reading" },
    Setting {
        key: "read",
        default: "written",
        meaning: "how a process reads: `written`, as another wrote it; `order`, a part of its own; `stride`, every `clients`-th piece",
    },
    Setting {
        key: "layout",
        default: "own",
        meaning: "`own`: a file per process; `shared`: one file, interleaved",
    },
];

pub(crate) fn new(settings: &mut Settings, _seed: u64) -> Result<Workload, BadSetting> {
    let clients = settings.take_count("clients", 16, 1..=MOST_CLIENTS)?;
    let state = settings.take_bytes("state", MIB * 64, KIB..=GIB * 1024)?;
    let size = settings.take_bytes("size", MIB, SECTOR..=MIB * 64)?;
    let rounds = settings.take_count("rounds", 5, 1..=1_000_000)?;
    let reads = settings.take_count("reads", 1, 0..=1_000_000)?;
    let compute = settings.take_time("compute", Nanos::from_secs(10), Nanos::ZERO..=DAY)?;
    let wait = settings.take_time("wait", Nanos::ZERO, Nanos::ZERO..=DAY)?;
    let layout = settings.take("layout", Layout::Own, "own or shared")?;
    let read = settings.take("read", Read::Written, "written, order or stride")?;
    if !size.is_aligned(SECTOR) || size > state {
        return Err(settings.bad(
            "size",
            &size.to_string(),
            &format!("a multiple of 512 B, at most state, {state}"),
        ));
    }
    let pieces = state / size;
    let checkpoint = size * pieces * clients;
    let span = checkpoint * 2;
    if span > LARGEST_SPAN {
        let limit = format!("at most {} for all processes", LARGEST_SPAN / 2);
        return Err(settings.bad("state", &state.to_string(), &limit));
    }
    let plan = Plan { clients, pieces, size, rounds, reads, compute, wait, layout, read };
    let requests = u128::from(rounds * clients) * u128::from(pieces * (1 + reads) + 1);
    let load = move || {
        Load::Closed((0..clients).map(|client| Box::new(Process::new(plan, client)) as Client).collect())
    };
    Ok(Workload::new(ABOUT.name, span, u64::try_from(requests).ok(), load).with_filled(Vec::new()))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Own,
    Shared,
}

impl std::str::FromStr for Layout {
    type Err = ();
    fn from_str(text: &str) -> Result<Layout, ()> {
        match text {
            "own" => Ok(Layout::Own),
            "shared" => Ok(Layout::Shared),
            _ => Err(()),
        }
    }
}

/// Order in which a process reads a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Written,
    Order,
    Stride,
}

impl std::str::FromStr for Read {
    type Err = ();
    fn from_str(text: &str) -> Result<Read, ()> {
        match text {
            "written" => Ok(Read::Written),
            "order" => Ok(Read::Order),
            "stride" => Ok(Read::Stride),
            _ => Err(()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    clients: u64,
    /// Requests of one process in a checkpoint.
    pieces: u64,
    size: Bytes,
    rounds: u64,
    reads: u64,
    compute: Nanos,
    wait: Nanos,
    layout: Layout,
    read: Read,
}

impl Plan {
    /// Returns the layout that a process assumes for its reads.
    fn read_layout(&self) -> Layout {
        match self.read {
            Read::Written => self.layout,
            Read::Order => Layout::Own,
            Read::Stride => Layout::Shared,
        }
    }

    /// Returns the offset of a piece of a process in the checkpoint of a round.
    fn place(&self, layout: Layout, round: u64, client: u64, piece: u64) -> Bytes {
        let within = match layout {
            Layout::Own => client * self.pieces + piece,
            Layout::Shared => piece * self.clients + client,
        };
        self.size * (round % 2 * self.clients * self.pieces + within)
    }
}

/// One process. Its state is the next step of the round.
struct Process {
    plan: Plan,
    client: u64,
    round: u64,
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    /// The first meeting. The first write after the meeting waits for the time of computing.
    Start,
    Write(u64),
    Flush,
    /// Meets, then reads the given pass. After the last pass, the next round starts.
    Meet(u64),
    Read {
        pass: u64,
        piece: u64,
    },
}

impl Process {
    fn new(plan: Plan, client: u64) -> Process {
        Process { plan, client, round: 0, next: Next::Start }
    }

    fn request(&self, op: Op, client: u64, piece: u64) -> Request {
        let layout = if op == Op::Read { self.plan.read_layout() } else { self.plan.layout };
        Request { op, offset: self.plan.place(layout, self.round, client, piece), len: self.plan.size }
    }
}

impl Iterator for Process {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let plan = self.plan;
        if self.round == plan.rounds {
            return None;
        }
        let (step, next) = match self.next {
            Next::Start => (Step::Meet, Next::Write(0)),
            Next::Write(piece) => {
                let think = if piece == 0 { plan.compute } else { Nanos::ZERO };
                let step = Step::Request { think, request: self.request(Op::Write, self.client, piece) };
                (step, if piece + 1 < plan.pieces { Next::Write(piece + 1) } else { Next::Flush })
            }
            Next::Flush => {
                let request = Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO };
                (Step::Request { think: Nanos::ZERO, request }, Next::Meet(0))
            }
            Next::Meet(pass) if pass < plan.reads => (Step::Meet, Next::Read { pass, piece: 0 }),
            Next::Meet(_) => {
                self.round += 1;
                (Step::Meet, Next::Write(0))
            }
            Next::Read { pass, piece } => {
                let writer = (self.client + 1) % plan.clients;
                let think = if piece == 0 { plan.wait } else { Nanos::ZERO };
                let step = Step::Request { think, request: self.request(Op::Read, writer, piece) };
                let is_last = piece + 1 == plan.pieces;
                (step, if is_last { Next::Meet(pass + 1) } else { Next::Read { pass, piece: piece + 1 } })
            }
        };
        self.next = next;
        Some(step)
    }
}
