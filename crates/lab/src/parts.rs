//! Loads of several workloads on one volume, each for a time of its own: loads with phases.

use crate::rig::Need;
use crate::source::{Arrivals, Source};
use crate::{Error, Part, Result};
use braid_base::{Arrival, Bytes, Nanos};
use braid_workload::{Load, Step};
use std::ops::Range;

/// A part that is ready to start.
pub(crate) struct TimedSource {
    /// When its clients begin. Arrivals have times relative to the whole load.
    pub from: Nanos,
    /// When its clients end.
    pub until: Nanos,
    pub source: Source,
}

/// All parts of a load, with the needs known beforehand.
pub(crate) struct OpenedParts {
    pub sources: Vec<TimedSource>,
    pub need: Need,
    pub metadata: Vec<Range<Bytes>>,
}

/// Opens all parts.
///
/// # Errors
/// If a part is not a valid workload, or declares requests of its own that are not measured.
pub(crate) fn open(parts: &[Part]) -> Result<OpenedParts> {
    if parts.is_empty() {
        return Err(Error::setup("an empty load: give at least one workload"));
    }
    let (mut sources, mut span) = (Vec::new(), Bytes::ZERO);
    let (mut filled, mut metadata) = (Vec::new(), Vec::new());
    for part in parts {
        let workload = braid_workload::parse(&part.workload, part.seed)?;
        if workload.unmeasured() > 0 {
            return Err(Error::setup(format!("{} as a part of a load: use runs=1", part.workload)));
        }
        span = span.max(part.offset + workload.span());
        let shifted = |range: &Range<Bytes>| part.offset + range.start..part.offset + range.end;
        metadata.extend(workload.metadata().iter().map(shifted));
        if part.is_filled {
            filled.extend(workload.filled().iter().map(shifted));
        }
        let source = source(part, workload.start());
        sources.push(TimedSource { from: part.from, until: part.until, source });
    }
    let need = Need { span: Some(span), filled: Some(joined(filled)), data: Some(span), specs: None };
    Ok(OpenedParts { sources, need, metadata: joined(metadata) })
}

fn source(part: &Part, load: Load) -> Source {
    let (offset, from, until, skip) = (part.offset, part.from, part.until, part.skip as usize);
    match load {
        Load::Open(mut arrivals) => {
            let skipped = skip.checked_sub(1).and_then(|last| arrivals.nth(last));
            let begin = skipped.map_or(Nanos::ZERO, |arrival| arrival.at);
            let placed = arrivals.map(move |arrival: Arrival| {
                let mut request = arrival.request;
                request.offset += offset;
                Arrival { at: from + arrival.at.saturating_sub(begin), request }
            });
            Source::Open(Arrivals::Generated(Box::new(placed.take_while(move |arrival| arrival.at < until))))
        }
        Load::Closed(clients) => {
            let placed = |client: braid_workload::Client| {
                let moved = client.map(move |step| match step {
                    Step::Request { think, mut request } => {
                        request.offset += offset;
                        Step::Request { think, request }
                    }
                    other => other,
                });
                Box::new(moved) as braid_workload::Client
            };
            Source::Closed(clients.into_iter().skip(skip).map(placed).collect())
        }
    }
}

/// Sorts ranges, and joins ranges that meet or overlap.
fn joined(mut ranges: Vec<Range<Bytes>>) -> Vec<Range<Bytes>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<Bytes>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, MIB};

    fn part(workload: &str) -> Part {
        Part { from: Nanos::from_secs(10), until: Nanos::from_secs(20), ..Part::whole(workload, 1) }
    }

    fn arrivals(part: &Part) -> Vec<Arrival> {
        let opened = open(std::slice::from_ref(part)).unwrap();
        let Source::Open(Arrivals::Generated(arrivals)) = opened.sources.into_iter().next().unwrap().source
        else {
            panic!("an open loop")
        };
        arrivals.collect()
    }

    #[test]
    fn part_arrivals_stay_within_time_and_offset() {
        let load = part("zipf,rate=100,span=64MiB,requests=endless");
        let whole = arrivals(&load);
        assert!((900..1100).contains(&whole.len()), "{} in ten seconds", whole.len());
        let within = |arrival: &Arrival| load.from <= arrival.at && arrival.at < load.until;
        assert!(whole.iter().all(within));
        let moved = arrivals(&Part { offset: GIB, ..load.clone() });
        assert!(whole.iter().zip(&moved).all(|(a, b)| b.request.offset == a.request.offset + GIB));
        // The same places are popular, but the requests differ.
        let later = arrivals(&Part { skip: 100, ..load.clone() });
        assert_eq!(
            later[..500].iter().map(|a| a.request).collect::<Vec<_>>(),
            whole[100..600].iter().map(|a| a.request).collect::<Vec<_>>()
        );
        assert!(later[0].at < Nanos::from_secs(11), "the skipped time is left out: {}", later[0].at);
    }

    #[test]
    fn filled_ranges_merge_and_exclude_unfilled_parts() {
        let load = part("random,clients=3,span=64MiB");
        let new = Part { offset: MIB * 64, is_filled: false, skip: 1, ..load.clone() };
        let opened = open(&[load.clone(), load, new]).unwrap();
        assert_eq!(opened.need.filled, Some(vec![Bytes::ZERO..MIB * 64]));
        assert_eq!(opened.need.span, Some(MIB * 128));
        let clients = |source: &TimedSource| match &source.source {
            Source::Closed(clients) => clients.len(),
            _ => panic!("a closed loop"),
        };
        assert_eq!(opened.sources.iter().map(clients).collect::<Vec<_>>(), [3, 3, 2]);
    }
}
