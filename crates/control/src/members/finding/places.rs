//! Candidate paths for a device that is not at its recorded path: paths in other records, files beside
//! recorded files, and the block devices of this machine.

use crate::device::look::within;
use crate::device::remote::is_address;
use crate::state::state_dir::{StateDir, VolumeRecord};
use braid_format::layout::SMALLEST_DEVICE;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest number of directory entries examined. A directory with more entries holds other files than
/// devices.
const MOST_BESIDE: usize = 1_024;
/// Largest number of block devices examined.
const MOST_BLOCK_DEVICES: usize = 4_096;
/// Time limit for listing a directory.
const LISTING: Duration = Duration::from_secs(10);

/// Returns candidate paths for the devices of a record, the likeliest first. Each path occurs once. Recorded
/// paths of devices with a superblock are left out.
pub(super) fn elsewhere(state: &StateDir, record: &VolumeRecord) -> Vec<PathBuf> {
    let own: BTreeSet<&PathBuf> = record.devices.iter().filter_map(|device| device.path.as_ref()).collect();
    // The path of an adopted disk was not examined yet: another device of the volume may be there now.
    let looked_at = record.devices.iter().filter(|device| !device.adopted);
    let mut seen: BTreeSet<PathBuf> = looked_at.filter_map(|device| device.path.clone()).collect();
    let mut paths = vec![state.record_of_adopted(&record.name)];
    paths.extend(of_other_records(state, record));
    let folders: BTreeSet<PathBuf> = own.iter().filter_map(|path| folder_of_files(path)).collect();
    paths.extend(folders.into_iter().flat_map(beside));
    paths.extend(block_devices());
    // A connection to a remote device of another volume could disturb its server.
    paths.retain(|path| !is_address(path) && seen.insert(path.clone()));
    paths
}

/// Returns the recorded paths of all other volumes' devices.
fn of_other_records(state: &StateDir, record: &VolumeRecord) -> Vec<PathBuf> {
    let names = state.names().unwrap_or_default().into_iter().filter(|name| *name != record.name);
    let records = names.filter_map(|name| state.load(&name).ok());
    records.flat_map(|record| record.devices).filter_map(|device| device.path).collect()
}

/// Returns the directory of a file; `None` for a device file, whose directory holds block devices. In `/dev`,
/// only `/dev/shm` holds regular files.
fn folder_of_files(path: &Path) -> Option<PathBuf> {
    let holds_files =
        |folder: &&Path| !is_address(path) && !folder.starts_with("/dev") || folder.starts_with("/dev/shm");
    path.parent().filter(holds_files).map(Path::to_owned)
}

/// Returns the files and block devices in a directory that are large enough for a device.
fn beside(folder: PathBuf) -> Vec<PathBuf> {
    let shown = folder.clone();
    let listed = within(LISTING, move || {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.take(MOST_BESIDE + 1).map(|entry| entry.path()).collect();
        paths.sort();
        let is_cut = paths.len() > MOST_BESIDE;
        paths.retain(|path| fs::metadata(path).is_ok_and(|found| may_be_device(&found)));
        (paths, is_cut)
    });
    match listed {
        Some((paths, false)) => paths,
        Some((paths, true)) => {
            tracing::warn!(
                "{} holds more than {MOST_BESIDE} entries: the search skipped the rest",
                shown.display()
            );
            paths
        }
        None => {
            tracing::warn!("{} could not be listed within {} s", shown.display(), LISTING.as_secs());
            Vec::new()
        }
    }
}

fn may_be_device(found: &fs::Metadata) -> bool {
    found.file_type().is_block_device() || found.is_file() && found.len() >= SMALLEST_DEVICE.0
}

/// Returns all non-empty block devices that no other device lies over, each by its most stable name.
fn block_devices() -> Vec<PathBuf> {
    let listed = within(LISTING, || {
        let by_id = links("/dev/disk/by-id");
        let mapped = links("/dev/mapper");
        let shown = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        let mut names: Vec<(String, PathBuf)> = shown
            .take(MOST_BLOCK_DEVICES)
            .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
            .filter(|(_, shown)| is_filled(shown) && !is_held(shown))
            .collect();
        names.sort();
        let path = |(name, _): (String, PathBuf)| {
            // The kernel writes a slash in a name as an exclamation mark.
            let device = Path::new("/dev").join(name.replace('!', "/"));
            let steady = by_id.iter().chain(&mapped).find(|(_, leads_to)| *leads_to == device);
            steady.map_or(device.clone(), |(link, _)| link.clone())
        };
        names.into_iter().map(path).collect()
    });
    listed.unwrap_or_default()
}

/// Returns the links in a directory with their targets, sorted by name.
fn links(folder: &str) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut links: Vec<(PathBuf, PathBuf)> = entries
        .take(MOST_BLOCK_DEVICES)
        .filter_map(|entry| Some((entry.path(), fs::canonicalize(entry.path()).ok()?)))
        .collect();
    links.sort();
    links
}

fn is_filled(shown: &Path) -> bool {
    fs::read_to_string(shown.join("size")).is_ok_and(|size| size.trim() != "0")
}

/// True if another device, such as an array or a mapping, lies over this device: the upper device is then the
/// volume's device.
fn is_held(shown: &Path) -> bool {
    fs::read_dir(shown.join("holders")).is_ok_and(|mut holders| holders.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_beside_a_device_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let large = dir.path().join("large");
        fs::File::create(&large).unwrap().set_len(8 << 20).unwrap();
        fs::write(dir.path().join("small"), "x").unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        std::os::unix::fs::symlink(&large, dir.path().join("link")).unwrap();
        let found = beside(dir.path().to_owned());
        assert_eq!(found, [large, dir.path().join("link")]);
        assert_eq!(folder_of_files(Path::new("/dev/sda")), None);
        assert_eq!(folder_of_files(Path::new("/srv/a.img")), Some("/srv".into()));
        // Regression: a file in shared memory was not found under another name, since it was taken for a
        // block device.
        assert_eq!(folder_of_files(Path::new("/dev/shm/t/a.img")), Some("/dev/shm/t".into()));
    }
}
