//! Everything between the command line and the engine: devices by their paths, volumes by their names, the life of the
//! daemon, and what it tells about itself. The only API of the daemon: command line, dashboard and tests see these
//! types, never the engine.
//!
//! ```text
//! spec.rs devices.rs        `PATH,model=x25-m,size=10GiB`, and the device that it opens; device_log.rs its errors
//! models.rs calibrate.rs    device models: by name, from a file of one's own, or made from measurements
//! state_dir.rs lock.rs      names → paths on this machine; one process per volume
//! create.rs check.rs        verbs of a volume that nobody serves
//! import.rs policy.rs
//! members.rs                the devices of a volume that exists, found and opened
//! daemon.rs                 open, serve, drain, close
//! admin.rs                  the admin socket: protocol.rs its words, client.rs the other end
//! attach.rs attachment.rs   a kernel block device: the command line's part, the daemon's part
//! report.rs                 what status, explain and check say, with units in the names: the stable JSON
//! ```
#![forbid(unsafe_code)]

mod address;
mod admin;
mod attach;
mod attachment;
mod calibrate;
mod check;
mod client;
mod collect;
mod create;
mod daemon;
mod device_log;
mod devices;
mod error;
mod import;
mod lock;
mod members;
mod models;
mod notes;
mod policy;
mod protocol;
mod record;
mod recorded;
mod recording;
mod report;
mod ring;
mod spec;
mod state_dir;

pub use address::NbdAddress;
pub use attach::{Attached, Detached, attach, attached_device, detach};
pub use calibrate::{CalibrateOptions, CalibrateReport, MeasuredReport, calibrate};
pub use check::{CheckReport, LostRange, check, repair};
pub use client::{Client, volume_report};
pub use create::{CreateReport, NewVolume, create};
pub use daemon::{Ready, ServeOptions, serve, serve_temporary};
pub use error::{Error, ErrorKind, Result};
pub use import::{ImportReport, forget, import};
pub use models::{ModelReport, find_model, models, show_model};
pub use policy::{PolicyReport, check_policy, policy, set_policy};
pub use protocol::{LONGEST_REPLY, LONGEST_REQUEST, PROTOCOL_VERSION, Reply, Request};
pub use recording::{Received, Recording};
pub use report::{
    BackgroundReport, CopyReport, DeviceReport, Durability, ExplainReport, GuestReport, LatencyReport,
    OperationReport, RestingReport, StatusReport, VolumeReport,
};
pub use spec::{DeviceSpec, Storage};
pub use state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
