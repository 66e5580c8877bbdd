//! A cell: load, devices, first layout and pace of one comparison, as plain data.

use super::loads::Family;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// One comparison. Its name and the corpus's seed decide everything else.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// As in `zipf-3`: what it is, and its number among those.
    pub name: String,
    /// What it may be used for.
    pub half: Half,
    /// What is asked for.
    pub requests: Requests,
    /// What happens to the load when the warm-up ends.
    pub change: Change,
    /// When requests come.
    pub pace: Pace,
    /// Requests before anything is measured, and measured ones; a change may add some.
    pub lengths: [usize; 2],
    /// The SSD's model.
    pub ssd: &'static str,
    /// Its room for data, per cent of all data.
    pub ssd_percent: u32,
    /// The disks' model.
    pub hdd: &'static str,
    /// How many disks.
    pub disks: usize,
    /// Where data lies before.
    pub start: Start,
    /// For all that is random in the load and in the devices, one for each repetition.
    pub seeds: [u64; 2],
}

/// What a cell may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Half {
    /// Constants may be chosen by it.
    Tuning,
    /// Figures of it may be published.
    HeldOut,
}

/// Where requests come from.
#[derive(Clone, PartialEq, Debug)]
pub enum Requests {
    /// From a generated load.
    Generated {
        /// Which kind of load.
        family: Family,
        /// The load, as `braid simulate --workload` takes it.
        load: String,
    },
    /// From a trace, from one record on.
    Recorded {
        /// The file.
        path: PathBuf,
        /// The first record of the window.
        first: u64,
        /// Whether the warm-up plays the window once before; otherwise its first half is the warm-up.
        again: bool,
    },
}

/// What happens when the warm-up ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// Ten times as much load.
    Surge,
    /// Other places are popular.
    Moved,
    /// All data is read once in order beside the load.
    Scan,
    /// At night a backup reads all data while the load is a fifth; then day comes again.
    Backup,
    /// A new programme writes data that was not there, and reads it.
    Fill,
}

/// When requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// At times of their own: so many per cent of what all disks together could serve, one request at a time
    /// each.
    Open {
        /// The mean load.
        percent: u32,
    },
    /// At a trace's own times, if these are between 2 and 100 % of what the disks could serve; else at half
    /// of that.
    Recorded,
    /// By clients that wait for their last request.
    Closed {
        /// How many.
        clients: usize,
        /// How long each thinks before a request, on average, beyond what the load says.
        think_ms: u32,
    },
}

/// Where data lies before the load begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// On the disks.
    Disks,
    /// By address: the SSD has what comes first, but for a tenth of its room.
    Address,
    /// The SSD has extents from everywhere, but for a tenth of its room.
    Striped,
    /// Where this policy places the same data.
    Left(&'static str),
}

impl Half {
    /// By the name of a cell alone.
    pub fn of(name: &str) -> Half {
        if hash(name) >> 63 == 0 { Half::Tuning } else { Half::HeldOut }
    }
}

/// FNV-1a, 64 bits, with the finaliser of splitmix64: the same on every machine and in every version.
pub(super) fn hash(text: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let z = text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Half::Tuning => "tuning",
            Half::HeldOut => "held-out",
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { name, half, ssd, ssd_percent, hdd, disks, .. } = self;
        write!(f, "{name} ({half}): {}", self.requests)?;
        write!(
            f,
            "; {:?}, {:?}; {ssd} {ssd_percent} %, {disks} {hdd}; begins {:?}",
            self.change, self.pace, self.start
        )
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requests::Generated { load, .. } => f.write_str(load),
            Requests::Recorded { path, first, again } => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                write!(f, "{file} from record {first}{}", if *again { ", second pass" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell that changed sides would carry what was tuned on it into the published figures.
    #[test]
    fn the_half_of_a_name_never_changes() {
        let halves = ["zipf-1", "zipf-2", "scan-1", "trace-msn-fs-30s-1"].map(hash);
        assert_eq!(halves, HASHES);
        let names = || (0..2000).map(|n| format!("zipf-{n}"));
        let tuning = names().filter(|name| Half::of(name) == Half::Tuning).count();
        assert!((900..=1100).contains(&tuning), "{tuning} of 2000");
    }

    const HASHES: [u64; 4] = [0x0c6bfe29ec61c055, 0x9650dd5ef2bb1cfc, 0x1b8dd30f0f17b24f, 0x1ce3fc11f6bb29d3];
}
