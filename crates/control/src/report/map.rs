//! Where the data of a volume lies, and its heat: a picture of at most 4,096 cells. Part of the stable JSON.

use serde::{Deserialize, Serialize};

/// The map of a volume, in cells of equal size.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct MapReport {
    /// Name of the volume.
    pub name: String,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Bytes of a cell; the last cell may be shorter.
    pub cell_bytes: u64,
    /// One of so many extents was examined: 1 for a volume whose cells have at most 1,024 extents.
    pub examined_one_in: u32,
    /// Time since the places were examined.
    pub examined_seconds_ago: f64,
    /// The device in question, as asked for: `d1`.
    pub on_device: Option<String>,
    /// The cells.
    pub map_cells: CellsReport,
}

/// Cells of a map: lists of equal length, a value for each cell.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellsReport {
    /// Share of the extents with a home.
    pub mapped_share: Vec<f64>,
    /// Share of the homes that are on SSDs; 0 without homes.
    pub ssd_share: Vec<f64>,
    /// Share of the extents with a required copy on the device in question; empty without such a device.
    pub on_device_share: Vec<f64>,
    /// Share of the blocks with an extra copy.
    pub extra_share: Vec<f64>,
    /// Share of the extents with lost bytes.
    pub lost_share: Vec<f64>,
    /// Device with most of the homes: `d0`; null without homes.
    pub main_device: Vec<Option<String>>,
    /// Offset of the first examined extent with a home; null without homes.
    pub first_mapped_bytes: Vec<Option<u64>>,
    /// Guests' reads and writes in a second: a mean that forgets half of the past in five minutes. Null in
    /// the first two seconds of the daemon.
    pub cell_requests_per_second: Vec<Option<f64>>,
}
