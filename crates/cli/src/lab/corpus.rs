//! `braid lab run corpus` and `braid lab report corpus`: judge policies on many cells.

use super::{LabReport, Unfinished};
use crate::output::Output;
use crate::simulate::{Bar, failure};
use crate::table::Table;
use braid_control::{Error, ErrorKind, Result};
use braid_lab::corpus::{self, Cell, CellRun, CorpusOptions, Half, Kept, Ran, RowScore, Scores};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How to run the corpus.
#[derive(Args)]
pub struct Choice {
    /// Half to run: `tuning`, for choosing constants, or `published`, whose figures count [default: both]
    #[arg(long, value_name = "HALF", help_heading = "The corpus")]
    half: Option<Half>,
    /// Number of cells to run: a sample, the same in each run [default: all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = "The corpus")]
    cells: Option<u32>,
    /// Run only cells with PART in their names. Repeat the option for cells with any of several parts
    #[arg(long, value_name = "PART", help_heading = "The corpus")]
    cell: Vec<String>,
    /// Run only this row, such as `equi` or 'untouched layout'; a policy that is no row of the corpus runs as
    /// an additional row. Repeat the option for more rows
    #[arg(long, value_name = "ROW|POLICY", help_heading = "The corpus")]
    row: Vec<String>,
    /// Folder of the real traces known to the corpus; cells without their trace are reported [default:
    /// shared/traces]
    #[arg(long, value_name = "DIR", help_heading = "The corpus")]
    traces: Option<PathBuf>,
    /// A trace of your own as further cells. Repeat the option for more traces
    #[arg(long, value_name = "FILE", help_heading = "The corpus")]
    trace: Vec<PathBuf>,
}

/// Name of the corpus among experiments.
const ID: &str = "corpus";
/// Default folder of the known traces, relative to the project's folder.
const TRACES: &str = "shared/traces";

#[derive(Serialize)]
struct Judged {
    seed: u64,
    quick: bool,
    scores: Vec<Scores>,
    cells: Vec<CellRun>,
    missing_cells: Vec<String>,
    wall_seconds: f64,
}

#[derive(Serialize)]
struct WrittenCorpus<'a> {
    output_path: &'a Path,
    cell_count: usize,
    missing_cells: Vec<String>,
    wall_seconds: f64,
}

/// True if the names mean the corpus.
///
/// # Errors
/// `Usage` if the corpus stands beside experiments, because their options differ, or if options of the corpus
/// are given without the corpus.
pub fn is_meant(ids: &[String], options: &Choice) -> Result<bool> {
    let usage = |message: &str| Err(Error::new(ErrorKind::Usage, message));
    let Choice { half, cells, cell, row, traces, trace } = options;
    match ids {
        [id] if id == ID => Ok(true),
        ids if ids.iter().any(|id| id == ID) => {
            usage("corpus beside experiments: run the corpus alone, as in braid lab run corpus")
        }
        _ if half.is_some()
            || cells.is_some()
            || !cell.is_empty()
            || !row.is_empty()
            || traces.is_some()
            || !trace.is_empty() =>
        {
            usage(
                "--half, --cells, --cell, --row, --traces and --trace: for the corpus only: use them with braid lab run corpus",
            )
        }
        _ => Ok(false),
    }
}

/// Runs the corpus and shows the scores.
pub fn run(options: &Choice, how: &super::Options, output: Output) -> Result<()> {
    let begun = Instant::now();
    let ran = judge(options, how)?;
    let scores = [Half::Published, Half::Tuning].into_iter().filter_map(|half| corpus::score(&ran, half));
    let scores = scores.collect();
    let Ran { cells, missing_cells, .. } = ran;
    let judged = Judged {
        seed: how.seed,
        quick: how.quick,
        scores,
        cells,
        missing_cells,
        wall_seconds: begun.elapsed().as_secs_f64(),
    };
    output.show(&judged, || describe(&judged));
    Ok(())
}

/// Runs the corpus and writes the page.
pub fn report(report: &LabReport, output: Output) -> Result<()> {
    let begun = Instant::now();
    if report.svg.is_some() || report.markdown.is_some() {
        return Err(Error::new(
            ErrorKind::Usage,
            "--svg and --markdown: for experiments only: leave them out; the page of the corpus has its picture",
        ));
    }
    let output_path = report.page().expect("without --markdown there is a page");
    let unfinished = Unfinished::begin(&output_path)?;
    let ran = judge(&report.corpus, &report.options)?;
    unfinished.finish(&corpus::page(&ran, report.options.seed, report.options.quick))?;
    let written = WrittenCorpus {
        output_path: &output_path,
        cell_count: ran.cells.len(),
        missing_cells: ran.missing_cells,
        wall_seconds: begun.elapsed().as_secs_f64(),
    };
    output.show(&written, || {
        let (page, missing) = (written.output_path.display(), written.missing_cells.len());
        let missing = if missing == 0 { String::new() } else { format!(", {missing} not run") };
        format!("wrote {page}: {} cells{missing}", written.cell_count)
    });
    Ok(())
}

