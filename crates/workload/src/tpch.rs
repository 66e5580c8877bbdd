//! `tpch-q1-like`: scans of one large table, as by query 1 of TPC-H.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | what is read | `lineitem`, whole, in sequence; nothing is written | memory: TPC-H specification, clause 2.4.1 |
//! | size at scale factor 1 | 6,001,215 rows, 0.8 to 1.1 GB as a PostgreSQL heap | memory; 1 GiB here |
//! | size of a request | 128 KiB, the read-ahead of Linux | memory |
//! | processor | 50 to 150 MB/s for each core of 2008 | memory; 60 MB/s here |
//! | time on a disk against an SSD | 1.16 | paper: Hystor, as presented |
//!
//! A scan reads ahead while working on the present data. So each of the `streams` consists of two alternating
//! clients. Each client reads every other request of the scan, and works on the data before its next read.
//! The processor's rate is chosen within its range to match Hystor's measurement: a disk of 100 MB/s takes
//! 1.16 times as long as an SSD of 250 MB/s.

use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, GIB, KIB, MIB, Nanos, Op, Request, SECTOR, Settings};

pub(crate) const ABOUT: About = About {
    name: "tpch-q1-like",
    summary: "scans of one large table with work in between (TPC-H query 1)",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "scale", default: "1", meaning: "scale factor: GiB of the table" },
    Setting { key: "size", default: "128KiB", meaning: "size of a request, a multiple of 512 B" },
    Setting { key: "streams", default: "1", meaning: "scans at the same time" },
    Setting { key: "scans", default: "2", meaning: "how often each stream scans the table" },
    Setting { key: "cpu", default: "60", meaning: "MB that a stream processes in a second, 1 to 1M" },
];

pub(crate) fn new(settings: &mut Settings, _seed: u64) -> Result<Workload, BadSetting> {
    let scale = settings.take_count("scale", 1, 1..=LARGEST_SPAN / GIB)?;
    let size = settings.take_bytes("size", KIB * 128, SECTOR..=MIB * 64)?;
    let streams = settings.take_count("streams", 1, 1..=10_000)?;
    let scans = settings.take_count("scans", 2, 1..=1_000_000)?;
    let cpu = settings.take_count("cpu", 60, 1..=1_000_000)?;
    if !size.is_aligned(SECTOR) {
        return Err(settings.bad("size", &size.to_string(), "a multiple of 512 B"));
    }
    let pieces = GIB * scale / size;
    // Two clients alternate, each with twice the time of work, so that both together use one processor.
    let work = Nanos(size.0 * 1_000 / cpu * 2);
    let client = move |number: u64| {
        let part = number % 2;
        Scan { size, pieces, work, first: part, next: part, scans, is_started: part == 0 }
    };
    let requests = u128::from(streams * scans) * u128::from(pieces);
    let load =
        move || Load::Closed((0..streams * 2).map(|number| Box::new(client(number)) as Client).collect());
    Ok(Workload::new(ABOUT.name, size * pieces, u64::try_from(requests).ok(), load))
}

struct Scan {
    size: Bytes,
    pieces: u64,
    work: Nanos,
    /// First request of this client: 0 or 1.
    first: u64,
    next: u64,
    /// Remaining scans.
    scans: u64,
    /// True after the first read. The second client of a stream begins half a turn later.
    is_started: bool,
}

impl Iterator for Scan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.next >= self.pieces {
            self.scans -= 1;
            self.next = self.first;
        }
        if self.scans == 0 || self.next >= self.pieces {
            return None;
        }
        let request = Request { op: Op::Read, offset: self.size * self.next, len: self.size };
        self.next += 2;
        let think = if self.is_started { self.work } else { self.work / 2 };
        self.is_started = true;
        Some(Step::Request { think, request })
    }
}
