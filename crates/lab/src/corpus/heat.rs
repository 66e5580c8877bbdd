//! `static-heat`: a static split that knows the measured requests. The extents that an SSD saves most lie on
//! it from the beginning, and nothing moves.
//!
//! What a request would cost each device is predicted, as if the device did nothing else: positioning, unless
//! the request continues within 32 KiB of the end of one of the last 64, and transfer. Positioning and rates
//! are what the models themselves do with one request at a time, SSDs after long use. An extent is worth what
//! its requests cost the disk beyond what they cost the SSD.
//!
//! A write costs a disk next to nothing as long as its buffer has room, and more than a read of an SSD once
//! the buffer is full. Which it will be depends on the load, so there are two such splits ([`Writes`]), and
//! the better one of a cell counts.
//!
//! An estimate of the best static layout, and no bound: costs of requests that overlap are not known
//! beforehand, and the best layout for the mean may leave a part of the load to the disks.

use crate::{Error, Result};
use braid_base::{Bytes, Op, Request};
use braid_model::ssd::State;
use braid_model::{Measure, Spec, by_name, measure};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

/// What requests take a device that does nothing else, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Positioning, and a little transfer: by direction, read and write.
    position: [f64; 2],
    /// For each byte.
    byte: [f64; 2],
    /// How many times the rate of one random read at a time the device reaches with 32 of them.
    pub parallel: f64,
}

/// What writes cost a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writes {
    /// As much as the SSD: the disk's buffer has room, so only reads count.
    Buffered,
    /// What it takes to write them: the buffer is full.
    Through,
}

/// The ends of recent requests: whether another one continues near one of them.
#[derive(Clone, Debug)]
pub struct Streams {
    ends: [Bytes; STREAMS],
    next: usize,
}

/// Random requests of a measure, in bytes.
const SMALL: f64 = 4096.0;
/// How a request continues: so far behind the end of one of so many.
const NEAR: Bytes = Bytes(32 << 10);
const STREAMS: usize = 64;

/// Measured once for each model.
static KNOWN: Mutex<BTreeMap<String, Costs>> = Mutex::new(BTreeMap::new());

impl Costs {
    /// Of a model of the library.
    ///
    /// # Errors
    /// If no model has this name.
    pub fn of_model(name: &str) -> Result<Costs> {
        let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(costs) = known.get(name) {
            return Ok(*costs);
        }
        let spec = by_name(name).ok_or_else(|| Error::setup(format!("no device model '{name}'")))?;
        let costs = Costs::of(spec);
        known.insert(name.to_owned(), costs);
        Ok(costs)
    }

    fn of(spec: &Spec) -> Costs {
        let (span, state) = (1.0, State::Steady);
        let random = [
            measure(spec, Measure::RandomRead { depth: 1 }),
            measure(spec, Measure::RandomWrite { depth: 1, span, state }),
        ];
        let rates = [
            measure(spec, Measure::SequentialRead { depth: 1, from: 0.5 }),
            measure(spec, Measure::SequentialWrite { depth: 1 }),
        ];
        let byte = rates.map(|megabytes_per_second| 1e-3 / megabytes_per_second);
        let position = [0, 1].map(|way| (1e3 / random[way] - byte[way] * SMALL).max(0.0));
        let parallel = measure(spec, Measure::RandomRead { depth: 32 }) / random[0];
        Costs { position, byte, parallel }
    }

    /// A request that continues a stream, or does not, in milliseconds.
    pub fn takes(&self, op: Op, len: Bytes, continues: bool) -> f64 {
        let way = usize::from(op == Op::Write);
        let position = if continues { 0.0 } else { self.position[way] };
        position + self.byte[way] * len.0 as f64
    }

    /// The mean of these requests, in nanoseconds.
    pub fn mean_ns<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> f64 {
        let (mut streams, mut sum, mut count) = (Streams::default(), 0.0, 0.0);
        for request in requests.filter(|request| matches!(request.op, Op::Read | Op::Write)) {
            let continues = streams.add(request);
            sum += self.takes(request.op, request.len, continues);
            count += 1.0;
        }
        sum * 1e6 / f64::max(count, 1.0)
    }
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { ends: [Bytes(u64::MAX); STREAMS], next: 0 }
    }
}

