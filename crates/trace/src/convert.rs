//! Converts a trace to another format.
//!
//! *compact* keeps everything. The text formats are for other programs and keep less. `spc` (see
//! `formats/spc.rs`) has no flushes and no discards, and its addresses are in sectors. `fio2` and `fio3` (see
//! `formats/fio.rs`) have times in milliseconds and microseconds: fio itself reads the waits of version 2 as
//! milliseconds. Records left out, or rounded to sectors, are counted. In `spc`, a device with a number as
//! label has this number as ASU. Any other device has 1000 plus its index as ASU. In `fio2` and `fio3`, the
//! label becomes the file name.

use crate::compact::{BlockCompression, CompactWriter, Header};
use crate::error::Error;
use crate::reader::{Reader, Record};
use braid_base::{Nanos, Op, SECTOR};
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// Target format of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Braid's own format.
    Compact(BlockCompression),
    /// SPC text.
    Spc,
    /// fio's iolog, version 2.
    Fio2,
    /// fio's iolog, version 3.
    Fio3,
}

/// Counts of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Converted {
    /// Records written.
    pub records: u64,
    /// Records of a type that the target format lacks.
    pub left_out_records: u64,
    /// Records with the address rounded down, and the length rounded up, to whole sectors.
    pub rounded_records: u64,
}

/// Writes all records of `reader`. `header` is for the compact format. `progress` is called for each record.
pub fn convert<W: Write>(
    reader: &mut Reader,
    target: Target,
    header: &Header,
    out: W,
    mut progress: impl FnMut(&Record),
) -> Result<Converted, Error> {
    let writing = |error| Error::io("the converted trace cannot be written", error);
    let mut writer = match target {
        Target::Compact(compression) => {
            Writer::Compact(CompactWriter::open(out, header, compression).map_err(writing)?)
        }
        Target::Spc => Writer::Spc(SpcWriter { out, asus: Vec::new() }),
        Target::Fio2 | Target::Fio3 => {
            let version = if target == Target::Fio2 { 2 } else { 3 };
            Writer::Fio(FioWriter::open(out, version).map_err(writing)?)
        }
    };
    let mut converted = Converted::default();
    while let Some(record) = reader.next() {
        let record = record?;
        progress(&record);
        let label = reader.device_label(record.device);
        let fate = match &mut writer {
            Writer::Compact(compact) => compact.push(&record.arrival).map(|()| Fate::Kept),
            Writer::Spc(spc) => spc.push(&record, label),
            Writer::Fio(fio) => fio.push(&record, label),
        };
        match fate.map_err(writing)? {
            Fate::Kept => converted.records += 1,
            Fate::LeftOut => converted.left_out_records += 1,
            Fate::Rounded => {
                converted.records += 1;
                converted.rounded_records += 1;
            }
        }
    }
    writer.finish().map_err(writing)?;
    Ok(converted)
}

enum Writer<W: Write> {
    Compact(CompactWriter<W>),
    Spc(SpcWriter<W>),
    Fio(FioWriter<W>),
}

enum Fate {
    Kept,
    Rounded,
    LeftOut,
}

impl<W: Write> Writer<W> {
    fn finish(self) -> io::Result<()> {
        match self {
            Writer::Compact(compact) => compact.finish(0).map(drop),
            Writer::Spc(mut spc) => spc.out.flush(),
            Writer::Fio(fio) => fio.finish(),
        }
    }
}

struct SpcWriter<W> {
    out: W,
    /// ASU by device index.
    asus: Vec<Option<u64>>,
}

/// First ASU for devices with a label that is not a number.
const FIRST_OF_NAMED: u64 = 1000;

impl<W: Write> SpcWriter<W> {
    fn push(&mut self, record: &Record, label: &str) -> io::Result<Fate> {
        let op = match record.arrival.request.op {
            Op::Read => 'r',
            Op::Write => 'w',
            Op::Flush | Op::Discard => return Ok(Fate::LeftOut),
        };
        let asu = self.asu(record.device.into(), label);
        let before = record.within % SECTOR;
        let (sector, len) = (record.within / SECTOR, record.arrival.request.len + before);
        let Nanos(at) = record.arrival.at;
        let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
        writeln!(self.out, "{asu},{sector},{},{op},{seconds}.{rest:09}", len.0)?;
        Ok(if before.0 == 0 { Fate::Kept } else { Fate::Rounded })
    }

    fn asu(&mut self, device: usize, label: &str) -> u64 {
        if self.asus.len() <= device {
            self.asus.resize(device + 1, None);
        }
        *self.asus[device].get_or_insert_with(|| label.parse().unwrap_or(FIRST_OF_NAMED + device as u64))
    }
}

struct FioWriter<W> {
    out: W,
    version: u32,
    /// Opened files, by device index.
    files: Vec<Option<String>>,
    /// Last wait of version 2, in milliseconds.
    waited: u64,
    last: Nanos,
}

impl<W: Write> FioWriter<W> {
    fn open(mut out: W, version: u32) -> io::Result<FioWriter<W>> {
        writeln!(out, "fio version {version} iolog")?;
        Ok(FioWriter { out, version, files: Vec::new(), waited: 0, last: Nanos::ZERO })
    }

    fn push(&mut self, record: &Record, label: &str) -> io::Result<Fate> {
        let request = record.arrival.request;
        self.last = record.arrival.at;
        let device = usize::from(record.device);
        if self.files.len() <= device {
            self.files.resize(device + 1, None);
        }
        if self.files[device].is_none() {
            let file = file_name(label);
            self.act(&file, "add")?;
            self.act(&file, "open")?;
            self.files[device] = Some(file);
        }
        let file = self.files[device].as_deref().unwrap_or_default();
        let millis = self.last.0 / 1_000_000;
        match self.version {
            2 if millis > self.waited => {
                writeln!(self.out, "{file} wait {millis} 0")?;
                self.waited = millis;
            }
            2 => {}
            _ => write!(self.out, "{} ", self.micros())?,
        }
        let action = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard => "trim",
        };
        writeln!(self.out, "{file} {action} {} {}", record.within.0, request.len.0)?;
        Ok(Fate::Kept)
    }

    fn act(&mut self, file: &str, action: &str) -> io::Result<()> {
        match self.version {
            2 => writeln!(self.out, "{file} {action}"),
            _ => writeln!(self.out, "{} {file} {action}", self.micros()),
        }
    }

    /// Returns the time in microseconds, plus 1: fio (3.33) takes a time of zero as absent, and would not
    /// wait until the second record.
    fn micros(&self) -> u64 {
        self.last.0 / 1_000 + 1
    }

    fn finish(mut self) -> io::Result<()> {
        for file in std::mem::take(&mut self.files).into_iter().flatten() {
            self.act(&file, "close")?;
        }
        self.out.flush()
    }
}

/// Returns a file name for a label. A name of digits alone would look like a mistake.
fn file_name(label: &str) -> String {
    match label.parse::<u64>() {
        Ok(number) => format!("device{number}"),
        // fio ends a name at a colon or a blank.
        Err(_) => label.replace(|c: char| c == ':' || c.is_whitespace(), "_"),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Target::Compact(_) => "compact",
            Target::Spc => "spc",
            Target::Fio2 => "fio2",
            Target::Fio3 => "fio3",
        })
    }
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        match text {
            "compact" => Ok(Target::Compact(BlockCompression::None)),
            "spc" => Ok(Target::Spc),
            "fio2" => Ok(Target::Fio2),
            "fio3" => Ok(Target::Fio3),
            _ => Err(format!("'{text}' is not a format to convert to: use compact, spc, fio2 or fio3")),
        }
    }
}
