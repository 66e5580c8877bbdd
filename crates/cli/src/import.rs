//! `braid import` and `braid forget`.

use crate::check::describe;
use crate::output::{Output, print, quoted};
use crate::serve::device_id;
use braid_base::{Bytes, DeviceId};
use braid_control::{DeviceRecord, Import, Result, StateDir, VolumeName, VolumeRecord};
use clap::Args;
use std::path::PathBuf;

/// Import a volume from its devices, and record its name and paths on this machine
///
/// For devices that came from another machine or are in another directory now, and for a lost state
/// directory. Nothing on the devices changes. A known volume finds its devices by itself, whatever their
/// names are; with --as, the volume gets another name.
#[derive(Args, Clone)]
#[command(after_help = "\
Examples:
  braid import /dev/sdb /dev/sdc /dev/nvme1n1
  braid import /dev/sdb --without d0

JSON: name, uuid, size_bytes, policy, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing), check (as of
braid check).")]
pub struct Arguments {
    /// All devices of the volume, in any order, except lost devices: paths, addresses, or `rbd:POOL` for the
    /// images of a volume in a pool
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Name for the volume [default: its own name]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<VolumeName>,
    /// File of a model that the devices emulate, if this machine does not have the model. Repeat the option
    /// for each model
    #[arg(long = "model", value_name = "FILE.toml")]
    models: Vec<PathBuf>,
    /// Import without a lost device, by its place: d0. If the lost device was last in use without the others,
    /// the others hold older data. Repeat the option for each device
    #[arg(long, value_name = "DEVICE", value_parser = device_id)]
    without: Vec<DeviceId>,
}

/// Forget a volume's name and paths; its devices stay as they are, and import finds the volume again
#[derive(Args)]
#[command(after_help = "JSON: name, forgotten (true).")]
pub struct ForgetArguments {
    /// Name of the volume
    name: VolumeName,
    /// Forget a volume on an adopted disk even if its SSD may hold data that the disk lacks: that data is
    /// lost, and the disk stays as it is
    #[arg(long)]
    force: bool,
}

/// Runs the command.
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

/// Runs the command.
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

/// How to import a forgotten volume again, if possible.
fn way_back(record: &VolumeRecord) -> String {
    if let Some((_, disk)) = record.adopted() {
        return format!("; {} holds all its data, as a disk without Braid", disk.name());
    }
    let word = |(place, device): (usize, &DeviceRecord)| match device.missing {
        true => Some(format!("--without d{place}")),
        false => Some(quoted(device.path.as_ref()?)),
    };
    let devices = record.devices.iter().enumerate().filter(|(_, device)| !device.removed);
    let paths: Option<Vec<String>> = devices.map(word).collect();
    match paths.filter(|_| !record.temporary) {
        Some(paths) => format!("; to import it again: braid import {}", paths.join(" ")),
        None => String::new(),
    }
}
