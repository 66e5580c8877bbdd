//! First pass over a trace: properties needed before the replay of a whole trace.

use crate::Error;
use crate::compact::{Header, Tail};
use crate::options::{Events, Place};
use crate::place::pack;
use crate::reader::{Reader, Tally};
use braid_base::{Bytes, Nanos};

/// Results of a pass over a whole trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    /// Counts of records.
    pub tally: Tally,
    /// Time from the first request to the last.
    pub duration: Nanos,
    /// Devices one after another, each with just the room for its addresses.
    pub places: Vec<Place>,
    /// Size of the address space of all devices.
    pub span: Bytes,
    /// Counts of events, for formats with several events per request.
    pub events: Events,
}

impl Survey {
    /// Reads a trace to its end.
    pub fn of(reader: &mut Reader) -> Result<Survey, Error> {
        let mut duration = Nanos::ZERO;
        for record in reader.by_ref() {
            duration = record?.arrival.at;
        }
        Ok(Survey::so_far(reader, duration))
    }

    /// Returns the results of a reader so far. `duration` is the time of the last record.
    pub fn so_far(reader: &Reader, duration: Nanos) -> Survey {
        let places = pack(&reader.devices());
        Survey { tally: reader.tally(), duration, span: span_of(&places), places, events: reader.events() }
    }

    /// Returns the survey stored in header and end of a complete compact trace.
    pub(crate) fn of_compact(header: Header, tail: &Tail) -> Survey {
        let alone =
            Place { device: "0".to_owned(), base: Bytes::ZERO, span: header.span.unwrap_or(tail.end) };
        let places = if header.places.is_empty() { vec![alone] } else { header.places };
        let span = span_of(&places).max(tail.end);
        let tally = Tally { records: tail.records, ..Tally::default() };
        Survey { tally, duration: tail.duration, places, span, events: Events::default() }
    }
}

pub(crate) fn span_of(places: &[Place]) -> Bytes {
    places.iter().map(|place| place.base + place.span).max().unwrap_or_default()
}
