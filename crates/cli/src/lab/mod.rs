//! `braid lab`: tables and figures of papers, made again in virtual time, beside what the papers say.

mod corpus;
mod text;

use crate::output::Output;
use crate::simulate::{Bar, failure};
use crate::table::Table;
use braid_control::{Error, ErrorKind, Result};
use braid_lab::experiment::Experiment;
use braid_lab::experiments::{all, find};
use braid_lab::report::{figures, page};
use braid_lab::study::{How, Study, study};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Make tables and figures of papers again, beside what the papers say
///
/// An experiment is a table or figure of a paper: systems, devices and loads are simulated as `braid simulate` does, on all
/// cores, and come out beside the published values, with what differs from the paper and with whether its claims hold.
/// The same command gives the same figures on every machine.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(List),
    Run(Run),
    Report(Report),
}

/// List the experiments
#[derive(Args)]
#[command(after_help = "\
Example:
  braid lab list

JSON: experiments (id, title, paper, place, published, simulations).")]
struct List {}

/// Run experiments
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid lab run wardrop/fig6
  braid lab run pass --json
  braid lab run corpus --half tuning --cells 12 --results corpus.jsonl
  braid lab run corpus --cell trace --row equi --row cache --row equi,mode=cache

The corpus judges policies, without a paper: cells are drawn from --seed, each a load on an SSD and disks, and all policies
run in each, beside static splits, and a layout and a cache that know the load. The second half of each run is judged,
after a first half that warms up. --seeds is not for it. With --row, ratios are to the best of the rows that run.

A claim holds or fails only if all of the 95 % confidence interval over --seeds says so; one seed gives numbers, and no verdict.
A claim about a policy is judged only if the paper's rows of single devices come out within 15 %: else it is untestable.

JSON: wall_seconds (differs from run to run), studies. Each study: id, title, paper, place, seed, seeds, seeds_needed,
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
/// One HTML page that needs nothing but itself: what holds of the papers, Braid's own aims apart, and for each experiment the plots, the paper's values beside
/// ours, what differs, and what was simulated.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid lab report --output lab.html --svg plots
  braid lab report wardrop/fig6 wardrop/table3
  braid lab report corpus --half published --results corpus.jsonl --output corpus.html

JSON: output_path, svg_paths, experiment_count, wall_seconds; of the corpus output_path,
cell_count, missing_cells, wall_seconds.")]
struct Report {
    /// Experiments as `braid lab list` names them, or systems, or `corpus` alone [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Where the page goes
    #[arg(long, value_name = "FILE", default_value = "lab-report.html")]
    output: PathBuf,
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
    /// An experiment as `braid lab list` names it, a system for all of its, `all`, or, alone, `corpus`
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
    /// Seeds, one after the other, whose mean counts, with a 95 % confidence interval [default: 10; 1 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Simulations at the same time [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// As many as tell most claims that hold from those that do not.
const SEEDS: u32 = 10;

#[derive(Serialize)]
struct Listed {
    experiments: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    id: &'static str,
    title: &'static str,
    paper: &'static str,
    place: &'static str,
    published: &'static str,
    simulations: usize,
}

#[derive(Serialize)]
struct Ran {
    studies: Vec<Study>,
    wall_seconds: f64,
}

/// Runs the verb.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.verb {
        Verb::List(List {}) => list(output),
        Verb::Run(run) if corpus::is_meant(&run.which.ids, &run.corpus)? => {
            corpus::run(&run.corpus, &run.which.options, output)?;
        }
        Verb::Report(report) if corpus::is_meant(&report.ids, &report.corpus)? => {
            corpus::report(report, output)?;
        }
        Verb::Run(run) => {
            let begun = Instant::now();
            let studies = studies(&run.which.ids, &run.which.options)?;
            let ran = Ran { studies, wall_seconds: begun.elapsed().as_secs_f64() };
            output.show(&ran, || ran.studies.iter().map(text::describe).collect::<Vec<_>>().join("\n"));
        }
        Verb::Report(report) => write_report(report, output)?,
    }
    Ok(0)
}

#[derive(Serialize)]
struct Written {
    output_path: PathBuf,
    svg_paths: Vec<PathBuf>,
    experiment_count: usize,
    wall_seconds: f64,
}

fn write_report(report: &Report, output: Output) -> Result<()> {
    let begun = Instant::now();
    let everything = ["all".to_owned()];
    let ids = if report.ids.is_empty() { &everything[..] } else { &report.ids };
    // What cannot be written later is refused before the work. A page that is there stays until the new one is whole.
    let unfinished = Unfinished::begin(&report.output)?;
    if let Some(directory) = &report.svg {
        std::fs::create_dir_all(directory)
            .map_err(|error| cannot("make the directory", directory, &error))?;
    }
    let studies = studies(ids, &report.options)?;
    unfinished.finish(&page(&studies))?;
    let mut svg_paths = Vec::new();
    for figure in report.svg.iter().flat_map(|_| studies.iter().flat_map(figures)) {
        let path = report.svg.as_deref().unwrap_or(Path::new(".")).join(&figure.file_name);
        write(&path, &figure.svg)?;
        svg_paths.push(path);
    }
    let wall_seconds = begun.elapsed().as_secs_f64();
    let written = Written {
        output_path: report.output.clone(),
        svg_paths,
        experiment_count: studies.len(),
        wall_seconds,
    };
    output.show(&written, || {
        let (page, plots) = (written.output_path.display(), written.svg_paths.len());
        let plots = if plots == 0 { String::new() } else { format!(" and {plots} plots") };
        format!("wrote {page}{plots}: {} experiments", written.experiment_count)
    });
    Ok(())
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

fn list(output: Output) {
    let simulations = |e: &Experiment| e.series.len() * e.axis.places().len();
    let entry = |e: &'static Experiment| Entry {
        id: e.id,
        title: e.title,
        paper: e.paper.title,
        place: e.place,
        published: e.published,
        simulations: simulations(e),
    };
    let listed = Listed { experiments: all().into_iter().map(entry).collect() };
    output.show(&listed, || {
        let mut table = Table::new(&["experiment", ">simulations", "what it shows", "paper"]);
        for e in &listed.experiments {
            let authors = e.paper.split(',').next().unwrap_or(e.paper);
            let place = format!("{authors}, {}", e.place);
            table.row(vec![e.id.to_owned(), e.simulations.to_string(), e.title.to_owned(), place]);
        }
        table.render("  ")
    });
}

/// Runs what was asked for, with a bar, and says of each experiment when it has ended.
fn studies(ids: &[String], options: &Options) -> Result<Vec<Study>> {
    let experiments = find(ids).map_err(|error| failure(&error))?;
    let how = How {
        seed: options.seed,
        seeds: options.seeds.unwrap_or(if options.quick { 1 } else { SEEDS }),
        quick: options.quick,
        threads: options.threads.map(usize::from),
    };
    let bar = Bar::new();
    let mut count = 0;
    let ended = |experiment: &Experiment| {
        count += 1;
        bar.say(&format!("{} has ended: {count} of {}", experiment.id, experiments.len()));
    };
    let studies = study(&experiments, how, |progress| bar.show(progress), ended);
    bar.end();
    studies.map_err(|error| failure(&error))
}
