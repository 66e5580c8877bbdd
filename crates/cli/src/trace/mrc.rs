//! `braid trace mrc`.

use super::failed;
use super::reading::{FileProgress, Reading, complaints, open_once};
use crate::output::Output;
use crate::table::Table;
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result};
use braid_trace::curves::{Collector, Eviction, MOST_REFERENCES, References, miss_ratio};
use braid_trace::{Layout, Problem, Tally};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Draw miss-ratio curves of a trace: by eviction and size of a cache, with Belady's bound
///
/// The trace is read once. Its references to blocks of 4 KiB stay in memory, 4 bytes each and 512 MiB at
/// most. Of a trace with more references, a sample of blocks is kept (SHARDS), and each cache is simulated at
/// the size of its share of the sample. Reads and writes both bring a block into the cache.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid trace mrc Financial1.spc.gz
  braid trace mrc src1_0.csv.gz --evict lru,arc,belady --size 64MiB --size 1GiB --size 10%
  braid trace mrc oltp.zst --sample 1% --json

Evictions: lru, s3-fifo, sieve, arc, lirs, w-tiny-lfu, and belady, which knows the future: no cache that admits every
block misses less. With a sample, curves are estimates: with 10,000 sampled blocks, accurate to some per cent.

JSON: input_path, format, compression, records, bad_records, other_devices_records, reordered_records, late_records, problems
(record_number, problem; the first 20), block_references, footprint_bytes, sampled_share, sampled_blocks, miss_ratio_curves:
eviction, points (cache_size_bytes, miss_ratio; null if the cache has no room for a block of the sample).")]
pub struct Arguments {
    /// Trace: a file, a folder of its parts, several files joined by +, or - for standard input
    file: PathBuf,
    /// Evictions to compare
    #[arg(long, value_name = "EVICTION,...", value_delimiter = ',', default_values_t = Eviction::ALL)]
    evict: Vec<Eviction>,
    /// Sizes of caches: bytes, or a share of the trace's footprint such as 10%. Repeat the option for more
    /// sizes
    #[arg(long, value_name = "SIZE", default_values_t = SIZES.map(Size::Share))]
    size: Vec<Size>,
    /// Share of blocks to sample, such as 1%
    #[arg(long, value_name = "SHARE", default_value_t = Percent(100.0))]
    sample: Percent,
    #[command(flatten)]
    reading: Reading,
}

/// Default sizes, in per cent of the footprint.
const SIZES: [f64; 10] = [0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0];

/// The size of a cache.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Size {
    Bytes(Bytes),
    /// Per cent of the footprint.
    Share(f64),
}

/// A share, above 0 and at most 100 %.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Percent(f64);

impl FromStr for Percent {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Percent, String> {
        let percent = text.strip_suffix('%').and_then(|text| text.trim_end().parse().ok());
        let percent = percent.filter(|percent: &f64| *percent > 0.0 && *percent <= 100.0);
        percent
            .map(Percent)
            .ok_or_else(|| format!("'{text}' is not a share: use more than 0% and at most 100%"))
    }
}

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Size, String> {
        if text.ends_with('%') {
            return text.parse().map(|Percent(percent)| Size::Share(percent));
        }
        let bytes: Bytes = text.parse().map_err(|error: braid_base::ParseQuantityError| error.to_string())?;
        if bytes < Bytes(4096) {
            return Err(format!(
                "'{text}' has no room for a block of 4 KiB: use 4KiB or more, or a share such as 10%"
            ));
        }
        Ok(Size::Bytes(bytes))
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Bytes(bytes) => write!(f, "{bytes}"),
            Size::Share(percent) => write!(f, "{percent}%"),
        }
    }
}

#[derive(Serialize)]
struct Report {
    input_path: String,
    format: String,
    compression: String,
    #[serde(flatten)]
    tally: Tally,
    problems: Vec<Problem>,
    block_references: u64,
    footprint_bytes: u64,
    sampled_share: f64,
    sampled_blocks: usize,
    miss_ratio_curves: Vec<Curve>,
}

