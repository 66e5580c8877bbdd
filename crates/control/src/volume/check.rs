//! `braid check`: checks that a volume's metadata is complete, in two copies and sound. `--repair` rewrites
//! the metadata from sound copies.

use crate::Result;
use crate::members::open::{
    Purpose, adopted_disk, handles, names, open_members, open_members_to_read, open_options,
};
use crate::report::ranges::{LostRange, MissingRange, ranges};
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::{noted, with_notes};
use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use crate::volume::at_rest;
use crate::volume::ring::on_ring;
use braid_base::{DeviceId, ExtentId};
use braid_engine::{OpenOptions, Volume};
use serde::{Deserialize, Serialize};

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckReport {
    /// The volume.
    pub name: String,
    /// True if nothing is damaged.
    pub clean: bool,
    /// Damage with a sound second copy: `--repair` writes the damaged copy again.
    pub repairable: Vec<String>,
    /// Damage without a sound copy.
    pub fatal: Vec<String>,
    /// Devices without their full content: missing, failed, or waiting for a resync.
    pub degraded: Vec<String>,
    /// Ranges of the volume whose bytes are lost: by a repair now or earlier, or on an excluded device.
    pub lost: Vec<LostRange>,
    /// Ranges whose newest bytes are on a missing device alone: excluding the device would lose these bytes.
    pub only_on_missing: Vec<MissingRange>,
    /// Bytes of the volume whose copies the next serving resynchronises, in whole spans.
    pub resync_bytes: u64,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Journal batches that the next serving replays; some are normal.
    pub journal_batches: u64,
    /// True if a repair was made before this check.
    pub repaired: bool,
}

fn missing_ranges(found: &braid_engine::Report, outdated: &[DeviceId]) -> Vec<MissingRange> {
    let newer = found.newer_elsewhere(outdated);
    if !newer.is_empty() {
        // The devices that are there do not know how much is newer: report the whole volume.
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

impl CheckReport {
    /// Makes the report from the engine's findings. `outdated`: devices known on this host to be older than
    /// the others.
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

    /// Returns the exit status of a check: 0 clean; 1 damage with a sound second copy, or a device without
    /// its full content; 3 data is lost.
    pub fn exit_status(&self) -> u8 {
        match self.fatal.is_empty() && self.lost.is_empty() {
            false => 3,
            true if self.clean && self.degraded.is_empty() => 0,
            true => 1,
        }
    }
}

/// Checks a volume that no daemon serves. Changes nothing, and needs no write permission.
pub fn check(state: &StateDir, name: &VolumeName) -> Result<CheckReport> {
    let _lock = VolumeLock::share(state, name)?;
    check_known(state, &state.load(name)?)
}

/// Checks a volume as [`check`]. The caller holds the lock.
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

/// Rewrites the superblocks and both map images of a volume, and checks the volume again.
///
/// Data without proof is given up: the ranges are listed in the report, and read as errors until they are
/// written whole or discarded. The same holds for ranges lost with the devices in `distrust`, which are
/// excluded.
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
        at_rest::close(state, &record, &members, &volume, &lasting).await?;
        let lost = ranges(&recovery.lost, volume.status().shape.extent_size);
        let older = recovery.older.iter().map(LostRange::of);
        Ok((lost.into_iter().chain(older).collect::<Vec<_>>(), recovery.warnings))
    })?;
    drop(lock);
    let found = check(state, name)?;
    // The repair has rewritten the last superblock copy: no later check reports this damage.
    let fatal = [warnings, found.fatal.clone()].concat();
    Ok(CheckReport { repaired: true, clean: found.clean && fatal.is_empty(), lost, fatal, ..found })
}
