//! `braid device`: shows and makes device models; adds, removes, fails, returns and replaces devices of a
//! volume.

use crate::output::{Output, print};
use crate::serve::device_id;
use braid_base::{Bytes, DeviceClass, DeviceId, Nanos};
use braid_control::{
    CalibrateOptions, CalibrateReport, Client, DeviceSpec, Error, ErrorKind, Result, StateDir, VolumeName,
    calibrate, models, replace, return_disk, show_model,
};
use clap::{Args, Subcommand};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Show device models, or make one by measuring a device; add, remove, fail, return and replace devices of a
/// volume
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: DeviceVerb,
}

#[derive(Subcommand)]
enum DeviceVerb {
    Show(ShowArguments),
    Calibrate(CalibrateArguments),
    Add(AddArguments),
    Remove(RemoveArguments),
    Fail(FailArguments),
    Return(ReturnArguments),
    Replace(ReplaceArguments),
}

/// Add a device to a served volume, without interrupting guests
///
/// The device is used at once: new data goes to the device, and old data moves to it if the policy wants so.
/// The size of the volume stays the same until braid resize.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device add vault --hdd /dev/sdd
  braid device add vault --ssd fast2.img,size=8GiB

JSON: name, device, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing),
left_bytes (by which the volume could grow).")]
struct AddArguments {
    /// Name of the volume
    name: VolumeName,
    #[command(flatten)]
    new: NewDevice,
    /// Overwrite a device that holds data
    #[arg(long)]
    force: bool,
}

/// A new device with its class.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct NewDevice {
    /// SSD to add, named as in braid create
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    ssd: Option<String>,
    /// Hard disk to add, named as in braid create
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    hdd: Option<String>,
}

/// Remove a device from a served volume, without interrupting guests
///
/// The device drains: it gets no new data, and its data moves to the other devices while guests work. braid
/// status shows the bytes left. An empty device leaves the volume, and its superblock is erased. Draining
/// continues after a crash. If the journal and other metadata of the volume lie on the device, they move,
/// too. Removal is refused if the other devices have no room for the whole volume. When the SSD before an
/// adopted disk leaves, data that only the SSD holds is written back; after braid stop the disk is an
/// ordinary disk without Braid.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device remove vault d2
  braid device remove vault d2 --cancel

JSON: name, device.")]
struct RemoveArguments {
    /// Name of the volume
    name: VolumeName,
    /// Device to remove, by its place: d2
    #[arg(value_parser = device_id)]
    device: DeviceId,
    /// Stop draining the device, and use it as before
    #[arg(long)]
    cancel: bool,
}

/// Take a device out of use while the volume is served, as if the device had failed
///
/// For a volume of two copies: the volume continues on the other devices, without interrupting guests. The
/// device can then be unplugged. braid device return or the next braid serve resynchronises the device,
/// unless another device has taken its place (braid device replace).
#[derive(Args)]
#[command(after_help = "\
Example:
  braid device fail vault d1

JSON: name, device.")]
struct FailArguments {
    /// Name of the volume
    name: VolumeName,
    /// Device to fail, by its place: d1
    #[arg(value_parser = device_id)]
    device: DeviceId,
}

/// Return a failed or missing device to use while the volume is served
///
/// For a volume of two copies. The device must be the same one, with its old data: only data that guests have
/// changed since is copied to the device, while guests work. braid status shows when the device is up to
/// date. The next braid serve also returns a missing or failed device. While the volume is not served, the
/// command only records the new path of the adopted disk, if the disk is the same one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device return vault d1
  braid device return vault d1 /dev/sde

JSON: name, device, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing), left_bytes.")]
struct ReturnArguments {
    /// Name of the volume
    name: VolumeName,
    /// Device to return, by its place: d1
    #[arg(value_parser = device_id)]
    device: DeviceId,
    /// Present path of the device [default: found by search]
    path: Option<PathBuf>,
}

/// Replace a device that is gone or has to go
///
/// While the volume is served, the new device gets a place of its own, and the old device drains while guests
/// work: its data, or the copies of lost data on other devices, go to the other devices, mainly to the new
/// one. braid status shows the bytes left. Draining continues after a crash. While the volume is not served,
/// which needs two copies of all data, the new device takes the old device's place, and the next braid serve
/// makes all copies on it. If the old device is lost and had the only copy of some data, discard that data
/// first: braid serve --distrust.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device replace vault d0 /dev/nvme1n1
  braid device replace vault d1 new.img,size=8GiB

