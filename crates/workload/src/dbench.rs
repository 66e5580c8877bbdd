//! `dbench-like`: after the operations that dbench makes of a NetBench run, as Wu and Reddy, "A Novel Approach to Manage A
//! Hybrid Storage System", counted them.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | ReadX, WriteX, Flush of one process | 5,315,377, 1,690,616, 237,654 | paper, table I |
//! | mean ReadX, WriteX | 11,853 B, 25,720 B | paper, table II |
//! | reads per write, by requests and by bytes | 3.14, 1.45 | derived |
//! | writes per flush | 7.1 | derived |
//! | think time | none | dbench's source: none unless a rate is asked for |
//! | files of a process | 24 MiB | memory: the files of the load file of 2004 come to 20 to 25 MB |
//! | share of sequential requests | 70 % | guessed: files are written and read from start to end, in pieces |
//! | share of cached reads | 95 % | guessed: the processes' files fit the memory of the paper's machine, 1 GB, so devices see mainly writes |

use crate::smb::{self, Figures};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, Bytes, Settings};

pub(crate) const ABOUT: About = About {
    name: "dbench-like",
    summary: "processes with the reads, writes and flushes of dbench (Wu and Reddy, tables I and II)",
    groups: &[OWN, pace::PROCESSES],
};

const OWN: &[Setting] = &smb::settings("24MiB", "70%", "95%");

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    smb::new(&ABOUT, &FIGURES, settings, seed)
}

const FIGURES: Figures = Figures {
    reads: 5_315_377,
    writes: 1_690_616,
    flushes: 237_654,
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
    cached: 0.95,
};
