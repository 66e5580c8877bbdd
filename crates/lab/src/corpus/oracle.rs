//! A static layout with knowledge of the load: the extents with the largest savings are on the SSD from the
//! beginning, and nothing moves.
//!
//! The cost of a request on each device is predicted for an otherwise idle device. The cost is positioning
//! plus transfer; a request that continues within 32 KiB of the end of one of the last 64 needs no
//! positioning. Positioning and rates are measured on the models with one request at a time, on SSDs after
//! long use. The value of an extent is the cost of its requests in the judged half on the disk, minus the
//! cost on the SSD.
//!
//! A write costs a disk next to nothing while the disk's buffer has room, and more than a read of an SSD once
//! the buffer is full. Either may happen, depending on the load, so there are two layouts, one for each case
//! ([`Writes`]). The best of these two and of the cell's own layout counts. If nothing is written anew, the
//! oracle is never worse than an untouched layout.
//!
//! The oracle is no upper bound. Costs of overlapping requests are not known beforehand, and the best mean
//! may require leaving a part of the load to the disk. A cache of blocks or moves during the load are outside
//! a static layout. For clients in closed loop only a sample of requests is known, because their number
//! depends on the policy.

use super::layout::ranges;
use crate::source::{self, Arrivals, Source};
use crate::{Result, Setup, WarmUp};
use braid_base::{Bytes, Nanos, Op, Request};
use braid_model::ssd::State;
use braid_model::{Measure, Spec, measure};
use braid_workload::{Client, Step};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

/// Costs of requests on an otherwise idle device, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Costs {
    /// Positioning, and a little transfer, by direction: read and write.
    position: [f64; 2],
    /// Cost of each byte, by direction.
    byte: [f64; 2],
    /// Factor by which random reads complete faster with [`DEEP`] outstanding than with one.
    pub parallel: f64,
}

/// Cost of writes on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writes {
    /// The same as on the SSD: the disk's buffer has room, so only reads count.
    Buffered,
    /// The cost of writing to the medium: the disk's buffer is full.
    Through,
}

/// Random requests of a measurement, in bytes.
const SMALL: f64 = 4096.0;
const DEEP: usize = 32;
/// Largest gap behind the end of one of the last `STREAMS` requests at which a read is sequential.
const NEAR: Bytes = Bytes(32 << 10);
const STREAMS: usize = 64;
/// Most requests examined, of all clients of a closed loop together.
const SAMPLE: u64 = 200_000;
/// Most steps of a client examined for each of its requests: a client may compute without end.
const MOST_STEPS: usize = 100;

/// Costs of each model: measured once.
static MEASURED: LazyLock<Mutex<BTreeMap<String, Costs>>> = LazyLock::new(Mutex::default);

impl Costs {
    /// Costs of a model with one request at a time.
    pub fn of(spec: &Spec) -> Costs {
        let mut measured = MEASURED.lock().expect("no thread stops while it measures");
        *measured.entry(spec.name.to_string()).or_insert_with(|| Costs::measure(spec))
    }

    fn measure(spec: &Spec) -> Costs {
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
        let deep = measure(spec, Measure::RandomRead { depth: DEEP });
        Costs { position, byte, parallel: (deep / random[0]).max(1.0) }
    }

    pub fn takes(&self, op: Op, len: Bytes, goes_on: bool) -> f64 {
        let way = usize::from(op == Op::Write);
        let position = if goes_on { 0.0 } else { self.position[way] };
        position + self.byte[way] * len.0 as f64
    }
}

/// Extents of a setup's load that belong on an SSD with room for `most`, as ranges in order. The setup's
/// devices are an SSD and disks.
///
/// # Errors
/// If the load cannot be opened or read.
pub(crate) fn belongs_on_ssd(
    setup: &Setup,
    extents: u64,
    most: u64,
    writes: Writes,
) -> Result<Vec<Range<Bytes>>> {
    let specs = setup.devices.iter().map(|kind| kind.spec()).collect::<Result<Vec<_>>>()?;
    let costs = [Costs::of(&specs[0]), Costs::of(&specs[specs.len() - 1])];
    let mut saved = Saved::new(extents, setup.extent_size, costs, writes);
    judged(setup, |request| saved.add(request))?;
    Ok(best(&saved.of, most, setup.extent_size))
}

