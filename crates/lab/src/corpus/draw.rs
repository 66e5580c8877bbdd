//! Which cells a seed gives.
//!
//! Seed and name give each cell a stream of random numbers of its own. So a cell stays the same if other cells, other
//! traces or another number of cells are drawn. Kinds of cells take turns: the first few cells are of all kinds.

use super::cell::{Cell, Change, Half, Pace, Requests, Start, hash};
use super::loads::{CHANGING, FAMILIES, Family, pick};
use super::traces::Recorded;
use braid_base::Rng;

/// Cells of a seed.
#[derive(Clone, PartialEq, Debug)]
pub struct Corpus {
    /// The seed.
    pub seed: u64,
    /// The cells, kinds by turns.
    pub cells: Vec<Cell>,
    /// Whether there is a trace among them.
    pub has_traces: bool,
}

/// As many cells as the corpus has unless told otherwise.
pub const USUAL_CELLS: usize = 160;

/// Requests of the warm-up, and measured ones: at the rates of a cell some 20 to 100 s each.
const LENGTHS: [usize; 2] = [18_000, 12_000];

/// Records of a window that is played once: half of them are the warm-up.
const WINDOW: u64 = 30_000;

/// Kinds of cells, by turns.
const TURNS: [Turn; 10] = [
    Turn::Steady,
    Turn::Trace,
    Turn::Change,
    Turn::Steady,
    Turn::Trace,
    Turn::Steady,
    Turn::Change,
    Turn::Steady,
    Turn::Trace,
    Turn::Steady,
];

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Steady,
    Trace,
    Change,
}

const CHANGES: [(&str, Change); 5] = [
    ("surge", Change::Surge),
    ("moved", Change::Moved),
    ("scan", Change::Scan),
    ("backup", Change::Backup),
    ("fill", Change::Fill),
];

impl Corpus {
    /// So many cells of a seed, with windows of these traces among them, if there are any.
    pub fn draw(seed: u64, count: usize, traces: &[Recorded]) -> Corpus {
        let (mut steady, mut recorded, mut changing) = (0, 0, 0);
        let mut next = |turn: &Turn| match turn {
            Turn::Trace if !traces.is_empty() => {
                recorded += 1;
                let (trace, number) =
                    (&traces[(recorded - 1) % traces.len()], (recorded - 1) / traces.len() + 1);
                Draw::new(seed, format!("trace-{}-{number}", trace.name)).trace(trace)
            }
            Turn::Change => {
                changing += 1;
                let (name, change) = CHANGES[(changing - 1) % CHANGES.len()];
                let number = (changing - 1) / CHANGES.len() + 1;
                Draw::new(seed, format!("{name}-{number}")).change(change)
            }
            Turn::Steady | Turn::Trace => {
                steady += 1;
                let family = FAMILIES[(steady - 1) % FAMILIES.len()];
                let number = (steady - 1) / FAMILIES.len() + 1;
                Draw::new(seed, format!("{}-{number}", family.name())).steady(family)
            }
        };
        let cells = TURNS.iter().cycle().take(count).map(&mut next).collect();
        Corpus { seed, cells, has_traces: !traces.is_empty() }
    }

    /// The cell of this name.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.name == name)
    }
}

/// Draws one cell.
struct Draw {
    name: String,
    rng: Rng,
}

impl Draw {
    fn new(seed: u64, name: String) -> Draw {
        let rng = Rng::new(hash(&name) ^ Rng::new(seed).next_u64());
        Draw { name, rng }
    }

    fn steady(mut self, family: Family) -> Cell {
        let load = family.draw(&mut self.rng, false);
        let is_open = self.rng.chance(if family.is_programme() { 0.25 } else { 0.5 });
        let ssd_percent = self.share();
        let pace = if is_open { self.open(ssd_percent) } else { self.closed(&[1, 2, 4, 8, 16, 32]) };
        self.cell(Requests::Generated { family, load }, Change::None, pace, ssd_percent, LENGTHS)
    }

