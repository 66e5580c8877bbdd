//! Whether files that stand for devices may grow: a sparse file may be larger than its file system, and
//! guests get "no space" the day that it is full.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// By how much these files together may outgrow what their file systems have free. Zero for block devices,
/// for what cannot be looked at, and if a file system does not answer within a second: its server may hang.
pub(crate) fn over_committed_bytes<'a>(paths: impl Iterator<Item = &'a Path>) -> u64 {
    let paths: Vec<PathBuf> = paths.map(Path::to_owned).collect();
    let (answer, answered) = mpsc::channel();
    // Nobody waits for a thread that hangs in the kernel: it ends with the process.
    thread::spawn(move || answer.send(lacking_bytes(&paths)));
    answered.recv_timeout(LONGEST_LOOK).unwrap_or(0)
}

fn lacking_bytes(paths: &[PathBuf]) -> u64 {
    let mut wanted: BTreeMap<u64, (&PathBuf, u64)> = BTreeMap::new();
    for path in paths {
        let Ok(found) = fs::metadata(path) else { continue };
        if found.is_file() {
            let growth = found.len().saturating_sub(found.blocks().saturating_mul(BLOCK));
            let (_, sum) = wanted.entry(found.dev()).or_insert((path, 0));
            *sum = sum.saturating_add(growth);
        }
    }
    let lacks = |(path, growth): (&PathBuf, u64)| {
        let free = rustix::fs::statvfs(path.as_path())
            .map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
        growth.saturating_sub(free)
    };
    wanted.into_values().map(lacks).fold(0, u64::saturating_add)
}

/// How long file systems are waited for.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// The unit in which files tell what they take, whatever the file system's is.
const BLOCK: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_file_larger_than_its_file_system_is_over_committed() {
        let dir = tempfile::tempdir().unwrap();
        let [small, large] = ["small", "large"].map(|name| dir.path().join(name));
        fs::write(&small, vec![7; 4096]).unwrap();
        let free = rustix::fs::statvfs(dir.path()).unwrap();
        let free = free.f_bavail * free.f_frsize;
        assert_eq!(over_committed_bytes([small.as_path()].into_iter()), 0);
        // Others use the file system meanwhile.
        let more = 1 << 40;
        fs::File::create(&large).unwrap().set_len(free + more).unwrap();
        let lacks = over_committed_bytes([small.as_path(), &large, Path::new("/dev/null")].into_iter());
        assert!(lacks > more / 2 && lacks < more * 2, "{lacks}");
    }
}
