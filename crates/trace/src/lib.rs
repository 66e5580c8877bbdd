//! Block traces: read in every usual format, measured, converted.
//!
//! [`Reader`] takes any source and gives [`Record`]s in order of time, in memory that does not depend on the
//! length of the trace: compression and format are told by content, bad records are reported and counted,
//! several devices are laid into one address space. [`TraceFile`] does the same for a file, which it can read
//! twice. [`measure`] says of a stream of records what papers print of their traces. [`convert()`] and
//! [`CompactWriter`] write.
//!
//! Nothing here panics whatever the bytes are, and nothing allocates by what they claim: a line has at most
//! 64 KiB, a request 256 MiB, a trace 65,536 devices. The fuzz target `trace` holds it to that.
#![forbid(unsafe_code)]

mod compact;
mod compression;
mod convert;
pub mod curves;
mod decode;
mod detect;
mod devices;
mod error;
mod file;
mod files;
mod format;
mod formats;
pub mod measure;
mod merge;
mod number;
mod options;
mod order;
mod place;
mod problems;
mod reader;
mod source;
mod survey;
mod touched;

pub use compact::{BlockCompression, COMPACT_END_LEN, CompactEnd, CompactWriter, Header, compact_end};
pub use compression::Compression;
pub use convert::{Converted, Target, convert};
pub use error::Error;
pub use file::{TraceFile, Watch, open, open_through};
pub use files::files_of;
pub use format::{Format, Units};
pub use options::{Event, Events, Layout, Options, Place};
pub use place::Seen;
pub use problems::{KEPT_PROBLEMS, Problem, Problems};
pub use reader::{Reader, Record, Tally};
pub use survey::Survey;
pub use touched::{Compaction, MOST_GROUPS};
