//! The formats, each in the file of its name, and their decoders.

pub(crate) mod alibaba;
pub(crate) mod arc;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod blocks;
pub(crate) mod cloudphysics;
pub(crate) mod columns;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod fixed;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod spc;
pub(crate) mod srt;
pub(crate) mod systor;
pub(crate) mod tencent;
pub(crate) mod vscsi;

use crate::compact::CompactReader;
use crate::decode::{Decode, LineFormat, Lines};
use crate::format::Format;
use crate::options::{Events, Options};
use crate::{Error, Format as F};
use blktrace::ByteOrder;
use braid_base::{Bytes, Nanos};
use fixed::FixedRecords;

/// Returns the interpreter of a text format, `None` for a binary format. `beginning` holds the first bytes of
/// the trace.
pub(crate) fn lines(
    format: Format,
    unit: Nanos,
    block: Bytes,
    options: &Options,
    beginning: &[u8],
) -> Option<Box<dyn LineFormat>> {
    Some(match format {
        F::Spc => Box::new(spc::Spc { second: unit, block }),
        F::Msr => Box::new(msr::Msr { tick: unit, label: Vec::new() }),
        F::Blkparse => Box::new(blkparse::Blkparse { event: options.event, events: Events::default() }),
        F::Fio => {
            let clock = fio::Clock::tell(beginning)?;
            Box::new(fio::Fio { microsecond: unit, clock })
        }
        F::SsdSim => Box::new(columns::Columns { unit, whole: true, block }),
        F::DiskSim => Box::new(columns::Columns { unit, whole: false, block }),
        F::MsrCut => Box::new(columns::Columns { unit, whole: false, block: Bytes(1) }),
        F::CloudPhysics => Box::new(cloudphysics::CloudPhysics { microsecond: unit, block }),
        F::Arc => Box::new(arc::Arc { between: unit, block, lines: 0 }),
        F::Fiu => Box::new(fiu::Fiu { unit, block, label: Vec::new() }),
        F::Alibaba => Box::new(alibaba::Alibaba { microsecond: unit }),
        F::Tencent => Box::new(tencent::Tencent { second: unit, block }),
        F::Systor => Box::new(systor::Systor { second: unit }),
        F::Blocks => Box::new(blocks::Blocks { between: unit, block, width: 0, given: 0 }),
        F::Blktrace | F::OracleGeneral | F::Compact | F::Vscsi | F::Srt | F::BlocksU32 | F::BlocksU64 => {
            return None;
        }
    })
}

/// Returns the decoder of a format.
pub(crate) fn decoder(format: Format, options: &Options, beginning: &[u8]) -> Result<Box<dyn Decode>, Error> {
    let (unit, block) = options.units(format)?;
    if let Some(lines) = lines(format, unit, block, options, beginning) {
        return Ok(Box::new(Lines::new(lines)));
    }
    match format {
        F::Blktrace => match ByteOrder::tell(beginning) {
            Some(order) => Ok(Box::new(blktrace::Blktrace::new(options.event, order))),
            None => Err(not_that(format, "a record of version 7 (magic number 0x65617407)")),
        },
        F::OracleGeneral => Ok(Box::new(oracle_general::OracleGeneral { second: unit, block, number: 0 })),
        F::Compact => Ok(Box::new(CompactReader::new(beginning)?)),
        F::Vscsi => match vscsi::Vscsi::tell(beginning, unit, block) {
            Some(format) => Ok(Box::new(FixedRecords { format, number: 0 })),
            None => Err(not_that(format, "records of version 1 or 2 in order of time")),
        },
        F::Srt => Ok(Box::new(srt::Srt::new(beginning, unit, block)?)),
        F::BlocksU32 | F::BlocksU64 => {
            let width = if format == F::BlocksU32 { 4 } else { 8 };
            let format = blocks::Blocks { between: unit, block, width, given: 0 };
            Ok(Box::new(FixedRecords { format, number: 0 }))
        }
        _ => Err(not_that(format, "'fio version 2 iolog' or 'fio version 3 iolog'")),
    }
}

fn not_that(format: Format, beginning: &str) -> Error {
    Error::Unrecognised(format!(
        "the trace does not have format {format}: it does not begin with {beginning}; leave the format out \
         for detection"
    ))
}
