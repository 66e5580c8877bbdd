//! `braid check`: is all of a volume's metadata there, twice and sound? And `--repair`, which writes it anew
//! from what is sound.

use crate::Result;
use crate::serve::ring::on_ring;
use crate::volume::at_rest;
use crate::volume::lasting::Lasting;
use crate::volume::lock::VolumeLock;
use crate::volume::members::{
    Purpose, adopted_disk, handles, names, open_members, open_members_to_read, open_options,
};
use crate::volume::noted::{noted, with_notes};
use crate::volume::state_dir::{StateDir, VolumeName, VolumeRecord};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_engine::{OpenOptions, Volume};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckReport {
    /// The volume.
    pub name: String,
    /// Whether nothing is damaged.
    pub clean: bool,
    /// Damage that a second copy makes good: `--repair` writes it anew.
    pub repairable: Vec<String>,
    /// Damage that nothing makes good.
    pub fatal: Vec<String>,
    /// Devices that do not hold what they should: missing, failed, or to be brought up to date.
    pub degraded: Vec<String>,
    /// Ranges of the volume whose bytes are lost: what a repair gives up, or has given up, or lay on a device
    /// that was given up.
    pub lost: Vec<LostRange>,
    /// Ranges of which a missing device alone holds what was written last: what giving it up would cost.
    pub only_on_missing: Vec<MissingRange>,
    /// Bytes of the volume whose copies the next serving resynchronises, in whole spans.
    pub resync_bytes: u64,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Journal batches that the next serving replays; some are normal.
    pub journal_batches: u64,
    /// Whether a repair was made, after which this was found.
    pub repaired: bool,
}

/// A range of a volume whose bytes cannot be proved to lie anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostRange {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

impl LostRange {
    pub(crate) fn of(range: &Range<Bytes>) -> LostRange {
        LostRange { offset_bytes: range.start.0, length_bytes: (range.end - range.start).0 }
    }
}

/// A range of a volume whose newest bytes one device alone holds, which is missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingRange {
    /// The device: `d0`.
    pub device: String,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

fn missing_ranges(found: &braid_engine::Report, outdated: &[DeviceId]) -> Vec<MissingRange> {
    let newer = found.newer_elsewhere(outdated);
    if !newer.is_empty() {
        // What is there does not know how much that is.
        let length_bytes = found.volume_size.0;
        let all =
            |device: DeviceId| MissingRange { device: device.to_string(), offset_bytes: 0, length_bytes };
        return newer.into_iter().map(all).collect();
    }
    let of_devices = found.only_on_missing.chunk_by(|a, b| a.0 == b.0);
    let of_device = |only: &[(DeviceId, ExtentId)]| {
        let extents: Vec<ExtentId> = only.iter().map(|(_, extent)| *extent).collect();
        let (device, ranges) = (only[0].0.to_string(), ranges(&extents, found.extent_size));
        let range = move |LostRange { offset_bytes, length_bytes }| MissingRange {
            device: device.clone(),
            offset_bytes,
            length_bytes,
        };
        ranges.into_iter().map(range)
    };
    let older = found.older.iter().map(|(device, range)| MissingRange {
        device: device.to_string(),
        offset_bytes: range.start.0,
        length_bytes: (range.end - range.start).0,
    });
    of_devices.flat_map(of_device).chain(older).collect()
}

/// Runs of extents as ranges.
pub(crate) fn ranges(extents: &[ExtentId], extent_size: Bytes) -> Vec<LostRange> {
    let runs = extents.chunk_by(|a, b| a.0 + 1 == b.0);
    let range = |run: &[ExtentId]| LostRange {
        offset_bytes: (extent_size * u64::from(run[0].0)).0,
        length_bytes: (extent_size * run.len() as u64).0,
    };
    runs.map(range).collect()
}

impl CheckReport {
    /// `outdated` are the devices that this host knows to be older than the others.
    pub(crate) fn new(name: &str, found: braid_engine::Report, outdated: &[DeviceId]) -> CheckReport {
        let only_on_missing = missing_ranges(&found, outdated);
        CheckReport {
            name: name.to_owned(),
            clean: found.repairable.is_empty() && found.fatal.is_empty(),
            repairable: found.repairable,
            fatal: found.fatal,
            degraded: found
                .not_current
                .iter()
                .map(|(device, state)| match found.cut.iter().find(|(cut, _)| cut == device) {
                    Some((_, what)) => what.clone(),
                    None => format!("{device} is {state}"),
                })
                .collect(),
            lost: ranges(&found.lost, found.extent_size),
            only_on_missing,
            resync_bytes: (found.span_size * u64::from(found.spans)).0,
            mapped_extents: found.mapped_extents,
            journal_batches: found.journal_batches,
            repaired: false,
        }
    }

    /// The exit status of a check: 0 clean, 1 damage that another copy makes good or a device that lacks
    /// something, 3 data is lost.
    pub fn exit_status(&self) -> u8 {
        match self.fatal.is_empty() && self.lost.is_empty() {
            false => 3,
            true if self.clean && self.degraded.is_empty() => 0,
            true => 1,
        }
    }
}

/// Checks a volume that no daemon serves. Changes nothing, and needs no right to.
pub fn check(state: &StateDir, name: &VolumeName) -> Result<CheckReport> {
    let _lock = VolumeLock::share(state, name)?;
    check_known(state, &state.load(name)?)
}

/// The same under the lock.
pub(crate) fn check_known(state: &StateDir, record: &VolumeRecord) -> Result<CheckReport> {
    on_ring(async |ring| {
        let members = open_members_to_read(ring, state, record).await?;
        let list = &members.list;
        let (names, adopted, noted) = (names(list), adopted_disk(list), noted(state, record));
        let found = braid_engine::check_noted(ring, handles(list), &names, adopted, Some(noted))
            .await
            .map_err(|error| members.explain(error))?;
        members.refuse_other_disk(record)?;
        Ok(CheckReport::new(record.name.as_str(), found, &record.outdated()))
    })
}

/// Writes superblocks and both map images of a volume anew, and checks it again. What cannot be proved is
/// given up: these ranges are listed, and read as errors until they are written whole or discarded. So do
/// those on devices in `distrust`, which are given up.
pub fn repair(state: &StateDir, name: &VolumeName, distrust: &[DeviceId]) -> Result<CheckReport> {
    let (lock, record) = VolumeLock::take_known(state, name, "repaired")?;
    // Opening writes the superblocks; closing writes the map.
    let (lost, warnings) = on_ring(async |ring| {
        let members = open_members(ring, state, &record, Purpose::Repair(distrust)).await?;
        let list = &members.list;
        let lasting = Lasting::of(state, &record);
        let open = open_options(&record, list, &lasting);
        let options = OpenOptions { repair: true, distrust: distrust.to_vec(), ..open };
        let options = with_notes(options, state, &record);
        let (volume, recovery) = Volume::open(ring.clone(), handles(list), options)
            .await
            .map_err(|error| members.explain(error))?;
        at_rest::close(state, &record, &members, (&volume, &lasting)).await?;
        let lost = ranges(&recovery.lost, volume.status().shape.extent_size);
        let older = recovery.older.iter().map(LostRange::of);
        Ok((lost.into_iter().chain(older).collect::<Vec<_>>(), recovery.warnings))
    })?;
    drop(lock);
    let found = check(state, name)?;
    // The repair has written the last superblock copy anew: nothing else tells of this from now on.
    let fatal = [warnings, found.fatal.clone()].concat();
    Ok(CheckReport { repaired: true, clean: found.clean && fatal.is_empty(), lost, fatal, ..found })
}
