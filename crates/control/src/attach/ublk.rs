//! The command line's part of attaching by ublk: whether the machine can, and the removal of the block
//! device.

use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::device::ublk::{remove, unserved};
use crate::served::via::Via;
use crate::{Error, ErrorKind, Result};
use braid_fuse::{Process, processes, uses};
use braid_ublk::{Device, State, number_of};
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Oldest Linux with a recovery that works: an earlier one may crash in it.
const OLDEST: (u32, u32) = (6, 12);
/// File of the driver.
const CONTROL: &str = "/dev/ublk-control";
/// Time after which the kernel looks whether the daemon of a request still lives. The default, 30 s, is the
/// pause of guests if all tags were in use at the death of the daemon.
const LOOK_AFTER_MS: &str = "2000";
/// Time for users of a block device to end, after an unmount for example.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Chooses the way to attach: `wanted`, else ublk if the machine can.
///
/// # Errors
/// `Unsupported` if ublk is wanted and the machine cannot: names the remedy.
pub(super) fn choose(wanted: Option<Via>) -> Result<Via> {
    if wanted == Some(Via::Loop) {
        return Ok(Via::Loop);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let lack = lack(&release, has_driver);
    decide(wanted, lack)
}

fn decide(wanted: Option<Via>, lack: Option<String>) -> Result<Via> {
    match (wanted, lack) {
        (Some(Via::Ublk), Some(lack)) => {
            let problem = format!("no block device by ublk: {lack}; or attach with --via loop");
            Err(Error::new(ErrorKind::Unsupported, problem))
        }
        (Some(Via::Loop), _) | (None, Some(_)) => Ok(Via::Loop),
        (Some(Via::Ublk) | None, None) => Ok(Via::Ublk),
    }
}

/// Returns what the machine lacks for ublk, with the remedy. `has_driver` may load the driver, and is called
/// only for a kernel that is new enough.
fn lack(release: &str, has_driver: impl FnOnce() -> bool) -> Option<String> {
    let (release, (major, minor)) = (release.trim(), OLDEST);
    if version(release).is_none_or(|version| version < OLDEST) {
        return Some(format!("Linux {major}.{minor} or later is needed, and this is {release}"));
    }
    (!has_driver()).then(|| format!("there is no {CONTROL}: modprobe ublk_drv"))
}

/// Major and minor version of a release such as `6.12.9-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// True if the driver is there, perhaps after loading it.
fn has_driver() -> bool {
    if !Path::new(CONTROL).exists() {
        let mut load = Command::new("modprobe");
        load.args(["-q", "ublk_drv"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without the program or the driver, the file stays away.
        drop(load.status());
    }
    Path::new(CONTROL).exists()
}

/// Sets what the driver has no parameter for.
pub(super) fn tune(device: &Path) {
    let name = device.file_name().unwrap_or_default();
    let file = Path::new("/sys/class/block").join(name).join("queue/io_timeout");
    if let Err(error) = fs::write(&file, LOOK_AFTER_MS) {
        tracing::warn!(
            "{}: {error}: after the death of the daemon, requests may wait 30 s longer",
            file.display()
        );
    }
}

/// Removes the served block device `path`, which no file system uses any more; `client` is connected to its
/// daemon.
///
/// # Errors
/// `Busy` if a program has the device open: names the program.
pub(super) fn remove_served(client: &mut Client, path: &Path) -> Result<()> {
    // Keeps mounts, swap and other exclusive users away.
    let claim = claim(path)?;
    refuse_open(path)?;
    // With the claim, the last close of another program did not write its dirty pages.
    claim.sync_all().map_err(|error| Error::io(format_args!("flushing {}", path.display()), &error))?;
    client.call::<serde_json::Value>(Request::Detach { block_device: Some(path.to_owned()) })?;
    drop(claim);
    wait_until_gone(path)
}

fn claim(path: &Path) -> Result<File> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut options = OpenOptions::new();
        match options.read(true).write(true).custom_flags(OFlags::EXCL.bits() as i32).open(path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(in_use(path, &uses(path)?.iter().map(ToString::to_string).collect::<Vec<_>>()));
            }
            Err(error) => return Err(Error::io(format_args!("opening {}", path.display()), &error)),
        }
    }
}

