//! Finds the disk that a volume adopted. The disk has no superblock: its size, serial number, file systems
//! and sums of its bytes identify the disk ([`KnownDisk`]). Its path is a hint.
//!
//! | at the recorded path | elsewhere | the disk |
//! |---|---|---|
//! | the same disk | not searched | at the recorded path |
//! | another disk, or none | one that is the same | is that one, and is noted there |
//! | a disk that is doubtful | none that is the same | at the recorded path, for the engine to judge |
//! | a disk that is doubtful | one that is the same | refused: one is a copy of the other |
//! | any | several that are the same | refused |

use super::{ELSEWHERE, Found, RECORDED, find, places};
use crate::device::adopted::identity;
use crate::device::look::{Plain, at_once, within};
use crate::device::place::Place;
use crate::device::spec::{absolute, quoted};
use crate::report::changes::AddReport;
use crate::state::lock::VolumeLock;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_engine::{KnownDisk, Likeness};
use braid_runtime::Device;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The disk that a volume adopted.
pub(crate) struct Disk {
    pub id: DeviceId,
    /// The new device record.
    pub record: DeviceRecord,
    /// True if anything is at the path of the record.
    pub is_there: bool,
    /// Why the disk is missing, with the remedy; `None` if the disk is there, as far as is known.
    pub lack: Option<String>,
}

/// Finds the disk that the volume adopted, if any. Reads only.
///
/// # Errors
/// `Invalid` if several disks may be the adopted disk: names them.
pub(crate) fn find_disk(state: &StateDir, record: &VolumeRecord, found: &Found) -> Result<Option<Disk>> {
    let Some((place, noted)) = record.adopted() else { return Ok(None) };
    let Some(recorded) = noted.path.clone() else { return Ok(None) };
    let (id, name) = (DeviceId(place as u16), &record.name);
    let at = |path: PathBuf, lack: Option<String>| {
        let is_there = !is_gone(&path);
        let record = DeviceRecord { path: Some(path), missing: false, ..noted.clone() };
        Ok(Some(Disk { id, record, is_there, lack }))
    };
    let likeness = match found.known_disk() {
        Some(known) if !is_gone(&recorded) => match compare(&known, &recorded, Instant::now() + RECORDED) {
            // The opening reports why the disk cannot be read.
            None | Some(Likeness::Same) => return at(recorded, None),
            likeness => likeness,
        },
        _ => None,
    };
    let seen = search(state, record, found, &recorded);
    match (likeness, &seen.same[..]) {
        (Some(Likeness::Doubtful), []) => at(recorded, None),
        (_, []) => {
            let lack = describe_lack(name, id, &recorded, likeness, &seen.doubtful);
            at(recorded, Some(lack))
        }
        (Some(Likeness::Doubtful), [one, ..]) => Err(several(name, &recorded, one)),
        (_, [one, two, ..]) => Err(several(name, one, two)),
        (_, [one]) => {
            let (was, is) = (recorded.display(), one.display());
            tracing::warn!("the disk that volume '{name}' adopted has moved from {was} to {is}");
            at(one.clone(), None)
        }
    }
}

/// Notes a new path of a volume's adopted disk, after a look at the bytes there. The next opening judges the
/// disk.
///
/// # Errors
/// `NotServed` if the device is not an adopted disk: only a daemon takes such a device back. `Degraded` if no
/// device is there that knows the disk. `Invalid` for another disk, and if the disk is at its recorded path.
pub fn return_disk(state: &StateDir, name: &VolumeName, device: DeviceId, path: &Path) -> Result<AddReport> {
    let (_lock, mut record) = VolumeLock::take_known(state, name, "given its disk back")?;
    let Some((place, noted)) = record.adopted().filter(|(place, _)| *place == device.index()) else {
        let problem = format!("volume '{name}' is not served: braid serve {name}");
        return Err(Error::new(ErrorKind::NotServed, problem));
    };
    let (path, recorded) = (absolute(path)?, noted.path.clone().unwrap_or_default());
    let shown = path.display();
    let known = find(state, &record)?.known_disk().ok_or_else(|| {
        let problem = format!(
            "no device of volume '{name}' with the identity of its disk is attached: attach such a \
             device first"
        );
        Error::new(ErrorKind::Degraded, problem)
    })?;
    if is_gone(&path) {
        return Err(Error::io(shown, &io::Error::from(io::ErrorKind::NotFound)));
    }
    let compare = |path: &Path| compare(&known, path, Instant::now() + RECORDED);
    let problem = match compare(&path) {
        None => Some(format!("{shown} cannot be read")),
        Some(Likeness::Another) => Some(format!("{shown} is not the disk that volume '{name}' adopted")),
        Some(Likeness::Doubtful) if recorded != path && compare(&recorded) == Some(Likeness::Same) => {
            let recorded = recorded.display();
            Some(format!("{shown} has changed since volume '{name}' used its disk, and {recorded} has not"))
        }
        Some(_) if is_of_another(state, &record, &path, Instant::now() + RECORDED) => {
            Some(format!("{shown} is the disk of another volume, and holds that volume's metadata"))
        }
        Some(_) => None,
    };
    if let Some(problem) = problem {
        return Err(Error::new(ErrorKind::Invalid, problem + " (nothing was changed)"));
    }
    record.devices[place].path = Some(path);
    state.save(&record)?;
    let (name, device) = (name.to_string(), device.to_string());
    Ok(AddReport { name, device, devices: record.devices, left_bytes: 0 })
}

