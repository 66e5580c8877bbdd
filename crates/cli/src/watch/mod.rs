//! `braid status --watch`: repeats the status every second, with rates in between. A terminal gets a page
//! with curves, everything else a report after the other.

mod page;
mod rates;
mod screen;

pub use rates::Rates;

use crate::output::{Output, is_open};
use crate::status::{all, describe, overview};
use braid_control::{Result, StateDir, VolumeName, VolumeReport, volume_report};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// Shows one volume or all volumes until interrupted, until a report fails, or until standard output is
/// closed.
pub fn watch(state: &StateDir, name: Option<&VolumeName>, output: Output) -> Result<u8> {
    let mut watched = Watched { state: state.clone(), name: name.cloned(), before: None };
    let are_terminals = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    // A serial console may not know its size.
    let has_room = || ratatui::crossterm::terminal::size().is_ok_and(|(width, height)| width * height > 0);
    if !output.json && are_terminals && has_room() {
        return screen::show(watched);
    }
    while is_open() {
        let Seen { report, rates } = watched.look()?;
        let text = || report.text(&watched.state, rates.as_ref());
        match &report {
            Report::One(_, volume) => output.show(&**volume, text),
            Report::All(volumes) => output.show(&serde_json::json!({ "volumes": volumes }), text),
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(0)
}

const INTERVAL: Duration = Duration::from_secs(1);

/// What is watched, with the report of before.
struct Watched {
    state: StateDir,
    name: Option<VolumeName>,
    before: Option<Arc<VolumeReport>>,
}

/// A report of one volume, with the rates since the report of before, or of all volumes.
struct Seen {
    report: Report,
    rates: Option<Rates>,
}

enum Report {
    One(VolumeName, Arc<VolumeReport>),
    All(Vec<VolumeReport>),
}

impl Watched {
    fn look(&mut self) -> Result<Seen> {
        let Some(name) = &self.name else {
            return Ok(Seen { report: Report::All(all(&self.state)?), rates: None });
        };
        let now = Arc::new(volume_report(&self.state, name)?);
        let rates = Rates::between(self.before.as_deref(), &now);
        self.before = Some(now.clone());
        Ok(Seen { report: Report::One(name.clone(), now), rates: Some(rates) })
    }
}

impl Report {
    fn text(&self, state: &StateDir, rates: Option<&Rates>) -> String {
        match self {
            Report::One(name, volume) => describe(state, name, volume, rates),
            Report::All(volumes) => overview(volumes),
        }
    }
}
