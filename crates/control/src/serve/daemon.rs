//! The daemon of one volume: opens it, serves it, and closes it.
//!
//! One thread. It ends when it is told to, by SIGTERM, SIGINT, SIGHUP or the admin socket: no new
//! connections, replies to what is in flight (for a bounded time), what is mounted from the volume is
//! unmounted, then the volume is closed, so that the next opening replays nothing. A second signal ends the
//! wait for clients. Ended in any other way it loses what was not flushed, as any disk does.

use crate::admin::server::serve_admin;
use crate::attach::file::Attachment;
use crate::device::open::OpenDevice;
use crate::guard::{self, Guard, Models};
use crate::record::recorded::{Recorded, Recorder};
use crate::report::collect::{durability, explain_report, status_report};
use crate::report::types::{Durability, ExplainReport, StatusReport};
use crate::serve::address::{NbdAddress, nbd_uri};
use crate::serve::catch_up::CatchUp;
use crate::serve::devices::{note_changes, note_those_removed};
use crate::serve::doors::Doors;
use crate::serve::recovered::log_recovery;
use crate::volume::create::{make, refuse_known, remove_made};
use crate::volume::lasting::Lasting;
use crate::volume::lock::VolumeLock;
use crate::volume::members::{Member, Members, Purpose, handles, open_members, open_options};
use crate::volume::noted::{keep_noted, note, with_notes};
use crate::volume::outdated::note_opened;
use crate::volume::policy::check_policy;
use crate::volume::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use crate::{Error, ErrorKind, NewVolume, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::{AdoptedDisk, OpenOptions, Readahead, Volume};
use braid_nbd::{Server, ServerConfig};
use braid_runtime::{Arena, Event, Runtime, Semaphore};
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

/// How a volume is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Where it is exported by NBD; none for a Unix socket in the state directory.
    pub nbd: Vec<NbdAddress>,
    /// Extents in the memory cache.
    pub cache_extents: usize,
    /// When a read brings all of its extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for what is read ahead of streams; 0 for none.
    pub ahead: Bytes,
    /// NBD connections at a time, on all addresses together.
    pub clients: usize,
    /// The command that detaches this volume, to be run when the daemon stops; none to leave that to the
    /// administrator.
    pub detach: Option<Vec<OsString>>,
    /// Devices whose content is given up: they are brought up to date from the others.
    pub distrust: Vec<DeviceId>,
    /// Whether dirty blocks are written back to an adopted disk though it was changed while Braid did not
    /// serve it.
    pub force: bool,
    /// A model of the SSDs that have none, by name or file: for simulations of the volume (`equi,mode=auto`).
    pub ssd_model: Option<String>,
    /// The same of the disks.
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
    /// The most clients that there is memory for.
    pub const MOST_CLIENTS: usize = 256;
}

/// A daemon that serves: what it tells the process that started it.
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

/// A volume that is served, and its doors.
pub(crate) struct Daemon {
    pub ring: Ring,
    pub name: VolumeName,
    pub volume: Volume<Ring, OpenDevice>,
    /// What outlives this process.
    pub(crate) lasting: Lasting,
    /// The volume as fronts serve it.
    pub export: Export,
    pub recorder: Rc<Recorder<Ring>>,
    pub guard: Guard,
    /// Of devices, for ghosts.
    pub models: Models,
    pub options: ServeOptions,
    pub attachment: Attachment,
    pub(crate) state: StateDir,
    pub(crate) members: RefCell<Vec<Member>>,
    /// The devices that the record calls outdated; none if that is not known.
    pub(super) noted: RefCell<Option<Vec<DeviceId>>>,
    /// Where the devices are that were opened, until that is noted.
    pub(super) places: RefCell<Vec<(usize, DeviceRecord)>>,
    /// They are noted one change after the other.
    pub(super) noting: Semaphore,
    pub(super) catch_up: CatchUp,
    nbd: Server<Export>,
    nbd_uris: Vec<String>,
    started: Nanos,
    /// Notified at every change of what follows.
    changed: Event,
    stopping: Cell<bool>,
    /// How closing went, once it is over.
    closed: RefCell<Option<Result<()>>>,
    /// Admin requests that wait to tell that.
    waiting: Cell<usize>,
}

