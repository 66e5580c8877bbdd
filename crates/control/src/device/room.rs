//! Room for files used as devices. A sparse file may be larger than the free space of its file system: guests
//! then get "no space" when the file system is full.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Returns the bytes by which these files together may outgrow the free space of their file systems. Zero for
/// block devices, for unreadable paths, and if a file system does not answer within a second: its server may
/// hang.
pub(crate) fn over_committed_bytes<'a>(paths: impl Iterator<Item = &'a Path>) -> u64 {
    let paths: Vec<PathBuf> = paths.map(Path::to_owned).collect();
    let (answer, answered) = mpsc::channel();
    if LOOKING.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKING {
        LOOKING.fetch_sub(1, Ordering::Relaxed);
        return 0;
    }
    // A thread that hangs in the kernel ends with the process; nothing waits for the thread.
    thread::spawn(move || {
        // The reader may have gone.
        let _ = answer.send(lacking_bytes(&paths));
        LOOKING.fetch_sub(1, Ordering::Relaxed);
    });
    answered.recv_timeout(LONGEST_LOOK).unwrap_or(0)
}

/// Threads that look now. A process that asks for reports for months must not collect hanging threads.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
/// Most threads that look at the same time, as many as volumes in a dashboard.
const MOST_LOOKING: usize = 256;

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

/// Time limit for file systems to answer.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// Unit of `st_blocks`, whatever the block size of the file system is.
const BLOCK: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_file_above_file_system_size_is_overcommitted() {
        let dir = tempfile::tempdir().unwrap();
        let [small, large] = ["small", "large"].map(|name| dir.path().join(name));
        fs::write(&small, vec![7; 4096]).unwrap();
        let free = rustix::fs::statvfs(dir.path()).unwrap();
        let free = free.f_bavail * free.f_frsize;
        assert_eq!(over_committed_bytes([small.as_path()].into_iter()), 0);
        // Other users of the file system write meanwhile.
        let more = 1 << 40;
        fs::File::create(&large).unwrap().set_len(free + more).unwrap();
        let lacks = over_committed_bytes([small.as_path(), &large, Path::new("/dev/null")].into_iter());
        assert!(lacks > more / 2 && lacks < more * 2, "{lacks}");
    }
}
