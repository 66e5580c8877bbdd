//! Another size of a served volume: requests of guests wait while the volume closes and opens again.

use crate::report::changes::ResizeReport;
use crate::served::ServedVolume;
use crate::state::noted::note;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_engine::Export;

impl ServedVolume {
    /// Changes the size of the volume.
    ///
    /// # Errors
    /// `Busy` for a smaller size while guests use the volume, and during a recording, whose trace names the
    /// size. `Invalid`, `NoSpace` and `Degraded` as in [`braid_engine::ResizableVolume::resize`]. If the
    /// volume could not be opened again, the daemon ends.
    pub async fn resize(&self, size: Bytes) -> Result<ResizeReport> {
        let _alone = self.adding.acquire(1).await;
        let (name, former) = (&self.name, self.volume.size());
        let busy = |problem: String| Err(Error::new(ErrorKind::Busy, problem));
        if self.frontends.recorder().is_busy() {
            return busy(format!("volume '{name}' is being recorded: end the recording first"));
        }
        if size < former
            && let Some(user) = self.frontends.user()
        {
            return busy(format!(
                "volume '{name}' cannot shrink while it is in use: {user}; end the clients and virtual machines, and braid detach {name}"
            ));
        }
        if size != former
            && let Some(device) = self.frontends.fixed_device().await?
        {
            return busy(format!(
                "volume '{name}' is attached as {}, which keeps its size before Linux 6.16: braid detach {name}, then \
                 resize and attach; or attach with --via loop, which follows the size",
                device.display()
            ));
        }
        let resized = self.volume.resize(size).await;
        if let Some(failure) = self.volume.failure() {
            tracing::error!("volume '{name}': {failure}");
            self.end.request();
        } else if size != former {
            self.note_opening().await;
        }
        resized?;
        let guests = self.frontends.note_size().await.map_err(|error| {
            let problem = format!(
                "volume '{name}' has the new size, and its block device has not: {error}; repeat the command"
            );
            Error::new(ErrorKind::Io, problem)
        })?;
        let untold_guests = if size == former { Vec::new() } else { guests };
        tracing::info!("volume '{name}' has {size}, before {former}");
        Ok(ResizeReport {
            name: name.to_string(),
            size_bytes: size.0,
            former_bytes: former.0,
            left_bytes: self.left_bytes(),
            block_device: None,
            untold_guests,
        })
    }

    /// Returns the bytes by which the volume could grow.
    pub fn left_bytes(&self) -> u64 {
        let volume = self.volume();
        volume.largest().saturating_sub(volume.size()).0
    }

    /// Notes the new opening in the state directory.
    async fn note_opening(&self) {
        let (state, name, noted) = (self.state.clone(), self.name.clone(), self.volume().noted());
        let (uuid, log) = (self.volume().superblock().volume.to_string(), self.lasting.noted().cloned());
        let noted = self.aside(move || note(&state, &name, &uuid, noted, log.as_ref())).await;
        if let Err(error) = noted {
            tracing::warn!("the opening of volume '{}' could not be recorded: {error}", self.name);
        }
    }
}
