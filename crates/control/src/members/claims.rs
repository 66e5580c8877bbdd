//! Ownership of a device: the check before a device becomes part of a volume.
//!
//! A device has an owner in three cases:
//!
//! - A superblock on the device names a Braid volume.
//! - A volume of this state directory has adopted the device. An adopted disk has no mark.
//! - The device belongs to another system, which libblkid names.
//!
//! A device in use is always refused, and so is the adoption of an adopted disk. Any other device with an
//! owner or foreign content is refused unless the administrator forces its use. An adoption keeps the content
//! of the disk, and therefore accepts content such as a file system. All checks consider every name of the
//! device: see [`Place`].

use crate::device::place::Place;
use crate::device::remote::{ends, is_address, path_of};
use crate::device::used::refuse_used;
use crate::state::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::Invalid;
use braid_format::layout::{SMALLEST_DEVICE, superblock_offsets};
use braid_format::superblock::{self, Header, Layout};
use braid_uring::{Usage, content};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Intended use of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntendedUse {
    /// Overwrite the device. With `forced`, its content may be overwritten.
    Overwrite { forced: bool },
    /// Make the device a volume with its content. With `forced`, the device may belong to another volume or
    /// system, which then loses the device.
    Adopt { forced: bool },
}

/// Refuses a device that belongs to another owner. A path that does not exist has no owner.
///
/// # Errors
/// `Busy` if the device is in use; `Invalid` if it belongs to a volume or to another system: names the owner.
/// `Io` if a remote device cannot be read: its owner is unknown then.
pub(crate) fn refuse_claimed(state: &StateDir, path: &Path, intended: IntendedUse) -> Result<()> {
    let Ok(place) = Place::of(path) else { return Ok(()) };
    refuse_used(path, "it becomes a device of a volume")?;
    let owner = adopted_by(state, &place, None)?;
    match (intended, owner) {
        (IntendedUse::Adopt { .. }, Some(owner)) => {
            let problem =
                format!("{} was adopted by volume '{owner}' already: braid serve {owner}", path.display());
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        (IntendedUse::Overwrite { forced: false }, Some(owner)) => {
            let what =
                format!("is the disk that volume '{owner}' adopted: all data on the disk would be lost");
            return Err(claimed(path, &what));
        }
        _ => {}
    }
    let (IntendedUse::Overwrite { forced } | IntendedUse::Adopt { forced }) = intended;
    if forced {
        return Ok(());
    }
    let ends = match is_address(path).then(|| ends(path)).transpose() {
        // Nothing is there: an image that is made later, or an address that the opening refuses.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        ends => ends?,
    };
    let signatures = ends.as_ref().map_or_else(|| path.to_owned(), path_of);
    let found = content(&signatures);
    if let Some(superblock) = superblock_of(&signatures)
        && !(matches!(intended, IntendedUse::Adopt { .. }) && superblock.is_left_over && found.is_some())
    {
        return Err(claimed(path, &superblock.owner));
    }
    match (intended, found) {
        (IntendedUse::Overwrite { .. }, Some(found)) => {
            let what = format!("holds {}: all data on the device would be lost", found.describe());
            Err(claimed(path, &what))
        }
        (IntendedUse::Adopt { .. }, Some(found)) if found.usage == Usage::Member => {
            let what = format!(
                "holds {}, and writes of that layer would bypass the volume: adopt the device above instead",
                found.describe()
            );
            Err(claimed(path, &what))
        }
        _ => Ok(()),
    }
}

/// Refuses a returning or imported device if another volume has adopted it since. `own` is the UUID of the
/// device's volume.
///
/// # Errors
/// `Invalid`: names the other volume.
pub(crate) fn refuse_adopted(state: &StateDir, path: &Path, own: &str) -> Result<()> {
    let Ok(place) = Place::of(path) else { return Ok(()) };
    let Some(owner) = adopted_by(state, &place, Some(own))? else { return Ok(()) };
    let problem = format!(
        "{} is now the disk that volume '{owner}' adopted: its guests have overwritten the earlier content",
        path.display()
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// Returns the volume of this state directory that adopted a device, except the volume with the UUID `but`.
fn adopted_by(state: &StateDir, place: &Place, but: Option<&str>) -> Result<Option<VolumeName>> {
    for name in state.names()? {
        // A damaged record is reported by commands on its volume: skip it.
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
    /// True if only the last copy is left, because the first copies are overwritten: the device has new
    /// content.
    is_left_over: bool,
}

/// Reads the superblock of a device, of either layout. An unreadable device is refused later, when it is
/// opened.
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
                    format!(
                        "is a device of a volume of a newer version ({text}): the device's data would be \
                         lost"
                    ),
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
    format!("is {this_device} of volume '{name}' ({volume}): that volume's data on the device would be lost")
}
