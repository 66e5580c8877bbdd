//! Common part of `dbench-like` and `netapp-like`: processes that replay file-server operations, each in its
//! own directory, on a machine with a page cache.
//!
//! Wu and Reddy, tables I and II, give the counts of ReadX, WriteX and Flush and the mean sizes of reads and
//! writes. With `memory=0B,dirty=0B,short-lived=0%,barrier=yes`, the volume sees exactly these operations.
//! The paper's volume saw fewer: a 15k disk alone serves ten processes of the NetApp trace at 26 MB/s (table
//! III). By the tables, 26 MB/s are 1,040 reads and 1,150 writes a second, three times the rate of such a
//! disk. So the page cache is part of the workload. The model:
//!
//! - *Reads*: memory answers a share of reads, equal to the share of all files that `memory` holds. The other
//!   reads reach the volume unchanged.
//! - *Writes* make pages dirty. The limit of a process is `dirty` bytes divided by the number of processes.
//!   At the limit the writing process writes back, as in Linux 2.6.28: its dirty pages in the order of their
//!   addresses, adjacent pages as one request of at most 512 KiB. The process waits for each request. Linux
//!   keeps several in flight, which matters with few processes. Linux also writes at most 6 MiB before
//!   checking the limit again (`balance_dirty_pages`), and `pdflush` writes in parallel from half of `dirty`
//!   on.
//! - `short-lived` is the share of writes to files deleted before writeback.
//! - *Flush* writes back the last sequential run of writes. The paper's file system is ext2, which does not
//!   flush devices: a flush of the volume follows only with `barrier=yes`. ext2 does write the file's inode
//!   if dirty (`ext2_sync_file` of Linux 2.6.28): with `inodes=yes`, a flush after a write writes a block of
//!   4 KiB. The start of the process's files stands for the inode's place: the inodes of one directory lie in
//!   a few blocks of the same block group. The default is `inodes=no`, because the values derived from the
//!   paper's rates (`short-lived`, the processor's time) were derived without inodes.
//! - *Processor*: `think` passes for each read and write, cached or not. The time includes a read's or
//!   write's share of flushes and of table I's operations on names and attributes. Every operation takes the
//!   same part of the time on average.
//!
//! Also guessed, with settings: sizes are a mix of 4 to 64 KiB with the table's mean. `files` is the size of
//! one process's files. All files exist from the start, one directory after the other. `sequential` is the
//! share of reads, and of writes, that begin at the end of the last. All others begin at a random page.
//! Operations on names and attributes take only processor time: the file system collects their changes in few
//! blocks and writes these blocks seldom.
//!
//! Each operation ends with a [`Step::Operation`], so that a simulation sees the operations counted by the
//! process.

use crate::catalogue::Setting;
use crate::draw::Sizes;
use crate::pace::{DAY, Processes, Thinker};
use crate::page_cache::{DirtyPages, PAGE};
use crate::{About, Step, Workload};
use braid_base::{BadSetting, Bytes, MIB, Nanos, Op, Request, Rng, Settings, TIB};
use std::ops::Range;
use std::sync::Arc;

/// Figures of one workload.
pub(crate) struct Figures {
    /// Counts of operations of one process: table I.
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    /// All operations: reads, writes, flushes, and operations on names and attributes.
    pub operations: u64,
    /// Sizes with weights. Their means are the means of table II.
    pub read_sizes: &'static [(Bytes, u64)],
    pub write_sizes: &'static [(Bytes, u64)],
    /// Guesses.
    pub files: Bytes,
    pub sequential: f64,
    pub short_lived: f64,
    pub think: Nanos,
}

/// Returns the settings, with the defaults of a workload.
pub(crate) const fn settings(
    files: &'static str,
    sequential: &'static str,
    short_lived: &'static str,
    think: &'static str,
) -> [Setting; 8] {
    [
        Setting { key: "files", default: files, meaning: "bytes of files of one process" },
        Setting {
            key: "sequential",
            default: sequential,
            meaning: "share of requests that follow the last of their kind",
        },
        Setting {
            key: "short-lived",
            default: short_lived,
            meaning: "share of writes that never reach a device",
        },
        Setting {
            key: "think",
            default: think,
            meaning: "mean processor time of a read or write and the work around it",
        },
        Setting {
            key: "memory",
            default: "900MB",
            meaning: "page cache; reads of cached pages reach no device",
        },
        Setting {
            key: "dirty",
            default: "100MB",
            meaning: "most dirty bytes; 0B: each write goes to the device at once",
        },
        Setting {
            key: "barrier",
            default: "no",
            meaning: "`yes`: a flush flushes the volume; `no`, as ext2",
        },
        Setting {
            key: "inodes",
            default: "no",
            meaning: "`yes`, as ext2: a flush after a write writes a block of inodes",
        },
    ]
}

