//! A machine from Braid's view: files as devices, with changing names, and a state directory. Every command
//! goes into a script that repeats the sequence.

use crate::blocks::{BLOCK, CLUSTER};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File as Bytes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Result of a step; the error describes a fault of the tested program in a sentence.
pub type Outcome<T = ()> = Result<T, String>;

/// A file that is, was or may become a device.
#[derive(Clone, Debug)]
pub struct File {
    /// Volume and UUID of the device in the file.
    pub owner: Option<(usize, String)>,
    /// True if the file is the device in its latest state, not a copy and not an older state.
    pub live: bool,
    /// True if the file was truncated, and lacks its end.
    pub cut: bool,
    /// True if data lies at the start of the file.
    pub tail: bool,
    /// Last opening of the volume that used the file.
    pub opening: u64,
    /// Size and time of modification, to detect changes.
    mark: (u64, i64, i64),
}

/// The machine.
pub struct Host {
    directory: TempDir,
    pub script: Vec<String>,
    /// Files in the directory, by letter.
    pub files: BTreeMap<char, File>,
    /// Files out of reach, by their former letter.
    pub away: BTreeMap<char, File>,
    /// Copies out of reach, by the letter of the original at the time of the copy.
    pub copies: BTreeMap<char, File>,
}

/// Exit status, report and stderr of a command.
pub struct Ended {
    pub status: i32,
    pub report: Value,
    pub stderr: String,
}

/// A running daemon.
pub struct Daemon {
    pub child: Child,
    pub socket: PathBuf,
    pub export: String,
    log: PathBuf,
}

impl Host {
    /// Creates a machine, in `/dev/shm` if present: no power is cut here, so memory suffices.
    pub fn new() -> Host {
        let place = match fs::metadata("/dev/shm") {
            Ok(_) => Path::new("/dev/shm"),
            Err(_) => Path::new(env!("CARGO_TARGET_TMPDIR")),
        };
        let directory = tempfile::Builder::new().prefix("braid-").tempdir_in(place).unwrap();
        for folder in ["away", "run", "state"] {
            fs::create_dir(directory.path().join(folder)).unwrap();
        }
        let (files, away, copies) = Default::default();
        Host {
            directory,
            script: vec![
                "export BRAID_STATE_DIR=$PWD/state BRAID_RUNTIME_DIR=$PWD/run; mkdir -p away".into(),
            ],
            files,
            away,
            copies,
        }
    }

    /// True if the machine lies in memory: only there the log of pending changes outlives a daemon.
    pub fn is_in_memory(&self) -> bool {
        self.directory.path().starts_with("/dev/shm")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `braid --json` to its end.
    pub fn braid(&mut self, words: &[&str]) -> Outcome<Ended> {
        self.script.push(format!("braid {}", words.join(" ")));
        let mut command = self.command(words);
        let (stdout, stderr) = (self.path("stdout"), self.path("stderr"));
        command.stdout(Bytes::create(&stdout).unwrap()).stderr(Bytes::create(&stderr).unwrap());
        let mut child = command.spawn().unwrap();
        let status = wait(&mut child).ok_or_else(|| format!("braid {words:?} hangs"))?;
        let ended = ended(status, &stdout, &stderr);
        let as_it_ended = if ended.status == 0 { "ok".into() } else { ended.kind().unwrap_or_default() };
        self.note(&format!("  # {} {as_it_ended}", ended.status));
        ended.judge(words)?;
        Ok(ended)
    }

    /// Starts a daemon, and waits until the daemon is ready or has ended.
    pub fn serve(&mut self, words: &[&str]) -> Outcome<Result<Daemon, Ended>> {
        self.script.push(format!("braid {} &", words.join(" ")));
        let (stdout, log) = (self.path("daemon"), self.path(&format!("log.{}", words[1])));
        let mut command = self.command(words);
        command.stdout(Bytes::create(&stdout).unwrap()).stderr(Bytes::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                let ended = ended(status, &stdout, &log);
                self.note(&format!("  # {} {}", ended.status, ended.kind().unwrap_or_default()));
                ended.judge(words)?;
                return Ok(Err(ended));
            }
            let text = fs::read_to_string(&stdout).unwrap();
            let report: Value = serde_json::from_str(&text).unwrap_or_default();
            if report["process_id"].is_u64() {
                let export = report["name"].as_str().unwrap_or_default().to_owned();
                let uri = report["nbd_uris"][0].as_str().unwrap_or_default();
                let socket = uri.split_once("socket=").unwrap_or_default().1.into();
                return Ok(Ok(Daemon { child, socket, export, log }));
            }
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("braid {words:?} hangs"));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let usual = || env!("CARGO_BIN_EXE_braid").into();
        let mut command = Command::new(std::env::var_os("BRAID_SEQUENCE_BINARY").unwrap_or_else(usual));
        command.args(words).arg("--json").current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("BRAID_STATE_DIR", self.path("state")).env("BRAID_RUNTIME_DIR", self.path("run"));
        command.env_remove("BRAID_LOG");
        command
    }

