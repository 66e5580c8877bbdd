//! The daemon's part of `attach`: serves the volume as a block device of ublk ([`BlockDoor`]), or as a file
//! in a FUSE mount of its own.
//!
//! The loop device over the file belongs to the command line. The daemon must never open the file: it would
//! wait for its own answer.

use crate::served::block::BlockDoor;
use crate::served::detacher::Detacher;
use crate::served::via::Via;
use crate::state::state_dir::VolumeName;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Nanos};
use braid_engine::Export;
use braid_fuse::{Server, protect_from_reclaim};
use braid_runtime::{Arena, Runtime, Semaphore};
use braid_uring::Ring;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

/// The file or block device that represents the volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AttachReply {
    /// The file, for a loop device; or the block device.
    pub file: PathBuf,
    /// The file's directory, which holds nothing else.
    pub directory: PathBuf,
    /// Way of the attachment. Missing in replies of earlier daemons.
    #[serde(default = "only_loop")]
    pub via: Via,
}

fn only_loop() -> Via {
    Via::Loop
}

/// End of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Detach, if the users end in time.
    Detach,
    /// Leave the block device to the next daemon, with its users, if the block device can wait.
    HandOver,
}

/// The volume as a block device or file, attached or not.
pub(crate) struct Attachment {
    block: BlockDoor,
    ring: Ring,
    arena: Arena,
    name: VolumeName,
    directory: PathBuf,
    server: Rc<RefCell<Option<Rc<Server>>>>,
    /// Serialises attach and detach.
    turn: Semaphore,
    protected: Cell<bool>,
    /// True if a device is memory. Such memory may be mapped larger than the machine's memory: it cannot be
    /// locked.
    lies_in_memory: bool,
}

/// Limit of the kernel's requests in flight.
const IN_FLIGHT: u16 = 64;
/// Time that the end of the daemon waits for a detach.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Delay between two attempts.
const TRY_AGAIN: Nanos = Nanos::from_secs(1);

impl Attachment {
    pub fn new(
        ring: &Ring,
        arena: &Arena,
        name: &VolumeName,
        directory: PathBuf,
        lies_in_memory: bool,
        block: BlockDoor,
    ) -> Attachment {
        Attachment {
            block,
            ring: ring.clone(),
            arena: arena.clone(),
            name: name.clone(),
            directory,
            server: Rc::default(),
            turn: Semaphore::new(1),
            protected: Cell::new(false),
            lies_in_memory,
        }
    }

    /// Returns the file or block device, if the volume is attached.
    pub fn file(&self) -> Option<PathBuf> {
        self.attached().map(|reply| reply.file)
    }

    /// Returns the ublk device of the volume if its size cannot change: the kernel is older than Linux 6.16.
    pub async fn fixed_device(&self) -> Result<Option<PathBuf>> {
        self.block.fixed_device().await
    }

    fn attached(&self) -> Option<AttachReply> {
        let reply = |via| move |file| AttachReply { file, directory: self.directory.clone(), via };
        let file = self.server.borrow().as_ref().map(|server| server.file().to_owned());
        file.map(reply(Via::Loop)).or_else(|| self.block.path().map(reply(Via::Ublk)))
    }

    /// Gives the block device or file the size of the volume.
    pub async fn set_size(&self, size: Bytes) -> Result<()> {
        if let Some(server) = &*self.server.borrow() {
            server.note_size();
        }
        self.block.set_size(size).await
    }

    /// Serves the volume as a block device with sectors of `sector` bytes, or as a file; unless the volume is
    /// attached already, in any way. Without a sector size, the content of the volume decides.
    pub async fn attach(&self, export: &impl Export, via: Via, sector: Option<u32>) -> Result<AttachReply> {
        let _turn = self.turn.acquire(1).await;
        if self.attached().is_none() {
            self.protect();
            let opened = match via {
                Via::Ublk => self.block.open(export, sector).await,
                Via::Loop => self.open_file(export).await,
            };
            opened.map_err(with_user)?;
        }
        // Another process may have ended the attachment just now.
        self.attached().ok_or_else(|| Error::new(ErrorKind::Busy, "the volume was detached: try again"))
    }

    /// Takes over the block device of an earlier daemon, if there is one.
    ///
    /// # Errors
    /// If the block device cannot be served: its users wait.
    pub async fn take_over(&self, export: &impl Export) -> Result<()> {
        let _turn = self.turn.acquire(1).await;
        self.block.take_over(export).await?;
        if self.block.path().is_some() {
            self.protect();
        }
        Ok(())
    }

