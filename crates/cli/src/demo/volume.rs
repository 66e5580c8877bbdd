//! The volume under test: served, attached and mounted by the commands that anyone would type, which are shown.

use super::guard::Guard;
use super::stage::{Program, Stage, run};
use braid_base::{Bytes, MIB};
use braid_control::{Client, Error, ErrorKind, Result, StateDir, StatusReport, VolumeName};
use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// What a volume is made of, and where.
pub struct Plan {
    /// The demo's directory: the devices' files, the state directory, the mount point, and what programs print.
    pub directory: PathBuf,
    /// The model of the SSD.
    pub ssd: String,
    /// The model of the disk.
    pub hdd: String,
    /// The volume's size; each device is a little larger, so that either can hold it all.
    pub size: Bytes,
}

/// A volume that is served. It is taken away by the guard that it was made with.
pub struct Volume<'a> {
    stage: &'a Stage,
    directory: &'a Path,
    state: StateDir,
    name: VolumeName,
    braid: PathBuf,
}

/// How long the daemon may take until it serves.
const PATIENCE: Duration = Duration::from_secs(30);
const NAME: &str = "demo";

impl Plan {
    /// Room for the map, the journal and the slots that moves need.
    fn device_size(&self) -> Bytes {
        (self.size + self.size / 32 + MIB * 256).align_up(MIB)
    }

    /// Where the volume's file system is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// Makes and serves a volume with this policy.
    pub fn serve<'a>(&'a self, policy: &str, stage: &'a Stage, guard: &mut Guard) -> Result<Volume<'a>> {
        let state = StateDir::new(&self.directory.join("state"))?;
        let braid = std::env::current_exe().map_err(|e| Error::io("finding this program", &e))?;
        let volume = Volume { stage, directory: &self.directory, state, name: NAME.parse()?, braid };
        let device = |file: &str, model: &str| {
            format!(
                "{},size={}MiB,model={model}",
                self.directory.join(file).display(),
                self.device_size() / MIB
            )
        };
        let (ssd, hdd) = (device("ssd.img", &self.ssd), device("hdd.img", &self.hdd));
        let size = format!("{}MiB", self.size / MIB);
        let arguments =
            ["serve", "--temporary", NAME, "--ssd", &ssd, "--hdd", &hdd, "--policy", policy, "--size", &size];
        let (ready, log) = (self.directory.join("serve.out"), self.directory.join("serve.log"));
        let daemon = Rc::new(RefCell::new(Program::start(volume.braid(&arguments), &ready, &log)?));
        guard.after("the daemon", {
            let daemon = daemon.clone();
            move || {
                daemon.borrow_mut().end();
                Ok(())
            }
        });
        let mut ended = false;
        let serves = stage.wait_for(PATIENCE, || {
            ended = daemon.borrow_mut().ended().is_some();
            ended || std::fs::read_to_string(&ready).is_ok_and(|text| text.contains('\n'))
        })?;
        if ended || !serves {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let problem =
                format!("the daemon does not serve: {}", said.lines().last().unwrap_or("it says nothing"));
            return Err(Error::new(ErrorKind::Io, problem));
        }
        Ok(volume)
    }
}

impl Volume<'_> {
    /// What the daemon says of the volume now.
    pub fn status(&self) -> Result<StatusReport> {
        Client::connect(&self.state, &self.name)?.status()
    }

    /// A kernel block device with a fresh ext4, mounted on `point`.
    pub fn attach_and_mount(&self, point: &Path, options: &str, guard: &mut Guard) -> Result<()> {
        let (braid, state) = (self.braid.clone(), self.state.root().to_owned());
        // Before attaching: that may fail half-way.
        guard.after("the block device", move || {
            let mut detach = Command::new(&braid);
            let detached =
                detach.args(["detach", NAME]).env("BRAID_STATE_DIR", &state).process_group(0).output();
            let output = detached.map_err(|e| Error::io("running braid detach", &e))?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() || said.contains("not attached") {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Io, said))
        });
        let device = self.run(&["attach", NAME])?;
        let device = device.trim();
        self.stage.say(&format!("$ mkfs.ext4 {device} && mount -o {options} {device} {}", point.display()));
        self.stage.run("mkfs.ext4", &["-q", "-F", device])?;
        let shown = point.to_string_lossy().into_owned();
        self.stage.run("mount", &["-t", "ext4", "-o", options, device, &shown])?;
        guard.after(format!("the mount on {shown}"), move || unmount(&shown));
        Ok(())
    }

    /// The address of the volume's NBD export.
    pub fn nbd_uri(&self) -> Result<String> {
        let uris = self.status()?.nbd_uris;
        uris.into_iter()
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "the daemon exports nothing by NBD"))
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        self.stage.check()?;
        let output = self.braid(arguments).output().map_err(|e| Error::io("running braid", &e))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::new(ErrorKind::Io, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// A braid command as it would be typed in the demo's directory, shown.
    fn braid(&self, arguments: &[&str]) -> Command {
        let shown = arguments.join(" ").replace(&format!("{}/", self.directory.display()), "");
        self.stage.say(&format!("$ braid {shown}"));
        let mut command = Command::new(&self.braid);
        command.args(arguments).env("BRAID_STATE_DIR", self.state.root()).env_remove("BRAID_LOG");
        // A Ctrl-C in the terminal is the demo's alone.
        command.process_group(0);
        command
    }
}

/// Whoever looks at a new mount (an indexer, a monitor) keeps it busy for a moment.
fn unmount(point: &str) -> Result<()> {
    let mut result = run("umount", &[point]);
    for _ in 0..50 {
        if result.is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
        result = run("umount", &[point]);
    }
    result.map(drop)
}
