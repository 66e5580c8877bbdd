//! HP Labs' SRT: requests to the drivers of HP-UX, the format of HP's traces of 1992 ("cello", "snake",
//! "hplajw": Ruemmler, Wilkes, "UNIX Disk Access Patterns", USENIX Winter 1993). After DiskSim 4.0
//! (`disksim_hptrace.h`, `disksim_iotrace.c`, `hplcomb.c`).
//!
//! A text heading ends with a form feed. Only a line like the first below counts. Big-endian records follow.
//! A file may have no heading.
//!
//! ```text
//! tracedate       = "Sun Apr 26 15:00:00 1992";
//!
//! offset bytes
//!  0     4     length of the record: that of the fields below
//!  4     2     version: 1 to 4
//!  6     2     kind: 1 is a request, 4 one that the tracer took for suspect
//!  8     4     time of the request in seconds, since about the beginning of the file
//! 12     4     and microseconds
//! 16     8     when it was begun and when done, in microseconds after that; ignored
//! 24     4     length in bytes
//! 28     4     first sector of 512 bytes
//! 32     4     device: major number, one byte of the minor number, controller and disk, partition; a byte each
//! 36     8     driver and cylinder; ignored
//! 44     4     flags, of which bit 0 says that it reads
//! 48     4     origin; ignored
//! 52     4     length of the queue, in version 4 only; ignored
//! then   4     what is suspect, in kind 4 only
//! ```
//! Addresses are relative to the disk, for every partition. DiskSim's sectors have 512 bytes. The size is
//! assumed for all traces, and another size can be set. The date gives several files a common clock. The date
//! is local time, so a file across a change of daylight saving time is off by an hour.
//!
//! Suspect requests are bad records: DiskSim skips suspect requests too, because their times are wrong.
//! Versions 5 to 8 (`cello99` is 6) have more fields. No public source gives their layout: these versions are
//! rejected.

use super::fixed::big;
use crate::Error;
use crate::decode::{Batch, Decode, Raw, broken, check};
use crate::devices::Devices;
use crate::format::Format;
use crate::problems::Reason;
use crate::source::Source;
use braid_base::{Bytes, Nanos, Op};

pub(crate) struct Srt {
    microsecond: Nanos,
    block: Bytes,
    heading: Heading,
    number: u64,
    /// Device of the last record: the trace's number, and the number in this crate.
    device: Option<(u64, u16)>,
}

/// Text before the first record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Heading {
    len: usize,
    /// `tracedate`, in seconds since 1970.
    date: u64,
}

/// First bytes of a record.
#[derive(Clone, Copy)]
struct Head {
    len: usize,
    suspect: bool,
}

const HEAD: usize = 8;
const LONGEST: usize = 60;
const RECORDS_PER_BATCH: usize = 512;
const REQUEST: u64 = 1;
const SUSPECT: u64 = 4;
/// Records needed to detect a trace without a heading.
const LOOKED_AT: usize = 2;

/// Returns true if a trace begins with a heading, or with valid records of version 1 to 4.
pub(crate) fn tell(beginning: &[u8]) -> bool {
    let mut rest = beginning;
    let mut next_is_record = || match Head::of(rest) {
        Some(head) => rest.split_off(..head.len).is_some(),
        None => false,
    };
    Heading::of(beginning).is_some() || (0..LOOKED_AT).all(|_| next_is_record())
}

impl Srt {
    pub(crate) fn new(beginning: &[u8], microsecond: Nanos, block: Bytes) -> Result<Srt, Error> {
        let heading = Heading::of(beginning);
        let first = &beginning[heading.map_or(0, |heading| heading.len)..];
        match (heading, version(first)) {
            (Some(_), None) | (_, Some(1..=4)) => {}
            (Some(_), Some(version)) => return Err(unsupported(version)),
            (None, _) => {
                return Err(Error::Unrecognised(
                    "the trace does not have format srt: it begins neither with a heading that has a \
                     tracedate and ends with a form feed, nor with a record of version 1 to 4; leave the \
                     format out for detection"
                        .to_owned(),
                ));
            }
        }
        Ok(Srt { microsecond, block, heading: heading.unwrap_or_default(), number: 0, device: None })
    }
}

/// Returns the version of the record at the start of `record`.
fn version(record: &[u8]) -> Option<u64> {
    record.get(4..6).map(big)
}

fn unsupported(version: u64) -> Error {
    Error::Unrecognised(format!(
        "the trace is HP's SRT with records of version {version}, whose layout is not published: versions 1 \
         to 4 are supported; convert it with srt2ds and ds2txt of HP's DataSeries, and its columns to the \
         columns of format spc (device, sector, bytes, r or w, seconds)"
    ))
}

impl Heading {
    /// Parses the heading. `None` if the trace has no heading.
    fn of(beginning: &[u8]) -> Option<Heading> {
        let len = memchr::memchr(b'\x0c', beginning)?;
        let mut lines = beginning[..len].split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let date = lines.find_map(|line| line.strip_prefix(b"tracedate"))?;
        Some(Heading { len: len + 1, date: seconds(date).unwrap_or(0) })
    }
}