    fn change(mut self, change: Change) -> Cell {
        let family = pick(&mut self.rng, &CHANGING);
        let load = family.draw(&mut self.rng, true);
        let (is_open, ssd_percent) = (self.rng.chance(0.5), self.share());
        let pace = match (change, is_open) {
            (Change::Moved, true) => self.open(ssd_percent),
            (Change::Moved, false) => self.closed(&[2, 4, 8, 16]),
            (Change::Surge, true) => Pace::Open { percent: pick(&mut self.rng, &[5, 8, 12, 18]) },
            (Change::Surge, false) => Pace::Closed {
                clients: pick(&mut self.rng, &[1, 2]),
                think_ms: pick(&mut self.rng, &[10, 20]),
            },
            (_, true) => Pace::Open { percent: pick(&mut self.rng, &[15, 30, 45]) },
            (_, false) => self.closed(&[2, 4, 8]),
        };
        self.cell(Requests::Generated { family, load }, change, pace, ssd_percent, LENGTHS)
    }

    fn trace(mut self, trace: &Recorded) -> Cell {
        let again = self.rng.chance(0.5);
        let ssd_percent = self.share();
        let pace = match self.rng.below(20) {
            0..7 => Pace::Recorded,
            7..14 => self.open(ssd_percent),
            _ => self.closed(&[4, 8, 16]),
        };
        let window = if again { WINDOW / 2 } else { WINDOW }.min(trace.records);
        let first = self.rng.below(trace.records - window + 1);
        let half = if again { window } else { window / 2 } as usize;
        let requests = Requests::Recorded { path: trace.path.clone(), first, again };
        self.cell(requests, Change::None, pace, ssd_percent, [half; 2])
    }

    fn share(&mut self) -> u32 {
        pick(&mut self.rng, &[3, 5, 8, 12, 20, 35, 50, 80, 115])
    }

    /// More than the disks can serve only if the SSD can take a part of it.
    fn open(&mut self, ssd_percent: u32) -> Pace {
        let loads: &[u32] = if ssd_percent < 12 { &[20, 40, 60, 80] } else { &[30, 60, 90, 120, 180] };
        Pace::Open { percent: pick(&mut self.rng, loads) }
    }

    /// Clients that think make at most 1,000 requests per second together, so that a cell lasts long enough.
    fn closed(&mut self, clients: &[usize]) -> Pace {
        let clients = pick(&mut self.rng, clients);
        let think_ms = match pick(&mut self.rng, &[0, 5, 10, 20]) {
            0 => 0,
            think => think.max(clients as u32),
        };
        Pace::Closed { clients, think_ms }
    }

    fn cell(
        mut self,
        requests: Requests,
        change: Change,
        pace: Pace,
        ssd_percent: u32,
        lengths: [usize; 2],
    ) -> Cell {
        let rng = &mut self.rng;
        let ssds = ["x25-m", "x25-e", "memoright-gt", "transcend-16g"];
        let new = ["sata-ssd", "nvme-ssd"];
        let ssd = if rng.chance(0.35) { pick(rng, &ssds) } else { pick(rng, &new) };
        let hdd = pick(rng, &["exos-x20", "exos-x20", "barracuda-7200.12", "mba3073", "cheetah-15k5"]);
        let disks = pick(rng, &[1, 1, 1, 2, 2, 3, 4]);
        let left = Start::Left(pick(rng, &["ssd-first", "wardrop", "working-set"]));
        let start = pick(rng, &[Start::Disks, Start::Disks, Start::Striped, Start::Address, left]);
        // Without thinking a cell of as many requests would be over too soon.
        let twice = matches!(pace, Pace::Closed { think_ms: 0, .. })
            && matches!(requests, Requests::Generated { .. });
        let lengths = if twice { lengths.map(|length| length * 2) } else { lengths };
        let seeds = [rng.next_u64(), rng.next_u64()];
        let half = Half::of(&self.name);
        let name = self.name;
        Cell { name, half, requests, change, pace, lengths, ssd, ssd_percent, hdd, disks, start, seeds }
    }
}
