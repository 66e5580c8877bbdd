//! The daemon's part of `attach` by ublk: serves the volume as a block device of the kernel.
//!
//! The daemon must never open the block device: it would wait for its own answer. The command line therefore
//! looks for users of the device before it asks for the removal.

use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_engine::Export;
use braid_fuse::{FIRST_BYTES, sector_size};
use braid_runtime::Arena;
use braid_ublk::{Server, Settings};
use braid_uring::Ring;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

/// The volume as a block device, attached or not.
pub(crate) struct BlockDoor {
    ring: Ring,
    arena: Arena,
    /// Mark of the volume's devices.
    mark: u64,
    /// True if another daemon can serve the volume after the end of this daemon.
    outlives_daemon: bool,
    server: Rc<RefCell<Option<Rc<Server>>>>,
}

impl BlockDoor {
    /// Returns a closed door for the volume with `uuid`.
    pub fn new(ring: &Ring, arena: &Arena, uuid: &str, outlives_daemon: bool) -> BlockDoor {
        let (ring, arena, mark) = (ring.clone(), arena.clone(), braid_ublk::mark_of(uuid));
        BlockDoor { ring, arena, mark, outlives_daemon, server: Rc::default() }
    }

    /// Returns the block device, if there is one.
    pub fn path(&self) -> Option<PathBuf> {
        self.server.borrow().as_ref().map(|server| server.path())
    }

    /// True if the block device waits for another daemon after the end of this daemon.
    pub fn outlives_daemon(&self) -> bool {
        self.outlives_daemon
    }

    /// Returns the block device if its driver cannot change its size.
    pub async fn fixed_device(&self) -> Result<Option<PathBuf>> {
        let Some(server) = self.server.borrow().clone() else { return Ok(None) };
        Ok((!server.is_resizable().await?).then(|| server.path()))
    }

    /// Gives the block device the size of the volume.
    pub async fn set_size(&self, size: Bytes) -> Result<()> {
        let server = self.server.borrow().clone();
        match server {
            Some(server) => Ok(server.set_size(size).await?),
            None => Ok(()),
        }
    }

    /// Makes the block device. Without a sector size, the content of the volume decides.
    pub async fn open(&self, export: &impl Export, sector: Option<u32>) -> Result<()> {
        let sector = match sector {
            Some(sector) => sector,
            None => self.sector_of(export).await?,
        };
        let sector = Bytes(sector.into());
        let settings = Settings { mark: self.mark, sector, outlives_server: self.outlives_daemon };
        let server = Server::start(&self.ring, export, &self.arena, settings).await?;
        tracing::info!("served as the block device {}", server.path().display());
        self.keep(server);
        Ok(())
    }

    /// Takes over the block device of an earlier daemon, if there is one.
    pub async fn take_over(&self, export: &impl Export) -> Result<()> {
        if let Some(server) = Server::take_over(&self.ring, export, &self.arena, self.mark).await? {
            tracing::info!("the block device {} is served again", server.path().display());
            self.keep(server);
        }
        Ok(())
    }

    async fn sector_of(&self, export: &impl Export) -> Result<u32> {
        let size = export.size();
        let first = self.arena.alloc(Bytes::of_len(FIRST_BYTES).min(size)).await;
        export.read(Bytes::ZERO, &first).await?;
        Ok(first.with_bytes(|first| sector_size(first, size.0)))
    }

    /// Keeps the server until its device is stopped, by any process.
    fn keep(&self, server: Server) {
        let (server, slot) = (Rc::new(server), self.server.clone());
        *slot.borrow_mut() = Some(server.clone());
        self.ring.spawn(async move {
            server.ended().await;
            slot.borrow_mut().take_if(|current| Rc::ptr_eq(current, &server));
            // Another process may have stopped the device without deleting it.
            if let Err(error) = server.stop().await {
                tracing::warn!("{error}");
            }
        });
    }

    /// Removes the block device `checked`, whose users have ended.
    ///
    /// # Errors
    /// `Busy` if the block device is another one: it may be in use.
    pub async fn close(&self, checked: Option<&PathBuf>) -> Result<()> {
        let Some(server) = self.server.borrow().clone() else { return Ok(()) };
        if checked != Some(&server.path()) {
            let problem = format!("{} may be in use: braid detach", server.path().display());
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        server.stop().await?;
        self.server.borrow_mut().take_if(|current| Rc::ptr_eq(current, &server));
        tracing::info!("no longer served as a block device");
        Ok(())
    }

    /// Leaves the block device to the next daemon: answers the requests in service, and no more.
    pub async fn leave(&self) {
        let server = self.server.borrow().clone();
        if let Some(server) = server {
            server.leave().await;
        }
    }
}
