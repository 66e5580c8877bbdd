//! The volume under test: served, attached and mounted by ordinary commands, which the demo prints.

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

/// Devices, size and directory of a volume.
pub struct Plan {
    /// Name of the volume.
    pub name: &'static str,
    /// Directory of the volume: files of devices, mount point, and output of programs.
    pub directory: PathBuf,
    /// State directory of the daemons.
    pub state: PathBuf,
    /// Model of the SSD.
    pub ssd: String,
    /// Model of the disk.
    pub hdd: String,
    /// Size of the volume. Each device is a little larger and can hold the whole volume.
    pub size: Bytes,
}

/// A served volume. The guard passed at its start ends the daemon.
pub struct Volume<'a> {
    stage: &'a Stage,
    directory: &'a Path,
    state: StateDir,
    name: VolumeName,
    braid: PathBuf,
    daemon: Option<Rc<RefCell<Program>>>,
}

/// Longest start of a daemon.
const PATIENCE: Duration = Duration::from_secs(30);

impl Plan {
    /// Size of a device: the volume, and room for the map, the journal and the slots of moves.
    fn device_size(&self) -> Bytes {
        (self.size + self.size / 32 + MIB * 256).align_up(MIB)
    }

    /// Mount point of the volume's file system.
    pub fn mount_point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// File of the SSD.
    pub fn ssd_file(&self) -> PathBuf {
        self.directory.join("ssd.img")
    }

    /// File of the disk.
    pub fn hdd_file(&self) -> PathBuf {
        self.directory.join("hdd.img")
    }

    /// Arguments that describe the volume with `policy`; `layout` is appended to the disk's argument.
    fn words(&self, policy: &str, layout: &str) -> Vec<String> {
        let size = self.device_size() / MIB;
        let device = |file: &Path, model: &str| format!("{},size={size}MiB,model={model}", file.display());
        let ssd = device(&self.ssd_file(), &self.ssd);
        let hdd = device(&self.hdd_file(), &self.hdd) + layout;
        let size = format!("{}MiB", self.size / MIB);
        [self.name, "--ssd", &ssd, "--hdd", &hdd, "--policy", policy, "--size", &size]
            .map(str::to_owned)
            .to_vec()
    }

    /// Creates and serves a temporary volume with `policy`. The volume ends with its daemon.
    pub fn serve<'a>(&'a self, policy: &str, stage: &'a Stage, guard: &mut Guard) -> Result<Volume<'a>> {
        self.start([words(&["serve", "--temporary"]), self.words(policy, "")].concat(), stage, guard)
    }

    /// Creates and serves a temporary volume with `policy` and two copies of everything.
    pub fn serve_mirrored<'a>(
        &'a self,
        policy: &str,
        stage: &'a Stage,
        guard: &mut Guard,
    ) -> Result<Volume<'a>> {
        let mirrored = [self.words(policy, ""), words(&["--copies", "2"])].concat();
        self.start([words(&["serve", "--temporary"]), mirrored].concat(), stage, guard)
    }

    /// Creates and serves a volume with two copies of everything; the disk keeps the volume's addresses
    /// (`layout=tail`). The volume survives the death of its daemon.
    pub fn create_and_serve<'a>(
        &'a self,
        policy: &str,
        stage: &'a Stage,
        guard: &mut Guard,
    ) -> Result<Volume<'a>> {
        let mirrored = [self.words(policy, ",layout=tail"), words(&["--copies", "2"])].concat();
        self.volume(stage)?.run(&[words(&["create"]), mirrored].concat())?;
        self.start(words(&["serve", self.name]), stage, guard)
    }

    /// Makes a disk with ext4, creates a volume with `policy` that adopts the disk, and serves the volume.
    pub fn adopt_and_serve<'a>(
        &'a self,
        policy: &str,
        stage: &'a Stage,
        guard: &mut Guard,
    ) -> Result<Volume<'a>> {
        let disk = self.hdd_file();
        let made = std::fs::File::create(&disk).and_then(|file| file.set_len(self.size.0));
        made.map_err(|e| Error::io(format_args!("cannot make {}", disk.display()), &e))?;
        stage.say("$ mkfs.ext4 hdd.img");
        stage.run("mkfs.ext4", &["-q", "-F", &disk.to_string_lossy()])?;
        let disk = format!("{},model={}", disk.display(), self.hdd);
        let size = self.size / MIB;
        let ssd = format!("{},size={size}MiB,model={}", self.ssd_file().display(), self.ssd);
        let create = ["create", self.name, "--adopt", &disk, "--ssd", &ssd, "--policy", policy];
        self.volume(stage)?.run(&words(&create))?;
        self.start(words(&["serve", self.name]), stage, guard)
    }

    /// Recovers the volume from the disk alone, and serves the result.
    pub fn recover_and_serve<'a>(&'a self, stage: &'a Stage, guard: &mut Guard) -> Result<Volume<'a>> {
        let said = self.volume(stage)?.run(&words(&["recover", self.name]))?;
        stage.say(said.lines().next().unwrap_or_default());
        self.start(words(&["serve", self.name]), stage, guard)
    }

    /// Text that lists `left`, the kept resources, and the commands that remove them.
    pub fn how_to_remove(&self, left: &[String], attached: bool) -> String {
        let (directory, state, name) = (self.directory.display(), self.state.display(), self.name);
        let detach = if attached { format!("braid detach {name}; ") } else { String::new() };
        format!(
            "kept: {}. To remove: export BRAID_STATE_DIR={state}; {detach}braid stop {name}; rm -r {directory}",
            left.join(", ")
        )
    }

    fn volume<'a>(&'a self, stage: &'a Stage) -> Result<Volume<'a>> {
        let state = StateDir::new(&self.state)?;
        let braid = std::env::current_exe().map_err(|e| Error::io("finding this program", &e))?;
        Ok(Volume { stage, directory: &self.directory, state, name: self.name.parse()?, braid, daemon: None })
    }

    fn start<'a>(&'a self, words: Vec<String>, stage: &'a Stage, guard: &mut Guard) -> Result<Volume<'a>> {
        let mut volume = self.volume(stage)?;
        let (ready, log) = (self.directory.join("serve.out"), self.directory.join("serve.log"));
        let daemon = Rc::new(RefCell::new(Program::start(volume.braid(&words), &ready, &log)?));
        volume.daemon = Some(daemon.clone());
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
                format!("the daemon does not serve: {}", said.lines().last().unwrap_or("its log is empty"));
            return Err(Error::new(ErrorKind::Io, problem));
        }
        Ok(volume)
    }
}

