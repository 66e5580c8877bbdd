//! Options and progress shared by commands that read a trace.

use super::failed;
use braid_base::{Bytes, Nanos};
use braid_control::Result;
use braid_trace::{Event, Format, Layout, Options, Reader, Tally, TraceFile, Watch};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options for reading a trace.
#[derive(Args)]
pub struct Reading {
    #[command(flatten)]
    content: Content,
    /// Unit of addresses, in formats of sectors or blocks [default: 512B]
    #[arg(long, value_name = "SIZE", help_heading = "Reading")]
    block: Option<Bytes>,
    /// Factor to divide times by, as for a trace with a stretched clock
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = "Reading")]
    speed: f64,
}

/// Format of a trace, and the records to read.
#[derive(Args)]
pub struct Content {
    /// Format of the trace, if detection fails
    #[arg(long, help_heading = "Reading")]
    format: Option<Format>,
    /// Unit of times [default: by the format; for arc, each line 1ms]
    #[arg(long, value_name = "TIME", help_heading = "Reading")]
    time_unit: Option<Nanos>,
    /// Read only this device: an ASU, a disk, a file's name
    #[arg(long, value_name = "LABEL", help_heading = "Reading")]
    device: Option<String>,
    /// Event that counts as the request in blktrace and blkparse: queue, issue or complete
    #[arg(long, default_value = "queue", help_heading = "Reading")]
    event: Event,
    /// Records held back to sort late records by time, up to 65536
    #[arg(long, value_name = "RECORDS", default_value_t = Options::default().window, help_heading = "Reading")]
    window: usize,
    /// Stop at the first bad record, instead of counting and skipping bad records
    #[arg(long, help_heading = "Reading")]
    strict: bool,
}

impl Reading {
    /// Returns the options for the library.
    pub fn options(&self, layout: Layout) -> Options {
        Options { block: self.block, speed: self.speed, layout, ..self.content.options() }
    }
}

impl Content {
    /// Returns the options for the library, with the format's own blocks and times.
    pub fn options(&self) -> Options {
        Options {
            format: self.format,
            time_unit: self.time_unit,
            device: self.device.clone(),
            event: self.event,
            window: self.window,
            strict: self.strict,
            ..Options::default()
        }
    }
}

/// Opens a trace to read once: one or more files, or standard input for `-`. The bar shows the progress.
pub fn open_once(path: &Path, options: &Options, bar: &FileProgress) -> Result<Reader<'static>> {
    if path == Path::new("-") {
        let reader = Reader::open(std::io::stdin(), options).map_err(failed)?;
        return Ok(reader.named("standard input".to_owned()));
    }
    braid_trace::open(path, options, bar.watch(path)).map_err(failed)
}

/// Opens a trace to read twice. The bar shows the progress of both.
pub fn open_twice(path: &Path, options: &Options, bar: &FileProgress) -> Result<TraceFile> {
    let file = TraceFile::open(path, options, bar.watch(path)).map_err(failed)?;
    bar.bar.set_position(0);
    Ok(file)
}

/// Progress of reading a file, shown only on a terminal.
pub struct FileProgress {
    bar: ProgressBar,
}

impl FileProgress {
    /// Creates a bar at the beginning.
    pub fn new() -> FileProgress {
        let template = "{bar:30} {percent:>3} %  {bytes_per_sec}, about {eta} left";
        let style = ProgressStyle::with_template(template).expect("the bar's template is one");
        FileProgress { bar: ProgressBar::new(0).with_style(style) }
    }

    fn watch(&self, path: &Path) -> Option<Watch> {
        // The opening of the trace reports files that cannot be opened.
        let files = braid_trace::files_of(path).unwrap_or_default();
        let len = |file: &PathBuf| std::fs::metadata(file).map_or(0, |file| file.len());
        self.bar.set_length(files.iter().map(len).sum());
        let bar = self.bar.clone();
        Some(Arc::new(move |bytes| bar.inc(bytes)))
    }
}

impl Drop for FileProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns lines about bad, late and reordered records; empty if there are none.
pub fn complaints(reader: &Reader) -> String {
    const SHOWN: usize = 5;
    let Tally { bad_records, reordered_records, late_records, .. } = reader.tally();
    let mut text = String::new();
    if bad_records > 0 {
        let word = reader.format().word_for_record();
        text += &format!("\n  {bad_records} bad {word}s were skipped:\n");
        let problems = reader.problems();
        for problem in problems.kept().iter().take(SHOWN) {
            text += &format!("    {}\n", problems.describe(problem));
        }
        if bad_records > SHOWN as u64 {
            text += "    ...\n";
        }
    }
    if late_records > 0 {
        text += &format!(
            "\n  {late_records} records came too late to be sorted by time and got the time of the record before: try a larger --window\n"
        );
    } else if reordered_records > 0 {
        text += &format!("\n  {reordered_records} records were sorted by time\n");
    }
    text
}
