//! `braid lab run corpus`: policies judged on cells that are drawn from a seed.

use super::{Options, Unfinished};
use crate::output::Output;
use crate::simulate::{Bar, clock, failure};
use braid_control::{Error, ErrorKind, Result};
use braid_lab::corpus::{self, Cell, CellOutcome, Corpus, Half, HowFar, Recorded, Row, Totals};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The name in the place of an experiment's.
pub const NAME: &str = "corpus";

/// What of the corpus runs, and where the results go.
#[derive(Args, Default)]
#[command(next_help_heading = "The corpus (braid lab run corpus)")]
pub struct Arguments {
    /// Cells for tuning, or those held out, whose figures may be published [default: all]
    #[arg(long, value_enum, value_name = "HALF")]
    half: Option<HalfArgument>,
    /// The first so many cells [default: 160]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    cells: Option<u16>,
    /// This cell alone. Repeat it for more
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// This row alone: a policy with its settings, untouched, static-heat or clairvoyant. Repeat it for more
    /// [default: all]
    #[arg(long, value_name = "ROW")]
    policy: Vec<String>,
    /// A directory of traces [default: shared/traces or ../shared/traces, if there]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Where a page with the picture goes
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Where a table of all values goes, with semicolons between them
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// A table of an earlier run of the same cells: its rows are compared, too, without running again
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
}

/// A half of the corpus.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum HalfArgument {
    /// For tuning
    Tuning,
    /// Held out
    HeldOut,
    /// Both
    All,
}

#[derive(Serialize)]
struct Ran {
    corpus: Report,
    wall_seconds: f64,
}

#[derive(Serialize)]
struct Report {
    seed: u64,
    seeds: usize,
    quick: bool,
    trace_count: usize,
    #[serde(flatten)]
    totals: Totals,
}

impl Arguments {
    /// Whether any of them was given: they are of no use to another experiment.
    pub fn are_given(&self) -> bool {
        let Arguments { half, cells, cell, policy, traces, page, table, beside } = self;
        let paths = [traces, page, table, beside];
        half.is_some()
            || cells.is_some()
            || !cell.is_empty()
            || !policy.is_empty()
            || paths.iter().any(|path| path.is_some())
    }
}

/// Runs the corpus.
pub fn run(arguments: &Arguments, options: &Options, output: Output) -> Result<()> {
    let begun = Instant::now();
    let seeds = options.seeds.unwrap_or(if options.quick { 1 } else { 2 }) as usize;
    if seeds > 2 {
        return Err(usage(format!("--seeds {seeds}: the corpus has 2 of each cell; use 1 or 2")));
    }
    let traces = traces(arguments.traces.as_deref())?;
    let cells = cells(arguments, options, &traces)?;
    let mut rows = match arguments.policy.as_slice() {
        [] => corpus::usual(),
        names => names.iter().map(|name| corpus::named(name).map_err(lab)).collect::<Result<_>>()?,
    };
    let earlier = arguments.beside.as_ref().map(|path| read(path)).transpose()?;
    let pages = [&arguments.page, &arguments.table].map(|path| path.as_deref().map(Unfinished::begin));
    let [page, table] = pages.map(Option::transpose);
    let (page, table) = (page?, table?);
    let how =
        corpus::Options { rows: rows.clone(), repetitions: seeds, threads: options.threads.map(usize::from) };
    let bar = Bar::new();
    let outcomes = corpus::run(&cells, &how, |far: &HowFar| {
        let wall = clock(far.wall.as_secs_f64());
        bar.say(&format!("{} has ended: {} of {}, {wall}", far.cell, far.finished, far.total));
        ControlFlow::Continue(())
    });
    bar.end();
    let mut outcomes = outcomes.map_err(lab)?;
    if let Some(text) = earlier {
        corpus::add_earlier(&text, &mut rows, &mut outcomes).map_err(lab)?;
    }
    let report = Report {
        seed: options.seed,
        seeds,
        quick: options.quick,
        trace_count: traces.len(),
        totals: corpus::totals(&rows, &outcomes, None),
    };
    if let Some(page) = page {
        page.finish(&corpus::page(&about(&report), &report.totals, &rows, &outcomes))?;
    }
    if let Some(table) = table {
        table.finish(&corpus::table(&rows, &outcomes))?;
    }
    let ran = Ran { corpus: report, wall_seconds: begun.elapsed().as_secs_f64() };
    output.show(&ran, || {
        let alone = if outcomes.len() == 1 { alone(&rows, &outcomes[0]) } else { String::new() };
        format!("{}\n{}{alone}", about(&ran.corpus), corpus::text(&ran.corpus.totals))
    });
    Ok(())
}

fn about(report: &Report) -> String {
    let Report { seed, seeds, quick, trace_count, .. } = report;
    let traces = match trace_count {
        0 => "no traces were found, so all loads are generated".to_owned(),
        count => format!("{count} traces"),
    };
    let quick = if *quick { "; --quick: too short to compare" } else { "" };
    format!("Corpus of seed {seed}, {seeds} repetitions of each cell, {traces}{quick}.")
}

/// A cell that runs alone is described, with each row's values.
fn alone(rows: &[Row], outcome: &CellOutcome) -> String {
    format!("{}\n{}", outcome.cell, corpus::table(rows, std::slice::from_ref(outcome)))
}

fn cells(arguments: &Arguments, options: &Options, traces: &[Recorded]) -> Result<Vec<Cell>> {
    let count = arguments.cells.map_or(corpus::USUAL_CELLS, usize::from);
    // A cell that is named may be of a larger corpus.
    let all = Corpus::draw(options.seed, count, traces);
    let wanted = |cell: &Cell| match arguments.half {
        None | Some(HalfArgument::All) => true,
        Some(HalfArgument::Tuning) => cell.half == Half::Tuning,
        Some(HalfArgument::HeldOut) => cell.half == Half::HeldOut,
    };
    let mut cells: Vec<Cell> = match arguments.cell.as_slice() {
        [] => all.cells.into_iter().filter(wanted).collect(),
        names => {
            let cell = |name: &String| {
                let unknown = || {
                    let known: Vec<&str> = all.cells.iter().map(|cell| cell.name.as_str()).collect();
                    usage(format!("--cell {name}: no such cell; use one of {}", known.join(", ")))
                };
                all.cell(name).cloned().ok_or_else(unknown)
            };
            names.iter().map(cell).collect::<Result<_>>()?
        }
    };
    if options.quick {
        cells.iter_mut().for_each(|cell| cell.lengths = cell.lengths.map(|length| length / QUICK));
    }
    Ok(cells)
}

/// With --quick a cell has so many times fewer requests.
const QUICK: usize = 6;

/// The traces of a directory; of the usual one only if it is there.
fn traces(given: Option<&Path>) -> Result<Vec<Recorded>> {
    let usual = ["shared/traces", "../shared/traces"].map(Path::new).into_iter().find(|path| path.is_dir());
    let Some(folder) = given.or(usual) else { return Ok(Vec::new()) };
    let (traces, refused) = corpus::in_folder(folder).map_err(lab)?;
    refused.iter().for_each(|why| tracing::warn!("left out: {why}"));
    Ok(traces)
}

fn read(path: &Path) -> Result<String> {
    let cannot = |error| Error::new(ErrorKind::Io, format!("cannot read {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(cannot)
}

fn lab(error: braid_lab::Error) -> Error {
    failure(&error)
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, message)
}
