//! `braid check`: is all of a volume's metadata there, twice and sound? And `--repair`, which writes it anew from what is
//! sound.

use crate::lock::VolumeLock;
use crate::members::{handles, names, open_members, open_members_to_read};
use crate::ring::on_ring;
use crate::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_engine::{OpenOptions, Volume};
use serde::{Deserialize, Serialize};

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
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Journal batches that the next serving replays; some are normal.
    pub journal_batches: u64,
    /// Whether a repair was made, after which this was found.
    pub repaired: bool,
}

impl CheckReport {
    pub(crate) fn new(name: &str, found: braid_engine::Report) -> CheckReport {
        CheckReport {
            name: name.to_owned(),
            clean: found.repairable.is_empty() && found.fatal.is_empty(),
            repairable: found.repairable,
            fatal: found.fatal,
            mapped_extents: found.mapped_extents,
            journal_batches: found.journal_batches,
            repaired: false,
        }
    }

    /// The exit status of a check: 0 clean, 1 damage that can be repaired, 3 damage that cannot.
    pub fn exit_status(&self) -> u8 {
        match (self.clean, self.fatal.is_empty()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 3,
        }
    }
}

/// Checks a volume that no daemon serves. Changes nothing, and needs no right to.
pub fn check(state: &StateDir, name: &VolumeName) -> Result<CheckReport> {
    let record = state.load(name)?;
    let _lock = VolumeLock::share(state, name)?;
    on_ring(async |ring| {
        let members = open_members_to_read(ring, &record).await?;
        let found = braid_engine::check(handles(&members), &names(&members)).await?;
        Ok(CheckReport::new(name.as_str(), found))
    })
}

/// Writes superblocks and both map images of a volume anew, from what is sound, and checks it again.
///
/// # Errors
/// `Corrupt` where something is damaged that nothing makes good: then nothing was changed.
pub fn repair(state: &StateDir, name: &VolumeName) -> Result<CheckReport> {
    let before = check(state, name)?;
    if !before.fatal.is_empty() {
        let problem = format!(
            "volume '{name}' cannot be repaired, and nothing was changed: {}; restore it from another copy",
            before.fatal.join("; ")
        );
        return Err(Error::new(ErrorKind::Corrupt, problem));
    }
    rewrite(state, name)?;
    Ok(CheckReport { repaired: true, ..check(state, name)? })
}

/// Opening writes the superblocks; closing writes the map.
fn rewrite(state: &StateDir, name: &VolumeName) -> Result<()> {
    let record = state.load(name)?;
    let _lock = VolumeLock::take(state, name, "repaired")?;
    on_ring(async |ring| {
        let members = open_members(ring, &record).await?;
        let options = OpenOptions { repair: true, ..OpenOptions::new(names(&members)) };
        let (volume, _) = Volume::open(ring.clone(), handles(&members), options).await?;
        Ok(volume.close().await?)
    })
}
