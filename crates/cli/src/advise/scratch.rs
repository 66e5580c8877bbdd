//! Temporary folder of a running command.

use braid_control::{Error, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A private folder of this process; removed on drop.
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Creates the folder with mode 0700: no other user can look into it.
    pub fn new() -> Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("braid-advise-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| {
            Error::io(format_args!("cannot make {} (TMPDIR sets another folder)", folder.display()), &error)
        })?;
        Ok(Scratch { folder })
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file in the folder.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        let written = std::fs::write(&path, text);
        written.map_err(|error| Error::io(format_args!("cannot write {}", path.display()), &error))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        tracing::warn!("{}: not removed: {error}", folder.display());
    }
}
