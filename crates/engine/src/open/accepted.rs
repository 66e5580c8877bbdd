//! Fourth stage of an opening: the losses are accepted, and the policy is known.

use super::again::Attempted;
use super::dirty_blocks::{dirty_blocks, older_without, refuse_lost_homes};
use super::{Assembled, Found, Judged, OpenOptions, Recovered, refuse_only_copies};
use crate::adopted::{self, DiskSums};
use crate::devices::watched;
use crate::epochs::{self, Adopted};
use crate::policy::PolicyStates;
use crate::request::Guests;
use crate::{Error, ErrorKind, Result};
use braid_format::superblock::{DirtyBlocks, Features};
use braid_policy::{BadSetting, Policy};
use braid_runtime::{Device, Runtime};

/// A volume that can be served. Nothing has been changed.
pub(super) struct Accepted<D> {
    pub recovered: Recovered<D>,
    /// Sums of the adopted disk.
    pub sums: Option<DiskSums>,
    pub policy: Box<dyn Policy>,
    /// What the policy lacks.
    pub lack: Option<BadSetting>,
    pub policy_states: PolicyStates,
    pub guests: Guests,
}

impl<D: Device> Accepted<D> {
    /// Decides on the losses, and completes the superblock and the report.
    ///
    /// # Errors
    /// Refuses the loss of an only copy or of a home, a changed adopted disk, and an unknown policy.
    pub async fn read<R: Runtime>(
        rt: &R,
        mut recovered: Recovered<D>,
        options: &OpenOptions,
    ) -> Attempted<Accepted<D>, D> {
        let sums = accept_losses(rt, &mut recovered, options).await?;
        let Recovered { judged, state, replayed, .. } = &mut recovered;
        let Found { assembled: Assembled { superblock, without, .. }, shape, members } = &judged.found;
        state.count_all_dirty();
        state.count_all_exposed();
        for member in members {
            state.views[member.id.index()].node = member.node();
            if !member.is_filled() {
                state.set_open(member.id, false);
            }
        }
        let (policy, lack) =
            braid_policy::parse_in_charge(&superblock.policy, &state.views).map_err(|e| {
                let text = format!("the last policy of volume '{}': {e}", superblock.name);
                Error::new(ErrorKind::Unsupported, text)
            })?;
        refuse_lost_homes(superblock, without, &replayed.recovery.given_up, policy.keeps_homes())?;
        let policy_states = watched(rt, members, PolicyStates::read(members, superblock)).await;
        let guests = Guests::new(options.cache_extents, options.readahead, options.ahead, shape.extent_size)?;
        if options.repair {
            state.mark_all_stale(superblock.spans());
        }
        Ok(Accepted { recovered, sums, policy, lack, policy_states, guests })
    }
}

/// Decides on the losses of this opening, and notes them in the superblock and the report.
async fn accept_losses<R: Runtime, D: Device>(
    rt: &R,
    recovered: &mut Recovered<D>,
    options: &OpenOptions,
) -> Result<Option<DiskSums>> {
    let Recovered { judged: Judged { found, disk, older, image, .. }, state, replayed, .. } = recovered;
    let Found { assembled, shape, members } = found;
    let Assembled { superblock, clean, lately, went_without, cut, .. } = assembled;
    let recovery = &mut replayed.recovery;
    if image.as_ref().is_some_and(Adopted::is_unapplied) {
        superblock.features.incompat |= Features::UNAPPLIED;
    }
    if let Err(error) = refuse_only_copies(members, superblock, shape, state, lately, cut) {
        let refused = epochs::or_recover(error, members, superblock, *went_without);
        return Err(watched(rt, members, refused).await);
    }
    let older = older_without(superblock, lately, *clean, older);
    superblock.dirty_blocks = match older.is_empty() || superblock.adopted().is_some() {
        true => dirty_blocks(state.extras.dirty()),
        // If this opening is interrupted, the next opening reports the same.
        false => DirtyBlocks::Possible,
    };
    recovery.older.extend(older.into_iter().map(|(_, range)| range));
    let is_forced = options.adopted.is_some_and(|adopted| adopted.force);
    adopted::accept(disk.take(), superblock, state, recovery, &options.distrust, is_forced)
}
