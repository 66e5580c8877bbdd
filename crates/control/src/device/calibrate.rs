//! `braid device calibrate`: measures a device or file, and makes a model.
//!
//! A closed loop runs for each measure of `braid_model::Observed`, on the ring, without the page cache. The
//! first part of each run does not count. Nothing is written unless requested, except to a scratch file: a
//! file that did not exist, and is made, filled, measured and removed. A device of a volume is never written.

mod load;

use crate::device::open::{OpenDevice, Prepared, look, prepare};
use crate::device::remote::is_address;
use crate::device::spec::{DeviceSpec, Storage};
use crate::model::library;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, Nanos};
use braid_model::{Fitted, Measure, Observed, measure};
use braid_runtime::{Arena, Device};
use braid_uring::Ring;
use load::Load;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

/// Settings of a calibration.
#[derive(Clone, PartialEq, Debug)]
pub struct CalibrateOptions {
    /// The device, as `PATH[,size=S][,model=M]`.
    pub device: String,
    /// Class of the device; `None` to derive the class from the device's behavior.
    pub class: Option<DeviceClass>,
    /// Approximate duration, without filling a scratch file.
    pub time: Nanos,
    /// Allow writes that destroy the device's content.
    pub write: bool,
    /// Name for the model.
    pub name: String,
}

/// Measurements and model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CalibrateReport {
    /// The device's path.
    pub path: String,
    /// `ssd` or `hdd`.
    pub class: String,
    /// The device's size.
    pub size_bytes: u64,
    /// True if writes were measured.
    pub writes_measured: bool,
    /// Measurements, each with the model's value.
    pub figures: Vec<MeasuredReport>,
    /// Duration of a flush after a single write.
    pub flush_response_ns: Option<u64>,
    /// For an emulated device: mean delay of requests against the model.
    pub lateness_ns_mean: Option<u64>,
    /// The model as TOML for a user's file.
    pub toml: String,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MeasuredReport {
    /// The measured work.
    pub measure: String,
    /// `megabytes_per_second` or `requests_per_second`.
    pub unit: String,
    /// Measured value.
    pub measured_value: f64,
    /// Value of the model.
    pub model_value: f64,
}

/// Smallest size that can be measured: a smaller range is under the arm of a disk at once.
const SMALLEST: Bytes = Bytes(64 << 20);

/// Largest arena of a load: 32 requests of 128 KiB, with slack.
const ARENA: Bytes = Bytes(8 << 20);

