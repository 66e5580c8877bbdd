//! The layer between the command line and the engine: devices by their paths, volumes by their names, and the
//! daemon with its reports. This crate is the daemon's only API: the command line, dashboard and tests see
//! these types, never the engine.
//!
//! Rooms from high to low. A room imports only from lower rooms, which `braid-checks` compares.
//!
//! ```text
//! serve/    the life of the daemon: opening, doors (its sockets), signals, closing
//! volume/   commands by name: create, check, import, policy, recover, replace, resize
//! attach/   a kernel block device over the daemon's file: block_device; users (of a served volume)
//! alert/    what needs the owner: conditions (in one report), watch (their beginnings and ends)
//! admin/    the admin socket: server and client, protocol, recording (the client's end of a trace), silence
//!           (a daemon that does not answer)
//! config    settings of a volume's daemon and block device, from NAME.toml
//! guard/    simulations beside a volume, which choose the mode of its policy
//! served/   a volume as its daemon serves it: what admin verbs, guard and reports may see and do
//! record/   notes → recorded → send: a trace, from the guests' requests to the client's connection
//! members/  the devices of a volume: finding (where), claims (whose), open
//! tls/      certificates of NBD clients and servers: authority (makes), files (reads)
//! report/   what status, explain and changes say, with units in the names: the stable JSON
//! state/    what this machine knows of a volume: state_dir (names → paths), lock (one process at a time),
//!           noted, lasting (the pending log)
//! device/   by path: spec (`PATH,model=x25-m,size=10GiB`), open, log (its errors), adopted (what a disk with
//!           data on it is known by), look (what lies at many paths), calibrate (a model from measurements)
//! model/    library (models by name, or from a file of your own)
//! error     errors by their remedy
//! ```
#![forbid(unsafe_code)]

mod admin;
mod alert;
mod attach;
mod config;
mod device;
mod error;
mod guard;
mod members;
mod model;
mod record;
mod report;
mod serve;
mod served;
mod state;
mod tls;
mod volume;

pub use admin::client::{Client, volume_report};
pub use admin::protocol::{LONGEST_REPLY, LONGEST_REQUEST, PROTOCOL_VERSION, Reply, Request};
pub use admin::recording::{Received, Recording};
pub use alert::conditions::{AlertLevel, Findings, LIFE_DAYS};
pub use alert::watch::{Alert, AlertWatch};
pub use attach::block_device::{Attached, Detach, Detached, Mount, attach, attached_device, detach};
pub use attach::users::stop;
pub use braid_emulated::Lateness;
pub use braid_engine::Readahead;
pub use braid_fuse::MountOptions;
pub use braid_nbd::tls::ClientRule;
pub use config::{AttachConfig, ServeConfig, VolumeConfig};
pub use device::calibrate::{CalibrateOptions, CalibrateReport, MeasuredReport, calibrate};
pub use device::spec::{DeviceSpec, Storage};
pub use error::{Error, ErrorKind, Result};
pub use members::finding::disk::return_disk;
pub use model::library::{ModelReport, find_model, models, show_model};
pub use report::changes::{AddReport, PolicyReport, ReplaceReport, ResizeReport};
pub use report::guard::{GuardReport, ModeReport};
pub use report::map::{CellsReport, MapReport};
pub use report::ranges::{LostRange, MissingRange};
pub use report::types::{
    BackgroundReport, CopyReport, DeviceReport, Durability, ExplainReport, GuestReport, LatencyReport,
    OperationReport, ResponseReport, RestingReport, SilentReport, StatusReport, VolumeReport,
};
pub use serve::daemon::{Ready, serve, serve_temporary};
pub use served::address::{MachineSocket, NbdAddress};
pub use served::detacher::answer_requests;
pub use served::options::ServeOptions;
pub use served::via::Via;
pub use state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
pub use tls::authority::{MOST_DAYS, TlsReport, tls_client, tls_init};
pub use volume::check::{CheckReport, check, repair};
pub use volume::create::{CreateReport, NewVolume, Unfitting, create};
pub use volume::import::{Import, ImportReport, forget, import};
pub use volume::policy::{check_policy, policy, set_policy};
pub use volume::recover::{Apply, LookReport, RecoverReport, look, recover};
pub use volume::replace::replace;
pub use volume::resize::resize;
