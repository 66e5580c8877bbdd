//! fio's iolog, versions 2 and 3: fio(1), "TRACE FILE FORMAT". Written by `--write_iolog`, replayed by
//! `--read_iolog`.
//!
//! ```text
//! fio version 3 iolog               fio version 2 iolog
//! 17 /dev/sda add                   /dev/sda add
//! 202 /dev/sda open                 /dev/sda open
//! 206 /dev/sda read 61440 4096      /dev/sda read 61440 4096
//! |            |    |     length    /dev/sda wait 250
//! |            |    offset, in bytes
//! |            read, write, trim, sync, datasync, or add, open, close
//! microseconds since the start
//! ```
//! Version 2 has only the times of `wait`. fio's manual defines a wait as microseconds after the last wait.
//! fio itself (seen in 3.33, `DDIR_WAIT` in `iolog.c`) waits until a number of *milliseconds* after its
//! start. Both are in use, so the waits within the first 64 KiB decide. If each wait is larger than the last,
//! fio's meaning applies, otherwise the manual's.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Nanos, Op};

/// Beginning of the heading, without the version.
pub(crate) const HEADING: &[u8] = b"fio version ";

pub(crate) struct Fio {
    pub microsecond: Nanos,
    pub clock: Clock,
}

/// Source of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Version 3: each line has a time.
    Lines,
    /// Version 2: waits since the start, in milliseconds. Holds the time of the last wait.
    WaitsSinceStart(u64),
    /// Version 2: consecutive waits, in microseconds. Holds their sum.
    WaitsInTurn(u64),
}

impl Clock {
    /// Detects the source of times from the beginning of the trace. `None` if the beginning is not an iolog
    /// of a known version.
    pub(crate) fn tell(beginning: &[u8]) -> Option<Clock> {
        let mut lines = beginning.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        match lines.next()?.strip_prefix(HEADING)? {
            b"3 iolog" => Some(Clock::Lines),
            b"2 iolog" => {
                let mut last = 0;
                let wait = |line| {
                    let fields = Fields::by_space(line);
                    (fields.get(1) == b"wait").then(|| whole(fields.get(2))).flatten()
                };
                let growing = lines.filter_map(wait).all(|wait| std::mem::replace(&mut last, wait) < wait);
                Some(if growing { Clock::WaitsSinceStart(0) } else { Clock::WaitsInTurn(0) })
            }
            _ => None,
        }
    }
}

impl LineFormat for Fio {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        if line.starts_with(HEADING) {
            return Ok(None);
        }
        let fields = Fields::by_space(line);
        let (own, at) = match self.clock {
            Clock::Lines => (1, time(fields.get(0), self.microsecond).ok_or("the line begins with no time")?),
            Clock::WaitsSinceStart(at) | Clock::WaitsInTurn(at) => (0, at),
        };
        let (action, name) = action(line, &fields, own).ok_or(NO_ACTION)?;
        let op = match fields.get(action) {
            b"add" | b"open" | b"close" => return Ok(None),
            b"wait" => return self.wait(fields.get(action + 1)).map(|()| None),
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            _ => return Err(NO_ACTION),
        };
        let device = devices.number(name)?;
        if op == Op::Flush {
            return Ok(Some(Raw { at, device, op, offset: 0, len: 0, number: 0 }));
        }
        let offset = whole(fields.get(action + 1)).ok_or("no offset after the action")?;
        let len = whole(fields.get(action + 2)).ok_or("no length after the offset")?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}

const NO_ACTION: Reason = "no known action: read, write, trim, sync, datasync, wait, add, open, close";

/// Returns the index of the action among the fields, and the name of the file before the action. The name may
/// contain blanks: the action is the first known word followed only by numbers.
fn action<'a>(line: &'a [u8], fields: &Fields<'a>, own: usize) -> Option<(usize, &'a [u8])> {
    const ACTIONS: [&[u8]; 9] =
        [b"read", b"write", b"trim", b"sync", b"datasync", b"wait", b"add", b"open", b"close"];
    let count = fields.count().min(Fields::MOST);
    let is_number =
        |place: usize| fields.get(place).iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let is_action = |&place: &usize| {
        ACTIONS.contains(&fields.get(place)) && count - place <= 3 && (place + 1..count).all(is_number)
    };
    let action = (own + 1..count).find(is_action)?;
    let place = |field: &[u8]| field.as_ptr() as usize - line.as_ptr() as usize;
    let last = fields.get(action - 1);
    Some((action, &line[place(fields.get(own))..place(last) + last.len()]))
}

impl Fio {
    fn wait(&mut self, field: &[u8]) -> Result<(), Reason> {
        const NO_WAIT: Reason = "no time after wait";
        match &mut self.clock {
            Clock::Lines => return Err("version 3 has no wait: each line has its time"),
            Clock::WaitsSinceStart(at) => {
                let until = time(field, self.microsecond * 1_000).ok_or(NO_WAIT)?;
                *at = until.max(*at);
            }
            Clock::WaitsInTurn(at) => {
                let wait = time(field, self.microsecond).ok_or(NO_WAIT)?;
                *at = at.checked_add(wait).ok_or(NO_WAIT)?;
            }
        }
        Ok(())
    }
}
