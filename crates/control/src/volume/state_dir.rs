//! What this machine remembers: names of volumes, the paths of their devices, and where their sockets are.
//!
//! ```text
//! $BRAID_STATE_DIR/NAME/volume.json   the record: paths of the devices
//!                       lock          held by the one process that works on the volume; holds its number
//!                       noted.json    which opening was the last one, what it had promised at least, and where the pending log is
//!                       admin.sock    the admin socket of its daemon
//!                       nbd.sock      its NBD export, unless told otherwise
//!                       mount/        the file that `attach` makes a block device of
//!                       record        a device of a volume on an adopted disk: what must survive the loss of the SSD (record.new while
//!                                     the volume is made)
//! ```
//!
//! Only its owner may enter. But for an adopted disk's record, nothing here is needed to have the bytes back:
//! the devices together say all about a volume, and `braid import` writes `volume.json` anew. Only the text
//! of a model that came from a file is to be given again. What one device alone cannot say, the record does:
//! that it is older than the others (`outdated`).

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

/// The name of a volume: a directory here, a field of its superblock, an export of its daemon.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

/// What the superblock has room for.
const LONGEST_NAME: usize = braid_format::superblock::LONGEST_NAME;

impl VolumeName {
    /// The name as text.
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

/// What this machine remembers of a volume. All but the paths and the texts of models is a copy of what the
/// devices say, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Version of this file's format.
    pub version: u32,
    /// The name here.
    pub name: VolumeName,
    /// The identity in the superblock.
    pub uuid: String,
    /// Made by `serve --temporary`: goes when its daemon ends.
    pub temporary: bool,
    /// The devices, by their place in the volume.
    pub devices: Vec<DeviceRecord>,
    /// Texts of the models that came from files, by name: what the devices do not say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, String>,
}

/// A device in a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its path; none for memory.
    pub path: Option<PathBuf>,
    /// `ssd` or `hdd`.
    pub class: String,
    /// The model that it emulates.
    pub model: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// Whether its file was made with the volume, and goes with it where that is temporary.
    pub made: bool,
    /// Whether no device is in this place any more: the others keep theirs.
    #[serde(default)]
    pub removed: bool,
    /// Whether it was there before with data on it, and is the volume byte for byte.
    #[serde(default)]
    pub adopted: bool,
    /// Whether it was out of use, or being brought up to date, when others of a volume with two copies of
    /// everything were used last.
    #[serde(default)]
    pub outdated: bool,
    /// Whether no path is known: the device was not there when the volume was imported.
    #[serde(default)]
    pub missing: bool,
}

