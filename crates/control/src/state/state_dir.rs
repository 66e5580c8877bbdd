//! The state directory of this machine: volume names, device paths, notes and sockets.
//!
//! ```text
//! $BRAID_STATE_DIR/NAME/volume.json   the record: paths of the devices
//!                       lock          held by the one process that works on the volume; holds its number
//!                       noted.json    which opening was the last one, what it had promised at least, and
//!                                     where the pending log is
//!                       admin.sock    the admin socket of its daemon
//!                       nbd.sock      its NBD export, unless told otherwise
//!                       mount/        the file that `attach` makes a block device of
//!                       record        a device of a volume on an adopted disk: what must survive the loss of
//!                                     the SSD (record.new while the volume is made)
//! ```
//!
//! Only the owner may enter. Except for an adopted disk's record, no file here is needed to restore the data:
//! the devices together describe the volume, and `braid import` writes `volume.json` again. Only the text of
//! a model from a file must be given again. The record adds one fact that a device alone cannot tell: the
//! device is older than the other devices (`outdated`).

use crate::device::spec::{Storage, absolute};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceClass;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// The name of a volume: a directory here, a field of the superblock, an export of the daemon.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

/// Length of the name field in the superblock.
const LONGEST_NAME: usize = braid_format::superblock::LONGEST_NAME;

impl VolumeName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VolumeName {
    type Err = Error;
    fn from_str(text: &str) -> Result<VolumeName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if starts_well && text.len() <= LONGEST_NAME && text.chars().all(allowed) {
            return Ok(VolumeName(text.to_owned()));
        }
        let problem = format!(
            "invalid volume name '{text}': use 1 to {LONGEST_NAME} letters, digits, '-', '_' or '.', the first a \
             letter or digit"
        );
        Err(Error::new(ErrorKind::Usage, problem))
    }
}

impl TryFrom<String> for VolumeName {
    type Error = Error;
    fn try_from(text: String) -> Result<VolumeName> {
        text.parse()
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> String {
        name.0
    }
}

/// Record of a volume on this machine. All fields except the paths and the texts of models are copies of the
/// devices' metadata, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Version of this file's format.
    pub version: u32,
    /// The name here.
    pub name: VolumeName,
    /// The identity in the superblock.
    pub uuid: String,
    /// Made by `serve --temporary`: removed when the daemon ends.
    pub temporary: bool,
    /// The devices, by their place in the volume.
    pub devices: Vec<DeviceRecord>,
    /// Texts of models from files, by name: the devices do not hold the texts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, String>,
}

/// A device in a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Path of the device; none for memory.
    pub path: Option<PathBuf>,
    /// `ssd` or `hdd`.
    pub class: String,
    /// Emulated model.
    pub model: Option<String>,
    /// Size of the device.
    pub size_bytes: u64,
    /// True if the device's file was made with the volume. The file of a temporary volume is removed with it.
    pub made: bool,
    /// True if the place has no device any more. Other devices keep their places.
    #[serde(default)]
    pub removed: bool,
    /// True if the device is an adopted disk: it had data before, and equals the volume byte for byte.
    #[serde(default)]
    pub adopted: bool,
    /// True if the device was out of use, or in a resync, when other devices of a volume with two copies of
    /// everything were used last.
    #[serde(default)]
    pub outdated: bool,
    /// True if no path is known: the device was missing when the volume was imported.
    #[serde(default)]
    pub missing: bool,
}

/// Version of records that this program writes and reads.
pub(crate) const RECORD_VERSION: u32 = 1;

impl DeviceRecord {
    pub(crate) fn new(
        storage: &Storage,
        class: DeviceClass,
        model: Option<&str>,
        size_bytes: u64,
    ) -> DeviceRecord {
        let path = match storage {
            Storage::Path(path) => Some(path.clone()),
            Storage::Memory => None,
        };
        DeviceRecord {
            path,
            class: class.to_string(),
            model: model.map(str::to_owned),
            size_bytes,
            made: false,
            removed: false,
            adopted: false,
            outdated: false,
            missing: false,
        }
    }

    /// Makes the record of a device without a known path.
    pub(crate) fn missing(class: DeviceClass, model: Option<&str>, size_bytes: u64) -> DeviceRecord {
        DeviceRecord { missing: true, ..DeviceRecord::new(&Storage::Memory, class, model, size_bytes) }
    }

    /// Makes the record of a place without a device.
    pub(crate) fn removed() -> DeviceRecord {
        DeviceRecord { removed: true, ..DeviceRecord::new(&Storage::Memory, DeviceClass::Hdd, None, 0) }
    }

    /// Returns the name for messages and status.
    pub fn name(&self) -> String {
        if self.removed {
            return "removed".to_owned();
        }
        if self.missing {
            return "missing".to_owned();
        }
        self.path.as_ref().map_or_else(|| Storage::Memory.name(), |path| path.display().to_string())
    }
}

