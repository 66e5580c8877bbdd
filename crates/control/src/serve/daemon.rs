//! The daemon of one volume: opens, serves and closes the volume.
//!
//! The daemon has one thread. SIGTERM, SIGINT, SIGHUP or a request on the admin socket ends it, in this
//! order:
//!
//! - The NBD server accepts no new connections, and replies to requests in flight for a bounded time.
//! - File systems mounted from the volume are unmounted.
//! - The volume is closed. The next opening then replays nothing.
//!
//! A second signal ends the wait for clients. If the daemon ends in any other way, unflushed writes are lost,
//! as with any disk.

use crate::admin::server::serve_admin;
use crate::attach::file::Attachment;
use crate::device::open::OpenDevice;
use crate::guard::{self, Guard, Models};
use crate::members::open::{Member, Members, Purpose, handles, open_members, open_options};
use crate::record::recorded::{Recorded, Recorder};
use crate::report::collect::{durability, explain_report, status_report};
use crate::report::types::{Durability, ExplainReport, StatusReport};
use crate::serve::address::{NbdAddress, nbd_uri};
use crate::serve::catch_up::CatchUp;
use crate::serve::devices::{note_changes, note_those_removed};
use crate::serve::doors::Doors;
use crate::serve::recovered::log_recovery;
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::{keep_noted, note, with_notes};
use crate::state::outdated::note_opened;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use crate::volume::create::{make, refuse_known, remove_made};
use crate::volume::policy::check_policy;
use crate::volume::ring::{World, in_world};
use crate::{Error, ErrorKind, NewVolume, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::{AdoptedDisk, OpenOptions, Readahead, Volume};
use braid_nbd::{Server, ServerConfig};
use braid_runtime::{Event, Runtime, Semaphore};
use braid_uring::{Ring, Signal, Signals};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Settings for serving a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Addresses of the NBD exports; empty for a Unix socket in the state directory.
    pub nbd: Vec<NbdAddress>,
    /// Extents in the memory cache.
    pub cache_extents: usize,
    /// When a read brings its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for read-ahead of sequential streams; 0 for none.
    pub ahead: Bytes,
    /// NBD connections at a time, on all addresses together.
    pub clients: usize,
    /// Command that detaches this volume, run when the daemon stops; `None` to leave detaching to the
    /// administrator.
    pub detach: Option<Vec<OsString>>,
    /// Devices whose content is excluded: they are rebuilt from the other devices.
    pub distrust: Vec<DeviceId>,
    /// Write dirty blocks back to an adopted disk even if the disk was changed while Braid did not serve the
    /// volume.
    pub force: bool,
    /// Model for SSDs without a model of their own, by name or file: for simulations of the volume
    /// (`equi,mode=auto`).
    pub ssd_model: Option<String>,
    /// Model for disks without a model of their own, as [`ServeOptions::ssd_model`].
    pub hdd_model: Option<String>,
}

impl Default for ServeOptions {
    /// 100 extents, as in the paper that `wardrop` follows.
    fn default() -> ServeOptions {
        let (nbd, readahead) = (Vec::new(), Readahead::default());
        ServeOptions {
            nbd,
            cache_extents: 100,
            readahead,
            ahead: Bytes::ZERO,
            clients: 32,
            detach: None,
            distrust: Vec::new(),
            force: false,
            ssd_model: None,
            hdd_model: None,
        }
    }
}

impl ServeOptions {
    /// Largest number of clients that the daemon has memory for.
    pub const MOST_CLIENTS: usize = 256;
}

/// Report of a daemon that is ready for connections, for the process that started it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The volume.
    pub name: String,
    /// The URIs of its NBD exports.
    pub nbd_uris: Vec<String>,
    /// The admin socket.
    pub admin_socket: PathBuf,
    /// The daemon's process.
    pub process_id: u32,
}

