//! What the tests need of the machine, and what they must leave as they found it: everything here is undone
//! when dropped, in a failing test too.

use crate::file_export::FileExport;
use braid_base::{Bytes, MIB};
use braid_fuse::{Attachment, LoopAttachment, Server};
use braid_runtime::Arena;
use braid_uring::Ring;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a served volume is made of.
#[derive(Clone, Copy)]
pub struct Setup {
    pub size: Bytes,
    /// Requests that wait for each other.
    pub together: u32,
    pub protected: bool,
}

impl Setup {
    pub fn of(size: Bytes) -> Setup {
        Setup { size, together: 1, protected: false }
    }
}

/// A directory with everything of one test, and the daemon that serves in it.
pub struct Machine {
    directory: TempDir,
    setup: Setup,
    daemon: Option<Child>,
    /// What the daemon says, open as long as it may say something.
    lines: Option<BufReader<ChildStdout>>,
    /// What it said before it was ready.
    pub said: Vec<String>,
    /// One test at a time: they measure, and the machine is small.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Machine {
    /// A machine whose daemon serves, or `None` if something is missing here.
    pub fn start(setup: Setup, programs: &[&str]) -> Option<Machine> {
        if let Some(missing) = missing(programs) {
            // Past the capture of the output of tests: this must be seen.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let directory = tempfile::Builder::new().prefix("braid fuse ").tempdir_in("/dev/shm").unwrap();
        let (daemon, lines, said) = (None, None, Vec::new());
        let mut machine = Machine { directory, setup, daemon, lines, said, _turn: turn };
        machine.serve();
        Some(machine)
    }

    /// Starts the daemon, and waits until it serves.
    pub fn serve(&mut self) {
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "machine::daemon", "--nocapture", "--include-ignored"])
            .env(DIRECTORY, self.directory.path())
            .env(SIZE, self.setup.size.0.to_string())
            .env(TOGETHER, self.setup.together.to_string())
            .env(PROTECTED, if self.setup.protected { "1" } else { "0" })
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = self.lines.insert(BufReader::new(daemon.stdout.take().unwrap()));
        self.daemon = Some(daemon);
        self.said = lines.lines().map_while(Result::ok).take_while(|line| !line.contains(READY)).collect();
        assert!(self.served().join("volume").exists(), "the daemon does not serve");
    }

    pub fn daemon_id(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Whether the next line that the daemon says is this one. Waits for it, or for the daemon's end.
    pub fn says(&mut self, line: &str) -> bool {
        let mut said = String::new();
        self.lines.as_mut().unwrap().read_line(&mut said).unwrap();
        said.trim_end() == line
    }

    /// Waits for the daemon, which ends by itself once it is unmounted.
    pub fn wait_for_end(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        assert!(daemon.wait().unwrap().success());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the volume is served.
    pub fn served(&self) -> PathBuf {
        self.path(SERVED)
    }

    /// The sparse file under the volume.
    pub fn store(&self) -> PathBuf {
        self.path(STORE)
    }

    pub fn attachment(&self) -> LoopAttachment {
        LoopAttachment::new(&self.served()).unwrap()
    }

    /// The block device.
    pub fn attach(&self) -> PathBuf {
        self.attachment().attach().unwrap()
    }

    /// An empty directory to mount on; unmounted when dropped.
    pub fn mount_point(&self, name: &str) -> MountPoint {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        MountPoint(path)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let file = self.served().join("volume");
        if let Some(mut daemon) = self.daemon.take() {
            let _ = self.attachment().detach();
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // What is left now belongs to a dead daemon: its name tells, as long as its mount is there.
        let listed = Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(&file).output();
        for device in String::from_utf8_lossy(&listed.unwrap().stdout).lines() {
            let _ = Command::new("losetup").args(["-d", device.trim()]).status();
        }
        let _ = self.attachment().detach();
        while Command::new("umount").args(["-q", "-l"]).arg(self.served()).status().unwrap().success() {}
    }
}

/// A directory that something may be mounted on.
pub struct MountPoint(pub PathBuf);

impl MountPoint {
    pub fn unmount(&self) {
        run("umount", &[&self.0]);
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        while rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).is_ok() {}
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = output(program, arguments);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {}\n{text}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program, for two minutes at most: nothing here may hang.
pub fn output(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", program]);
    arguments.iter().for_each(|argument| _ = command.arg(argument));
    command.output().unwrap()
}

/// Runs fio on a device with arguments of the form `--name=value`, and gives the whole of its report.
pub fn fio(device: &Path, arguments: &[&str]) -> serde_json::Value {
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> =
        vec![&"--name=t", &"--direct=1", &"--verify_state_save=0", &"--output-format=json"];
    let file = format!("--filename={}", device.display());
    all.push(&file);
    all.extend(arguments.iter().map(|argument| argument as &dyn AsRef<std::ffi::OsStr>));
    serde_json::from_str(&run("fio", &all)).unwrap()
}

/// Requests per second, reads and writes together.
pub fn iops(report: &serde_json::Value) -> f64 {
    let job = &report["jobs"][0];
    ["read", "write"].iter().map(|way| job[way]["iops"].as_f64().unwrap()).sum()
}

/// Waits for something that must come about within `patience`.
pub fn within(patience: Duration, what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !test() {
        assert!(Instant::now() < end, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("this test needs root".to_owned());
    }
    for path in ["/dev/fuse", "/dev/loop-control", "/dev/shm"] {
        if !Path::new(path).exists() {
            return Some(format!("this test needs {path}"));
        }
    }
    let is_there = |program: &&&str| {
        let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", program]).status();
        !found.unwrap().success()
    };
    programs.iter().find(is_there).map(|program| format!("this test needs the program {program}"))
}

const DIRECTORY: &str = "BRAID_TEST_DIRECTORY";
const SIZE: &str = "BRAID_TEST_SIZE";
const TOGETHER: &str = "BRAID_TEST_TOGETHER";
const PROTECTED: &str = "BRAID_TEST_PROTECTED";
const READY: &str = "the daemon is ready";
const SERVED: &str = "served";
const STORE: &str = "store";

/// The daemon: this same program, started again by [`Machine::serve`] with its orders in the environment.
#[test]
#[ignore = "it is the daemon of the other tests"]
fn daemon() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let arena = Arena::new(MIB * 64);
    if number(PROTECTED) == 1 {
        braid_fuse::protect_from_reclaim().iter().for_each(|unprotected| println!("{unprotected}"));
    }
    let ring = Ring::new(256, &arena).unwrap();
    let store = directory.join(STORE);
    let export = FileExport::open(&ring, &store, Bytes(number(SIZE)), number(TOGETHER) as u32);
    ring.block_on(async {
        let served = directory.join(SERVED);
        let server = Server::start(&ring, export, &arena, &served, "test", 128).await.unwrap();
        println!("{READY}");
        server.ended().await.unwrap();
    });
    ring.clear();
}
