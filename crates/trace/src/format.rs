//! Formats by name, with their units.

use crate::formats::blocks;
use braid_base::{Bytes, Nanos, SECTOR};
use std::fmt;
use std::str::FromStr;

/// A trace format, described in the file of the same name in `formats/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Storage Performance Council, as in the UMass repository: `ASU,LBA,size,opcode,time`.
    Spc,
    /// MSR Cambridge CSV.
    Msr,
    /// The binary format of the kernel and blktrace.
    Blktrace,
    /// The text output of blkparse.
    Blkparse,
    /// fio's iolog, version 2 or 3.
    Fio,
    /// DiskSim's ASCII format: `milliseconds device sector sectors flags`.
    DiskSim,
    /// SSDSim and MQSim: `nanoseconds device sector sectors op`.
    SsdSim,
    /// Slices of MSR traces: `milliseconds device byte bytes op`.
    MsrCut,
    /// CloudPhysics CSV: `version,time,op,size,lbn`.
    CloudPhysics,
    /// The ARC paper's `.lis`: `block blocks 0 number`.
    Arc,
    /// libCacheSim's oracleGeneral binary.
    OracleGeneral,
    /// VMware's virtual SCSI tracer, binary, version 1 or 2.
    Vscsi,
    /// HP Labs' SRT, binary, versions 1 to 4.
    Srt,
    /// FIU, SRCMap: `nanoseconds pid process sector sectors R|W major minor digest`.
    Fiu,
    /// Alibaba CSV: `device_id,opcode,offset,length,timestamp`.
    Alibaba,
    /// Tencent CSV: `Timestamp,Offset,Size,IOType,VolumeID`.
    Tencent,
    /// SYSTOR '17 CSV: `Timestamp,Response,IOType,LUN,Offset,Size`.
    Systor,
    /// Text with a block number on each line.
    Blocks,
    /// Binary block numbers of four bytes.
    BlocksU32,
    /// Binary block numbers of eight bytes.
    BlocksU64,
    /// Braid's own format.
    Compact,
}

/// Units of a format, unless the trace itself contains the units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Unit of time. `None` if the format defines the unit.
    pub time: Option<Nanos>,
    /// Unit of address (and of length, if the format counts lengths in blocks). `None` for bytes.
    pub block: Option<Bytes>,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 21] = [
        Format::Spc,
        Format::Msr,
        Format::Blktrace,
        Format::Blkparse,
        Format::Fio,
        Format::DiskSim,
        Format::SsdSim,
        Format::MsrCut,
        Format::CloudPhysics,
        Format::Arc,
        Format::OracleGeneral,
        Format::Vscsi,
        Format::Srt,
        Format::Fiu,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Blocks,
        Format::BlocksU32,
        Format::BlocksU64,
        Format::Compact,
    ];

    /// Returns the name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Format::Spc => "spc",
            Format::Msr => "msr",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
            Format::DiskSim => "disksim",
            Format::SsdSim => "ssdsim",
            Format::MsrCut => "msr-cut",
            Format::CloudPhysics => "cloudphysics",
            Format::Arc => "arc",
            Format::OracleGeneral => "oracle-general",
            Format::Vscsi => "vscsi",
            Format::Srt => "srt",
            Format::Fiu => "fiu",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor => "systor",
            Format::Blocks => "blocks",
            Format::BlocksU32 => "blocks-u32",
            Format::BlocksU64 => "blocks-u64",
            Format::Compact => "compact",
        }
    }

    /// Returns the default units of the format. [`crate::Options`] may override units that are `Some`.
    pub fn units(self) -> Units {
        let (time, block) = match self {
            Format::Spc => (Some(Nanos::from_secs(1)), Some(SECTOR)),
            Format::Msr => (Some(Nanos(100)), None),
            Format::Blktrace | Format::Blkparse | Format::Compact => (None, None),
            Format::Fio => (Some(Nanos::from_micros(1)), None),
            Format::DiskSim => (Some(Nanos::from_millis(1)), Some(SECTOR)),
            Format::SsdSim => (Some(Nanos(1)), Some(SECTOR)),
            Format::MsrCut => (Some(Nanos::from_millis(1)), None),
            Format::CloudPhysics => (Some(Nanos::from_micros(1)), Some(SECTOR)),
            Format::Arc => (Some(Nanos::from_millis(1)), Some(SECTOR)),
            Format::OracleGeneral | Format::Tencent => (Some(Nanos::from_secs(1)), Some(SECTOR)),
            Format::Vscsi | Format::Srt => (Some(Nanos::from_micros(1)), Some(SECTOR)),
            Format::Fiu => (Some(Nanos(1)), Some(SECTOR)),
            Format::Alibaba => (Some(Nanos::from_micros(1)), None),
            Format::Systor => (Some(Nanos::from_secs(1)), None),
            Format::Blocks | Format::BlocksU32 | Format::BlocksU64 => {
                (Some(Nanos::from_millis(1)), Some(blocks::BLOCK))
            }
        };
        Units { time, block }
    }

    /// Returns the word for a record in messages.
    pub fn word_for_record(self) -> &'static str {
        match self {
            Format::Blktrace
            | Format::OracleGeneral
            | Format::Vscsi
            | Format::Srt
            | Format::BlocksU32
            | Format::BlocksU64 => "record",
            Format::Compact => "block",
            _ => "line",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| format!("unknown trace format '{text}': use one of {}", Format::names()))
    }
}

impl Format {
    /// Returns the names of all formats, for messages.
    pub fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }
}
