//! The daemon of one volume: opens, serves and closes the volume.
//!
//! The daemon has one thread. SIGTERM, SIGINT, SIGHUP or a request on the admin socket ends it, in this
//! order:
//!
//! - The NBD server and the vhost-user server accept no new connections, and reply to requests in flight, by
//!   NBD for a bounded time.
//! - File systems mounted from the volume are unmounted. A ublk device that stays in use waits for the next
//!   daemon, with its users.
//! - The volume is closed. The next opening then replays nothing.
//!
//! Before it opens devices, the daemon gives up powers of its process ([`powers`]), for good.
//!
//! SIGUSR1 ends the daemon for a successor: the ublk device waits, and nothing is unmounted. A second signal
//! ends the wait for clients. If the daemon ends in any other way, the pending log keeps acknowledged writes.

use crate::admin::server::serve_admin;
use crate::device::open::OpenDevice;
use crate::device::ublk::remove_dead;
use crate::guard::{Guard, keep};
use crate::members::open::{Members, Purpose, handles, open_members, open_options};
use crate::report::types::Durability;
use crate::serve::doors::Doors;
use crate::serve::notify::ServiceManager;
use crate::serve::recovered::log_recovery;
use crate::serve::user::DaemonUser;
use crate::served::ServedVolume;
use crate::served::attachment::{Attachment, Ending};
use crate::served::block::BlockDoor;
use crate::served::certificates::Certificates;
use crate::served::detacher::Detacher;
use crate::served::examine::keep_heat;
use crate::served::first_of::{First, first_of};
use crate::served::frontends::Frontends;
use crate::served::notes::{keep_noted, note_changes};
use crate::served::options::ServeOptions;
use crate::served::rejoin::return_remote_devices;
use crate::served::status::durability;
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::{note, with_notes};
use crate::state::outdated::note_opened;
use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use crate::volume::create::{NewVolume, make, refuse_known, remove_made};
use crate::volume::policy::check_policy;
use crate::volume::ring::{World, in_world};
use crate::{Error, ErrorKind, Result};
use braid_base::Nanos;
use braid_engine::{AdoptedDisk, OpenOptions, ResizableVolume, Volume};
use braid_nbd::ServerConfig;
use braid_runtime::Runtime;
use braid_uring::{Ring, Signal, Signals};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

