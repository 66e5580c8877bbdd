//! Check of a volume that is not served: superblocks, both map images, cache tables, journal, slots.

use crate::adopted::look_at;
use crate::devices::{Member, watched};
use crate::epochs::damaged_extents;
use crate::fence::{BETWEEN_READINGS, Noted, READINGS, may_change};
use crate::journal::DirtySpans;
use crate::journal::{
    Forgetful, Mode, RecoveryInput, Replayed, check_cache_tables, check_image, lost_at_end, recover,
};
use crate::map::State;
use crate::open::{
    AdoptedDisk, Assembled, Attempts, Lacking, ask_superblock, assemble, newer_elsewhere, older_without,
    only_copies, refuse_cached,
};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::superblock::{DeviceEntry, DeviceState};
use braid_runtime::{Device, Runtime};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name of the volume.
    pub name: String,
    /// Damage without loss of data: another copy is valid, and `--repair` restores the damaged copy.
    pub repairable: Vec<String>,
    /// Damage without a valid copy.
    pub fatal: Vec<String>,
    /// Extents with unproved places, which a repair would mark as lost, and extents lost already; in order.
    pub lost: Vec<ExtentId>,
    /// Number of extents with a home.
    pub mapped_extents: u32,
    /// Journal batches that the next opening replays.
    pub journal_batches: u64,
    /// Spans whose copies may differ, and which the next opening resynchronises.
    pub spans: u32,
    /// Bytes of the volume in one span.
    pub span_size: Bytes,
    /// Unit of placement.
    pub extent_size: Bytes,
    /// Size of the volume for the guest.
    pub volume_size: Bytes,
    /// Device entries of the newest superblock, by place.
    pub devices: Vec<DeviceEntry>,
    /// Places of removed devices.
    pub removed: Vec<DeviceId>,
    /// Devices that are not current: missing, failed, or under resync.
    pub not_current: Vec<(DeviceId, DeviceState)>,
    /// Ranges of an adopted disk that may be older than flushed data unless a missing SSD returns.
    pub older: Vec<(DeviceId, Range<Bytes>)>,
    /// True if the adopted disk was changed while Braid did not serve it.
    pub changed_elsewhere: bool,
    /// Extents whose newest data is on a missing device only: lost unless the device returns.
    pub only_on_missing: Vec<(DeviceId, ExtentId)>,
    /// Absent devices of a volume with two copies, unless excluded by name.
    pub away: Vec<DeviceId>,
    /// Devices excluded according to their own superblocks, provided that none of the other devices is
    /// present.
    pub told: Vec<DeviceId>,
    /// Of the devices that are not current: devices whose end is gone, or that lost acknowledged flushes,
    /// with a sentence each.
    pub cut: Vec<(DeviceId, String)>,
}

impl Report {
    /// True if metadata is damaged, or bytes are lost.
    fn is_damaged(&self) -> bool {
        !self.repairable.is_empty() || !self.fatal.is_empty() || !self.lost.is_empty()
    }

    /// Returns absent devices that are newer than all present devices, if the present devices are `outdated`,
    /// as in [`crate::OpenOptions::outdated`]. The check could not see data that only the absent devices
    /// hold.
    pub fn newer_elsewhere(&self, outdated: &[DeviceId]) -> Vec<DeviceId> {
        let is_current =
            |id: &DeviceId| !self.removed.contains(id) && self.not_current.iter().all(|(of, _)| of != id);
        let devices = (0..self.devices.len() as u16).map(DeviceId);
        newer_elsewhere(devices.filter(is_current), &self.away, &[outdated, &self.told].concat())
    }
}

/// Checks the volume on `devices`, and changes nothing.
///
/// Another daemon may write meanwhile, unseen by the locks of this host. The metadata read is then
/// inconsistent. Damage, or a refusal, therefore counts only if a second reading finds the same result, and
/// nothing was written between the two readings.
///
/// # Errors
/// If the devices are not the devices of a single volume, as in [`crate::Volume::open`]. `Busy` if another
/// daemon writes so often that no two readings agree. Damage is no error, but part of the report.
pub async fn check<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<D>,
    names: &[String],
    adopted: Option<AdoptedDisk>,
) -> Result<Report> {
    check_noted(rt, devices, names, adopted, None).await
}

