//! `braid import` and `braid forget`.

use crate::check::describe;
use crate::output::{Output, print, quoted};
use crate::serve::device_id;
use braid_base::{Bytes, DeviceId};
use braid_control::{DeviceRecord, Import, Result, StateDir, VolumeName, VolumeRecord};
use clap::Args;
use std::path::PathBuf;

/// Find a volume on its devices, and note its name and their paths here
///
/// For devices that came from another machine, or are in another directory now, and without the state
/// directory. Nothing on them changes. A volume that is
/// known here finds its devices by itself, whatever their names are; with --as it gets another name.
#[derive(Args, Clone)]
#[command(after_help = "\
Examples:
  braid import /dev/sdb /dev/sdc /dev/nvme1n1
  braid import /dev/sdb --without d0

JSON: name, uuid, size_bytes, policy, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing), check (as of
braid check).")]
pub struct Arguments {
    /// All devices of the volume, in any order, but for those that are lost
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Note it by another name than its own
    #[arg(long = "as", value_name = "NAME")]
    name: Option<VolumeName>,
    /// The file of a model that its devices emulate, if this machine does not keep it. Repeat it for each
    #[arg(long = "model", value_name = "FILE.toml")]
    models: Vec<PathBuf>,
    /// Note it without a device that is lost, by its place: d0. If that was in use last without the others,
    /// these are older. Repeat it for each
    #[arg(long, value_name = "DEVICE", value_parser = device_id)]
    without: Vec<DeviceId>,
}

/// Forget a volume's name and paths; its devices stay as they are, and import finds it again
#[derive(Args)]
#[command(after_help = "JSON: name, forgotten (true).")]
pub struct ForgetArguments {
    /// The volume
    name: VolumeName,
    /// Forget a volume on an adopted disk though its SSD may hold what the disk lacks: that is lost, and the
    /// disk stays as it is
    #[arg(long)]
    force: bool,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let Arguments { paths, name, models, without } = arguments.clone();
    let report = braid_control::import(state, &Import { paths, name, models, without })?;
    output.show(&report, || {
        let (name, size) = (&report.name, Bytes(report.size_bytes));
        let found = describe(&report.check);
        format!("volume '{name}' of {size}, policy {}\n{found}\nNext: braid serve {name}", report.policy)
    });
    Ok(report.check.exit_status())
}

/// Runs the verb.
pub fn forget(state: &StateDir, arguments: &ForgetArguments, output: Output) -> Result<u8> {
    let name = &arguments.name;
    let record = state.load(name).ok();
    braid_control::forget(state, name, arguments.force)?;
    match output.json {
        true => print(&serde_json::json!({ "name": name, "forgotten": true }).to_string()),
        false => print(&format!(
            "volume '{name}' is forgotten{}",
            record.as_ref().map_or_else(String::new, way_back)
        )),
    }
    Ok(0)
}

/// How a volume is found again that was forgotten, if it can be.
fn way_back(record: &VolumeRecord) -> String {
    if let Some((_, disk)) = record.adopted() {
        return format!("; {} holds all of it, as a disk without Braid", disk.name());
    }
    let word = |(place, device): (usize, &DeviceRecord)| match device.missing {
        true => Some(format!("--without d{place}")),
        false => Some(quoted(device.path.as_ref()?)),
    };
    let devices = record.devices.iter().enumerate().filter(|(_, device)| !device.removed);
    let paths: Option<Vec<String>> = devices.map(word).collect();
    match paths.filter(|_| !record.temporary) {
        Some(paths) => format!("; to have it back: braid import {}", paths.join(" ")),
        None => String::new(),
    }
}
