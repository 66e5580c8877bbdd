//! A trace in one file or in several, which are merged by time, and what is to be known of it before it is replayed.
//!
//! blktrace writes a file for each processor; other traces come cut by device or by hour. All parts are read side by side, and the
//! earliest next record of all is given: so each part must be in order by itself, as far as the window of records that are held
//! back reaches, and the clocks of all must be one. Devices of one label are one device.

use crate::Error;
use crate::devices::Devices;
use crate::file::{TraceFile, apart, open, refuse_pipe};
use crate::options::{Events, Options};
use crate::place::{Seen, pack};
use crate::reader::{Reader, Record, Tally};
use crate::survey::{Survey, span_of};
use crate::touched::{Compaction, Touched};
use braid_base::{Bytes, Nanos, Op};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

/// A trace that can be read more than once. Its devices are laid one after another, each with the room that it needs.
pub struct Parts {
    files: Vec<PathBuf>,
    options: Options,
    survey: Survey,
    /// Where it is one file that was opened as such.
    alone: Option<TraceFile>,
    /// Otherwise: the labels of devices by number.
    labels: Vec<String>,
}

/// Files of one trace that are open at once, at most.
const MOST_FILES: usize = 1024;

impl Parts {
    /// Reads a trace once through: a file, all files of a folder, or several joined by `+`. With the size of an extent, it notes
    /// which of them requests touch. The layout of `options` is not used.
    pub fn open(
        path: &Path,
        options: &Options,
        extent: Option<Bytes>,
    ) -> Result<(Parts, Option<Compaction>), Error> {
        let files = files_of(path)?;
        let options = options.clone();
        if let ([file], None) = (files.as_slice(), extent) {
            let alone = TraceFile::open(file, &options, None)?;
            let survey = alone.survey().clone();
            return Ok((Parts { files, options, survey, alone: Some(alone), labels: Vec::new() }, None));
        }
        let mut first = FirstPass {
            devices: Devices::default(),
            seen: Vec::new(),
            touched: extent.map(Touched::new).transpose()?,
            tally: Tally::default(),
            events: Events::default(),
            times: None,
        };
        for file in &files {
            first.read(file, &options)?;
        }
        let FirstPass { devices, seen, touched, tally, events, times } = first;
        let places = pack(&seen);
        let duration = at_speed(times.map_or(0, |(first, last)| last - first), options.speed);
        let survey = Survey { tally, duration, span: span_of(&places), places, events };
        let compaction = touched.map(|touched| touched.number(devices.labels()));
        let labels = devices.labels().to_vec();
        Ok((Parts { files, options, survey, alone: None, labels }, compaction))
    }

    /// What the first pass found out.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Reads the trace from its beginning, in order of time.
    pub fn records(&self) -> Result<Records, Error> {
        match &self.alone {
            Some(file) => Ok(Records(Order::Alone(Box::new(file.reader()?)))),
            None => Ok(Records(Order::Merged(Merged::open(self)?))),
        }
    }
}

/// The files that a path names.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let name = path.display();
    let unreadable = |error| Error::io(path.display().to_string(), error);
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?;
            let is_hidden = file.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && file.path().is_file() {
                files.push(file.path());
            }
        }
        files.sort();
    } else {
        match path.to_str().filter(|text| text.contains('+') && !path.exists()) {
            Some(text) => files.extend(text.split('+').map(PathBuf::from)),
            None => files.push(path.to_owned()),
        }
    }
    match files.len() {
        0 => Err(Error::Options(format!("{name} has no files: name a trace, or a folder of its parts"))),
        1..=MOST_FILES => Ok(files),
        count => Err(Error::Options(format!("{name} has {count} files: a trace has {MOST_FILES} at most"))),
    }
}

fn at_speed(time: u64, speed: f64) -> Nanos {
    if speed == 1.0 { Nanos(time) } else { Nanos((time as f64 / speed).round() as u64) }
}

/// A part, at its own times.
struct Part {
    reader: Reader<'static>,
    /// The numbers in the whole of its devices, by its own.
    numbers: Vec<u16>,
    next: Option<Record>,
}

impl Part {
    fn open(path: &Path, options: &Options) -> Result<Part, Error> {
        refuse_pipe(path)?;
        let reader = open(path, &Options { speed: 1.0, ..apart(options) }, None)?;
        Ok(Part { reader, numbers: Vec::new(), next: None })
    }

