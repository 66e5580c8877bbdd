//! `braid resize`: changes the size of a volume, with or without a daemon.

use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::attach::block_device::follow_size;
use crate::device::ublk::waiting;
use crate::members::open::{Purpose, handles, open_members, open_options};
use crate::report::changes::ResizeReport;
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::with_notes;
use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use crate::volume::at_rest;
use crate::volume::ring::on_ring;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_engine::{Export, ResizableVolume, Volume};

/// Changes the size of a volume. A served volume stays in use, and an attached block device gets the size,
/// too. The command can be repeated after any interruption.
///
/// # Errors
/// `NoSpace` if the devices lack room, `Invalid` for data beyond a smaller size, `Busy` for a smaller size
/// while guests use the volume, `Degraded` while a device is not in use.
pub fn resize(state: &StateDir, name: &VolumeName, size: Bytes) -> Result<ResizeReport> {
    match Client::connect(state, name) {
        Ok(mut client) => {
            let report: ResizeReport = client.call(Request::Resize { size_bytes: size.0 })?;
            let block_device = follow_size(state, name)?;
            Ok(ResizeReport { block_device, ..report })
        }
        Err(error) if error.kind() == ErrorKind::NotServed => {
            let (_lock, record) = VolumeLock::take_known(state, name, "changed")?;
            refuse_waiting(&record)?;
            resize_at_rest(state, &record, size)
        }
        Err(error) => Err(error),
    }
}

/// Refuses a volume whose ublk device waits for a daemon: the device keeps its size.
fn refuse_waiting(record: &VolumeRecord) -> Result<()> {
    let Some(device) = waiting(&record.uuid).first().map(|device| device.path()) else { return Ok(()) };
    let (name, device) = (&record.name, device.display());
    let problem = format!(
        "{device} of volume '{name}' waits for its daemon, and keeps its size: braid serve {name}, then braid \
         detach {name}, and resize afterwards"
    );
    Err(Error::new(ErrorKind::Busy, problem))
}

fn resize_at_rest(state: &StateDir, record: &VolumeRecord, size: Bytes) -> Result<ResizeReport> {
    on_ring(async |ring| {
        let members = open_members(ring, state, record, Purpose::Use(&[])).await?;
        let (list, lasting) = (&members.list, Lasting::of(state, record));
        let options = with_notes(open_options(record, list, &lasting), state, record);
        let (volume, _) = Volume::open(ring.clone(), handles(list), options.clone())
            .await
            .map_err(|error| members.explain(error))?;
        let former = volume.size();
        let resizable = ResizableVolume::new(ring.clone(), volume, options);
        let resized = resizable.resize(size).await;
        if let Some(failure) = resizable.failure() {
            return Err(failure.into());
        }
        let volume = resizable.volume();
        let left = volume.largest().saturating_sub(volume.size());
        at_rest::close(state, record, &members, &volume, &lasting).await?;
        resized?;
        Ok(ResizeReport {
            name: record.name.to_string(),
            size_bytes: size.0,
            former_bytes: former.0,
            left_bytes: left.0,
            block_device: None,
            untold_guests: Vec::new(),
        })
    })
}
