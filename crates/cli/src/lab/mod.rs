//! `braid lab`: reproduces tables and figures of papers in virtual time, beside the published values.

mod corpus;
mod list;
mod studies;
mod text;

use crate::output::Output;
use braid_control::{Error, ErrorKind, Result};
use braid_lab::report::{figures, markdown, page};
use braid_lab::study::Study;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Reproduce tables and figures of papers, beside the published values
///
/// An experiment is a table or figure of a paper. Systems, devices and loads are simulated as by `braid
/// simulate`, on all cores. The output shows the results beside the published values, the differences from
/// the paper, and whether the paper's claims hold. The same command gives the same figures on every machine.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Subcommand)]
enum LabVerb {
    List(LabList),
    Show(LabShow),
    Run(LabRun),
    Report(LabReport),
}

/// List the experiments
#[derive(Args)]
#[command(after_help = "\
Example:
  braid lab list

The time is for one seed on one processor, as measured once. The column of claims counts the paper's claims, then all claims.

JSON: experiments (id, title, paper, authors, year, place, published, simulations, seconds_per_seed, claims_of_paper, claim_count).")]
struct LabList {}

/// Print an experiment's claims and their bounds, without running the experiment
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid lab show wardrop/table3
  braid lab show pass --json
  braid lab show wardrop/fig6 --toml > mine.toml

JSON: with --toml declaration; otherwise experiments: id, title, paper, authors, year, place, published, simulations, seconds_per_seed, claims_of_paper, claim_count,
axis, axis_values, measures (measure, unit), series (label, device_arguments, copies, policy, load, variant_of), jitter (name, low,
high), baselines and tests (quantity, claimed, needed), claims (claim, place, origin, tests, why, instead: quantities of other
runs), calibrated, contradictions, differs, differs_in_all.")]
struct LabShow {
    /// Experiment by its name in `braid lab list`, system (all its experiments), `all`, or a file that
    /// declares an experiment (FILE.toml)
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Print the declaration of one experiment as TOML, to edit and run
    #[arg(long)]
    toml: bool,
}

/// Run experiments
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid lab run wardrop/fig6
  braid lab run pass --json
  braid lab run mine.toml
  braid lab run corpus --half tuning --cells 12 --results corpus.jsonl
  braid lab run corpus --cell trace --row equi --row cache --row equi,mode=cache

The corpus judges policies, without a paper. Cells are drawn from --seed: each cell is a load on an SSD and disks. All
policies run in each cell, beside static splits, and beside a layout and a cache that know the load. The first half of
each run warms up; the second half is judged. The corpus does not take --seeds. With --row, ratios are to the best of the
rows that run.

A claim holds or fails only if the whole 95 % confidence interval over seeds agrees; one seed gives numbers without a
verdict. Without --seeds all experiments run with 3 seeds, experiments with an undecided verdict with 5, and then with 10.
An experiment whose seeds would take more than ten minutes of one processor gets fewer. Each run begins with an estimate
of its time.

The values of each seed are kept in --results. A stopped run continues from there, and `braid lab report` makes its page
from there. Results of another version of the program or of the experiment are not used; the experiment runs again.

A claim about a policy is judged only if the paper's rows of single devices are reproduced within 15 %; otherwise the
claim is untestable.