impl Streams {
    /// Notes a request; whether it continues a stream.
    pub fn add(&mut self, &Request { offset, len, .. }: &Request) -> bool {
        let near = |end: &Bytes| offset.0.checked_sub(end.0).is_some_and(|gap| gap <= NEAR.0);
        let stream = self.ends.iter().position(near);
        self.ends[stream.unwrap_or(self.next)] = offset + len;
        if stream.is_none() {
            self.next = (self.next + 1) % STREAMS;
        }
        stream.is_some()
    }
}

/// The extents that belong on an SSD with room for `most` of them, as ranges in order.
pub fn belongs_on_ssd<'a>(
    requests: impl Iterator<Item = &'a Request>,
    (extents, extent, most): (u64, Bytes, usize),
    [ssd, disk]: [&Costs; 2],
    writes: Writes,
) -> Vec<Range<Bytes>> {
    best(&saved(requests, extents, extent, [ssd, disk], writes), most, extent)
}

/// What an SSD saves by each extent, in milliseconds.
fn saved<'a>(
    requests: impl Iterator<Item = &'a Request>,
    extents: u64,
    extent: Bytes,
    [ssd, disk]: [&Costs; 2],
    writes: Writes,
) -> Vec<f64> {
    let (mut saved, mut streams) = (vec![0.0; extents as usize], Streams::default());
    for request in requests.filter(|request| matches!(request.op, Op::Read | Op::Write)) {
        let &Request { op, offset, len } = request;
        let in_stream = streams.add(request);
        let mut at = offset;
        while at < offset + len {
            let end = (at.align_down(extent) + extent).min(offset + len);
            let continues = in_stream || at > offset;
            if op == Op::Read || writes == Writes::Through {
                saved[(at / extent) as usize] +=
                    disk.takes(op, end - at, continues) - ssd.takes(op, end - at, at > offset);
            }
            at = end;
        }
    }
    saved
}

/// The `most` extents that save most, of those that save anything: neighbours as one range.
fn best(saved: &[f64], most: usize, extent: Bytes) -> Vec<Range<Bytes>> {
    let mut order: Vec<usize> = (0..saved.len()).filter(|&number| saved[number] > 0.0).collect();
    order.sort_by(|&a, &b| saved[b].total_cmp(&saved[a]));
    order.truncate(most);
    order.sort_unstable();
    let mut ranges: Vec<Range<Bytes>> = Vec::new();
    for number in order {
        let (start, end) = (extent * number as u64, extent * (number as u64 + 1));
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Bytes = Bytes(128 << 10);

    fn costs(model: &str) -> Costs {
        Costs::of_model(model).unwrap()
    }

    #[test]
    fn costs_are_those_of_the_models() {
        let (ssd, disk) = (costs("x25-m"), costs("mba3073"));
        assert!(
            (4.0..8.0).contains(&disk.position[0]),
            "a seek and half a turn of a disk of 15,000 rpm: {disk:?}"
        );
        assert!(ssd.position[0] < 0.3 && ssd.byte[0] < disk.byte[0], "{ssd:?}");
        assert!(ssd.parallel > 4.0 && disk.parallel < 4.0, "{ssd:?}, {disk:?}");
    }

    /// The second extent is read at random, the third in sequence as often, the fourth least.
    #[test]
    fn scattered_extents_belong_on_the_ssd_and_sequential_ones_do_not() {
        let (ssd, disk) = (costs("x25-m"), costs("mba3073"));
        let request = |op, offset| Request { op, offset: Bytes(offset), len: Bytes(4096) };
        let second = (0..30).map(|n| request(Op::Read, (128 << 10) + n * 7 % 32 * 4096));
        let third = (0..30).map(|n| request(Op::Read, (256 << 10) + n * 4096));
        let fourth = std::iter::once(request(Op::Read, 400 << 10));
        let first = (0..9).map(|n| request(Op::Write, n * 7 % 32 * 4096));
        let all: Vec<Request> = second.chain(third).chain(fourth).chain(first).collect();
        let with = |writes| saved(all.iter(), 4, EXTENT, [&ssd, &disk], writes);
        assert!(with(Writes::Through)[0] > 0.0, "{:?}", with(Writes::Through));
        let saved = with(Writes::Buffered);
        assert!(saved[0] == 0.0 && saved[1] > 10.0 * saved[2] && saved[1] > 10.0 * saved[3], "{saved:?}");
        let chosen = |most| best(&saved, most, EXTENT);
        assert_eq!(chosen(1), [EXTENT..EXTENT * 2]);
        assert!(chosen(3)[0].start == EXTENT && !chosen(3).iter().any(|range| range.start == Bytes::ZERO));
    }
}
