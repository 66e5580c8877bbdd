//! Braid's NBD server within TLS against nbdkit's memory plugin with GnuTLS, and against Braid in plain, on
//! this machine, over TCP: requests per second and the server's processor time per request. The three take
//! turns, so that a busy neighbour hits all.
//!
//! `cargo bench -p braid-nbd --bench tls_against_nbdkit [-- ROUNDS [PART-OF-A-LOAD'S-NAME]]`; needs nbdkit,
//! fio and root: fio's engine finds certificates in a home directory, but not for root, and becomes another
//! user. Braid serves memory in this process.

#[path = "../tests/support/certificates.rs"]
mod certificates;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/tls.rs"]
mod tls;
mod turns;

use braid_base::GIB;
use braid_nbd::wire::{NBD_CMD_READ, NBD_CMD_WRITE, Request};
use certificates::Wanted;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Running, Setup, installed};
use tls::{Secured, client_config, host};
use turns::{Sample, median, process_seconds, report, thread_seconds};

const SECONDS: u64 = 2;
/// The user that runs fio.
const NOBODY: u32 = 65_534;
/// Requests of a batch.
const BATCH: u64 = 64;

fn main() {
    let tools = [("fio", "fio"), ("nbdkit", "nbdkit"), ("setpriv", "util-linux")];
    if !tools.iter().all(|(programme, package)| installed(programme, package)) {
        return;
    }
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    // `cargo test --all-targets` runs benches too, but without this flag.
    if !flags.iter().any(|flag| flag == "--bench") || !rustix::process::geteuid().is_root() {
        return;
    }
    let rounds = arguments.first().and_then(|argument| argument.parse().ok()).unwrap_or(9);
    let wanted = arguments.get(1).map_or("", String::as_str);
    let setup = Setup { size: GIB, arena: GIB / 8, ..Setup::default() };
    let (secured, plain) = (Secured::start(setup, &[]), Running::start(setup));
    let directory = tempfile::tempdir().expect("a directory");
    let stage = Stage::new(&secured, directory.path());
    let nbdkit = Nbdkit::start(&stage.server_folder(), free_port());
    let (ours, ours_plain) = (secured.server.thread_id, plain.thread_id);
    let servers = [
        Target { port: secured.server.port, is_secure: true, cpu: &|| thread_seconds(ours) },
        Target { port: nbdkit.port, is_secure: true, cpu: &|| process_seconds(nbdkit.child.id()) },
        Target { port: plain.port, is_secure: false, cpu: &|| thread_seconds(ours_plain) },
    ];
    servers.iter().for_each(|server| drop(stage.fio(server, &["--rw=write", "--bs=1M", "--iodepth=4"])));
    handshakes(&stage, &servers[0]);
    println!("{rounds} rounds of {SECONDS} s each, 4 KiB over 256 MiB");
    for load in LOADS.iter().filter(|load| load.name.contains(wanted)) {
        let (mut beside_nbdkit, mut beside_plain, mut late) =
            (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
        for _ in 0..rounds {
            let all = [0, 1, 2].map(|number| measure(load, &stage, &servers[number]));
            let [ours, theirs, plain] = all.map(|(sample, _)| sample);
            late.iter_mut().zip(all).for_each(|(late, (_, p99))| late.push(p99));
            beside_plain.push((ours, plain));
            beside_nbdkit.push((ours, theirs));
        }
        report(&format!("{}: TLS / nbdkit's", load.name), &beside_nbdkit);
        report(&format!("{}: TLS / plain", load.name), &beside_plain);
        let [ours, theirs, plain] = late.map(|late| median(late).0);
        if ours > 0.0 {
            println!("{}: p99 {ours:.0} us, nbdkit {theirs:.0} us, plain {plain:.0} us", load.name);
        }
    }
}

/// A server under measurement.
struct Target<'a> {
    port: u16,
    is_secure: bool,
    cpu: &'a dyn Fn() -> f64,
}

/// Outcome of a load.
struct Outcome {
    requests: f64,
    seconds: f64,
    /// 99th percentile of the latency in microseconds; 0 if not measured.
    p99_micros: f64,
}

struct Load {
    name: &'static str,
    run: fn(&Stage<'_>, &Target<'_>) -> Outcome,
}

const LOADS: &[Load] = &[
    Load { name: "fio read, depth 64", run: |stage, server| stage.timed(server, "randread", 64) },
    Load { name: "fio read, depth 1", run: |stage, server| stage.timed(server, "randread", 1) },
    Load { name: "fio write, depth 64", run: |stage, server| stage.timed(server, "randwrite", 64) },
    Load { name: "fio write, depth 1", run: |stage, server| stage.timed(server, "randwrite", 1) },
    Load { name: "batches of 64 reads", run: |stage, server| stage.batches(server, NBD_CMD_READ) },
    Load { name: "batches of 64 writes", run: |stage, server| stage.batches(server, NBD_CMD_WRITE) },
];

/// Gives a sample, and the 99th percentile of the latency.
fn measure(load: &Load, stage: &Stage<'_>, server: &Target<'_>) -> (Sample, f64) {
    let before = (server.cpu)();
    let Outcome { requests, seconds, p99_micros } = (load.run)(stage, server);
    let cpu_micros = ((server.cpu)() - before) * 1e6 / requests;
    (Sample { per_second: requests / seconds, cpu_micros }, p99_micros)
}

/// Cost of a connection: TCP, STARTTLS, the handshake with a client's certificate.
fn handshakes(stage: &Stage<'_>, server: &Target<'_>) {
    let mut costs = Vec::new();
    for _ in 0..9 {
        let before = (server.cpu)();
        (0..100).for_each(|_| drop(stage.connect(server)));
        costs.push(((server.cpu)() - before) * 1e6 / 100.0);
    }
    let (cost, least, most) = median(costs);
    println!("a TLS handshake takes the server {cost:.0} us ({least:.0}..{most:.0}) of processor time");
}

