//! Checking a volume that nobody serves: superblocks, both map images, cache tables, journal, slots.

use crate::adopted::{DirtySpans, look_at};
use crate::copies::{Member, watched};
use crate::epochs::damaged_extents;
use crate::fence::{BETWEEN_READINGS, Noted, READINGS, may_change};
use crate::journal::{Forgetful, Mode, Recovered, Source, check_cache_tables, check_image, recover};
use crate::map::State;
use crate::open::{
    AdoptedDisk, Assembled, Attempts, Lacking, ask_superblock, assemble, lost_at_end, newer_elsewhere,
    newly_lost, older_without, only_copies, refuse_cached,
};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId};
use braid_format::superblock::{DeviceEntry, DeviceState};
use braid_runtime::{Device, Runtime};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The volume's name.
    pub name: String,
    /// Damage that another copy makes good: data is safe, and `--repair` restores the second copy.
    pub repairable: Vec<String>,
    /// Damage that nothing makes good.
    pub fatal: Vec<String>,
    /// Extents whose places are not proved, which a repair would give up, or that are lost already; in order.
    pub lost: Vec<ExtentId>,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Journal batches that the next opening replays.
    pub journal_batches: u64,
    /// Spans whose copies may differ, which the next opening resynchronises.
    pub spans: u32,
    /// How much of the volume a span is.
    pub span_size: Bytes,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// What the guest sees.
    pub volume_size: Bytes,
    /// What the newest superblock says of the device in each place.
    pub devices: Vec<DeviceEntry>,
    /// Places that no device has any more.
    pub removed: Vec<DeviceId>,
    /// Devices that are not current: missing, failed, or to be brought up to date.
    pub not_current: Vec<(DeviceId, DeviceState)>,
    /// Likewise of an adopted disk: ranges that may be older than what was flushed if an SSD that is missing
    /// does not come back.
    pub older: Vec<(DeviceId, Range<Bytes>)>,
    /// Whether the adopted disk was changed while Braid did not serve it.
    pub changed_elsewhere: bool,
    /// What only a device that is missing holds as it was written last: lost if it does not come back.
    pub only_on_missing: Vec<(DeviceId, ExtentId)>,
    /// Devices of a volume with two copies of everything that are not there, and have not been given up by
    /// name.
    pub away: Vec<DeviceId>,
    /// Devices that say themselves that the others went on without them, if none of these others is there.
    pub told: Vec<DeviceId>,
    /// Of the devices that are not current, those whose end is gone, or that lost what they had acknowledged,
    /// with a sentence for each.
    pub cut: Vec<(DeviceId, String)>,
}

impl Report {
    /// Whether metadata is damaged, or bytes are lost.
    fn is_damaged(&self) -> bool {
        !self.repairable.is_empty() || !self.fatal.is_empty() || !self.lost.is_empty()
    }

    /// Devices that are not there and are newer than all that is, if these are known to be `outdated`, as
    /// [`crate::OpenOptions::outdated`] says: what they alone hold the check could not see.
    pub fn newer_elsewhere(&self, outdated: &[DeviceId]) -> Vec<DeviceId> {
        let is_current =
            |id: &DeviceId| !self.removed.contains(id) && self.not_current.iter().all(|(of, _)| of != id);
        let devices = (0..self.devices.len() as u16).map(DeviceId);
        newer_elsewhere(devices.filter(is_current), &self.away, &[outdated, &self.told].concat())
    }
}

/// Checks the volume on `devices`, and changes nothing.
///
/// Another daemon may write meanwhile, which no lock on this host tells of: then what is read does not fit
/// together. So damage, and a refusal, count only if a second reading finds the same, and nothing was written
/// between the two.
///
/// # Errors
/// Where the devices are not those of one volume, as [`crate::Volume::open`] says, and `Busy` if another
/// daemon writes so often that nothing can be said. Damage is in the report.
pub async fn check<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<D>,
    names: &[String],
    adopted: Option<AdoptedDisk>,
) -> Result<Report> {
    check_noted(rt, devices, names, adopted, None).await
}

