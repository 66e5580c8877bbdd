//! A disk in memory, and a server of it in a thread of its own.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part; a test may unwrap")]

pub mod nbdkit;
pub mod raw;
pub mod remote;
pub mod scripted;

use braid_base::{Bytes, KIB, MIB, Nanos, Request};
use braid_engine::{Allocation, Durability, Error, ErrorKind, Export, Result, Zeroing};
use braid_nbd::tls::{ClientRule, Tls, TlsFiles};
use braid_nbd::{Counters, Server, ServerConfig};
use braid_runtime::{Arena, Buf, Runtime};
use braid_uring::{Address, Listener, Ring};
use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const BLOCK: Bytes = Bytes(4 * KIB.0);
/// A read or write that touches this byte fails, where the disk is [`Kind::Broken`].
pub const BAD_BYTE: Bytes = Bytes(3 * MIB.0);

/// What the disk is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Answers at once.
    Fast,
    /// Answers after this time.
    Slow(Nanos),
    /// Answers at once, but fails at [`BAD_BYTE`].
    Broken,
}

#[derive(Clone)]
pub struct MemoryDisk {
    ring: Ring,
    kind: Kind,
    bytes: Rc<RefCell<Vec<u8>>>,
    /// By block: whether it was written.
    written: Rc<RefCell<Vec<bool>>>,
    /// What guests asked for, where a test wants to know.
    asked: Option<Arc<Mutex<Vec<Request>>>>,
}

impl MemoryDisk {
    pub fn new(ring: &Ring, size: Bytes, kind: Kind) -> MemoryDisk {
        let blocks = size.as_usize().div_ceil(BLOCK.as_usize());
        MemoryDisk {
            ring: ring.clone(),
            kind,
            bytes: Rc::new(RefCell::new(vec![0; size.as_usize()])),
            written: Rc::new(RefCell::new(vec![false; blocks])),
            asked: None,
        }
    }

    async fn work(&self, offset: Bytes, len: Bytes) -> Result<()> {
        if offset + len > self.size() {
            return Err(Error::new(ErrorKind::Invalid, "beyond the end"));
        }
        match self.kind {
            Kind::Fast => {}
            Kind::Slow(time) => self.ring.sleep(time).await,
            Kind::Broken if offset <= BAD_BYTE && BAD_BYTE < offset + len => {
                return Err(Error::new(ErrorKind::Io, "a bad byte"));
            }
            Kind::Broken => {}
        }
        Ok(())
    }

    fn zero(&self, offset: Bytes, len: Bytes, mark: Option<bool>) {
        self.bytes.borrow_mut()[offset.as_usize()..][..len.as_usize()].fill(0);
        let (first, last) = match mark {
            Some(true) => (offset.align_down(BLOCK), (offset + len).align_up(BLOCK)),
            _ => (offset.align_up(BLOCK), (offset + len).align_down(BLOCK)),
        };
        if let Some(mark) = mark.filter(|_| first < last) {
            self.written.borrow_mut()[(first / BLOCK) as usize..(last / BLOCK) as usize].fill(mark);
        }
    }
}

impl Export for MemoryDisk {
    fn size(&self) -> Bytes {
        Bytes::of_len(self.bytes.borrow().len())
    }

    fn preferred_block(&self) -> Bytes {
        BLOCK
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        self.work(offset, into.len()).await?;
        into.copy_from_slice(Bytes::ZERO, &self.bytes.borrow()[offset.as_usize()..][..into.len().as_usize()]);
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf, _: Durability) -> Result<()> {
        self.work(offset, from.len()).await?;
        from.copy_to_slice(
            Bytes::ZERO,
            &mut self.bytes.borrow_mut()[offset.as_usize()..][..from.len().as_usize()],
        );
        let (first, last) = (offset / BLOCK, (offset + from.len() - Bytes(1)) / BLOCK);
        self.written.borrow_mut()[first as usize..=last as usize].fill(true);
        Ok(())
    }

    async fn flush(&self) -> Result<()> {
        self.work(Bytes::ZERO, Bytes(1)).await
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.work(offset, len).await?;
        self.zero(offset, len, Some(false));
        Ok(())
    }

    async fn write_zeroes(&self, offset: Bytes, len: Bytes, zeroing: Zeroing, _: Durability) -> Result<()> {
        self.work(offset, len).await?;
        self.zero(offset, len, Some(zeroing == Zeroing::KeepAllocated));
        Ok(())
    }

    async fn prefetch(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.work(offset, len).await
    }

    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        if self.kind == Kind::Broken {
            return (Allocation::Data, limit);
        }
        let written = self.written.borrow();
        let first = (offset / BLOCK) as usize;
        let last = ((offset + limit - Bytes(1)) / BLOCK) as usize;
        let run = written[first..=last].iter().take_while(|&&mark| mark == written[first]).count() as u64;
        let len = (offset.align_down(BLOCK) + BLOCK * run - offset).min(limit);
        (if written[first] { Allocation::Data } else { Allocation::Hole }, len)
    }

    fn asked(&self, request: Request) {
        if let Some(asked) = &self.asked {
            asked.lock().unwrap().push(request);
        }
    }
}

