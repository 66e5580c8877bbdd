//! `dbench-like`: after the operations that dbench makes of a NetBench run, as Wu and Reddy, "A Novel
//! Approach to Manage A Hybrid Storage System", counted them.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | ReadX, WriteX, Flush of one process | 5,315,377, 1,690,616, 237,654 | paper, table I |
//! | all operations of one process | 19,615,625 | derived: the sum of table I |
//! | mean ReadX, WriteX | 11,853 B, 25,720 B | paper, table II |
//! | reads per write, by requests and by bytes | 3.14, 1.45 | derived |
//! | writes per flush | 7.1 | derived |
//! | think time | none | dbench's source: none unless a rate is asked for |
//! | processor | 0.1 ms for a read or write | derived: at the peak, 620 MB/s on the SSD (section II), four cores made 40,800 a second |
//! | short-lived writes | 70 % | derived: at least 68 %, see below |
//! | files of a process | 24 MiB | memory: the files of the load file of 2004 come to 20 to 25 MB |
//! | share of sequential requests | 70 % | guessed: files are written and read from start to end, in pieces |
//! | memory, dirty pages | 900 MB, 100 MB | derived: 1 GB of memory (section III); memory: a tenth of it may be dirty in Linux 2.6.28 |
//!
//! Short-lived writes: by the tables, 620 MB/s contain 253 MB/s of writes. The SSD, an X25-M, writes 70 to 80
//! MB/s. There are 4 deletions for every 10 writes. All files of up to 35 processes fit in memory, so hardly
//! any read reaches a device.

use crate::smb::{self, Figures};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, Bytes, Nanos, Settings};

pub(crate) const ABOUT: About = About {
    name: "dbench-like",
    summary: "processes with the reads, writes and flushes of dbench (Wu and Reddy, tables I and II)",
    groups: &[OWN, pace::PROCESSES],
};

const OWN: &[Setting] = &smb::settings("24MiB", "70%", "70%", "100us");

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    smb::new(&ABOUT, &FIGURES, settings, seed)
}

const FIGURES: Figures = Figures {
    reads: 5_315_377,
    writes: 1_690_616,
    flushes: 237_654,
    operations: 19_615_625,
    // Means of 11,853 and 25,721 B.
    read_sizes: &[
        (Bytes(4 << 10), 6_183),
        (Bytes(16 << 10), 2_500),
        (Bytes(32 << 10), 1_000),
        (Bytes(60 << 10), 317),
    ],
    write_sizes: &[
        (Bytes(4 << 10), 4_480),
        (Bytes(16 << 10), 1_500),
        (Bytes(32 << 10), 1_500),
        (Bytes(64 << 10), 2_520),
    ],
    files: Bytes(24 << 20),
    sequential: 0.7,
    short_lived: 0.7,
    think: Nanos::from_micros(100),
};