impl Found {
    /// Returns the identity of the adopted disk, with its sums if the device with the sums is there.
    fn known_disk(&self) -> Option<KnownDisk> {
        let mut known = self.known_disk.clone()?;
        let record = known.record().and_then(|id| self.places.iter().find(|place| place.id == id));
        let Some(path) = record.and_then(|place| place.path().cloned()) else { return Some(known) };
        let read = within(RECORDED, move || {
            at_once(known.read_sums(&Plain::open(&path).ok()?)).ok()?;
            Some(known)
        });
        read.flatten().or_else(|| self.known_disk.clone())
    }
}

/// Disks of the right size at other paths than the recorded path.
#[derive(Default)]
struct Seen {
    same: Vec<PathBuf>,
    doubtful: Vec<PathBuf>,
}

fn search(state: &StateDir, record: &VolumeRecord, found: &Found, recorded: &Path) -> Seen {
    let (mut seen, end) = (Seen::default(), Instant::now() + ELSEWHERE);
    let Some(adopted) = found.known_disk() else { return seen };
    let devices = found.paths();
    // A device with a changed name may be at the former path of another device of the volume.
    let own = record.devices.iter().filter_map(|device| device.path.clone());
    let elsewhere = own.chain(places::elsewhere(state, record));
    let mut known: Vec<Place> = Place::of(recorded).into_iter().collect();
    for path in elsewhere.filter(|path| path != recorded && !devices.contains(path)) {
        let likeness = compare(&adopted, &path, end);
        let list = match likeness {
            Some(Likeness::Same) => &mut seen.same,
            Some(Likeness::Doubtful) => &mut seen.doubtful,
            None | Some(Likeness::Another) => continue,
        };
        let Ok(place) = Place::of(&path) else { continue };
        if !known.contains(&place) && !is_of_another(state, record, &path, end) {
            known.push(place);
            list.push(path);
        }
    }
    seen
}

/// True if the path is the present disk of another volume. Two disks made from one image are alike until
/// guests write.
fn is_of_another(state: &StateDir, record: &VolumeRecord, path: &Path, end: Instant) -> bool {
    let names = state.names().unwrap_or_default().into_iter().filter(|name| *name != record.name);
    let others = names.filter_map(|name| state.load(&name).ok());
    let mut others = others.filter(|other| other.uuid != record.uuid);
    others.any(|other| {
        let is_there = other.adopted().and_then(|(_, disk)| disk.path.as_deref()).is_some_and(|at| {
            at == path || Place::of(at).ok().is_some_and(|at| Place::of(path).is_ok_and(|place| at == place))
        });
        let known = || find(state, &other).ok().and_then(|found| found.known_disk());
        is_there && known().is_none_or(|known| compare(&known, path, end) != Some(Likeness::Another))
    })
}

/// Compares the disk at a path with the adopted disk; `None` if the path cannot be read in time.
fn compare(known: &KnownDisk, path: &Path, end: Instant) -> Option<Likeness> {
    let (known, path) = (known.clone(), path.to_owned());
    let left = end.saturating_duration_since(Instant::now());
    within(left, move || {
        let disk = Plain::open(&path).ok()?;
        if disk.geometry().size != known.size() {
            return Some(Likeness::Another);
        }
        at_once(known.compare(&disk, identity(&path).ok()?)).ok()
    })
    .flatten()
}

fn is_gone(path: &Path) -> bool {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    std::fs::metadata(path).is_err_and(|error| gone.contains(&error.kind()))
}

fn several(name: &VolumeName, one: &Path, two: &Path) -> Error {
    let problem = format!(
        "{} and {} may both be the disk that volume '{name}' adopted, one a copy of the other: detach the \
         copy (nothing was changed)",
        one.display(),
        two.display()
    );
    Error::new(ErrorKind::Invalid, problem)
}

/// Describes why the disk is missing, with the remedy.
fn describe_lack(
    name: &VolumeName,
    id: DeviceId,
    recorded: &Path,
    likeness: Option<Likeness>,
    doubtful: &[PathBuf],
) -> String {
    let shown = recorded.display();
    let what = match likeness {
        Some(_) => format!("{shown} is another disk, or has another size"),
        None => format!("{shown} does not exist"),
    };
    let command = |path: &str| format!("braid device return {name} {id} {path}");
    match doubtful.first() {
        Some(path) => format!(
            "{what}; {} may be the disk, but was changed or cannot be identified with certainty: if it is \
             the disk, {}",
            path.display(),
            command(&quoted(path))
        ),
        None => format!(
            "{what}; attach the disk, under any name, and try again; if the disk is in another directory: {}",
            command("PATH")
        ),
    }
}
