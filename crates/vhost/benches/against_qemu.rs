//! Braid's vhost-user server against qemu-storage-daemon's export, on this machine: requests per second and
//! the server's processor time per request. The two alternate, so that a busy neighbour hits both.
//!
//! `cargo bench -p braid-vhost [-- ROUNDS [PART-OF-A-LOAD'S-NAME]]`; needs qemu-storage-daemon. Both serve
//! the same file in memory (`/dev/shm`), one after the other. With `BRAID=PATH` the daemon at that path
//! serves a temporary volume on two memory devices.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::pages::SharedPages;
use support::{Kind, Running};
use virtio_driver::{
    VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags,
};

const SECONDS: u64 = 2;
const SIZE: u64 = 1 << 30;
/// Part of the disk that the loads use.
const SPAN: u64 = 256 << 20;
const BLOCK: usize = 4096;

fn main() {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    // `cargo test --all-targets` runs benches too, but without this flag.
    if !flags.iter().any(|flag| flag == "--bench") {
        return;
    }
    if !Path::new("/usr/bin/qemu-storage-daemon").exists() {
        eprintln!("SKIPPED: qemu-storage-daemon is not installed (apt-get install qemu-utils)");
        return;
    }
    let rounds = arguments.first().and_then(|argument| argument.parse().ok()).unwrap_or(5);
    let wanted = arguments.get(1).map_or("", String::as_str);
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let (ours, server): (Door, Option<Running>) = match std::env::var("BRAID") {
        Ok(program) => (braid(&program, directory.path()), None),
        Err(_) => {
            let server = Running::start(braid_base::Bytes(SIZE), Kind::Plain);
            (Door { socket: server.socket.clone(), process: None, thread: server.thread_id }, Some(server))
        }
    };
    // One file for both, unless the daemon serves a volume.
    let file = server.as_ref().map_or_else(|| directory.path().join("disk"), |server| server.disk.clone());
    fs::File::options().create(true).write(true).truncate(false).open(&file).expect("a file");
    fs::File::options().write(true).open(&file).and_then(|f| f.set_len(SIZE)).expect("a length");
    let theirs = qemu(&file, directory.path());
    for door in [&ours, &theirs] {
        fill(&door.socket);
    }
    println!("{rounds} rounds of {SECONDS} s each, 4 KiB over 256 MiB; Braid / qemu-storage-daemon");
    for load in LOADS.iter().filter(|load| load.name.contains(wanted)) {
        let results: Vec<(Sample, Sample)> =
            (0..rounds).map(|_| (measure(load, &ours), measure(load, &theirs))).collect();
        report(load.name, &results);
    }
}

struct Load {
    name: &'static str,
    depth: usize,
    writes: bool,
}

const LOADS: &[Load] = &[
    Load { name: "read, depth 1", depth: 1, writes: false },
    Load { name: "read, depth 32", depth: 32, writes: false },
    Load { name: "write, depth 1", depth: 1, writes: true },
    Load { name: "write, depth 32", depth: 32, writes: true },
];

struct Sample {
    per_second: f64,
    cpu_micros: f64,
}

/// A server's socket, and the place of its processor time.
struct Door {
    socket: PathBuf,
    process: Option<Child>,
    thread: u32,
}

impl Door {
    fn cpu_seconds(&self) -> f64 {
        match &self.process {
            Some(process) => process_seconds(process.id()),
            None => thread_seconds(self.thread),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill().and_then(|()| process.wait()).expect("the server ends");
        }
    }
}

fn braid(program: &str, directory: &Path) -> Door {
    let socket = directory.join("braid.sock");
    let mut command = Command::new(program);
    let memory = ["--ssd", "memory,size=1GiB", "--hdd", "memory,size=1GiB", "--size", "1GiB"];
    command.args(["serve", "--temporary"]).args(memory);
    command.arg("--vhost-user").arg(&socket).env("BRAID_STATE_DIR", directory.join("state"));
    started(command, socket)
}

fn qemu(file: &Path, directory: &Path) -> Door {
    let socket = directory.join("qemu.sock");
    let disk = format!("driver=file,node-name=disk,filename={},locking=off", file.display());
    let export = format!(
        "type=vhost-user-blk,id=export,node-name=disk,addr.type=unix,addr.path={},writable=on",
        socket.display()
    );
    let mut command = Command::new("qemu-storage-daemon");
    command.args(["--blockdev", &disk, "--export", &export]);
    started(command, socket)
}