    /// Adds a remark to the last command.
    pub fn note(&mut self, remark: &str) {
        self.script.last_mut().unwrap().push_str(remark);
    }

    /// Runs a shell command. Panics if the command fails.
    pub fn shell(&mut self, line: String) {
        let ended =
            Command::new("sh").args(["-c", &line]).current_dir(self.directory.path()).output().unwrap();
        assert!(ended.status.success(), "{line}: {ended:?}");
        self.script.push(line);
    }

    /// Letter of the file at a path, if the file lies in the directory.
    pub fn letter(&self, path: &str) -> Option<char> {
        let path = Path::new(path);
        let name = path.file_name()?.to_str()?;
        let letter = name.chars().next().filter(|_| name.len() == 5)?;
        (path
            .parent()
            .is_none_or(|parent| parent.ends_with(self.directory.path().file_name().unwrap_or_default()))
            && self.files.contains_key(&letter))
        .then_some(letter)
    }

    /// Registers a new file.
    pub fn add_file(&mut self, letter: char, tail: bool) {
        let mark = mark_of(&self.path(&file_name(letter)));
        self.files.insert(letter, File { owner: None, live: false, cut: false, tail, opening: 0, mark });
    }

    /// Makes a disk full of a pattern, with zeros at the blocks of the model.
    pub fn fill(&mut self, letter: char, clusters: Vec<u64>) {
        let mut bytes: Vec<u8> = (0..SIZE / 8).flat_map(|word| (word | 0xd15c << 48).to_le_bytes()).collect();
        for at in clusters {
            bytes[at as usize..][..CLUSTER * BLOCK].fill(0);
        }
        fs::write(self.path(&file_name(letter)), bytes).unwrap();
        self.script.push(format!("# {} is full of something", file_name(letter)));
    }

    /// Returns files that have changed since the last call.
    pub fn changed(&mut self) -> Vec<char> {
        let root = self.directory.path().to_owned();
        let mut changed = Vec::new();
        for (&letter, file) in &mut self.files {
            let mark = mark_of(&root.join(file_name(letter)));
            if std::mem::replace(&mut file.mark, mark) != mark {
                changed.push(letter);
            }
        }
        changed
    }

    pub fn rename(&mut self, from: char, to: char) {
        self.shell(format!("mv {} {}", file_name(from), file_name(to)));
        let file = self.files.remove(&from).unwrap();
        self.files.insert(to, file);
    }

    pub fn swap(&mut self, one: char, other: char) {
        let (a, b) = (file_name(one), file_name(other));
        self.shell(format!("mv {a} x; mv {b} {a}; mv x {b}"));
        let (first, second) = (self.files.remove(&one).unwrap(), self.files.remove(&other).unwrap());
        self.files.extend([(one, second), (other, first)]);
    }

    pub fn take_away(&mut self, letter: char) {
        self.shell(format!("mv {0} away/{0}", file_name(letter)));
        let file = self.files.remove(&letter).unwrap();
        self.away.insert(letter, file);
    }

    pub fn bring_back(&mut self, letter: char) {
        self.shell(format!("mv away/{0} {0}", file_name(letter)));
        let file = self.away.remove(&letter).unwrap();
        self.files.insert(letter, file);
    }

    /// Keeps a copy of a file out of reach.
    pub fn copy(&mut self, letter: char) {
        self.shell(format!("cp --sparse=always {} away/{letter}.bak", file_name(letter)));
        let copy = File { live: false, ..self.files[&letter].clone() };
        self.copies.insert(letter, copy);
    }

