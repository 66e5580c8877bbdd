//! ublk devices of a volume, for commands: each call has a ring of its own.

use crate::Result;
use braid_base::MIB;
use braid_runtime::Arena;
use braid_ublk::{Device, State, mark_of};
use braid_uring::Ring;

/// Operations of a command that are queued between two submissions.
const ENTRIES: u32 = 8;

/// Returns the ublk devices of the volume with `uuid` that no daemon serves. Needs root, unless there are no
/// ublk devices at all.
pub(crate) fn unserved(uuid: &str) -> Result<Vec<Device>> {
    let mark = mark_of(uuid);
    let mut devices = on_ring(async |ring, arena| braid_ublk::devices(ring, arena, mark).await)?;
    devices.retain(|device| device.state != State::Served);
    Ok(devices)
}

/// Returns the ublk devices of the volume with `uuid` whose requests wait for a daemon. Empty for other users
/// than root, who may not ask the driver.
pub(crate) fn waiting(uuid: &str) -> Vec<Device> {
    let mut devices = unserved(uuid).unwrap_or_default();
    devices.retain(|device| device.state != State::Dead);
    devices
}

/// Removes remains without a block device, of a volume that ended with its daemon. A failure is logged: the
/// remains occupy a number of the driver, and nothing else.
pub(crate) fn remove_dead(uuid: &str) {
    for device in unserved(uuid).unwrap_or_default() {
        if device.state == State::Dead
            && let Err(error) = remove(device)
        {
            tracing::warn!("{error}");
        }
    }
}

/// Removes a ublk device that no daemon serves. Waiting requests fail.
pub(crate) fn remove(device: Device) -> Result<()> {
    on_ring(async |ring, arena| device.remove(ring, arena).await)
}

fn on_ring<T>(work: impl AsyncFnOnce(&Ring, &Arena) -> braid_engine::Result<T>) -> Result<T> {
    let arena = Arena::new(MIB);
    let ring = Ring::new(ENTRIES, &arena)?;
    let result = ring.block_on(work(&ring, &arena));
    ring.clear();
    Ok(result?)
}
