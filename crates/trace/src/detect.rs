//! Detection of the format from the content. The name of a file is never used: names are often wrong, and a
//! pipe has no name.
//!
//! 0. Unsupported compressions, archives and encodings are named in the error.
//! 1. A magic number or heading decides: compact, blktrace, fio, srt. Two valid records also decide for srt.
//! 2. Binary content is vscsi or oracleGeneral, if the first records are valid in this format. Bare binary
//!    numbers (`blocks-u32`, `blocks-u64`) are valid for any content, and are never detected.
//! 3. Each text format reads the lines within the first 64 KiB (at most 200). The format with the most
//!    records wins, if it finds records in at least half of the non-empty lines. So a heading or some bad
//!    lines do no harm.
//! 4. For the three formats with five columns, the rule in `formats/columns.rs` decides.

use crate::Error;
use crate::compact;
use crate::compression::unsupported;
use crate::devices::Devices;
use crate::format::Format;
use crate::formats::vscsi::Vscsi;
use crate::formats::{self, blkparse, blktrace, columns, fio, oracle_general, srt};
use crate::number::{Fields, whole};
use crate::options::Options;
use crate::problems::Excerpt;
use braid_base::{Nanos, SECTOR};

/// Bytes of the beginning used for detection.
pub(crate) const VIEW: usize = 64 << 10;
const MOST_LINES: usize = 200;

/// Text formats without a heading, the most specific first: the order decides between equal results.
const TEXT: [Format; 12] = [
    Format::Spc,
    Format::Msr,
    Format::CloudPhysics,
    Format::Blkparse,
    Format::SsdSim,
    Format::DiskSim,
    Format::Arc,
    Format::Fiu,
    Format::Alibaba,
    Format::Tencent,
    Format::Systor,
    Format::Blocks,
];

/// Detects the format of a trace from its first bytes.
pub(crate) fn detect(beginning: &[u8], options: &Options) -> Result<Format, Error> {
    if beginning.is_empty() {
        return Err(Error::Unrecognised("the trace is empty: its format cannot be detected".to_owned()));
    }
    if let Some(what) = unsupported(beginning) {
        return Err(Error::Unrecognised(format!("the content is {what}")));
    }
    if beginning.starts_with(compact::MAGIC) {
        return Ok(Format::Compact);
    }
    if blktrace::ByteOrder::tell(beginning).is_some() {
        return Ok(Format::Blktrace);
    }
    if beginning.starts_with(fio::HEADING) {
        return Ok(Format::Fio);
    }
    if srt::tell(beginning) {
        return Ok(Format::Srt);
    }
    if !is_text(beginning) {
        if Vscsi::tell(beginning, Nanos::from_micros(1), SECTOR).is_some() {
            return Ok(Format::Vscsi);
        }
        return match oracle_general::plausible(beginning) {
            true => Ok(Format::OracleGeneral),
            false => Err(unknown(beginning)),
        };
    }
    let lines = lines(beginning);
    let found = |format| (records(format, &lines, beginning, options), format);
    // `max_by_key` returns the last of equal maxima. The reversed order makes it the first in `TEXT`.
    let best = TEXT.into_iter().rev().map(found).max_by_key(|&(records, _)| records);
    match best {
        Some((records, format)) if records > 0 && records * 2 >= lines.len() => Ok(match format {
            Format::DiskSim if addresses_are_bytes(&lines) => Format::MsrCut,
            format => format,
        }),
        _ => Err(unknown(beginning)),
    }
}

fn is_text(beginning: &[u8]) -> bool {
    let odd = |byte: &&u8| !matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    beginning.iter().filter(odd).count() * 100 <= beginning.len()
}

/// Returns the complete, non-empty lines of the view, without comments.
fn lines(beginning: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = beginning.split(|&byte| byte == b'\n').collect();
    if beginning.len() >= VIEW && lines.len() > 1 {
        lines.pop();
    }
    let content = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
    lines.into_iter().map(<[u8]>::trim_ascii).filter(content).take(MOST_LINES).collect()
}

/// Returns the number of records that a format finds. Units are ignored: an unsuitable override is an error
/// later.
fn records(format: Format, lines: &[&[u8]], beginning: &[u8], options: &Options) -> usize {
    let usual = Options { event: options.event, ..Options::default() };
    let Ok((unit, block)) = usual.units(format) else { return 0 };
    let Some(mut reader) = formats::lines(format, unit, block, &usual, beginning) else { return 0 };
    let mut devices = Devices::default();
    let mut is_record = |line: &&&[u8]| {
        // Ignored events of blkparse also count as its lines.
        match reader.record(line, &mut devices) {
            Ok(Some(_)) => true,
            Ok(None) => format == Format::Blkparse && blkparse::is_device(Fields::by_space(line).get(0)),
            Err(_) => false,
        }
    };
    lines.iter().filter(|line| is_record(line)).count()
}

/// Returns true if all addresses and lengths in five columns are multiples of the sector size.
fn addresses_are_bytes(lines: &[&[u8]]) -> bool {
    let is_multiple = |field| whole(field).is_none_or(|value| value.is_multiple_of(columns::SECTOR_BYTES));
    lines.iter().all(|line| {
        let fields = Fields::by_space(line);
        is_multiple(fields.get(2)) && is_multiple(fields.get(3))
    })
}

fn unknown(beginning: &[u8]) -> Error {
    let first = beginning.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Error::Unrecognised(format!(
        "the trace begins with {}, an unknown format: name the format, if it is one of {}",
        Excerpt(first),
        Format::names()
    ))
}
