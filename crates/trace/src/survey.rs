//! A first pass over a trace: what must be known before it can be replayed as a whole.

use crate::Error;
use crate::compact::{Header, Tail};
use crate::options::{Events, Place};
use crate::place::pack;
use crate::reader::{Reader, Tally};
use braid_base::{Bytes, Nanos};

/// What a pass over a whole trace found out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    /// What became of its records.
    pub tally: Tally,
    /// From the first request to the last.
    pub duration: Nanos,
    /// The devices one after another, each with the room that it needs.
    pub places: Vec<Place>,
    /// The size of the address space in which they all lie.
    pub span: Bytes,
    /// Its events, of formats that note several of each request.
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

    /// What a reader has found out up to here; `duration` is the time of its last record.
    pub fn so_far(reader: &Reader, duration: Nanos) -> Survey {
        let places = pack(&reader.devices());
        Survey { tally: reader.tally(), duration, span: span_of(&places), places, events: reader.events() }
    }

    /// From what a complete trace of the compact format says of itself.
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