/// As [`check`], with the notes of the host on the volume ([`crate::OpenOptions::noted`]).
///
/// # Errors
/// As [`check`].
pub async fn check_noted<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<D>,
    names: &[String],
    adopted: Option<AdoptedDisk>,
    noted: Option<Noted>,
) -> Result<Report> {
    let noted = noted.map_or(0, |noted| noted.batch);
    let devices: Vec<Rc<D>> = devices.into_iter().map(Rc::new).collect();
    let mut attempts = Attempts::default();
    let (mut before, mut repeated) = (None, 0);
    loop {
        let examined = examine(rt, &devices, names, adopted, noted, &attempts).await;
        let reading = examined.as_ref().map(|(_, as_of)| *as_of).map_err(Error::clone);
        let counts = before.as_ref() == Some(&reading);
        match examined {
            Ok((Examined::Report(report), _)) if counts || !report.is_damaged() => return Ok(*report),
            // Each attempt finds other devices, because only current devices are judged: attempts are
            // bounded.
            Ok((Examined::Forgetful(found), _)) if counts => {
                attempts.forgetful.extend(found);
                continue;
            }
            Ok(_) if repeated == READINGS => return Err(busy(names)),
            Err(error) if counts || repeated == READINGS || !may_change(&error) => return Err(error),
            _ => before = Some(reading),
        }
        repeated += 1;
        rt.sleep(BETWEEN_READINGS).await;
    }
}

fn busy(names: &[String]) -> Error {
    let text = format!(
        "another daemon serves the volume on {} and writes to it (on another host, or through another name of the \
         devices): stop that daemon, and try again",
        names.join(", ")
    );
    Error::new(ErrorKind::Busy, text)
}

/// Result of one reading.
enum Examined {
    Report(Box<Report>),
    /// Devices that lost acknowledged flushes.
    Forgetful(Vec<Forgetful>),
}

/// Values that every write of a daemon changes: nothing was written between two readings with equal values.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AsOf {
    /// The last opening, and its random number.
    opening: (u64, u64),
    /// Sequence number of the superblocks.
    sequence: u64,
    /// Number of the batch after the batches in the journal.
    next_batch: u64,
}

/// Checks the volume once, with the findings of earlier attempts.
async fn examine<R: Runtime, D: Device>(
    rt: &R,
    devices: &[Rc<D>],
    names: &[String],
    adopted: Option<AdoptedDisk>,
    noted: u64,
    attempts: &Attempts,
) -> Result<(Examined, AsOf)> {
    let mut report = Report::default();
    let is_adopted = |place| adopted.is_some_and(|adopted| adopted.place == place);
    for (_, (device, name)) in devices.iter().zip(names).enumerate().filter(|(place, _)| !is_adopted(*place))
    {
        let found = ask_superblock(rt, device, name).await?;
        // For a device that was cut, `assemble` below reports more.
        let told = found.lost_end();
        for offset in found.damaged.iter().filter(|offset| Some(**offset) != told) {
            report.repairable.push(format!("{name}: the superblock copy at byte {} is damaged", offset.0));
        }
    }
    let Assembled { superblock, devices, clean, anew, lately, away, told, cut, .. } =
        assemble(rt, devices.to_vec(), names, &[], adopted, Lacking::Examined, attempts).await?;
    match superblock.copies {
        1 => report.fatal.extend(cut.iter().map(|(_, what)| what.clone())),
        _ => report.cut.clone_from(&cut),
    }
    report.name.clone_from(&superblock.name);
    (report.away, report.told) = (away, told);
    (report.extent_size, report.volume_size) = (superblock.extent_size, superblock.volume_size);
    report.span_size = superblock.extent_size * u64::from(superblock.span_extents);
    report.devices.clone_from(&superblock.devices);
    let members = Member::all(&superblock, devices, &anew);
    let removed = members.iter().filter(|member| member.state() == DeviceState::Removed);
    report.removed = removed.map(|member| member.id).collect();
    let not_current = members.iter().filter(|member| member.is_lacking());
    report.not_current = not_current.map(|member| (member.id, member.state())).collect();
    let mode = Mode::Strict;
    // The check does not vouch for the disk: vouching does not alter whether the disk has changed.
    let disk = watched(rt, &members, look_at(&members, &superblock, clean, &lately, false)).await?;
    let changed_elsewhere = disk.as_ref().is_some_and(|disk| disk.has_changed);
    let spans = watched(rt, &members, DirtySpans::load(&members, &superblock)).await?;
    let mut input = RecoveryInput {
        members: &members,
        superblock: &superblock,
        mode,
        clean,
        changed_elsewhere,
        dirty_spans: spans.as_ref(),
        log: None,
        cut: &cut,
        noted,
    };
    let checked = check_metadata(&mut input, &mut report, &lately, &cut);
    let (found, next_batch) = watched(rt, &members, checked).await?;
    let as_of =
        AsOf { opening: (superblock.epoch, superblock.owner), sequence: superblock.sequence, next_batch };
    if !found.is_empty() {
        return Ok((Examined::Forgetful(found), as_of));
    }
    report.changed_elsewhere = changed_elsewhere;
    let named = spans.as_ref().map_or(Vec::new(), |spans| spans.ranges(&Shape::of(&superblock)));
    report.older = older_without(&superblock, &lately, clean, &named);
    Ok((Examined::Report(Box::new(report)), as_of))
}

