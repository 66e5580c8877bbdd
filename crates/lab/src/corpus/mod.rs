//! The corpus: at least 150 small simulations that judge a policy, drawn from a seed.
//!
//! A single benchmark can be won by a constant. The corpus draws its *cells* at random: a load, devices, the
//! data's first layout, and how requests come. Each *row* (a policy, a static split, an oracle) runs in each
//! cell, and is compared with the best row of the cell.
//!
//! ```text
//! cell.rs     a cell: plain data, from its name           draw.rs      which cells a seed gives
//! loads.rs    texts of generated loads                    traces.rs    windows of real traces
//! change.rs   loads that change in the middle             write.rs     a cell's load as a script
//! rows.rs     who is compared, and where each applies     heat.rs      the static oracle
//! belady.rs   which blocks a clairvoyant cache holds      clairvoyant.rs  such a cache on the models' devices
//! run.rs      runs cells, on all cores                    score.rs     ratios, noise, totals
//! picture.rs  the curves                                  report.rs    page and text
//! table.rs    every value, to be read again
//! ```
//!
//! **The same requests.** A load is written down before it runs ([`crate::Script`]), so all rows serve the
//! same requests in the same order: at written times (open loop, latency counts from the intended arrival),
//! or by clients that take the next request of one list (closed loop). A generated closed-loop programme
//! loses its own clients' order of dependence; it keeps its addresses, sizes, directions and pauses.
//!
//! **Warm-up.** The first part of the script is not measured. If the load changes, the change is the first
//! measured request. *Recovery* is the time from the change until the speed (requests per second in a closed
//! loop, one over the mean latency in an open one) averaged over four intervals of 250 ms is at least 90 % of
//! the row's own speed in the last third of the time. A slow row may recover at once: recovery says nothing
//! alone.
//!
//! **First layout.** No row's own: all on the disks; in order of address, the SSD first; spread evenly; or
//! where another policy places the same data. Rows that are themselves a rule of where data lies (`static`,
//! `stripe`, `ssd-only`, `hdd-only`, `cache`, `hystor`, `raid1`, `pass`) begin with their own rule, known
//! beforehand: the comparison favours them.
//!
//! **Noise.** Each cell runs with two seeds: other random numbers in the load and in the devices, or in the
//! devices alone under a trace. A row is *lost* in a cell if it is more than 5 % above the best row with each
//! of the seeds, *unsure* if the seeds disagree. Seeds also say how far the best row of the cell differs from
//! itself.
//!
//! **Overload.** At most 256 requests are in the volume; more wait outside, which counts. A cell is
//! *overloaded* for a row if that wait is more than half of its mean latency. Scripts have an end, so latency
//! stays finite.
//!
//! **Not applicable.** A row that a cell has no room for (a mirror, `ssd-only`, a split beyond the SSD) is
//! left out of the cell, neither won nor lost. Averages are over the cells that all listed rows have in
//! common; rows that apply to some cells only are averaged over these, with the default policy over the same
//! cells beside them.
//!
//! **Oracles** do not compete: `static-heat` and `clairvoyant` know the load beforehand (`heat.rs` and
//! `clairvoyant.rs` say what each of them bounds). A static split competes, though its share is known only
//! afterwards.
//!
//! **Halves.** A hash of a cell's name decides whether it is for tuning or held out. Constants are chosen on
//! the first half; figures of the second half are published.
//!
//! Limits: no memory cache (guests have one, and it would blur what SSDs do); one SSD; extents of 128 KiB;
//! minutes of simulated time, so that a policy that decides each hour never does.

mod belady;
mod cell;
mod change;
mod clairvoyant;
mod draw;
mod heat;
mod loads;
mod picture;
mod report;
mod rows;
mod run;
mod score;
mod table;
mod traces;
mod write;

pub use cell::{Cell, Change, Half, Pace, Requests, Start};
pub use draw::{Corpus, USUAL_CELLS};
pub use report::{page, text};
pub use rows::{Kind, Row, named, usual};
pub use run::{CellOutcome, HowFar, Options, Outcome, Value, run};
pub use score::{Line, Partial, Totals, totals};
pub use table::{add_earlier, table};
pub use traces::{Recorded, in_folder};

#[cfg(test)]
mod tests;
