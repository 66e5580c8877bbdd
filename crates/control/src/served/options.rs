//! Settings for serving a volume.

use crate::served::address::{MachineSocket, NbdAddress, check_local};
use crate::state::state_dir::VolumeName;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId};
use braid_engine::Readahead;
use braid_nbd::tls::ClientRule;
use std::ffi::OsString;
use std::path::PathBuf;

/// Settings for serving a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Addresses of the NBD exports; empty for a Unix socket in the state directory.
    pub nbd: Vec<NbdAddress>,
    /// Socket for a virtual machine (vhost-user); `None` for no socket.
    pub vhost_user: Option<MachineSocket>,
    /// Extents in the memory cache.
    pub cache_extents: usize,
    /// When a read brings its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for read-ahead of sequential streams; 0 for none.
    pub ahead: Bytes,
    /// NBD connections at a time, on all addresses together.
    pub clients: usize,
    /// Directory of certificates: all NBD clients then need TLS and a certificate. `None` for plain NBD.
    pub tls: Option<PathBuf>,
    /// Clients that may use the export; empty for all with a certificate of the authority.
    pub tls_clients: Vec<ClientRule>,
    /// Command that detaches this volume for each request on its standard input
    /// ([`crate::answer_requests`]); `None` to leave detaching to the administrator.
    pub detach: Option<Vec<OsString>>,
    /// User that the daemon becomes once its devices are open; `None` for the user who started it.
    pub user: Option<String>,
    /// Devices whose content is excluded: they are rebuilt from the other devices.
    pub distrust: Vec<DeviceId>,
    /// Write dirty blocks back to an adopted disk even if the disk was changed while Braid did not serve the
    /// volume.
    pub force: bool,
    /// Shut out another host that serves the volume on remote devices.
    pub take_over: bool,
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
            vhost_user: None,
            cache_extents: 100,
            readahead,
            ahead: Bytes::ZERO,
            clients: 32,
            tls: None,
            tls_clients: Vec::new(),
            detach: None,
            user: None,
            distrust: Vec::new(),
            force: false,
            take_over: false,
            ssd_model: None,
            hdd_model: None,
        }
    }
}

/// The other remedy for an address that other machines reach.
pub(crate) const OR_TLS: &str = ", or TLS: --tls DIR (braid tls init DIR makes the certificates)";

impl ServeOptions {
    /// Largest number of clients that the daemon has memory for.
    pub const MOST_CLIENTS: usize = 256;
    /// Largest memory cache in extents.
    pub const MOST_CACHE_EXTENTS: usize = 1_000_000;

    /// Checks that the options fit each other, before anything is opened.
    ///
    /// # Errors
    /// `Usage` if other machines reach an address without TLS, if clients are listed without TLS, or if no
    /// listed client may use the volume.
    pub(crate) fn check(&self, name: &VolumeName) -> Result<()> {
        let usage = |problem: String| Error::new(ErrorKind::Usage, problem);
        if self.tls.is_none() {
            check_local(&self.nbd).map_err(|error| usage(format!("{error}{OR_TLS}")))?;
        }
        let Some(rule) = self.tls_clients.first() else { return Ok(()) };
        if self.tls.is_none() {
            return Err(usage(format!("--tls-client {rule} needs the certificates: add --tls DIR")));
        }
        if !self.tls_clients.iter().any(|rule| rule.export == name.as_str()) {
            let client = &rule.client;
            return Err(usage(format!(
                "no --tls-client may use '{name}', so no client could connect: add --tls-client {client}={name}"
            )));
        }
        Ok(())
    }
}