impl Volume<'_> {
    /// Current status of the volume, from the daemon.
    pub fn status(&self) -> Result<StatusReport> {
        Client::connect(&self.state, &self.name)?.status()
    }

    /// Kills the daemon, like `kill -9`.
    pub fn kill(&self) {
        self.daemon.iter().for_each(|daemon| daemon.borrow_mut().kill());
    }

    /// Makes another policy active.
    pub fn change_policy(&self, policy: &str) -> Result<()> {
        self.run(&words(&["policy", self.name.as_str(), policy])).map(drop)
    }

    /// Requests the removal of the SSD; data is drained in the background.
    pub fn remove_ssd(&self) -> Result<()> {
        self.run(&words(&["device", "remove", self.name.as_str(), "d0"])).map(drop)
    }

    /// Forgets the volume. The volume must not be served.
    pub fn forget(&self) -> Result<()> {
        self.run(&words(&["forget", self.name.as_str()])).map(drop)
    }

    /// Attaches the volume as a kernel block device, makes ext4, and mounts the file system on `point`.
    pub fn attach_and_mount(&self, point: &Path, options: &str, guard: &mut Guard) -> Result<()> {
        let device = self.attach(guard)?;
        self.stage.say(&format!("$ mkfs.ext4 {device}"));
        self.stage.run("mkfs.ext4", &["-q", "-F", &device])?;
        self.mount(&device, point, options, guard)
    }

    /// Attaches the volume as a kernel block device; returns the path of the device.
    pub fn attach(&self, guard: &mut Guard) -> Result<String> {
        let (braid, state, name) = (self.braid.clone(), self.state.root().to_owned(), self.name.clone());
        // Before attaching, because an attach may fail half-way.
        guard.after("the block device", move || {
            let mut detach = Command::new(&braid);
            let detached = detach
                .args(["detach", name.as_str()])
                .env("BRAID_STATE_DIR", &state)
                .process_group(0)
                .output();
            let output = detached.map_err(|e| Error::io("running braid detach", &e))?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() || said.contains("not attached") {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Io, said))
        });
        let device = self.run(&words(&["attach", self.name.as_str()]))?;
        Ok(device.trim().to_owned())
    }

    /// Mounts the ext4 file system of a block device on `point`.
    pub fn mount(&self, device: &str, point: &Path, options: &str, guard: &mut Guard) -> Result<()> {
        self.stage.say(&format!("$ mount -o {options} {device} {}", point.display()));
        let shown = point.to_string_lossy().into_owned();
        self.stage.run("mount", &["-t", "ext4", "-o", options, device, &shown])?;
        guard.after(format!("the mount on {shown}"), move || unmount(&shown));
        Ok(())
    }

    /// Address of the volume's NBD export.
    pub fn nbd_uri(&self) -> Result<String> {
        let uris = self.status()?.nbd_uris;
        uris.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Invalid, "the daemon has no NBD export"))
    }

    fn run(&self, arguments: &[String]) -> Result<String> {
        self.stage.check()?;
        let output = self.braid(arguments).output().map_err(|e| Error::io("running braid", &e))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::new(ErrorKind::Io, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Builds a `braid` command, and prints the command as typed in the demo's directory.
    fn braid(&self, arguments: &[String]) -> Command {
        let shown = arguments.join(" ").replace(&format!("{}/", self.directory.display()), "");
        self.stage.say(&format!("$ braid {shown}"));
        let mut command = Command::new(&self.braid);
        command.args(arguments).env("BRAID_STATE_DIR", self.state.root()).env_remove("BRAID_LOG");
        // Ctrl-C in the terminal must reach the demo alone.
        command.process_group(0);
        command
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Unmounts `point`, with retries for 5 s: an indexer or a monitor may keep a new mount busy for a moment.
pub fn unmount(point: &str) -> Result<()> {
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
