//! Cells of a corpus, drawn from a seed with integers only, so the cells are the same on every machine.
//!
//! Each cell has random numbers of its own, from the seed, the name of its load and its number among the
//! cells of the load. Adding a load therefore leaves all other cells unchanged.

use super::loads::{ChangingLoad, GENERATED, PHASES};
use super::traces::{self, Given, Pace};
use super::{Cell, InitialLayout, Length, hash};
use crate::{Load, Trace};
use braid_base::{Nanos, Rng};
use std::path::{Path, PathBuf};

/// Cells of each generated load.
const OF_A_LOAD: u64 = 4;
/// Cells of each kind of changing load: half in open loop, half in closed loop.
const OF_A_CHANGE: u64 = 10;
/// The SSD's room for data, in per cent of the data.
pub const SSD_PERCENT: [u32; 14] = [3, 5, 8, 10, 15, 20, 25, 35, 50, 65, 80, 95, 105, 115];
/// Least room for a trace that touches little data.
const LEAST_OF_A_SMALL_TRACE: u32 = 10;
/// Models of SSDs: SATA, NVMe, and old ones.
pub const SSDS: [&str; 5] = ["sata-ssd", "nvme-ssd", "x25-m", "x25-e", "memoright-gt"];
/// Models of disks.
pub const DISKS: [&str; 4] = ["barracuda-7200.12", "exos-x20", "mba3073", "cheetah-15k5"];
/// Most disks of a cell.
pub const MOST_DISKS: u64 = 4;
/// Initial layouts: all on the disks as often as all other layouts together.
pub const BEGINNINGS: [InitialLayout; 8] = [
    InitialLayout::OnDisks,
    InitialLayout::OnDisks,
    InitialLayout::OnDisks,
    InitialLayout::OnDisks,
    InitialLayout::ByAddress,
    InitialLayout::Striped,
    InitialLayout::LeftBy("wardrop"),
    InitialLayout::LeftBy("exclusive,page=1MiB,period=5s"),
];
/// One in this many cells has a memory cache before the volume.
const WITH_CACHE: u64 = 12;
/// Extents of the memory cache, as in `braid simulate`.
const CACHE_EXTENTS: usize = 100;
/// Most requests of a trace in a cell, half of them for warm-up.
const MOST_OF_A_TRACE: u64 = 60_000;

/// Random choices.
pub struct Draw(Rng);

impl Draw {
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }
}

/// All cells of a seed, of both halves: generated loads, changing loads, the known traces in a folder, and
/// given traces.
pub fn cells(seed: u64, folder: &Path, given: &[PathBuf]) -> Vec<Cell> {
    let draw = |load: &str, number: u64| Draw(Rng::new(hash(&format!("{seed} {load} {number}"))));
    let mut cells = Vec::new();
    for &(name, make) in GENERATED {
        for number in 0..OF_A_LOAD {
            let mut draw = draw(name, number);
            let hardware = Hardware::draw(&mut draw);
            let (text, length) = make(&mut draw, hardware.disks);
            cells.push(hardware.cell(&mut draw, CellKind::Load, text.clone(), Load::Workload(text), length));
        }
    }
    for &(name, change) in PHASES {
        for number in 0..OF_A_CHANGE {
            let mut draw = draw(name, number);
            let hardware = Hardware::draw(&mut draw);
            let ChangingLoad { text, parts, recovery_from } =
                change(&mut draw, hardware.disks, number % 2 == 0);
            let length = Length::Times { warm_up: super::loads::HALF, measured: super::loads::HALF };
            let kind = CellKind::Change { recovery_from };
            cells.push(hardware.cell(&mut draw, kind, format!("{name}: {text}"), Load::Parts(parts), length));
        }
    }
    let known = traces::KNOWN.iter().map(|trace| trace.given(folder));
    for trace in known.chain(given.iter().map(|path| Given::of_user(path))) {
        for (pace, number) in trace.paces.iter().zip(0..) {
            cells.push(of_trace(&mut draw(&trace.name, number), &trace, *pace));
        }
    }
    tell_apart(&mut cells);
    cells
}

fn of_trace(draw: &mut Draw, trace: &Given, pace: Pace) -> Cell {
    let mut hardware = Hardware::draw(draw);
    if trace.is_small {
        hardware.ssd_percent = hardware.ssd_percent.max(LEAST_OF_A_SMALL_TRACE);
    }
    let (clients, speed, text) = match pace {
        Pace::Recorded => (None, trace.speed, "as recorded".to_owned()),
        Pace::Raised => {
            let times = draw.pick(&[2, 3, 4]);
            (None, trace.speed * f64::from(times), format!("{times} times as fast"))
        }
        Pace::Closed => {
            let clients = draw.pick(&[1, 2, 4, 8, 16]);
            (Some(clients), 1.0, format!("{clients} clients"))
        }
    };
    let max_gap = Some(Nanos::from_secs(10));
    let load = Load::Trace(Trace { clients, max_gap, ..Trace::new(&trace.path) });
    let length = Length::Requests(MOST_OF_A_TRACE);
    let cell = hardware.cell(draw, CellKind::Load, format!("trace {} {text}", trace.name), load, length);
    Cell { speed, ..cell }
}

enum CellKind {
    Load,
    Change { recovery_from: Nanos },
}

/// Hardware of a cell.
struct Hardware {
    ssd: &'static str,
    disk: &'static str,
    disks: u64,
    ssd_percent: u32,
}

impl Hardware {
    fn draw(draw: &mut Draw) -> Hardware {
        Hardware {
            ssd: draw.pick(&SSDS),
            disk: draw.pick(&DISKS),
            disks: 1 + draw.below(MOST_DISKS),
            ssd_percent: draw.pick(&SSD_PERCENT),
        }
    }

    fn cell(self, draw: &mut Draw, kind: CellKind, text: String, load: Load, length: Length) -> Cell {
        let beginning = draw.pick(&BEGINNINGS);
        let cache_extents = if draw.below(WITH_CACHE) == 0 { CACHE_EXTENTS } else { 0 };
        let seed = 1 + draw.below(1 << 32);
        let Hardware { ssd, disk, disks, ssd_percent } = self;
        let cached = if cache_extents > 0 { ", memory cache" } else { "" };
        Cell {
            name: format!("{text}; {ssd} {ssd_percent}% + {disks} {disk}; {beginning}{cached}"),
            load,
            speed: 1.0,
            ssd: ssd.to_owned(),
            ssd_percent,
            disk: disk.to_owned(),
            disks: disks as usize,
            beginning,
            cache_extents,
            length,
            recovery_from: match kind {
                CellKind::Load => None,
                CellKind::Change { recovery_from } => Some(recovery_from),
            },
            seed,
        }
    }
}

/// Adds a number to the names of cells that were drawn alike: the half of a cell follows from its name.
fn tell_apart(cells: &mut [Cell]) {
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for cell in cells {
        let times = seen.entry(cell.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            cell.name = format!("{}; again {times}", cell.name);
        }
    }
}
