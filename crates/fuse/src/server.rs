//! Serves an export to the kernel as one file in a directory: the daemon's side.
//!
//! A fixed number of tasks, one for each request that may be in flight. The tasks take turns at the channel:
//! the task with the turn receives one request into the inbox, passes the turn on, serves, and answers. There
//! is therefore no queue between receiving and serving, no task and no allocation per request. Requests that
//! are not yet received wait in the kernel.
//!
//! All happens on the shard's own thread. The library `fuser` receives on a thread of its own: each request
//! would be handed over to the shard and, without unsafe code, each write copied once more, through memory
//! that no arena bounds. The benchmark `fuse-wire` of `braid-bench` compares both.
//!
//! The arena may be shared with the engine. A write of up to [`COPIED`] is copied out of the inbox into a
//! buffer of its size. A larger write keeps the inbox, and a new inbox is taken if the arena has room at
//! once. The task with the turn may wait for a buffer while holding the inbox: no other task needs the inbox,
//! so all other buffers come back.

use crate::connection::{Connection, Received, prepare};
use crate::protocol::{FILE_NAME, Operation, Request};
use crate::reply::{Reply, Terms};
use crate::serve::{Service, lead_of};
use braid_base::Bytes;
use braid_engine::{Error, Export, Result};
use braid_runtime::{Arena, Buf, Event, LockTable, Mode};
use braid_uring::Ring;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A mounted directory with the volume's file, served until unmounted. Dropping the handle changes nothing.
pub struct Server {
    channel: Rc<Channel>,
    file: PathBuf,
}

/// State shared by the tasks.
struct Channel {
    connection: Rc<Connection>,
    arena: Arena,
    /// Buffer for the next request's bytes.
    inbox: RefCell<Buf>,
    /// One lock, number 0: the turn to receive.
    turn: LockTable,
    tasks: Cell<u16>,
    ended: Event,
    failure: RefCell<Option<Error>>,
}

/// Writes up to this size are copied out of the inbox: cheaper than exchanging a buffer of 1 MiB.
const COPIED: Bytes = Bytes(64 << 10);

impl Server {
    /// Mounts `directory` (made if missing) and serves `export` there, up to `in_flight` requests at a time,
    /// as tasks of `ring`. `mount` lists `name` as the source. A mount left by a killed daemon is removed.
    ///
    /// The serving process must never open the file itself: the process would wait for its own answer.
    ///
    /// # Errors
    /// If the directory cannot be mounted (mounting needs root), or another daemon serves there.
    pub async fn start<E: Export>(
        ring: &Ring,
        export: E,
        arena: &Arena,
        directory: &Path,
        name: &str,
        in_flight: u16,
    ) -> Result<Server> {
        prepare(directory)?;
        let inbox = arena.alloc(Arena::LARGEST).await;
        let connection = Rc::new(Connection::open(directory, name)?);
        let in_flight = in_flight.max(1);
        let service = Service {
            owner: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
            terms: Terms { in_flight, largest: Arena::LARGEST },
            export,
            arena: arena.clone(),
            connection: connection.clone(),
        };
        let channel = Rc::new(Channel {
            connection,
            arena: arena.clone(),
            inbox: RefCell::new(inbox),
            turn: LockTable::default(),
            tasks: Cell::new(in_flight),
            ended: Event::default(),
            failure: RefCell::default(),
        });
        for _ in 0..in_flight {
            ring.spawn(run(ring.clone(), channel.clone(), service.clone()));
        }
        Ok(Server { channel, file: directory.join(FILE_NAME) })
    }

    /// Path of the volume's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Tells the kernel that the size of the export has changed: the kernel asks for the attributes of the
    /// file at the next `stat`. A loop device keeps its size until [`crate::LoopAttachment::follow_size`].
    pub fn note_size(&self) {
        self.channel.connection.send(&Reply::attributes_changed());
    }

    /// Unmounts, and waits until every request is answered.
    ///
    /// # Errors
    /// `ResourceBusy` if the file is open, for example by a loop device: detach the loop device first. The
    /// server then continues.
    pub async fn stop(&self) -> io::Result<()> {
        self.channel.connection.unmount()?;
        self.ended().await.map_err(io::Error::other)
    }

    /// Detaches the mount from the directory tree. Programs with the file open are served until they close
    /// the file, or until this process ends; then their requests fail.
    pub fn unmount_lazily(&self) -> io::Result<()> {
        self.channel.connection.unmount_lazily()
    }

    /// Completes when the directory is unmounted, by any process, and every request is answered.
    ///
    /// # Errors
    /// If the channel failed instead.
    pub async fn ended(&self) -> Result<()> {
        let channel = &self.channel;
        channel.ended.wait_for(|| (channel.tasks.get() == 0).then_some(())).await;
        channel.failure.borrow_mut().take().map_or(Ok(()), Err)
    }
}

/// Task that receives, serves and answers requests until the mount is gone.
async fn run<E: Export>(ring: Ring, channel: Rc<Channel>, service: Service<E>) {
    loop {
        match channel.receive(&ring).await {
            Ok(Some((request, bytes))) => service.answer(request, bytes).await,
            Ok(None) => break,
            Err(error) => {
                channel.failure.borrow_mut().get_or_insert(error);
                break;
            }
        }
    }
    channel.tasks.set(channel.tasks.get() - 1);
    channel.ended.notify();
}

impl Channel {
    /// Next request, with the bytes of a write; `None` once the mount is gone.
    async fn receive(&self, ring: &Ring) -> Result<Option<(Request, Option<Buf>)>> {
        let _turn = self.turn.lock(0, Mode::Exclusive).await;
        loop {
            let inbox = self.inbox.borrow().clone();
            match self.connection.try_receive(&inbox)? {
                Received::Ended => return Ok(None),
                Received::Request(request) => {
                    return Ok(Some((request, self.take_bytes(&request, inbox).await)));
                }
                // An error of the wait appears in the next receive, too.
                Received::Nothing => drop(ring.readable(&self.connection).await),
            }
        }
    }

    /// Takes a write's bytes out of the inbox, so that the next request can land there.
    async fn take_bytes(&self, request: &Request, inbox: Buf) -> Option<Buf> {
        let Operation::Write { offset, len, .. } = request.operation else { return None };
        if len == Bytes::ZERO || len > inbox.len() {
            return None;
        }
        let bytes = inbox.slice(Bytes::ZERO..len);
        let lead = lead_of(offset, len);
        if len > COPIED
            && let Some(fresh) = self.arena.try_alloc(Arena::LARGEST)
        {
            self.inbox.replace(fresh);
            if lead == Bytes::ZERO {
                return Some(bytes);
            }
            inbox.copy_from(lead, &bytes);
            return Some(inbox.slice(lead..lead + len));
        }
        let copy = self.arena.alloc(lead + len).await;
        copy.copy_from(lead, &bytes);
        Some(if lead == Bytes::ZERO { copy } else { copy.slice(lead..lead + len) })
    }
}
