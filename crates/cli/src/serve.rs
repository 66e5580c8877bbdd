//! `braid serve`, and `braid stop`, its end from another terminal.

use crate::output::{Output, print};
use crate::volume_options::VolumeOptions;
use braid_base::{Bytes, DeviceId};
use braid_control::{
    Error, ErrorKind, NbdAddress, Readahead, Ready, Result, ServeOptions, StateDir, VolumeName,
};
use clap::Args;
use std::ffi::OsString;

/// Serve a volume, in the foreground, until SIGTERM, SIGINT or SIGHUP
///
/// Prints one line when the server is ready for connections: the URIs of the volume's NBD exports. Logs to
/// standard error.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid serve vault
  braid serve vault --nbd 127.0.0.1:10809 --nbd unix:/run/vault.sock
  braid serve --temporary --ssd memory,size=1GiB,model=x25-m --hdd memory,size=4GiB,model=mba3073

SIGTERM, SIGINT and SIGHUP end it: no new clients, replies to requests in flight for up to 10 s;
what braid attach mounted is unmounted, and the volume is closed. A second signal ends the wait.
Exit status 3 if a file system stays in use: what was not synced to it may be lost.

JSON, one line when ready: name, nbd_uris, admin_socket, process_id.")]
pub struct Arguments {
    /// The volume
    #[arg(required_unless_present = "temporary")]
    name: Option<VolumeName>,
    /// Where to export it by NBD, instead of a socket in the state directory; may be repeated
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    nbd: Vec<NbdAddress>,
    /// Extents in the memory cache, at most a million
    #[arg(long, value_name = "EXTENTS", default_value_t = ServeOptions::default().cache_extents as u32,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    cache: u32,
    /// When a read that misses the memory cache brings all of its extent there: first (at the first miss),
    /// second (at the second, a short while later), or off
    #[arg(long, value_name = "WHEN", default_value_t)]
    readahead: Readahead,
    /// Memory for what is read ahead of up to 16 streams, of reads that follow each other in order or by a
    /// stride, such as 32MiB; 0 for none, as with --readahead off, and with extents of more than 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "0")]
    ahead: Bytes,
    /// NBD clients at a time. A further one is refused, unless one makes room that has not sent a request
    /// for a minute since it connected
    #[arg(long, value_name = "N", default_value_t = ServeOptions::default().clients as u32,
          value_parser = clap::value_parser!(u32).range(1..=ServeOptions::MOST_CLIENTS as i64))]
    clients: u32,
    /// Give up what lies on a device, by its place: d1. With two copies it is brought up to date from the
    /// others: for halves of a mirror that were used apart, and old copies of devices. With one copy, the
    /// volume goes on without the device, for good: what lay there reads as errors, and blocks cached dirty
    /// there read as they were before. If it had the journal (the first SSD), so does what was moved, freed
    /// or first written in its last 30 s, and what was overwritten then past a dirty block of another SSD
    #[arg(long, value_name = "DEVICE", value_parser = device_id)]
    distrust: Vec<DeviceId>,
    /// Write back what the SSD alone holds, though the adopted disk was changed while it was not served: that
    /// may destroy its file system
    #[arg(long = "force-write-back")]
    force_write_back: bool,
    /// How fast the SSDs are, for simulations of the volume beside it (equi,mode=auto), if they emulate no
    /// model: one of braid device show, or a file that braid device calibrate made [default: measured while
    /// they serve guests]
    #[arg(long, value_name = "MODEL")]
    ssd_model: Option<String>,
    /// The same of the disks
    #[arg(long, value_name = "MODEL")]
    hdd_model: Option<String>,
    /// Make the volume now, and remove it and the files made for it at the end
    #[arg(long)]
    temporary: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// End the daemon of a volume, and wait until the volume is closed
///
/// Refuses while something uses the volume, and says who: mounts, swap space, programmes that have its block
/// device open, NBD clients. SIGTERM does not ask.
#[derive(Args)]
#[command(after_help = "JSON: name, stopped (true).")]
pub struct StopArguments {
    /// The volume
    name: VolumeName,
    /// Stop it though something uses it: mounts and clients get ten seconds, and lose what they have not
    /// synced
    #[arg(long)]
    force: bool,
}

/// The name of a temporary volume that is given none.
const TEMPORARY: &str = "temporary";

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let options = |name: &VolumeName| ServeOptions {
        nbd: arguments.nbd.clone(),
        cache_extents: arguments.cache as usize,
        readahead: arguments.readahead,
        ahead: arguments.ahead,
        clients: arguments.clients as usize,
        detach: Some(detach_command(name)),
        distrust: arguments.distrust.clone(),
        force: arguments.force_write_back,
        ssd_model: arguments.ssd_model.clone(),
        hdd_model: arguments.hdd_model.clone(),
    };
    let ready = |ready: &Ready| output.announce(ready, || ready.nbd_uris.join(" "));
    match (&arguments.name, arguments.temporary) {
        (name, true) => {
            let name = name.clone().map_or_else(|| TEMPORARY.parse(), Ok)?;
            let new = arguments.volume.new_volume(name)?;
            braid_control::serve_temporary(state, &new, &options(&new.name), ready)?;
        }
        (_, false) if arguments.volume.any() => {
            let problem = "options of a new volume belong to braid create, or to braid serve --temporary";
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        (Some(name), false) => braid_control::serve(state, name, &options(name), ready)?,
        (None, false) => {
            return Err(Error::new(ErrorKind::Usage, "which volume? name one, or add --temporary"));
        }
    }
    Ok(0)
}

/// A device by its place: `d0`.
pub fn device_id(text: &str) -> std::result::Result<DeviceId, String> {
    let number = text.strip_prefix('d').and_then(|number| number.parse().ok());
    number
        .map(DeviceId)
        .ok_or_else(|| format!("'{text}' is not a device: use its place in the volume, as in d0"))
}

/// `braid detach`, for the daemon to run when it stops: with this very program, even if its file was replaced
/// meanwhile.
fn detach_command(name: &VolumeName) -> Vec<OsString> {
    vec!["/proc/self/exe".into(), "detach".into(), name.as_str().into()]
}

/// Runs the verb.
pub fn stop(state: &StateDir, arguments: &StopArguments, output: Output) -> Result<u8> {
    let name = &arguments.name;
    braid_control::stop(state, name, arguments.force)?;
    match output.json {
        true => print(&serde_json::json!({ "name": name, "stopped": true }).to_string()),
        false => print(&format!("volume '{name}' is closed")),
    }
    Ok(0)
}
