//! Puts the devices of a volume in order: decides the superblock that counts, the current devices, and the
//! refused devices.
//!
//! Phases: `Opening` on all devices, then `Open` on all, then data is written; `Closing` on all, then
//! `Closed` on all. A device one step behind the newest phase was interrupted together with the rest. A
//! device further behind took no part: it is an old copy, whatever its generation.
//!
//! An adopted disk has no superblock: the caller names its place and its identity ([`AdoptedDisk`]).

use super::candidate::Candidate;
use super::given::GivenDevices;
use super::lacking::refuse_lacking;
use super::placed::PlacedDevices;
use super::verdict::{NEVER, is_given_up, was_current};
use super::{AdoptedDisk, Attempts, Highest, Lacking};
use crate::Result;
use braid_base::{DeviceClass, DeviceId};
use braid_format::superblock::{DeviceState, DirtyBlocks, Phase, Superblock};
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// Devices of a volume, ready for an opening.
pub(crate) struct Assembled<D> {
    /// The newest superblock, with the present states of the devices.
    pub superblock: Superblock,
    /// By id; none for a missing device.
    pub devices: Vec<Option<Rc<D>>>,
    /// True if every acknowledged write was flushed at the last use of the volume.
    pub clean: bool,
    /// Devices that were current until now, and are not current any more.
    pub lately: Vec<DeviceId>,
    /// Missing SSDs of a volume with one required copy that were not excluded by name. The volume continues
    /// without these SSDs if nothing is lost.
    pub without: Vec<DeviceId>,
    /// Absent devices that were not excluded by name.
    pub away: Vec<DeviceId>,
    /// True if the volume was last used without one of its devices.
    pub went_without: bool,
    /// Devices with a mark in their own superblock that the volume continued without them, if the newest
    /// superblock still counts the devices as current.
    pub told: Vec<DeviceId>,
    /// Devices to rebuild: excluded, or older than the recorded differences.
    pub anew: Vec<DeviceId>,
    /// Devices that lost their end, or, with two required copies, lost acknowledged writes; with a sentence
    /// for each. With two copies, a present device is rebuilt. With one, the device counts as before.
    pub cut: Vec<(DeviceId, String)>,
    /// Highest numbers on any device.
    pub highest: Highest,
}

/// Puts the devices of a volume in order. `names` are for messages. The administrator discards the data of
/// `distrusted` devices: they are resynchronised. For a recovery, `distrusted` are all devices but the disk
/// that keeps epochs. `attempts` holds the findings of earlier attempts.
///
/// # Errors
/// Refuses by name: a foreign device, a duplicate, an old copy, a device used apart from the rest, a shrunken
/// device, a device without an answer for a minute, and missing devices with the only copy of data. Nothing
/// was changed then.
pub(crate) async fn assemble<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<Rc<D>>,
    names: &[String],
    distrusted: &[DeviceId],
    adopted: Option<AdoptedDisk>,
    lacking: Lacking,
    attempts: &Attempts,
) -> Result<Assembled<D>> {
    let given = GivenDevices::read(rt, devices, names, adopted).await?;
    let numbers = || given.found.iter().flat_map(Candidate::numbers);
    let highest = Highest {
        epoch: numbers().map(|(epoch, _)| epoch).max().unwrap_or(0),
        sequence: numbers().map(|(_, sequence)| sequence).max().unwrap_or(0),
    };
    let (superblock, distrusted) = given.newest(distrusted, lacking)?;
    let GivenDevices { found, disk } = given;
    let is_told = |id: &DeviceId| superblock.devices.get(id.index()).is_some_and(was_current);
    let marked = found.iter().filter(|candidate| candidate.header.given_up);
    let told: Vec<DeviceId> = marked.map(|candidate| candidate.header.this_device).filter(is_told).collect();
    let mut placed = PlacedDevices::none(&superblock, &distrusted);
    for candidate in found {
        placed.place(&superblock, candidate, &distrusted, lacking, attempts)?;
    }
    placed.place_adopted(&superblock, disk, &distrusted)?;
    let PlacedDevices { devices, states, anew, cut } = placed;
    let clean = attempts.clean || matches!(superblock.phase, Phase::Closed | Phase::Closing);
    let assembled = Assembled {
        superblock,
        devices,
        clean,
        lately: Vec::new(),
        without: Vec::new(),
        away: Vec::new(),
        went_without: false,
        told,
        anew,
        cut,
        highest,
    };
    finish(assembled, &states, lacking)
}

/// Gives the devices their states and completes the lists of devices, if the present devices are enough for
/// the volume.
fn finish<D>(assembled: Assembled<D>, states: &[DeviceState], allowed: Lacking) -> Result<Assembled<D>> {
    let Assembled { mut superblock, devices, clean, anew, .. } = assembled;
    let lacking: Vec<usize> = (0..states.len())
        .filter(|&i| matches!(states[i], DeviceState::Missing | DeviceState::Failed | DeviceState::Returning))
        .collect();
    let given_up = |i: &usize| is_given_up(&superblock, DeviceId(*i as u16), &anew);
    // An SSD beside an adopted disk has no home; the table of dirty spans lists its other losses.
    let has_no_dirty = superblock.copies == 1 && superblock.dirty_blocks == DirtyBlocks::None && clean;
    let is_cache = |i: &usize| {
        let may_be = superblock.adopted().is_some() || has_no_dirty;
        may_be && superblock.devices[*i].class == DeviceClass::Ssd
    };
    let without: Vec<DeviceId> =
        lacking.iter().filter(|i| is_cache(i) && !given_up(i)).map(|&i| DeviceId(i as u16)).collect();
    let is_away = |i: &&usize| devices[**i].is_none() && !given_up(i);
    let away: Vec<DeviceId> = lacking.iter().filter(is_away).map(|&i| DeviceId(i as u16)).collect();
    refuse_lacking(&superblock, states, &lacking, allowed, given_up, is_cache)?;
    let went_without =
        superblock.devices.iter().any(|entry| !was_current(entry) && entry.state != DeviceState::Removed);
    // An absent device may have entered the generation begun last. A device without a table is told last
    // (`write_superblocks`), so it never entered an opening that was interrupted here: a superblock with more
    // comes from another opening of the same number, without the present devices. A present device has said
    // how far it got (`judge`). If the table said more and the device could not be written, its return would
    // be judged by a false table.
    let has_table = |id: DeviceId| superblock.tables.iter().any(|place| place.device == id);
    let may_have_entered =
        |id| superblock.phase != Phase::Opening || has_table(id) && devices[id.index()].is_none();
    let mut lately = Vec::new();
    for (i, (entry, &state)) in superblock.devices.iter_mut().zip(states).enumerate() {
        let was_current = was_current(entry);
        let took_part = was_current || entry.state == DeviceState::Returning;
        let id = DeviceId(i as u16);
        if anew.contains(&id) || without.contains(&id) {
            entry.in_step = NEVER;
        } else if took_part && lacking.contains(&i) && entry.in_step != NEVER && may_have_entered(id) {
            entry.in_step = superblock.epoch;
        }
        if was_current && lacking.contains(&i) {
            lately.push(DeviceId(i as u16));
        }
        entry.state = state;
    }
    let anew = [&anew[..], &without].concat();
    Ok(Assembled { superblock, devices, lately, without, away, went_without, anew, ..assembled })
}
