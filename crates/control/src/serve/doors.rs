//! Sockets of a daemon, for NBD clients, a virtual machine and admin commands. NBD sockets that the service
//! manager passed replace the socket in the state directory, and join the addresses of the options.

use crate::guard::like::Models;
use crate::serve::powers::give_up;
use crate::served::address::{MachineSocket, NbdAddress};
use crate::served::certificates::Certificates;
use crate::served::detacher::Detacher;
use crate::served::options::{OR_TLS, ServeOptions};
use crate::state::state_dir::{StateDir, VolumeName};
use crate::{Error, ErrorKind, Result};
use braid_uring::{Address, LONGEST_SOCKET_PATH, Listener, Ring, inherited};
use std::path::Path;

/// Listening sockets. They are bound before any device is touched; clients that connect meanwhile wait.
pub(super) struct Doors {
    pub nbd: Vec<Listener>,
    pub machine: Option<Listener>,
    pub admin: Listener,
    pub options: ServeOptions,
    /// Certificates, if NBD clients need TLS.
    pub certificates: Option<Certificates>,
    /// Models named by the options.
    pub models: Models,
    /// Detaches the volume at the end.
    pub detacher: Option<Detacher>,
}

impl Doors {
    /// Binds the sockets.
    pub fn bind(ring: &Ring, state: &StateDir, name: &VolumeName, options: &ServeOptions) -> Result<Doors> {
        let models = Models::find(options.ssd_model.as_deref(), options.hdd_model.as_deref())?;
        let certificates =
            options.tls.as_deref().map(|directory| Certificates::open(directory, &options.tls_clients));
        let certificates = certificates.transpose()?;
        let mut nbd = inherited(ring)?;
        for listener in &nbd {
            if let Address::Tcp(address) = listener.local_address()
                && certificates.is_none()
            {
                let checked = braid_nbd::check_address(*address);
                checked.map_err(|error| Error::new(ErrorKind::Invalid, format!("{error}{OR_TLS}")))?;
            }
        }
        let usual = [NbdAddress::Unix(state.nbd_socket(name))];
        let is_usual = options.nbd.is_empty() && nbd.is_empty();
        let addresses = if is_usual { &usual[..] } else { &options.nbd };
        let bind = |address: &NbdAddress| match address {
            NbdAddress::Unix(path) => {
                warn_of_long(path, "NBD clients connect", "--nbd unix:PATH");
                Listener::bind_unix(ring, path)
            }
            NbdAddress::Tcp(address) => Listener::bind_tcp(ring, *address),
        };
        nbd.extend(addresses.iter().map(bind).collect::<std::io::Result<Vec<_>>>()?);
        let bind_machine = |socket: &MachineSocket| {
            warn_of_long(&socket.path, "virtual machines connect", "--vhost-user PATH");
            match socket.for_group {
                true => Listener::bind_unix_for_group(ring, &socket.path),
                false => Listener::bind_unix(ring, &socket.path),
            }
        };
        let machine = options.vhost_user.as_ref().map(bind_machine).transpose()?;
        let admin = Listener::bind_unix(ring, &state.admin_socket(name))?;
        let options = options.clone();
        Ok(Doors { nbd, machine, admin, options, certificates, models, detacher: None })
    }
}

impl Doors {
    /// Gives up the powers of the process, after the process that detaches was started with them.
    pub fn give_up_powers(&mut self) -> Result<()> {
        self.detacher = give_up(&self.options)?;
        Ok(())
    }
}

/// Warns of a socket path that clients cannot use. The daemon can listen at a longer path than the kernel
/// lets a client connect to.
fn warn_of_long(path: &Path, clients_connect: &str, option: &str) {
    let len = path.as_os_str().len();
    if len > LONGEST_SOCKET_PATH {
        tracing::warn!(
            "{} has {len} bytes, and {clients_connect} to paths of at most {LONGEST_SOCKET_PATH}: give a \
             shorter path, {option}",
            path.display()
        );
    }
}