/// A served volume with its sockets.
pub(crate) struct Daemon {
    pub ring: Ring,
    pub name: VolumeName,
    pub volume: Volume<Ring, OpenDevice>,
    /// Memory that outlives this process: the pending log.
    pub(crate) lasting: Lasting,
    /// The volume as NBD clients and the attached file access it, with recording.
    pub export: Export,
    pub recorder: Rc<Recorder<Ring>>,
    pub guard: Guard,
    /// Models of devices, for ghosts.
    pub models: Models,
    pub options: ServeOptions,
    pub attachment: Attachment,
    pub(crate) state: StateDir,
    pub(crate) members: RefCell<Vec<Member>>,
    /// Devices that the record in the state directory calls outdated; `None` if unknown.
    pub(super) noted: RefCell<Option<Vec<DeviceId>>>,
    /// Paths of the opened devices, until they are in the record.
    pub(super) places: RefCell<Vec<(usize, DeviceRecord)>>,
    /// Serialises changes of `noted` and `places`.
    pub(super) noting: Semaphore,
    pub(super) catch_up: CatchUp,
    nbd: Server<Export>,
    nbd_uris: Vec<String>,
    started: Nanos,
    /// Notified at every change of `stopping` and `closed`.
    changed: Event,
    stopping: Cell<bool>,
    /// Result of closing the volume, once the volume is closed.
    closed: RefCell<Option<Result<()>>>,
    /// Number of admin requests that wait for `closed`.
    waiting: Cell<usize>,
}

type Export = Recorded<Ring, Volume<Ring, OpenDevice>>;

/// Time for a recording client to read the last records.
const LAST_RECORDS: Nanos = Nanos::from_secs(1);
/// Time for the client that asked for the stop to read the result.
const LAST_WORDS: Nanos = Nanos::from_millis(50);

