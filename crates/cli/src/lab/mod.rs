//! `braid lab`: tables and figures of papers, made again in virtual time, beside what the papers say.

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

/// Make tables and figures of papers again, beside what the papers say
///
/// An experiment is a table or figure of a paper: systems, devices and loads are simulated as `braid
/// simulate` does, on all cores, and come out beside the published values, with what differs from the paper
/// and with whether its claims hold. The same command gives the same figures on every machine.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(List),
    Show(Show),
    Run(Run),
    Report(Report),
}

/// List the experiments
#[derive(Args)]
#[command(after_help = "\
Example:
  braid lab list

The time is that of one seed on one processor, as measured once. The number of claims is that of the paper's claims, and of all.

JSON: experiments (id, title, paper, authors, year, place, published, simulations, seconds_per_seed, claims_of_paper, claim_count).")]
struct List {}

/// Print what an experiment claims, and within which bounds, without running it
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
struct Show {
    /// An experiment as `braid lab list` names it, a system for all of its, `all`, or a file that declares
    /// one (FILE.toml)
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Print the declaration of one as a file in TOML, to be changed and run
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

The corpus judges policies, without a paper: cells are drawn from --seed, each a load on an SSD and disks, and all policies
run in each, beside static splits, and a layout and a cache that know the load. The second half of each run is judged,
after a first half that warms up. --seeds is not for it. With --row, ratios are to the best of the rows that run.

A claim holds or fails only if all of the 95 % confidence interval over seeds says so; one seed gives numbers, and no verdict.
Without --seeds all experiments run with 3 seeds, those with an undecided verdict with 5, and then 10. An experiment whose seeds would
take more than ten minutes of one processor gets fewer. What a run will take is said at its beginning.

The values of each seed are kept in --results. A run that was stopped continues there, and `braid lab report` makes its page from there. What was
kept by another version of the program or of the experiment is not used, and is run again.

A claim about a policy is judged only if the paper's rows of single devices come out within 15 %: else it is untestable.

JSON: wall_seconds (differs from run to run), studies. Each study: id, title, paper, authors, year, place, seed, seeds, seeds_needed,
quick, warm_up_seconds, measured_seconds, axis, axis_values, series (label, device_arguments, copies, policy,
load, variant_of; {x} is the value on the axis), tables (measure, unit, more_is_better, values: a list for each series with
a value for each one on the axis, null if no seed has one; half_widths and seeds_without, which have none, likewise; and
paper_values: series_index, axis_value, low, high), jitter (name, low, high: what each seed draws for {name} in a load),
baselines (numbers, as of a verdict), claims (claim, place, origin: paper, fitted, aim or repeat; verdicts, untestable, why,
instead: numbers of another run),
published, calibrated, contradictions, differs, differs_in_all.
  verdicts: of (the series that it is about), ruling (holds, other_margin, tie, undecided, fails, untestable, one_seed,
    too_short; null if numbers are only shown), and numbers (quantity, claimed, ours, ours_low, ours_high, ratio of ours to
    the paper's, needed, ruling)
Of the corpus: wall_seconds, seed, quick, scores (half, cell_count, rows: row, group, fitting_cells, mean_ratio,
worst_ratio, worst_cell, lost_cells, mean_ratio_with_splits, bound_share, cells_beyond_bound, p99_ratio,
throughput_ratio, ssd_written_bytes, unsteady_cells, recovery_seconds), cells (cell, half, runs: row, unfit, figures: latency_ns_mean, latency_ns_p99,
throughput_bytes_per_second, ssd_written_bytes, is_steady, recovery_ms) and missing_cells.")]
struct Run {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    corpus: corpus::Choice,
}

/// Make a page with plots of all experiments
///
/// One HTML page that needs nothing but itself: how many claims of each paper hold, all claims with a filter,
/// Braid's own aims apart, and for each experiment charts, the paper's values beside ours, what differs, and
/// what was simulated. What `braid lab run` has kept is not simulated again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid lab report --output lab.html --svg plots
  braid lab report wardrop/fig6 wardrop/table3
  braid lab report --markdown docs/papers.md
  braid lab report corpus --half published --results corpus.jsonl --output corpus.html

JSON: output_path (null if no page was made), markdown_path (null likewise), svg_paths, experiment_count, wall_seconds; of the
corpus output_path, cell_count, missing_cells, wall_seconds.")]
struct Report {
    /// Experiments as `braid lab list` names them, systems, files (FILE.toml), or `corpus` alone [default:
    /// all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Where the page goes [default: lab-report.html; none with --markdown]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A file that gets a table of claims for each paper, in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// A directory that gets each plot as a file, too
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    corpus: corpus::Choice,
}

/// Which experiments, and how.
#[derive(Args)]
struct Which {
    /// An experiment as `braid lab list` names it, a system for all of its, `all`, a file that declares one
    /// (FILE.toml), or, alone, `corpus`
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    options: Options,
}

/// How experiments are run.
#[derive(Args)]
struct Options {
    /// Runs of a twentieth of their length: to see that they work, not to compare
    #[arg(long)]
    quick: bool,
    /// Seed of workloads and devices: the first one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds, one after the other, whose mean counts, with a 95 % confidence interval [default: as many as a
    /// verdict needs, 3 to 10; 1 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Simulations at the same time [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Keep results here, and use what is there: of experiments a folder [default: lab-results], of the
    /// corpus a file [default: keep nothing]
    #[arg(long, value_name = "PATH")]
    results: Option<PathBuf>,
    /// Run all again, and replace what is kept
    #[arg(long)]
    fresh: bool,
}

#[derive(Serialize)]
struct Ran {
    studies: Vec<Study>,
    wall_seconds: f64,
}

/// Runs the verb.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.verb {
        Verb::List(List {}) => list::list(output),
        Verb::Show(show) => list::show(&show.ids, show.toml, output)?,
        Verb::Run(run) if corpus::is_meant(&run.which.ids, &run.corpus)? => {
            corpus::run(&run.corpus, &run.which.options, output)?;
        }
        Verb::Report(report) if corpus::is_meant(&report.ids, &report.corpus)? => {
            corpus::report(report, output)?;
        }
        Verb::Run(run) => {
            let begun = Instant::now();
            let studies = studies::run(&run.which.ids, &run.which.options)?;
            let ran = Ran { studies, wall_seconds: begun.elapsed().as_secs_f64() };
            output.show(&ran, || ran.studies.iter().map(text::describe).collect::<Vec<_>>().join("\n"));
        }
        Verb::Report(report) => write_report(report, output)?,
    }
    Ok(0)
}

