//! Recovery: the device of a dead daemon goes to its successor. Decisions are pure; [`find_waiting`] acts.

use crate::control::{Control, is_gone};
use crate::devices::{State, marked, numbers, path_of, remove, state_of};
use crate::wire::{ControlVerb, DeviceInfo, RESIZABLE};
use braid_base::{Bytes, Nanos, SECTOR};
use braid_engine::{Error, ErrorKind, Result};
use braid_runtime::{Arena, Runtime};
use braid_uring::Ring;
use rustix::io::Errno;
use std::cmp::Ordering;
use std::io;

/// Patience with the kernel, until requests of the dead daemon wait. If all tags were in use at the death,
/// Linux 6.12 notices the death only when a request times out: after 30 s by default.
const PATIENCE: Nanos = Nanos::from_secs(100);
const PAUSE: Nanos = Nanos::from_millis(20);

/// What to do with a device of the volume before the daemon is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    TakeOver,
    /// Look again in a moment.
    Wait,
    Remove,
    /// Another process serves the device: a copy of the volume with the same UUID.
    Leave,
}

fn step(state: State) -> Step {
    match state {
        State::Waiting => Step::TakeOver,
        State::Ending => Step::Wait,
        State::Dead => Step::Remove,
        State::Served => Step::Leave,
    }
}

/// Finds the waiting device with a mark, and prepares the device for this process. `None` if there is none.
/// Remains without a block device are removed.
///
/// # Errors
/// `Busy` if the kernel does not let the device go; `Invalid` if the device cannot get `size`.
pub(crate) async fn find_waiting(
    ring: &Ring,
    arena: &Arena,
    mark: u64,
    size: Bytes,
) -> Result<Option<(Control, DeviceInfo, Fit)>> {
    let numbers = numbers()?;
    if numbers.is_empty() {
        return Ok(None);
    }
    let control = match Control::open(ring, arena) {
        Ok(control) => control,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            // Common for a daemon of another user, whose volume cannot have a device.
            tracing::warn!("no look for a block device of this volume that waits for a daemon: {error}");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let deadline = ring.now() + PATIENCE;
    for number in numbers {
        if let Some(info) = settle(ring, &control, number, mark, deadline).await? {
            let fit = fit_of(&control, &info, size).await?;
            return Ok(Some((control, info, fit)));
        }
    }
    Ok(None)
}

/// Follows the steps for a device to its end. Returns the device if it is prepared for this process.
async fn settle(
    ring: &Ring,
    control: &Control,
    number: u32,
    mark: u64,
    deadline: Nanos,
) -> Result<Option<DeviceInfo>> {
    loop {
        let Some(info) = marked(control, &[number], mark).await?.pop() else { return Ok(None) };
        match step(state_of(&info)) {
            Step::Leave => {
                let (path, process) = (path_of(number), info.process);
                tracing::warn!(
                    "{} has the UUID of this volume, and process {process} serves it: a copy of this volume?",
                    path.display()
                );
                return Ok(None);
            }
            Step::Remove => {
                remove(control, number).await?;
                return Ok(None);
            }
            Step::TakeOver => match control.command(ControlVerb::StartRecovery, number, 0).await {
                Ok(()) => return Ok(Some(info)),
                // The process has not quite ended.
                Err(error) if is(&error, Errno::BUSY) => {}
                // Prepared already, by a server that died before it sent a command.
                Err(error) if is(&error, Errno::INVAL) => return Ok(Some(info)),
                Err(error) if is_gone(&error) => return Ok(None),
                Err(error) => {
                    let attempt = format!("taking over {}", path_of(number).display());
                    return Err(Error::io(attempt, &error));
                }
            },
            Step::Wait => {}
        }
        if ring.now() >= deadline {
            let (path, process) = (path_of(number), info.process);
            let problem = format!(
                "{} is still in the hands of process {process}, which has ended: see dmesg, and try again",
                path.display()
            );
            return Err(Error::new(ErrorKind::Busy, problem));
        }
        ring.sleep(PAUSE).await;
    }
}

fn is(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

/// Size of a waiting device beside the size of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    Equal,
    /// The daemon died before the device had the larger size of the volume: the next daemon repeats that,
    /// after the recovery, in which no parameter can change.
    Grow,
    Unfit,
}

fn fit(of_device: u64, of_volume: u64, features: u64) -> Fit {
    match of_device.cmp(&of_volume) {
        Ordering::Equal => Fit::Equal,
        Ordering::Less if features & RESIZABLE != 0 => Fit::Grow,
        Ordering::Less | Ordering::Greater => Fit::Unfit,
    }
}

async fn fit_of(control: &Control, info: &DeviceInfo, size: Bytes) -> Result<Fit> {
    let path = path_of(info.number);
    let failed = |error: io::Error| Error::io(path.display(), &error);
    let (sectors, wanted) =
        (control.parameters(info.number).await.map_err(failed)?.sectors, size.0 / SECTOR.0);
    let fit = fit(sectors, wanted, control.features().await.map_err(failed)?);
    if fit != Fit::Unfit {
        return Ok(fit);
    }
    let problem = format!(
        "{} has {sectors} sectors of 512 bytes, and the volume has {wanted}: end the users of the device, then braid detach --force",
        path.display(),
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_of_a_running_process_is_never_taken() {
        assert_eq!(step(State::Served), Step::Leave);
        assert_eq!(step(State::Waiting), Step::TakeOver);
        assert_eq!(step(State::Ending), Step::Wait);
        assert_eq!(step(State::Dead), Step::Remove);
    }

    /// A volume at rest does not shrink while its device waits.
    #[test]
    fn waiting_device_grows_where_the_driver_can() {
        for (of_device, of_volume, features, expected) in [
            (8, 8, 0, Fit::Equal),
            (8, 16, RESIZABLE, Fit::Grow),
            (8, 16, !RESIZABLE, Fit::Unfit),
            (16, 8, RESIZABLE, Fit::Unfit),
        ] {
            assert_eq!(
                fit(of_device, of_volume, features),
                expected,
                "{of_device} {of_volume} {features:#x}"
            );
        }
    }
}