/// As [`check`], with what the host noted of the volume ([`crate::OpenOptions::noted`]).
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
    let given = (&devices[..], names, adopted);
    let mut attempts = Attempts::default();
    let (mut before, mut repeated) = (None, 0);
    loop {
        let examined = examine(rt, given, noted, &attempts).await;
        let reading = examined.as_ref().map(|(_, as_of)| *as_of).map_err(Error::clone);
        let counts = before.as_ref() == Some(&reading);
        match examined {
            Ok((Examined::Report(report), _)) if counts || !report.is_damaged() => return Ok(*report),
            // Of devices that were current: each time it is another one.
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

/// What came of one reading.
enum Examined {
    Report(Box<Report>),
    /// These devices lack what they had acknowledged.
    Forgetful(Vec<Forgetful>),
}

/// What daemons change when they write: nothing was written between two readings in which this is the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AsOf {
    /// The last opening, and its random number.
    opening: (u64, u64),
    /// Of the superblocks.
    sequence: u64,
    /// The batch that would follow those in the journal.
    next_batch: u64,
}

/// Checks the volume, with what earlier attempts have found.
async fn examine<R: Runtime, D: Device>(
    rt: &R,
    (devices, names, adopted): (&[Rc<D>], &[String], Option<AdoptedDisk>),
    noted: u64,
    attempts: &Attempts,
) -> Result<(Examined, AsOf)> {
    let mut report = Report::default();
    let is_adopted = |place| adopted.is_some_and(|adopted| adopted.place == place);
    for (_, (device, name)) in devices.iter().zip(names).enumerate().filter(|(place, _)| !is_adopted(*place))
    {
        let found = ask_superblock(rt, device, name).await?;
        // Of a device that was cut more is said below.
        let told = found.lost_end();
        for offset in found.damaged.iter().filter(|offset| Some(**offset) != told) {
            report.repairable.push(format!("{name}: the superblock copy at byte {} is damaged", offset.0));
        }
    }
    let Assembled { superblock, devices, clean, anew, lately, away, told, cut, .. } =
        assemble(rt, devices.to_vec(), names, &[], adopted, (Lacking::Examined, attempts)).await?;
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
    // Who says that it is the disk changes nothing of whether it has changed.
    let disk = watched(rt, &members, look_at(&members, &superblock, clean, &lately, false)).await?;
    let changed_elsewhere = disk.as_ref().is_some_and(|disk| disk.has_changed);
    let spans = watched(rt, &members, DirtySpans::load(&members, &superblock)).await?;
    let mut source = Source {
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
    let checked = check_metadata(&mut source, &mut report, (&lately, &cut));
    let (found, next_batch) = watched(rt, &members, checked).await?;
    let as_of =
        AsOf { opening: (superblock.epoch, superblock.owner), sequence: superblock.sequence, next_batch };
    if !found.is_empty() {
        return Ok((Examined::Forgetful(found), as_of));
    }
    report.changed_elsewhere = changed_elsewhere;
    let is_ssd = |device: &&DeviceId| superblock.devices[device.index()].class == DeviceClass::Ssd;
    if let Some(&device) = newly_lost(&superblock, &lately).iter().find(is_ssd)
        && let Some(spans) = &spans
    {
        let ranges = spans.ranges(&Shape::of(&superblock));
        report.older = ranges.into_iter().map(|range| (device, range)).collect();
    }
    report.older.extend(older_without(&superblock, &lately, clean));
    Ok((Examined::Report(Box::new(report)), as_of))
}

/// Checks what the superblocks lead to. Gives devices that lack what they had acknowledged, which make the
/// report void, and the batch that would follow those in the journal.
async fn check_metadata<D: Device>(
    source: &mut Source<'_, D>,
    report: &mut Report,
    (lately, cut): (&[DeviceId], &[(DeviceId, String)]),
) -> Result<(Vec<Forgetful>, u64)> {
    for region in source.superblock.void_regions() {
        let text =
            format!("{region} is void: it could not be written, and is made anew while the volume is served");
        report.repairable.push(text);
    }
    for image in 0..2 {
        report.repairable.extend(check_image(source, image).await);
    }
    let shape = Shape::of(source.superblock);
    let mut state = State::new(&shape, source.superblock);
    match recover(source, &mut state).await {
        Ok(Recovered { forgetful, found_next, .. }) if !forgetful.is_empty() => Ok((forgetful, found_next)),
        Ok(Recovered { recovery, found_next, .. }) => {
            report.repairable.extend(check_cache_tables(source, &state).await);
            report.only_on_missing = only_copies(source.members, &shape, &state, (lately, cut));
            // With one copy, all that lies on a device that is missing since.
            let of_missing = |(device, _): &&(DeviceId, ExtentId)| lately.contains(device);
            report.only_on_missing.extend(recovery.given_up.iter().filter(of_missing));
            let on_missing: BTreeSet<ExtentId> = report.only_on_missing.iter().map(|(_, e)| *e).collect();
            report.lost = [state.map.lost(), state.map.partly_lost()].concat();
            let is_kept = |id: &DeviceId| shape.copies == 1 && source.members[id.index()].is_current();
            for (id, _) in cut.iter().filter(|(id, _)| is_kept(id)) {
                report.lost.extend(lost_at_end(&source.members[id.index()], &shape, &state).await?);
            }
            if shape.copies == 1
                && let Err(error) = refuse_cached(&state, cut)
            {
                report.fatal.push(error.to_string());
            }
            report.lost.retain(|extent| !on_missing.contains(extent));
            match damaged_extents(source.members, source.superblock, &shape, &state.map.lost()).await {
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
            source.mode = Mode::Repair;
            let mut state = State::new(&shape, source.superblock);
            let Recovered { recovery, found_next, .. } = recover(source, &mut state).await?;
            report.fatal.extend(recovery.damage);
            report.fatal.extend(recovery.warnings);
            report.lost = recovery.lost;
            report.mapped_extents = state.map.mapped();
            Ok((Vec::new(), found_next))
        }
        Err(error) => Err(error),
    }
}
