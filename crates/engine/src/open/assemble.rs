//! Puts the devices of a volume in order: decides the superblock that counts, the current devices, and the
//! refused devices.
//!
//! Phases: `Opening` on all devices, then `Open` on all, then data is written; `Closing` on all, then
//! `Closed` on all. A device one step behind the newest phase was interrupted together with the rest. A
//! device further behind took no part: it is an old copy, whatever its generation.
//!
//! An adopted disk has no superblock: the caller names its place and its identity ([`AdoptedDisk`]).

use super::candidate::{Candidate, refuse_grown, with_newest_table};
use super::cut::{self, End, is_short, refuse_cut};
use super::judge::{
    NEVER, absent, closed_before, entry_of, gone_on, is_given_up, is_leaving, is_removed, judge,
    judge_adopted, refuse,
};
use super::{Attempts, Highest};
use crate::epochs::EpochRegion;
use crate::planted::{Bug, planted};
use crate::{ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_format::Uuid;
use braid_format::superblock::{
    DeviceEntry, DeviceState, DirtyBlocks, Features, Header, Mapping, Phase, RegionKind, Superblock,
    TablePlace,
};
use braid_runtime::{Device, Runtime};
use std::cmp::Reverse;
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
    let (mut found, mut disk, mut unknown) = (Vec::new(), None, Vec::new());
    for (place, (device, name)) in devices.into_iter().zip(names).enumerate() {
        if let Some(adopted) = adopted.filter(|adopted| adopted.place == place) {
            disk = Some((device, name, adopted.identity));
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
    let numbers = || found.iter().flat_map(Candidate::numbers);
    let highest = Highest {
        epoch: numbers().map(|(epoch, _)| epoch).max().unwrap_or(0),
        sequence: numbers().map(|(_, sequence)| sequence).max().unwrap_or(0),
    };
    let mut trusted: Vec<&Header> = found.iter().map(|c| &c.header).collect();
    trusted.retain(|header| !distrusted.contains(&header.this_device));
    trusted.sort_by_key(|header| Reverse((header.epoch, header.sequence)));
    let mut superblock = newest_of(&found, &trusted, distrusted)?;
    let mut given_up = distrusted.to_vec();
    if lacking == Lacking::Recovered {
        // The statements of the disk that keeps epochs count, not statements of other devices about the disk.
        // A table lost with the other devices is not needed.
        let whole = || trusted.iter().find_map(|header| with_newest_table(&found, header, distrusted).ok());
        let known = superblock.or_else(|error| whole().ok_or(error))?;
        let (image, others) = image_alone(&known, &found, distrusted)?;
        superblock = with_newest_table(&found, &image, &others);
        given_up = others;
    }
    let superblock = superblock?;
    let distrusted = &given_up[..];
    let is_told = |id: &DeviceId| superblock.devices.get(id.index()).is_some_and(was_current);
    let marked = found.iter().filter(|candidate| candidate.header.given_up);
    let told: Vec<DeviceId> = marked.map(|candidate| candidate.header.this_device).filter(is_told).collect();
    let mut states: Vec<DeviceState> = superblock.devices.iter().map(absent).collect();
    let (mut anew, mut cut) = (distrusted.to_vec(), Vec::new());
    let mut places: Vec<Option<Rc<D>>> = states.iter().map(|_| None).collect();
    for candidate in found {
        let Candidate { ref device, name, ref header, end, .. } = candidate;
        let (device, id) = (device.clone(), header.this_device);
        let describe = |end| cut::describe(name, header, end);
        if superblock.devices.get(id.index()).is_some_and(|entry| is_removed(entry, header)) {
            tracing::warn!(
                "{name} (device {id} of volume '{}') is left out: it was removed",
                superblock.name
            );
            places[id.index()] = Some(device);
            continue;
        }
        if superblock.devices.get(id.index()).is_some_and(|entry| is_leaving(entry, header)) {
            tracing::warn!(
                "{name} (device {id} of volume '{}') stays out of use: its removal is pending",
                superblock.name
            );
            places[id.index()] = Some(device);
            states[id.index()] = DeviceState::Failed;
            continue;
        }
        let was_lost = superblock.devices.get(id.index()).is_some_and(|entry| !was_current(entry));
        if superblock.copies == 1 && (was_lost || is_given_up(&superblock, id, distrusted)) {
            // No other copy can bring the device up to date.
            tracing::warn!(
                "{name} (device {id} of volume '{}') is left out: it was excluded",
                superblock.name
            );
            continue;
        }
        let entry = entry_of(&superblock, &candidate)?;
        let may_be_left_out = was_lost || distrusted.contains(&id) || lacking == Lacking::Examined;
        if is_short(entry, &candidate) && may_be_left_out {
            tracing::warn!("{} (volume '{}'): it is left out", describe(End::Short), superblock.name);
            cut.push((id, describe(End::Short)));
            continue;
        }
        if !distrusted.contains(&id) {
            let judged = judge(&superblock, &candidate)?;
            states[id.index()] = judged.state;
            anew.extend(judged.lacks_all.then_some(id));
            if judged.is_cut || attempts.cut.contains(&id) {
                if superblock.copies == 1 && lacking == Lacking::Refused {
                    return refuse_cut(&superblock, name, id);
                }
                tracing::error!("{} (volume '{}')", describe(end), superblock.name);
                cut.push((id, describe(end)));
            }
            if let Some(found) = attempts.forgetful.iter().find(|found| found.device == id) {
                let what = found.describe(name, &superblock.name);
                tracing::warn!("{what}; the data of this device is copied again from the others");
                states[id.index()] = DeviceState::Returning;
                anew.push(id);
                cut.push((id, what));
            }
        } else {
            states[id.index()] = DeviceState::Returning;
        }
        places[id.index()] = Some(device);
    }
    match (superblock.adopted(), disk) {
        (None, None) => {}
        (Some(id), Some((device, name, identity))) => {
            judge_adopted(&superblock, &superblock.devices[id.index()], name, &*device, identity)?;
            if distrusted.contains(&id) {
                let text =
                    format!("{name} is the disk that volume '{}' adopted: it is the volume", superblock.name);
                return refuse(ErrorKind::Invalid, format!("{text}, and cannot be excluded"));
            }
            states[id.index()] = superblock.devices[id.index()].state;
            places[id.index()] = Some(device);
        }
        (Some(id), None) => {
            let entry = &superblock.devices[id.index()];
            let text = format!(
                "volume '{}' lacks {id}, the disk of {} that it adopted: bring it back (nothing was changed)",
                superblock.name, entry.size
            );
            return refuse(ErrorKind::Degraded, text);
        }
        (None, Some((_, name, _))) => {
            let text = format!(
                "{name} is given as an adopted disk, and volume '{}' has no adopted disk",
                superblock.name
            );
            return refuse(ErrorKind::Invalid, text);
        }
    }
    let clean = attempts.clean || matches!(superblock.phase, Phase::Closed | Phase::Closing);
    let assembled = Assembled {
        superblock,
        devices: places,
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

/// Refuses devices of other volumes, and duplicate devices.
fn refuse_foreign<D>(found: &[Candidate<D>]) -> Result<()> {
    for (i, one) in found.iter().enumerate() {
        let (first, this) = (&found[0].header, &one.header);
        if this.volume != first.volume {
            let (name, other) = (one.name, found[0].name);
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name} belongs to another volume, '{}' ({}), not to '{}' ({}) as {other} does: give only devices of \
                     one volume",
                    this.name, this.volume, first.name, first.volume
                ),
            );
        }
        if let Some(other) = found[..i].iter().find(|other| other.header.device.uuid == this.device.uuid) {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{} and {} are both device {} of volume '{}', one a copy of the other; give only the device that was in use last",
                    other.name, one.name, this.this_device, this.name
                ),
            );
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
    // The volume has continued without the devices that were not current: they hold no only copy. But the
    // only copies on a newly excluded device are not looked for.
    let newly = || lacking.iter().filter(|&&i| was_current(&superblock.devices[i]));
    let is_sure = newly().count() <= 1 && !newly().any(given_up);
    let lost = lost_metadata(&superblock, states);
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
        let lacks = describe(&superblock, lacking[0], states[lacking[0]]);
        return refuse(
            ErrorKind::Degraded,
            format!(
                "volume '{}' lacks {lacks}, which alone has its {kind}: the other device's {kind} is void after a failed write; bring the device back \
                 (nothing was changed)",
                superblock.name
            ),
        );
    }
    if !enough {
        let described: Vec<String> = lacking.iter().map(|&i| describe(&superblock, i, states[i])).collect();
        return refuse(
            ErrorKind::Degraded,
            format!(
                "volume '{}' lacks {} of its {} devices: {}; {} cop{} of each extent allow for {}: bring them back{} (nothing \
                 was changed)",
                superblock.name,
                lacking.len(),
                states.iter().filter(|&&state| state != DeviceState::Removed).count(),
                described.join(", "),
                superblock.copies,
                if superblock.copies == 1 { "y" } else { "ies" },
                superblock.copies - 1,
                if superblock.copies == 1 { ", or discard their data (--distrust DEVICE)" } else { "" }
            ),
        );
    }
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

/// True if a device was in step, as far as the superblock knows.
pub(crate) fn was_current(entry: &DeviceEntry) -> bool {
    !matches!(entry.state, DeviceState::Missing | DeviceState::Failed | DeviceState::Returning)
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
