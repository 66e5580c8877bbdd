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
use std::time::Duration;

/// Shows one volume or all volumes until interrupted, until a report fails, or until standard output is
/// closed.
pub fn watch(state: &StateDir, name: Option<&VolumeName>, output: Output) -> Result<u8> {
    let mut watched = Watched { state: state.clone(), name: name.cloned(), before: None };
    if !output.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return screen::show(watched);
    }
    while is_open() {
        let Seen { report, text, .. } = watched.look()?;
        output.show(&report, || text);
        std::thread::sleep(INTERVAL);
    }
    Ok(0)
}

const INTERVAL: Duration = Duration::from_secs(1);

/// What is watched, with the report of before.
struct Watched {
    state: StateDir,
    name: Option<VolumeName>,
    before: Option<VolumeReport>,
}

/// A report, once seen.
struct Seen {
    report: serde_json::Value,
    text: String,
    /// Rates since the report of before, of one volume.
    rates: Option<Rates>,
    /// Names of the devices, as long as the rates.
    devices: Vec<String>,
}

impl Watched {
    fn look(&mut self) -> Result<Seen> {
        let Some(name) = &self.name else {
            let reports = all(&self.state)?;
            let report = serde_json::json!({ "volumes": reports });
            return Ok(Seen { report, text: overview(&reports), rates: None, devices: Vec::new() });
        };
        let now = volume_report(&self.state, name)?;
        Ok(seen(&self.state, name, &mut self.before, now))
    }
}

/// A report of one volume, with the rates since the report of `before`, which it replaces.
fn seen(state: &StateDir, name: &VolumeName, before: &mut Option<VolumeReport>, now: VolumeReport) -> Seen {
    let rates = Rates::between(before.as_ref(), &now);
    let text = describe(state, name, &now, Some(&rates));
    let devices = match &now {
        VolumeReport::Served(status) => {
            status.devices.iter().map(|device| format!("{} {}", device.device, device.class)).collect()
        }
        VolumeReport::Resting(_) | VolumeReport::Silent(_) => Vec::new(),
    };
    let report = serde_json::to_value(&now).expect("a report is JSON");
    *before = Some(now);
    Seen { report, text, rates: Some(rates), devices }
}

/// The report of a served volume, for tests.
#[cfg(test)]
fn served(before: &mut Option<VolumeReport>, status: braid_control::StatusReport) -> Seen {
    let state = StateDir::new(std::path::Path::new("/nonexistent")).expect("a path");
    let name = "vault".parse().expect("a name");
    seen(&state, &name, before, VolumeReport::Served(Box::new(status)))
}