#[derive(Serialize)]
struct Curve {
    eviction: Eviction,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    cache_size_bytes: u64,
    miss_ratio: Option<f64>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let bar = FileProgress::new();
    let options = arguments.reading.options(Layout::ROOMY);
    let mut reader = open_once(&arguments.file, &options, &bar)?;
    let mut collector = Collector::new(arguments.sample.0 / 100.0, MOST_REFERENCES);
    for record in reader.by_ref() {
        collector.add(&record.map_err(failed)?);
    }
    drop(bar);
    let references = collector.finish();
    if references.kept() == 0 {
        let why = match references.all() {
            0 => "no reads and no writes: nothing to cache: use another trace",
            _ => "no block in the sample: use a larger --sample",
        };
        return Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", arguments.file.display())));
    }
    let report = Report {
        input_path: arguments.file.display().to_string(),
        format: reader.format().to_string(),
        compression: reader.compression().to_string(),
        tally: reader.tally(),
        problems: reader.problems().kept().to_vec(),
        block_references: references.all(),
        footprint_bytes: references.footprint_bytes(),
        sampled_share: references.sampled_share(),
        sampled_blocks: references.distinct(),
        miss_ratio_curves: curves(
            &references,
            &arguments.evict,
            &sizes(&arguments.size, references.footprint_bytes()),
        ),
    };
    output.show(&report, || describe(&report) + &complaints(&reader));
    Ok(0)
}

/// Returns the sizes in bytes, in rising order without duplicates, at least one block each.
fn sizes(sizes: &[Size], footprint: u64) -> Vec<u64> {
    let bytes = |size: &Size| match size {
        Size::Bytes(bytes) => bytes.0,
        Size::Share(percent) => (footprint as f64 * percent / 100.0).round() as u64,
    };
    let mut sizes: Vec<u64> = sizes.iter().map(bytes).map(|bytes| (bytes / 4096).max(1) * 4096).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Simulates every eviction at every size, on all cores.
fn curves(references: &References, evictions: &[Eviction], sizes: &[u64]) -> Vec<Curve> {
    let all: Vec<(Eviction, u64)> =
        evictions.iter().flat_map(|&eviction| sizes.iter().map(move |&size| (eviction, size))).collect();
    let ratios: Mutex<Vec<Option<f64>>> = Mutex::new(vec![None; all.len()]);
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let place = next.fetch_add(1, Relaxed)
                    && let Some(&(eviction, size)) = all.get(place)
                {
                    let ratio = miss_ratio(references, eviction, size);
                    ratios.lock().expect("no thread panics while it holds the lock")[place] = ratio;
                }
            });
        }
    });
    let ratios = ratios.into_inner().expect("all threads have ended");
    let point =
        |(&cache_size_bytes, &miss_ratio): (&u64, &Option<f64>)| Point { cache_size_bytes, miss_ratio };
    let curve = |(&eviction, ratios): (&Eviction, &[Option<f64>])| Curve {
        eviction,
        points: sizes.iter().zip(ratios).map(point).collect(),
    };
    evictions.iter().zip(ratios.chunks(sizes.len())).map(curve).collect()
}

fn describe(report: &Report) -> String {
    let sample = match report.sampled_share < 1.0 {
        true => {
            format!(", a sample of {} blocks ({:.2} %)", report.sampled_blocks, report.sampled_share * 100.0)
        }
        false => String::new(),
    };
    let mut text = format!(
        "{}: {} references to blocks of 4 KiB, {} in all{sample}\n  miss ratios\n",
        report.input_path,
        report.block_references,
        Bytes(report.footprint_bytes)
    );
    let columns: Vec<String> =
        report.miss_ratio_curves.iter().map(|curve| format!(">{}", curve.eviction)).collect();
    let columns: Vec<&str> = std::iter::once(">cache").chain(columns.iter().map(String::as_str)).collect();
    let mut table = Table::new(&columns);
    let places = report.miss_ratio_curves.first().map_or(0, |curve| curve.points.len());
    for place in 0..places {
        let size = Bytes(report.miss_ratio_curves[0].points[place].cache_size_bytes);
        let ratio = |curve: &Curve| {
            curve.points[place].miss_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
        };
        table.row(
            std::iter::once(size.to_string()).chain(report.miss_ratio_curves.iter().map(ratio)).collect(),
        );
    }
    text += &table.render("  ");
    text
}