    /// Puts a copy of `of` at the letter `at`, in place of any file there.
    pub fn lay_copy(&mut self, of: char, at: char) {
        self.shell(format!("rm -f {1}; cp --sparse=always away/{0}.bak {1}", of, file_name(at)));
        let copy = self.copies[&of].clone();
        self.files.insert(at, copy);
        self.changed();
    }

    /// Replaces all bytes of a file by zeros.
    pub fn blank(&mut self, letter: char) {
        let name = file_name(letter);
        self.shell(format!("truncate -s 0 {name}; truncate -s {SIZE} {name}"));
        self.add_file(letter, false);
    }

    /// Truncates a file to half, and restores its size with zeros.
    pub fn cut(&mut self, letter: char) {
        let name = file_name(letter);
        self.shell(format!("truncate -s {} {name}; truncate -s {SIZE} {name}", SIZE / 2));
        self.files.get_mut(&letter).unwrap().cut = true;
        self.changed();
    }

    /// True if a file has a superblock in one of the places for superblocks, whole or damaged.
    pub fn has_superblock(&self, letter: char) -> bool {
        let file = Bytes::open(self.path(&file_name(letter))).unwrap();
        let has_at = |offset: u64| {
            let mut magic = [0; 8];
            file.read_exact_at(&mut magic, offset).is_ok_and(|()| magic == *b"BRAIDVOL")
        };
        [0, 16 << 10, SIZE - (48 << 10), SIZE - (32 << 10), SIZE - (16 << 10)].into_iter().any(has_at)
    }

    /// Zeroes the first two copies of the superblock at the start of a file.
    pub fn wipe(&mut self, letter: char) {
        let file = fs::OpenOptions::new().write(true).open(self.path(&file_name(letter))).unwrap();
        file.write_all_at(&[0; 24 << 10], 0).unwrap();
        self.script.push(format!("dd if=/dev/zero of={} bs=1k count=24 conv=notrunc", file_name(letter)));
        self.changed();
    }
}

impl Ended {
    /// Kind of the command's error.
    pub fn kind(&self) -> Option<String> {
        self.report["error"]["kind"].as_str().map(str::to_owned)
    }

    /// Message of the command's error.
    pub fn message(&self) -> &str {
        self.report["error"]["message"].as_str().unwrap_or_default()
    }

    /// Fails for a panic, a signal, an undocumented kind of error, and an exit status of another kind.
    fn judge(&self, words: &[&str]) -> Outcome {
        let expected = match self.kind().as_deref() {
            None => (0..=3).contains(&self.status) && self.report.is_object() && self.status != 2,
            Some("usage") => self.status == 2,
            Some("corrupt" | "unsafe") => self.status == 3,
            Some("invalid" | "busy" | "not_served" | "io" | "no_space" | "degraded" | "unsupported") => {
                self.status == 1
            }
            Some(_) => false,
        };
        let text = || format!("braid {words:?} ended with {}: {} {}", self.status, self.report, self.stderr);
        if expected && !self.stderr.contains("panicked") { Ok(()) } else { Err(text()) }
    }
}

impl Daemon {
    /// Ends the daemon by a signal; returns the exit status, `None` if the signal killed the daemon.
    pub fn end(mut self, signal: rustix::process::Signal) -> Outcome<Option<i32>> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
        let status = wait(&mut self.child).ok_or("the daemon does not stop")?;
        self.judge()?;
        Ok(status.code())
    }

    /// Fails if the daemon's log contains a panic.
    pub fn judge(&self) -> Outcome {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        if log.contains("panicked") { Err(format!("the daemon panicked: {log}")) } else { Ok(()) }
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process. Kills a hanging process, and returns `None`.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn ended(status: ExitStatus, stdout: &Path, stderr: &Path) -> Ended {
    let report = serde_json::from_str(&fs::read_to_string(stdout).unwrap()).unwrap_or_default();
    Ended { status: status.code().unwrap_or(-1), report, stderr: fs::read_to_string(stderr).unwrap() }
}

fn mark_of(path: &Path) -> (u64, i64, i64) {
    let about = fs::metadata(path).unwrap();
    (about.len(), about.mtime(), about.mtime_nsec())
}

/// Name of the file with a letter.
pub fn file_name(letter: char) -> String {
    format!("{letter}.img")
}

/// Bytes of each file: all files have equal sizes, so any file may replace any other.
pub const SIZE: u64 = 16 << 20;

/// Far longer than any command here runs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
