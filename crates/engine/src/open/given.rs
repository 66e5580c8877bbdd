//! Devices given for an opening, and the superblock that counts among theirs.

use super::Lacking;
use super::candidate::{Candidate, refuse_grown, with_newest_table};
use super::verdict::{closed_before, gone_on, refuse, was_current};
use crate::epochs::EpochRegion;
use crate::planted::{Bug, planted};
use crate::{ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Features, Header, Superblock, TablePlace};
use braid_runtime::{Device, Runtime};
use std::cmp::Reverse;
use std::rc::Rc;

/// Place and identity of the adopted disk among the given devices: the disk carries no mark.
#[derive(Clone, Copy, Debug)]
pub struct AdoptedDisk {
    /// Index among the given devices.
    pub place: usize,
    /// Sum of the disk's serial number; `NO_SERIAL` if the disk has none.
    pub identity: Uuid,
    /// True if dirty blocks are kept although the disk was changed while Braid did not serve it.
    pub force: bool,
}

/// Highest generation and sequence in the superblocks and tables of all devices found. A number that does not
/// count may be higher than the numbers that count: on an excluded device, or in a table without a matching
/// superblock on its own device (another device may have a match). The opening uses higher numbers still. So
/// its superblocks are the newest from the first write on, and no two openings that write data share a
/// number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Highest {
    pub epoch: u64,
    pub sequence: u64,
}

impl Highest {
    /// Returns the higher number of each kind.
    pub fn beyond(self, other: Highest) -> Highest {
        Highest { epoch: self.epoch.max(other.epoch), sequence: self.sequence.max(other.sequence) }
    }
}

/// Devices of one volume with their statements. Nothing has been believed yet.
pub(super) struct GivenDevices<'a, D> {
    pub found: Vec<Candidate<'a, D>>,
    /// The adopted disk with its name and its identity.
    pub disk: Option<(Rc<D>, &'a str, Uuid)>,
}

impl<'a, D: Device> GivenDevices<'a, D> {
    /// Reads all superblocks and tables.
    ///
    /// # Errors
    /// Refuses foreign, duplicate and grown devices, and devices without an answer for a minute.
    pub async fn read<R: Runtime>(
        rt: &R,
        devices: Vec<Rc<D>>,
        names: &'a [String],
        adopted: Option<AdoptedDisk>,
    ) -> Result<GivenDevices<'a, D>> {
        let (mut found, mut disk, mut unknown) = (Vec::new(), None, Vec::new());
        for (place, (device, name)) in devices.into_iter().zip(names).enumerate() {
            if let Some(adopted) = adopted.filter(|adopted| adopted.place == place) {
                disk = Some((device, &name[..], adopted.identity));
                continue;
            }
            match Candidate::read(rt, device.clone(), name).await {
                Ok(candidate) => found.push(candidate),
                Err(error) if error.kind() == ErrorKind::Invalid => unknown.push((device, name, error)),
                Err(error) => return Err(error),
            }
        }
        if planted(Bug::FirstOfTwoTaken) {
            keep_first_of_two(&mut found);
        }
        refuse_foreign(&found)?;
        let tables: Vec<TablePlace> = found.iter().flat_map(|c| c.header.tables.clone()).collect();
        for candidate in &mut found {
            candidate.read_tables(rt, &tables).await;
        }
        if let Some((device, name, error)) = unknown.into_iter().next() {
            return Err(refuse_grown(rt, &found, &device, name).await?.unwrap_or(error));
        }
        Ok(GivenDevices { found, disk })
    }

    /// Superblock that counts for an opening, with its table of devices, and the devices that the opening
    /// excludes: `distrusted`, or, for a recovery, all devices but the disk that keeps epochs.
    pub fn newest(&self, distrusted: &[DeviceId], lacking: Lacking) -> Result<(Superblock, Vec<DeviceId>)> {
        let found = &self.found[..];
        let mut trusted: Vec<&Header> = found.iter().map(|c| &c.header).collect();
        trusted.retain(|header| !distrusted.contains(&header.this_device));
        trusted.sort_by_key(|header| Reverse((header.epoch, header.sequence)));
        let mut superblock = newest_of(found, &trusted, distrusted)?;
        let mut given_up = distrusted.to_vec();
        if lacking == Lacking::Recovered {
            // The statements of the disk that keeps epochs count, not statements of other devices about the
            // disk. A table lost with the other devices is not needed.
            let whole =
                || trusted.iter().find_map(|header| with_newest_table(found, header, distrusted).ok());
            let known = superblock.or_else(|error| whole().ok_or(error))?;
            let (image, others) = image_alone(&known, found, distrusted)?;
            superblock = with_newest_table(found, &image, &others);
            given_up = others;
        }
        Ok((superblock?, given_up))
    }
}

