//! `braid serve`, and `braid stop`, which ends a served volume from another terminal.

use crate::log::{LogForm, LogSettings};
use crate::output::{Output, print};
use crate::volume_options::VolumeOptions;
use braid_base::{Bytes, DeviceId};
use braid_control::{
    ClientRule, Error, ErrorKind, MachineSocket, NbdAddress, Readahead, Ready, Result, ServeConfig,
    ServeOptions, StateDir, VolumeConfig, VolumeName,
};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Serve a volume in the foreground until SIGTERM, SIGINT or SIGHUP
///
/// Prints one line when the server is ready for connections: the URIs of the volume's NBD exports. Logs go to
/// standard error. Settings that the command line lacks are read from /etc/braid/NAME.toml, if that file
/// exists.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid serve vault
  braid serve vault --nbd 127.0.0.1:10809 --nbd unix:/run/vault.sock
  braid serve vault --nbd 192.168.1.7:10809 --tls /etc/braid/tls --tls-client backup=vault:ro
  braid serve vault --vhost-user /run/vault-vm.sock
  braid serve --temporary --ssd memory,size=1GiB,model=x25-m --hdd memory,size=4GiB,model=mba3073

/etc/braid/NAME.toml, all keys optional:
  [serve]
  nbd = ['unix:/run/vault.sock', '127.0.0.1:10809']
  vhost-user = '/run/vault-vm.sock'
  cache = 1000
  readahead = 'second'
  ahead = '32MiB'
  clients = 64
  tls = '/etc/braid/tls'
  tls-clients = ['backup=vault:ro', 'web1=vault']
  ssd-model = 'sata-ssd'
  hdd-model = 'exos-x20'

SIGTERM, SIGINT and SIGHUP end the daemon: it accepts no new clients, answers requests in flight for up to
10 s, unmounts file systems mounted by braid attach, and closes the volume. A second signal ends the wait.
Exit status 3 if a file system stays in use: data that was not synced may be lost. A block device by ublk that
stays in use waits for the next daemon instead, with exit status 0. SIGUSR1 leaves such a device to the next
daemon at once, with its mounts.

The daemon gives up powers that it does not need, for good: it starts no program, system calls are
filtered, and of root's capabilities CAP_DAC_OVERRIDE, CAP_IPC_LOCK, CAP_SYS_ADMIN and
CAP_SYS_RESOURCE stay.

