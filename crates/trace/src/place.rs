//! Layout of the devices of a trace in one address space.

use crate::Error;
use crate::decode::Raw;
use crate::devices::{Devices, MOST_DEVICES, layout_order};
use crate::options::{Layout, Options, Place};
use crate::problems::Problems;
use braid_base::{Bytes, MIB};

/// Maps records to the common address space. With a selected device, the records of all other devices are
/// left out.
pub(crate) struct Placer {
    layout: Layout,
    only: Option<String>,
    /// By device number.
    spots: Vec<Spot>,
}

/// State of a device.
#[derive(Clone, Debug)]
struct Spot {
    wanted: bool,
    base: u64,
    span: u64,
    /// Largest end address of all requests.
    end: u64,
    records: u64,
}

/// End of all addresses.
const LAST: u64 = 1 << 62;
/// Alignment of the start of devices, so that aligned requests stay aligned.
const ALIGNMENT: Bytes = MIB;

impl Placer {
    pub(crate) fn new(options: &Options) -> Placer {
        Placer { layout: options.layout.clone(), only: options.device.clone(), spots: Vec::new() }
    }

    /// Adds devices that appeared since the last call. `stored` is the layout stored in the trace.
    pub(crate) fn meet(&mut self, devices: &Devices, stored: Option<&[(u64, u64)]>) -> Result<(), Error> {
        for (number, label) in devices.labels().iter().enumerate().skip(self.spots.len()) {
            let wanted = self.only.as_ref().is_none_or(|only| only == label);
            let (base, span) = match (&self.only, &self.layout, stored) {
                (Some(_), ..) => (0, LAST),
                (None, Layout::Packed(places), _) => match places.iter().find(|place| &place.device == label)
                {
                    Some(place) => (place.base.0, place.span.0),
                    None => {
                        return Err(Error::Options(format!(
                            "device '{label}' has no place: the layout was made for another trace"
                        )));
                    }
                },
                (None, Layout::Apart(_), Some(places)) => places.get(number).copied().unwrap_or((0, LAST)),
                (None, Layout::Apart(span), None) => apart(number as u64, span.0),
            };
            self.spots.push(Spot { wanted, base, span, end: 0, records: 0 });
        }
        Ok(())
    }

    /// Returns the record in the common address space. `None` for a record of another device, or for a bad
    /// record.
    #[inline]
    pub(crate) fn place(&mut self, raw: &Raw, problems: &mut Problems) -> Result<Option<Raw>, Error> {
        let spot = &mut self.spots[usize::from(raw.device)];
        if !spot.wanted {
            return Ok(None);
        }
        let end = raw.offset + raw.len;
        if end > spot.span || spot.base.saturating_add(end) > LAST {
            let (span, device) = (Bytes(spot.span), raw.device);
            problems.note(raw.number, || {
                format!(
                    "byte {end} of device {device} is beyond {span}, the span of each device: give devices \
                     a larger span, or name one device"
                )
            })?;
            return Ok(None);
        }
        spot.end = spot.end.max(end);
        spot.records += 1;
        Ok(Some(Raw { offset: spot.base + raw.offset, ..*raw }))
    }

    /// Returns the start of a device.
    pub(crate) fn base(&self, device: u16) -> u64 {
        self.spots[usize::from(device)].base
    }

    /// Returns the use of each selected device: label, requests, and largest end address.
    pub(crate) fn seen(&self, devices: &Devices) -> Vec<Seen> {
        let labelled = devices.labels().iter().zip(&self.spots).filter(|(_, spot)| spot.wanted);
        labelled
            .map(|(label, spot)| Seen {
                place: Place { device: label.clone(), base: Bytes(spot.base), span: Bytes(spot.span) },
                requests: spot.records,
                end: Bytes(spot.end),
            })
            .collect()
    }
}

/// Returns start and span of a device. Devices follow one another, span after span, up to the middle of all
/// addresses. Devices beyond the middle get equal parts of the upper half.
fn apart(number: u64, span: u64) -> (u64, u64) {
    const MIDDLE: u64 = LAST / 2;
    const REST: u64 = MIDDLE / MOST_DEVICES as u64;
    match number.checked_add(1).and_then(|end| end.checked_mul(span)) {
        Some(end) if end <= MIDDLE => (end - span, span),
        _ => (MIDDLE + number * REST, span.min(REST)),
    }
}

/// Use of a device.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Seen {
    /// Place of the device.
    #[serde(skip)]
    pub place: Place,
    /// Number of requests.
    pub requests: u64,
    /// Largest end address of all requests.
    #[serde(rename = "end_bytes", serialize_with = "crate::options::bytes")]
    pub end: Bytes,
}

/// Lays out devices one after another, each with just the room for its addresses: numeric labels first, by
/// number, then by name.
pub(crate) fn pack(seen: &[Seen]) -> Vec<Place> {
    let mut seen: Vec<&Seen> = seen.iter().collect();
    seen.sort_by(|a, b| layout_order(&a.place.device, &b.place.device));
    let mut base = Bytes::ZERO;
    let place = |seen: &Seen| {
        let span = seen.end.max(Bytes(1)).align_up(ALIGNMENT);
        let place = Place { device: seen.place.device.clone(), base, span };
        base += span;
        place
    };
    seen.into_iter().map(place).collect()
}