/// The version of records that this program writes and reads.
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

    /// A device whose path is not known.
    pub(crate) fn missing(class: DeviceClass, model: Option<&str>, size_bytes: u64) -> DeviceRecord {
        DeviceRecord { missing: true, ..DeviceRecord::new(&Storage::Memory, class, model, size_bytes) }
    }

    /// A place without a device.
    pub(crate) fn removed() -> DeviceRecord {
        DeviceRecord { removed: true, ..DeviceRecord::new(&Storage::Memory, DeviceClass::Hdd, None, 0) }
    }

    /// What to call it in messages and in status.
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
    /// Whether nothing is left of a volume once its daemon has ended: all of it was memory.
    pub(crate) fn went_with_its_daemon(&self) -> bool {
        self.temporary && self.devices.iter().all(|device| device.path.is_none())
    }

    /// The disk that the volume adopted, with its place.
    pub fn adopted(&self) -> Option<(usize, &DeviceRecord)> {
        self.devices.iter().enumerate().find(|(_, device)| device.adopted)
    }

    /// Notes that a device is in a place, or that none is any more. Places before it that are not known yet
    /// have none.
    pub(crate) fn set_device(&mut self, place: usize, device: DeviceRecord) {
        while self.devices.len() <= place {
            self.devices.push(DeviceRecord::removed());
        }
        self.devices[place] = device;
    }

    /// Notes where devices are now, by place.
    pub(crate) fn set_places(&mut self, places: &[(usize, DeviceRecord)]) {
        for (place, device) in places {
            match self.devices.get_mut(*place).filter(|noted| !noted.removed) {
                Some(noted) => (noted.path, noted.missing) = (device.path.clone(), device.missing),
                None => self.set_device(*place, device.clone()),
            }
        }
    }

    /// The paths of its devices, with their places; without devices whose path is not known.
    ///
    /// # Errors
    /// `Invalid` if one was memory: it went with its daemon.
    pub fn paths(&self) -> Result<Vec<(usize, PathBuf)>> {
        let path = |(place, device): (usize, &DeviceRecord)| {
            device.path.clone().map(|path| (place, path)).ok_or_else(|| {
                let name = &self.name;
                let problem = format!(
                    "volume '{name}' lay in the memory of a daemon that has ended: braid forget {name}"
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
    /// Held while a record is changed: a daemon does that in more than one thread.
    changing: Arc<Mutex<()>>,
}

impl StateDir {
    /// `BRAID_STATE_DIR`; else `/var/lib/braid` for root, and the user's state directory for others.
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
            let problem = "there is no home directory to keep state in: set BRAID_STATE_DIR";
            return Err(Error::new(ErrorKind::Usage, problem));
        };
        StateDir::new(&root)
    }

    /// The state directory at a path. Touches nothing.
    pub fn new(root: &Path) -> Result<StateDir> {
        let root = absolute(root).map_err(|e| Error::new(e.kind(), format!("the state directory: {e}")))?;
        Ok(StateDir { root, changing: Arc::default() })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a volume's files are.
    pub fn volume_dir(&self, name: &VolumeName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// The admin socket of a volume's daemon.
    pub fn admin_socket(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("admin.sock")
    }

    /// Where a volume's NBD export is unless told otherwise.
    pub fn nbd_socket(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("nbd.sock")
    }

    /// Where the file that is the volume appears when it is attached.
    pub fn mount_dir(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("mount")
    }

    /// What must survive the loss of the SSD of a volume on an adopted disk.
    pub(crate) fn record_of_adopted(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("record")
    }

    /// The same while the volume is being made.
    pub(crate) fn unmade_record(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("record.new")
    }

    pub(crate) fn lock_file(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("lock")
    }

    /// What this host noted of the volume while it was served.
    pub(crate) fn note_file(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("noted.json")
    }

    /// Writes that note: whole or not at all, and durable.
    pub(crate) fn save_note(&self, name: &VolumeName, text: &str) -> Result<()> {
        let path = self.note_file(name);
        write_atomically(&path, text.as_bytes()).map_err(|e| self.failed("write", &path, &e))
    }

    fn record_file(&self, name: &VolumeName) -> PathBuf {
        self.volume_dir(name).join("volume.json")
    }

    /// Every volume that has a record, by name.
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

    /// The names under which a volume is known, by its identity. A record that cannot be read is none of its.
    pub(crate) fn names_of(&self, uuid: &str) -> Result<Vec<VolumeName>> {
        let mut names = self.names()?;
        names.retain(|name| self.load(name).is_ok_and(|record| record.uuid == uuid));
        Ok(names)
    }

    /// Whether a volume has a record.
    pub fn knows(&self, name: &VolumeName) -> bool {
        self.record_file(name).exists()
    }

    /// A volume's record.
    ///
    /// # Errors
    /// `Invalid` if there is none: names those that there are.
    pub fn load(&self, name: &VolumeName) -> Result<VolumeRecord> {
        let path = self.record_file(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.unknown(name)),
            text => text.map_err(|e| self.failed("read", &path, &e))?,
        };
        let shown = path.display();
        let record: VolumeRecord = serde_json::from_str(&text).map_err(|error| {
            let problem = format!(
                "{shown} is not a record of a volume ({error}): remove it, and braid import its devices"
            );
            Error::new(ErrorKind::Invalid, problem)
        })?;
        if record.version != RECORD_VERSION {
            let problem = format!(
                "{shown} has version {}, and this program knows version {RECORD_VERSION}: use a newer one",
                record.version
            );
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        Ok(record)
    }

    /// Writes a volume's record: whole or not at all, and durable.
    pub fn save(&self, record: &VolumeRecord) -> Result<()> {
        let path = self.record_file(&record.name);
        let text = serde_json::to_string_pretty(record).map_err(|error| {
            let problem = format!("the record of volume '{}' cannot be written: {error}", record.name);
            Error::new(ErrorKind::Invalid, problem)
        })?;
        self.make_dir(&self.volume_dir(&record.name))?;
        write_atomically(&path, text.as_bytes()).map_err(|e| self.failed("write", &path, &e))
    }

    /// Changes a volume's record as it is now, and gives what it is then; writes nothing if that is the same.
    /// The caller holds its lock.
    pub(crate) fn change(
        &self,
        name: &VolumeName,
        change: impl FnOnce(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        // A thread that panicked under the lock left a file that is whole.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.load(name)?;
        let mut record = known.clone();
        change(&mut record)?;
        if record != known {
            self.save(&record)?;
        }
        Ok(record)
    }

    /// Forgets a volume: its record and sockets, not its devices. The caller holds its lock.
    pub(crate) fn remove(&self, name: &VolumeName) -> Result<()> {
        let dir = self.volume_dir(name);
        // The record first: what is left after a crash is no volume any more.
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
        // Whatever else is there is not ours: then the directory stays.
        let _ = std::fs::remove_dir(self.mount_dir(name));
        let _ = std::fs::remove_dir(dir);
        Ok(())
    }

    /// Removes what a creation that failed left of a name. The caller holds its lock.
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

    /// Makes a directory here, and those above it, for their owner alone.
    pub(crate) fn make_dir(&self, path: &Path) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| self.failed("make", path, &e))
    }

    fn unknown(&self, name: &VolumeName) -> Error {
        let known: Vec<String> = self.names().unwrap_or_default().iter().map(VolumeName::to_string).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let problem = format!(
            "there is no volume '{name}' in {}: the volumes there are: {known}; braid create makes one, braid import \
             finds one on its devices",
            self.root.display()
        );
        Error::new(ErrorKind::Invalid, problem)
    }

    pub(crate) fn failed(&self, tried: &str, path: &Path, error: &io::Error) -> Error {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ": run as its owner, or set BRAID_STATE_DIR to a directory of your own"
            }
            _ => "",
        };
        Error::new(ErrorKind::Io, format!("cannot {tried} {}: {error}{remedy}", path.display()))
    }
}

/// Replaces a file so that a power cut leaves the old one or the new one.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // Made anew: what others may have put there is neither followed nor written to.
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
    // The directory itself may be new too.
    dir.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}

#[cfg(test)]
mod tests;
