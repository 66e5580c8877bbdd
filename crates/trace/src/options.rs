//! How a trace is to be read.

use crate::format::Format;
use crate::{Error, order};
use braid_base::{Bytes, Nanos, TIB};

/// How a trace is to be read. The default recognises the format and uses its own units.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The format, where it is not to be told by content.
    pub format: Option<Format>,
    /// One unit of time, for a format that counts in units ([`Format::units`]).
    pub time_unit: Option<Nanos>,
    /// One unit of address, for a format that counts in blocks.
    pub block: Option<Bytes>,
    /// Times are divided by it: 100 for a trace whose clock was stretched a hundredfold.
    pub speed: f64,
    /// Only this device, at its own addresses.
    pub device: Option<String>,
    /// Where devices lie.
    pub layout: Layout,
    /// Which event of a block trace counts as the request.
    pub event: Event,
    /// How many records are held back to put into order what arrives out of order; 0 to 65,536.
    pub window: usize,
    /// Whether the first bad record ends the trace.
    pub strict: bool,
}

/// Where the devices of a trace lie in one address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// As the trace itself says, where it does (compact). Otherwise the device that appears n-th (from 0)
    /// begins at n times this span, or, beyond 2 EiB, 32 TiB after the one before; a request beyond its room
    /// is a bad record. For sources that can be read only once.
    Apart(Bytes),
    /// One after another, each with the room that it needs, as a first pass over the trace found out
    /// ([`crate::Survey`]).
    Packed(Vec<Place>),
}

impl Layout {
    /// Apart, with room for any device: where records are looked at and not replayed.
    pub const ROOMY: Layout = Layout::Apart(Bytes(1 << 52));
}

/// Where a device lies.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Place {
    /// The device's label: an ASU's or disk's number, a file's name.
    #[serde(rename = "trace_device")]
    pub device: String,
    /// Where it begins.
    #[serde(rename = "base_bytes", serialize_with = "bytes")]
    pub base: Bytes,
    /// How much room it has.
    #[serde(rename = "span_bytes", serialize_with = "bytes")]
    pub span: Bytes,
}

pub(crate) fn bytes<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.0)
}

/// Events in the life of a request, of which blktrace notes all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Event {
    /// It comes to the block layer: what a volume would be asked (Q).
    #[default]
    Queue,
    /// It goes to the device, perhaps merged with others (D).
    Issue,
    /// The device is done with it (C).
    Complete,
}

/// How many events of each kind a trace notes; none where its format notes one for each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// Requests that came to the block layer.
    pub queue: u64,
    /// Requests that went to the device.
    pub issue: u64,
    /// Requests that were done.
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
    /// The units in which a format is to be read.
    pub(crate) fn units(&self, format: Format) -> Result<(Nanos, Bytes), Error> {
        let units = format.units();
        if self.time_unit.is_some() && units.time.is_none() {
            return Err(Error::Options(format!(
                "the format {format} says itself in which unit its times are: leave the unit of time out"
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
                "a unit of time of {time} or a block of {block}: use up to 1h, and up to 1GiB, and not zero"
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
