//! `braid trace convert`.

use super::failed;
use super::reading::{FileProgress, Reading, complaints, open_once, open_twice};
use crate::output::Output;
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result};
use braid_trace::{
    BlockCompression, Converted, Header, Layout, Place, Problem, Reader, Survey, Tally, Target, convert,
};
use clap::Args;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, ErrorKind::BrokenPipe, Write};
use std::path::{Path, PathBuf};

/// Convert a trace to another format
///
/// compact is Braid's own format: it keeps everything, in some 7 bytes a record, and is read at tens of
/// millions of records a second. spc is text for other tools, without flushes and discards. fio2 and fio3 are
/// iologs that fio replays; fio2 is for fio before 3.31, with times in milliseconds.
///
/// A trace is read twice: first to find the size of each of its devices. Devices are laid one after another,
/// devices with numbers first. Standard input is read once, with devices --span apart.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid trace convert Financial1.spc.gz financial1.trace --zstd 3
  braid trace convert financial1.trace - --to fio3 --device 0 > asu0.iolog
  fio --name=replay --read_iolog=asu0.iolog --replay_redirect=/dev/nbd0 --ioengine=libaio --direct=1

An incomplete OUT is called OUT.partial.

JSON: input_path, output_path, output_format, format, records, left_out_records, rounded_records, bad_records,
other_devices_records, reordered_records, late_records, problems (record_number,
problem), span_bytes and layout (trace_device, base_bytes, span_bytes), null if the trace was read once.")]
pub struct Arguments {
    /// Trace: a file, a folder of its parts, several files joined by +, or - for standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Output: a file, or - for standard output
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Format of the output: compact, spc, fio2 or fio3
    #[arg(long, value_name = "FORMAT", default_value = "compact")]
    to: Target,
    /// Compress the blocks of compact with zstd at this level, 1 to 19
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=19))]
    zstd: Option<i32>,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Distance between devices that cannot be laid out beforehand (standard input)
    #[arg(long, value_name = "SIZE", default_value = "1TiB")]
    span: Bytes,
    #[command(flatten)]
    reading: Reading,
}

#[derive(Serialize)]
struct Report {
    input_path: String,
    output_path: String,
    output_format: String,
    format: String,
    #[serde(flatten)]
    converted: Converted,
    bad_records: u64,
    other_devices_records: u64,
    reordered_records: u64,
    late_records: u64,
    problems: Vec<Problem>,
    span_bytes: Option<u64>,
    layout: Option<Vec<Place>>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let target = match (arguments.to, arguments.zstd) {
        (Target::Compact(_), Some(level)) => Target::Compact(BlockCompression::Zstd(level)),
        (target, None) => target,
        (target, Some(_)) => {
            let problem = format!("--zstd: for compact only: compress {target} with another program");
            return Err(Error::new(ErrorKind::Usage, problem));
        }
    };
    let destination = Destination::of(&arguments.output, arguments.force)?;
    let bar = FileProgress::new();
    let (mut reader, survey) = open(arguments, &bar)?;
    let header = header(&arguments.input, survey.as_ref());
    let converted = destination.fill(|out| match convert(&mut reader, target, &header, out, |_| ()) {
        // A program that closes a pipe (`| head`) has read enough: not an error.
        Err(braid_trace::Error::Io { source, .. }) if source.kind() == BrokenPipe => Ok(None),
        converted => converted.map(Some).map_err(failed),
    })?;
    let Some(converted) = converted else { return Ok(0) };
    drop(bar);
    let Tally { bad_records, other_devices_records, reordered_records, late_records, .. } = reader.tally();
    let report = Report {
        input_path: arguments.input.display().to_string(),
        output_path: arguments.output.display().to_string(),
        output_format: target.to_string(),
        format: reader.format().to_string(),
        converted,
        bad_records,
        other_devices_records,
        reordered_records,
        late_records,
        problems: reader.problems().kept().to_vec(),
        span_bytes: survey.as_ref().map(|survey| survey.span.0),
        layout: survey.map(|survey| survey.places),
    };
    match &destination {
        // Standard output carries the trace: the report goes to standard error.
        Destination::Standard => {
            eprintln!("{}", (describe(&report) + &complaints(&reader)).trim_end());
        }
        Destination::File(_) => output.show(&report, || describe(&report) + &complaints(&reader)),
    }
    Ok(0)
}

fn open(arguments: &Arguments, bar: &FileProgress) -> Result<(Reader<'static>, Option<Survey>)> {
    let options = arguments.reading.options(Layout::Apart(arguments.span));
    if arguments.input == Path::new("-") {
        return Ok((open_once(&arguments.input, &options, bar)?, None));
    }
    let file = open_twice(&arguments.input, &options, bar)?;
    Ok((file.reader().map_err(failed)?, Some(file.survey().clone())))
}

/// Header of the output: facts known before the first record.
fn header(input: &Path, survey: Option<&Survey>) -> Header {
    let name = input.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(survey) = survey else { return Header { name, ..Header::default() } };
    Header {
        name,
        span: Some(survey.span),
        records: Some(survey.tally.records),
        unix_ns: None,
        places: survey.places.clone(),
    }
}

/// Destination of the converted trace.
enum Destination {
    Standard,
    File(PathBuf),
}

impl Destination {
    fn of(path: &Path, force: bool) -> Result<Destination> {
        if path == Path::new("-") {
            return Ok(Destination::Standard);
        }
        if path.exists() && !force {
            let problem = format!("{}: file exists: name another file, or add --force", path.display());
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        Ok(Destination::File(path.to_owned()))
    }

    /// Calls `write` with the destination; a file gets its name only once complete.
    fn fill<T>(&self, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
        let path = match self {
            Destination::Standard => return write(&mut BufWriter::new(std::io::stdout().lock())),
            Destination::File(path) => path,
        };
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let io =
            |error: &std::io::Error| Error::io(format_args!("cannot write {}", partial.display()), error);
        let file = File::create(&partial).map_err(|error| io(&error))?;
        let written = write(&mut BufWriter::with_capacity(1 << 20, file)).and_then(|written| {
            std::fs::rename(&partial, path).map_err(|error| io(&error))?;
            Ok(written)
        });
        if written.is_err() {
            // The earlier error is reported, not the failed removal.
            let _gone = std::fs::remove_file(&partial);
        }
        written
    }
}

fn describe(report: &Report) -> String {
    let Report { input_path: input, output_path: output, output_format: target, format, converted, .. } =
        report;
    let mut text = format!("{output}: {} records as {target}, from {input} ({format})", converted.records);
    if let Some(places) = report.layout.as_ref().filter(|places| places.len() > 1) {
        let span = Bytes(report.span_bytes.unwrap_or(0));
        text += &format!("; {} devices one after another in {span}", places.len());
    }
    if converted.left_out_records > 0 {
        text += &format!(
            "\n  {} flushes and discards left out: {target} cannot express them",
            converted.left_out_records
        );
    }
    if converted.rounded_records > 0 {
        text += &format!("\n  {} records were widened to whole sectors", converted.rounded_records);
    }
    text + "\n"
}
