//! Events on a range, in order: the requests of guests explain a wrong byte.

use super::{Moment, WriteId};
use braid_engine::Durability;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// The latest events of a volume.
#[derive(Clone, Default)]
pub(super) struct History {
    events: Rc<VecDeque<Event>>,
}

#[derive(Clone)]
struct Event {
    moment: Moment,
    /// Affected bytes; `None` for all.
    range: Option<Range<usize>>,
    kind: EventKind,
}

/// Kind of an event.
#[derive(Clone, Copy)]
pub(super) enum EventKind {
    WriteBegins(WriteId),
    ZeroBegins(WriteId),
    Acknowledged(WriteId, Durability),
    Failed(WriteId),
    /// A read found one of several legal values; the value counts as written under this number.
    Observed(WriteId),
    /// The flush that began at the given moment ended.
    FlushEnds(Moment),
    Crash,
    Kill,
    Death,
    /// A device lost accepted writes.
    Doubt,
    /// A device failed to flush, or may fail, and has lost nothing.
    Suspicion,
    Verified,
}

/// Maximum number of events kept. A trial of a campaign has fewer; a longer simulation forgets its
/// beginning.
const EVENTS: usize = 8_192;

impl History {
    pub(super) fn add(&mut self, moment: Moment, range: Option<Range<usize>>, kind: EventKind) {
        let events = Rc::make_mut(&mut self.events);
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back(Event { moment, range, kind });
    }

    /// Returns the events that touch `range`, one line each, from the first write to the range.
    pub(super) fn of(&self, range: &Range<usize>) -> Vec<String> {
        let touches = |event: &&Event| {
            event.range.as_ref().is_none_or(|other| other.start < range.end && range.start < other.end)
        };
        let from_first_write =
            self.events.iter().skip_while(|event| event.range.is_none() || !touches(event));
        from_first_write.filter(touches).map(Event::to_string).collect()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.moment)?;
        match self.kind {
            EventKind::WriteBegins(id) => write!(f, "write {} begins", id.0)?,
            EventKind::ZeroBegins(id) => write!(f, "zeroing {} begins", id.0)?,
            EventKind::Acknowledged(id, Durability::Fua) => {
                write!(f, "{} is acknowledged and durable", id.0)?
            }
            EventKind::Acknowledged(id, Durability::Volatile) => write!(f, "{} is acknowledged", id.0)?,
            EventKind::Failed(id) => write!(f, "{} fails", id.0)?,
            EventKind::Observed(id) => write!(f, "a read settles on one of several values, as {}", id.0)?,
            EventKind::FlushEnds(begun) => write!(f, "the flush ends that began at {begun}")?,
            EventKind::Crash => f.write_str("crash")?,
            EventKind::Kill => f.write_str("kill")?,
            EventKind::Death => f.write_str("death of the software")?,
            EventKind::Doubt => f.write_str("a device loses what is not flushed")?,
            EventKind::Suspicion => f.write_str("a device fails to flush, or may be late with that")?,
            EventKind::Verified => f.write_str("verified")?,
        }
        match &self.range {
            Some(range) => write!(f, " {:#x}..{:#x}", range.start, range.end),
            None => Ok(()),
        }
    }
}