pub(crate) fn new(
    about: &About,
    figures: &Figures,
    settings: &mut Settings,
    seed: u64,
) -> Result<Workload, BadSetting> {
    let files = settings.take_bytes("files", figures.files, MIB..=TIB)?.align_down(PAGE);
    let sequential = settings.take_share("sequential")?.unwrap_or(figures.sequential);
    let short_lived = settings.take_share("short-lived")?.unwrap_or(figures.short_lived);
    let think = settings.take_time("think", figures.think, Nanos::ZERO..=DAY)?;
    let memory = settings.take_bytes("memory", Bytes(900_000_000), Bytes::ZERO..=TIB * 64)?;
    let dirty = settings.take_bytes("dirty", Bytes(100_000_000), Bytes::ZERO..=TIB)?;
    let barrier = settings.take("barrier", Answer::No, "yes or no")?;
    let inodes = settings.take("inodes", Answer::No, "yes or no")?;
    let processes = Processes::take(settings)?;
    if files * processes.clients > MOST_FILES {
        let limit = format!("at most {MOST_FILES} for all processes");
        return Err(settings.bad("files", &files.to_string(), &limit));
    }
    if short_lived > 0.999 {
        return Err(settings.bad("short-lived", &short_lived.to_string(), "at most 99.9%"));
    }
    let span = files * processes.clients;
    let all = figures.operations as f64;
    let of_an_operation = (figures.reads + figures.writes) as f64 / all * think.0 as f64;
    let mix = Arc::new(Mix {
        files,
        sequential,
        short_lived,
        barrier,
        inodes,
        read: figures.reads as f64 / all,
        write: figures.writes as f64 / all,
        flush: figures.flushes as f64 / all,
        cached: (memory.0 as f64 / span.0 as f64).min(1.0),
        // A process that could make all its files dirty writes back at half of its files.
        dirty: (dirty / processes.clients).min(files / 2),
        read_sizes: Sizes::new(figures.read_sizes),
        write_sizes: Sizes::new(figures.write_sizes),
    });
    let load = move || {
        processes.load(seed, |number, mut rng| SmbProcess {
            mix: mix.clone(),
            thinker: Thinker::new(Nanos(of_an_operation.round() as u64), rng.fork()),
            rng,
            start: files * number,
            read_end: Bytes::ZERO,
            run: Bytes::ZERO..Bytes::ZERO,
            dirty: DirtyPages::new(files),
            write_back: None,
            inode: Inode::Clean,
            under_way: None,
        })
    };
    Ok(Workload::new(about.name, span, processes.requests, load))
}

/// Limit of the files of all processes together. Bitmaps of dirty pages then take 128 MiB of memory.
const MOST_FILES: Bytes = Bytes(4 << 40);
/// Largest request of the page cache.
const LARGEST: Bytes = Bytes(512 << 10);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
}

impl std::str::FromStr for Answer {
    type Err = ();
    fn from_str(text: &str) -> Result<Answer, ()> {
        match text {
            "yes" => Ok(Answer::Yes),
            "no" => Ok(Answer::No),
            _ => Err(()),
        }
    }
}

/// State of the inode: dirty if the process has written since its last flush.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inode {
    Clean,
    Dirty,
}

/// A writeback. `range` begins at the current position.
struct WriteBack {
    range: Range<Bytes>,
    /// Dirty if a write of the inode follows; then a flush of the volume, depending on `barrier`.
    inode: Inode,
    barrier: Answer,
}

struct Mix {
    files: Bytes,
    sequential: f64,
    short_lived: f64,
    barrier: Answer,
    inodes: Answer,
    /// Shares of all operations. The rest are operations on names and attributes.
    read: f64,
    write: f64,
    flush: f64,
    /// Share of reads that memory answers.
    cached: f64,
    /// Limit of dirty bytes of one process.
    dirty: Bytes,
    read_sizes: Sizes,
    write_sizes: Sizes,
}