/// How a test's server is set up.
#[derive(Clone, Copy)]
pub struct Setup {
    pub size: Bytes,
    pub kind: Kind,
    pub arena: Bytes,
    pub max_connections: usize,
    pub unused_time: Nanos,
    pub negotiation_time: Nanos,
    pub drain_time: Nanos,
    /// Whether [`Running::asked`] is kept.
    pub keep_asked: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            size: MIB * 64,
            kind: Kind::Fast,
            arena: MIB * 64,
            max_connections: 16,
            unused_time: Nanos::from_secs(60),
            negotiation_time: Nanos::from_secs(5),
            drain_time: Nanos::from_secs(2),
            keep_asked: false,
        }
    }
}

/// What a server's thread tells about itself.
#[derive(Clone, Copy, Default, Debug)]
pub struct State {
    pub counters: Counters,
    /// Bytes of the arena that are in use.
    pub held: Bytes,
}

/// A server that runs until it is dropped.
pub struct Running {
    pub socket: PathBuf,
    /// The port of 127.0.0.1 that it listens on too.
    pub port: u16,
    /// The server's thread, for its processor time.
    pub thread_id: u32,
    state: Arc<Mutex<State>>,
    asked: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Running {
    pub fn start(setup: Setup) -> Running {
        Running::start_with(setup, None)
    }

    /// Starts with the certificates of a server and the clients that may come.
    pub fn start_with(setup: Setup, tls: Option<(TlsFiles, Vec<ClientRule>)>) -> Running {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("nbd.sock");
        let (state, stop) = (Arc::new(Mutex::new(State::default())), Arc::new(AtomicBool::new(false)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (ready, is_ready) = mpsc::channel();
        let thread = {
            let (socket, state, stop) = (socket.clone(), state.clone(), stop.clone());
            let asked = setup.keep_asked.then(|| asked.clone());
            std::thread::spawn(move || run(setup, tls, asked, &socket, &state, &stop, &ready))
        };
        let (thread_id, port) = is_ready.recv().expect("the server starts");
        Running { socket, port, thread_id, state, asked, stop, thread: Some(thread), _directory: directory }
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///vol?socket={}", self.socket.display())
    }

    pub fn state(&self) -> State {
        *self.state.lock().unwrap()
    }

    /// What the server said that guests asked for; forgotten hereby.
    pub fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Waits until the server's state is as wanted.
    pub fn wait_until(&self, what: &str, test: impl Fn(State) -> bool) {
        let start = Instant::now();
        while !test(self.state()) {
            assert!(start.elapsed() < Duration::from_secs(300), "waited in vain: {what}; {:?}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Begins to stop the server.
    pub fn begin_stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Stops the server and waits for its end, which shows that nothing of it is left.
    pub fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server's thread panicked");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.join();
    }
}

fn run(
    setup: Setup,
    tls: Option<(TlsFiles, Vec<ClientRule>)>,
    asked: Option<Arc<Mutex<Vec<Request>>>>,
    socket: &Path,
    state: &Mutex<State>,
    stop: &AtomicBool,
    ready: &mpsc::Sender<(u32, u16)>,
) {
    let arena = Arena::new(setup.arena);
    let ring = Ring::new(256, &arena).expect("a ring");
    let disk = MemoryDisk { asked, ..MemoryDisk::new(&ring, setup.size, setup.kind) };
    let mut config = ServerConfig::new("vol", &arena);
    config.memory = setup.arena;
    config.max_connections = setup.max_connections;
    config.unused_time = setup.unused_time;
    config.negotiation_time = setup.negotiation_time;
    config.drain_time = setup.drain_time;
    config.tls = tls.map(|(files, rules)| Tls::new(&files, &rules).expect("files that fit"));
    let server = Server::new(ring.clone(), disk, config).expect("a server");
    let listener = Listener::bind_unix(&ring, socket).expect("a listener");
    let tcp = Listener::bind_tcp(&ring, "127.0.0.1:0".parse().unwrap()).expect("a listener");
    let port = match tcp.local_address() {
        Address::Tcp(address) => address.port(),
        Address::Unix(path) => panic!("not TCP: {}", path.display()),
    };
    let tell = |server: &Server<MemoryDisk>| {
        let held = Bytes::of_len(arena.region().1) - arena.available();
        *state.lock().unwrap() = State { counters: server.counters(), held };
    };
    ring.block_on(async {
        for listener in [listener, tcp] {
            let server = server.clone();
            ring.spawn(async move { server.serve(listener).await });
        }
        ready.send((thread_id(), port)).expect("the test waits");
        while !stop.load(Ordering::SeqCst) {
            ring.sleep(Nanos::from_millis(20)).await;
            tell(&server);
        }
        server.shutdown().await;
        tell(&server);
    });
    assert_eq!(server.counters().open, 0, "connections are left");
    ring.clear();
    assert_eq!(arena.available(), setup.arena.max(MIB), "buffers are left");
}

fn thread_id() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
    link.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse().ok()).expect("a thread's number")
}

/// Whether a programme is installed; says loudly where it is not.
pub fn installed(programme: &str, package: &str) -> bool {
    let found = Path::new("/usr/bin").join(programme).exists();
    if !found {
        // Past the capture of the output of tests: this must be seen.
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: {programme} is not installed (apt-get install {package})");
    }
    found
}

/// Runs a client to its end; fails the test with all it said where it fails.
pub fn run_client(programme: &str, arguments: &[&str]) -> Output {
    let output = Command::new(programme).args(arguments).output().expect(programme);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{programme} {arguments:?}: {}\n{said}", output.status);
    output
}