JSON: name, device, new_device, replaced_path, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing).")]
struct ReplaceArguments {
    /// Name of the volume
    name: VolumeName,
    /// Device to replace, by its place: d0
    #[arg(value_parser = device_id)]
    device: DeviceId,
    /// New device, of the same class and at least as large
    #[arg(value_name = "PATH[,size=S][,model=M]")]
    new: String,
    /// Overwrite a device that holds data
    #[arg(long)]
    force: bool,
}

/// Show a device model as TOML with the meaning of each field; without MODEL, list the models
///
/// The output can be edited and used as a model of your own: model=FILE.toml.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device show
  braid device show sata-ssd > mine.toml

JSON: model, title, class, capacity_bytes, toml; without MODEL a list of models.")]
struct ShowArguments {
    /// Name of a model, or a file to check
    model: Option<String>,
}

/// Measure a device or a file, and write a model of it
///
/// Only reads, unless --write permits the destruction of the data. A missing file is created if a size is
/// given, written, measured with reads and writes, and removed. No other program should use the device during
/// the measurement.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device calibrate /dev/sdb --output sdb.toml
  braid device calibrate /dev/sdb --write --seconds 300 --output sdb.toml
  braid device calibrate /mnt/pool/scratch,size=16GiB --output pool.toml

JSON: path, class, size_bytes, writes_measured, figures (measure, unit, measured_value, model_value),
flush_response_ns, lateness_ns_mean (of an emulated device), toml.")]
struct CalibrateArguments {
    /// Block device or file to measure; with model=, the emulation is measured
    #[arg(value_name = "PATH[,size=S][,model=M]")]
    device: String,
    /// File for the model [default: standard output]
    #[arg(long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// Approximate length of the measurement in seconds, 5 to 86400
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=86_400))]
    seconds: u32,
    /// Measure writes too: destroys the data on the device
    #[arg(long)]
    write: bool,
    /// Class of the device: ssd or hdd [default: by its behaviour]
    #[arg(long)]
    class: Option<DeviceClass>,
    /// Name of the model [default: name of the output file]
    #[arg(long)]
    name: Option<String>,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.verb {
        DeviceVerb::Show(arguments) => show(arguments, output),
        DeviceVerb::Calibrate(arguments) => run_calibrate(arguments, output),
        DeviceVerb::Add(arguments) => add(state, arguments, output),
        DeviceVerb::Remove(arguments) => remove(state, arguments, output),
        DeviceVerb::Fail(arguments) => fail(state, arguments, output),
        DeviceVerb::Return(arguments) => run_return(state, arguments, output),
        DeviceVerb::Replace(arguments) => run_replace(state, arguments, output),
    }
}

fn add(state: &StateDir, arguments: &AddArguments, output: Output) -> Result<u8> {
    let AddArguments { name, new, force } = arguments;
    let spec = match (&new.ssd, &new.hdd) {
        (Some(ssd), _) => DeviceSpec::parse(DeviceClass::Ssd, ssd)?,
        (None, hdd) => DeviceSpec::parse(DeviceClass::Hdd, hdd.as_deref().unwrap_or_default())?,
    };
    let report = Client::connect(state, name)?.add_device(&spec, *force)?;
    output.show(&report, || {
        let grows = match report.left_bytes {
            0 => "the volume cannot grow".to_owned(),
            left => format!("the volume could grow by {} (braid resize {name} SIZE)", Bytes(left)),
        };
        format!(
            "{} is now {} of volume '{name}', and in use: braid status {name}; {grows}",
            spec.name(),
            report.device
        )
    });
    Ok(0)
}

fn remove(state: &StateDir, arguments: &RemoveArguments, output: Output) -> Result<u8> {
    let RemoveArguments { name, device, cancel } = arguments;
    let mut client = Client::connect(state, name)?;
    let text = match cancel {
        true => {
            client.keep_device(*device)?;
            format!("{device} of volume '{name}' stays in use as before")
        }
        false => {
            client.remove_device(*device)?;
            format!(
                "{device} of volume '{name}' drains, and is removed once empty: braid status {name} shows the bytes left; to keep the device: \
                 braid device remove {name} {device} --cancel"
            )
        }
    };
    match output.json {
        true => print(&serde_json::json!({ "name": name, "device": device.to_string() }).to_string()),
        false => print(&text),
    }
    Ok(0)
}

fn fail(state: &StateDir, arguments: &FailArguments, output: Output) -> Result<u8> {
    let FailArguments { name, device } = arguments;
    Client::connect(state, name)?.fail_device(*device)?;
    match output.json {
        true => print(&serde_json::json!({ "name": name, "device": device.to_string() }).to_string()),
        false => print(&format!(
            "{device} of volume '{name}' is out of use: all data is on the other devices. To replace the device: \
             braid device replace {name} {device} PATH"
        )),
    }
    Ok(0)
}

