//! A memory control group for the workload: the paper's machine had 1 GiB, and page cache beyond that would
//! hide the devices. The daemon stays outside: its page cache holds the files that stand for the devices.

use braid_base::Bytes;
use std::fs;
use std::path::{Path, PathBuf};

/// A control group with a limit, to be removed by [`remove`].
#[derive(Debug)]
pub struct MemoryGroup {
    /// Its directory.
    pub directory: PathBuf,
}

impl MemoryGroup {
    /// Makes one with this limit, in version 2 of control groups or in version 1, whichever has the memory
    /// controller.
    ///
    /// # Errors
    /// A sentence that says why there is none.
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

    /// Writing a process's number here moves it into the group.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

/// Removes a control group, which must be empty of processes.
pub fn remove(directory: &Path) -> std::io::Result<()> {
    fs::remove_dir(directory)
}

/// Where a group may be made, and what its limit is called there.
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
        // Without the controller the file is not there.
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