impl VolumeRecord {
    /// True if the volume was memory only, and ended with its daemon.
    pub(crate) fn went_with_its_daemon(&self) -> bool {
        self.temporary && self.devices.iter().all(|device| device.path.is_none())
    }

    /// Returns the disk that the volume adopted, with its place.
    pub fn adopted(&self) -> Option<(usize, &DeviceRecord)> {
        self.devices.iter().enumerate().find(|(_, device)| device.adopted)
    }

    /// Sets or removes the device of a place. Unknown places before it become places without a device.
    pub(crate) fn set_device(&mut self, place: usize, device: DeviceRecord) {
        while self.devices.len() <= place {
            self.devices.push(DeviceRecord::removed());
        }
        self.devices[place] = device;
    }

    /// Sets the present paths of devices, by place.
    pub(crate) fn set_places(&mut self, places: &[(usize, DeviceRecord)]) {
        for (place, device) in places {
            match self.devices.get_mut(*place).filter(|noted| !noted.removed) {
                Some(noted) => (noted.path, noted.missing) = (device.path.clone(), device.missing),
                None => self.set_device(*place, device.clone()),
            }
        }
    }

    /// Returns the paths of the devices with their places, without devices whose path is not known.
    ///
    /// # Errors
    /// `Invalid` if a device was memory: its content ended with the daemon.
    pub fn paths(&self) -> Result<Vec<(usize, PathBuf)>> {
        let path = |(place, device): (usize, &DeviceRecord)| {
            device.path.clone().map(|path| (place, path)).ok_or_else(|| {
                let name = &self.name;
                let problem = format!(
                    "volume '{name}' was in the memory of a daemon that has ended: braid forget {name}"
                );
                Error::new(ErrorKind::Invalid, problem)
            })
        };
        let is_there = |(_, device): &(usize, &DeviceRecord)| !device.removed && !device.missing;
        self.devices.iter().enumerate().filter(is_there).map(path).collect()
    }
}

/// The state directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
    /// Held while a record is changed: several threads of a daemon change records.
    changing: Arc<Mutex<()>>,
}

