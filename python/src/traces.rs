//! Traces as columns.

use crate::arguments::Arguments;
use crate::failure::exception;
use crate::signals::{Interruptible, Raised};
use braid_base::Op;
use braid_lab::ErrorKind;
use braid_trace::{Event, Options, Reader, Survey};
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reads a trace, or its first `limit` records, into columns.
#[pyfunction]
pub fn read_trace<'py>(
    py: Python<'py>,
    path: PathBuf,
    limit: Option<usize>,
    options: BTreeMap<String, String>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = read_options(py, options)?;
    let raised = Raised::default();
    let read = py.detach(|| read(&path, limit.unwrap_or(usize::MAX), &options, &raised));
    raised.raise()?;
    read.map_err(|message| exception(py, &braid_lab::Error::new(ErrorKind::Trace, message)))?.into_dict(py)
}

fn read_options(py: Python<'_>, texts: BTreeMap<String, String>) -> PyResult<Options> {
    let mut given = Arguments::new(py, texts);
    let mut options = Options {
        format: given.take("format")?,
        time_unit: given.take("time_unit")?,
        block: given.take("block")?,
        device: given.take("device")?,
        ..Options::default()
    };
    given.set("speed", &mut options.speed)?;
    options.window = given.number("window")?.unwrap_or(options.window);
    let events = [("queue", Event::Queue), ("issue", Event::Issue), ("complete", Event::Complete)];
    options.event = given.choice("event", &events)?.unwrap_or_default();
    options.strict = given.switch("strict")?;
    given.end()?;
    Ok(options)
}

/// A trace in memory: a column for each field of a record, and a summary.
#[derive(Default)]
struct Columns {
    at: Vec<i64>,
    op: Vec<u8>,
    offset: Vec<i64>,
    length: Vec<i64>,
    device: Vec<u16>,
    format: &'static str,
    compression: String,
    labels: Vec<String>,
    requests: Vec<u64>,
    bases: Vec<i64>,
    spans: Vec<i64>,
    tally: Vec<(&'static str, u64)>,
    problems: Vec<String>,
}

fn read(path: &Path, limit: usize, options: &Options, raised: &Raised) -> Result<Columns, String> {
    let through = |file| Interruptible::new(file, raised.clone());
    let mut reader = braid_trace::open_through(path, options, through).map_err(|error| error.to_string())?;
    let mut columns = Columns::default();
    for record in reader.by_ref().take(limit) {
        let record = record.map_err(|error| error.to_string())?;
        let request = record.arrival.request;
        columns.at.push(signed(record.arrival.at.0));
        columns.op.push(code(request.op));
        columns.offset.push(signed(record.within.0));
        columns.length.push(signed(request.len.0));
        columns.device.push(record.device);
    }
    columns.describe(&reader);
    Ok(columns)
}

impl Columns {
    /// What there is to say of the whole. Devices get their numbers anew, for those that were not asked for
    /// have none.
    fn describe(&mut self, reader: &Reader<'_>) {
        let seen = reader.devices();
        let survey = Survey::so_far(reader, braid_base::Nanos::ZERO);
        for device in &seen {
            let place = survey.places.iter().find(|place| place.device == device.place.device);
            let (base, span) = place.map_or((0, 0), |place| (place.base.0, place.span.0));
            self.labels.push(device.place.device.clone());
            self.requests.push(device.requests);
            self.bases.push(signed(base));
            self.spans.push(signed(span));
        }
        let most = self.device.iter().copied().max().unwrap_or(0);
        let number = |old| self.labels.iter().position(|label| label == reader.device_label(old));
        let numbers: Vec<u16> = (0..=most).map(|old| number(old).unwrap_or(0) as u16).collect();
        self.device.iter_mut().for_each(|device| *device = numbers[usize::from(*device)]);
        let tally = reader.tally();
        self.tally = vec![
            ("records", tally.records),
            ("bad_records", tally.bad_records),
            ("other_devices_records", tally.other_devices_records),
            ("reordered_records", tally.reordered_records),
            ("late_records", tally.late_records),
        ];
        let problems = reader.problems();
        self.problems = problems.kept().iter().map(|problem| problems.describe(problem)).collect();
        self.format = reader.format().name();
        self.compression = reader.compression().to_string();
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let devices = PyDict::new(py);
        devices.set_item("trace_device", self.labels)?;
        devices.set_item("requests", self.requests.into_pyarray(py))?;
        devices.set_item("base_bytes", self.bases.into_pyarray(py))?;
        devices.set_item("span_bytes", self.spans.into_pyarray(py))?;
        let trace = PyDict::new(py);
        trace.set_item("at_ns", self.at.into_pyarray(py))?;
        trace.set_item("op", self.op.into_pyarray(py))?;
        trace.set_item("offset_bytes", self.offset.into_pyarray(py))?;
        trace.set_item("length_bytes", self.length.into_pyarray(py))?;
        trace.set_item("trace_device_row", self.device.into_pyarray(py))?;
        trace.set_item("trace_devices", devices)?;
        trace.set_item("format", self.format)?;
        trace.set_item("compression", self.compression)?;
        for (name, count) in self.tally {
            trace.set_item(name, count)?;
        }
        trace.set_item("problem_texts", self.problems)?;
        Ok(trace)
    }
}

/// As NumPy's usual whole numbers, whose differences may be negative. Addresses end at 2^62; a time beyond
/// 292 years is cut.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The number of `braid.Op`.
fn code(op: Op) -> u8 {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2,
        Op::Discard => 3,
    }
}
