//! Decides whether the present devices are enough for a volume that lacks a device.

use super::verdict::{refuse, was_current};
use crate::{ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::superblock::{DeviceState, Mapping, RegionKind, Superblock};

/// Treatment of a volume that lacks a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// One copy: refused unless the device is excluded. Two copies: one device may be missing.
    Refused,
    /// The same, but with one copy a cut device is kept for its remaining data.
    Repaired,
    /// Examined as if the device, absent or cut, were excluded, to list the data there.
    Examined,
    /// Only the disk that keeps epochs is needed.
    Recovered,
}

/// Refuses a volume that lacks more devices than `allowed`. `lacking` are their places; `given_up` is true
/// for an excluded device, `is_cache` for an SSD without an only copy.
pub(super) fn refuse_lacking(
    superblock: &Superblock,
    states: &[DeviceState],
    lacking: &[usize],
    allowed: Lacking,
    given_up: impl Fn(&usize) -> bool,
    is_cache: impl Fn(&usize) -> bool,
) -> Result<()> {
    // The volume has continued without the devices that were not current: they hold no only copy. But the
    // only copies on a newly excluded device are not looked for.
    let newly = || lacking.iter().filter(|&&i| was_current(&superblock.devices[i]));
    let is_sure = newly().count() <= 1 && !newly().any(&given_up);
    let lost = lost_metadata(superblock, states);
    let enough = match superblock.copies {
        1 => {
            let may_lack = |i: &usize| allowed == Lacking::Examined || given_up(i) || is_cache(i);
            lacking.is_empty() || lacking.iter().all(may_lack) && lost.is_none()
        }
        // A recovery needs the disk alone.
        _ if allowed == Lacking::Recovered => true,
        _ => lacking.is_empty() || (lacking.len() == 1 || is_sure) && lost.is_none(),
    };
    if let Some(kind) = lost.filter(|_| !enough && superblock.copies > 1 && lacking.len() == 1) {
        let lacks = describe(superblock, lacking[0], states[lacking[0]]);
        let text = format!(
            "volume '{}' lacks {lacks}, which alone has its {kind}: the other device's {kind} is void after a \
             failed write; bring the device back (nothing was changed)",
            superblock.name
        );
        return refuse(ErrorKind::Degraded, text);
    }
    if !enough {
        let described: Vec<String> = lacking.iter().map(|&i| describe(superblock, i, states[i])).collect();
        let (copies, or) = match superblock.copies {
            1 => ("copy", ", or discard their data (--distrust DEVICE)"),
            _ => ("copies", ""),
        };
        let text = format!(
            "volume '{}' lacks {} of its {} devices: {}; {} {copies} of each extent allow for {}: bring them \
             back{or} (nothing was changed)",
            superblock.name,
            lacking.len(),
            states.iter().filter(|&&state| state != DeviceState::Removed).count(),
            described.join(", "),
            superblock.copies,
            superblock.copies - 1,
        );
        return refuse(ErrorKind::Degraded, text);
    }
    Ok(())
}

/// Needed metadata without a copy on a present device: the journal; the map with its double-write area; with
/// two copies, the table of spans.
fn lost_metadata(superblock: &Superblock, states: &[DeviceState]) -> Option<RegionKind> {
    let is_there = |device: DeviceId| {
        !matches!(states[device.index()], DeviceState::Missing | DeviceState::Failed | DeviceState::Returning)
    };
    let is_kept = |kind| superblock.regions.iter().any(|r| r.kind == kind && !r.void && is_there(r.device));
    let needed: &[_] = match superblock.mapping() {
        Mapping::Dense if superblock.copies > 1 => {
            &[RegionKind::Journal, RegionKind::Map, RegionKind::DoubleWrite, RegionKind::Intents]
        }
        Mapping::Dense => &[RegionKind::Journal, RegionKind::Map, RegionKind::DoubleWrite],
        Mapping::OwnAddress => &[RegionKind::Journal],
    };
    needed.iter().copied().find(|&kind| !is_kept(kind))
}

fn describe(superblock: &Superblock, place: usize, state: DeviceState) -> String {
    let entry = &superblock.devices[place];
    format!("d{place} ({}, {}, {}, {state})", entry.class, entry.size, entry.uuid)
}
