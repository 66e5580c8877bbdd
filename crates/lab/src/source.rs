//! Sources of requests: a generated workload or a trace.

use crate::parts::{self, OpenedParts, TimedSource};
use crate::replay::Replay;
use crate::rig::Need;
use crate::{Error, Load, Recorded, Result, Setup, Size, Trace, TraceOutcome, WarmUp};
use braid_base::{Arrival, Bytes, Nanos, Request};
use braid_trace::{Compaction, Survey, TraceFile};
use braid_workload::Client;
use std::ops::Range;
use std::sync::Arc;

/// Requests, by the way in which they arrive.
pub(crate) enum Source {
    /// Requests with times of their own.
    Open(Arrivals),
    /// Requests of clients, each with its own sequence.
    Closed(Vec<Client>),
    /// Requests of a trace, taken in sequence by clients.
    Shared { requests: Box<dyn Iterator<Item = Result<Request>>>, clients: usize, think: Nanos },
    /// Several sources, each for a period.
    Parts(Vec<TimedSource>),
}

impl Source {
    /// True if the requests of at least one part come at times of their own.
    pub fn is_open_loop(&self) -> bool {
        match self {
            Source::Open(_) => true,
            Source::Closed(_) | Source::Shared { .. } => false,
            Source::Parts(parts) => parts.iter().any(|part| part.source.is_open_loop()),
        }
    }
}

/// Requests with their times.
pub(crate) enum Arrivals {
    Generated(braid_workload::Arrivals),
    /// Reading may fail.
    Recorded(Box<dyn Iterator<Item = Result<Arrival>>>),
}

impl Arrivals {
    /// No arrivals.
    pub fn none() -> Arrivals {
        Arrivals::Recorded(Box::new(std::iter::empty()))
    }
}

/// A source, and facts known beforehand.
pub(crate) struct Opened {
    pub source: Source,
    pub need: Need,
    /// Ranges in which requests for metadata of a file system begin, in order.
    pub metadata: Vec<Range<Bytes>>,
    /// Name of the load.
    pub name: String,
    /// Number of requests, if known.
    pub requests: Option<u64>,
    /// Number of requests before the measured requests.
    pub not_measured: u64,
    /// Unreadable records of a trace.
    pub bad_lines: u64,
    /// Caveats about the load for the reader of the outcome.
    pub notes: Vec<String>,
    /// Facts about a trace.
    pub trace: Option<TraceOutcome>,
}

/// Opens the load of a setup.
pub(crate) fn open(setup: &Setup) -> Result<Opened> {
    match &setup.load {
        Load::Workload(text) => {
            let workload = braid_workload::parse(text, setup.seed)?;
            let span = Some(workload.span());
            let need = Need { span, filled: Some(workload.filled().to_vec()), data: span, specs: None };
            let source = match workload.start() {
                braid_workload::Load::Open(arrivals) => Source::Open(Arrivals::Generated(arrivals)),
                braid_workload::Load::Closed(clients) => Source::Closed(clients),
            };
            let (name, requests) = (text.clone(), workload.requests());
            let not_measured = workload.unmeasured();
            if not_measured > 0 && setup.warm_up != WarmUp::NONE {
                return Err(Error::setup(format!(
                    "workload {} and --warm-up both define the unmeasured part: leave --warm-up out, or use \
                     runs=1",
                    workload.name()
                )));
            }
            Ok(Opened {
                source,
                need,
                metadata: workload.metadata().to_vec(),
                name,
                requests,
                not_measured,
                bad_lines: 0,
                notes: Vec::new(),
                trace: None,
            })
        }
        Load::Trace(trace) => open_trace(trace, setup),
        Load::Recorded(recorded) => Ok(open_recorded(recorded)),
        Load::Parts(parts) => {
            let OpenedParts { sources, need, metadata } = parts::open(parts)?;
            let name = parts.iter().map(|part| part.workload.as_str()).collect::<Vec<_>>().join(" + ");
            Ok(Opened {
                source: Source::Parts(sources),
                need,
                metadata,
                name,
                requests: None,
                not_measured: 0,
                bad_lines: 0,
                notes: Vec::new(),
                trace: None,
            })
        }
    }
}