/// Number of extents used by a setup's load.
pub(crate) fn extents(setup: &Setup) -> Result<u64> {
    let need = source::open(setup)?.need;
    Ok(need.data.unwrap_or_default().0.div_ceil(setup.extent_size.0))
}

/// Calls `each` with the requests of the judged half.
fn judged(setup: &Setup, mut each: impl FnMut(&Request)) -> Result<()> {
    let opened = source::open(setup)?;
    let all = opened.requests.into_iter().chain(setup.requests).min().unwrap_or(u64::MAX);
    let times = match (setup.warm_up, setup.duration) {
        (WarmUp::Time(from), Some(length)) => from..from + length,
        _ => Nanos::ZERO..Nanos::MAX,
    };
    let numbers = match setup.warm_up {
        WarmUp::Share(share) if all < u64::MAX => (all as f64 * share) as u64..all,
        _ => 0..all,
    };
    match opened.source {
        Source::Open(arrivals) => of_arrivals(arrivals, setup.speed, &times, &numbers, &mut each),
        Source::Shared { requests, .. } => {
            for (request, number) in requests.zip(0..numbers.end) {
                let request = request?;
                if numbers.contains(&number) {
                    each(&request);
                }
            }
            Ok(())
        }
        Source::Closed(clients) => {
            of_clients(clients, SAMPLE, &mut each);
            Ok(())
        }
        Source::Parts(parts) => {
            for part in parts {
                let (from, until) = (part.from.max(times.start), part.until.min(times.end));
                match part.source {
                    Source::Open(arrivals) => of_arrivals(arrivals, 1.0, &times, &(0..u64::MAX), &mut each)?,
                    Source::Closed(clients) if until > from => {
                        let share = (until - from).0 as f64 / (times.end - times.start).0 as f64;
                        of_clients(clients, (SAMPLE as f64 * share) as u64, &mut each);
                    }
                    _ => {}
                }
            }
            Ok(())
        }
    }
}

fn of_arrivals(
    arrivals: Arrivals,
    speed: f64,
    times: &Range<Nanos>,
    numbers: &Range<u64>,
    each: &mut impl FnMut(&Request),
) -> Result<()> {
    let all: Box<dyn Iterator<Item = Result<_>>> = match arrivals {
        Arrivals::Generated(arrivals) => Box::new(arrivals.map(Ok)),
        Arrivals::Recorded(arrivals) => arrivals,
    };
    for (arrival, number) in all.zip(0..numbers.end) {
        let arrival = arrival?;
        let at = Nanos((arrival.at.0 as f64 / speed) as u64);
        if at >= times.end {
            break;
        }
        if numbers.contains(&number) && at >= times.start {
            each(&arrival.request);
        }
    }
    Ok(())
}

/// Calls `each` with requests of the clients in turn, as in a run: requests of a client stay in sequence,
/// with requests of other clients between.
fn of_clients(mut clients: Vec<Client>, most: u64, each: &mut impl FnMut(&Request)) {
    let mut left = most;
    while left > 0 && !clients.is_empty() {
        clients.retain_mut(|client| {
            let request = client.by_ref().take(MOST_STEPS).find_map(|step| match step {
                Step::Request { request, .. } => Some(request),
                _ => None,
            });
            if let Some(request) = request.filter(|_| left > 0) {
                left -= 1;
                each(&request);
            }
            request.is_some()
        });
    }
}

/// Savings by each extent on the SSD, in milliseconds.
struct Saved {
    of: Vec<f64>,
    extent: Bytes,
    costs: [Costs; 2],
    writes: Writes,
    /// Ends of the last requests, and the index of the oldest.
    ends: [Bytes; STREAMS],
    next: usize,
}