/// Report of a daemon that is ready for connections, for the process that started it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The volume.
    pub name: String,
    /// The URIs of its NBD exports.
    pub nbd_uris: Vec<String>,
    /// The socket for a virtual machine (vhost-user), if any.
    pub vhost_user_socket: Option<PathBuf>,
    /// The admin socket.
    pub admin_socket: PathBuf,
    /// The daemon's process.
    pub process_id: u32,
}

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
    options.check(name)?;
    let (lock, record) = VolumeLock::take_known(state, name, "served")?;
    let lock = RefCell::new(lock);
    if record.temporary {
        let problem = format!("volume '{name}' was temporary, and its daemon died: braid forget {name}");
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let user = options.user.as_deref().map(DaemonUser::find).transpose()?;
    let served = in_world(async |world| {
        if let Some(user) = &user {
            user.enter(state, &record)?;
        }
        let mut doors = Doors::bind(&world.ring, state, name, options)?;
        // Before the daemon reads a device, unless only root may open the devices.
        match &user {
            Some(user) => user.resume_root()?,
            None => doors.give_up_powers()?,
        }
        let purpose = match options.take_over {
            true => Purpose::TakeOver(&options.distrust),
            false => Purpose::Use(&options.distrust),
        };
        let members = open_members(&world.ring, state, &record, purpose).await?;
        if let Some(user) = &user {
            user.settle()?;
            doors.give_up_powers()?;
        }
        run(world, state, &record, members, doors, &lock, ready).await
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
    if let Some(user) = &options.user {
        let problem = format!("--user {user}: braid create the volume, since a temporary volume is root's");
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    if new.adopt.is_some() {
        let problem = "a temporary volume cannot adopt a disk: braid create the volume";
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    check_policy(&new.policy, &new.devices)?;
    options.check(&new.name)?;
    let lock = RefCell::new(VolumeLock::take(state, &new.name, "served")?);
    match state.load(&new.name) {
        Ok(earlier) if earlier.went_with_its_daemon() => remove_dead(&earlier.uuid),
        _ => refuse_known(state, &new.name)?,
    }
    let served = in_world(async |world| {
        let mut doors = Doors::bind(&world.ring, state, &new.name, options)?;
        doors.give_up_powers()?;
        let (members, _, record) = make(&world.ring, state, new, true).await?;
        let served = match state.save(&record) {
            Ok(()) => run(world, state, &record, Members::made(members), doors, &lock, ready).await,
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
    mut doors: Doors,
    lock: &RefCell<VolumeLock>,
    ready: impl FnOnce(&Ready),
) -> Result<()> {
    let (name, detacher) = (&record.name, doors.detacher.take());
    let (volume, lasting) = open(world, state, record, &members, &doors.options).await?;
    let served = start(world, state, record, members, volume, lasting, doors)?;
    if let Err(error) = served.frontends().take_over().await {
        served.volume().close().await?;
        return Err(error);
    }
    lock.borrow_mut().note_open();
    ready(&Ready {
        name: name.to_string(),
        nbd_uris: served.frontends().nbd_uris().to_vec(),
        vhost_user_socket: served.frontends().vhost_user_socket(),
        admin_socket: state.admin_socket(name),
        process_id: std::process::id(),
    });
    let manager = Rc::new(ServiceManager::from_environment());
    manager.ready(&world.ring, &format!("serves {}", served.frontends().nbd_uris().join(" "))).await;
    let ending = match first_of(world.signals.recv(), served.end().requested()).await {
        First::Left(signal) => {
            tracing::info!("{}: stopping", signal.as_ref().map_or("no signals", describe));
            ending_by(signal.ok())
        }
        First::Right(()) => {
            tracing::info!("asked to stop");
            Ending::Detach
        }
    };
    manager.stopping(&world.ring).await;
    let closed = close(&served, ending, detacher.as_ref(), &world.signals).await;
    lock.borrow_mut().note_waiting(closed.is_ok(), &served.owing());
    if served.end().tell(&closed) {
        served.ring().sleep(LAST_WORDS).await;
    }
    closed
}

/// Opens the volume, and notes the opening in the state directory.
async fn open(
    world: &World,
    state: &StateDir,
    record: &VolumeRecord,
    members: &Members,
    options: &ServeOptions,
) -> Result<(ResizableVolume<Ring, OpenDevice>, Lasting)> {
    let name = &record.name;
    let lasting = Lasting::of(state, record);
    let open = OpenOptions {
        cache_extents: options.cache_extents,
        readahead: options.readahead,
        ahead: options.ahead,
        distrust: options.distrust.clone(),
        take_over: options.take_over,
        ..open_options(record, &members.list, &lasting)
    };
    let adopted = open.adopted.map(|disk| AdoptedDisk { force: options.force, ..disk });
    let open = with_notes(OpenOptions { adopted, ..open }, state, record);
    members.refuse_protected_disk(name)?;
    let (volume, recovery) = Volume::open(world.ring.clone(), handles(&members.list), open.clone())
        .await
        .map_err(|error| members.explain(error))?;
    log_recovery(name, &recovery);
    // Note outdated devices before guests write data that the devices lack. If noting fails, [`note_changes`]
    // tries again and logs the error.
    let outdated = volume.outdated_devices();
    if let Err(error) = note_opened(state, name, &members.records, &outdated) {
        tracing::error!(
            "the places of the devices of volume '{name}' and the outdated devices ({outdated:?}) could not be recorded: {error}"
        );
    }
    lasting.warn(record);
    if let Err(error) = note(state, name, &record.uuid, volume.noted(), lasting.noted()) {
        tracing::warn!("the opening of volume '{name}' could not be recorded: {error}");
    }
    Ok((ResizableVolume::new(world.ring.clone(), volume, open), lasting))
}

fn describe(signal: &Signal) -> &'static str {
    match signal {
        Signal::Terminate => "SIGTERM",
        Signal::Interrupt => "SIGINT",
        Signal::Hangup => "SIGHUP",
        Signal::HandOver => "SIGUSR1",
    }
}

fn ending_by(signal: Option<Signal>) -> Ending {
    if signal == Some(Signal::HandOver) { Ending::HandOver } else { Ending::Detach }
}

/// Starts the frontends, the admin socket and the background tasks of an opened volume.
fn start(
    world: &World,
    state: &StateDir,
    record: &VolumeRecord,
    members: Members,
    volume: ResizableVolume<Ring, OpenDevice>,
    lasting: Lasting,
    doors: Doors,
) -> Result<Rc<ServedVolume>> {
    let (ring, arena, name, noted) = (&world.ring, &world.arena, &record.name, volume.volume().noted());
    let config = ServerConfig {
        max_connections: doors.options.clients,
        tls: doors.certificates.as_ref().map(Certificates::tls),
        ..ServerConfig::new(name.as_str(), arena)
    };
    let in_memory = durability(&members.list) == Durability::None;
    let block = BlockDoor::new(ring, arena, &record.uuid, !record.temporary && !in_memory);
    let attachment = Attachment::new(ring, arena, name, state.mount_dir(name), in_memory, block);
    let frontends = Frontends::start(ring, name, &volume, config, doors.nbd, doors.machine, attachment)?;
    let served = Rc::new(ServedVolume::new(ring, state, name, members, volume, lasting, frontends));
    served.exclude(&doors.options.distrust);
    let guard = Rc::new(Guard::new(served.clone(), doors.options, doors.models));
    ring.spawn(serve_admin(served.clone(), guard.clone(), doors.admin));
    if let Some(certificates) = doors.certificates {
        ring.spawn(certificates.keep(served.clone()));
    }
    ring.spawn(note_changes(served.clone()));
    ring.spawn(return_remote_devices(served.clone()));
    ring.spawn(keep_heat(served.clone()));
    ring.spawn(keep::keep(guard));
    ring.spawn(keep_noted(served.clone(), noted));
    Ok(served)
}

/// Lets the guests finish, and closes the volume.
async fn close(
    served: &ServedVolume,
    ending: Ending,
    detacher: Option<&Detacher>,
    signals: &Signals,
) -> Result<()> {
    let (name, frontends) = (served.name(), served.frontends());
    if let First::Right(_) = first_of(frontends.shut_down(ending, detacher), signals.recv()).await {
        tracing::warn!("a second signal: no longer waiting for guests");
    }
    served.end().begin();
    if let First::Right(()) = first_of(frontends.recorder().idle(), served.ring().sleep(LAST_RECORDS)).await {
        tracing::warn!("the recording client does not read: its trace is incomplete");
    }
    // Note a device that was removed just now: otherwise the next start would look for it.
    served.note_removed(&mut BTreeSet::new()).await;
    let left = frontends.abandon().await;
    served.note_outdated_at_last().await;
    let closed = served.close().await;
    if closed.is_ok() {
        served.note_closed();
    }
    // Another device may have failed during the close.
    served.note_outdated_at_last().await;
    closed.map_err(|error| {
        let problem = format!(
            "volume '{name}' could not be shut down cleanly: {error}; writes of guests after their last \
             successful flush may be lost"
        );
        Error::new(ErrorKind::Unsafe, problem)
    })?;
    tracing::info!("volume '{name}' is closed");
    left
}
