//! Fixture of the tests: a directory with state and devices, and functions that run commands and daemons
//! there.

use crate::namespace;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// A separate machine from Braid's view: state directory and devices.
pub struct Machine {
    directory: TempDir,
    runtime: TempDir,
}

/// Exit status and output of a command.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Machine {
    pub fn new() -> Machine {
        Machine::with(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// Creates a machine with a directory that other users may traverse.
    pub fn open_to_all() -> Machine {
        let mode = std::fs::Permissions::from_mode(0o711);
        Machine::with(tempfile::Builder::new().permissions(mode).tempdir().unwrap())
    }

    fn with(directory: TempDir) -> Machine {
        Machine { directory, runtime: TempDir::new_in("/dev/shm").unwrap() }
    }

    /// Runtime directory, in memory, for files that outlive a daemon.
    pub fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// A path in the machine's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A path outside the search for devices.
    pub fn far_away(&self, name: &str) -> PathBuf {
        std::fs::create_dir_all(self.path("far")).unwrap();
        self.path("far").join(name)
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// `braid` with these words, run in the machine's directory. Without a word about the kind, `attach`
    /// makes a loop device on every kernel; `tests/guest` has the tests of the other kind.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_braid"));
        command.args(words);
        if words.first() == Some(&"attach") && !words.contains(&"--via") {
            command.args(["--via", "loop"]);
        }
        command
    }

    /// A program that runs `braid`, in the machine's directory.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.directory.path()).env("BRAID_STATE_DIR", self.state());
        command.env("BRAID_RUNTIME_DIR", self.runtime()).env("BRAID_CONFIG_DIR", self.path("config"));
        command.env_remove("BRAID_LOG").stdin(Stdio::null());
        command
    }

    /// Runs `braid` to its end.
    pub fn braid(&self, words: &[&str]) -> Ended {
        let ends_use = matches!(words.first(), Some(&"detach" | &"stop"));
        let _unused = ends_use.then(namespace::without_copies);
        run(self.command(words))
    }

    /// Runs `braid`; returns stdout. Panics if `braid` fails.
    pub fn ok(&self, words: &[&str]) -> String {
        let ended = self.braid(words);
        assert_eq!(ended.status, 0, "braid {words:?}: {ended:?}");
        ended.stdout
    }

    /// Runs `braid --json`; returns the report. Panics if `braid` fails.
    pub fn json(&self, words: &[&str]) -> Value {
        let text = self.ok(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("braid {words:?}: {error}: {text}"))
    }

    /// Runs `braid`, and expects an error of `kind`, with the exit status of the kind and all of `named`
    /// (files, options, values, commands) in the message. Returns the message.
    pub fn refused(&self, words: &[&str], kind: &str, named: &[&str]) -> String {
        let ended = self.braid(&[words, &["--json"]].concat());
        let status = match kind {
            "usage" => 2,
            "corrupt" | "unsafe" => 3,
            _ => 1,
        };
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let found = (ended.status, answer["error"]["kind"].as_str());
        assert_eq!(found, (status, Some(kind)), "braid {words:?}: {ended:?}");
        for name in named {
            assert!(ended.stderr.contains(name), "braid {words:?} does not name '{name}': {}", ended.stderr);
        }
        ended.stderr
    }

    /// Creates a volume of two files, an SSD of 64 MiB and a disk of 128 MiB.
    pub fn create(&self, name: &str, more: &[&str]) {
        let (ssd, hdd) = (format!("{name}.ssd,size=64MiB"), format!("{name}.hdd,size=128MiB"));
        self.ok(&[&["create", name, "--ssd", &ssd, "--hdd", &hdd], more].concat());
    }

    /// Starts a daemon, and waits until the daemon is ready.
    pub fn serve(&self, words: &[&str]) -> Daemon {
        Daemon::start(self.command(&[&["serve"], words].concat()))
    }

    /// Creates and serves a volume, and mounts a new ext4 file system on `mnt`.
    pub fn serve_mounted(&self, name: &str) -> Daemon {
        self.create(name, &[]);
        let daemon = self.serve(&[name]);
        let device = self.ok(&["attach", name]).trim().to_owned();
        client("mkfs.ext4", &["-q", &device]);
        std::fs::create_dir(self.path("mnt")).unwrap();
        self.ok(&["attach", name, "--mount", "mnt"]);
        daemon
    }
}

/// No mount and no block device outlives a test, whatever its result. Daemons have ended before.
impl Drop for Machine {
    fn drop(&mut self) {
        let Ok(directory) = self.directory.path().canonicalize() else { return };
        let volumes = std::fs::read_dir(self.state()).into_iter().flatten().flatten();
        for name in volumes.filter_map(|entry| entry.file_name().into_string().ok()) {
            if is_mounted_below(&directory) || self.state().join(&name).join("mount").exists() {
                self.braid(&["detach", &name]);
            }
        }
        while let Some(point) = mounted_below(&directory) {
            let unmounted = rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH);
            if let Err(error) = unmounted {
                eprintln!("{} stays mounted: {error}", point.display());
                return;
            }
        }
    }
}

fn is_mounted_below(directory: &Path) -> bool {
    mounted_below(directory).is_some()
}

/// The last mount in a directory.
fn mounted_below(directory: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.rfind(|point| point.starts_with(directory))
}

