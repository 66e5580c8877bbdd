//! Options for reading a trace.

use crate::format::Format;
use crate::{Error, order};
use braid_base::{Bytes, Nanos, TIB};

/// Options for reading a trace. The default detects the format and uses its own units.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Format. `None` detects the format from the content.
    pub format: Option<Format>,
    /// Unit of time, for a format with a unit of time ([`Format::units`]).
    pub time_unit: Option<Nanos>,
    /// Unit of address, for a format that counts in blocks.
    pub block: Option<Bytes>,
    /// Divisor of times: 100 for a trace with a clock stretched a hundredfold.
    pub speed: f64,
    /// The only device to read, at its own addresses. `None` reads all devices.
    pub device: Option<String>,
    /// Layout of devices.
    pub layout: Layout,
    /// Event of a block trace that counts as the request.
    pub event: Event,
    /// Records held back to sort records that arrive out of order: 0 to 65,536.
    pub window: usize,
    /// True if the first bad record ends the trace.
    pub strict: bool,
}

/// Layout of the devices of a trace in one address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// The layout stored in the trace, if any (compact). Otherwise device n (from 0, in order of appearance)
    /// begins at n times the given span. Beyond 2 EiB, devices begin at intervals of 32 TiB. A request beyond
    /// the room of its device is a bad record. For sources that can be read only once.
    Apart(Bytes),
    /// Devices one after another, each with just the room for its addresses, known from a first pass over the
    /// trace ([`crate::Survey`]).
    Packed(Vec<Place>),
}

impl Layout {
    /// Apart, with room for any device: for passes that inspect records without replaying them.
    pub const ROOMY: Layout = Layout::Apart(Bytes(1 << 52));
}

/// Place of a device.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Place {
    /// Label of the device: an ASU's or disk's number, a file's name.
    #[serde(rename = "trace_device")]
    pub device: String,
    /// Start.
    #[serde(rename = "base_bytes", serialize_with = "bytes")]
    pub base: Bytes,
    /// Length.
    #[serde(rename = "span_bytes", serialize_with = "bytes")]
    pub span: Bytes,
}

pub(crate) fn bytes<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.0)
}

/// Events in the life of a request. blktrace records all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Event {
    /// The request enters the block layer (Q): the request that a volume would see.
    #[default]
    Queue,
    /// The request goes to the device, perhaps merged with others (D).
    Issue,
    /// The device has completed the request (C).
    Complete,
}

/// Counts of events of each kind. All zero for formats with one event per request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// Requests queued to the block layer.
    pub queue: u64,
    /// Requests issued to the device.
    pub issue: u64,
    /// Requests completed.
    pub complete: u64,
}

impl Events {
    pub(crate) fn count(&mut self, event: Event) {
        let count = match event {
            Event::Queue => &mut self.queue,
            Event::Issue => &mut self.issue,
            Event::Complete => &mut self.complete,
        };
        *count += 1;
    }

    pub(crate) fn add(&mut self, other: Events) {
        self.queue += other.queue;
        self.issue += other.issue;
        self.complete += other.complete;
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: None,
            time_unit: None,
            block: None,
            speed: 1.0,
            device: None,
            layout: Layout::Apart(TIB),
            event: Event::default(),
            window: order::USUAL_WINDOW,
            strict: false,
        }
    }
}

impl Options {
    /// Returns the units for reading a format.
    pub(crate) fn units(&self, format: Format) -> Result<(Nanos, Bytes), Error> {
        let units = format.units();
        if self.time_unit.is_some() && units.time.is_none() {
            return Err(Error::Options(format!(
                "the format {format} defines the unit of its times: leave the unit of time out"
            )));
        }
        if self.block.is_some() && units.block.is_none() {
            return Err(Error::Options(format!(
                "the format {format} gives addresses in bytes: leave the size of blocks out"
            )));
        }
        let time = self.time_unit.or(units.time).unwrap_or(Nanos(1));
        let block = self.block.or(units.block).unwrap_or(Bytes(1));
        if time == Nanos::ZERO
            || time > Nanos::from_secs(3_600)
            || block == Bytes::ZERO
            || block > Bytes(1 << 30)
        {
            return Err(Error::Options(format!(
                "a unit of time of {time} or a block of {block}: use up to 1h, and up to 1GiB, and above zero"
            )));
        }
        Ok((time, block))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(self.speed.is_finite() && (1e-6..=1e6).contains(&self.speed)) {
            return Err(Error::Options(format!("a speed of {}: use 0.000001 to 1000000", self.speed)));
        }
        if self.window > order::LARGEST_WINDOW {
            let (window, most) = (self.window, order::LARGEST_WINDOW);
            return Err(Error::Options(format!("a window of {window} records: use {most} at most")));
        }
        Ok(())
    }
}

impl std::str::FromStr for Event {
    type Err = String;
    fn from_str(text: &str) -> Result<Event, String> {
        match text {
            "queue" => Ok(Event::Queue),
            "issue" => Ok(Event::Issue),
            "complete" => Ok(Event::Complete),
            _ => Err(format!("unknown event '{text}': use queue, issue or complete")),
        }
    }
}
