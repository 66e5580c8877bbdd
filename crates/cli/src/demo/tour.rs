//! `braid demo`: the safe copy and the cache, one after the other, with the dashboard beside them.

use super::guard::Guard;
use super::show::ShowSettings;
use super::stage::{Program, Stage};
use super::{cache, make_directory_in, pass};
use crate::output::Output;
use braid_control::{Error, ErrorKind, Result};
use clap::Args;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// TourSettings of both demonstrations, and the address of the dashboard.
#[derive(Args)]
pub struct TourSettings {
    #[command(flatten)]
    both: ShowSettings,
    /// Address and port of the dashboard; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    web: SocketAddr,
}

/// Results of both demonstrations.
#[derive(Serialize)]
struct Report {
    pass: pass::Report,
    cache: cache::Report,
    wall_seconds: f64,
}

/// Longest start of the dashboard.
const PATIENCE: Duration = Duration::from_secs(30);
/// Highest age of a commit that the disk lacks under pass.
const MAX_LAG_TIME: &str = "2s";

/// Runs both demonstrations. Exit status 3 if the cache lost an acknowledged commit.
pub fn run(settings: &TourSettings, output: Output) -> Result<u8> {
    let (both, safe) = (&settings.both, pass::policies(MAX_LAG_TIME));
    let policies = [&safe[..], &cache::policies()].concat();
    let (played, wall_seconds) = both.show(&policies, 4, 55, |stage, directory| {
        let state = directory.join("state");
        let mut guard = Guard::default();
        open_dashboard(settings.web, &state, directory, stage, &mut guard)?;
        stage.say("\n1. An SSD with a disk as its safe copy");
        let place = make_directory_in(directory, "pass")?;
        let pass = pass::play(&both.scene(stage, "pass", &place, &state), &safe)?;
        stage.say("\n2. A disk with an SSD as its cache");
        let place = make_directory_in(directory, "cache")?;
        let cache = cache::play(&both.scene(stage, "cache", &place, &state))?;
        Ok((pass, cache))
    })?;
    let (pass, cache) = played;
    let report = Report { pass, cache, wall_seconds };
    output.show(&report, || report.text());
    Ok(report.cache.exit_status())
}

/// Starts the dashboard of the volumes in `state`, and says where it is.
fn open_dashboard(
    address: SocketAddr,
    state: &Path,
    directory: &Path,
    stage: &Stage,
    guard: &mut Guard,
) -> Result<()> {
    let braid = std::env::current_exe().map_err(|e| Error::io("finding this program", &e))?;
    let (ready, log) = (directory.join("web.out"), directory.join("web.log"));
    let mut command = Command::new(braid);
    command.args(["web", "--listen", &address.to_string()]);
    command.env("BRAID_STATE_DIR", state).env_remove("BRAID_LOG");
    let mut page = Program::start(command, &ready, &log)?;
    let mut url = String::new();
    stage.wait_for(PATIENCE, || {
        url = std::fs::read_to_string(&ready).unwrap_or_default();
        url.ends_with('\n') || page.ended().is_some()
    })?;
    if !url.ends_with('\n') {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let why = said.lines().last().unwrap_or("its log is empty");
        let problem =
            format!("the dashboard does not start at {address}: {why}: choose another address by --web");
        return Err(Error::new(ErrorKind::Io, problem));
    }
    guard.after("the dashboard", move || {
        page.end();
        Ok(())
    });
    stage.say(&format!("Watch the volumes in a browser: {}", url.trim()));
    Ok(())
}

impl Report {
    fn text(&self) -> String {
        format!(
            "1. An SSD with a disk as its safe copy\n\n{}\n\n2. A disk with an SSD as its cache\n\n{}",
            self.pass.text(),
            self.cache.text()
        )
    }
}