/// Parses seconds since 1970 from `= "Sun Apr 26 15:00:00 1992";`.
fn seconds(line: &[u8]) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let quoted = std::str::from_utf8(line).ok()?.split('"').nth(1)?;
    let [_, month, day, time, year] = quoted.split_ascii_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let number = |text: &str, most: u64| text.parse().ok().filter(|&number: &u64| number <= most);
    let (day, year) = (number(day, 31)?.checked_sub(1)?, number(year, 2099)?.checked_sub(1970)?);
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>().try_into().ok()?;
    let (hour, minute, second) = (number(hour, 23)?, number(minute, 59)?, number(second, 60)?);
    // From 1970 to 2099, every fourth year from 1972 on has a leap day.
    let leap_days = (year + 1) / 4 + u64::from(year % 4 == 2 && month > 1);
    let days = year * 365 + leap_days + DAYS_BEFORE[month] + day;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

impl Head {
    /// Parses the head of a record. `None` if the bytes are not a known record.
    fn of(bytes: &[u8]) -> Option<Head> {
        let head = bytes.first_chunk::<HEAD>()?;
        let suspect = match big(&head[6..8]) {
            REQUEST => false,
            SUSPECT => true,
            _ => return None,
        };
        let len = match big(&head[4..6]) {
            1..=3 => 52,
            4 => 56,
            _ => return None,
        };
        let len = if suspect { len + 4 } else { len };
        (big(&head[..4]) == len as u64).then_some(Head { len, suspect })
    }
}

impl Decode for Srt {
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        let failed = |number| move |error| broken(Format::Srt, number, error);
        let heading = source.peek(self.heading.len).map_err(failed(0))?.len();
        source.skip(heading);
        self.heading.len = 0;
        for _ in 0..RECORDS_PER_BATCH {
            let seen = source.peek(LONGEST).map_err(failed(self.number))?;
            let found = seen.len();
            if found == 0 {
                return Ok(false);
            }
            let head = Head::of(seen);
            if found < head.map_or(HEAD, |head| head.len) {
                source.skip(found);
                batch
                    .problems
                    .note(self.number, || format!("{found} bytes at the end, less than a record"))?;
                return Ok(false);
            }
            let Some(head) = head else {
                let begins = |bytes: &[u8]| Head::of(bytes).is_some();
                let skipped = source.skip_until(HEAD, begins).map_err(failed(self.number))?;
                batch.problems.note(self.number, || {
                    format!("{skipped} bytes that are not a request of version 1 to 4")
                })?;
                continue;
            };
            match self.record(&seen[..head.len], head, &mut batch.devices).and_then(|raw| check(Some(raw))) {
                Ok(Some(raw)) => batch.records.push(Raw { number: self.number, ..raw }),
                Ok(None) => {}
                Err(reason) => batch.problems.note(self.number, || reason.to_owned())?,
            }
            source.skip(head.len);
            self.number += 1;
        }
        Ok(true)
    }
}

impl Srt {
    fn record(&mut self, record: &[u8], head: Head, devices: &mut Devices) -> Result<Raw, Reason> {
        if head.suspect {
            return Err("a request that its tracer marked as suspect");
        }
        let word = |place: usize| big(&record[place..place + 4]);
        let (second, microsecond) = (word(8), word(12));
        if microsecond >= 1_000_000 {
            return Err("a time of a million microseconds or more beside its seconds");
        }
        let since = (second * 1_000_000 + microsecond).checked_mul(self.microsecond.0);
        let date = Nanos::from_secs(self.heading.date).0;
        let at = since.and_then(|since| since.checked_add(date)).ok_or("a time beyond 64 bits")?;
        let offset = word(28).checked_mul(self.block.0).ok_or("an address beyond 64 bits")?;
        let op = if word(44) & 1 == 1 { Op::Read } else { Op::Write };
        let device = self.device(word(32), devices)?;
        Ok(Raw { at, device, op, offset, len: word(24), number: 0 })
    }

    /// Returns the device. The partition is ignored.
    fn device(&mut self, device: u64, devices: &mut Devices) -> Result<u16, Reason> {
        let disk = device >> 8;
        match self.device {
            Some((last, number)) if last == disk => Ok(number),
            _ => {
                let number = devices.number(format!("{},{:#06x}", disk >> 16, disk & 0xffff).as_bytes())?;
                self.device = Some((disk, number));
                Ok(number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_seconds_since_1970() {
        let date = |text: &str| seconds(format!("\t= \"{text}\";").as_bytes());
        assert_eq!(date("Thu Jan  1 00:00:00 1970"), Some(0));
        assert_eq!(date("Sun Apr 26 15:00:00 1992"), Some(704_300_400));
        assert_eq!(date("Sat Feb 29 23:59:59 1992"), Some(699_407_999));
        assert_eq!(date("Sun Mar  1 00:00:00 1992"), Some(699_408_000));
        assert_eq!(date("Fri Jan  1 00:00:00 1993"), Some(725_846_400));
        for bad in [
            "",
            "Sun Apr 26 1992",
            "Sun Apr 0 15:00:00 1992",
            "Sun Abc 26 15:00:00 1992",
            "Sun Apr 26 15:00 1992",
        ] {
            assert_eq!(date(bad), None, "{bad}");
        }
    }
}
