//! A static split that knows the whole trace: the extents that an SSD saves most lie on it from the beginning, and nothing moves.
//!
//! What a request would cost each device is predicted, as if the device did nothing else: positioning, unless the request goes on within 32 KiB
//! of the end of one of the last 64, and transfer. Positioning and rates are what the models themselves do with one request at a
//! time, SSDs after long use. An extent is worth what its requests cost the disk beyond what they cost the SSD.
//!
//! A write costs a disk next to nothing as long as its buffer has room, and more than a read of an SSD once it is full. Which it will be depends on
//! the load, so there are two such splits, one for each case ([`Writes`]), and the better one counts.
//!
//! It is no upper bound. Costs of requests that overlap are not known beforehand, and what is best for the mean may be to leave
//! a part of the load to the disk. But a policy that stays far behind it puts the wrong extents on the SSD, or too late.

use anyhow::{Context, Result};
use braid_base::{Bytes, Op, Request};
use braid_model::ssd::State;
use braid_model::{Measure, Spec, measure};
use braid_trace::{Options, TraceFile};
use std::ops::Range;
use std::path::Path;

/// What requests take a device that does nothing else, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Positioning, and a little transfer: by direction, read and write.
    position: [f64; 2],
    /// For each byte.
    byte: [f64; 2],
}

/// What writes cost a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writes {
    /// As much as the SSD: its buffer has room, so only reads count.
    Buffered,
    /// What it takes to write them: its buffer is full.
    Through,
}

/// Random requests of a measure, in bytes.
const SMALL: f64 = 4096.0;
/// How a read goes on: so far behind the end of one of so many requests.
const NEAR: Bytes = Bytes(32 << 10);
const STREAMS: usize = 64;
/// Slots that a volume keeps spare on a device, and uses itself.
const SPARE: usize = 5;

impl Costs {
    /// What a model does with one request at a time.
    pub fn of(spec: &Spec) -> Costs {
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
        Costs { position, byte }
    }

    fn takes(&self, op: Op, len: Bytes, goes_on: bool) -> f64 {
        let way = usize::from(op == Op::Write);
        let position = if goes_on { 0.0 } else { self.position[way] };
        position + self.byte[way] * len.0 as f64
    }
}

/// The extents of a compacted trace that belong on an SSD with room for this share of them, as ranges in order.
///
/// # Errors
/// A trace that cannot be read.
pub fn belongs_on_ssd(
    trace: &Path,
    extent: Bytes,
    share: f64,
    [ssd, disk]: [&Costs; 2],
    writes: Writes,
) -> Result<Vec<Range<Bytes>>> {
    let (parts, compaction) = TraceFile::open_touched(trace, &Options::default(), extent)?;
    let changed = "the trace has changed since it was read";
    let requests = parts.reader()?.map(|record| compaction.place(&record?).context(changed));
    let saved = saved(requests, compaction.extents(), extent, [ssd, disk], writes)?;
    let room = (saved.len() as f64 * share).ceil() as usize;
    Ok(best(&saved, room.saturating_sub(SPARE), extent))
}

/// What an SSD saves by each extent, in milliseconds.
fn saved(
    requests: impl Iterator<Item = Result<Request>>,
    extents: u64,
    extent: Bytes,
    [ssd, disk]: [&Costs; 2],
    writes: Writes,
) -> Result<Vec<f64>> {
    let mut saved = vec![0.0; extents as usize];
    let (mut ends, mut next) = ([Bytes(u64::MAX); STREAMS], 0);
    for request in requests {
        let Request { op, offset, len } = request?;
        if !matches!(op, Op::Read | Op::Write) {
            continue;
        }
        let near = |end: &Bytes| offset.0.checked_sub(end.0).is_some_and(|gap| gap <= NEAR.0);
        let stream = ends.iter().position(near);
        let mut at = offset;
        while at < offset + len {
            let end = (at.align_down(extent) + extent).min(offset + len);
            let goes_on = stream.is_some() || at > offset;
            if op == Op::Read || writes == Writes::Through {
                saved[(at / extent) as usize] +=
                    disk.takes(op, end - at, goes_on) - ssd.takes(op, end - at, at > offset);
            }
            at = end;
        }
        ends[stream.unwrap_or(next)] = offset + len;
        next = if stream.is_some() { next } else { (next + 1) % STREAMS };
    }
    Ok(saved)
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
        Costs::of(braid_model::by_name(model).expect("a model of the library"))
    }

    #[test]
    fn costs_are_those_of_the_models() {
        let (ssd, disk) = (costs("x25-m"), costs("mba3073"));
        assert!(
            (4.0..8.0).contains(&disk.position[0]),
            "a seek and half a turn of a disk of 15,000 rpm: {disk:?}"
        );
        assert!(ssd.position[0] < 0.3 && ssd.byte[0] < disk.byte[0], "{ssd:?}");
    }

    /// The second extent is read at random, the third in sequence as often, the fourth least.
    #[test]
    fn what_is_scattered_belongs_on_the_ssd_and_what_is_sequential_does_not() {
        let (ssd, disk) = (costs("x25-m"), costs("mba3073"));
        let request = |op, offset| Ok(Request { op, offset: Bytes(offset), len: Bytes(4096) });
        let second = (0..30).map(|n| request(Op::Read, (128 << 10) + n * 7 % 32 * 4096));
        let third = (0..30).map(|n| request(Op::Read, (256 << 10) + n * 4096));
        let fourth = std::iter::once(request(Op::Read, 400 << 10));
        let first = (0..9).map(|n| request(Op::Write, n * 7 % 32 * 4096));
        let all: Vec<Result<Request>> = second.chain(third).chain(fourth).chain(first).collect();
        let requests = || all.iter().map(|request| Ok(*request.as_ref().expect("all are")));
        let with = |writes| saved(requests(), 4, EXTENT, [&ssd, &disk], writes).expect("no errors");
        assert!(with(Writes::Through)[0] > 0.0, "{:?}", with(Writes::Through));
        let saved = with(Writes::Buffered);
        assert!(saved[0] == 0.0 && saved[1] > 10.0 * saved[2] && saved[1] > 10.0 * saved[3], "{saved:?}");
        let chosen = |most| best(&saved, most, EXTENT);
        assert_eq!(chosen(1), [EXTENT..EXTENT * 2]);
        assert!(chosen(3)[0].start == EXTENT && !chosen(3).iter().any(|range| range.start == Bytes::ZERO));
    }
}
