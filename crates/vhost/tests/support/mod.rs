//! A disk in a file, and servers of it: in a thread of the test, and in a process that can be killed.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part; a test may unwrap")]

pub mod guest;
pub mod pages;

use braid_base::{Bytes, MIB, Nanos, Request};
use braid_engine::{Allocation, Durability, Error, ErrorKind, Export, Result, Zeroing};
use braid_runtime::{Arena, Buf, Runtime};
use braid_uring::{Listener, Ring};
use braid_vhost::{Counters, Server, ServerConfig};
use rustix::fs::FallocateFlags;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far longer than any wait here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// What the disk is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Answers as the file does.
    Plain,
    /// Refuses changes.
    ReadOnly,
    /// Never answers writes: they stay in flight.
    Holding,
    /// Fails to read and write.
    Broken,
}

/// A disk in a file in memory, which outlives the process that serves it. Answers at once.
#[derive(Clone)]
pub struct FileDisk {
    file: Rc<File>,
    size: Arc<AtomicU64>,
    kind: Kind,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl FileDisk {
    pub fn open(path: &Path, kind: Kind) -> FileDisk {
        let file = File::options().read(true).write(true).open(path).expect("the file");
        let size = Arc::new(AtomicU64::new(file.metadata().expect("its length").len()));
        FileDisk { file: Rc::new(file), size, kind, asked: Arc::default() }
    }

    fn check(&self) -> Result<()> {
        match self.kind {
            Kind::Broken => Err(Error::new(ErrorKind::Io, "the disk is broken")),
            _ => Ok(()),
        }
    }

    fn punch(&self, offset: Bytes, len: Bytes) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&*self.file, flags, offset.0, len.0).map_err(|error| failed(error.into()))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, error.to_string())
}

impl Export for FileDisk {
    fn size(&self) -> Bytes {
        Bytes(self.size.load(Ordering::SeqCst))
    }

    fn preferred_block(&self) -> Bytes {
        Bytes(4096)
    }

    fn is_read_only(&self) -> bool {
        self.kind == Kind::ReadOnly
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        self.check()?;
        into.with_bytes_mut(|bytes| self.file.read_exact_at(bytes, offset.0)).map_err(failed)
    }

    async fn write(&self, offset: Bytes, from: &Buf, _: Durability) -> Result<()> {
        self.check()?;
        if self.kind == Kind::Holding {
            std::future::pending::<()>().await;
        }
        from.with_bytes(|bytes| self.file.write_all_at(bytes, offset.0)).map_err(failed)
    }

    async fn flush(&self) -> Result<()> {
        self.check()
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.punch(offset, len)
    }

    async fn write_zeroes(&self, offset: Bytes, len: Bytes, _: Zeroing, _: Durability) -> Result<()> {
        self.punch(offset, len)
    }