/// Checks the metadata that the superblocks name. Returns devices that lost acknowledged flushes, which make
/// the report void, and the number of the batch after the batches in the journal.
async fn check_metadata<D: Device>(
    input: &mut RecoveryInput<'_, D>,
    report: &mut Report,
    lately: &[DeviceId],
    cut: &[(DeviceId, String)],
) -> Result<(Vec<Forgetful>, u64)> {
    for region in input.superblock.void_regions() {
        let text = format!(
            "{region} is void: a write to the region failed, and the region is rebuilt while the volume \
             is served"
        );
        report.repairable.push(text);
    }
    for image in 0..2 {
        report.repairable.extend(check_image(input, image).await);
    }
    let shape = Shape::of(input.superblock);
    let mut state = State::new(&shape, input.superblock);
    match recover(input, &mut state).await {
        Ok(Replayed { forgetful, found_next, .. }) if !forgetful.is_empty() => Ok((forgetful, found_next)),
        Ok(Replayed { recovery, found_next, .. }) => {
            report.repairable.extend(check_cache_tables(input, &state).await);
            report.only_on_missing = only_copies(input.members, &shape, &state, lately, cut);
            // With one copy, everything on a device missing since.
            let of_missing = |(device, _): &&(DeviceId, ExtentId)| lately.contains(device);
            report.only_on_missing.extend(recovery.given_up.iter().filter(of_missing));
            let on_missing: BTreeSet<ExtentId> = report.only_on_missing.iter().map(|(_, e)| *e).collect();
            report.lost = [state.map.lost(), state.map.partly_lost()].concat();
            let is_kept = |id: &DeviceId| shape.copies == 1 && input.members[id.index()].is_current();
            for (id, _) in cut.iter().filter(|(id, _)| is_kept(id)) {
                report.lost.extend(lost_at_end(&input.members[id.index()], &shape, &state).await?);
            }
            if shape.copies == 1
                && let Err(error) = refuse_cached(&state, cut)
            {
                report.fatal.push(error.to_string());
            }
            report.lost.retain(|extent| !on_missing.contains(extent));
            match damaged_extents(input.members, input.superblock, &shape, &state.map.lost()).await {
                Ok(extents) => report.lost.extend(extents),
                Err(error) => report.fatal.push(error.to_string()),
            }
            report.lost.sort_unstable();
            report.journal_batches = recovery.batches;
            report.mapped_extents = state.map.mapped();
            report.spans = recovery.spans;
            Ok((Vec::new(), found_next))
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            report.fatal.push(error.to_string());
            input.mode = Mode::Repair;
            let mut state = State::new(&shape, input.superblock);
            let Replayed { recovery, found_next, .. } = recover(input, &mut state).await?;
            report.fatal.extend(recovery.damage);
            report.fatal.extend(recovery.warnings);
            report.lost = recovery.lost;
            report.mapped_extents = state.map.mapped();
            Ok((Vec::new(), found_next))
        }
        Err(error) => Err(error),
    }
}