/// A running daemon; ended with the test.
pub struct Daemon {
    child: Child,
    /// URIs of the daemon's exports.
    pub uri: String,
    log: Option<JoinHandle<String>>,
}

impl Daemon {
    /// Starts the daemon, and waits for its line on stdout.
    pub fn start(mut command: Command) -> Daemon {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _watchdog = Watchdog::over(child.id());
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let mut uri = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut uri).unwrap();
        let mut daemon = Daemon { child, uri: uri.trim().to_owned(), log: Some(log) };
        if daemon.uri.is_empty() {
            let ended = daemon.wait();
            panic!("the daemon did not get ready: {ended:?}");
        }
        daemon
    }

    /// Process number of the daemon.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, and waits for the end of the daemon.
    pub fn terminate(self) -> Ended {
        self.end_by(rustix::process::Signal::TERM)
    }

    /// Sends a signal, and waits for the end of the daemon.
    pub fn end_by(mut self, signal: rustix::process::Signal) -> Ended {
        self.signal(signal);
        self.wait()
    }

    /// Kills the daemon, as with `kill -9`.
    pub fn kill(mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.wait();
    }

    /// Waits for the end of the daemon.
    pub fn wait(&mut self) -> Ended {
        let _watchdog = Watchdog::over(self.child.id());
        let status = self.child.wait().unwrap();
        let stderr = self.log.take().map(|log| log.join().unwrap()).unwrap_or_default();
        Ended { status: status.code().unwrap_or(-1), stdout: String::new(), stderr }
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.log.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let _watchdog = Watchdog::over(child.id());
    let output = child.wait_with_output().unwrap();
    Ended {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Kills a hanging process, so the test fails instead of hanging. Dropping the value ends the watch; the drop
/// must precede a second wait for the process.
struct Watchdog {
    over: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Far longer than any process here runs on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(300);

    fn over(process: u32) -> Watchdog {
        let process = rustix::process::Pid::from_raw(process as i32).unwrap();
        let descriptor = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty());
        let (over, wait_for_it) = mpsc::channel();
        let watch = move || {
            if wait_for_it.recv_timeout(Watchdog::PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout)
                && let Ok(descriptor) = descriptor
            {
                eprintln!("killing process {process:?}, which hangs");
                let _ = rustix::process::pidfd_send_signal(descriptor, rustix::process::Signal::KILL);
            }
        };
        Watchdog { over: Some(over), thread: Some(std::thread::spawn(watch)) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.take();
        self.thread.take().map(JoinHandle::join);
    }
}

/// Runs a client program; returns stdout. Panics if the program fails.
pub fn client(programme: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(programme);
    command.args(arguments);
    let ended = run(command);
    assert_eq!(ended.status, 0, "{programme} {arguments:?}: {ended:?}");
    ended.stdout
}

/// Makes a file system, with retries. `mkfs.btrfs` fails while any loop device of the machine lies over a
/// deleted file; tests with killed daemons leave such loop devices for a moment.
pub fn make_file_system(words: &[&str], on: &str) {
    let run_once = || {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(on);
        run(command)
    };
    let mut ended = run_once();
    let start = std::time::Instant::now();
    while ended.stderr.contains("cannot check mount status") && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(300));
        ended = run_once();
    }
    assert_eq!(ended.status, 0, "{words:?} {on}: {ended:?}");
}

/// Runs qemu-io with these commands on an export; returns true if all commands succeeded, and the output.
pub fn qemu_io(uri: &str, commands: &[&str]) -> (bool, String) {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", uri]);
    for words in commands {
        command.args(["-c", words]);
    }
    let ended = run(command);
    let said = ended.stdout + &ended.stderr;
    let well = ended.status == 0 && !said.contains("failed") && !said.contains("error");
    (well, said)
}

/// Runs qemu-io; panics if a command or a comparison of data fails.
pub fn qemu_io_ok(uri: &str, commands: &[&str]) {
    let (well, said) = qemu_io(uri, commands);
    assert!(well, "qemu-io {uri} {commands:?}: {said}");
}

/// True if all these programs are installed. Otherwise reports the test as skipped, by [`skip`].
pub fn have(programmes: &[&str]) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = |programme: &&str| {
        let mut places: Vec<PathBuf> = std::env::split_paths(&paths).collect();
        places.extend(["/usr/sbin".into(), "/sbin".into()]);
        places.iter().any(|place| place.join(programme).exists())
    };
    let missing: Vec<&str> = programmes.iter().filter(|p| !found(p)).copied().collect();
    missing.is_empty() || skip(&format!("{} not installed", missing.join(", ")))
}

/// True if this process may create block devices. Otherwise reports the test as skipped.
pub fn have_block_devices() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let there = ["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists());
    (is_root && there) || skip("a block device needs root, /dev/fuse and /dev/loop-control")
}

/// Reports to stderr, past the capture of test output, that the test is skipped, and why. Returns false.
pub fn skip(why: &str) -> bool {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
    false
}

/// Returns a number of a report, by its path: `devices.0.errors`.
pub fn number(report: &Value, path: &str) -> f64 {
    let pointer = format!("/{}", path.replace('.', "/"));
    let found = report.pointer(&pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{path} is no number in {report}"))
}
