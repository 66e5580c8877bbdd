//! `braid trace record`.

use crate::output::Output;
use braid_base::{Bytes, Nanos};
use braid_control::{Client, Error, ErrorKind, Received, Recording, Result, StateDir, VolumeName};
use braid_trace::{COMPACT_END_LEN, compact_end};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Record the requests of a served volume's guests until Ctrl-C, or for some seconds
///
/// Time, kind, address and length of each request go into a trace in Braid's compact format; guests' data
/// does not. The volume never waits for the recording: requests that cannot be written in time are left out,
/// and the trace says how many. If the daemon or this command is killed, the trace is readable except the
/// last half second.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid trace record vault --output monday.trace --seconds 3600
  braid trace info monday.trace
  braid simulate --trace monday.trace --ssd 80GiB,model=x25-m --hdd 320GB,model=barracuda-7200.12

Requests are recorded on arrival, before they are served, both by NBD and by attach. Zeroing counts
as a discard if it may discard.

JSON: name, output_path, records, unrecorded_requests, recorded_seconds, output_bytes.")]
pub struct Arguments {
    /// Name of the volume
    name: VolumeName,
    /// File for the trace
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Length of the recording in seconds [default: until Ctrl-C]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
}

/// Report on a recording.
#[derive(Serialize)]
pub struct Report {
    name: String,
    output_path: String,
    records: u64,
    /// Requests that could not be written in time.
    pub unrecorded_requests: u64,
    recorded_seconds: f64,
    output_bytes: u64,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let Arguments { name, output: path, seconds, force } = arguments;
    let told_to_end = catch_signals()?;
    let report = record(state, name, path, *force, seconds.map(Duration::from_secs), &told_to_end)?;
    output.show(&report, || describe(&report));
    Ok(0)
}

/// Records a served volume into a file, for `length` or until told to end.
pub fn record(
    state: &StateDir,
    name: &VolumeName,
    path: &Path,
    force: bool,
    length: Option<Duration>,
    told_to_end: &AtomicBool,
) -> Result<Report> {
    // Open the file second: a failed start of the recording must not replace an existing file.
    let recording = Recording::start(Client::connect(state, name)?)?;
    let mut written = RecordFile::open(path, force)?;
    let start = Instant::now();
    let deadline = length.map(|length| start + length);
    let is_over = || told_to_end.load(Ordering::Relaxed) || deadline.is_some_and(|end| Instant::now() >= end);
    let took = receive(recording, &mut written, &is_over, start)?;
    written.report(name, took)
}

/// Catches SIGINT and SIGTERM: the first signal sets the flag, the second ends the command, because a write
/// to the file may wait for ever.
pub fn catch_signals() -> Result<Arc<AtomicBool>> {
    let told_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let caught = signal_hook::flag::register_conditional_shutdown(signal, 1, told_to_end.clone())
            .and_then(|_| signal_hook::flag::register(signal, told_to_end.clone()));
        caught.map_err(|error| Error::io("catching signals", &error))?;
    }
    Ok(told_to_end)
}

/// Longest wait for the last records of the daemon.
const LAST_RECORDS: Duration = Duration::from_secs(10);

/// Copies records to the file until the end; returns the length of the recording.
fn receive(
    mut recording: Recording,
    written: &mut RecordFile,
    is_over: &dyn Fn() -> bool,
    start: Instant,
) -> Result<Duration> {
    let bar = bar();
    let mut piece = vec![0; 64 << 10];
    let mut stopped: Option<Instant> = None;
    loop {
        if stopped.is_none() && is_over() {
            recording.stop()?;
            stopped = Some(Instant::now());
        }
        if stopped.is_some_and(|stopped| stopped.elapsed() > LAST_RECORDS) {
            let problem = format!("the daemon did not end the recording within {LAST_RECORDS:?}");
            return Err(Error::new(ErrorKind::Io, problem + ": the records until then are kept"));
        }
        match recording.receive(&mut piece)? {
            Received::Bytes(count) => written.write(&piece[..count])?,
            Received::Nothing => {}
            Received::End => break,
        }
        bar.set_position(written.bytes);
    }
    bar.finish_and_clear();
    Ok(stopped.map_or_else(|| start.elapsed(), |stopped| stopped - start))
}

fn bar() -> ProgressBar {
    let template = "recording for {elapsed}: {bytes}; Ctrl-C ends it";
    let style = ProgressStyle::with_template(template).expect("the bar's template is one");
    ProgressBar::new_spinner().with_style(style)
}

/// The trace file.
struct RecordFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The last bytes: the trailer, once received.
    last: Vec<u8>,
}

impl RecordFile {
    fn open(path: &Path, force: bool) -> Result<RecordFile> {
        let mut options = OpenOptions::new();
        let options = if force { options.create(true).truncate(true) } else { options.create_new(true) };
        let file = options.write(true).open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                let problem = format!("{}: file exists: name another file, or add --force", path.display());
                Error::new(ErrorKind::Usage, problem)
            }
            _ => Error::io(format_args!("cannot write {}", path.display()), &error),
        })?;
        Ok(RecordFile { path: path.to_owned(), file, bytes: 0, last: Vec::new() })
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        let failed = |error: std::io::Error| {
            let path = self.path.display();
            let problem = format!(
                "cannot write {path}: {error}: the recording has ended; the records in {path} are readable"
            );
            Error::new(ErrorKind::Io, problem)
        };
        self.file.write_all(piece).map_err(failed)?;
        self.bytes += piece.len() as u64;
        self.last.extend_from_slice(&piece[piece.len().saturating_sub(COMPACT_END_LEN)..]);
        self.last.drain(..self.last.len().saturating_sub(COMPACT_END_LEN));
        Ok(())
    }

    fn report(self, name: &VolumeName, took: Duration) -> Result<Report> {
        let Some(end) = compact_end(&self.last) else {
            let problem = format!(
                "the daemon of volume '{name}' died: the records until then are in {}",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Io, problem));
        };
        Ok(Report {
            name: name.to_string(),
            output_path: self.path.display().to_string(),
            records: end.records,
            unrecorded_requests: end.dropped,
            recorded_seconds: took.as_secs_f64(),
            output_bytes: self.bytes,
        })
    }
}

fn describe(report: &Report) -> String {
    let Report { name, output_path, records, unrecorded_requests, .. } = report;
    let (took, size) = (Nanos::from_secs_f64(report.recorded_seconds), Bytes(report.output_bytes));
    let mut text = format!("{records} requests of volume '{name}' in {took} are in {output_path} ({size})");
    if *unrecorded_requests > 0 {
        text += &format!(
            "\n{unrecorded_requests} more requests are missing: the trace could not be written in time"
        );
    }
    text
}
