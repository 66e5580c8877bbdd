//! The corpus: many cells, each a load on devices from a beginning that no policy chose, on which all
//! policies run. It judges policies; it has no paper beside it.
//!
//! ```text
//! draw.rs     the cells, from a seed     loads.rs  generated loads, and those that change     traces.rs  real traces
//! layout.rs   what lies where before     rows.rs   what runs in a cell     oracle.rs  a layout that knows the load     bound/  a cache that knows it
//! run.rs      runs cells                 kept.rs   results in a file, so that a run may be stopped and go on
//! score.rs    ratios and their summary   picture.rs  the picture
//! ```
//!
//! **What is judged** is the same for all rows of a cell: the second half of its time, or of its requests if
//! the load is a trace. The first half warms up. In a load that changes, the change comes at the beginning of
//! the second half and is judged with what follows.
//!
//! **Tuning and published.** Cells are divided by a hash of their names. Constants may be chosen by the
//! tuning half; the figures of the published half alone say how good a policy is.
//!
//! **No row is a proven bound.** The oracle is the best static layout by predicted costs of single requests,
//! chosen with the knowledge of what is judged. A policy that moves data or caches blocks may be better, and
//! so may a layout that divides a load between the devices. The bound is a cache that knows the load; in
//! which respects it is optimistic, and in which a policy may be better, is said in `bound/`.

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
pub use run::{CellRun, Figures, How, Ran, RowRun, run};
pub use score::{RowScore, Scores, score};

use crate::{DeviceSetup, Error, Load, Readahead, Result, Setup, WarmUp};
use braid_base::{DeviceClass, Nanos};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A load on devices, from a beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// What was drawn, in words. It names no folder.
    pub name: String,
    /// The load.
    pub load: Load,
    /// How much faster than written requests of an open loop come.
    pub speed: f64,
    /// The SSD's model.
    pub ssd: String,
    /// Its room for data, in per cent of what the load uses.
    pub ssd_percent: u32,
    /// The disks' model.
    pub disk: String,
    /// How many disks there are.
    pub disks: usize,
    /// What lies where before the load begins.
    pub beginning: Beginning,
    /// Extents in the memory cache before the volume; 0 for none, as is usual.
    pub cache_extents: usize,
    /// How long it is.
    pub length: Length,
    /// In a load that changes: from when on the return to a steady state is measured, from the beginning of
    /// what is judged.
    pub recovery_from: Option<Nanos>,
    /// Seed of workload and devices.
    pub seed: u64,
}

/// What lies where before the load begins. SSDs are full but for a tenth, and what they do not hold lies on
/// the disks by turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// All on the disks.
    OnDisks,
    /// The lowest addresses on the SSD.
    ByAddress,
    /// Extents from the whole address space on the SSD, spread evenly.
    Striped,
    /// The homes that another policy left, which placed the data and then had the first half of the load.
    LeftBy(&'static str),
}

impl fmt::Display for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Beginning::OnDisks => write!(f, "all on the disks"),
            Beginning::ByAddress => write!(f, "by address"),
            Beginning::Striped => write!(f, "striped"),
            Beginning::LeftBy(policy) => {
                write!(f, "left by {}", policy.split(',').next().unwrap_or_default())
            }
        }
    }
}

/// How long a cell is: half of it is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So long before what is judged, and so long for that.
    Times {
        /// Before.
        warm_up: Nanos,
        /// What is judged.
        measured: Nanos,
    },
    /// At most so many requests, or as many as the load has.
    Requests(u64),
}

/// Which cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// Those that constants may be chosen by.
    Tuning,
    /// Those whose figures count.
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

/// A quick run is so much shorter.
const QUICK: u64 = 20;
/// Intervals of what is judged, by which steadiness and recovery are told.
const INTERVALS: u64 = 60;
/// Room of all disks together, in per cent of what the load uses.
const DISKS_PERCENT: usize = 140;

impl Cell {
    /// The half that it belongs to.
    pub fn half(&self) -> Half {
        if hash(&self.name) & 1 == 0 { Half::Tuning } else { Half::Published }
    }

    /// Its place in a sample: by another part of the hash than the half, so that few cells are of all kinds.
    fn place_in_sample(&self) -> u64 {
        hash(&self.name).rotate_right(1)
    }

    /// The trace's file, if the load is one.
    pub fn trace(&self) -> Option<&Path> {
        match &self.load {
            Load::Trace(trace) => Some(&trace.path),
            _ => None,
        }
    }

    /// The setup of this cell under a policy, without a beginning.
    ///
    /// # Errors
    /// Devices that cannot be.
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

    /// The load, whose parts begin and end so much earlier.
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

/// The cells of these halves whose names contain one of these parts, or so many of them: the same ones each
/// time, whatever else the corpus has.
///
/// # Errors
/// A part that no cell's name contains.
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
                "--cell {part}: no cell has this in its name: use a part of a name, which is like '{}'",
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

/// FNV-1a, with its bits mixed: the same for ever, unlike the hashes of maps.
pub(crate) fn hash(text: &str) -> u64 {
    let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    braid_base::Rng::new(sum).next_u64()
}

/// An error with the cell and the row that it is of.
fn in_cell(cell: &Cell, row: &str, error: Error) -> Error {
    Error::new(error.kind(), format!("{} under {row}: {error}", cell.name))
}

#[cfg(test)]
mod tests;
