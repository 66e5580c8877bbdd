//! The command line's part of `attach` and `detach`: a ublk device of the daemon, or a loop device over the
//! daemon's file; and a mount of the file system on the device.

use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::attach::{stable_name, ublk};
use crate::device::adopted;
use crate::device::spec::absolute;
use crate::report::resting::as_text;
use crate::served::attachment::AttachReply;
use crate::served::via::Via;
use crate::state::lock::daemon;
use crate::state::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_fuse::{
    Attachment, LoopAttachment, MountOptions, Use, mount_with, processes, remove_dead_mounts, uses,
};
use braid_ublk::number_of;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that an unmount waits for a file system in use.
const LONGEST_BUSY: Duration = Duration::from_secs(2);
/// Time that the daemon's file may stay open without its block device.
const LONGEST_OPEN: Duration = Duration::from_secs(5);
/// Delay between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Result of attaching a volume as a block device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// The volume.
    pub name: String,
    /// The block device.
    pub block_device: PathBuf,
    /// Link to the block device, with a name that stays: `/dev/braid/NAME`.
    pub block_device_link: Option<PathBuf>,
    /// Kind of the block device: `ublk` or `loop`.
    pub block_device_kind: String,
    /// Mount point of the file system, if a mount was requested.
    pub mounted_on: Option<PathBuf>,
    /// The file system.
    pub file_system: Option<String>,
}

/// Mount of an attached volume's file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Mount point.
    pub directory: PathBuf,
    /// Options of the mount.
    pub options: MountOptions,
}

/// Attaches a served volume as a block device of the kernel, or finds the present block device. Without a way
/// in `via`, prefers ublk. Mounts the file system if a mount is given.
///
/// # Errors
/// `Unsupported` if the machine or the user lacks the means: names an alternative. `Busy` if the volume is
/// attached in another way than `via`.
pub fn attach(
    state: &StateDir,
    name: &VolumeName,
    via: Option<Via>,
    mount: Option<&Mount>,
) -> Result<Attached> {
    let directory = mount.map(|mount| mount.directory.as_path());
    let mut client = Client::connect(state, name)?;
    let uris = client.status()?.nbd_uris;
    refuse_without_root(name, uris.first())?;
    directory.map(absolute).transpose()?;
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        let shown = directory.display();
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{shown} is not a directory to mount on: mkdir {shown}"),
        ));
    }
    let record = state.load(name)?;
    let disk = record.adopted().and_then(|(_, disk)| disk.path.as_deref());
    let sector = disk.and_then(adopted::sector);
    stable_name::forget_gone();
    let reply = serve_attached(name, &mut client, via, sector, uris.first())?;
    let attachment = attachment(state, name, &state.mount_dir(name));
    if let (Some(directory), Ok(attachment)) = (directory, &attachment) {
        refuse_dead_mounts(name, attachment, directory)?;
    }
    let device = match reply.via {
        Via::Ublk => {
            ublk::tune(&reply.file);
            reply.file
        }
        Via::Loop => attachment?.with_sector(sector).attach()?,
    };
    let block_device_link = stable_name::make(state, name, &device);
    let file_system = match mount {
        Some(mount) => Some(mount_with(&device, &mount.directory, &mount.options)?.to_string()),
        None => None,
    };
    let (kind, mounted_on) = (reply.via.to_string(), directory.map(Path::to_owned));
    Ok(Attached {
        name: name.to_string(),
        block_device: device,
        block_device_link,
        block_device_kind: kind,
        mounted_on,
        file_system,
    })
}

/// Asks the daemon to serve the volume as a block device or file. If no way is wanted, and the daemon cannot
/// use ublk, takes the other way.
fn serve_attached(
    name: &VolumeName,
    client: &mut Client,
    wanted: Option<Via>,
    sector_bytes: Option<u32>,
    uri: Option<&String>,
) -> Result<AttachReply> {
    let mut ask = |via| {
        if via == Via::Loop {
            refuse_without_loop(name, uri)?;
        }
        client.call::<AttachReply>(Request::Attach { via: Some(via), sector_bytes })
    };
    let reply = match ask(ublk::choose(wanted)?) {
        Err(error) if error.kind() == ErrorKind::Unsupported && wanted.is_none() => {
            tracing::warn!("no ublk device, therefore a loop device: {error}");
            ask(Via::Loop)?
        }
        reply => reply?,
    };
    match wanted {
        Some(wanted) if wanted != reply.via => {
            let via = reply.via;
            let problem = format!(
                "volume '{name}' is attached by {via} already, or its daemon is older than this program: braid detach {name}, then attach again"
            );
            Err(Error::new(ErrorKind::Busy, problem))
        }
        _ => Ok(reply),
    }
}