type Export = Recorded<Ring, Volume<Ring, OpenDevice>>;

/// Memory for requests of guests: the NBD server holds at most half of it.
const ARENA: Bytes = Bytes(96 << 20);
/// Operations that are queued between two submissions.
const ENTRIES: u32 = 256;
/// How long a recording client may take to read the last of it.
const LAST_RECORDS: Nanos = Nanos::from_secs(1);
/// How long the client that asked for the stop may take to read how it went.
const LAST_WORDS: Nanos = Nanos::from_millis(50);

/// Serves a volume until the process is told to stop. `ready` is called when the server is ready for
/// connections.
///
/// # Errors
/// Before it serves: `Busy` if another daemon does, and whatever keeps the volume from opening; nothing was
/// changed then. After: `Unsafe` if the volume could not be closed.
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

/// Makes a volume, serves it until the process is told to stop, and removes what was made. Devices may be
/// memory. It takes the name of a temporary volume in memory whose daemon died; what such a one has left in
/// files may still be wanted, and is refused.
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
        // Devices may have come since.
        remove_made(&state.load(&new.name).unwrap_or(record));
        served
    });
    let removed = state.remove(&new.name);
    served.and(removed)
}

/// What a daemon stands on.
pub(crate) struct World {
    pub ring: Ring,
    pub arena: Arena,
    pub signals: Signals,
}

pub(crate) fn in_world<T>(work: impl AsyncFnOnce(&World) -> Result<T>) -> Result<T> {
    let arena = Arena::new(ARENA);
    let ring = Ring::new(ENTRIES, &arena)?;
    let signals = Signals::new(&ring)?;
    for fallback in ring.fallbacks() {
        tracing::warn!("{fallback}");
    }
    let world = World { ring, arena, signals };
    let result = world.ring.block_on(work(&world));
    world.ring.clear();
    result
}

/// The life of the daemon.
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
    // Before guests write what these devices lack. If it cannot be noted, the daemon tries again, and says
    // so.
    let outdated = volume.outdated_devices();
    if let Err(error) = note_opened(state, name, &members.records, &outdated) {
        tracing::error!(
            "where the devices of volume '{name}' are and which are outdated ({outdated:?}) is not noted: {error}"
        );
    }
    lasting.warn(record);
    let noted = volume.noted();
    if let Err(error) = note(state, name, &record.uuid, (noted, lasting.noted())) {
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

    /// The volume now.
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

    /// Where a byte lies, and why.
    pub fn explain(&self, offset: Bytes) -> Result<ExplainReport> {
        let explanation = self.volume.explain(offset)?;
        let (policy, status) = (self.volume.policy(), self.volume.status());
        Ok(explain_report(self.name.as_str(), policy, explanation, &status, &self.members.borrow()))
    }

    /// Whether it is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Tells the daemon to stop, and waits until it has closed the volume.
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
        // One that has just left would be looked for at the next start.
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
            && let Err(error) = note(&self.state, name, &uuid, (self.volume.noted(), None))
        {
            tracing::warn!("that volume '{name}' was shut down is not noted: {error}");
        }
        // Another one may have failed meanwhile.
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

    /// Replies to the client that asked for the stop, as far as it listens.
    async fn tell_how_it_went(&self, closed: &Result<()>) {
        let waiting = self.waiting.replace(0);
        *self.closed.borrow_mut() = Some(closed.clone());
        self.changed.notify();
        if waiting > 0 {
            self.ring.sleep(LAST_WORDS).await;
        }
    }
}

/// Which of two was first.
pub(super) enum First<L, R> {
    Left(L),
    Right(R),
}

/// Waits for the first of two; the other is dropped where it stands.
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