/// Measures a device, and makes a model. Calls `progress` before each measure with its number, the number of
/// measures, and a description.
///
/// # Errors
/// `Usage` if the options are wrong; `Invalid` if the device's content must not be destroyed, or the device
/// cannot be measured.
pub fn calibrate(
    options: &CalibrateOptions,
    progress: &dyn Fn(usize, usize, &str),
) -> Result<CalibrateReport> {
    let device = parse(options)?;
    let Storage::Path(path) = &device.storage else {
        return Err(Error::new(ErrorKind::Usage, "memory has no timing of its own: name a device or a file"));
    };
    if is_address(path) {
        let problem =
            "a remote device cannot be calibrated from here: calibrate the device on its own machine";
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    let made = prepare(&device)? == Prepared::Made;
    let result = on_ring(async |ring, arena| {
        let opened = Rc::new(open(ring, &device, path, options.write, made).await?);
        let (writes, scratch) = (options.write || made, made && device.model.is_none());
        let class = options.class.or(device.model.is_some().then_some(device.class));
        Session { load: Load::new(ring, arena, opened), options, progress, writes, scratch, class }
            .run()
            .await
    });
    if made && let Err(error) = std::fs::remove_file(path) {
        tracing::warn!("{} could not be removed: {error}", path.display());
    }
    result
}

fn on_ring<T>(work: impl AsyncFnOnce(&Ring, &Arena) -> Result<T>) -> Result<T> {
    let arena = Arena::new(ARENA);
    let ring = Ring::new(64, &arena)?;
    let result = ring.block_on(work(&ring, &arena));
    ring.clear();
    result
}

/// Parses the device; without an explicit class, the model decides the class.
fn parse(options: &CalibrateOptions) -> Result<DeviceSpec> {
    let text = &options.device;
    let as_class = |class| {
        let device = DeviceSpec::parse(class, text)?;
        if device.layout.is_some() {
            let problem = format!(
                "layout= in '{text}' is for a device of a volume: leave layout= out for a measurement"
            );
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        let model = device.model.as_deref().map(|model| library::find_model(class, model));
        model.transpose().map(|_| device)
    };
    match options.class {
        Some(class) => as_class(class),
        None => as_class(DeviceClass::Ssd).or_else(|_| as_class(DeviceClass::Hdd)),
    }
}

/// Opens the device, after checks that a measurement does no harm and is meaningful.
async fn open(ring: &Ring, device: &DeviceSpec, path: &Path, write: bool, made: bool) -> Result<OpenDevice> {
    let invalid = |problem: String| Err(Error::new(ErrorKind::Invalid, problem));
    let shown = path.display();
    if write
        && !made
        && let Ok(superblock) = look(ring, path).await
    {
        return invalid(format!(
            "{shown} belongs to volume '{}': measure reads only, without --write, or use another device",
            superblock.name
        ));
    }
    let opened = match device.model.as_deref() {
        Some(model) => {
            let model = library::find_model(device.class, model)?;
            OpenDevice::open(ring, &device.storage, device.class, Some(&model), None, 1).await?
        }
        None => {
            refuse_sparse(path, made)?;
            // The page cache would measure this machine's memory.
            OpenDevice::open_direct(ring, path, device.class)?
        }
    };
    let size = opened.geometry().size;
    if size < SMALLEST {
        return invalid(format!("{shown} has {size}: use a device of at least {SMALLEST}"));
    }
    Ok(opened)
}

/// Refuses a sparse file: unwritten parts are read without touching the disk.
fn refuse_sparse(path: &Path, made: bool) -> Result<()> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|e| Error::io(format_args!("cannot look at {shown}"), &e))?;
    if made || !found.is_file() || found.blocks() * 512 >= found.len() / 10 * 9 {
        return Ok(());
    }
    let problem = format!(
        "{shown} is sparse, and reads of unwritten ranges do not reach the disk: write the file first, or \
         name a file that does not exist, with size=: that file is created, written, measured and removed"
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// One calibration.
struct Session<'a> {
    load: Load,
    options: &'a CalibrateOptions,
    progress: &'a dyn Fn(usize, usize, &str),
    writes: bool,
    scratch: bool,
    class: Option<DeviceClass>,
}

impl Session<'_> {
    async fn run(self) -> Result<CalibrateReport> {
        let size = self.load.size();
        if self.scratch {
            (self.progress)(0, 0, "writing the scratch file");
            self.load.fill().await?;
        }
        let class = self.class().await?;
        let wanted = Observed::wanted(class, self.writes);
        let whole: f64 = wanted.iter().map(|wanted| weight(*wanted)).sum();
        let mut figures = Vec::new();
        for (at, measure) in wanted.iter().enumerate() {
            (self.progress)(at + 1, wanted.len(), &words(*measure));
            let seconds = self.options.time.as_secs_f64() * weight(*measure) / whole;
            figures.push((*measure, self.load.run(*measure, Nanos::from_secs_f64(seconds)).await?));
        }
        let flush = if self.writes { Some(self.load.flush().await?) } else { None };
        self.report(&Observed { class, size, figures, flush })
    }

    /// Returns the given class, or the class that the device behaves like.
    async fn class(&self) -> Result<DeviceClass> {
        if let Some(class) = self.class {
            return Ok(class);
        }
        let rate = self.load.run(Measure::RandomRead { depth: 1 }, Nanos::from_millis(500)).await?;
        Ok(if rate < SLOWEST_SSD { DeviceClass::Hdd } else { DeviceClass::Ssd })
    }

    fn report(&self, observed: &Observed) -> Result<CalibrateReport> {
        let path = self.options.device.split(',').next().unwrap_or_default();
        let title = format!("{path}, calibrated");
        let invalid = |error: braid_model::InvalidModel| {
            let problem = format!(
                "the measurements of {path} fit no model: {error}; see that no other program uses {path}"
            );
            Error::new(ErrorKind::Invalid, problem)
        };
        let fitted = observed.fit(&self.options.name, &title).map_err(invalid)?;
        let figures: Vec<MeasuredReport> = observed
            .figures
            .iter()
            .map(|(wanted, measured)| MeasuredReport {
                measure: words(*wanted),
                unit: unit(*wanted).to_owned(),
                measured_value: *measured,
                model_value: measure(&fitted.spec, *wanted),
            })
            .collect();
        let lateness = self.load.device().lateness().map(|lateness| lateness.mean().0);
        Ok(CalibrateReport {
            path: path.to_owned(),
            class: observed.class.to_string(),
            size_bytes: observed.size.0,
            writes_measured: self.writes,
            toml: text(self.options, &fitted, &figures, observed.flush).map_err(invalid)?,
            figures,
            flush_response_ns: observed.flush.map(|time| time.0),
            lateness_ns_mean: lateness,
        })
    }
}