/// Refuses if a program has the device open, after a moment: a device manager looks at each device that was
/// written.
fn refuse_open(path: &Path) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let open = processes(path)?;
        if open.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(in_use(path, &open.iter().map(Process::to_string).collect::<Vec<_>>()));
        }
        std::thread::sleep(PAUSE);
    }
}

fn in_use(path: &Path, users: &[String]) -> Error {
    let (path, users) = (path.display(), users.join(", "));
    Error::new(ErrorKind::Busy, format!("{path} is in use ({users}): unmount or close it first"))
}

fn wait_until_gone(path: &Path) -> Result<()> {
    let Some(number) = number_of(path) else { return Ok(()) };
    let (device, end) = (Device { number, state: State::Dead }, Instant::now() + PATIENCE);
    while !device.is_gone() {
        if Instant::now() >= end {
            let problem = format!("{} goes when the last program closes it", path.display());
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Removes the block devices of the volume with `uuid` whose daemon has ended; `unmount` unmounts the file
/// systems on one. Returns the mount points and the devices.
///
/// # Errors
/// `Busy` if a device is in use and the removal is not forced: the next daemon continues the device, and
/// nothing is lost.
pub(super) fn remove_unserved(
    uuid: &str,
    is_forced: bool,
    mut unmount: impl FnMut(&Path) -> Result<Vec<PathBuf>>,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut unmounted, mut removed) = (Vec::new(), Vec::new());
    for device in unserved(uuid)? {
        let path = device.path();
        if device.state != State::Dead && !is_forced {
            refuse_waiting(&path)?;
        }
        // Requests that wait fail now; an unmount before would wait for ever.
        remove(device)?;
        unmounted.extend(unmount(&path)?);
        removed.push(path);
    }
    Ok((unmounted, removed))
}

/// Refuses if a device that waits for a daemon is in use.
fn refuse_waiting(path: &Path) -> Result<()> {
    let mut users: Vec<String> = uses(path)?.iter().map(ToString::to_string).collect();
    users.extend(processes(path)?.iter().map(Process::to_string));
    if users.is_empty() {
        return Ok(());
    }
    let (shown, users) = (path.display(), users.join(", "));
    let problem = format!(
        "{shown} waits for a daemon, and is in use ({users}): to continue without loss, braid serve the volume; to give \
         up unsynced writes, add --force"
    );
    Err(Error::new(ErrorKind::Busy, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ublk_is_preferred_if_the_machine_can() {
        assert_eq!(decide(None, None), Ok(Via::Ublk));
        assert_eq!(decide(Some(Via::Ublk), None), Ok(Via::Ublk));
        assert_eq!(decide(Some(Via::Loop), None), Ok(Via::Loop));
        assert_eq!(decide(None, Some("no driver".to_owned())), Ok(Via::Loop));
        let error = decide(Some(Via::Ublk), Some("modprobe it".to_owned())).expect_err("ublk is impossible");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("modprobe it") && error.to_string().contains("--via loop"));
    }

    #[test]
    fn older_kernels_lack_ublk_without_a_look_at_the_driver() {
        for old in ["6.1.0-49-amd64", "6.11.9\n", "5.10", "", "unknown"] {
            assert!(lack(old, || panic!("{old} is too old")).is_some(), "{old}");
        }
        for new in ["6.12.117+deb12-amd64\n", "6.18.5", "7.0-rc1"] {
            assert_eq!(lack(new, || true), None, "{new}");
            assert!(lack(new, || false).expect("the driver is missing").contains("modprobe"), "{new}");
        }
    }
}