struct SmbProcess {
    mix: Arc<Mix>,
    rng: Rng,
    thinker: Thinker,
    /// Start of the process's files. All other offsets are relative to `start`.
    start: Bytes,
    /// End of the last read.
    read_end: Bytes,
    /// The last sequential run of writes.
    run: Range<Bytes>,
    dirty: DirtyPages,
    write_back: Option<WriteBack>,
    /// Dirty only with `inodes=yes`.
    inode: Inode,
    /// Bytes of an operation that has made a request and is not complete.
    under_way: Option<Bytes>,
}

impl Iterator for SmbProcess {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(request) = self.next_write_back() {
            return Some(Step::Request { think: Nanos::ZERO, request });
        }
        if let Some(bytes) = self.under_way.take() {
            return Some(Step::Operation { think: Nanos::ZERO, bytes });
        }
        let think = self.thinker.think();
        let (bytes, request) = self.operation();
        Some(match request {
            None => Step::Operation { think, bytes },
            Some(request) => {
                self.under_way = Some(bytes);
                Step::Request { think, request }
            }
        })
    }
}

impl SmbProcess {
    /// Begins the next operation. Returns its bytes read or written, and its first request, if any.
    fn operation(&mut self) -> (Bytes, Option<Request>) {
        let (drawn, mix) = (self.rng.unit(), &self.mix);
        match drawn {
            drawn if drawn < mix.read => self.read(),
            drawn if drawn < mix.read + mix.write => self.write(),
            drawn if drawn < mix.read + mix.write + mix.flush => {
                let inode = std::mem::replace(&mut self.inode, Inode::Clean);
                self.write_back = Some(WriteBack { range: self.run.clone(), inode, barrier: mix.barrier });
                (Bytes::ZERO, self.next_write_back())
            }
            _ => (Bytes::ZERO, None),
        }
    }

    fn read(&mut self) -> (Bytes, Option<Request>) {
        let len = self.mix.read_sizes.draw(&mut self.rng);
        let offset = self.place(self.read_end, len);
        self.read_end = offset + len;
        let is_cached = self.rng.chance(self.mix.cached);
        (len, (!is_cached).then_some(Request { op: Op::Read, offset: self.start + offset, len }))
    }

    fn write(&mut self) -> (Bytes, Option<Request>) {
        let len = self.mix.write_sizes.draw(&mut self.rng);
        let offset = self.place(self.run.end, len);
        if offset != self.run.end {
            self.run.start = offset;
        }
        self.run.end = offset + len;
        if self.mix.inodes == Answer::Yes {
            self.inode = Inode::Dirty;
        }
        if self.rng.chance(self.mix.short_lived) {
            return (len, None);
        }
        if self.mix.dirty < PAGE {
            return (len, Some(Request { op: Op::Write, offset: self.start + offset, len }));
        }
        self.dirty.mark(offset..offset + len);
        if self.dirty.bytes() >= self.mix.dirty {
            let range = Bytes::ZERO..self.mix.files;
            self.write_back = Some(WriteBack { range, inode: Inode::Clean, barrier: Answer::No });
        }
        (len, self.next_write_back())
    }

    /// Draws the offset of a request: `end`, the end of the last request of the same kind, or a random page.
    fn place(&mut self, end: Bytes, len: Bytes) -> Bytes {
        let files = self.mix.files;
        let follows = self.rng.chance(self.mix.sequential) && end + len <= files;
        if follows { end } else { PAGE * self.rng.below((files - len) / PAGE + 1) }
    }

    fn next_write_back(&mut self) -> Option<Request> {
        let WriteBack { range, inode, barrier } = self.write_back.as_mut()?;
        if let Some(run) = self.dirty.take(range.clone(), LARGEST) {
            range.start = run.end;
            return Some(Request { op: Op::Write, offset: self.start + run.start, len: run.end - run.start });
        }
        if std::mem::replace(inode, Inode::Clean) == Inode::Dirty {
            return Some(Request { op: Op::Write, offset: self.start, len: PAGE });
        }
        let is_followed = *barrier == Answer::Yes;
        self.write_back = None;
        is_followed.then_some(Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO })
    }
}
