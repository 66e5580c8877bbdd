//! Another user for the daemon (`--user`): root opens the devices, and the daemon goes on as the user,
//! without any capability.
//!
//! ```text
//! root      gives the volume's state directory to the user
//! the user  binds the sockets              (the effective user; the process may still become root)
//! root      opens the devices
//! the user  for good: recovery, guests, notes, the pending log
//! ```

use crate::device::ublk::waiting;
use crate::state::lasting::Lasting;
use crate::state::state_dir::{StateDir, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, initgroups, seteuid, setgid, setresuid};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// The user that a daemon becomes.
pub(super) struct DaemonUser {
    name: String,
    user: Uid,
    group: Gid,
}

impl DaemonUser {
    /// Finds a user of this machine.
    ///
    /// # Errors
    /// `Usage` if there is no such user, if the user is root, or if this process is not root.
    pub fn find(name: &str) -> Result<DaemonUser> {
        let usage = |problem: String| Err(Error::new(ErrorKind::Usage, problem));
        if !Uid::effective().is_root() {
            return usage(format!("--user {name}: only root can become another user: omit --user"));
        }
        let found = User::from_name(name).map_err(|error| failed("looking the user up", error))?;
        match found {
            Some(found) if found.uid.is_root() => {
                usage("--user root changes nothing: omit --user".to_owned())
            }
            Some(found) => Ok(DaemonUser { name: found.name, user: found.uid, group: found.gid }),
            None => usage(format!("--user {name}: there is no such user: useradd --system {name}")),
        }
    }

    /// Gives the volume's state directory to the user, and becomes the user until
    /// [`DaemonUser::resume_root`]. The caller holds the volume's lock.
    ///
    /// # Errors
    /// `Busy` if a daemon of root has left something that only root can take over; `Invalid` if the user
    /// cannot reach the state directory.
    pub fn enter(&self, state: &StateDir, record: &VolumeRecord) -> Result<()> {
        self.refuse_left(state, record)?;
        let directory = state.volume_dir(&record.name);
        self.own(&directory).map_err(|error| {
            Error::io(format_args!("giving {} to {}", directory.display(), self.name), &error)
        })?;
        let root = state.root();
        let mode =
            fs::metadata(root).map_err(|error| Error::io(root.display(), &error))?.permissions().mode();
        if mode & 0o001 == 0 {
            // Names of volumes stay hidden, and each volume's directory is its owner's alone.
            let opened = fs::set_permissions(root, Permissions::from_mode(mode | 0o001));
            opened.map_err(|error| Error::io(root.display(), &error))?;
            tracing::info!("{}: other users may pass, as user {} has to", root.display(), self.name);
        }
        let name = CString::new(self.name.as_str()).map_err(|error| Error::io("the user", &error.into()))?;
        initgroups(&name, self.group).map_err(|error| self.not_become(error))?;
        setgid(self.group).map_err(|error| self.not_become(error))?;
        seteuid(self.user).map_err(|error| self.not_become(error))?;
        fs::read_dir(&directory).map_err(|error| {
            let (name, directory) = (&self.name, directory.display());
            let problem = format!(
                "user {name} cannot reach {directory}: {error}: let other users pass all directories above \
                 it (chmod o+x), or set BRAID_STATE_DIR"
            );
            Error::new(ErrorKind::Invalid, problem)
        })?;
        Ok(())
    }

    /// Becomes root again, to open devices.
    pub fn resume_root(&self) -> Result<()> {
        seteuid(Uid::from_raw(0)).map_err(|error| failed("becoming root to open the devices", error))
    }

    /// Becomes the user for good, with all threads.
    pub fn settle(&self) -> Result<()> {
        setresuid(self.user, self.user, self.user).map_err(|error| self.not_become(error))
    }

    fn not_become(&self, error: Errno) -> Error {
        let remedy = "in a unit of systemd, use User= instead of --user";
        failed(&format!("becoming user {} ({remedy})", self.name), error)
    }

    /// Makes the user the owner of a volume's directory and of its files. What lies in `mount/` is no file of
    /// the state directory.
    fn own(&self, directory: &Path) -> io::Result<()> {
        let give = |path: &Path| lchown(path, Some(self.user.as_raw()), Some(self.group.as_raw()));
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let is_file = !entry.file_type()?.is_dir();
            // A hard link to a file elsewhere must not be given away.
            if is_file && entry.metadata()?.nlink() == 1 {
                give(&entry.path())?;
            }
        }
        give(directory)
    }

    /// Refuses if a daemon of root died and left data in memory, or a block device.
    fn refuse_left(&self, state: &StateDir, record: &VolumeRecord) -> Result<()> {
        let name = &record.name;
        let once =
            format!("braid serve {name} without --user, then braid detach {name} and braid stop {name}");
        if let Some(device) = waiting(&record.uuid).first() {
            let problem = format!("{} waits for a daemon of root: {once}", device.path().display());
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        let Some(log) = Lasting::left(state, record) else { return Ok(()) };
        let problem = format!("a daemon of root died, and {} has unflushed data: {once}", log.display());
        Err(Error::new(ErrorKind::Busy, problem))
    }
}

fn failed(attempt: &str, error: Errno) -> Error {
    Error::io(attempt, &io::Error::from(error))
}