/// Certificates in files, and clients that use them.
struct Stage<'a> {
    secured: &'a Secured,
    directory: &'a Path,
    client: certificates::Identity,
}

impl Stage<'_> {
    fn new<'a>(secured: &'a Secured, directory: &'a Path) -> Stage<'a> {
        let client = secured.authority.sign(&Wanted::client("fio"));
        let home = directory.join(".pki/libnbd");
        secured.authority.write(&home, "client", &client);
        let server = secured.authority.sign(&Wanted::server());
        secured.authority.write(&directory.join("server"), "server", &server);
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("own directory");
        chown(home.join("client-key.pem"), Some(NOBODY), None).expect("root may");
        chown(directory, Some(NOBODY), None).expect("root may");
        Stage { secured, directory, client }
    }

    fn server_folder(&self) -> String {
        self.directory.join("server").display().to_string()
    }

    fn timed(&self, server: &Target<'_>, rw: &str, depth: u32) -> Outcome {
        let load = [format!("--rw={rw}"), format!("--iodepth={depth}"), format!("--runtime={SECONDS}")];
        let load = load.each_ref().map(String::as_str);
        let shown = self.fio(server, &[&load[..], &["--bs=4k", "--time_based"]].concat());
        let done = &shown["jobs"][0][&rw["rand".len()..]];
        let p99_nanos = done["clat_ns"]["percentile"]["99.000000"].as_f64().expect("fio tells percentiles");
        let requests = done["total_ios"].as_f64().expect("fio counts");
        Outcome { requests, seconds: SECONDS as f64, p99_micros: p99_nanos / 1e3 }
    }

    fn fio(&self, server: &Target<'_>, load: &[&str]) -> Value {
        let scheme = if server.is_secure { "nbds" } else { "nbd" };
        let uri = format!("--uri={scheme}://localhost:{}/", server.port);
        let mut command = Command::new("setpriv");
        command.args([
            &format!("--reuid={NOBODY}"),
            "--clear-groups",
            "fio",
            "--name=load",
            "--ioengine=nbd",
        ]);
        command.args(["--size=256M", "--randrepeat=1", "--output-format=json", &uri]).args(load);
        let output = command.env("HOME", self.directory).current_dir(self.directory).output();
        let output = output.expect("setpriv runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let json = text.find('{').map_or("", |start| &text[start..]);
        serde_json::from_str(json).expect("fio writes JSON")
    }

    /// A client that costs less than fio: sends 64 requests at a time, and then reads all replies.
    fn batches(&self, server: &Target<'_>, command: u16) -> Outcome {
        let (start, mut requests, mut place) = (Instant::now(), 0u64, 1u64);
        let mut client = self.connect(server);
        let len = if command == NBD_CMD_READ { 16 + 4096 } else { 16 };
        let mut replies = vec![0; BATCH as usize * len];
        while start.elapsed() < Duration::from_secs(SECONDS) {
            let mut batch = Vec::new();
            for cookie in 0..BATCH {
                place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (place >> 33) % 65_536 * 4096;
                batch.extend(Request { flags: 0, command, cookie, offset, len: 4096 }.encode());
                if command == NBD_CMD_WRITE {
                    batch.extend([7; 4096]);
                }
            }
            client.write_all(&batch).and_then(|()| client.flush()).expect("the server receives");
            client.read_exact(&mut replies).expect("the server sends");
            requests += BATCH;
        }
        Outcome { requests: requests as f64, seconds: start.elapsed().as_secs_f64(), p99_micros: 0.0 }
    }

    /// Connects and negotiates in the oldest way.
    fn connect(&self, server: &Target<'_>) -> Box<dyn Connection> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        let mut seen = [0; 18];
        stream.read_exact(&mut seen).expect("a greeting");
        stream.write_all(&3u32.to_be_bytes()).expect("the server receives");
        let mut connection: Box<dyn Connection> = Box::new(stream.try_clone().expect("a second handle"));
        if server.is_secure {
            use braid_nbd::wire::options::{NBD_OPT_STARTTLS, encode_option};
            stream.write_all(&encode_option(NBD_OPT_STARTTLS, &[])).expect("the server receives");
            stream.read_exact(&mut [0; 20]).expect("a reply");
            let config = client_config(&self.secured.authority, Some(&self.client));
            let mut within = ClientConnection::new(Arc::clone(&config), host()).expect("a client");
            while within.is_handshaking() {
                within.complete_io(&mut stream).expect("a TLS handshake");
            }
            connection = Box::new(StreamOwned::new(within, stream));
        }
        use braid_nbd::wire::options::{NBD_OPT_EXPORT_NAME, encode_option};
        connection.write_all(&encode_option(NBD_OPT_EXPORT_NAME, b"")).expect("the server receives");
        connection.flush().expect("the server receives");
        connection.read_exact(&mut [0; 10]).expect("a reply");
        connection
    }
}

trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

/// nbdkit with GnuTLS.
struct Nbdkit {
    child: Child,
    port: u16,
}

impl Nbdkit {
    fn start(folder: &str, port: u16) -> Nbdkit {
        let mut command = Command::new("nbdkit");
        command.args([
            "-f",
            "-i",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "--tls=require",
            "--tls-verify-peer",
        ]);
        command.args([&format!("--tls-certificates={folder}"), "memory", "1G"]);
        // nbdkit complains of clients that end without an announcement, as libnbd does.
        let mut child = command.stderr(Stdio::null()).spawn().expect("nbdkit starts");
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "nbdkit has ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Nbdkit { child, port }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("nbdkit ends");
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
