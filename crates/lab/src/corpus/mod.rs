//! The corpus: many cells, each a load on devices with an initial layout chosen by no policy. All policies
//! run on all cells. The corpus judges policies; there is no paper for comparison.
//!
//! ```text
//! draw.rs     cells drawn from a seed                   loads.rs    generated loads, and loads with phases
//! traces.rs   real traces                               layout.rs   layouts before a run
//! rows.rs     policies and splits of a cell             oracle.rs   layout with knowledge of the load
//! bound/      cache with knowledge of the load          run.rs      runs cells
//! kept.rs     results in a file, to resume a run        score.rs    ratios and their summary
//! picture.rs  the picture
//! ```
//!
//! **Judged part.** The judged part is the same for all rows of a cell: the second half of the time, or of
//! the requests if the load is a trace. The first half is the warm-up. In a changing load, the change comes
//! at the beginning of the second half and is judged with the rest.
//!
//! **Tuning and published.** Cells are divided by a hash of their names. Constants may be tuned on the tuning
//! half; only the figures of the published half show how good a policy is.
//!
//! **No row is a proven bound.** The oracle is the best static layout by predicted costs of single requests,
//! chosen with knowledge of the judged part. A policy that moves data or caches blocks may be better, and so
//! may a layout that divides a load between the devices. The bound is a cache that knows the load. `bound/`
//! says in which respects the bound is optimistic, and in which a policy may be better.

mod bound;
mod draw;
mod kept;
mod layout;
mod loads;
mod oracle;
mod picture;
mod rows;
mod run;
mod score;
mod traces;

pub use draw::cells;
pub use kept::Kept;
pub(crate) use layout::ranges;
pub use layout::room;
pub use picture::page;
pub use rows::{Group, Row, chosen, rows};
pub use run::{CellRun, CorpusOptions, Figures, Ran, RowRun, run};
pub use score::{RowScore, Scores, score};

use crate::{DeviceSetup, Error, Load, Readahead, Result, Setup, WarmUp};
use braid_base::{DeviceClass, Nanos};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A load on devices, from an initial layout.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// Name of the cell: its drawn properties, in words. The name contains no folder.
    pub name: String,
    /// The load.
    pub load: Load,
    /// Open loop: speed-up of arrivals over the written times.
    pub speed: f64,
    /// Model of the SSD.
    pub ssd: String,
    /// The SSD's room for data, in per cent of the data used by the load.
    pub ssd_percent: u32,
    /// Model of the disks.
    pub disk: String,
    /// Number of disks.
    pub disks: usize,
    /// Initial layout of data, before the load begins.
    pub beginning: InitialLayout,
    /// Extents in the memory cache before the volume; usually 0, for none.
    pub cache_extents: usize,
    /// Length of the cell.
    pub length: Length,
    /// In a changing load: the time from which on the return to a steady state is measured, from the
    /// beginning of the judged part.
    pub recovery_from: Option<Nanos>,
    /// Seed of workload and devices.
    pub seed: u64,
}

/// Initial layout of data, before the load begins. SSDs are full except for a tenth; the rest of the data is
/// on the disks in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitialLayout {
    /// All data on the disks.
    OnDisks,
    /// The lowest addresses on the SSD.
    ByAddress,
    /// Extents from the whole address space on the SSD, spread evenly.
    Striped,
    /// The homes left by another policy, after it placed the data and served the first half of the load.
    LeftBy(&'static str),
}

impl fmt::Display for InitialLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitialLayout::OnDisks => write!(f, "all on the disks"),
            InitialLayout::ByAddress => write!(f, "by address"),
            InitialLayout::Striped => write!(f, "striped"),
            InitialLayout::LeftBy(policy) => {
                write!(f, "left by {}", policy.split(',').next().unwrap_or_default())
            }
        }
    }
}

/// Length of a cell: half of the cell is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Times of the two parts.
    Times {
        /// Time before the judged part.
        warm_up: Nanos,
        /// Time of the judged part.
        measured: Nanos,
    },
    /// Most requests, or as many as the load has.
    Requests(u64),
}

/// Half of the corpus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// Cells for tuning constants.
    Tuning,
    /// Cells for published figures.
    Published,
}

impl FromStr for Half {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Half, String> {
        match text {
            "tuning" => Ok(Half::Tuning),
            "published" => Ok(Half::Published),
            _ => Err(format!("'{text}' is not a half of the corpus: use tuning or published")),
        }
    }
}

/// Factor by which a quick run is shorter.
const QUICK: u64 = 20;
/// Intervals of the judged part, for judging steadiness and recovery.
const INTERVALS: u64 = 60;
/// Room of all disks together, in per cent of the data used by the load.
const DISKS_PERCENT: usize = 140;

