//! The end of a command that has opened a volume without a daemon.

use crate::Result;
use crate::device::open::OpenDevice;
use crate::members::open::Members;
use crate::state::lasting::Lasting;
use crate::state::noted::note;
use crate::state::outdated::note_opened;
use crate::state::state_dir::{StateDir, VolumeRecord};
use braid_engine::Volume;
use braid_uring::Ring;

/// Closes the volume. Notes the paths of its devices, the outdated devices, and the promises of the volume.
/// Removes the pending log of a dead daemon, which is no longer needed.
///
/// # Errors
/// Errors of the close and of the state directory. If the close fails, the log stays.
pub(crate) async fn close(
    state: &StateDir,
    record: &VolumeRecord,
    members: &Members,
    volume: &Volume<Ring, OpenDevice>,
    lasting: &Lasting,
) -> Result<()> {
    let closed = volume.close().await;
    note_opened(state, &record.name, &members.records, &volume.outdated_devices())?;
    closed?;
    lasting.end();
    note(state, &record.name, &record.uuid, volume.noted(), None)
}