fn run_return(state: &StateDir, arguments: &ReturnArguments, output: Output) -> Result<u8> {
    let ReturnArguments { name, device, path } = arguments;
    let report = match (Client::connect(state, name), path) {
        (Err(error), Some(path)) if error.kind() == ErrorKind::NotServed => {
            let report = return_disk(state, name, *device, path)?;
            output.show(&report, || {
                format!("{device} of volume '{name}' is at {}\nNext: braid serve {name}", path.display())
            });
            return Ok(0);
        }
        (client, path) => client?.return_device(*device, path.as_deref())?,
    };
    output.show(&report, || {
        format!("{device} of volume '{name}' is back, and is being resynchronised: braid status {name}")
    });
    Ok(0)
}

fn run_replace(state: &StateDir, arguments: &ReplaceArguments, output: Output) -> Result<u8> {
    let ReplaceArguments { name, device, new, force } = arguments;
    let report = replace(state, name, *device, new, *force)?;
    output.show(&report, || match report.new_device == report.device {
        true => format!(
            "{new} is now {device} of volume '{name}', in place of {}\nNext: braid serve {name}, to make all copies on the new device",
            report.replaced_path
        ),
        false => format!(
            "{new} is now {} of volume '{name}'; {device} ({}) is removed once its data is elsewhere: braid status {name}",
            report.new_device, report.replaced_path
        ),
    });
    Ok(0)
}

fn show(arguments: &ShowArguments, output: Output) -> Result<u8> {
    match &arguments.model {
        Some(model) => {
            let report = show_model(model)?;
            output.show(&report, || report.toml.clone());
        }
        None => {
            let all = models();
            output.show(&all, || {
                let line = |model: &braid_control::ModelReport| {
                    let (name, class, size) = (&model.model, &model.class, Bytes(model.capacity_bytes));
                    format!("{name:18} {class:4} {:>9}  {}\n", size.to_string(), model.title)
                };
                all.iter().map(line).collect()
            });
        }
    }
    Ok(0)
}

fn run_calibrate(arguments: &CalibrateArguments, output: Output) -> Result<u8> {
    let options = CalibrateOptions {
        device: arguments.device.clone(),
        class: arguments.class,
        time: Nanos::from_secs(arguments.seconds.into()),
        write: arguments.write,
        name: name(arguments),
    };
    if let Some(path) = &arguments.output {
        refuse_existing(path)?;
    }
    let told = std::io::stderr().is_terminal();
    let report = calibrate(&options, &|at, of, what| {
        if told && at == 0 {
            eprintln!("{what}");
        } else if told {
            eprintln!("{at} of {of}: {what}");
        }
    })?;
    match &arguments.output {
        Some(path) => {
            let written = std::fs::write(path, &report.toml);
            written.map_err(|e| Error::io(format_args!("cannot write {}", path.display()), &e))?;
            output.show(&report, || describe(&report, path));
        }
        None if output.json => output.show(&report, String::new),
        None => print(report.toml.trim_end()),
    }
    Ok(0)
}

fn describe(report: &CalibrateReport, path: &Path) -> String {
    let mut text = format!("{} behaves like this:\n", report.path);
    for figure in &report.figures {
        let unit = if figure.unit == "megabytes_per_second" { "MB/s" } else { "per second" };
        text += &format!(
            "  {:44} {:>10.1} {unit:10} (model {:.1})\n",
            figure.measure, figure.measured_value, figure.model_value
        );
    }
    if let Some(flush) = report.flush_response_ns {
        text += &format!("  {:44} {:>10}\n", "flush behind a write", Nanos(flush).to_string());
    }
    let class = &report.class;
    text + &format!("Next: --{class} PATH,model={}", path.display())
}

/// Name of the model: as given, or that of the output file, with other characters than letters, digits, '-',
/// '_' and '.' replaced by '-', and at most 40 characters.
fn name(arguments: &CalibrateArguments) -> String {
    let stem = arguments.output.as_ref().and_then(|path| path.file_stem()).and_then(|stem| stem.to_str());
    let name = arguments.name.as_deref().or(stem).unwrap_or("calibrated");
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    name.chars().take(40).map(allowed).collect()
}

/// Refuses an existing output file before the measurement, not after minutes of measuring.
fn refuse_existing(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let problem =
        format!("{}: file exists: use another name with --output, or remove the file", path.display());
    Err(Error::new(ErrorKind::Usage, problem))
}
