//! Whose a device is: what every way in asks before a device becomes a volume's.
//!
//! A device may belong to a Braid volume by a superblock on it, to a volume of this state directory that
//! adopted it (no mark lies on an adopted disk), or to another system, which libblkid names. What is in use
//! now is refused always; what only lies there is refused unless the administrator forces it. All questions
//! look at the device by each of its names: see [`Place`].

use crate::device::place::Place;
use crate::device::used::refuse_used;
use crate::volume::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::Invalid;
use braid_format::layout::{SMALLEST_DEVICE, superblock_offsets};
use braid_format::superblock::{self, Header, Layout};
use braid_uring::{Usage, content};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a device is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It is overwritten; what lies on it may be, if that is forced.
    Overwrite { forced: bool },
    /// It becomes a volume with what is on it; what it is a part of is given up, if that is forced.
    Adopt { forced: bool },
}

/// Refuses a device that belongs to somebody else. A path that leads nowhere belongs to nobody.
///
/// # Errors
/// `Busy` if something uses it; `Invalid` if it belongs to a volume or to another system: names the owner.
pub(crate) fn refuse_claimed(state: &StateDir, path: &Path, purpose: Purpose) -> Result<()> {
    let Ok(place) = Place::of(path) else { return Ok(()) };
    refuse_used(path, "it becomes a device of a volume")?;
    let owner = adopted_by(state, &place, None)?;
    match (purpose, owner) {
        (Purpose::Adopt { .. }, Some(owner)) => {
            let problem =
                format!("{} was adopted by volume '{owner}' already: braid serve {owner}", path.display());
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        (Purpose::Overwrite { forced: false }, Some(owner)) => {
            let what = format!("is the disk that volume '{owner}' adopted: everything on it would be lost");
            return Err(claimed(path, &what));
        }
        _ => {}
    }
    let (Purpose::Overwrite { forced } | Purpose::Adopt { forced }) = purpose;
    if forced {
        return Ok(());
    }
    let found = content(path);
    if let Some(superblock) = superblock_of(path)
        && !(matches!(purpose, Purpose::Adopt { .. }) && superblock.is_left_over && found.is_some())
    {
        return Err(claimed(path, &superblock.owner));
    }
    match (purpose, found) {
        (Purpose::Overwrite { .. }, Some(found)) => {
            let what = format!("holds {}: everything on it would be lost", found.describe());
            Err(claimed(path, &what))
        }
        (Purpose::Adopt { .. }, Some(found)) if found.usage == Usage::Member => {
            let what = format!(
                "holds {}, which uses it past the volume: adopt the device that lies over it instead",
                found.describe()
            );
            Err(claimed(path, &what))
        }
        _ => Ok(()),
    }
}

/// Refuses a device of a volume that comes back or is imported if another volume has adopted it since. `own`
/// is the volume's identity.
///
/// # Errors
/// `Invalid`: names the other volume.
pub(crate) fn refuse_adopted(state: &StateDir, path: &Path, own: &str) -> Result<()> {
    let Ok(place) = Place::of(path) else { return Ok(()) };
    let Some(owner) = adopted_by(state, &place, Some(own))? else { return Ok(()) };
    let problem = format!(
        "{} is the disk that volume '{owner}' adopted since: its guests have written over what was there",
        path.display()
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// The volume of this state directory that adopted a device; `but` the one with this identity.
fn adopted_by(state: &StateDir, place: &Place, but: Option<&str>) -> Result<Option<VolumeName>> {
    for name in state.names()? {
        // A damaged record is told of by the commands on its volume.
        let Ok(record) = state.load(&name) else { continue };
        let disk = record.adopted().and_then(|(_, device)| device.path.as_deref());
        let known = disk.and_then(|path| Place::of(path).ok());
        if Some(record.uuid.as_str()) != but && known.is_some_and(|known| known.overlaps(place)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn claimed(path: &Path, what: &str) -> Error {
    let problem = format!("{} {what}; use another device, or --force to go on", path.display());
    Error::new(ErrorKind::Invalid, problem)
}

/// A superblock of Braid on a device.
struct Superblock {
    owner: String,
    /// The only copy is the last one of a device whose first copies are overwritten: something else was made
    /// there since.
    is_left_over: bool,
}

/// The superblock of a device, of either layout. A device that cannot be read is refused when it is opened.
fn superblock_of(path: &Path) -> Option<Superblock> {
    let mut file = File::open(path).ok()?;
    let size = Bytes(file.seek(SeekFrom::End(0)).ok()?);
    if size < SMALLEST_DEVICE {
        return None;
    }
    let mut bytes = vec![0; superblock::SIZE.as_usize()];
    let mut found = None;
    for layout in [Layout::Head, Layout::Tail] {
        for (copy, offset) in superblock_offsets(size, layout).into_iter().enumerate() {
            if file.read_exact_at(&mut bytes, offset.0).is_err() {
                continue;
            }
            let (owner, layout) = match Header::decode(&bytes) {
                Ok(header) => (describe(&header), header.device.layout),
                Err(Invalid::Feature(text)) => (
                    format!("is a device of a volume of a newer version ({text}), which would be lost"),
                    layout,
                ),
                Err(_) => continue,
            };
            let is_left_over = layout == Layout::Head && copy == 2;
            if !is_left_over {
                return Some(Superblock { owner, is_left_over });
            }
            found = Some(Superblock { owner, is_left_over });
        }
    }
    found
}

fn describe(header: &Header) -> String {
    let Header { this_device, name, volume, .. } = header;
    format!("is {this_device} of volume '{name}' ({volume}): what that volume keeps there would be lost")
}
