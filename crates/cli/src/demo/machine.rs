//! Abilities of this machine: a kernel block device with dbench, or else NBD with fio; and a directory for
//! the files.

use braid_base::{Bytes, GIB};
use braid_control::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How the workload reaches the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Over {
    /// dbench on ext4 on a kernel block device.
    Kernel,
    /// fio over NBD, without root.
    Nbd,
}

/// Returns `wanted`, or else the best way on this machine: the kernel before NBD. For a fallback to NBD, also
/// returns the missing requirement of a block device.
///
/// # Errors
/// If a requirement of `wanted` is missing; without `wanted`, if requirements of both ways are missing.
pub fn choose(wanted: Option<Over>) -> Result<(Over, Option<String>)> {
    let unsupported = |problem: String| Err(Error::new(ErrorKind::Unsupported, problem));
    let (for_kernel, for_nbd) = (missing_for_kernel(), missing_for_nbd());
    match (wanted, for_kernel, for_nbd) {
        (None | Some(Over::Kernel), None, _) => Ok((Over::Kernel, None)),
        (Some(Over::Nbd), _, None) => Ok((Over::Nbd, None)),
        (None, Some(missing), None) => Ok((Over::Nbd, Some(missing))),
        (Some(Over::Kernel), Some(missing), _) => {
            unsupported(format!("the demo on a block device needs {missing}"))
        }
        (Some(Over::Nbd), _, Some(missing)) => unsupported(format!("the demo over NBD needs {missing}")),
        (None, Some(one), Some(other)) => {
            unsupported(format!("the demo needs {one}; or, to run over NBD, {other}"))
        }
    }
}

/// Checks that this machine can create a block device with ext4 and has `programs`, pairs of a program and
/// its package.
///
/// # Errors
/// Names the first missing requirement and its remedy.
pub fn choose_kernel(programs: &[(&str, &str)]) -> Result<()> {
    let missing = missing_for_block_device().or_else(|| missing_program(programs));
    missing.map_or(Ok(()), |missing| {
        let problem = format!("the demo on a block device needs {missing}; braid demo policies needs none");
        Err(Error::new(ErrorKind::Unsupported, problem))
    })
}

fn missing_for_kernel() -> Option<String> {
    if let Some(missing) = missing_for_block_device().or_else(|| missing_program(&[("dbench", "dbench")])) {
        return Some(missing);
    }
    let load = super::dbench::LOAD;
    (!Path::new(load).exists()).then(|| format!("{load}, dbench's load file (apt-get install dbench)"))
}

/// First missing requirement of a block device with a file system.
fn missing_for_block_device() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root, to make and mount a block device".to_owned());
    }
    let devices = [("/dev/fuse", "modprobe fuse"), ("/dev/loop-control", "modprobe loop")];
    if let Some((path, remedy)) = devices.iter().find(|(path, _)| !Path::new(path).exists()) {
        return Some(format!("{path} ({remedy})"));
    }
    missing_program(&[("mkfs.ext4", "e2fsprogs"), ("mount", "mount"), ("umount", "mount")])
}

fn missing_program(programs: &[(&str, &str)]) -> Option<String> {
    let missing = programs.iter().find(|(program, _)| !is_there(program));
    missing.map(|(program, package)| format!("{program} (apt-get install {package})"))
}

fn missing_for_nbd() -> Option<String> {
    if !is_there("fio") {
        return Some("fio (apt-get install fio)".to_owned());
    }
    let engine = Command::new("fio").arg("--enghelp=nbd").stdin(Stdio::null()).output();
    let has_engine = engine.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("uri"));
    (!has_engine).then(|| "a fio with the nbd engine (as in Debian)".to_owned())
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Returns the parent for the demo's directory: on a disk, with room for `needed`.
///
/// # Errors
/// Names each unsuitable directory, with the reason.
pub fn choose_directory(wanted: Option<&Path>, needed: Bytes) -> Result<PathBuf> {
    let usual = ["/var/tmp".into(), std::env::temp_dir(), ".".into()];
    let candidates = wanted.map_or(usual.to_vec(), |wanted| vec![wanted.to_owned()]);
    let mut refused = Vec::new();
    for directory in candidates {
        match unfit(&directory, needed) {
            None => return std::path::absolute(&directory).map_err(|e| Error::io(directory.display(), &e)),
            Some(why) => refused.push(format!("{} {why}", directory.display())),
        }
    }
    let problem = format!("no room for the demo's files: {}: choose one by --dir", refused.join("; "));
    Err(Error::new(ErrorKind::NoSpace, problem))
}

fn unfit(directory: &Path, needed: Bytes) -> Option<String> {
    let found = match rustix::fs::statfs(directory) {
        Ok(found) => found,
        Err(error) => return Some(format!("cannot be used: {error}")),
    };
    // A file system in memory may be short of room, and is slow through io_uring.
    if matches!(found.f_type as u64, TMPFS | RAMFS) {
        return Some("is memory, not a disk".to_owned());
    }
    let free = Bytes(found.f_bavail as u64 * found.f_bsize as u64);
    (free < needed).then(|| format!("has {} MiB free, and {} MiB are needed", free.0 >> 20, needed.0 >> 20))
}

/// Largest size of the devices' files in a run. The files are sparse, and the workloads touch only a part.
pub fn room(size: Bytes) -> Bytes {
    size.min(GIB * 2)
}

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_full_disks_are_refused_with_the_reason() {
        let here = std::env::current_dir().unwrap();
        let error = choose_directory(Some(&here), Bytes(u64::MAX)).unwrap_err().to_string();
        assert!(error.contains("--dir"), "{error}");
        let error = choose_directory(Some(Path::new("/no/such")), Bytes(1)).unwrap_err().to_string();
        assert!(error.contains("/no/such"), "{error}");
        if Path::new("/dev/shm").exists() {
            let error = choose_directory(Some(Path::new("/dev/shm")), Bytes(1)).unwrap_err().to_string();
            assert!(error.contains("/dev/shm"), "{error}");
        }
    }
}
