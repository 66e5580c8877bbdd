//! `netapp-like`: after the trace of an engineering department's file server at NetApp, as Wu and Reddy, "A Novel Approach
//! to Manage A Hybrid Storage System", replayed it through dbench.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | ReadX, WriteX, Flush of one process | 43,044, 47,626, 118 | paper, table I |
//! | mean ReadX, WriteX | 18,105 B, 6,204 B | paper, table II |
//! | reads per write, by requests and by bytes | 0.90, 2.64 | derived |
//! | think time | none | as with dbench |
//! | files of a process | 256 MiB | guessed: a process reads 779 MB and writes 295 MB in all |
//! | share of sequential requests | 50 % | guessed; Leung et al. (USENIX ATC 2008) found more random access than older studies |
//! | share of cached reads | 90 % | guessed; at least 65 %, see below |
//!
//! Of the cached share: in table III one 15k disk serves ten processes at 26 MB/s. By the tables these are 1,040 reads and 1,150
//! writes a second, and such a disk makes some 350 random requests a second. So at least two reads in three came from
//! memory, even if writes had cost the disk nothing.

use crate::smb::{self, Figures};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, Bytes, Settings};

pub(crate) const ABOUT: About = About {
    name: "netapp-like",
    summary: "processes with the reads and writes of an engineering file server (Wu and Reddy, tables I and II)",
    groups: &[OWN, pace::PROCESSES],
};

const OWN: &[Setting] = &smb::settings("256MiB", "50%", "90%");

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    smb::new(&ABOUT, &FIGURES, settings, seed)
}

const FIGURES: Figures = Figures {
    reads: 43_044,
    writes: 47_626,
    flushes: 118,
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
    files: Bytes(256 << 20),
    sequential: 0.5,
    cached: 0.9,
};