/// Refuses devices of other volumes, and duplicate devices.
fn refuse_foreign<D>(found: &[Candidate<D>]) -> Result<()> {
    for (i, one) in found.iter().enumerate() {
        let (first, this) = (&found[0].header, &one.header);
        if this.volume != first.volume {
            let (name, other) = (one.name, found[0].name);
            let text = format!(
                "{name} belongs to another volume, '{}' ({}), not to '{}' ({}) as {other} does: give only \
                 devices of one volume",
                this.name, this.volume, first.name, first.volume
            );
            return refuse(ErrorKind::Invalid, text);
        }
        if let Some(other) = found[..i].iter().find(|other| other.header.device.uuid == this.device.uuid) {
            let text = format!(
                "{} and {} are both device {} of volume '{}', one a copy of the other; give only the device \
                 that was in use last",
                other.name, one.name, this.this_device, this.name
            );
            return refuse(ErrorKind::Invalid, text);
        }
    }
    Ok(())
}

/// Planted bug: leaves out the second of two devices with one UUID.
fn keep_first_of_two<D>(found: &mut Vec<Candidate<D>>) {
    let mut seen = Vec::new();
    found.retain(|one| {
        let is_first = !seen.contains(&one.header.device.uuid);
        seen.push(one.header.device.uuid);
        is_first
    });
}

/// Newest superblock among `trusted`, sorted from the newest, with its table of devices. The inner error says
/// why the table is absent.
///
/// # Errors
/// `Invalid` if `trusted` is empty.
pub(super) fn newest_of<D: Device>(
    found: &[Candidate<'_, D>],
    trusted: &[&Header],
    distrusted: &[DeviceId],
) -> Result<Result<Superblock>> {
    let Some(&newest) = trusted.first() else {
        return refuse(ErrorKind::Invalid, "no device was given: name the devices of the volume".to_owned());
    };
    let mut superblock = with_newest_table(found, newest, distrusted);
    if superblock.is_err()
        && let Some(header) = closed_before(newest, trusted.iter().copied())
    {
        superblock = with_newest_table(found, header, distrusted);
    }
    if let Ok(newest) = &superblock
        && let Some(header) = gone_on(newest, trusted.iter().copied())
    {
        superblock = with_newest_table(found, header, distrusted);
    }
    Ok(superblock)
}

/// Header of the disk that keeps epochs, and all other devices: a recovery excludes these.
fn image_alone<D>(
    superblock: &Superblock,
    found: &[Candidate<'_, D>],
    distrusted: &[DeviceId],
) -> Result<(Header, Vec<DeviceId>)> {
    let ids = || (0..).map(DeviceId).zip(&superblock.devices).map(|(id, _)| id);
    let is_there =
        |id: DeviceId| found.iter().any(|c| c.header.this_device == id) && !distrusted.contains(&id);
    let is_removed = |id: &DeviceId| superblock.devices[id.index()].state == DeviceState::Removed;
    if ids().filter(|id| !is_removed(id)).all(is_there) {
        let text = format!("volume '{}' lacks no device: serve the volume without recovery", superblock.name);
        return refuse(ErrorKind::Degraded, text);
    }
    let image = EpochRegion::of(superblock).map(|place| place.device);
    let Some(candidate) = found.iter().find(|c| Some(c.header.this_device) == image) else {
        let text =
            format!("volume '{}' cannot be recovered: no disk with epochs is present", superblock.name);
        return refuse(ErrorKind::Degraded, text);
    };
    // A disk recovered before, and used with other devices since: these may hold newer data.
    let is_with =
        |id: &DeviceId| Some(*id) != image && !is_removed(id) && was_current(&superblock.devices[id.index()]);
    if superblock.features.incompat & Features::UNAPPLIED != 0
        && let Some(other) = ids().find(is_with)
    {
        let text = format!(
            "volume '{}' has been recovered from its disk already, and has continued with device {other}: serve the volume without recovery, with \
             that device",
            superblock.name
        );
        return refuse(ErrorKind::Degraded, text);
    }
    let others = ids().filter(|id| Some(*id) != image && !is_removed(id)).collect();
    Ok((candidate.header.clone(), others))
}
