//! Servers of one FUSE file in memory: Braid's own wire, and the library `fuser` in two designs. For the
//! benchmark `fuse-wire`, which runs each server in a process of its own.

mod library;
mod memory;
mod shard;

use anyhow::{Context, Result};
use braid_base::{Bytes, MIB};
use braid_fuse::{Server, VOLUME_FILE};
use braid_runtime::Arena;
use braid_uring::{Ring, mailbox};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use library::{Answers, Library};
use memory::Memory;
use shard::Shard;
use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of the file.
pub const SIZE: Bytes = Bytes(256 << 20);
/// Requests in flight that the kernel may keep, as in a daemon.
const IN_FLIGHT: u16 = 64;
/// Memory for requests: the half of a daemon's arena that its frontends may use.
const ARENA: Bytes = Bytes(48 << 20);
/// Operations of a ring between two submissions, as in a daemon.
const ENTRIES: u32 = 256;

/// Design of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// Braid's `Server`: the shard's thread receives, serves and answers.
    Braid,
    /// The library's thread receives and hands each request to the shard's thread by a mailbox, an eventfd
    /// waking the shard. The shard's thread serves and answers.
    Library,
    /// The library's thread receives, serves and answers. No candidate, because an engine lives on the
    /// shard's thread: a bound for what any design with the library can reach.
    Bound,
}

impl Design {
    /// All designs.
    pub const ALL: [Design; 3] = [Design::Braid, Design::Library, Design::Bound];

    /// Design of a name.
    pub fn named(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|design| design.to_string() == name)
    }

    /// Mounts `directory`, prints a line once the file can be opened, serves until the standard input ends,
    /// and unmounts. `threads` receive in the library's designs.
    ///
    /// # Errors
    /// If the directory cannot be mounted, or a server fails.
    pub fn serve(self, directory: &Path, threads: usize) -> Result<()> {
        let memory = Memory::new(SIZE);
        if self == Design::Bound {
            let session = mount(Library::new(memory, Answers::Itself), directory, threads)?;
            ready()?;
            std::io::stdin().read_to_end(&mut Vec::new())?;
            return Ok(session.umount_and_join()?);
        }
        let arena = Arena::new(ARENA);
        let ring = Ring::new(ENTRIES, &arena)?;
        let served = ring.block_on(async {
            match self {
                Design::Braid => serve_ourselves(&ring, &arena, memory, directory).await,
                _ => serve_by_library(&ring, arena, memory, directory, threads).await,
            }
        });
        ring.clear();
        served
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Design::Braid => "braid",
            Design::Library => "fuser",
            Design::Bound => "bound",
        })
    }
}

/// Path of the file that a server serves in `directory`.
pub fn file(directory: &Path) -> PathBuf {
    directory.join(VOLUME_FILE)
}

async fn serve_ourselves(ring: &Ring, arena: &Arena, memory: Memory, directory: &Path) -> Result<()> {
    let server = Server::start(ring, memory, arena, directory, "fuse-wire", IN_FLIGHT).await?;
    ready()?;
    ring.readable(&std::io::stdin()).await?;
    if server.stop().await.is_err() {
        // A program that was interrupted may not have closed the file yet.
        server.unmount_lazily()?;
        server.ended().await?;
    }
    Ok(())
}

async fn serve_by_library(
    ring: &Ring,
    arena: Arena,
    memory: Memory,
    directory: &Path,
    threads: usize,
) -> Result<()> {
    let (sender, receiver) = mailbox(ring, usize::from(IN_FLIGHT))?;
    let spare = Arc::default();
    Shard::start(ring, arena, memory.clone(), receiver, Arc::clone(&spare), IN_FLIGHT);
    let session = mount(Library::new(memory, Answers::Shard(sender, spare)), directory, threads)?;
    ready()?;
    ring.readable(&std::io::stdin()).await?;
    Ok(session.umount_and_join()?)
}

/// Mounts with the options of Braid's server.
fn mount(library: Library, directory: &Path, threads: usize) -> Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("fuse-wire".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::CUSTOM(format!("max_read={}", MIB.0)),
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    let session = Session::new(library, directory, &config)?;
    session.spawn().context("starting the library's thread")
}

fn ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    Ok(out.flush()?)
}