JSON: wall_seconds (differs from run to run), studies. Each study: id, title, paper, authors, year, place, seed, seeds, seeds_needed,
quick, warm_up_seconds, measured_seconds, axis, axis_values, series (label, device_arguments, copies, policy,
load, variant_of; {x} is the value on the axis), tables (measure, unit, more_is_better, values: a list for each series with
a value for each point of the axis, null if no seed has a value; half_widths and seeds_without (seeds without a value) likewise; and
paper_values: series_index, axis_value, low, high), jitter (name, low, high: range of the value that each seed draws for {name} in a load),
baselines (numbers, as in a verdict), claims (claim, place, origin: paper, fitted, aim or repeat; verdicts, untestable, why,
instead: numbers of another run),
published, calibrated, contradictions, differs, differs_in_all.
  verdicts: of (the series of the verdict), ruling (holds, other_margin, tie, undecided, fails, untestable, one_seed,
    too_short; null if numbers are only shown), and numbers (quantity, claimed, ours, ours_low, ours_high, ratio of ours to
    the paper's, needed, ruling)
Of the corpus: wall_seconds, seed, quick, scores (half, cell_count, rows: row, group, fitting_cells, mean_ratio,
worst_ratio, worst_cell, lost_cells, mean_ratio_with_splits, bound_share, cells_beyond_bound, p99_ratio,
throughput_ratio, ssd_written_bytes, unsteady_cells, recovery_seconds), cells (cell, half, runs: row, unfit, figures: latency_ns_mean, latency_ns_p99,
throughput_bytes_per_second, ssd_written_bytes, is_steady, recovery_ms) and missing_cells.")]
struct LabRun {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    corpus: corpus::Choice,
}

/// Make a page with plots of all experiments
///
/// One self-contained HTML page. It shows how many claims of each paper hold, all claims with a filter, and
/// Braid's own aims in a separate list. For each experiment it shows charts, the published values beside the
/// results, the differences, and the simulated setup. Results kept by `braid lab run` are not simulated
/// again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid lab report --output lab.html --svg plots
  braid lab report wardrop/fig6 wardrop/table3
  braid lab report --markdown docs/papers.md
  braid lab report corpus --half published --results corpus.jsonl --output corpus.html

JSON: output_path (null if no page was made), markdown_path (null likewise), svg_paths, experiment_count, wall_seconds; for the
corpus output_path, cell_count, missing_cells, wall_seconds.")]
struct LabReport {
    /// Experiments by their names in `braid lab list`, systems, files (FILE.toml), or `corpus` alone
    /// [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// File for the page [default: lab-report.html; no page with --markdown]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// File for a table of claims of each paper, in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Directory for each plot as a file of its own
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    corpus: corpus::Choice,
}

/// Experiments to run, and how to run them.
#[derive(Args)]
struct Which {
    /// Experiment by its name in `braid lab list`, system (all its experiments), `all`, a file that declares
    /// an experiment (FILE.toml), or `corpus` alone
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    options: Options,
}

/// How to run experiments.
#[derive(Args)]
struct Options {
    /// Run a twentieth of the length: to see that experiments work, not to compare results
    #[arg(long)]
    quick: bool,
    /// First seed of workloads and devices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of consecutive seeds, 1 to 1000; results are means with a 95 % confidence interval [default: as
    /// many as a verdict needs, 3 to 10; 1 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Simulations to run in parallel [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Path to keep results and to reuse kept results: a folder for experiments [default: lab-results], a
    /// file for the corpus [default: keep nothing]
    #[arg(long, value_name = "PATH")]
    results: Option<PathBuf>,
    /// Run all experiments again, and replace kept results
    #[arg(long)]
    fresh: bool,
}

#[derive(Serialize)]
struct Ran {
    studies: Vec<Study>,
    wall_seconds: f64,
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.verb {
        LabVerb::List(LabList {}) => list::list(output),
        LabVerb::Show(show) => list::show(&show.ids, show.toml, output)?,
        LabVerb::Run(run) if corpus::is_meant(&run.which.ids, &run.corpus)? => {
            corpus::run(&run.corpus, &run.which.options, output)?;
        }
        LabVerb::Report(report) if corpus::is_meant(&report.ids, &report.corpus)? => {
            corpus::report(report, output)?;
        }
        LabVerb::Run(run) => {
            let begun = Instant::now();
            let studies = studies::run(&run.which.ids, &run.which.options)?;
            let ran = Ran { studies, wall_seconds: begun.elapsed().as_secs_f64() };
            output.show(&ran, || ran.studies.iter().map(text::describe).collect::<Vec<_>>().join("\n"));
        }
        LabVerb::Report(report) => write_report(report, output)?,
    }
    Ok(0)
}

#[derive(Serialize)]
struct WrittenReport {
    output_path: Option<PathBuf>,
    markdown_path: Option<PathBuf>,
    svg_paths: Vec<PathBuf>,
    experiment_count: usize,
    wall_seconds: f64,
}

fn write_report(report: &LabReport, output: Output) -> Result<()> {
    let begun = Instant::now();
    let everything = ["all".to_owned()];
    let ids = if report.ids.is_empty() { &everything[..] } else { &report.ids };
    // A path that cannot be written is refused before the work. An existing page stays until the new page is
    // whole.
    let output_path = report.page();
    let page_place = output_path.as_deref().map(Unfinished::begin).transpose()?;
    let document_place = report.markdown.as_deref().map(Unfinished::begin).transpose()?;
    if let Some(directory) = &report.svg {
        std::fs::create_dir_all(directory)
            .map_err(|error| cannot("make the directory", directory, &error))?;
    }
    let studies = studies::run(ids, &report.options)?;
    if let Some(place) = page_place {
        place.finish(&page(&studies))?;
    }
    if let Some(place) = document_place {
        place.finish(&markdown(&studies))?;
    }
    let mut svg_paths = Vec::new();
    if let Some(directory) = &report.svg {
        for figure in figures(&studies) {
            let path = directory.join(&figure.file_name);
            write(&path, &figure.svg)?;
            svg_paths.push(path);
        }
    }
    let wall_seconds = begun.elapsed().as_secs_f64();
    let written = WrittenReport {
        output_path,
        markdown_path: report.markdown.clone(),
        svg_paths,
        experiment_count: studies.len(),
        wall_seconds,
    };
    output.show(&written, || {
        let paths = [&written.output_path, &written.markdown_path].into_iter().flatten();
        let mut wrote: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        if !written.svg_paths.is_empty() {
            wrote.push(format!("{} plots", written.svg_paths.len()));
        }
        format!("wrote {}: {} experiments", wrote.join(" and "), written.experiment_count)
    });
    Ok(())
}

impl LabReport {
    /// Path of the page, if a page is made.
    fn page(&self) -> Option<PathBuf> {
        match (&self.output, &self.markdown) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(_)) => None,
            (None, None) => Some(PathBuf::from("lab-report.html")),
        }
    }
}