JSON, one line when ready: name, nbd_uris, vhost_user_socket, admin_socket, process_id.")]
pub struct Arguments {
    /// Name of the volume
    #[arg(required_unless_present = "temporary")]
    name: Option<VolumeName>,
    /// Address of the NBD export, instead of a socket in the state directory. Repeat the option for more
    /// addresses
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    nbd: Vec<NbdAddress>,
    /// Socket for a virtual machine (vhost-user-blk), which gets the volume as its disk. The guest does not
    /// notice a restart of the daemon if qemu has reconnect=1. With ",group" members of the socket's group
    /// may connect, not its owner and root alone
    #[arg(long, value_name = "PATH[,group]")]
    vhost_user: Option<MachineSocket>,
    /// Size of the memory cache in extents, at most 1,000,000 [default: 100]
    #[arg(long, value_name = "EXTENTS",
          value_parser = clap::value_parser!(u32).range(0..=ServeOptions::MOST_CACHE_EXTENTS as i64))]
    cache: Option<u32>,
    /// Time to bring a whole extent into the memory cache after a read misses: first (at the first miss),
    /// second (at the second miss, a short while later), or off [default: second]
    #[arg(long, value_name = "WHEN")]
    readahead: Option<Readahead>,
    /// Memory for read-ahead of up to 16 streams of reads in order or at a stride, such as 32MiB. No
    /// read-ahead with 0, with --readahead off, or with extents of more than 1 MiB [default: 0]
    #[arg(long, value_name = "SIZE")]
    ahead: Option<Bytes>,
    /// NBD clients at the same time. A further client is refused, unless a client that has been connected for
    /// a minute without sending a request can make room [default: 32]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=ServeOptions::MOST_CLIENTS as i64))]
    clients: Option<u32>,
    /// Directory with ca-cert.pem, server-cert.pem and server-key.pem (braid tls init). All NBD clients, at
    /// every address, then need TLS and a certificate of the authority. Without this option, only this
    /// machine reaches the volume
    #[arg(long, value_name = "DIRECTORY")]
    tls: Option<PathBuf>,
    /// Client that may use the volume, by the name in its certificate: the common name of the subject, or a
    /// DNS name. EXPORT is the volume's name; with :ro, the client only reads. Repeat the option for more
    /// clients [default: all clients with a certificate of the authority]
    #[arg(long, value_name = "NAME=EXPORT[:ro]")]
    tls_client: Vec<ClientRule>,
    /// Discard the data of a device, by its place: d1. With two copies, the device is resynchronised from the
    /// others: for halves of a mirror that were used apart, and for old copies of devices. With one copy, the
    /// volume continues without the device, for good: data there reads as errors, and blocks cached dirty
    /// there read as before the dirty writes. If the device had the journal (the first SSD), the same happens
    /// to data of its last 30 s: data moved, freed or first written then, and data overwritten then past a
    /// dirty block of another SSD
    #[arg(long, value_name = "DEVICE", value_parser = device_id)]
    distrust: Vec<DeviceId>,
    /// Serve the volume although another host serves it on remote devices (NBD, RBD). A second later the
    /// other host changes nothing more; if its device does not answer, six seconds later. Without this flag,
    /// a volume is taken over 5 s after the other host's last sign of life
    #[arg(long)]
    take_over: bool,
    /// Write back the data that only the SSD holds, although the adopted disk was changed while it was not
    /// served. Write-back may destroy the disk's file system
    #[arg(long = "force-write-back")]
    force_write_back: bool,
    /// Model of SSDs that emulate no model, for simulations beside the volume (equi,mode=auto): a name (braid
    /// device show), or a file made by braid device calibrate [default: measured while the SSDs serve guests]
    #[arg(long, value_name = "MODEL")]
    ssd_model: Option<String>,
    /// Model of hard disks: as --ssd-model
    #[arg(long, value_name = "MODEL")]
    hdd_model: Option<String>,
    /// User that the daemon becomes once its devices are open, started as root: the daemon then has no powers
    /// of root and no capability, serves NBD and virtual machines, and cannot be attached. The user gets the
    /// volume's state directory. Devices can be added or return only if the user owns BRAID_STATE_DIR and may
    /// open the devices
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Form of the log: text (lines on standard error), or journal (entries in the journal of systemd, with
    /// the fields BRAID_VOLUME, BRAID_DEVICE and BRAID_CODE) [default: journal if standard error is the
    /// journal]
    #[arg(long, value_name = "FORM")]
    log: Option<LogForm>,
    /// Create the volume now; remove the volume and its files at the end
    #[arg(long)]
    temporary: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// Stop the daemon of a volume, and wait until the volume is closed
///
/// Refuses while the volume is in use, and lists the users: mounts, swap space, programs that have the block
/// device open, NBD clients, the virtual machine. SIGTERM ends the daemon without this check.
#[derive(Args)]
#[command(after_help = "JSON: name, stopped (true).")]
pub struct StopArguments {
    /// Name of the volume
    name: VolumeName,
    /// Stop the daemon although the volume is in use: mounts and clients get 10 s, and lose data that is not
    /// synced
    #[arg(long)]
    force: bool,
}

/// Default name of a temporary volume.
const TEMPORARY: &str = "temporary";

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let ready = |ready: &Ready| output.announce(ready, || ready.nbd_uris.join(" "));
    match (&arguments.name, arguments.temporary) {
        (name, true) => {
            let name = name.clone().map_or_else(|| TEMPORARY.parse(), Ok)?;
            let new = arguments.volume.new_volume(name)?;
            let options = arguments.options(&new.name, ServeConfig::default());
            braid_control::serve_temporary(state, &new, &options, ready)?;
        }
        (_, false) if arguments.volume.any() => {
            let problem = "options of a new volume: for braid create or braid serve --temporary only";
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        (Some(name), false) => {
            let options = arguments.options(name, VolumeConfig::read(name)?.serve);
            braid_control::serve(state, name, &options, ready)?;
        }
        (None, false) => {
            return Err(Error::new(ErrorKind::Usage, "no volume: name a volume, or add --temporary"));
        }
    }
    Ok(0)
}

impl Arguments {
    /// Returns the log of the daemon.
    pub fn log(&self) -> LogSettings {
        let volume = self.name.as_ref().map_or_else(|| TEMPORARY.to_owned(), ToString::to_string);
        LogSettings { form: LogForm::or_usual(self.log), level: "info", volume: Some(volume) }
    }

    /// Returns the options of the command line, with those of the configuration for the others.
    fn options(&self, name: &VolumeName, configured: ServeConfig) -> ServeOptions {
        let usual = ServeOptions::default();
        let number = |given: Option<u32>| given.map(|number| number as usize);
        ServeOptions {
            nbd: if self.nbd.is_empty() { configured.nbd } else { self.nbd.clone() },
            vhost_user: self.vhost_user.clone().or(configured.vhost_user),
            cache_extents: number(self.cache).or(configured.cache).unwrap_or(usual.cache_extents),
            readahead: self.readahead.or(configured.readahead).unwrap_or(usual.readahead),
            ahead: self.ahead.or(configured.ahead).unwrap_or(usual.ahead),
            clients: number(self.clients).or(configured.clients).unwrap_or(usual.clients),
            tls: self.tls.clone().or(configured.tls),
            tls_clients: match self.tls_client.is_empty() {
                true => configured.tls_clients,
                false => self.tls_client.clone(),
            },
            detach: Some(detach_command(name)),
            user: self.user.clone(),
            distrust: self.distrust.clone(),
            force: self.force_write_back,
            take_over: self.take_over,
            ssd_model: self.ssd_model.clone().or(configured.ssd_model),
            hdd_model: self.hdd_model.clone().or(configured.hdd_model),
        }
    }
}

/// Parses a device by its place: `d0`.
pub fn device_id(text: &str) -> std::result::Result<DeviceId, String> {
    let number = text.strip_prefix('d').and_then(|number| number.parse().ok());
    number
        .map(DeviceId)
        .ok_or_else(|| format!("'{text}' is not a device: use the device's place in the volume, as in d0"))
}

/// Command line of `braid detach`, for the process that detaches when the daemon stops. Runs the daemon's own
/// executable, even if the file was replaced meanwhile.
fn detach_command(name: &VolumeName) -> Vec<OsString> {
    vec!["/proc/self/exe".into(), "detach".into(), name.as_str().into(), "--on-request".into()]
}

/// Runs the command.
pub fn stop(state: &StateDir, arguments: &StopArguments, output: Output) -> Result<u8> {
    let name = &arguments.name;
    braid_control::stop(state, name, arguments.force)?;
    match output.json {
        true => print(&serde_json::json!({ "name": name, "stopped": true }).to_string()),
        false => print(&format!("volume '{name}' is closed")),
    }
    Ok(0)
}
