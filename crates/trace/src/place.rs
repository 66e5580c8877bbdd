//! Where the devices of a trace lie in one address space.

use crate::Error;
use crate::decode::Raw;
use crate::devices::{Devices, MOST_DEVICES, layout_order};
use crate::options::{Layout, Options, Place};
use crate::problems::Problems;
use braid_base::{Bytes, MIB};

/// Gives records their address in the common space, and leaves out those of devices that were not asked for.
pub(crate) struct Placer {
    layout: Layout,
    only: Option<String>,
    /// By the number of a device.
    spots: Vec<Spot>,
}

/// What is known of a device.
#[derive(Clone, Debug)]
struct Spot {
    wanted: bool,
    base: u64,
    span: u64,
    /// One past the last byte that was asked for.
    end: u64,
    records: u64,
}

/// The end of all addresses.
const LAST: u64 = 1 << 62;
/// Devices begin at multiples of it, so that no request that was aligned ceases to be.
const ALIGNMENT: Bytes = MIB;

impl Placer {
    pub(crate) fn new(options: &Options) -> Placer {
        Placer { layout: options.layout.clone(), only: options.device.clone(), spots: Vec::new() }
    }

    /// Learns of devices that were met since. `stored` is what the trace itself says.
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
                            "device '{label}' has no place: the trace is not the one whose devices were laid out"
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

    /// The record in the common space; `None` if it is of another device, or bad.
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
                    "byte {end} of device {device} lies beyond the {span} that each device has: give devices a larger span, or name one"
                )
            })?;
            return Ok(None);
        }
        spot.end = spot.end.max(end);
        spot.records += 1;
        Ok(Some(Raw { offset: spot.base + raw.offset, ..*raw }))
    }

    /// Where a device begins.
    pub(crate) fn base(&self, device: u16) -> u64 {
        self.spots[usize::from(device)].base
    }

    /// What was seen of each wanted device: label, requests, and one past the last byte asked for.
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

/// Where a device lies, and its span: one span after another up to the middle of all addresses, and what
/// comes then in equal parts of the rest.
fn apart(number: u64, span: u64) -> (u64, u64) {
    const MIDDLE: u64 = LAST / 2;
    const REST: u64 = MIDDLE / MOST_DEVICES as u64;
    match number.checked_add(1).and_then(|end| end.checked_mul(span)) {
        Some(end) if end <= MIDDLE => (end - span, span),
        _ => (MIDDLE + number * REST, span.min(REST)),
    }
}

/// What was seen of a device.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Seen {
    /// Where it lies.
    #[serde(skip)]
    pub place: Place,
    /// How many requests it had.
    pub requests: u64,
    /// One past the last byte that it was asked for.
    #[serde(rename = "end_bytes", serialize_with = "crate::options::bytes")]
    pub end: Bytes,
}

/// Devices one after another, each with the room that it was seen to need: numbered ones first, by number,
/// then by name.
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