fn started(mut command: Command, socket: PathBuf) -> Door {
    let mut child = command.stdout(Stdio::null()).spawn().expect("the server starts");
    while !socket.exists() {
        let ended = child.try_wait().expect("a child can be asked");
        assert!(ended.is_none(), "{command:?} has ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Door { socket, process: Some(child), thread: 0 }
}

/// Writes the whole span once.
fn fill(socket: &Path) {
    let blocks = SPAN / BLOCK as u64;
    let mut next = 0;
    let done = drive(socket, 32, |_| {
        next += 1;
        (next <= blocks).then(|| Asked { place: (next - 1) * BLOCK as u64, is_write: true })
    });
    assert_eq!(done, blocks);
}

fn measure(load: &Load, door: &Door) -> Sample {
    let (before, start, mut place) = (door.cpu_seconds(), Instant::now(), 1u64);
    let done = drive(&door.socket, load.depth, |_| {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (place >> 33) % (SPAN / BLOCK as u64) * BLOCK as u64;
        (start.elapsed() < Duration::from_secs(SECONDS)).then_some(Asked { place: at, is_write: load.writes })
    });
    let seconds = start.elapsed().as_secs_f64();
    Sample {
        per_second: done as f64 / seconds,
        cpu_micros: (door.cpu_seconds() - before) * 1e6 / done as f64,
    }
}

struct Asked {
    place: u64,
    is_write: bool,
}

/// Keeps `depth` requests in flight until `next` gives no more. Returns the number of requests.
///
/// The client polls for a while before it sleeps, as a virtual machine's processor does that has other work.
fn drive(socket: &Path, depth: usize, mut next: impl FnMut(u64) -> Option<Asked>) -> u64 {
    let features = VirtioFeatureFlags::VERSION_1.bits() | VirtioBlkFeatureFlags::FLUSH.bits();
    let socket = socket.to_str().expect("a path in UTF-8");
    let mut transport: Box<VirtioBlkTransport> =
        Box::new(VhostUser::new(socket, features).expect("a device"));
    let mut queues = VirtioBlkQueue::<usize>::setup_queues(&mut *transport, 1, 128).expect("a queue");
    let ram = SharedPages::new(depth);
    let (start, len) = ram.region();
    transport.map_mem_region(start as usize, len, ram.file().as_raw_fd(), 0).expect("memory");
    let notifier = transport.get_submission_notifier(0);
    let completions = transport.get_completion_fd(0);
    // As the eventfds of qemu and of other virtual machines: the library's block.
    rustix::fs::fcntl_setfl(&*completions, rustix::fs::OFlags::NONBLOCK).expect("an eventfd has flags");
    let queue = &mut queues[0];
    let (mut free, mut done, mut in_flight, mut is_over): (Vec<usize>, u64, usize, bool) =
        ((0..depth).collect(), 0, 0, false);
    while !is_over || in_flight > 0 {
        while !is_over && let Some(page) = free.pop() {
            let Some(asked) = next(done) else {
                is_over = true;
                break;
            };
            // The device alone touches the page until the request is done.
            let bytes = ram.pages(page, 1);
            match asked.is_write {
                true => queue.write(asked.place, bytes, page).expect("room in the queue"),
                false => queue.read(asked.place, bytes, page).expect("room in the queue"),
            }
            in_flight += 1;
        }
        if queue.avail_notif_needed() {
            notifier.notify().expect("an eventfd takes a one");
        }
        let before = in_flight;
        for completion in queue.completions() {
            assert_eq!(completion.ret, 0, "a request failed");
            free.push(completion.context);
            in_flight -= 1;
            done += 1;
        }
        if in_flight == before && in_flight > 0 {
            let mut wait = [rustix::event::PollFd::new(&*completions, rustix::event::PollFlags::IN)];
            let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            if rustix::event::poll(&mut wait, Some(&patience)).expect("poll") > 0 {
                // Emptied for the next wait.
                let _ = completions.read();
            }
        }
    }
    done
}

fn report(name: &str, results: &[(Sample, Sample)]) {
    let speeds: Vec<f64> = results.iter().map(|(ours, theirs)| ours.per_second / theirs.per_second).collect();
    let costs: Vec<f64> = results.iter().map(|(ours, theirs)| ours.cpu_micros / theirs.cpu_micros).collect();
    let median_of = |value: &dyn Fn(&(Sample, Sample)) -> f64| median(results.iter().map(value).collect()).0;
    let (speed, slowest, fastest) = median(speeds);
    let (cost, cheapest, dearest) = median(costs);
    println!(
        "{name:16}  speed {speed:.2} ({slowest:.2}..{fastest:.2})  cpu {cost:.2} ({cheapest:.2}..{dearest:.2})   \
         {:.0}/s {:.2} us against {:.0}/s {:.2} us",
        median_of(&|r| r.0.per_second),
        median_of(&|r| r.0.cpu_micros),
        median_of(&|r| r.1.per_second),
        median_of(&|r| r.1.cpu_micros),
    );
}

/// Median, least and greatest.
fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Processor time of one of our threads, which does all the server's work.
fn thread_seconds(thread: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).expect("schedstat");
    stat.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

/// Processor time of a process, with its threads that have ended: hundredths of a second.
fn process_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    (ticks(11) + ticks(12)) / 100.0
}