impl Cell {
    /// Half to which the cell belongs.
    pub fn half(&self) -> Half {
        if hash(&self.name) & 1 == 0 { Half::Tuning } else { Half::Published }
    }

    /// Place in a sample: from another part of the hash than the half, so that a small sample has cells of
    /// all kinds.
    fn place_in_sample(&self) -> u64 {
        hash(&self.name).rotate_right(1)
    }

    /// File of the trace, if the load is a trace.
    pub fn trace(&self) -> Option<&Path> {
        match &self.load {
            Load::Trace(trace) => Some(&trace.path),
            _ => None,
        }
    }

    /// Setup of this cell under a policy, without an initial layout.
    ///
    /// # Errors
    /// If the devices are invalid.
    pub(crate) fn setup(&self, policy: &str, quick: bool) -> Result<Setup> {
        let disks = DISKS_PERCENT.div_ceil(self.disks);
        let devices = vec![
            DeviceSetup::parse(DeviceClass::Ssd, &format!("{}%,model={}", self.ssd_percent, self.ssd))?,
            DeviceSetup::parse(
                DeviceClass::Hdd,
                &format!("{disks}%,model={},count={}", self.disk, self.disks),
            )?,
        ];
        let by = if quick { QUICK } else { 1 };
        let setup = Setup::new(devices, policy, self.shortened(by));
        let (warm_up, duration, requests) = match self.length {
            Length::Times { warm_up, measured } => (WarmUp::Time(warm_up / by), Some(measured / by), None),
            Length::Requests(requests) => (WarmUp::Share(0.5), None, Some(requests / by)),
        };
        Ok(Setup {
            seed: self.seed,
            speed: self.speed,
            cache_extents: self.cache_extents,
            readahead: if self.cache_extents > 0 { Readahead::default() } else { Readahead::Off },
            warm_up,
            duration,
            requests,
            interval: duration.map(|duration| duration / INTERVALS),
            ..setup
        })
    }

    /// The load, with the times of its parts divided by `by`.
    fn shortened(&self, by: u64) -> Load {
        let Load::Parts(parts) = &self.load else { return self.load.clone() };
        let mut parts = parts.clone();
        for part in &mut parts {
            part.from = part.from / by;
            part.until = if part.until == Nanos::MAX { Nanos::MAX } else { part.until / by };
        }
        Load::Parts(parts)
    }

    pub(crate) fn recovery_from(&self, quick: bool) -> Option<f64> {
        let by = if quick { QUICK as f64 } else { 1.0 };
        self.recovery_from.map(|from| from.as_secs_f64() / by)
    }
}

/// Cells of this half whose names contain one of `parts`, at most `most`. The same sample is drawn each time,
/// independently of other cells of the corpus.
///
/// # Errors
/// If one of the parts is in no name of a cell of this half.
pub fn sample(
    mut cells: Vec<Cell>,
    half: Option<Half>,
    parts: &[String],
    most: Option<usize>,
) -> Result<Vec<Cell>> {
    let is_of_half = |cell: &Cell| half.is_none_or(|half| cell.half() == half);
    for part in parts {
        let with: Vec<&Cell> = cells.iter().filter(|cell| cell.name.contains(part.as_str())).collect();
        if with.iter().any(|cell| is_of_half(cell)) {
            continue;
        }
        return Err(Error::setup(match (with.len(), cells.first()) {
            (0, Some(cell)) => format!(
                "--cell {part}: no cell has this in its name: use a part of a name, for example of '{}'",
                cell.name
            ),
            (0, None) => format!("--cell {part}: there are no cells: leave --cell out"),
            (count, _) => {
                format!(
                    "--cell {part}: the other half has all {count} cells with this in their names: leave --half out"
                )
            }
        }));
    }
    let is_meant =
        |cell: &Cell| parts.is_empty() || parts.iter().any(|part| cell.name.contains(part.as_str()));
    cells.retain(|cell| is_of_half(cell) && is_meant(cell));
    if let Some(most) = most {
        cells.sort_by_key(Cell::place_in_sample);
        cells.truncate(most);
    }
    Ok(cells)
}

/// FNV-1a with mixed bits: stable for ever, unlike the hashes of maps.
pub(crate) fn hash(text: &str) -> u64 {
    let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    braid_base::Rng::new(sum).next_u64()
}

/// Adds the cell and the row to an error.
fn in_cell(cell: &Cell, row: &str, error: Error) -> Error {
    Error::new(error.kind(), format!("{} under {row}: {error}", cell.name))
}

#[cfg(test)]
mod tests;