impl StateDir {
    /// Returns `BRAID_STATE_DIR`; else `/var/lib/braid` for root, and the user's state directory for other
    /// users.
    pub fn from_environment() -> Result<StateDir> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = if let Some(root) = set("BRAID_STATE_DIR") {
            root
        } else if rustix::process::geteuid().is_root() {
            PathBuf::from("/var/lib/braid")
        } else if let Some(state) = set("XDG_STATE_HOME") {
            state.join("braid")
        } else if let Some(home) = set("HOME") {
            home.join(".local/state/braid")
        } else {
            let problem = "no home directory for the state: set BRAID_STATE_DIR";
            return Err(Error::new(ErrorKind::Usage, problem));
        };
        StateDir::new(&root)
    }

    /// Returns the state directory at a path. Touches nothing.
    pub fn new(root: &Path) -> Result<StateDir> {
        let root = absolute(root).map_err(|e| Error::new(e.kind(), format!("the state directory: {e}")))?;
        Ok(StateDir { root, changing: Arc::default() })
    }

    /// Returns the path of the state directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of a volume's files.
    pub fn volume_dir(&self, name: &VolumeName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// Returns the path of the daemon's admin socket.
    pub fn admin_socket(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("admin.sock")
    }

    /// Returns the default path of the NBD export.
    pub fn nbd_socket(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("nbd.sock")
    }

    /// Returns the directory with the file for the attached block device.
    pub fn mount_dir(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("mount")
    }

    /// Returns the path of an adopted disk's record, which must survive the loss of the SSD.
    pub(crate) fn record_of_adopted(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("record")
    }

    /// Returns the path of [`StateDir::record_of_adopted`] while the volume is being made.
    pub(crate) fn unmade_record(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("record.new")
    }

    pub(crate) fn lock_file(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("lock")
    }

    /// Returns the path of this host's note about the volume.
    pub(crate) fn note_file(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("noted.json")
    }

    /// Writes the note atomically and durably.
    pub(crate) fn save_note(&self, name: &VolumeName, text: &str) -> Result<()> {
        let path = self.note_file(name);
        write_atomically(&path, text.as_bytes()).map_err(|e| self.failed("write", &path, &e))
    }

    fn record_file(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("volume.json")
    }

    /// Returns the names of all volumes with a record, sorted.
    pub fn names(&self) -> Result<Vec<VolumeName>> {
        let failed = |e| self.failed("read", &self.root, &e);
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_str().and_then(|name| name.parse().ok());
            names.extend(name.filter(|name| self.record_file(name).exists()));
        }
        names.sort();
        Ok(names)
    }

    /// Returns all names of a volume, by its UUID. Unreadable records are skipped.
    pub(crate) fn names_of(&self, uuid: &str) -> Result<Vec<VolumeName>> {
        let mut names = self.names()?;
        names.retain(|name| self.load(name).is_ok_and(|record| record.uuid == uuid));
        Ok(names)
    }

    /// True if a volume has a record.
    pub fn knows(&self, name: &VolumeName) -> bool {
        self.record_file(name).exists()
    }

    /// Reads a volume's record.
    ///
    /// # Errors
    /// `Invalid` if there is no record: names the existing volumes. `Unsupported` for another version of
    /// records.
    pub fn load(&self, name: &VolumeName) -> Result<VolumeRecord> {
        let path = self.record_file(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.unknown(name)),
            text => text.map_err(|e| self.failed("read", &path, &e))?,
        };
        let shown = path.display();
        let record: VolumeRecord = serde_json::from_str(&text).map_err(|error| {
            let problem = format!(
                "{shown} is not a valid record of a volume ({error}): remove it, and braid import its devices"
            );
            Error::new(ErrorKind::Invalid, problem)
        })?;
        if record.version != RECORD_VERSION {
            let problem = format!(
                "{shown} has version {}, and this program reads version {RECORD_VERSION}: use a newer program",
                record.version
            );
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        Ok(record)
    }

    /// Writes a volume's record atomically and durably.
    pub fn save(&self, record: &VolumeRecord) -> Result<()> {
        let path = self.record_file(&record.name);
        let text = serde_json::to_string_pretty(record).map_err(|error| {
            let problem = format!("the record of volume '{}' cannot be written: {error}", record.name);
            Error::new(ErrorKind::Invalid, problem)
        })?;
        self.make_dir(&self.volume_dir(&record.name))?;
        write_atomically(&path, text.as_bytes()).map_err(|e| self.failed("write", &path, &e))
    }

    /// Changes the current record of a volume, and returns the result. Writes nothing if the record is
    /// unchanged. The caller holds the volume's lock.
    pub(crate) fn change(
        &self,
        name: &VolumeName,
        change: impl FnOnce(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        // A thread that panicked under the lock left a complete file: ignore the poison.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.load(name)?;
        let mut record = known.clone();
        change(&mut record)?;
        if record != known {
            self.save(&record)?;
        }
        Ok(record)
    }

    /// Forgets a volume: removes its record and sockets, not its devices. The caller holds the volume's lock.
    pub(crate) fn remove(&self, name: &VolumeName) -> Result<()> {
        let dir = self.volume_dir(name);
        // Remove the record first: the remains after a crash are then no volume.
        for path in [
            self.record_file(name),
            self.note_file(name),
            self.admin_socket(name),
            self.nbd_socket(name),
            self.lock_file(name),
        ] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.failed("remove", &path, &error));
                }
                _ => {}
            }
        }
        // If any other file is there, the directory stays: that file is not ours.
        let _ = std::fs::remove_dir(self.mount_dir(name));
        let _ = std::fs::remove_dir(dir);
        Ok(())
    }

    /// Removes the remains of a failed creation. The caller holds the volume's lock.
    pub(crate) fn remove_unmade(&self, name: &VolumeName) -> Result<()> {
        let unmade = self.unmade_record(name);
        match std::fs::remove_file(&unmade) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.failed("remove", &unmade, &error));
            }
            _ => {}
        }
        self.remove(name)
    }

    /// Makes a directory and its missing parents, for the owner alone.
    pub(crate) fn make_dir(&self, path: &Path) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| self.failed("make", path, &e))
    }

    fn unknown(&self, name: &VolumeName) -> Error {
        let known: Vec<String> = self.names().unwrap_or_default().iter().map(VolumeName::to_string).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let problem = format!(
            "there is no volume '{name}' in {}: the volumes there are: {known}; braid create makes a volume, braid import finds one on its devices",
            self.root.display()
        );
        Error::new(ErrorKind::Invalid, problem)
    }

    pub(crate) fn failed(&self, tried: &str, path: &Path, error: &io::Error) -> Error {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ": run as its owner (a daemon with --user cannot see the other volumes: serve without \
                 --user), or set BRAID_STATE_DIR to a directory of your own"
            }
            _ => "",
        };
        Error::new(ErrorKind::Io, format!("cannot {tried} {}: {error}{remedy}", path.display()))
    }
}

/// Replaces a file atomically: after a power cut, either the old or the new file exists.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // Make the file anew: a file or link of another user is neither followed nor written to.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let dir = path.parent().expect("a file lies in a directory");
    File::open(dir)?.sync_all()?;
    // The directory itself may be new: sync its parent, too. A user who may not read the parent did not make
    // the directory: root did, and synced it.
    match dir.parent().map(File::open) {
        Some(Err(error)) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Some(Ok(above)) => above.sync_all(),
        Some(Err(_)) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
