//! Finds the pending log that a dead daemon has left.
//!
//! The note in the state directory comes first: the dead daemon's environment may have been another one. The
//! note counts only if all of the following hold:
//!
//! - The file looks like a log of this volume, in a directory that belongs to this user alone.
//! - The note does not belong to another state directory that knows the volume on other devices. A copy of a
//!   state directory has a copy of the note, but the log belongs to the original.

use crate::state::log_place::{all_directories, file_name, may_be_of, old_file_name, verify};
use crate::state::noted::{NotedLog, life, noted_log};
use crate::state::state_dir::{StateDir, VolumeRecord};
use std::path::{Path, PathBuf};

/// Result of the search.
#[derive(Default)]
pub(crate) struct Left {
    /// A file that may hold a log.
    pub path: Option<PathBuf>,
    /// Problems found.
    pub warnings: Vec<String>,
}

/// Searches for the log of a dead daemon.
pub(crate) fn find_left(state: &StateDir, record: &VolumeRecord) -> Left {
    let mut left = find(state, record);
    if left.path.is_none() {
        let own = file_name(state, record);
        left.warnings.extend(others(record, &own).map(|path| {
            format!(
                "{} is the pending log of a volume with the same UUID in another state directory, and is \
                 ignored: if both are the same volume and its daemon died, serve the volume there",
                path.display()
            )
        }));
    }
    left
}

fn find(state: &StateDir, record: &VolumeRecord) -> Left {
    let Some(noted) = noted_log(state, record) else {
        return Left { path: search(&file_name(state, record)), ..Left::default() };
    };
    let Some(noted) = noted else {
        // A note of an older version, without the path of the log.
        let names = [file_name(state, record), old_file_name(record)];
        return Left { path: names.iter().find_map(|name| search(name)), ..Left::default() };
    };
    let warning = match judge(state, record, &noted) {
        Ok(path) => return Left { path: Some(path), ..Left::default() },
        Err(warning) => warning,
    };
    let path = search(&file_name(state, record));
    // A log in its usual place needs no note.
    let warnings = warning.into_iter().filter(|_| path.is_none()).collect();
    Left { path, warnings }
}

/// Returns the noted file; if the note does not count, returns the warning to show, if any.
fn judge(state: &StateDir, record: &VolumeRecord, noted: &NotedLog) -> Result<PathBuf, Option<String>> {
    let path = Path::new(&noted.path);
    let shown = path.display();
    if !path.is_absolute() || !may_be_of(record, path) {
        return Err(Some(format!(
            "its state directory records the pending log {shown}, which belongs to another volume"
        )));
    }
    if let Some(owner) = noted.other_owner(state, record) {
        return Err(Some(format!(
            "the pending log {shown} belongs to {}, and this volume is a copy of that volume: unflushed \
             data is there alone",
            owner.display()
        )));
    }
    if !has_content(path) {
        let is_same_life = life().is_some_and(|life| life == noted.life) && !path.exists();
        return Err(is_same_life.then(|| {
            format!(
                "its pending log {shown} is gone, and its last daemon did not shut the volume down cleanly: \
                 acknowledged but unflushed writes may be lost"
            )
        }));
    }
    let fits = path.parent().map_or(Ok(()), verify);
    fits.map_err(|error| Some(format!("its pending log {shown} is ignored: the directory: {error}")))?;
    Ok(path.to_owned())
}

/// Returns a file with this name in a usual directory.
fn search(name: &str) -> Option<PathBuf> {
    let fits = |path: &PathBuf| has_content(path) && path.parent().is_some_and(|dir| verify(dir).is_ok());
    all_directories().iter().map(|dir| dir.join(name)).find(fits)
}

/// Returns logs of volumes with the same UUID in other state directories, at most [`MOST_OTHERS`].
fn others<'a>(record: &'a VolumeRecord, own: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let dirs = all_directories().into_iter().filter(|dir| verify(dir).is_ok());
    let paths = dirs.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    let is_other = move |path: &PathBuf| {
        may_be_of(record, path) && path.file_name().is_some_and(|name| name != own) && has_content(path)
    };
    paths.map(|entry| entry.path()).filter(is_other).take(MOST_OTHERS)
}

/// Number of copies named in warnings: more need not be named.
const MOST_OTHERS: usize = 3;

/// True if the file has content. An opening that failed may have left an empty file.
fn has_content(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|known| known.len() > 0)
}
