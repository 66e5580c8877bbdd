//! The ways to a served volume, with the recording of guests' requests: NBD, the block device or the file for
//! one, and the disk of a virtual machine.

use crate::Result;
use crate::device::open::OpenDevice;
use crate::record::recorded::{Recorded, Recorder};
use crate::report::types::StatusReport;
use crate::served::address::{Encryption, nbd_uri};
use crate::served::attachment::{AttachReply, Attachment, Ending};
use crate::served::detacher::Detacher;
use crate::served::via::Via;
use crate::state::state_dir::VolumeName;
use braid_base::Bytes;
use braid_engine::{Export, ResizableVolume};
use braid_nbd::tls::Tls;
use braid_nbd::{Server, ServerConfig};
use braid_uring::{Address, Listener, Ring};
use std::path::PathBuf;
use std::rc::Rc;

/// The frontends of a volume.
pub(crate) struct Frontends {
    /// The volume as NBD clients and the attached file access it, with recording.
    export: RecordedVolume,
    recorder: Rc<Recorder<Ring>>,
    attachment: Attachment,
    nbd: Server<RecordedVolume>,
    nbd_uris: Vec<String>,
    machine: Option<Machine>,
}

/// The volume as the disk of a virtual machine.
struct Machine {
    server: braid_vhost::Server<RecordedVolume>,
    socket: PathBuf,
}

type RecordedVolume = Recorded<Ring, ResizableVolume<Ring, OpenDevice>>;

impl Frontends {
    /// Starts to serve NBD clients, and a virtual machine at `machine`.
    pub fn start(
        ring: &Ring,
        name: &VolumeName,
        volume: &ResizableVolume<Ring, OpenDevice>,
        config: ServerConfig,
        listeners: Vec<Listener>,
        machine: Option<Listener>,
        attachment: Attachment,
    ) -> Result<Frontends> {
        let encryption = if config.tls.is_some() { Encryption::Tls } else { Encryption::None };
        let (export, recorder) =
            Recorded::new(ring.clone(), volume.clone(), volume.volume().shape().extent_size);
        let machine_config = braid_vhost::ServerConfig::new(name.as_str(), &config.arena);
        // Together as much as NBD alone: the engine needs the rest.
        let taken = if machine.is_some() { machine_config.memory } else { Bytes::ZERO };
        let config = ServerConfig { memory: config.memory - taken, ..config };
        let machine = machine.map(|door| Machine::start(ring, &export, machine_config, door)).transpose()?;
        let nbd = Server::new(ring.clone(), export.clone(), config)?;
        let uri = |listener: &Listener| nbd_uri(name, listener.local_address(), encryption);
        let nbd_uris = listeners.iter().map(uri).collect();
        for listener in listeners {
            let nbd = nbd.clone();
            ring.spawn(async move { nbd.serve(listener).await });
        }
        Ok(Frontends { export, recorder, attachment, nbd, nbd_uris, machine })
    }

    /// Returns the recorder of guests' requests.
    pub fn recorder(&self) -> &Rc<Recorder<Ring>> {
        &self.recorder
    }

    /// Replaces the TLS of the NBD server, for new connections.
    pub fn set_tls(&self, tls: Tls) {
        self.nbd.set_tls(tls);
    }

    /// Returns the URIs of the NBD exports.
    pub fn nbd_uris(&self) -> &[String] {
        &self.nbd_uris
    }

    /// Returns the socket for a virtual machine.
    pub fn vhost_user_socket(&self) -> Option<PathBuf> {
        self.machine.as_ref().map(|machine| machine.socket.clone())
    }

    /// Serves the volume as a block device or file, as [`Attachment::attach`].
    pub async fn attach(&self, via: Via, sector: Option<u32>) -> Result<AttachReply> {
        self.attachment.attach(&self.export, via, sector).await
    }

    /// Takes over the block device of an earlier daemon, as [`Attachment::take_over`].
    pub async fn take_over(&self) -> Result<()> {
        self.attachment.take_over(&self.export).await
    }

    /// Ends serving the volume as a block device or file, as [`Attachment::detach`].
    pub async fn detach(&self, checked: Option<&PathBuf>) -> Result<()> {
        self.attachment.detach(checked).await
    }

    /// Returns a client or device that uses the volume, and keeps the size of the volume in memory.
    pub fn user(&self) -> Option<String> {
        let client = || self.nbd.peers().first().map(|peer| format!("NBD client {peer} is connected"));
        let machine = || self.machine_guest().map(|peer| format!("virtual machine {peer} is connected"));
        let file =
            || self.attachment.file().map(|file| format!("the volume is attached ({})", file.display()));
        client().or_else(machine).or_else(file)
    }

    /// Returns the process of the connected virtual machine.
    fn machine_guest(&self) -> Option<String> {
        self.machine.as_ref().and_then(|machine| machine.server.peer())
    }

    /// Returns the block device of the volume if its size cannot change, as [`Attachment::fixed_device`].
    pub async fn fixed_device(&self) -> Result<Option<PathBuf>> {
        self.attachment.fixed_device().await
    }

    /// Tells guests about another size of the volume. Returns guests that keep the former size until their
    /// next connection: NBD has no message for a size.
    ///
    /// # Errors
    /// If the block device keeps the former size.
    pub async fn note_size(&self) -> Result<Vec<String>> {
        let untold = self.machine.as_ref().and_then(|machine| machine.server.note_size());
        self.attachment.set_size(self.export.size()).await?;
        let clients = self.nbd.peers().into_iter().map(|peer| format!("NBD client {peer}"));
        Ok(clients.chain(untold.map(|peer| format!("virtual machine {peer}"))).collect())
    }

    /// Adds the frontends to the status of the volume.
    pub fn status(&self, of_volume: StatusReport) -> StatusReport {
        StatusReport {
            nbd_uris: self.nbd_uris.clone(),
            nbd_connections: self.nbd.counters().open,
            nbd_clients: self.nbd.peers(),
            attached_file: self.attachment.file(),
            vhost_user_socket: self.vhost_user_socket(),
            vhost_user_guest: self.machine_guest(),
            ..of_volume
        }
    }

    /// Lets the guests finish, as far as `ending` asks. `detach` is that of [`Attachment::end`].
    pub async fn shut_down(&self, ending: Ending, detach: Option<&Detacher>) {
        if let Some(machine) = &self.machine {
            machine.server.shutdown().await;
        }
        self.nbd.shutdown().await;
        self.attachment.end(ending, detach).await;
    }

    /// Abandons a block device or file that is still in use, as [`Attachment::abandon`].
    pub async fn abandon(&self) -> Result<()> {
        self.attachment.abandon().await
    }
}

impl Machine {
    fn start(
        ring: &Ring,
        export: &RecordedVolume,
        config: braid_vhost::ServerConfig,
        listener: Listener,
    ) -> Result<Machine> {
        let Address::Unix(socket) = listener.local_address().clone() else {
            panic!("a virtual machine connects to a Unix socket");
        };
        let server = braid_vhost::Server::new(ring.clone(), export.clone(), config)?;
        let accepting = server.clone();
        ring.spawn(async move { accepting.serve(listener).await });
        Ok(Machine { server, socket })
    }
}