/// Random reads per second of the slowest SSD: no known SSD needs a millisecond for a single read.
const SLOWEST_SSD: f64 = 1_000.0;

/// Returns the model's text, below the measurements.
fn text(
    options: &CalibrateOptions,
    fitted: &Fitted,
    figures: &[MeasuredReport],
    flush: Option<Nanos>,
) -> std::result::Result<String, braid_model::InvalidModel> {
    let seconds = options.time.as_secs_f64();
    let write = if options.write { " --write" } else { "" };
    let mut text = format!(
        "# Measured by braid device calibrate {} --seconds {seconds}{write}\n\
         # in closed loops past the page cache; the first part of each does not count.\n#\n\
         # {:42}   measured      model\n",
        options.device, "what"
    );
    for MeasuredReport { measure, unit, measured_value, model_value } in figures {
        let unit = if unit == MEGABYTES { "MB/s" } else { "per second" };
        text += &format!("# {measure:42} {measured_value:10.1} {model_value:10.1} {unit}\n");
    }
    if let Some(flush) = flush {
        text += &format!("# {:42} {flush}\n", "flush behind a write");
    }
    text += "#\n# Assumed, since no measurement tells:";
    let mut column = LINE;
    for word in fitted.assumed.split(' ') {
        if column + word.len() >= LINE {
            text += "\n#  ";
            column = 0;
        }
        text += &format!(" {word}");
        column += word.len() + 1;
    }
    text += "\n\n";
    Ok(text + &fitted.spec.to_toml()?)
}

/// Column at which a line of words ends.
const LINE: usize = 100;

/// Returns the weight of a measure in the total time.
fn weight(measure: Measure) -> f64 {
    match measure {
        Measure::SameRead { .. } => 0.3,
        Measure::BackwardRead => 0.5,
        Measure::RandomRead { depth: 1 } | Measure::RandomWrite { .. } => 2.0,
        _ => 1.0,
    }
}

const MEGABYTES: &str = "megabytes_per_second";

fn unit(measure: Measure) -> &'static str {
    match measure {
        Measure::SequentialRead { .. } | Measure::SequentialWrite { .. } => MEGABYTES,
        _ => "requests_per_second",
    }
}

/// Describes a measure in words.
fn words(measure: Measure) -> String {
    let depth = measure.depth();
    match measure {
        Measure::SequentialRead { from: 0.0, .. } => {
            format!("sequential reads from the start, depth {depth}")
        }
        Measure::SequentialRead { .. } => format!("sequential reads near the end, depth {depth}"),
        Measure::SequentialWrite { .. } => format!("sequential writes, depth {depth}"),
        Measure::RandomRead { .. } => format!("random 4 KiB reads, depth {depth}"),
        Measure::RandomWrite { .. } => format!("random 4 KiB writes, depth {depth}"),
        Measure::NearRead => "reads near one another".to_owned(),
        Measure::FarRead => "reads at both ends in turn".to_owned(),
        Measure::BackwardRead => "reads backwards (median)".to_owned(),
        Measure::SameRead { len } => format!("the same {len} again (median)"),
    }
}
