//! Results of a corpus in a file, with a line for each row of a cell, so that a stopped run can continue.
//!
//! The first line names the build that made the results: results of another build are refused, because they
//! are of other policies. A last line without a newline comes from a run stopped while writing, and is left
//! out. Files of several runs may be concatenated: each head is checked. A result is of a row in a cell, so
//! runs of other rows and cells share a file.

use super::{Cell, Row, RowRun};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Known results, and a file for further results.
#[derive(Default)]
pub struct Kept {
    known: BTreeMap<String, RowRun>,
    file: Option<(PathBuf, File)>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    build: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    run: RowRun,
}

impl Kept {
    /// No known results, and no file.
    pub fn nothing() -> Kept {
        Kept::default()
    }

    /// Opens the results in a file, which is created if missing. `build` identifies the build.
    ///
    /// # Errors
    /// If the file cannot be read or written, is of another build, or is not of this kind.
    pub fn open(path: &Path, build: &str) -> Result<Kept> {
        let cannot = |error: std::io::Error| cannot(path, &error);
        let mut file = File::options().read(true).append(true).create(true).open(path).map_err(cannot)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(cannot)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(cannot)?;
        file.seek(SeekFrom::End(0)).map_err(cannot)?;
        let refused = |what: &str| {
            let path = path.display();
            Error::new(
                ErrorKind::Setup,
                format!("{path}: {what}: remove it, or name another file with --results"),
            )
        };
        let is_head = |line: &str| match serde_json::from_str::<Head>(line) {
            Ok(head) if head.build == build => Ok(true),
            Ok(_) => Err(refused("results of another build of braid")),
            Err(_) => Ok(false),
        };
        match text[..whole].lines().next() {
            None => {
                let head = Head { build: build.to_owned() };
                writeln!(file, "{}", json(&head)).map_err(cannot)?;
            }
            Some(line) if is_head(line)? => {}
            Some(_) => return Err(refused("no results of a corpus")),
        }
        let mut known = BTreeMap::new();
        for line in text[..whole].lines() {
            if is_head(line)? {
                continue;
            }
            let Line { key, run } =
                serde_json::from_str(line).map_err(|_| refused("a line that is not a valid result"))?;
            known.insert(key, run);
        }
        Ok(Kept { known, file: Some((path.to_owned(), file)) })
    }

    pub(super) fn find(&self, cell: &Cell, row: &Row, quick: bool) -> Option<&RowRun> {
        self.known.get(&key(cell, row, quick))
    }

    pub(super) fn keep(&mut self, cell: &Cell, row: &Row, quick: bool, run: &RowRun) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let line = Line { key: key(cell, row, quick), run: run.clone() };
        writeln!(file, "{}", json(&line)).map_err(|error| cannot(path, &error))
    }
}

/// Key of a result. The name of a cell has all drawn properties except the seed; a trace may have changed.
fn key(cell: &Cell, row: &Row, quick: bool) -> String {
    let trace = cell.trace().and_then(|path| path.metadata().ok()).map_or(0, |there| there.len());
    format!("{}; seed {}; trace {trace} B; quick {quick}; {}", cell.name, cell.seed, row.name)
}

fn json(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("texts and numbers are always written")
}

fn cannot(path: &Path, error: &std::io::Error) -> Error {
    let path = path.display();
    Error::new(
        ErrorKind::Setup,
        format!("cannot keep results in {path}: {error}; name another file with --results"),
    )
}
