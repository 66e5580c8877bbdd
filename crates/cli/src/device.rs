//! `braid device`: models of devices, how to make one; devices of a volume: one more, one less, one taken out
//! of use, the same one back, a new one in its place.

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

/// Models of devices: show them, or make one by measuring a device; and devices of a volume: add one, remove
/// one, take one out of use and back, put a new one in its place
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Show(ShowArguments),
    Calibrate(CalibrateArguments),
    Add(AddArguments),
    Remove(RemoveArguments),
    Fail(FailArguments),
    Return(ReturnArguments),
    Replace(ReplaceArguments),
}

/// Give a volume that is served one more device; its guests notice nothing
///
/// The device is used at once: new data goes there, and old data moves there, as far as the policy wants it.
/// The volume keeps its size.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device add vault --hdd /dev/sdd
  braid device add vault --ssd fast2.img,size=8GiB

JSON: name, device, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing).")]
struct AddArguments {
    /// The volume
    name: VolumeName,
    #[command(flatten)]
    new: NewDevice,
    /// Overwrite a device that holds something
    #[arg(long)]
    force: bool,
}

/// A device with its class.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct NewDevice {
    /// An SSD, named as in braid create
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    ssd: Option<String>,
    /// A hard disk, named as in braid create
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    hdd: Option<String>,
}

/// Remove a device from a volume that is served; its guests notice nothing
///
/// The device drains: it gets nothing new, and what lies on it moves to the others beside the guests. braid
/// status says how much is left. When it is empty it is none of the volume's any more, and its superblock is
/// erased. Draining goes on after a crash. The journal and other metadata of the whole volume move, too.
/// Refused if the others have no room for the whole volume. When the SSD before an adopted disk leaves, what
/// it alone holds is written back, and after braid stop the disk is a plain one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device remove vault d2
  braid device remove vault d2 --cancel

JSON: name, device.")]
struct RemoveArguments {
    /// The volume
    name: VolumeName,
    /// Which device, by its place: d2
    #[arg(value_parser = device_id)]
    device: DeviceId,
    /// Keep a device that is draining: it is used as before
    #[arg(long)]
    cancel: bool,
}

/// Take a device out of use while the volume is served, as if it had failed
///
/// For a volume of two copies: it goes on with the others, and its guests notice nothing. Then the device can
/// be pulled out. braid device return, or the next braid serve, brings it up to date again, unless another
/// device has taken its place (braid device replace).
#[derive(Args)]
#[command(after_help = "\
Example:
  braid device fail vault d1

JSON: name, device.")]
struct FailArguments {
    /// The volume
    name: VolumeName,
    /// Which device, by its place: d1
    #[arg(value_parser = device_id)]
    device: DeviceId,
}

/// Use a device again that failed or was missing, while the volume is served
///
/// For a volume of two copies. The device is the same one, with what it held then: only what guests have
/// changed since is copied to it, beside them. braid status says when it is up to date. A device that is
/// missing when a volume is served, and one that failed, is used again at the next braid serve, too. While
/// the volume is not served, the path of the disk that it adopted is noted, if the disk is the one that it
/// was.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device return vault d1
  braid device return vault d1 /dev/sde

JSON: name, device, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing).")]
struct ReturnArguments {
    /// The volume
    name: VolumeName,
    /// Which device, by its place: d1
    #[arg(value_parser = device_id)]
    device: DeviceId,
    /// Where it is now [default: wherever it is found]
    path: Option<PathBuf>,
}

/// Give a volume a new device instead of one that is gone, or is to go
///
/// While the volume is served the new device gets a place of its own, and the old one drains, while guests
/// work: what it held, or what other devices hold of that if it is lost, goes to the others, the new one
/// above all. braid status says how much is left; that goes on after a crash. While the volume is not served,
/// which needs two copies of everything, the new device takes the old one's place, and the next braid serve
/// makes all copies on it. If the old device alone holds something and is lost, that must be given up first:
/// braid serve --distrust.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device replace vault d0 /dev/nvme1n1
  braid device replace vault d1 new.img,size=8GiB

