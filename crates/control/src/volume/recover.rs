//! `braid recover`: a volume without its SSDs, from the disk that keeps epochs.

use crate::serve::ring::on_ring;
use crate::volume::check::{MissingRange, check};
use crate::volume::lock::VolumeLock;
use crate::volume::members::{handles, open_members, open_options, with_paths};
use crate::volume::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_engine::{OpenOptions, PastState, Volume};
use braid_runtime::Runtime;
use serde::{Deserialize, Serialize};

/// A volume that was recovered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecoverReport {
    /// The volume.
    pub name: String,
    /// The epoch at the end of which it was what it is now.
    pub epoch: u64,
    /// How long ago that was; null if the clock of the machine that served it did not tell.
    pub age_seconds: Option<f64>,
    /// The devices that were given up, by place.
    pub given_up: Vec<String>,
    /// Where a device that is missing had newer bytes, in whole spans: what is lost lies within these ranges.
    pub only_on_missing: Vec<MissingRange>,
}

/// Makes a volume whose SSDs are gone what its disk alone is: all of the volume as it was at the end of the newest epoch. What was written since
/// is lost, and so is the content of the devices that are missing, should they come back.
///
/// # Errors
/// `Busy` while it is served; `Degraded` if no device is missing, or the disk alone is no state of the volume: nothing was changed then.
pub fn recover(state: &StateDir, name: &VolumeName) -> Result<RecoverReport> {
    let record = state.load(name)?;
    let only_on_missing = check(state, name)?.only_on_missing;
    let _lock = VolumeLock::take(state, name, "recovered")?;
    on_ring(async |ring| {
        let members = open_members(ring, &record).await?;
        let missing = members.iter().filter(|member| member.device.is_none()).map(|member| member.id);
        let distrust: Vec<_> = missing.collect();
        if distrust.is_empty() {
            let problem = format!("volume '{name}' lacks no device: braid serve {name}");
            return Err(Error::new(ErrorKind::Degraded, problem));
        }
        let given_up = distrust.iter().map(ToString::to_string).collect();
        let options = OpenOptions { recover: true, distrust, ..open_options(&members) };
        let (volume, recovery) = Volume::open(ring.clone(), handles(&members), options)
            .await
            .map_err(|error| with_paths(error, &members))?;
        volume.close().await?;
        let PastState { epoch, ended } =
            recovery.adopted.expect("an opening that was to recover has done so, or failed");
        let age = ring.calendar().zip(ended).map(|(now, ended)| now.saturating_sub(ended));
        let age_seconds = age.map(|age| age.as_secs_f64());
        Ok(RecoverReport { name: name.to_string(), epoch, age_seconds, given_up, only_on_missing })
    })
}
