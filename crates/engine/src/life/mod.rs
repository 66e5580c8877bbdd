//! Devices that join or leave an open volume while guests work.
//!
//! ```text
//! add.rs           adds a device: known to all devices first, then counted, then filled
//! remove.rs        removes a device: admission, cancellation, end
//! drain.rs         moves all data off a device
//! leaving_copy.rs  moves one required copy to another slot
//! metadata.rs      moves journal, map and other regions off a device
//! renew.rs         rebuilds a region after a failed write
//! resize.rs        prepares another size: admission, room for metadata
//! adjacent.rs      makes adjacent slots free for metadata
//! fresh.rs         closes the volume with the other size
//! returning.rs     returns a failed or missing device
//! ```
//!
//! A device that has not joined yet, or has left, is *removed* in the table of devices: its place and its
//! slot numbers stay taken, and no data lies there. Every step is therefore one change of the superblocks. An
//! interruption leaves the step before or the step after.

mod add;
mod adjacent;
mod drain;
mod fresh;
mod leaving_copy;
mod metadata;
mod remove;
mod renew;
mod resize;
mod returning;

pub use add::Addition;
pub(crate) use resize::Resizing;

use crate::core::Upkeep;
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::superblock::Superblock;
use braid_policy::{BadSetting, DeviceView, Policy};
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Makes the active policy again for these devices. A missing class is an error, unless the policy lacks
    /// a class already, the volume has an adopted disk, or the leaving device is `lost`.
    fn policy_for(&self, devices: &[DeviceView], lost: bool) -> Result<Box<dyn Policy>> {
        let (policy, lack) = self.policy_with(devices)?;
        // An adopted disk continues without any cache, and any volume without a class that is lacking
        // already.
        let may_lack =
            lost || self.policy.lacks().is_some() || self.store.devices.superblock().adopted().is_some();
        match lack.filter(|_| !may_lack) {
            Some(lack) => Err(Error::new(ErrorKind::Invalid, lack.to_string())),
            None => Ok(policy),
        }
    }

    /// Makes the active policy again for these devices, and returns its lack, if any.
    fn policy_with(&self, devices: &[DeviceView]) -> Result<(Box<dyn Policy>, Option<BadSetting>)> {
        let text = braid_policy::written(&**self.policy.borrow());
        braid_policy::parse_in_charge(&text, devices)
            .map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))
    }

    /// Logs and notes the lack of the policy.
    pub(crate) fn note_lack(&self, lack: Option<BadSetting>) {
        if let Some(lack) = &lack {
            tracing::warn!(
                "volume '{}' uses the present devices: {lack}",
                self.store.devices.superblock().name
            );
        }
        self.policy.note_lack(lack.map(|lack| lack.to_string()));
    }

    /// Takes over a device's slots from the superblock, and makes the policy again for all devices. Both
    /// happen at one instant, since a policy's knowledge is by device. Learned state is kept.
    fn set_device(&self, superblock: &Superblock, device: DeviceId) -> Result<()> {
        let learned = self.extents.with_policy(|policy, view| policy.save(view));
        let count = superblock.devices.len();
        self.moves.budget.set_devices(count);
        self.store.state.borrow_mut().set_device(superblock, device);
        self.store.state.borrow_mut().views[device.index()].node = self.store.member(device).node();
        let (policy, lack) = self.policy_with(&self.store.state.borrow().views)?;
        self.replace_policy(policy);
        self.note_lack(lack);
        self.extents.with_policy(|policy, view| policy.restore(&learned, view));
        Ok(())
    }
}