/// Serves a volume until the process is told to stop. Calls `ready` when the server accepts connections.
///
/// # Errors
/// Before serving: `Busy` if another daemon serves the volume, and any error that keeps the volume from
/// opening; nothing was changed then. After serving: `Unsafe` if the volume could not be closed.
pub fn serve(
    state: &StateDir,
    name: &VolumeName,
    options: &ServeOptions,
    ready: impl FnOnce(&Ready),
) -> Result<()> {
    let (lock, record) = VolumeLock::take_known(state, name, "served")?;
    let lock = RefCell::new(lock);
    if record.temporary {
        let problem = format!("volume '{name}' was temporary, and its daemon died: braid forget {name}");
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let served = in_world(async |world| {
        let doors = Doors::bind(&world.ring, state, name, options)?;
        let purpose = Purpose::Use(&options.distrust);
        let members = open_members(&world.ring, state, &record, purpose).await?;
        run(world, state, &record, members, (doors, &lock), ready).await
    });
    if served.is_ok() {
        lock.borrow_mut().note_closed();
    }
    served
}

/// Makes a volume, serves it until the process is told to stop, and removes the volume and its files.
///
/// Devices may be memory. The name of a temporary volume in memory whose daemon died may be used again. If
/// such a volume has left files, the name is refused: the files may still be wanted.
pub fn serve_temporary(
    state: &StateDir,
    new: &NewVolume,
    options: &ServeOptions,
    ready: impl FnOnce(&Ready),
) -> Result<()> {
    if new.adopt.is_some() {
        let problem = "a volume that ends with its daemon adopts no disk: braid create it";
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    check_policy(&new.policy, &new.devices)?;
    let lock = RefCell::new(VolumeLock::take(state, &new.name, "served")?);
    if !state.load(&new.name).is_ok_and(|record| record.went_with_its_daemon()) {
        refuse_known(state, &new.name)?;
    }
    let served = in_world(async |world| {
        let doors = Doors::bind(&world.ring, state, &new.name, options)?;
        let (members, _, record) = make(&world.ring, state, new, true).await?;
        let served = match state.save(&record) {
            Ok(()) => run(world, state, &record, Members::made(members), (doors, &lock), ready).await,
            Err(error) => Err(error),
        };
        // Devices may have been added since: load the record again.
        remove_made(&state.load(&new.name).unwrap_or(record));
        served
    });
    let removed = state.remove(&new.name);
    served.and(removed)
}

/// Opens the volume, serves until a signal or an admin request, and closes the volume.
async fn run(
    world: &World,
    state: &StateDir,
    record: &VolumeRecord,
    members: Members,
    (doors, lock): (Doors, &RefCell<VolumeLock>),
    ready: impl FnOnce(&Ready),
) -> Result<()> {
    let name = &record.name;
    let lasting = Lasting::of(state, record);
    let open = OpenOptions {
        cache_extents: doors.options.cache_extents,
        readahead: doors.options.readahead,
        ahead: doors.options.ahead,
        distrust: doors.options.distrust.clone(),
        ..open_options(record, &members.list, &lasting)
    };
    let adopted = open.adopted.map(|disk| AdoptedDisk { force: doors.options.force, ..disk });
    let open = with_notes(OpenOptions { adopted, ..open }, state, record);
    members.refuse_protected_disk(name)?;
    let (volume, recovery) = Volume::open(world.ring.clone(), handles(&members.list), open)
        .await
        .map_err(|error| members.explain(error))?;
    log_recovery(name, &recovery);
    // Note outdated devices before guests write data that the devices lack. If noting fails, [`note_changes`]
    // tries again and logs the error.
    let outdated = volume.outdated_devices();
    if let Err(error) = note_opened(state, name, &members.records, &outdated) {
        tracing::error!(
            "where the devices of volume '{name}' are and which are outdated ({outdated:?}) is not noted: {error}"
        );
    }
    lasting.warn(record);
    let noted = volume.noted();
    if let Err(error) = note(state, name, &record.uuid, noted, lasting.noted()) {
        tracing::warn!("that volume '{name}' has been opened is not noted: {error}");
    }
    let daemon = Daemon::start(world, state, name, members, (volume, lasting), doors)?;
    daemon.ring.spawn(keep_noted(daemon.clone(), noted));
    lock.borrow_mut().note_open();
    ready(&Ready {
        name: name.to_string(),
        nbd_uris: daemon.nbd_uris.clone(),
        admin_socket: state.admin_socket(name),
        process_id: std::process::id(),
    });
    let asked = daemon.changed.wait_for(|| daemon.stopping.get().then_some(()));
    match first_of(world.signals.recv(), asked).await {
        First::Left(signal) => tracing::info!("{}: stopping", signal.map_or("no signals", describe)),
        First::Right(()) => tracing::info!("asked to stop"),
    }
    let closed = daemon.close(&world.signals).await;
    lock.borrow_mut().note_waiting(closed.is_ok(), &daemon.owing());
    daemon.tell_how_it_went(&closed).await;
    closed
}

fn describe(signal: Signal) -> &'static str {
    match signal {
        Signal::Terminate => "SIGTERM",
        Signal::Interrupt => "SIGINT",
        Signal::Hangup => "SIGHUP",
    }
}

impl Daemon {
    fn start(
        world: &World,
        state: &StateDir,
        name: &VolumeName,
        members: Members,
        (volume, lasting): (Volume<Ring, OpenDevice>, Lasting),
        doors: Doors,
    ) -> Result<Rc<Daemon>> {
        let (ring, arena) = (&world.ring, &world.arena);
        let models = doors.models;
        let (export, recorder) = Recorded::new(ring.clone(), volume.clone());
        let config = ServerConfig {
            max_connections: doors.options.clients,
            ..ServerConfig::new(name.as_str(), arena)
        };
        let nbd = Server::new(ring.clone(), export.clone(), config)?;
        let nbd_uris = doors.nbd.iter().map(|listener| nbd_uri(name, listener.local_address())).collect();
        let in_memory = durability(&members.list) == Durability::None;
        let attachment = Attachment::new(ring, arena, name, state.mount_dir(name), in_memory);
        for listener in doors.nbd {
            let nbd = nbd.clone();
            ring.spawn(async move { nbd.serve(listener).await });
        }
        let daemon = Rc::new(Daemon {
            ring: ring.clone(),
            name: name.clone(),
            volume,
            lasting,
            export,
            recorder,
            attachment,
            state: state.clone(),
            members: RefCell::new(members.list),
            noted: RefCell::default(),
            places: RefCell::new(members.records),
            noting: Semaphore::new(1),
            catch_up: CatchUp::default(),
            nbd,
            nbd_uris,
            guard: Guard::default(),
            models,
            options: doors.options,
            started: ring.now(),
            changed: Event::default(),
            stopping: Cell::new(false),
            closed: RefCell::default(),
            waiting: Cell::new(0),
        });
        ring.spawn(serve_admin(daemon.clone(), doors.admin));
        ring.spawn(note_changes(daemon.clone()));
        ring.spawn(guard::keep(daemon.clone()));
        Ok(daemon)
    }

    /// Returns the status of the volume.
    pub fn status(&self) -> StatusReport {
        let uptime = self.ring.now().saturating_sub(self.started);
        let status = self.volume.status();
        let (caught_up_bytes_per_second, behind_left_seconds) =
            self.catch_up.rate(self.ring.now(), status.behind.saturating_sub(status.deferred));
        StatusReport {
            caught_up_bytes_per_second,
            behind_left_seconds,
            nbd_uris: self.nbd_uris.clone(),
            nbd_connections: self.nbd.counters().open,
            nbd_clients: self.nbd.peers(),
            attached_file: self.attachment.file(),
            pending_log: self.lasting.path().filter(|_| self.volume.has_pending_log()),
            pending_log_failure: self.lasting.failure(self.volume.has_pending_log()),
            guard: self.guard.report(self.volume.modes(1), self.ring.now()),
            ..status_report(self.name.as_str(), uptime, status, &self.members.borrow())
        }
    }

    /// Explains where the byte at `offset` lies, and why.
    pub fn explain(&self, offset: Bytes) -> Result<ExplainReport> {
        let explanation = self.volume.explain(offset)?;
        let (policy, status) = (self.volume.policy(), self.volume.status());
        Ok(explain_report(self.name.as_str(), policy, explanation, &status, &self.members.borrow()))
    }

    /// True if the daemon is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Tells the daemon to stop, and waits until the volume is closed.
    pub async fn stop_and_wait(&self) -> Result<()> {
        self.waiting.set(self.waiting.get() + 1);
        self.stopping.set(true);
        self.changed.notify();
        self.changed.wait_for(|| self.closed.borrow().clone()).await
    }

    /// Lets the guests finish, and closes the volume.
    async fn close(&self, signals: &Signals) -> Result<()> {
        let guests = async {
            self.nbd.shutdown().await;
            self.attachment.end(self.options.detach.as_deref()).await;
        };
        if let First::Right(_) = first_of(guests, signals.recv()).await {
            tracing::warn!("a second signal: not waiting for guests any longer");
        }
        self.stopping.set(true);
        if let First::Right(()) = first_of(self.recorder.idle(), self.ring.sleep(LAST_RECORDS)).await {
            tracing::warn!("the recording client does not read: its trace is incomplete");
        }
        // Note a device that was removed just now: otherwise the next start would look for it.
        note_those_removed(self, &mut BTreeSet::new()).await;
        let name = &self.name;
        let left = self.attachment.abandon();
        self.note_outdated_at_last().await;
        let closed = self.volume.close().await;
        if closed.is_ok() {
            self.lasting.end();
        }
        if closed.is_ok()
            && let uuid = self.volume.superblock().volume.to_string()
            && let Err(error) = note(&self.state, name, &uuid, self.volume.noted(), None)
        {
            tracing::warn!("that volume '{name}' was shut down is not noted: {error}");
        }
        // Another device may have failed during the close.
        self.note_outdated_at_last().await;
        closed.map_err(|error| {
            let problem = format!(
                "volume '{name}' could not be closed: {error}; what guests wrote after their last successful flush may \
                 be lost"
            );
            Error::new(ErrorKind::Unsafe, problem)
        })?;
        tracing::info!("volume '{name}' is closed");
        left
    }

    /// Sends the result of the close to the clients that asked for the stop, and gives them a moment to read.
    async fn tell_how_it_went(&self, closed: &Result<()>) {
        let waiting = self.waiting.replace(0);
        *self.closed.borrow_mut() = Some(closed.clone());
        self.changed.notify();
        if waiting > 0 {
            self.ring.sleep(LAST_WORDS).await;
        }
    }
}

/// Result of [`first_of`]: the future that was ready first.
pub(super) enum First<L, R> {
    Left(L),
    Right(R),
}

/// Waits for the first of two futures. The other future is dropped unfinished.
pub(super) async fn first_of<L, R>(
    left: impl Future<Output = L>,
    right: impl Future<Output = R>,
) -> First<L, R> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(done) = left.as_mut().poll(cx) {
            return Poll::Ready(First::Left(done));
        }
        right.as_mut().poll(cx).map(First::Right)
    })
    .await
}
