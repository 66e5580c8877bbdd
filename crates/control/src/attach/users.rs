//! Users of a served volume. A command that ends the service names the users, and continues only if the
//! administrator forces it.

use crate::admin::client::{Client, PATIENCE, Reached};
use crate::attach::block_device::attached_device;
use crate::state::lock::waiting;
use crate::state::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_fuse::{VOLUME_FILE, loop_devices, openers, processes, uses};
use std::time::{Duration, Instant};

/// Grace period for an NBD client that has just ended: the connection is closed a moment later.
const LAST_GOODBYE: Duration = Duration::from_millis(500);
/// Time between two looks at the clients.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Limit of users named in a message.
const NAMED: usize = 10;

/// Stops the daemon of a volume, and waits until the volume is closed. Refused while the volume is in use,
/// unless forced: mounts and clients then get ten seconds, and lose unsynced data.
///
/// # Errors
/// `Busy`: names the mounts, swap space, programs, clients and virtual machine. `Io` if the daemon does not
/// answer: names the command that kills the daemon; `forced` does not kill it. `Unsafe` if the volume could
/// not be closed.
pub fn stop(state: &StateDir, name: &VolumeName, forced: bool) -> Result<()> {
    let mut client = match Client::reach(state, name, PATIENCE)? {
        Reached::Answers(client) => client,
        Reached::Silent(silence) => return Err(silence.error_of_stop(state)),
    };
    if !forced {
        let users = users(state, name, &mut client)?;
        if !users.is_empty() {
            return Err(in_use(name, &users));
        }
    }
    client.stop().map_err(|error| match waiting(state, name) {
        Some(waits) => Error::new(error.kind(), format!("{error}; {waits}")),
        None => error,
    })
}

fn in_use(name: &VolumeName, users: &[String]) -> Error {
    let more = match users.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = users[..users.len().min(NAMED)].join(", ");
    let problem = format!(
        "volume '{name}' is in use: {named}{more}; end these users first, or force the stop, which loses \
         their unsynced writes: braid stop {name} --force"
    );
    Error::new(ErrorKind::Busy, problem)
}

/// Returns the users of the volume, each as a part of a sentence.
fn users(state: &StateDir, name: &VolumeName, client: &mut Client) -> Result<Vec<String>> {
    let mut users = Vec::new();
    let attached = client.status()?.attached_file;
    let device = attached.and_then(|file| attached_device(state, name, &file));
    if let Some(device) = &device {
        users.extend(uses(device)?.iter().map(|used| format!("{} is {used}", device.display())));
        users.extend(processes(device)?.iter().map(|process| format!("{process} has it open")));
    }
    // The file beneath the block device.
    let file = state.mount_dir(name).join(VOLUME_FILE);
    users.extend(openers(&file).iter().map(|process| format!("{process} has {} open", file.display())));
    let others = loop_devices(&file).into_iter().filter(|other| Some(other) != device.as_ref());
    users.extend(others.map(|other| format!("{} is the file of {}", file.display(), other.display())));
    users.extend(guests(client)?);
    Ok(users)
}

/// Returns NBD clients and the virtual machine.
fn guests(client: &mut Client) -> Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let status = client.status()?;
        let clients = status.nbd_clients.iter().map(|peer| format!("NBD client {peer}"));
        let machine = status.vhost_user_guest.map(|peer| format!("virtual machine {peer}"));
        let guests: Vec<String> = clients.chain(machine).collect();
        if guests.is_empty() || start.elapsed() >= LAST_GOODBYE {
            return Ok(guests);
        }
        std::thread::sleep(ASK_AGAIN);
    }
}