JSON: name, device, new_device, replaced_path, devices (path, class, model, size_bytes, made, removed, adopted, outdated, missing).")]
struct ReplaceArguments {
    /// The volume
    name: VolumeName,
    /// Which device, by its place: d0
    #[arg(value_parser = device_id)]
    device: DeviceId,
    /// The new device, of the same class and at least as large
    #[arg(value_name = "PATH[,size=S][,model=M]")]
    new: String,
    /// Overwrite a device that holds something
    #[arg(long)]
    force: bool,
}

/// Show a device model as TOML, with what each field means; or list the models
///
/// What it prints can be changed and used as a model of your own: model=FILE.toml.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device show
  braid device show sata-ssd > mine.toml

JSON: model, title, class, capacity_bytes, toml; without MODEL a list of these.")]
struct ShowArguments {
    /// A named model, or a file to check
    model: Option<String>,
}

/// Measure a device or a file, and make a model of it
///
/// Reads only, unless --write says that what is on it may be destroyed. A file that does not exist is made,
/// if a size is given, written, measured with reads and writes, and removed. Nothing else should use the
/// device meanwhile.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid device calibrate /dev/sdb --output sdb.toml
  braid device calibrate /dev/sdb --write --seconds 300 --output sdb.toml
  braid device calibrate /mnt/pool/scratch,size=16GiB --output pool.toml

JSON: path, class, size_bytes, writes_measured, figures (measure, unit, measured_value, model_value),
flush_response_ns, lateness_ns_mean (of an emulated device), toml.")]
struct CalibrateArguments {
    /// A block device or a file; with model=, what is measured is the emulation
    #[arg(value_name = "PATH[,size=S][,model=M]")]
    device: String,
    /// Where the model goes [default: standard output]
    #[arg(long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// About how long to measure
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=86_400))]
    seconds: u32,
    /// Measure writes too: destroys what is on the device
    #[arg(long)]
    write: bool,
    /// Which class it is: ssd or hdd [default: what it behaves like]
    #[arg(long)]
    class: Option<DeviceClass>,
    /// What to call the model [default: the name of the file it goes to]
    #[arg(long)]
    name: Option<String>,
}

/// Runs the verb.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    match &arguments.verb {
        Verb::Show(arguments) => show(arguments, output),
        Verb::Calibrate(arguments) => run_calibrate(arguments, output),
        Verb::Add(arguments) => add(state, arguments, output),
        Verb::Remove(arguments) => remove(state, arguments, output),
        Verb::Fail(arguments) => fail(state, arguments, output),
        Verb::Return(arguments) => run_return(state, arguments, output),
        Verb::Replace(arguments) => run_replace(state, arguments, output),
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
        format!(
            "{} is {} of volume '{name}' now, and in use: braid status {name}",
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
            format!("{device} of volume '{name}' stays, and is in use as before")
        }
        false => {
            client.remove_device(*device)?;
            format!(
                "{device} of volume '{name}' drains, and is removed when it is empty: braid status {name} says how much is left; to keep it: \
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
            "{device} of volume '{name}' is out of use, and all is on the others. To put another one in its place: \
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
        format!("{device} of volume '{name}' is back, and is brought up to date: braid status {name}")
    });
    Ok(0)
}

fn run_replace(state: &StateDir, arguments: &ReplaceArguments, output: Output) -> Result<u8> {
    let ReplaceArguments { name, device, new, force } = arguments;
    let report = replace(state, name, *device, new, *force)?;
    output.show(&report, || match report.new_device == report.device {
        true => format!(
            "{new} is {device} of volume '{name}' now, in place of {}\nNext: braid serve {name}, which makes all copies on it",
            report.replaced_path
        ),
        false => format!(
            "{new} is {} of volume '{name}' now; {device} ({}) is removed when what it held is elsewhere: braid status {name}",
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

/// The model's name: as given, or that of its file, as far as a name may be.
fn name(arguments: &CalibrateArguments) -> String {
    let stem = arguments.output.as_ref().and_then(|path| path.file_stem()).and_then(|stem| stem.to_str());
    let name = arguments.name.as_deref().or(stem).unwrap_or("calibrated");
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    name.chars().take(40).map(allowed).collect()
}

/// Before minutes of measuring, and not after.
fn refuse_existing(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let problem = format!("{} exists already: use another name with --output, or remove it", path.display());
    Err(Error::new(ErrorKind::Usage, problem))
}