/// An unfinished page: written beside its place until whole.
pub struct Unfinished {
    place: PathBuf,
    beside: PathBuf,
}

impl Unfinished {
    /// Checks that the page can be written, and creates an empty file beside its place.
    pub fn begin(place: &Path) -> Result<Unfinished> {
        // The page replaces the target of a symbolic link, not the link.
        let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
        let is_special = place.metadata().is_ok_and(|there| !there.is_file());
        let beside = match place.file_name() {
            Some(name) if !is_special => {
                let mut unfinished = std::ffi::OsString::from(".");
                unfinished.push(name);
                unfinished.push(format!(".{}", std::process::id()));
                place.with_file_name(unfinished)
            }
            // No file can lie beside a pipe: write to the pipe itself.
            _ => place.clone(),
        };
        if !is_special {
            std::fs::write(&beside, "").map_err(|error| cannot("write", &place, &error))?;
        }
        Ok(Unfinished { place, beside })
    }

    /// Writes the page and moves it to its place.
    pub fn finish(self, text: &str) -> Result<()> {
        write(&self.beside, text)?;
        match self.beside == self.place {
            true => Ok(()),
            false => std::fs::rename(&self.beside, &self.place)
                .map_err(|error| cannot("write", &self.place, &error)),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After a success the file was renamed.
        if self.beside != self.place
            && self.beside.exists()
            && let Err(error) = std::fs::remove_file(&self.beside)
        {
            tracing::warn!("{}: not removed: {error}", self.beside.display());
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| cannot("write", path, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} {}: {error}: use another path", path.display()))
}
