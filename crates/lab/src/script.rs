//! A load that is written down before it runs: the same requests in the same order, whatever serves them.
//!
//! A generated closed loop differs from one policy to the next: a slow answer to one client lets another
//! client's requests overtake. A script has one list. In an open loop each entry has its time. In a closed
//! loop a client that is free takes the next entry, thinks as long as the entry says, and makes its request.
//! So a policy is judged by the very requests by which every other policy is judged.
//!
//! A script may change in the middle: each [`Stage`] of a closed loop has its own number of clients, and all
//! that differs otherwise is in the entries.

use crate::guests::Guests;
use crate::{Error, Result};
use braid_base::{Arrival, Bytes, Nanos, Request};
use braid_runtime::{Device, Event, Runtime};
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Requests that are written down, and what they run on.
#[derive(Clone, PartialEq)]
pub struct Script {
    /// What to call the load.
    pub name: String,
    /// The requests, in order.
    pub entries: Vec<Entry>,
    /// Who makes them.
    pub drive: Drive,
    /// What holds bytes before the first of them, in order and without overlap.
    pub filled: Vec<Range<Bytes>>,
    /// Where requests end.
    pub span: Bytes,
}

/// A request of a script.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Entry {
    /// Open loop: when the request arrives, from the load's beginning; never before the entry ahead of it.
    /// Closed loop: how long the client that takes it thinks first.
    pub wait: Nanos,
    /// What is asked for.
    pub request: Request,
}

/// Who makes the requests of a script.
#[derive(Clone, PartialEq, Debug)]
pub enum Drive {
    /// Requests come at their times, whatever became of those before them.
    Open,
    /// Clients take one request after the other, by stages: the first begins with entry 0.
    Closed(Vec<Stage>),
}

/// A part of a closed loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    /// The entry that it begins with.
    pub first: usize,
    /// Clients, at least one.
    pub clients: usize,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "script {} of {} requests over {}", self.name, self.entries.len(), self.span)
    }
}

impl Script {
    /// # Errors
    /// If stages do not begin with entry 0, are out of order or without clients, or an open loop runs
    /// backwards.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::setup(format!("script {}: {why}", self.name)));
        match &self.drive {
            Drive::Open if !self.entries.is_sorted_by_key(|entry| entry.wait) => {
                wrong("times of an open loop must not fall")
            }
            Drive::Closed(stages) if stages.first().is_none_or(|stage| stage.first != 0) => {
                wrong("its first stage must begin with its first entry")
            }
            Drive::Closed(stages)
                if !stages.is_sorted_by_key(|stage| stage.first)
                    || stages.iter().any(|stage| stage.clients == 0) =>
            {
                wrong("stages must be in order and have a client each")
            }
            _ => Ok(()),
        }
    }

    /// The arrivals of an open loop.
    pub(crate) fn arrivals(self: &Arc<Script>) -> impl Iterator<Item = Result<Arrival>> + use<> {
        let script = self.clone();
        let at = move |place: usize| script.entries.get(place).copied();
        (0..).map_while(at).map(|entry| Ok(Arrival { at: entry.wait, request: entry.request }))
    }
}

/// The list of a closed loop that clients take entries from.
pub(crate) struct Turns {
    script: Arc<Script>,
    stages: Vec<Stage>,
    next: Cell<usize>,
    changed: Event,
}

impl Turns {
    pub fn new(script: Arc<Script>, stages: Vec<Stage>) -> Turns {
        Turns { script, stages, next: Cell::new(0), changed: Event::default() }
    }

    /// The most clients of any stage.
    pub fn clients(&self) -> usize {
        self.stages.iter().map(|stage| stage.clients).max().unwrap_or(0)
    }

    /// The next entry for this client, once a stage has it; none at the end.
    async fn take(&self, client: usize) -> Option<Entry> {
        let is_wanted = || {
            let next = self.next.get();
            let stage = self.stages.partition_point(|stage| stage.first <= next).saturating_sub(1);
            let is_over = next >= self.script.entries.len();
            (is_over || client < self.stages[stage].clients).then_some(())
        };
        self.changed.wait_for(is_wanted).await;
        let next = self.next.get();
        let entry = self.script.entries.get(next).copied();
        self.next.set(next + 1);
        let begins = self.stages.iter().any(|stage| stage.first == next + 1);
        if begins || next + 1 >= self.script.entries.len() {
            self.changed.notify();
        }
        entry
    }
}

impl<D: Device> Guests<D> {
    /// A client of a script's closed loop.
    pub async fn take_turns(self: Rc<Self>, turns: Rc<Turns>, client: usize) -> Result<()> {
        while let Some(Entry { wait, request }) = turns.take(client).await {
            if !self.may_begin() {
                return Ok(());
            }
            self.think(wait).await;
            self.request(&Arrival { at: self.rt.now(), request }).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceSetup, Load, Outcome, Setup, WarmUp};
    use braid_base::{DeviceClass, KIB, MIB, Op};

    fn script(drive: Drive) -> Script {
        let entry = |n: u64| Entry {
            wait: if drive == Drive::Open { Nanos::from_millis(n * 10) } else { Nanos::from_millis(1) },
            request: Request { op: Op::Read, offset: KIB * 4 * (n * 7 % 1000), len: KIB * 4 },
        };
        let entries = (0..400).map(entry).collect();
        Script { name: "test".into(), entries, drive, filled: vec![Bytes::ZERO..MIB * 64], span: MIB * 64 }
    }

    fn run(script: Script) -> Result<Outcome> {
        let disk = vec![DeviceSetup::parse(DeviceClass::Hdd, "150%,model=mba3073").unwrap()];
        let setup = Setup::new(disk, "hdd-only", Load::Script(Arc::new(script)));
        let setup = Setup { warm_up: WarmUp::Requests(200), cache_extents: 0, ..setup };
        crate::simulate(&setup).map(|run| run.outcome)
    }

    #[test]
    fn a_script_is_measured_from_the_request_that_the_warm_up_says() {
        for drive in [Drive::Open, Drive::Closed(vec![Stage { first: 0, clients: 4 }])] {
            let outcome = run(script(drive)).unwrap();
            assert_eq!((outcome.warm_up_requests, outcome.all.requests), (200, 200));
        }
    }

    #[test]
    fn clients_join_and_leave_with_their_stages() {
        let stages = |counts: [usize; 2]| {
            let [first, then] = counts;
            Drive::Closed(vec![Stage { first: 0, clients: first }, Stage { first: 200, clients: then }])
        };
        let depth = |counts| run(script(stages(counts))).unwrap().devices[0].queue_depth_mean;
        let (one, eight) = (depth([8, 1]), depth([1, 8]));
        assert!(one < 1.01 && eight > 3.0, "{one}, {eight}");
    }

    #[test]
    fn a_script_that_cannot_run_is_refused() {
        let mut backwards = script(Drive::Open);
        backwards.entries.swap(1, 300);
        assert!(run(backwards).is_err());
        for stages in [vec![], vec![Stage { first: 1, clients: 1 }], vec![Stage { first: 0, clients: 0 }]] {
            assert!(run(script(Drive::Closed(stages))).is_err());
        }
    }
}
