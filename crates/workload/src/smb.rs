//! What `dbench-like` and `netapp-like` share: processes that replay file-server operations, each in a
//! directory of its own, on a machine with a page cache.
//!
//! From Wu and Reddy, tables I and II, come the counts of ReadX, WriteX and Flush and the mean sizes of reads
//! and writes. With `memory=0B,dirty=0B,short-lived=0%,barrier=yes` that is what the volume sees. But it did
//! not see that in the paper: a 15k disk alone serves ten processes of the NetApp trace at 26 MB/s (table
//! III), 1,040 reads and 1,150 writes a second by the tables, three times what it can do. So the page cache
//! belongs to the workload. What is known of it:
//!
//! - *Reads* are answered from memory for the share of all files that `memory` holds; the others appear as
//!   they are.
//! - *Writes* make pages dirty. Once `dirty` bytes are, divided among the processes, the process that writes
//!   has to write back, as in Linux 2.6.28: its dirty pages in the order of their addresses, neighbours as
//!   one request of at most 512 KiB. It waits for each; the real one keeps several in flight, which matters
//!   where processes are few, and writes 6 MiB at most before it asks again whether that is enough
//!   (`balance_dirty_pages`), while `pdflush` writes beside it from half of `dirty` on.
//! - `short-lived` is the share of writes whose file is deleted before that.
//! - *Flush* writes back what the process wrote last, up to where it began elsewhere. The paper's file system
//!   is ext2, which does not flush devices: only with `barrier=yes` a flush follows. It does write the file's
//!   inode, if that is dirty (`ext2_sync_file` of Linux 2.6.28): with `inodes=yes` a block of 4 KiB, after a
//!   flush that follows a write. Where the process's files begin stands for its place: the inodes of one
//!   directory lie in a few blocks of the same block group. It is not the default, as what was derived from
//!   the paper's rates (`short-lived`, the processor's time) was derived without it.
//! - *Processor*: `think` passes for each read and write, cached or not. Each comes with its share of the
//!   operations of table I on names and attributes, and of flushes; each operation takes the same part of
//!   that time on average.
//!
//! Guessed besides, and to be set: sizes are a mix of 4 to 64 KiB with the table's mean; `files` is what one
//! process's files take, all there from the start, one directory after the other; `sequential` is the share
//! of reads, and of writes, that begin where the last one ended, the others begin at any page. Operations on
//! names and attributes take the processor alone: the file system gathers what they change in few blocks,
//! which it writes seldom.
//!
//! Each operation ends with a [`Step::Operation`], so that a simulation sees what the process counts itself.

use crate::catalogue::Setting;
use crate::draw::Sizes;
use crate::pace::{DAY, Processes, Thinker};
use crate::page_cache::{DirtyPages, PAGE};
use crate::{About, Step, Workload};
use braid_base::{BadSetting, Bytes, MIB, Nanos, Op, Request, Rng, Settings, TIB};
use std::ops::Range;
use std::sync::Arc;

/// The figures of one workload.
pub(crate) struct Figures {
    /// Counts of operations of one process: table I.
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    /// These, and those on names and attributes.
    pub operations: u64,
    /// Sizes with weights, whose means are those of table II.
    pub read_sizes: &'static [(Bytes, u64)],
    pub write_sizes: &'static [(Bytes, u64)],
    /// Guesses.
    pub files: Bytes,
    pub sequential: f64,
    pub short_lived: f64,
    pub think: Nanos,
}

/// The settings; some have defaults of their own for each workload.
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
            meaning: "mean time of the processor for a read or write, and what comes with it",
        },
        Setting {
            key: "memory",
            default: "900MB",
            meaning: "page cache; reads of what it holds reach no device",
        },
        Setting {
            key: "dirty",
            default: "100MB",
            meaning: "bytes that may be dirty; 0B: each write goes by itself",
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
        // A process whose files would all be dirty writes back when half of them are.
        dirty: (dirty / processes.clients).min(files / 2),
        read_sizes: Sizes::new(figures.read_sizes),
        write_sizes: Sizes::new(figures.write_sizes),
    });
    let load = move || {
        processes.load(seed, |number, mut rng| Process {
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

/// Bytes of files of all processes: their dirty pages take 128 MiB of memory.
const MOST_FILES: Bytes = Bytes(4 << 40);
/// The largest request that a page cache makes.
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

/// Whether a process has written since its last flush.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inode {
    Clean,
    Dirty,
}

/// What is being written back, from where it has got to.
struct WriteBack {
    range: Range<Bytes>,
    /// Whether an inode follows, and then a flush.
    inode: Inode,
    barrier: Answer,
}

struct Mix {
    files: Bytes,
    sequential: f64,
    short_lived: f64,
    barrier: Answer,
    inodes: Answer,
    /// Shares of all operations; the others are on names and attributes.
    read: f64,
    write: f64,
    flush: f64,
    /// Share of reads that memory answers.
    cached: f64,
    /// How much one process may have dirty.
    dirty: Bytes,
    read_sizes: Sizes,
    write_sizes: Sizes,
}

struct Process {
    mix: Arc<Mix>,
    rng: Rng,
    thinker: Thinker,
    /// Where its files begin. Other offsets count from there.
    start: Bytes,
    /// Where the last read ended.
    read_end: Bytes,
    /// What was last written in sequence.
    run: Range<Bytes>,
    dirty: DirtyPages,
    write_back: Option<WriteBack>,
    /// Where inodes are written at all.
    inode: Inode,
    /// What the operation reads or writes that has made a request and is not complete.
    under_way: Option<Bytes>,
}

impl Iterator for Process {
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

impl Process {
    /// Begins the next operation: what it reads or writes, and the first of its requests, if there are any.
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

    /// Where a request begins: at `end`, where the last of its kind ended, or at any page.
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
