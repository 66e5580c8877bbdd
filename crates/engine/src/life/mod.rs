//! Devices that come to an open volume and leave it, while guests work.
//!
//! ```text
//! add.rs     one more device: all know of it before it counts, and it counts before it gets data
//! remove.rs  a device that is to leave: whether it can, the change of mind, its end
//! drain.rs   the job that moves everything off it
//! drains.rs  what is known of devices that are on their way out
//! metadata.rs   the journal, the map and their like move off it, too
//! renew.rs      a region of it that cannot be written is made anew
//! returning.rs  one that failed or was missing, and is back
//! ```
//!
//! A device that is not one of the volume's yet, or is none any more, is *removed* in the table of devices:
//! its place and its slot numbers stay taken, and nothing lies on it. So every step is one change of the
//! superblocks, and an interruption leaves the step before it or the one after it.

mod add;
mod drain;
mod drains;
mod metadata;
mod remove;
mod renew;
mod returning;

pub use add::Addition;
pub use drains::DrainStatus;
pub(crate) use drains::Drains;

use crate::core::Core;
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::DeviceId;
use braid_format::superblock::Superblock;
use braid_policy::{BadSetting, DeviceView, Policy};
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Core<R, D> {
    /// The policy in charge, as it would be made for these devices: if it lacks a class of them already, it
    /// may lack one. `lost` says that a device leaves which is lost.
    fn policy_for(&self, devices: &[DeviceView], lost: bool) -> Result<Box<dyn Policy>> {
        let (policy, lack) = self.policy_with(devices)?;
        // An adopted disk goes on without any cache, and any volume without what it lacks already.
        let may_lack = lost || self.policy.lacks().is_some() || self.devices.superblock().adopted().is_some();
        match lack.filter(|_| !may_lack) {
            Some(lack) => Err(Error::new(ErrorKind::Invalid, lack.to_string())),
            None => Ok(policy),
        }
    }

    /// The policy in charge, as it is made for the devices that there are, with what it lacks.
    fn policy_with(&self, devices: &[DeviceView]) -> Result<(Box<dyn Policy>, Option<BadSetting>)> {
        let text = braid_policy::written(&**self.policy.borrow());
        braid_policy::parse_in_charge(&text, devices)
            .map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))
    }

    /// Tells of what the policy needs and does not have.
    pub(crate) fn note_lack(&self, lack: Option<BadSetting>) {
        if let Some(lack) = &lack {
            tracing::warn!(
                "volume '{}' uses the devices that there are: {lack}",
                self.devices.superblock().name
            );
        }
        self.policy.note_lack(lack.map(|lack| lack.to_string()));
    }
}

impl<R: Runtime, D: Device> Volume<R, D> {
    /// A device has the slots that the superblock says now, and the policy is made anew for the devices that
    /// there are: at the same instant, for what a policy knows is by device. What it has learned it keeps.
    fn set_device(&self, superblock: &Superblock, device: DeviceId) -> Result<()> {
        let core = &self.core;
        let learned = core.with_policy(|policy, view| policy.save(view));
        let count = superblock.devices.len();
        core.moves.set_devices(count);
        core.state.borrow_mut().set_device(superblock, device);
        core.state.borrow_mut().views[device.index()].node = core.member(device).node();
        let (policy, lack) = core.policy_with(&core.state.borrow().views)?;
        self.replace_policy(policy);
        core.note_lack(lack);
        core.with_policy(|policy, view| policy.restore(&learned, view));
        Ok(())
    }
}
