//! The end of a command that has opened a volume which no daemon serves.

use crate::Result;
use crate::device::open::OpenDevice;
use crate::volume::lasting::Lasting;
use crate::volume::members::Members;
use crate::volume::noted::note;
use crate::volume::outdated::note_opened;
use crate::volume::state_dir::{StateDir, VolumeRecord};
use braid_engine::Volume;
use braid_uring::Ring;

/// Closes the volume, and notes where its devices are, which of them are outdated, and what it has promised.
/// The pending log of a daemon that died is needed no longer.
///
/// # Errors
/// Those of the close, and of the state directory. The log stays if the close fails.
pub(crate) async fn close(
    state: &StateDir,
    record: &VolumeRecord,
    members: &Members,
    (volume, lasting): (&Volume<Ring, OpenDevice>, &Lasting),
) -> Result<()> {
    let closed = volume.close().await;
    note_opened(state, &record.name, &members.records, &volume.outdated_devices())?;
    closed?;
    lasting.end();
    note(state, &record.name, &record.uuid, (volume.noted(), None))
}
