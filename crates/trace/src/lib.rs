//! Block traces: reads every usual format, measures, converts.
//!
//! [`Reader`] reads any source and returns [`Record`]s in order of time. Memory does not depend on the length
//! of the trace. Compression and format are detected from the content. Bad records are reported and counted.
//! Several devices are laid out in one address space. [`TraceFile`] does the same for a file, and can read
//! the file twice. [`measure`] computes statistics of a stream of records, as printed in papers.
//! [`convert()`] and [`CompactWriter`] write traces.
//!
//! No input causes a panic, and no claimed length causes an unbounded allocation: a line has at most 64 KiB,
//! a request 256 MiB, a trace 65,536 devices. The fuzz target `trace` checks these rules.
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