/// Refuses a mount while remains of an earlier daemon are mounted. The new mount would hide the dead mount,
/// and a file system such as XFS cannot be mounted twice.
fn refuse_dead_mounts(name: &VolumeName, attachment: &LoopAttachment, directory: &Path) -> Result<()> {
    for left in attachment.remains()? {
        if let Some(Use::Mounted(point)) = left.uses.iter().find(|used| matches!(used, Use::Mounted(_))) {
            let (device, point, wanted) = (left.device.display(), point.display(), directory.display());
            let problem = format!(
                "an earlier daemon of volume '{name}' ended while {device} was mounted on {point}, where every request fails: braid detach {name},                  then braid attach {name} --mount {wanted}"
            );
            return Err(Error::new(ErrorKind::Busy, problem));
        }
    }
    Ok(())
}

/// Result of detaching a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Detached {
    /// The volume.
    pub name: String,
    /// Former mount points.
    pub unmounted: Vec<PathBuf>,
    /// True if the daemon continues.
    pub served: bool,
}

/// Extent of a detach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detach {
    /// The block device and its mounts, unless writes would be lost.
    Safe,
    /// Only remains that no daemon can serve again. Nothing of a served volume is touched.
    OnlyDead,
    /// Also a ublk device that waits for a daemon and is in use: its requests fail.
    Forced,
}

/// Unmounts file systems on the volume's block device, removes the device, and ends serving the volume as a
/// device or file. If the daemon has died, removes its block devices, their mounts, and its file.
///
/// # Errors
/// `Busy` if a file system stays in use for two seconds: it is synced, and stays mounted; if a ublk device
/// waits for a daemon and is in use, unless forced; and with [`Detach::OnlyDead`], if the volume is served.
/// `Invalid` if the volume is not attached.
pub fn detach(state: &StateDir, name: &VolumeName, extent: Detach) -> Result<Detached> {
    let uuid = state.load(name)?.uuid;
    // Connect first: later steps access the file, and would wait without limit for a daemon that does not
    // answer.
    let mut client = match Client::connect(state, name) {
        Ok(client) => Some(client),
        Err(error) if error.kind() == ErrorKind::NotServed => None,
        Err(error) => return Err(error),
    };
    if extent == Detach::OnlyDead && client.is_some() {
        let problem = format!("volume '{name}' is served: to detach the served volume: braid detach {name}");
        return Err(Error::new(ErrorKind::Busy, problem));
    }
    let (unmounted, devices) = match &mut client {
        Some(client) => detach_served(client)?,
        None if extent == Detach::OnlyDead => Default::default(),
        None => ublk::remove_unserved(&uuid, extent == Detach::Forced, unmount_all)?,
    };
    if devices.is_empty() {
        return detach_loop(state, name, client);
    }
    stable_name::remove(state, name, &devices);
    Ok(detached(name, &unmounted, client.is_some()))
}

/// Detaches the ublk device of a served volume. Returns its mount points, and the device if there was one.
fn detach_served(client: &mut Client) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let attached = client.status()?.attached_file;
    let Some(device) = attached.filter(|file| number_of(file).is_some()) else {
        return Ok(Default::default());
    };
    let unmounted = unmount_all(&device)?;
    ublk::remove_served(client, &device)?;
    Ok((unmounted, vec![device]))
}

/// Detaches a loop device, or removes the remains of a dead daemon.
fn detach_loop(state: &StateDir, name: &VolumeName, client: Option<Client>) -> Result<Detached> {
    let mut unmounted = Vec::new();
    let directory = state.mount_dir(name);
    let attachment = LoopAttachment::new(&directory)?;
    let devices = attachment.all_devices()?;
    for device in &devices {
        unmounted.extend(unmount_all(device)?);
    }
    let removed = match devices.is_empty() {
        true => Err(Error::new(ErrorKind::Invalid, format!("volume '{name}' is not attached"))),
        false => attachment.detach().map_err(Error::from),
    };
    if let (Some(device), Err(error)) = (devices.first(), &removed) {
        let users: Vec<String> = processes(device)?.iter().map(|process| format!("{process}")).collect();
        let users = if users.is_empty() { String::new() } else { format!(" ({})", users.join(", ")) };
        return Err(Error::new(ErrorKind::Busy, format!("{error}{users}")));
    }
    stable_name::remove(state, name, &devices);
    let was_file = client.map(end_file).transpose()?.flatten();
    let served = was_file.is_some();
    let dead = if served { 0 } else { remove_dead_mounts(&directory)? };
    if dead == 0 && was_file != Some(true) {
        removed?;
    }
    Ok(detached(name, &unmounted, served))
}

