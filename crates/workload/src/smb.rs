//! What `dbench-like` and `netapp-like` share: processes that replay file-server operations, each in a directory of its own.
//!
//! From Wu and Reddy, tables I and II, come the counts of ReadX, WriteX and Flush and the mean sizes of reads and writes. The
//! rest is guessed, and can be set:
//!
//! - *sizes*: a mix of 4 to 64 KiB with the table's mean, in whole pages, for that is what a page cache asks of a disk;
//! - *`files`*: bytes of files of one process, all there from the start, one directory after the other;
//! - *`sequential`*: the share of requests that begin where the last one of that kind ended; the others begin at any page;
//! - *`cached`*: the share of reads that the page cache answers; they do not appear. Writes and flushes all do.
//!
//! Operations on names and attributes (the rest of table I) are left out: the file system gathers them in few blocks, which
//! it writes seldom.

use crate::catalogue::Setting;
use crate::draw::Sizes;
use crate::pace::Pace;
use crate::target::LARGEST_SPAN;
use crate::{About, Workload};
use braid_base::{BadSetting, Bytes, GIB, MIB, Op, Request, Rng, Settings};
use std::sync::Arc;

/// The figures of one workload.
pub(crate) struct Figures {
    /// Counts of operations of one process: table I.
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    /// Sizes with weights, whose means are those of table II.
    pub read_sizes: &'static [(Bytes, u64)],
    pub write_sizes: &'static [(Bytes, u64)],
    /// Guesses.
    pub files: Bytes,
    pub sequential: f64,
    pub cached: f64,
}

pub(crate) fn new(
    about: &About,
    figures: &Figures,
    settings: &mut Settings,
    seed: u64,
) -> Result<Workload, BadSetting> {
    let files = settings.take_bytes("files", figures.files, MIB..=GIB * 1024)?.align_down(PAGE);
    let sequential = settings.take_share("sequential")?.unwrap_or(figures.sequential);
    let cached = settings.take_share("cached")?.unwrap_or(figures.cached);
    let pace = Pace::take_processes(settings)?;
    let span = files * pace.streams();
    if span > LARGEST_SPAN {
        return Err(settings.bad(
            "files",
            &files.to_string(),
            &format!("at most {} for all processes", LARGEST_SPAN),
        ));
    }
    let reads = figures.reads as f64 * (1.0 - cached);
    let all = reads + (figures.writes + figures.flushes) as f64;
    let mix = Arc::new(Mix {
        files,
        sequential,
        read: reads / all,
        flush: figures.flushes as f64 / all,
        read_sizes: Sizes::new(figures.read_sizes),
        write_sizes: Sizes::new(figures.write_sizes),
    });
    let load = move || {
        pace.load(seed, |process, rng| Process {
            mix: mix.clone(),
            rng,
            start: files * process,
            read_end: Bytes::ZERO,
            write_end: Bytes::ZERO,
        })
    };
    Ok(Workload::new(about.name, span, pace.requests, load))
}

/// The pages of a page cache.
const PAGE: Bytes = Bytes(4096);

/// Settings, but for those with figures of their own.
pub(crate) const fn settings(
    files: &'static str,
    sequential: &'static str,
    cached: &'static str,
) -> [Setting; 3] {
    [
        Setting { key: "files", default: files, meaning: "bytes of files of one process" },
        Setting {
            key: "sequential",
            default: sequential,
            meaning: "share of requests that follow the last of their kind",
        },
        Setting { key: "cached", default: cached, meaning: "share of reads that the page cache answers" },
    ]
}

struct Mix {
    files: Bytes,
    sequential: f64,
    /// Shares of all requests.
    read: f64,
    flush: f64,
    read_sizes: Sizes,
    write_sizes: Sizes,
}

struct Process {
    mix: Arc<Mix>,
    rng: Rng,
    /// Where its files begin.
    start: Bytes,
    /// Where the last read and the last write ended, from there.
    read_end: Bytes,
    write_end: Bytes,
}

impl Iterator for Process {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let (mix, rng) = (&*self.mix, &mut self.rng);
        let drawn = rng.unit();
        if drawn < mix.flush {
            return Some(Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO });
        }
        let (op, sizes, end) = match drawn < mix.flush + mix.read {
            true => (Op::Read, &mix.read_sizes, &mut self.read_end),
            false => (Op::Write, &mix.write_sizes, &mut self.write_end),
        };
        let len = sizes.draw(rng);
        let follows = rng.chance(mix.sequential) && *end + len <= mix.files;
        let at = if follows { *end } else { PAGE * rng.below((mix.files - len) / PAGE + 1) };
        *end = at + len;
        Some(Request { op, offset: self.start + at, len })
    }
}
