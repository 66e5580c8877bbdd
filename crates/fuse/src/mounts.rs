//! Uses of a block device, as `/proc` and `/sys` show them: mounts in every mount namespace that this process
//! may see, swap, and devices stacked upon the device. A use hidden from `/proc` and `/sys` is found by
//! asking the kernel for exclusive access to the device.

use braid_engine::{Error, Result};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File system type of a served volume's mount: FUSE, and its kind.
pub(crate) const MOUNT_KIND: &str = "fuse.braid";

/// A line of `/proc/self/mountinfo`.
pub(crate) struct Mount {
    /// Device number, as in `stat`.
    pub device: (u32, u32),
    pub point: PathBuf,
    pub kind: String,
    pub source: PathBuf,
}

/// A use of a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Use {
    /// The device or a partition is mounted at the path.
    Mounted(PathBuf),
    /// The device or a partition is mounted at the path in the mount namespace of a process: a container.
    MountedElsewhere(PathBuf, u32),
    /// The device or a partition is swap space.
    Swap,
    /// The named device lies on this device: device mapper, md, a loop device.
    Holder(String),
    /// A part of the kernel holds the device exclusively; `/proc` and `/sys` do not show the holder.
    Claimed,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Mounted(point) => write!(f, "mounted on {}", point.display()),
            Use::MountedElsewhere(point, process) => {
                write!(f, "mounted on {} in the mount namespace of process {process}", point.display())
            }
            Use::Swap => write!(f, "in use as swap"),
            Use::Holder(name) => write!(f, "in use by {name}"),
            Use::Claimed => write!(f, "in use by the kernel, perhaps mounted in another mount namespace"),
        }
    }
}

/// All mounts in the mount namespace of this process.
pub(crate) fn mounts() -> Result<Vec<Mount>> {
    mounts_of("self")
}

/// All mounts in the mount namespace of a process, by its name in `/proc`.
pub(crate) fn mounts_of(process: &str) -> Result<Vec<Mount>> {
    Ok(read(&format!("/proc/{process}/mountinfo"))?.lines().filter_map(parse).collect())
}

/// True if a process is in another mount namespace than this process; false if unknown.
pub(crate) fn has_other_mounts(process: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    namespace(&process.to_string()).is_some_and(|other| Some(other) != namespace("self"))
}

/// All uses of a block device and of its partitions.
pub fn uses(device: &Path) -> Result<Vec<Use>> {
    let is_it = |source: &Path| source == device || is_partition(device, source);
    let mut uses: Vec<Use> = mounts()?
        .into_iter()
        .filter(|mount| is_it(&mount.source))
        .map(|mount| Use::Mounted(mount.point))
        .collect();
    let number = fs::metadata(device).map(|known| known.rdev()).unwrap_or_default();
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    // The device may have another name in the namespace. A namespace may have a copy of a mount that is
    // already listed.
    let elsewhere = mounts_elsewhere(|mount| is_it(&mount.source) || mount.device == number);
    let is_named = |point: &PathBuf| uses.contains(&Use::Mounted(point.clone()));
    let elsewhere: Vec<Use> = elsewhere
        .into_iter()
        .filter(|(point, _)| !is_named(point))
        .map(|(point, process)| Use::MountedElsewhere(point, process))
        .collect();
    uses.extend(elsewhere);
    let swaps = read("/proc/swaps")?;
    let swap =
        swaps.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| is_it(Path::new(name)));
    uses.extend(swap.map(|_| Use::Swap));
    let name = device.file_name().unwrap_or_default();
    let blocks = Path::new("/sys/class/block");
    let holders = fs::read_dir(blocks.join(name).join("holders")).into_iter().flatten().flatten();
    uses.extend(holders.map(|entry| Use::Holder(entry.file_name().to_string_lossy().into_owned())));
    uses.extend(loops_over(is_it).into_iter().map(|device| Use::Holder(device.display().to_string())));
    if uses.is_empty() && is_claimed(device) {
        uses.push(Use::Claimed);
    }
    Ok(uses)
}

/// Mounts in other mount namespaces, each with a process of the namespace. A process that ends meanwhile, or
/// belongs to another user, is skipped.
fn mounts_elsewhere(is_it: impl Fn(&Mount) -> bool) -> Vec<(PathBuf, u32)> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen = BTreeSet::from([namespace("self")]);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(process) = name.parse::<u32>() else { continue };
        if !seen.insert(namespace(&name)) {
            continue;
        }
        let text = read(&format!("/proc/{process}/mountinfo")).unwrap_or_default();
        let mounts = text.lines().filter_map(parse).filter(&is_it);
        found.extend(mounts.map(|mount| (mount.point, process)));
    }
    found
}

/// Loop devices over a file.
pub fn loop_devices(file: &Path) -> Vec<PathBuf> {
    loops_over(|over| over == file)
}

fn loops_over(is_it: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let blocks = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let file = |block: &Path| fs::read_to_string(block.join("loop/backing_file")).unwrap_or_default();
    let over = blocks.filter(|block| is_it(Path::new(file(&block.path()).trim_end())));
    over.map(|block| Path::new("/dev").join(block.file_name())).collect()
}

/// True if a file system or another part of the kernel holds the device exclusively.
fn is_claimed(device: &Path) -> bool {
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(exclusive).open(device);
    opened.is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()))
}

/// Lists uses, as the end of a sentence.
pub(crate) fn list(uses: &[Use]) -> String {
    uses.iter().map(Use::to_string).collect::<Vec<_>>().join(", ")
}

/// `/dev/loop3p1` is a partition of `/dev/loop3`, and `/dev/loop31` is none.
fn is_partition(device: &Path, other: &Path) -> bool {
    let (device, other) = (device.as_os_str().as_encoded_bytes(), other.as_os_str().as_encoded_bytes());
    let number = other.strip_prefix(device).and_then(|rest| rest.strip_prefix(b"p"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

fn read(path: &str) -> Result<String> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `36 35 98:0 /root /mount/point options… optional… - kind source options`.
fn parse(line: &str) -> Option<Mount> {
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(2);
    let (major, minor) = place.next()?.split_once(':')?;
    let point = unescape(place.nth(1)?);
    let mut what = what.split(' ');
    let kind = what.next()?.to_owned();
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mount { device, point, kind, source: unescape(what.next()?) })
}

/// Blanks and backslashes appear in the line as `\040`: a backslash and three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(code) => (bytes.push(code), rest = &after[3..]).1,
            None => (bytes.push(*first), rest = after).1,
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_with_spaces_is_parsed() {
        let line = r"36 35 7:12 / /mnt/my\040disk rw,noatime shared:1 master:2 - ext4 /dev/loop12 rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, (7, 12));
        assert_eq!(mount.point, Path::new("/mnt/my disk"));
        assert_eq!((mount.kind.as_str(), mount.source.as_path()), ("ext4", Path::new("/dev/loop12")));
    }

    #[test]
    fn a_mount_without_optional_fields_is_read_too() {
        assert_eq!(parse("1 0 0:40 / / rw - fuse.braid vol rw").unwrap().kind, MOUNT_KIND);
    }

    #[test]
    fn partitions_are_distinguished_from_devices_with_longer_numbers() {
        let device = Path::new("/dev/loop3");
        assert!(is_partition(device, Path::new("/dev/loop3p1")));
        assert!(!is_partition(device, Path::new("/dev/loop31")));
        assert!(!is_partition(device, Path::new("/dev/loop3p")));
    }
}
