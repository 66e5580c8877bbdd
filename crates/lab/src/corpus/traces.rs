//! Real traces of the corpus, with their speeds.

use std::path::{Path, PathBuf};

/// A trace known to the project, in a folder that may be missing.
pub struct Known {
    pub file: &'static str,
    pub name: &'static str,
    /// Speed-up of recorded arrivals over the file's times: as fast as the disk of one volume can serve. The
    /// times of `dtrs` were stretched a hundred times.
    pub speed: f64,
    pub paces: &'static [Pace],
    /// True if the trace touches so little data that an SSD for less than a tenth is smaller than a volume's
    /// smallest device.
    pub is_small: bool,
}

/// Arrival of a trace's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At the recorded times.
    Recorded,
    /// Two to four times as fast.
    Raised,
    /// By one to sixteen clients, each taking the next request.
    Closed,
}

const ALL: &[Pace] = &[Pace::Recorded, Pace::Raised, Pace::Closed, Pace::Closed];

/// The known traces. The traces of ARC have no times.
pub const KNOWN: &[Known] = &[
    small("financial1-first10000.spc.zst", "financial", 1.0),
    known("cloudphysics-sample.csv.zst", "cloudphysics", 1.0),
    known("ms-dtrs-127k.ascii.zst", "dtrs", 25.0),
    small("ms-tpcc-small.ascii.zst", "tpcc", 1.0 / 300.0),
    small("msr-cut10k-rw_20_80.105.trace.zst", "msr-20", 1.0),
    small("msr-cut10k-rw_40_60.1370.trace.zst", "msr-40", 1.0),
    known("websearch1-60s.mqsim.zst", "websearch", 0.2),
    known("iozone.disksim.zst", "iozone", 1.0),
    known("msn-fs-30s.ms.zst", "msn-fs", 0.125),
    known("pcmark.disksim.zst", "pcmark", 1.0),
    small("hdfs-write.blkparse.zst", "hdfs-write", 0.25),
    Known { paces: &[Pace::Closed, Pace::Closed], ..known("arc-OLTP.lis.zst", "arc-oltp", 1.0) },
    Known { paces: &[Pace::Closed, Pace::Closed], ..known("arc-P3.lis.zst", "arc-p3", 1.0) },
];

const fn known(file: &'static str, name: &'static str, speed: f64) -> Known {
    Known { file, name, speed, paces: ALL, is_small: false }
}

const fn small(file: &'static str, name: &'static str, speed: f64) -> Known {
    Known { is_small: true, ..known(file, name, speed) }
}

/// A trace with its path.
pub struct Given {
    pub name: String,
    pub path: PathBuf,
    pub speed: f64,
    pub paces: &'static [Pace],
    pub is_small: bool,
}

impl Known {
    pub fn given(&self, folder: &Path) -> Given {
        let Known { file, name, speed, paces, is_small } = *self;
        Given { name: name.to_owned(), path: folder.join(file), speed, paces, is_small }
    }
}

impl Given {
    /// A trace named by a user: cells are named by the file's name, independently of its folder.
    pub fn of_user(path: &Path) -> Given {
        let name =
            path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into());
        Given { name, path: path.to_owned(), speed: 1.0, paces: ALL, is_small: false }
    }
}