#[derive(Serialize)]
struct Written {
    output_path: Option<PathBuf>,
    markdown_path: Option<PathBuf>,
    svg_paths: Vec<PathBuf>,
    experiment_count: usize,
    wall_seconds: f64,
}

fn write_report(report: &Report, output: Output) -> Result<()> {
    let begun = Instant::now();
    let everything = ["all".to_owned()];
    let ids = if report.ids.is_empty() { &everything[..] } else { &report.ids };
    // What cannot be written later is refused before the work. A page that is there stays until the new one
    // is whole.
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
    let written = Written {
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

impl Report {
    /// Where the page goes, if one is made.
    fn page(&self) -> Option<PathBuf> {
        match (&self.output, &self.markdown) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(_)) => None,
            (None, None) => Some(PathBuf::from("lab-report.html")),
        }
    }
}

/// A page that is being made, beside its place until it is whole.
pub struct Unfinished {
    place: PathBuf,
    beside: PathBuf,
}

impl Unfinished {
    /// Makes sure that the page can be written.
    pub fn begin(place: &Path) -> Result<Unfinished> {
        // The page replaces what a link names, and not the link.
        let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
        let is_special = place.metadata().is_ok_and(|there| !there.is_file());
        let beside = match place.file_name() {
            Some(name) if !is_special => {
                let mut unfinished = std::ffi::OsString::from(".");
                unfinished.push(name);
                unfinished.push(format!(".{}", std::process::id()));
                place.with_file_name(unfinished)
            }
            // A pipe has no place beside it.
            _ => place.clone(),
        };
        if !is_special {
            std::fs::write(&beside, "").map_err(|error| cannot("write", &place, &error))?;
        }
        Ok(Unfinished { place, beside })
    }

    /// Puts the page in its place.
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
        // After a success it has another name.
        if self.beside != self.place
            && self.beside.exists()
            && let Err(error) = std::fs::remove_file(&self.beside)
        {
            tracing::warn!("{} was left: {error}", self.beside.display());
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| cannot("write", path, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} {}: {error}; name another place", path.display()))
}