    async fn open_file(&self, export: &impl Export) -> Result<()> {
        let name = self.name.as_str();
        let started =
            Server::start(&self.ring, export.clone(), &self.arena, &self.directory, name, IN_FLIGHT);
        let server = Rc::new(started.await?);
        tracing::info!("served as the file {}", server.file().display());
        self.watch(server.clone());
        *self.server.borrow_mut() = Some(server);
        Ok(())
    }

    /// Forgets the server when its mount is gone, for any reason.
    fn watch(&self, server: Rc<Server>) {
        let slot = self.server.clone();
        self.ring.spawn(async move {
            if let Err(error) = server.ended().await {
                tracing::error!("the file is no longer served: {error}");
            }
            slot.borrow_mut().take_if(|current| Rc::ptr_eq(current, &server));
        });
    }

    /// Ends serving the volume as a file, or as the block device `checked`, whose users have ended.
    ///
    /// # Errors
    /// `Busy` while the file is open, or if the block device is not `checked`.
    pub async fn detach(&self, checked: Option<&PathBuf>) -> Result<()> {
        let _turn = self.turn.acquire(1).await;
        self.block.close(checked).await?;
        let Some(server) = self.server.borrow().clone() else { return Ok(()) };
        server.stop().await.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                let (file, name) = (server.file().display(), &self.name);
                let problem =
                    format!("{file} is in use, by a block device or a program: braid detach {name}");
                Error::new(ErrorKind::Busy, problem)
            }
            _ => Error::io(format_args!("unmounting {}", self.directory.display()), &error),
        })?;
        tracing::info!("no longer served as a file");
        Ok(())
    }

    /// Detaches at the end of the daemon. `detach` unmounts file systems on the volume and removes the block
    /// device. Tries again for a while if they are in use. [`Attachment::abandon`] returns the result.
    ///
    /// Does nothing for [`Ending::HandOver`] if the block device can wait for the next daemon.
    pub async fn end(&self, ending: Ending, detach: Option<&Detacher>) {
        if ending == Ending::HandOver && self.block.path().is_some() && self.block.outlives_daemon() {
            return;
        }
        let deadline = self.ring.now() + PATIENCE;
        let mut warned = false;
        while self.file().is_some() {
            if let Some(detach) = detach {
                detach.run(&self.ring).await;
            }
            match self.detach(None).await {
                Ok(()) => return,
                Err(error) if error.kind() != ErrorKind::Busy || self.ring.now() >= deadline => return,
                Err(error) if !warned => tracing::warn!("{error}; waiting {PATIENCE} for the users to end"),
                Err(_) => {}
            }
            warned = true;
            self.ring.sleep(TRY_AGAIN).await;
        }
    }

    /// Abandons a file or block device that is still in use. A block device that can wait for the next daemon
    /// does so: nothing is lost.
    ///
    /// # Errors
    /// `Unsafe` if later writes are lost once the daemon has ended.
    pub async fn abandon(&self) -> Result<()> {
        let name = &self.name;
        if let Some(path) = self.block.path() {
            self.block.leave().await;
            if self.block.outlives_daemon() {
                let path = path.display();
                tracing::warn!(
                    "{path} stays, and its requests wait for the next daemon: braid serve {name}; to give up \
                     what waits: braid detach {name} --force"
                );
                return Ok(());
            }
        } else {
            let Some(server) = self.server.borrow().clone() else { return Ok(()) };
            // No other remedy is left; the mount is dead once the daemon has ended.
            let _ = server.unmount_lazily();
        }
        let problem = format!(
            "volume '{name}' is still in use as a block device, and the block device stays without a \
             daemon: unsynced writes may be lost, and all later writes are lost; unmount the block device \
             and run braid detach {name}"
        );
        Err(Error::new(ErrorKind::Unsafe, problem))
    }

    /// Protects the daemon from memory reclaim: a daemon that serves its own machine's kernel must not wait
    /// for memory that only the daemon can free.
    fn protect(&self) {
        if self.lies_in_memory || self.protected.replace(true) {
            return;
        }
        for missing in protect_from_reclaim() {
            tracing::warn!("short of memory, the machine may hang on this volume: {missing}");
        }
    }
}

/// Adds to an error that the daemon has no powers of root, if so.
fn with_user(error: Error) -> Error {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return error;
    }
    let problem = format!(
        "{error}: the daemon runs as user {}: serve the volume as root, without --user, or use the volume by NBD",
        user.as_raw()
    );
    Error::new(error.kind(), problem)
}
