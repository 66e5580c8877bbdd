//! `netapp-like`: after the trace of an engineering department's file server at NetApp. Wu and Reddy, "A
//! Novel Approach to Manage A Hybrid Storage System", replayed the trace through dbench.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | ReadX, WriteX, Flush of one process | 43,044, 47,626, 118 | paper, table I |
//! | all operations of one process | 428,763 | derived: the sum of table I |
//! | mean ReadX, WriteX | 18,105 B, 6,204 B | paper, table II |
//! | reads per write, by requests and by bytes | 0.90, 2.64 | derived |
//! | think time | none | as with dbench |
//! | processor | 0.95 ms for a read or write | derived: table III, one process makes 12.4 MB/s on SSD and disk alike, so no device explains it |
//! | short-lived writes | none | derived: 29 deletions |
//! | files of a process | 100 MiB | guessed: those of one process fit the memory, and at ten at least two reads in three do, see below |
//! | share of sequential requests | 50 % | guessed; Leung et al. (USENIX ATC 2008) found more random access than older studies |
//! | memory, dirty pages | 900 MB, 100 MB | derived: 1 GB of memory (section III); memory: a tenth of it may be dirty in Linux 2.6.28 |
//!
//! Size of the files: in table III one 15k disk serves ten processes at 26 MB/s. By the tables, 26 MB/s are
//! 1,040 reads a second. Such a disk makes some 350 random requests a second. So at least two reads in three
//! came from memory, even if writes had cost the disk nothing: ten processes have at most 1.35 GB of files.
//! With 100 MiB per process, 86 % of reads come from memory.

use crate::smb::{self, Figures};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, Bytes, Nanos, Settings};

pub(crate) const ABOUT: About = About {
    name: "netapp-like",
    summary: "processes with the reads and writes of an engineering file server (Wu and Reddy, tables I and II)",
    groups: &[OWN, pace::PROCESSES],
};

const OWN: &[Setting] = &smb::settings("100MiB", "50%", "0%", "950us");

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    smb::new(&ABOUT, &FIGURES, settings, seed)
}

const FIGURES: Figures = Figures {
    reads: 43_044,
    writes: 47_626,
    flushes: 118,
    operations: 428_763,
    // Means of 18,105 and 6,204 B.
    read_sizes: &[
        (Bytes(4 << 10), 5_257),
        (Bytes(16 << 10), 1_500),
        (Bytes(32 << 10), 2_243),
        (Bytes(60 << 10), 1_000),
    ],
    write_sizes: &[
        (Bytes(4 << 10), 8_118),
        (Bytes(8 << 10), 1_200),
        (Bytes(16 << 10), 382),
        (Bytes(32 << 10), 200),
        (Bytes(60 << 10), 100),
    ],
    files: Bytes(100 << 20),
    sequential: 0.5,
    short_lived: 0.0,
    think: Nanos::from_micros(950),
};