    /// Its next record, with the number of the device in the whole, and the time on the trace's own clock.
    fn read(&mut self, devices: &mut Devices) -> Result<Option<(u64, Record)>, Error> {
        let Some(mut record) = self.reader.next().transpose()? else { return Ok(None) };
        while self.numbers.len() <= usize::from(record.device) {
            let label = self.reader.device_label(self.numbers.len() as u16);
            let number = devices.number(label.as_bytes());
            self.numbers.push(number.map_err(|why| Error::Options(format!("device '{label}': {why}")))?);
        }
        record.device = self.numbers[usize::from(record.device)];
        let at = self.reader.origin().unwrap_or(0).saturating_add(record.arrival.at.0);
        Ok(Some((at, record)))
    }
}

/// What was found out of the parts that were read.
struct FirstPass {
    devices: Devices,
    seen: Vec<Seen>,
    touched: Option<Touched>,
    tally: Tally,
    events: Events,
    /// The first and the last, on the trace's own clock.
    times: Option<(u64, u64)>,
}

impl FirstPass {
    fn read(&mut self, path: &Path, options: &Options) -> Result<(), Error> {
        let name = path.display().to_string();
        let mut part = Part::open(path, options)?;
        while let Some((at, record)) = part.read(&mut self.devices)? {
            let (first, last) = self.times.unwrap_or((at, at));
            self.times = Some((first.min(at), last.max(at)));
            if let Some(touched) = &mut self.touched {
                touched.add(&record).map_err(|error| error.within(&name))?;
            }
        }
        for seen in part.reader.devices() {
            match self.seen.iter_mut().find(|known| known.place.device == seen.place.device) {
                Some(known) => known.end = known.end.max(seen.end),
                None => self.seen.push(seen),
            }
        }
        self.tally.add(part.reader.tally());
        self.events.add(part.reader.events());
        Ok(())
    }
}

/// The records of a trace, in order of time. The first one comes at time zero. An error ends it.
pub struct Records(Order);

enum Order {
    Alone(Box<Reader<'static>>),
    Merged(Merged),
}

impl Iterator for Records {
    type Item = Result<Record, Error>;

    #[inline]
    fn next(&mut self) -> Option<Result<Record, Error>> {
        match &mut self.0 {
            Order::Alone(reader) => reader.next(),
            Order::Merged(merged) => merged.next().transpose(),
        }
    }
}

/// Several parts, the earliest record first; of records of one time, that of the part that was named first.
struct Merged {
    parts: Vec<Part>,
    /// Time and part of each next record.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    devices: Devices,
    /// By the number of a device.
    bases: Vec<Bytes>,
    origin: u64,
    speed: f64,
}

impl Merged {
    fn open(trace: &Parts) -> Result<Merged, Error> {
        let (mut devices, mut bases) = (Devices::default(), Vec::new());
        for label in &trace.labels {
            devices
                .number(label.as_bytes())
                .map_err(|why| Error::Options(format!("device '{label}': {why}")))?;
            let place = trace.survey.places.iter().find(|place| place.device == *label);
            // A device that was not asked for has no place, and no records.
            bases.push(place.map_or(Bytes::ZERO, |place| place.base));
        }
        let (waiting, speed) = (BinaryHeap::new(), trace.options.speed);
        let mut merged = Merged { parts: Vec::new(), waiting, devices, bases, origin: 0, speed };
        for (place, path) in trace.files.iter().enumerate() {
            merged.parts.push(Part::open(path, &trace.options)?);
            merged.fetch(place)?;
        }
        merged.origin = merged.waiting.peek().map_or(0, |Reverse((at, _))| *at);
        Ok(merged)
    }

    /// Takes the next record of a part.
    fn fetch(&mut self, place: usize) -> Result<(), Error> {
        let part = &mut self.parts[place];
        let next = part.read(&mut self.devices)?;
        if let Some((at, _)) = next {
            self.waiting.push(Reverse((at, place)));
        }
        part.next = next.map(|(_, record)| record);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Record>, Error> {
        let Some(Reverse((at, place))) = self.waiting.pop() else { return Ok(None) };
        let Some(mut record) = self.parts[place].next.take() else { return Ok(None) };
        self.fetch(place)?;
        record.arrival.at = at_speed(at - self.origin, self.speed);
        if record.arrival.request.op != Op::Flush {
            let base = self.bases.get(usize::from(record.device)).copied().unwrap_or_default();
            record.arrival.request.offset = base + record.within;
        }
        Ok(Some(record))
    }
}
