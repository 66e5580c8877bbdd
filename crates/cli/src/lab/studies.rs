//! Runs experiments for `braid lab run` and `braid lab report`: estimates the run's time, shows the time left
//! on a terminal, and keeps finished results.

use super::Options;
use crate::simulate::{Bar, clock, failure};
use braid_control::{Error, ErrorKind, Result};
use braid_lab::experiments::find;
use braid_lab::study::{Folder, How, News, Seeds, Study, Work, study, work};
use std::ops::ControlFlow;
use std::path::Path;

/// Default folder of results.
const RESULTS: &str = "lab-results";

/// Returns the studies of these experiments, from kept results or from simulations.
pub fn run(ids: &[String], options: &Options) -> Result<Vec<Study>> {
    let experiments = find(ids).map_err(|error| failure(&error))?;
    let how = How {
        seed: options.seed,
        seeds: match (options.seeds, options.quick) {
            (Some(seeds), _) => Seeds::Fixed(seeds),
            (None, true) => Seeds::Fixed(1),
            (None, false) => Seeds::AsNeeded,
        },
        quick: options.quick,
        threads: options.threads.map(usize::from),
    };
    let path = options.results.as_deref().unwrap_or(Path::new(RESULTS));
    if path.is_file() {
        let path = path.display();
        return Err(Error::new(
            ErrorKind::Usage,
            format!("--results {path}: a file: results of experiments need a folder: name a folder"),
        ));
    }
    let folder = Folder::open(path, options.fresh).map_err(|error| failure(&error))?;
    let bar = Bar::new();
    let work = work(&experiments, how, &folder).map_err(|error| failure(&error))?;
    bar.say(&foretold(&work, experiments.len(), path));
    let tell = |news: &News| match news {
        News::Progress { sweep, left, left_at_most } => bar.show_left(sweep, *left, *left_at_most),
        News::Ended { experiment, seeds, undecided } => {
            let more = if *undecided { ", undecided: more seeds" } else { "" };
            let seeds = if *seeds == 1 { "1 seed".to_owned() } else { format!("{seeds} seeds") };
            bar.say(&format!("{} has ended: {seeds}{more}", experiment.id));
        }
    };
    let studies = study(&experiments, how, &folder, |news| {
        tell(news);
        ControlFlow::Continue(())
    });
    bar.end();
    studies.map_err(|error| failure(&error))
}

/// Estimate of the run's time, as one line.
fn foretold(work: &Work, experiments: usize, folder: &Path) -> String {
    let Work { least_seconds, most_seconds, kept } = *work;
    let folder = folder.display();
    let experiments =
        if experiments == 1 { "1 experiment".to_owned() } else { format!("{experiments} experiments") };
    if most_seconds == 0.0 {
        return format!("{experiments}: all seeds are kept in {folder}");
    }
    let time = match least_seconds < most_seconds {
        true => format!("{} to {}", clock(least_seconds), clock(most_seconds)),
        false => clock(most_seconds),
    };
    format!("{experiments}: about {time} of one processor; seeds kept in {folder}: {kept}")
}