impl Saved {
    fn new(extents: u64, extent: Bytes, costs: [Costs; 2], writes: Writes) -> Saved {
        Saved {
            of: vec![0.0; extents as usize],
            extent,
            costs,
            writes,
            ends: [Bytes(u64::MAX); STREAMS],
            next: 0,
        }
    }

    fn add(&mut self, &Request { op, offset, len }: &Request) {
        if !matches!(op, Op::Read | Op::Write) {
            return;
        }
        let [ssd, disk] = self.costs;
        let near = |end: &Bytes| offset.0.checked_sub(end.0).is_some_and(|gap| gap <= NEAR.0);
        let stream = self.ends.iter().position(near);
        let mut at = offset;
        while at < offset + len {
            let end = (at.align_down(self.extent) + self.extent).min(offset + len);
            let goes_on = stream.is_some() || at > offset;
            if let Some(saved) = self.of.get_mut((at / self.extent) as usize)
                && (op == Op::Read || self.writes == Writes::Through)
            {
                *saved += disk.takes(op, end - at, goes_on) - ssd.takes(op, end - at, at > offset);
            }
            at = end;
        }
        self.ends[stream.unwrap_or(self.next)] = offset + len;
        self.next = if stream.is_some() { self.next } else { (self.next + 1) % STREAMS };
    }
}

/// The `most` extents with the largest savings above zero; neighbours are joined.
fn best(saved: &[f64], most: u64, extent: Bytes) -> Vec<Range<Bytes>> {
    let mut order: Vec<usize> = (0..saved.len()).filter(|&number| saved[number] > 0.0).collect();
    order.sort_by(|&a, &b| saved[b].total_cmp(&saved[a]));
    order.truncate(most as usize);
    order.sort_unstable();
    ranges(order.into_iter().map(|number| number as u64).collect(), extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Bytes = Bytes(128 << 10);

    fn costs(model: &str) -> Costs {
        Costs::of(braid_model::by_name(model).expect("a model of the library"))
    }

    #[test]
    fn costs_reflect_disk_seeks_and_ssd_speed() {
        let (ssd, disk) = (costs("x25-m"), costs("mba3073"));
        assert!(
            (4.0..8.0).contains(&disk.position[0]),
            "a seek and half a turn of a disk of 15,000 rpm: {disk:?}"
        );
        assert!(ssd.position[0] < 0.3 && ssd.byte[0] < disk.byte[0], "{ssd:?}");
    }

    /// The second extent is read at random, the third in sequence as often, the fourth least.
    #[test]
    fn oracle_prefers_random_over_sequential_extents_for_ssd() {
        let request = |op, offset| Request { op, offset: Bytes(offset), len: Bytes(4096) };
        let second = (0..30).map(|n| request(Op::Read, (128 << 10) + n * 7 % 32 * 4096));
        let third = (0..30).map(|n| request(Op::Read, (256 << 10) + n * 4096));
        let fourth = std::iter::once(request(Op::Read, 400 << 10));
        let first = (0..9).map(|n| request(Op::Write, n * 7 % 32 * 4096));
        let all: Vec<Request> = second.chain(third).chain(fourth).chain(first).collect();
        let with = |writes| {
            let mut saved = Saved::new(4, EXTENT, [costs("x25-m"), costs("mba3073")], writes);
            all.iter().for_each(|request| saved.add(request));
            saved.of
        };
        assert!(with(Writes::Through)[0] > 0.0, "{:?}", with(Writes::Through));
        let saved = with(Writes::Buffered);
        assert!(saved[0] == 0.0 && saved[1] > 10.0 * saved[2] && saved[1] > 10.0 * saved[3], "{saved:?}");
        let chosen = |most| best(&saved, most, EXTENT);
        assert_eq!(chosen(1), [EXTENT..EXTENT * 2]);
        assert!(chosen(3)[0].start == EXTENT && !chosen(3).iter().any(|range| range.start == Bytes::ZERO));
    }
}
