//! The devices of a volume that this machine has, with or without a server: found by the mark.

use crate::control::{CONTROL, Control, is_gone};
use crate::wire::{ControlVerb, DEAD, DeviceInfo, LIVE, QUIESCED};
use braid_engine::{Error, Result};
use braid_runtime::Arena;
use braid_uring::Ring;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A device of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// Number: 0 for `/dev/ublkb0`.
    pub number: u32,
    /// State.
    pub state: State,
}

/// State of a [`Device`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// A running process serves the device, or is about to.
    Served,
    /// The server has ended. Requests wait for the next server.
    Waiting,
    /// The server has ended, and the kernel is about to let requests wait.
    Ending,
    /// There is no block device: remains of a server that ended too early, or of a removal.
    Dead,
}

impl Device {
    /// Path of the block device.
    pub fn path(&self) -> PathBuf {
        path_of(self.number)
    }

    /// Removes the device. Waiting requests fail, and all later requests.
    ///
    /// # Errors
    /// If the driver refuses.
    pub async fn remove(&self, ring: &Ring, arena: &Arena) -> Result<()> {
        let control = Control::open(ring, arena)?;
        remove(&control, self.number).await
    }

    /// True if the kernel has removed the device, which happens when the last program has closed it.
    pub fn is_gone(&self) -> bool {
        !Path::new(DEVICES).join(format!("ublkc{}", self.number)).exists()
    }
}

/// Path of the block device with a number.
pub(crate) fn path_of(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// Number of a block device by its path; `None` for other files.
pub fn number_of(path: &Path) -> Option<u32> {
    path.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()
}

/// Stops and deletes a device, without waiting for its last user.
pub(crate) async fn remove(control: &Control, number: u32) -> Result<()> {
    end(control, number, ControlVerb::Stop).await?;
    end(control, number, ControlVerb::Delete).await
}

/// Stops or deletes a device. A device that is gone already is no error.
pub(crate) async fn end(control: &Control, number: u32, verb: ControlVerb) -> Result<()> {
    match control.command(verb, number, 0).await {
        Err(error) if !is_gone(&error) => {
            Err(Error::io(format_args!("removing {}", path_of(number).display()), &error))
        }
        _ => Ok(()),
    }
}

/// Returns the devices with a mark, by number. None if the driver is not loaded.
///
/// # Errors
/// If the kernel does not list or describe the devices; needs root.
pub async fn devices(ring: &Ring, arena: &Arena, mark: u64) -> Result<Vec<Device>> {
    let numbers = numbers()?;
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let control = Control::open(ring, arena)?;
    let found = marked(&control, &numbers, mark).await?;
    Ok(found.iter().map(|info| Device { number: info.number, state: state_of(info) }).collect())
}

/// Numbers of all devices of the driver.
pub(crate) fn numbers() -> Result<Vec<u32>> {
    let entries = match fs::read_dir(DEVICES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::io(DEVICES, &error))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Descriptions of the devices with a mark.
pub(crate) async fn marked(control: &Control, numbers: &[u32], mark: u64) -> Result<Vec<DeviceInfo>> {
    let mut found = Vec::new();
    for &number in numbers {
        match control.device_info(number).await {
            Ok(info) if info.mark == mark => found.push(info),
            Ok(_) => {}
            // Removed meanwhile.
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                let attempt = format!("asking {CONTROL} for device {number}");
                return Err(Error::io(attempt, &error));
            }
        }
    }
    Ok(found)
}

/// State of a device, with a look at its server.
pub(crate) fn state_of(info: &DeviceInfo) -> State {
    state(info.state, is_running(info.process))
}

/// State of a device by the state in the driver.
fn state(of_driver: u16, has_server: bool) -> State {
    match (of_driver, has_server) {
        (QUIESCED, _) => State::Waiting,
        (LIVE, false) => State::Ending,
        (DEAD, false) => State::Dead,
        // Also states of later drivers, which this version does not ask for.
        _ => State::Served,
    }
}

/// True if another process with this number runs. A process that was killed and not yet waited for does not
/// run. This process does not count: in a container, an earlier server may have had the same number.
fn is_running(process: i32) -> bool {
    if process <= 0 || process == std::process::id() as i32 {
        return false;
    }
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !has_ended(&stat))
}

/// True if the line of `/proc/PROCESS/stat` says so: the state follows the name, which may hold any
/// character.
fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Devices of the driver in the kernel's list.
const DEVICES: &str = "/sys/class/ublk-char";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_waiting_only_without_a_server() {
        assert_eq!(state(QUIESCED, false), State::Waiting);
        assert_eq!(state(LIVE, true), State::Served);
        // The kernel is about to notice the death.
        assert_eq!(state(LIVE, false), State::Ending);
        assert_eq!(state(DEAD, false), State::Dead);
        // Another daemon is making the device.
        assert_eq!(state(DEAD, true), State::Served);
        assert_eq!(state(99, false), State::Served);
    }

    #[test]
    fn killed_process_has_ended_whatever_its_name() {
        assert!(has_ended("7 (a) R) Z 1 7"));
        assert!(!has_ended("7 (Z) R 1 7") && !has_ended(""));
        assert!(is_running(1) && !is_running(-1) && !is_running(std::process::id() as i32));
    }

    #[test]
    fn number_of_a_block_device_is_in_its_name() {
        assert_eq!(number_of(Path::new("/dev/ublkb12")), Some(12));
        for other in ["/dev/ublkc0", "/dev/loop0", "/dev/ublkb0p1", "/dev/ublkb"] {
            assert_eq!(number_of(Path::new(other)), None, "{other}");
        }
        assert_eq!(number_of(&path_of(3)), Some(3));
    }
}