/// Requests of a load in memory.
fn open_recorded(recorded: &Arc<Recorded>) -> Opened {
    let Recorded { name, arrivals, span, filled } = &**recorded;
    let (shared, count) = (recorded.clone(), arrivals.len());
    let arrivals = (0..count).map(move |place| Ok(shared.arrivals[place]));
    let data = recorded.data();
    Opened {
        source: Source::Open(Arrivals::Recorded(Box::new(arrivals))),
        need: Need { span: Some(*span), filled: Some(filled.clone()), data: Some(data), specs: None },
        metadata: Vec::new(),
        name: name.clone(),
        requests: Some(count as u64),
        not_measured: 0,
        bad_lines: 0,
        notes: Vec::new(),
        trace: None,
    }
}

/// Reads a trace once through to lay out its devices one after another and find its gaps, then reopens the
/// trace.
fn open_trace(trace: &Trace, setup: &Setup) -> Result<Opened> {
    let Trace { path, options, repeat, .. } = trace;
    if *repeat == 0 {
        return Err(Error::setup("--repeat 0: use at least 1"));
    }
    if *repeat > 1 && setup.warm_up != WarmUp::NONE {
        return Err(Error::setup(
            "--repeat and --warm-up both define the unmeasured part: leave one out; with --repeat only the \
             last repetition is measured",
        ));
    }
    let shares = setup.devices.iter().any(|kind| matches!(kind.size, Size::Share(_)));
    let extent = (trace.compact || shares).then_some(setup.extent_size);
    let (file, compaction) = match extent {
        Some(extent) => {
            let (file, compaction) = TraceFile::open_touched(path, options, extent)?;
            (file, Some(compaction))
        }
        None => (TraceFile::open(path, options, None)?, None),
    };
    let survey = file.survey().clone();
    let data = compaction.as_ref().map(Compaction::span);
    let compaction = compaction.filter(|_| trace.compact);
    // A volume has at least one extent, even under an empty trace.
    let span = compaction.as_ref().map(|compaction| compaction.span().max(setup.extent_size));
    let arrivals = Replay::new(trace, file, compaction)?;
    let source = match trace.clients {
        None => Source::Open(Arrivals::Recorded(Box::new(arrivals))),
        Some(clients) => {
            let requests = Box::new(arrivals.map(|arrival| Ok(arrival?.request)));
            Source::Shared { requests, clients, think: trace.think }
        }
    };
    Ok(Opened {
        source,
        need: Need { span, filled: Some(vec![Bytes::ZERO..span.unwrap_or(survey.span)]), data, specs: None },
        // No trace format marks metadata requests.
        metadata: Vec::new(),
        name: path.display().to_string(),
        requests: Some(survey.tally.records.saturating_mul(u64::from(*repeat))),
        not_measured: survey.tally.records.saturating_mul(u64::from(*repeat - 1)),
        bad_lines: survey.tally.bad_records,
        notes: notes(trace, &survey),
        trace: Some(TraceOutcome {
            span_bytes: survey.span.0,
            compacted_bytes: span.map(|span| span.0),
            passes: *repeat,
        }),
    })
}

/// Caveats about a trace for the reader of the outcome.
fn notes(trace: &Trace, survey: &Survey) -> Vec<String> {
    let name = trace.path.display();
    let (tally, events) = (survey.tally, survey.events);
    let mut notes = Vec::new();
    if tally.records == 0 {
        let counts = [("queue", events.queue), ("issue", events.issue), ("complete", events.complete)];
        let noted = counts.into_iter().filter(|(_, count)| *count > 0);
        let noted: Vec<String> =
            noted.map(|(event, count)| format!("{count} events for --event {event}")).collect();
        let others = tally.other_devices_records;
        notes.push(match noted.as_slice() {
            [] if others > 0 => {
                format!("{name} is an empty load: its {others} requests are of other devices")
            }
            [] => format!("{name} is an empty load: it has no requests"),
            noted => format!("{name} is an empty load: it has {}", noted.join(" and ")),
        });
    }
    if tally.late_records > 0 {
        let late = tally.late_records;
        notes.push(format!("{name}: {late} requests are out of order, beyond --window, and are late"));
    }
    notes
}
