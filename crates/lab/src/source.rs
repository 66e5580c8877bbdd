//! Where requests come from: a generated workload or a trace.

use crate::rig::Need;
use crate::{Error, Load, Result, Setup};
use braid_base::{Arrival, Nanos, Request};
use braid_workload::Client;

/// Requests, in the way in which they come.
pub(crate) enum Source {
    /// At times of their own.
    Open(Box<dyn Iterator<Item = Result<Arrival>>>),
    /// By clients that each have their own.
    Closed(Vec<Client>),
    #[expect(dead_code, reason = "traces make it")]
    /// By clients that take them one after the other from the same trace.
    Shared { requests: Box<dyn Iterator<Item = Result<Request>>>, clients: usize, think: Nanos },
}

/// A source, and what is known of it beforehand.
pub(crate) struct Opened {
    pub source: Source,
    pub need: Need,
    /// What to call it.
    pub name: String,
    /// How many requests it has, where that is known.
    pub requests: Option<u64>,
}

/// Opens the load of a setup.
pub(crate) fn open(setup: &Setup) -> Result<Opened> {
    match &setup.load {
        Load::Workload(text) => {
            let workload = braid_workload::parse(text, setup.seed)?;
            let need = Need { span: Some(workload.span()), filled: Some(workload.filled().to_vec()) };
            let source = match workload.start() {
                braid_workload::Load::Open(arrivals) => Source::Open(Box::new(arrivals.map(Ok))),
                braid_workload::Load::Closed(clients) => Source::Closed(clients),
            };
            Ok(Opened { source, need, name: text.clone(), requests: workload.requests() })
        }
        Load::Trace(trace) => Err(Error::new(
            crate::ErrorKind::Trace,
            format!("{}: traces cannot be simulated yet: use a workload", trace.path.display()),
        )),
    }
}