/// Ends serving the volume as a file. Returns true if the volume was served so, and `None` if the daemon has
/// ended meanwhile.
fn end_file(mut client: Client) -> Result<Option<bool>> {
    let start = Instant::now();
    let mut end = || -> Result<bool> {
        let was_file = client.status()?.attached_file.is_some();
        client.call::<serde_json::Value>(Request::Detach { block_device: None })?;
        Ok(was_file)
    };
    loop {
        match end() {
            Ok(was_file) => return Ok(Some(was_file)),
            // The kernel closes the file a little later than the loop device, and a search for devices, by
            // another `braid`, opens the file beneath each loop device for a moment.
            Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < LONGEST_OPEN => {
                std::thread::sleep(PAUSE)
            }
            Err(error) if error.kind() == ErrorKind::NotServed => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn detached(name: &VolumeName, unmounted: &[PathBuf], served: bool) -> Detached {
    let unmounted = unmounted.iter().map(|point| as_text(point)).collect();
    Detached { name: name.to_string(), unmounted, served }
}

/// Gives the block device of a served volume the size of the volume, and returns the block device, if
/// attached. The daemon has done so for a ublk device. Accesses the file under a loop device, and must
/// therefore not run in the daemon.
pub(crate) fn follow_size(state: &StateDir, name: &VolumeName) -> Result<Option<PathBuf>> {
    let directory = state.mount_dir(name);
    let Some(file) = Client::connect(state, name)?.status()?.attached_file else { return Ok(None) };
    if number_of(&file).is_some() {
        return Ok(Some(file));
    }
    attachment(state, name, &directory)?.follow_size().map_err(|error| {
        let problem = format!(
            "volume '{name}' has the new size, and its block device has not: {error}; repeat the command"
        );
        Error::new(ErrorKind::Io, problem)
    })
}

/// Returns the block device of a volume with this attached file in its status. Accesses the file, and must
/// therefore not run in the daemon.
pub fn attached_device(state: &StateDir, name: &VolumeName, file: &Path) -> Option<PathBuf> {
    if number_of(file).is_some() {
        return Some(file.to_owned());
    }
    attachment(state, name, &state.mount_dir(name)).ok()?.device().ok()?
}

/// Returns the attachment of a volume that a running daemon serves in `directory`.
fn attachment(state: &StateDir, name: &VolumeName, directory: &Path) -> Result<LoopAttachment> {
    let process = daemon(state, name).map(|(process, _)| process.as_raw_nonzero().get().unsigned_abs());
    Ok(LoopAttachment::new(directory)?.served_by(process))
}

fn unmount_all(device: &Path) -> Result<Vec<PathBuf>> {
    let mut unmounted = Vec::new();
    for point in uses(device)?.into_iter().filter_map(|used| match used {
        Use::Mounted(point) => Some(point),
        _ => None,
    }) {
        // In the mount namespace of a daemon's sandbox, the unmount ends a copy of the mount: without a sync,
        // the mount outside would lose its dirty pages with the daemon.
        sync_file_system(&point);
        unmount(&point).map_err(|error| {
            sync_file_system(&point);
            let shown = point.display();
            let users = processes(device).unwrap_or_default();
            let users: Vec<String> = users.iter().map(|process| process.to_string()).collect();
            let remedy = match users.is_empty() {
                true => format!("`fuser -vm {shown}` shows the processes that use it"),
                false => format!("{} uses it (`fuser -vm {shown}`)", users.join(", ")),
            };
            Error::new(
                ErrorKind::Busy,
                format!("{} is mounted on {shown}: unmounting it: {error}: {remedy}", device.display()),
            )
        })?;
        unmounted.push(point);
    }
    Ok(unmounted)
}

/// Unmounts, and tries again for a while if busy: a process that is just being started holds the open files
/// of its parent until it executes a program.
fn unmount(point: &Path) -> rustix::io::Result<()> {
    let start = Instant::now();
    loop {
        match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if start.elapsed() < LONGEST_BUSY => std::thread::sleep(LONGEST_BUSY / 100),
            result => return result,
        }
    }
}

/// Writes the data of a file system to the volume: the file system may stay mounted, and the daemon may be
/// about to end. Users of the file system see its errors.
fn sync_file_system(point: &Path) {
    if let Ok(directory) = File::open(point) {
        let _ = rustix::fs::syncfs(directory);
    }
}

fn refuse_without_root(name: &VolumeName, uri: Option<&String>) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(without(name, "needs root: the kernel lets only root make a block device", uri))
}

fn refuse_without_loop(name: &VolumeName, uri: Option<&String>) -> Result<()> {
    let missing = if !Path::new("/dev/fuse").exists() {
        "by a loop device needs the kernel's FUSE, and there is no /dev/fuse: modprobe fuse"
    } else if !Path::new("/dev/loop-control").exists() {
        "by a loop device needs /dev/loop-control, which is missing: modprobe loop"
    } else {
        return Ok(());
    };
    Err(without(name, missing, uri))
}

fn without(name: &VolumeName, missing: &str, uri: Option<&String>) -> Error {
    let uri = uri.map_or("the export", String::as_str);
    let problem = format!(
        "a block device for volume '{name}' {missing}. Without one, use the volume by NBD, which any user may: for example \
         qemu-img info '{uri}', nbdcopy FILE '{uri}', or a virtual machine with -drive file='{uri}'"
    );
    Error::new(ErrorKind::Unsupported, problem)
}
