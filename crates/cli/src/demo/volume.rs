//! The volume under test: served, attached and mounted by the commands that anyone would type, which are
//! shown.

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
    /// The demo's directory: the devices' files, the state directory, the mount point, and what programs
    /// print.
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
    daemon: Option<Rc<RefCell<Program>>>,
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

    /// The SSD's file.
    pub fn ssd_file(&self) -> PathBuf {
        self.directory.join("ssd.img")
    }

    /// The disk's file.
    pub fn hdd_file(&self) -> PathBuf {
        self.directory.join("hdd.img")
    }

    /// The words that make a volume with this policy.
    fn words(&self, policy: &str, layout: &str) -> Vec<String> {
        let size = self.device_size() / MIB;
        let device = |file: &Path, model: &str| format!("{},size={size}MiB,model={model}", file.display());
        let ssd = device(&self.ssd_file(), &self.ssd);
        let hdd = device(&self.hdd_file(), &self.hdd) + layout;
        let size = format!("{}MiB", self.size / MIB);
        [NAME, "--ssd", &ssd, "--hdd", &hdd, "--policy", policy, "--size", &size].map(str::to_owned).to_vec()
    }

    /// Makes and serves a volume with this policy, which goes with its daemon.
    pub fn serve<'a>(&'a self, policy: &str, stage: &'a Stage, guard: &mut Guard) -> Result<Volume<'a>> {
        self.start([words(&["serve", "--temporary"]), self.words(policy, "")].concat(), stage, guard)
    }

    /// The same with two copies of everything.
    pub fn serve_mirrored<'a>(
        &'a self,
        policy: &str,
        stage: &'a Stage,
        guard: &mut Guard,
    ) -> Result<Volume<'a>> {
        let mirrored = [self.words(policy, ""), words(&["--copies", "2"])].concat();
        self.start([words(&["serve", "--temporary"]), mirrored].concat(), stage, guard)
    }

    /// Makes and serves a volume that stays when its daemon is killed, with a second copy of everything on a
    /// disk that keeps addresses.
    pub fn create_and_serve<'a>(
        &'a self,
        policy: &str,
        stage: &'a Stage,
        guard: &mut Guard,
    ) -> Result<Volume<'a>> {
        let mirrored = [self.words(policy, ",layout=tail"), words(&["--copies", "2"])].concat();
        self.volume(stage)?.run(&[words(&["create"]), mirrored].concat())?;
        self.start(words(&["serve", NAME]), stage, guard)
    }

    /// Makes a disk with ext4 on it, and serves it as a volume with this policy, which has adopted it.
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
        let create = ["create", NAME, "--adopt", &disk, "--ssd", &ssd, "--policy", policy];
        self.volume(stage)?.run(&words(&create))?;
        self.start(words(&["serve", NAME]), stage, guard)
    }

    /// Goes on from the disk, and serves that.
    pub fn recover_and_serve<'a>(&'a self, stage: &'a Stage, guard: &mut Guard) -> Result<Volume<'a>> {
        let said = self.volume(stage)?.run(&words(&["recover", NAME]))?;
        stage.say(said.lines().next().unwrap_or_default());
        self.start(words(&["serve", NAME]), stage, guard)
    }

    /// What to type to remove what was left.
    pub fn how_to_remove(&self, left: &[String], attached: bool) -> String {
        let directory = self.directory.display();
        let detach = if attached { "braid detach demo; " } else { "" };
        format!(
            "kept: {}. To remove: export BRAID_STATE_DIR={directory}/state; {detach}braid stop demo; rm -r {directory}",
            left.join(", ")
        )
    }

    fn volume<'a>(&'a self, stage: &'a Stage) -> Result<Volume<'a>> {
        let state = StateDir::new(&self.directory.join("state"))?;
        let braid = std::env::current_exe().map_err(|e| Error::io("finding this program", &e))?;
        Ok(Volume { stage, directory: &self.directory, state, name: NAME.parse()?, braid, daemon: None })
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

    /// Kills the daemon, as `kill -9` would.
    pub fn kill(&self) {
        self.daemon.iter().for_each(|daemon| daemon.borrow_mut().kill());
    }

    /// Puts another policy in charge.
    pub fn change_policy(&self, policy: &str) -> Result<()> {
        self.run(&words(&["policy", NAME, policy])).map(drop)
    }

    /// Has the SSD leave.
    pub fn remove_ssd(&self) -> Result<()> {
        self.run(&words(&["device", "remove", NAME, "d0"])).map(drop)
    }

    /// Forgets the volume, which is not served.
    pub fn forget(&self) -> Result<()> {
        self.run(&words(&["forget", NAME])).map(drop)
    }

    /// A kernel block device with a fresh ext4, mounted on `point`.
    pub fn attach_and_mount(&self, point: &Path, options: &str, guard: &mut Guard) -> Result<()> {
        let device = self.attach(guard)?;
        self.stage.say(&format!("$ mkfs.ext4 {device}"));
        self.stage.run("mkfs.ext4", &["-q", "-F", &device])?;
        self.mount(&device, point, options, guard)
    }

    /// A kernel block device.
    pub fn attach(&self, guard: &mut Guard) -> Result<String> {
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
        let device = self.run(&words(&["attach", NAME]))?;
        Ok(device.trim().to_owned())
    }

    /// Mounts the ext4 of a block device on `point`.
    pub fn mount(&self, device: &str, point: &Path, options: &str, guard: &mut Guard) -> Result<()> {
        self.stage.say(&format!("$ mount -o {options} {device} {}", point.display()));
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

    fn run(&self, arguments: &[String]) -> Result<String> {
        self.stage.check()?;
        let output = self.braid(arguments).output().map_err(|e| Error::io("running braid", &e))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::new(ErrorKind::Io, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// A braid command as it would be typed in the demo's directory, shown.
    fn braid(&self, arguments: &[String]) -> Command {
        let shown = arguments.join(" ").replace(&format!("{}/", self.directory.display()), "");
        self.stage.say(&format!("$ braid {shown}"));
        let mut command = Command::new(&self.braid);
        command.args(arguments).env("BRAID_STATE_DIR", self.state.root()).env_remove("BRAID_LOG");
        // A Ctrl-C in the terminal is the demo's alone.
        command.process_group(0);
        command
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// A program that looks at a new mount (an indexer, a monitor) keeps it busy for a moment.
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
