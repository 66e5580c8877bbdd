//! A memory control group for the workload: the paper's machine had 1 GiB, and more page cache would hide the
//! devices. The daemon stays outside the group: its page cache holds the files of the emulated devices.

use braid_base::Bytes;
use std::fs;
use std::path::{Path, PathBuf};

/// A control group with a memory limit; [`remove`] removes the group.
#[derive(Debug)]
pub struct MemoryGroup {
    /// Directory of the group.
    pub directory: PathBuf,
}

impl MemoryGroup {
    /// Creates a control group with a memory limit, in the hierarchy with the memory controller (version 1
    /// or 2).
    ///
    /// # Errors
    /// A sentence with the reason.
    pub fn make(name: &str, limit: Bytes) -> Result<MemoryGroup, String> {
        let mounts =
            fs::read_to_string("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
        let mut refused = "no control groups with a memory controller are mounted".to_owned();
        for (parent, limit_file) in candidates(&mounts) {
            match make_in(&parent, name, limit_file, limit) {
                Ok(group) => return Ok(group),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// File `cgroup.procs`: a process moves into the group when its number is written to the file.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

/// Removes a control group. The group must not contain processes.
pub fn remove(directory: &Path) -> std::io::Result<()> {
    fs::remove_dir(directory)
}

/// Possible parent directories of a group, each with the name of its limit file.
fn candidates(mounts: &str) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    for mount in mounts.lines() {
        let words: Vec<&str> = mount.split(' ').collect();
        let [_, point, kind, options, ..] = words[..] else { continue };
        match kind {
            "cgroup2" => found.push((PathBuf::from(point), "memory.max")),
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                found.push((PathBuf::from(point), "memory.limit_in_bytes"));
            }
            _ => {}
        }
    }
    found
}

fn make_in(parent: &Path, name: &str, limit_file: &str, limit: Bytes) -> Result<MemoryGroup, String> {
    let directory = parent.join(name);
    fs::create_dir(&directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
    let file = directory.join(limit_file);
    if let Err(error) = fs::write(&file, limit.0.to_string()) {
        let _removed = fs::remove_dir(&directory);
        // Without the memory controller the file is absent.
        return Err(format!("cannot limit memory by {}: {error}", file.display()));
    }
    Ok(MemoryGroup { directory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let mounts = "\
proc /proc proc rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,nosuid,cpu 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0
";
        let found = candidates(mounts);
        assert_eq!(found[0], (PathBuf::from("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"));
        assert_eq!(found[1], (PathBuf::from("/sys/fs/cgroup/unified"), "memory.max"));
        assert!(candidates("").is_empty());
    }
}
