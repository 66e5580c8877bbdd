//! Windows of real traces: which traces a folder has, and the requests of a window, on its touched extents
//! alone.

use super::write::{Draft, EXTENT};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Nanos, Op, Request};
use braid_trace::{Options, TraceFile};
use std::path::{Path, PathBuf};

/// A trace of a folder.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// The file's name, up to its first point.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its records.
    pub records: u64,
}

/// A trace with fewer records says nothing.
const FEWEST: u64 = 1000;

/// The traces of a folder, in order of name; and the files that are none, with the reason.
///
/// # Errors
/// A folder that cannot be read.
pub fn in_folder(folder: &Path) -> Result<(Vec<Recorded>, Vec<String>)> {
    let unreadable = |error: std::io::Error| {
        Error::new(ErrorKind::Trace, format!("{}: {error}; name a folder of traces", folder.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable));
    let mut paths = paths.collect::<Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.is_file() && path.extension().is_none_or(|ending| ending != "md"));
    paths.sort();
    let (mut traces, mut refused) = (Vec::new(), Vec::new());
    for path in paths {
        match TraceFile::open(&path, &Options::default(), None) {
            Ok(file) if file.survey().tally.records >= FEWEST => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let name = name.split('.').next().unwrap_or_default().to_owned();
                traces.push(Recorded { name, path, records: file.survey().tally.records });
            }
            Ok(_) => refused.push(format!("{}: fewer than {FEWEST} records", path.display())),
            Err(error) => refused.push(error.to_string()),
        }
    }
    Ok((traces, refused))
}

/// `count` requests of a trace from its record `first` on, and the address space of its devices.
pub(super) fn window(path: &Path, first: u64, count: usize) -> Result<(Vec<Draft>, Bytes)> {
    let file = TraceFile::open(path, &Options::default(), None)?;
    let (mut drafts, mut last) = (Vec::with_capacity(count), None);
    for record in file.reader()?.skip(first as usize).take(count) {
        let arrival = record?.arrival;
        let gap = arrival.at.saturating_sub(last.unwrap_or(arrival.at));
        last = Some(arrival.at);
        drafts.push(Draft { gap: gap.0 as f64, think: Nanos::ZERO, request: arrival.request });
    }
    // A trace of addresses alone: its requests are even.
    if drafts.iter().all(|draft| draft.gap == 0.0) {
        drafts.iter_mut().for_each(|draft| draft.gap = 1.0);
    }
    Ok((drafts, file.survey().span))
}

/// Touched extents, numbered in order of address: places without the gaps between them.
pub(super) struct Numbered(Vec<u64>);

impl Numbered {
    /// Of what these requests read and write.
    pub fn of(drafts: &[Draft]) -> Numbered {
        let mut extents: Vec<u64> = Vec::new();
        for Draft { request: Request { op, offset, len }, .. } in drafts {
            if matches!(op, Op::Read | Op::Write) && *len > Bytes::ZERO {
                extents.extend(*offset / EXTENT..=(*offset + *len - Bytes(1)) / EXTENT);
            }
        }
        extents.sort_unstable();
        extents.dedup();
        Numbered(extents)
    }

    /// What they take.
    pub fn span(&self) -> Bytes {
        EXTENT * self.0.len() as u64
    }

    /// A request in the numbered space; none if it asks for nothing there.
    pub fn place(&self, request: Request) -> Option<Request> {
        if request.op == Op::Flush {
            return Some(request);
        }
        let (from, to) = (self.bound(request.offset), self.bound(request.offset + request.len));
        (from < to).then(|| Request { offset: from, len: to - from, ..request })
    }

    /// The bytes of touched extents before this one.
    pub fn bound(&self, at: Bytes) -> Bytes {
        let (number, rest) = (at / EXTENT, at % EXTENT);
        let before = self.0.partition_point(|extent| *extent < number);
        let is_touched = self.0.get(before) == Some(&number);
        EXTENT * before as u64 + if is_touched { rest } else { Bytes::ZERO }
    }
}