fn judge(options: &Choice, how: &super::Options) -> Result<Ran> {
    if how.seeds.is_some() {
        return Err(Error::new(
            ErrorKind::Usage,
            "--seeds with the corpus: its cells are drawn from one seed: use --seed",
        ));
    }
    if how.fresh {
        return Err(Error::new(
            ErrorKind::Usage,
            "--fresh: for experiments only: remove the file of --results to run the corpus again",
        ));
    }
    for trace in &options.trace {
        if let Err(error) = std::fs::metadata(trace) {
            return Err(Error::new(
                ErrorKind::Io,
                format!("--trace {}: {error}: name a file", trace.display()),
            ));
        }
    }
    let folder = options.traces.clone().unwrap_or_else(|| PathBuf::from(TRACES));
    let all = corpus::cells(how.seed, &folder, &options.trace);
    let rows = corpus::chosen(&options.row).map_err(|error| failure(&error))?;
    let most = options.cells.map(|cells| cells as usize);
    let cells = corpus::sample(all, options.half, &options.cell, most).map_err(|error| failure(&error))?;
    let mut kept = match &how.results {
        None => Kept::nothing(),
        Some(path) => Kept::open(path, &build()?).map_err(|error| failure(&error))?,
    };
    let bar = Bar::new();
    tell_missing(&bar, &cells, &folder);
    let (mut count, there) = (0, cells.iter().filter(|cell| is_there(cell)).count());
    let ended = |cell: &CellRun| {
        count += 1;
        bar.say(&format!("{count} of {there} after {:.1} s: {}", cell.seconds, cell.cell));
    };
    let how = CorpusOptions { quick: how.quick, threads: how.threads.map(usize::from) };
    let ran = corpus::run(&cells, &rows, how, &mut kept, |progress| bar.show(progress), ended);
    bar.end();
    ran.map_err(|error| failure(&error))
}

fn is_there(cell: &Cell) -> bool {
    cell.trace().is_none_or(Path::exists)
}

fn tell_missing(bar: &Bar, cells: &[Cell], folder: &Path) {
    let missing: Vec<&Cell> = cells.iter().filter(|cell| !is_there(cell)).collect();
    if !missing.is_empty() {
        let count = missing.len();
        bar.say(&format!(
            "MISSING: {count} cells do not run: their traces are not in {}: name the folder with --traces",
            folder.display()
        ));
    }
}

/// Hash of the running executable, to tell builds apart.
fn build() -> Result<String> {
    let read = || std::fs::read(std::env::current_exe()?);
    let bytes = read().map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read the running program: {error}: leave --results out"))
    })?;
    let mix = |sum: u64, word: &[u8]| {
        word.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    Ok(format!("{:016x}", bytes.chunks(1 << 20).fold(0xcbf2_9ce4_8422_2325, mix)))
}

/// Returns the scores as text.
fn describe(judged: &Judged) -> String {
    let mut text = String::new();
    if judged.quick {
        text += "quick: a twentieth of the length: too short for a judgement\n";
    }
    if !judged.missing_cells.is_empty() {
        text +=
            &format!("MISSING: {} cells did not run: their traces are missing\n", judged.missing_cells.len());
    }
    for scores in &judged.scores {
        text += &half(scores, judged.seed);
    }
    text
}

fn half(scores: &Scores, seed: u64) -> String {
    let what = match scores.half {
        Half::Published => "published half",
        Half::Tuning => "tuning half (used to choose constants: not for publication)",
    };
    let mut table = Table::new(&[
        "row",
        ">cells",
        ">mean",
        ">worst",
        ">lost",
        ">incl. splits",
        ">of bound",
        ">p99",
        ">throughput",
        ">written",
        ">unsteady",
        ">recovery",
    ]);
    scores.rows.iter().filter(|row| row.fitting_cells > 0).for_each(|row| table.row(line(row)));
    let mut text = format!(
        "{what}: {} cells of seed {seed}; mean latency of the second half of each run, as a ratio to the best policy of the cell\n{}",
        scores.cell_count,
        table.render("  ")
    );
    text += "  * begins with its own layout instead of the cell's: does not count as the best of the cell\n";
    text += "  worst cells\n";
    for row in scores.rows.iter().filter(|row| row.fitting_cells > 0) {
        text += &format!("    {}: {:.2} in {}\n", row.row, row.worst_ratio, row.worst_cell);
    }
    let unfit: Vec<&str> =
        scores.rows.iter().filter(|row| row.fitting_cells == 0).map(|row| row.row.as_str()).collect();
    if !unfit.is_empty() {
        text += &format!("  fits no cell: {}\n", unfit.join(", "));
    }
    text
}

fn line(row: &RowScore) -> Vec<String> {
    let mark = if row.group.competes() { "" } else { " *" };
    vec![
        format!("{}{mark}", row.row),
        row.fitting_cells.to_string(),
        format!("{:.2}", row.mean_ratio),
        format!("{:.1}", row.worst_ratio),
        row.lost_cells.to_string(),
        format!("{:.2}", row.mean_ratio_with_splits),
        row.bound_share.map_or("-".to_owned(), |share| format!("{share:.2}")),
        format!("{:.2}", row.p99_ratio),
        format!("{:.2}", row.throughput_ratio),
        format!("{:.1} GB", row.ssd_written_bytes as f64 / 1e9),
        row.unsteady_cells.to_string(),
        row.recovery_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.1} s")),
    ]
}
