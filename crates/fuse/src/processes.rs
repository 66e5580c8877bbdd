//! Programmes that use a block device, as `/proc` shows them: programmes with the device open, or with an
//! open file on a file system mounted from the device.

use crate::mounts::mounts;
use braid_engine::Result;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A running programme.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process number.
    pub id: u32,
    /// Name of the programme.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.id, self.name)
    }
}

/// Programmes that use a block device or its mounted file system, as far as this process may see. The calling
/// process is left out.
///
/// # Errors
/// If the kernel does not show its mounts.
pub fn processes(device: &Path) -> Result<Vec<Process>> {
    let own = number_of(device);
    let mounted: Vec<_> = mounts()?.into_iter().filter(|mount| mount.source == device).collect();
    let is_used = |link: &Path| {
        let Some((lies_on, is)) = numbers(link) else { return false };
        let is_there = |point: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(point));
        Some(is) == own.filter(|own| *own != (0, 0))
            || mounted.iter().any(|mount| mount.device == lies_on || is_there(&mount.point))
    };
    Ok(those(|id| links(id).iter().any(|link| is_used(link))))
}

/// Programmes that have a file open, as far as this process may see. The calling process is left out. Asks no
/// server of a file system.
pub fn openers(file: &Path) -> Vec<Process> {
    those(|id| links(id).iter().any(|link| fs::read_link(link).is_ok_and(|target| target == file)))
}

fn those(is_meant: impl Fn(u32) -> bool) -> Vec<Process> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let meant = ids.filter(|&id| id != std::process::id() && is_meant(id));
    meant.map(|id| Process { id, name: name_of(id) }).collect()
}

/// Links from a process to files: open files, working directory, root, and programme.
fn links(id: u32) -> Vec<PathBuf> {
    let process = PathBuf::from(format!("/proc/{id}"));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    open.chain(["cwd", "root", "exe"].map(|name| process.join(name))).collect()
}

fn name_of(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()
}

/// Device numbers: of the file system of a file, and of the device if the file is a device. Asks no server of
/// a file system.
fn numbers(link: &Path) -> Option<((u32, u32), (u32, u32))> {
    let found = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some(((found.stx_dev_major, found.stx_dev_minor), (found.stx_rdev_major, found.stx_rdev_minor)))
}

fn number_of(device: &Path) -> Option<(u32, u32)> {
    numbers(device).map(|(_, is)| is)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn process_with_an_open_device_is_named() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(fs::File::open("/dev/zero").map_or(Stdio::null(), Stdio::from))
            .spawn()
            .unwrap();
        let found = processes(Path::new("/dev/zero")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&Process { id: child.id(), name: "sleep".to_owned() }), "{found:?}");
    }
}