    async fn prefetch(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn allocation(&self, _: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        (Allocation::Data, limit)
    }

    fn asked(&self, request: Request) {
        self.asked.lock().unwrap().push(request);
    }
}

/// A server in a thread of the test, until it is dropped.
pub struct Running {
    pub socket: PathBuf,
    pub disk: PathBuf,
    /// The server's thread, for its processor time.
    pub thread_id: u32,
    state: Arc<Mutex<Counters>>,
    asked: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    size: Arc<AtomicU64>,
    untold: Arc<Mutex<Option<Option<String>>>>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Running {
    /// Serves a new disk of `size`.
    pub fn start(size: Bytes, kind: Kind) -> Running {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let (socket, disk) = (directory.path().join("vm.sock"), directory.path().join("disk"));
        std::fs::File::create(&disk).and_then(|file| file.set_len(size.0)).expect("a file");
        let (state, stop) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (wanted, untold) = (Arc::new(AtomicU64::new(size.0)), Arc::new(Mutex::new(None)));
        let (ready, is_ready) = mpsc::channel();
        let thread = {
            let (socket, disk, state, stop) = (socket.clone(), disk.clone(), state.clone(), stop.clone());
            let (asked, size, untold) = (asked.clone(), wanted.clone(), untold.clone());
            std::thread::spawn(move || {
                let disk = FileDisk { asked, size: size.clone(), ..FileDisk::open(&disk, kind) };
                let last = Cell::new(size.load(Ordering::SeqCst));
                let tell = |server: &Server<FileDisk>| {
                    *state.lock().unwrap() = server.counters();
                    let size = size.load(Ordering::SeqCst);
                    if last.replace(size) != size {
                        *untold.lock().unwrap() = Some(server.note_size());
                    }
                };
                serve(&socket, disk, tell, &stop, || ready.send(thread_id()).unwrap());
            })
        };
        let thread_id = is_ready.recv().expect("the server starts");
        let (thread, size) = (Some(thread), wanted);
        Running { socket, disk, thread_id, state, asked, stop, size, untold, thread, _directory: directory }
    }

    pub fn counters(&self) -> Counters {
        *self.state.lock().unwrap()
    }

    pub fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Waits until the counters are as wanted.
    pub fn wait_until(&self, what: &str, test: impl Fn(Counters) -> bool) {
        let start = Instant::now();
        while !test(self.counters()) {
            assert!(start.elapsed() < PATIENCE, "waited in vain: {what}; {:?}", self.counters());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Gives the disk another size. Returns what the server says of its guest.
    pub fn resize(&self, size: Bytes) -> Option<String> {
        File::options().write(true).open(&self.disk).unwrap().set_len(size.0).unwrap();
        self.size.store(size.0, Ordering::SeqCst);
        loop {
            if let Some(untold) = self.untold.lock().unwrap().take() {
                return untold;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Begins to stop the server.
    pub fn begin_stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server's thread panicked");
        }
    }
}

fn serve(
    socket: &Path,
    disk: FileDisk,
    tell: impl Fn(&Server<FileDisk>),
    stop: &AtomicBool,
    ready: impl FnOnce(),
) {
    const ARENA: Bytes = Bytes(16 << 20);
    let arena = Arena::new(ARENA);
    let ring = Ring::new(256, &arena).expect("a ring");
    let config = ServerConfig {
        memory: MIB * 2,
        patience: Nanos::from_millis(200),
        ..ServerConfig::new("vault", &arena)
    };
    let server = Server::new(ring.clone(), disk, config).expect("a server");
    let listener = Listener::bind_unix(&ring, socket).expect("a listener");
    ring.block_on(async {
        let accepting = server.clone();
        ring.spawn(async move { accepting.serve(listener).await });
        ready();
        while !stop.load(Ordering::SeqCst) {
            ring.sleep(Nanos::from_millis(5)).await;
            tell(&server);
        }
        server.shutdown().await;
        tell(&server);
    });
    assert_eq!(server.counters().open, 0, "a connection is left");
    ring.clear();
    assert_eq!(arena.available(), ARENA, "buffers are left");
}

/// Serves until killed: the body of a test that runs as a process of its own. Does nothing if the process was
/// not started by [`Process::start`].
pub fn serve_as_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let disk = PathBuf::from(std::env::var_os(DISK).expect("the disk is named"));
    let kind = if std::env::var_os(HOLDS).is_some() { Kind::Holding } else { Kind::Plain };
    let never = AtomicBool::new(false);
    serve(socket.as_ref(), FileDisk::open(&disk, kind), |_| {}, &never, || println!("ready"));
}

const SOCKET: &str = "BRAID_TEST_SOCKET";
const DISK: &str = "BRAID_TEST_DISK";
const HOLDS: &str = "BRAID_TEST_HOLDS";

/// A server in a process of its own.
pub struct Process {
    child: Child,
}

impl Process {
    /// Runs the test `name`, which calls [`serve_as_process`]. Waits until the socket is there.
    pub fn start(name: &str, socket: &Path, disk: &Path, kind: Kind) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env(SOCKET, socket).env(DISK, disk);
        if kind == Kind::Holding {
            command.env(HOLDS, "1");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let is_ready = |line: std::io::Result<String>| line.unwrap_or_default().contains("ready");
        assert!(std::io::BufRead::lines(output).any(is_ready), "the server starts");
        Process { child }
    }

    /// Kills the server, as with `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn thread_id() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
    link.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse().ok()).expect("a thread's number")
}
