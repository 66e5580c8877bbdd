//! Lists the files of a trace.

use crate::Error;
use std::path::{Path, PathBuf};

/// Limit of files of a trace, because all are open at once.
const MOST_FILES: usize = 1024;

/// Returns the files named by a path: a file, all files of a folder, or several files joined by `+`.
///
/// # Errors
/// `Io` if a folder cannot be read, `Options` if the folder has no files, or if there are too many files.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let name = path.display();
    let unreadable = |error| Error::io(path.display().to_string(), error);
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?;
            let is_hidden = file.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && file.path().is_file() {
                files.push(file.path());
            }
        }
        files.sort();
    } else {
        match path.to_str().filter(|text| text.contains('+') && !path.exists()) {
            Some(text) => files.extend(text.split('+').map(PathBuf::from)),
            None => files.push(path.to_owned()),
        }
    }
    match files.len() {
        0 => Err(Error::Options(format!("{name} has no files: name a trace, or a folder of its parts"))),
        1..=MOST_FILES => Ok(files),
        count => Err(Error::Options(format!("{name} has {count} files: a trace has {MOST_FILES} at most"))),
    }
}
