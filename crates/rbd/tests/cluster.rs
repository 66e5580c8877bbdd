//! Devices on a real cluster, started here by `scripts/ceph-cluster` if the machine has Ceph; else skipped,
//! with a message.
//!
//! The cases are ignored tests of this file, run by [`images_of_a_real_cluster`] in a process of their own
//! with `CEPH_CONF` set. An owner of an image that is killed or suspended is another process of this file.

#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::{Bytes, DeviceClass, KIB, MIB};
use braid_rbd::{Access, ImageName, Made, RbdDevice, errno, images, make_image, remove_image};
use braid_runtime::{Arena, Buf, Device, conformance};
use braid_uring::Ring;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;

#[test]
fn images_of_a_real_cluster() {
    for tool in ["ceph-mon", "ceph-osd", "ceph", "rbd"] {
        if !std::env::var("PATH").unwrap().split(':').any(|folder| Path::new(folder).join(tool).exists()) {
            let _ =
                writeln!(io::stderr(), "SKIPPED: RBD images of a real cluster: this machine has no {tool}");
            return;
        }
    }
    let cluster = Cluster::start();
    let cases =
        this_test().args(["cases::", "--ignored", "--nocapture"]).env("CEPH_CONF", cluster.conf()).status();
    assert!(cases.unwrap().success(), "a case fails");
}

/// A cluster, stopped when dropped.
struct Cluster(PathBuf);

impl Cluster {
    fn start() -> Cluster {
        let folder = std::env::temp_dir().join(format!("braid-ceph-{}", std::process::id()));
        let cluster = Cluster(folder);
        assert!(cluster.script("start").success(), "the cluster starts");
        cluster
    }

    fn conf(&self) -> PathBuf {
        self.0.join("ceph.conf")
    }

    fn script(&self, verb: &str) -> std::process::ExitStatus {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/ceph-cluster");
        let mut command = Command::new(script);
        command.arg(verb).arg(&self.0).env("LIFETIME", "600").status().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        assert!(self.script("stop").success() || std::thread::panicking(), "the cluster stops");
    }
}

fn this_test() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

fn with_ring(body: impl AsyncFnOnce(&Ring, &Arena)) {
    let arena = Arena::new(MIB * 4);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(body(&ring, &arena));
    ring.clear();
}

async fn open(ring: &Ring, image: &ImageName) -> io::Result<RbdDevice> {
    RbdDevice::open(ring, image, DeviceClass::Ssd, Access::ReadWrite).await
}

/// A new image of 8 MiB: two objects.
fn image(address: &str) -> ImageName {
    let name: ImageName = address.parse().unwrap();
    assert_eq!(make_image(&name, MIB * 8).unwrap(), Made::New);
    name
}

async fn marked(arena: &Arena, mark: u8) -> Buf {
    let buf = arena.alloc(KIB * 4).await;
    buf.with_bytes_mut(|bytes| bytes.fill(mark));
    buf
}

/// The byte that fills the block at `offset`.
async fn mark_at(arena: &Arena, device: &RbdDevice, offset: Bytes) -> u8 {
    let buf = arena.alloc(KIB * 4).await;
    device.read(offset, &buf).await.unwrap();
    let bytes = buf.to_vec();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a block of one mark");
    bytes[0]
}

fn kind_of<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("the request fails").kind()
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// A process that owns an image: [`owner::writes_until_an_error`]. Killed when dropped.
struct Owner {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Owner {
    /// Returns once the owner has flushed its first write.
    fn start(image: &ImageName) -> Owner {
        let mut command = this_test();
        command.args(["owner::", "--ignored", "--nocapture"]).env("BRAID_TEST_IMAGE", image.to_string());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut owner = Owner { process, lines };
        assert_eq!(owner.next("flushed"), "");
        owner
    }

    /// The rest of the next line with `word`.
    fn next(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the owner says {word}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.process.id().to_string()]);
    }

    fn end(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

mod owner {
    use super::*;

    #[test]
    #[ignore = "a process of the cases"]
    fn writes_until_an_error() {
        let image = std::env::var("BRAID_TEST_IMAGE").unwrap().parse().unwrap();
        with_ring(async |ring, arena| {
            let device = open(ring, &image).await.unwrap();
            let buf = marked(arena, 1).await;
            device.write(Bytes::ZERO, &buf).await.unwrap();
            device.flush().await.unwrap();
            println!("flushed");
            loop {
                if let Err(error) = device.write(Bytes::ZERO, &buf).await {
                    let later = device.flush().await.unwrap_err();
                    println!("failed {:?} {:?}", errno(&error), errno(&later));
                    return;
                }
            }
        });
    }
}

/// The error number of a client that was shut out, as an owner prints its write's and its flush's.
const SHUT_OUT: &str = "Some(108) Some(108)";

mod cases {
    use super::*;

    #[test]
    #[ignore = "needs a cluster"]
    fn image_conforms_and_is_free_after_a_drop() {
        let name = image("rbd:braid-ssd/conforms");
        assert_eq!(make_image(&name, MIB * 8).unwrap(), Made::Existing);
        assert_eq!(kind_of(make_image(&name, MIB * 4)), io::ErrorKind::AlreadyExists);
        assert!(images("braid-ssd").unwrap().contains(&name));
        with_ring(async |ring, arena| {
            let device = Rc::new(open(ring, &name).await.unwrap());
            let geometry = device.geometry();
            assert_eq!((geometry.size, geometry.alignment), (MIB * 8, Bytes(512)));
            conformance::device(ring, device.clone(), 6).await;
            assert_eq!(kind_of(open(ring, &name).await), io::ErrorKind::ResourceBusy);
            assert_eq!(kind_of(remove_image(&name)), io::ErrorKind::ResourceBusy);
            device.write(Bytes::ZERO, &marked(arena, 9).await).await.unwrap();
            let reader = RbdDevice::open(ring, &name, DeviceClass::Ssd, Access::ReadOnly).await.unwrap();
            assert_eq!(mark_at(arena, &reader, Bytes::ZERO).await, 9);
            assert_eq!(
                kind_of(reader.write(Bytes::ZERO, &marked(arena, 8).await).await),
                io::ErrorKind::ReadOnlyFilesystem
            );
            drop((device, reader));
            remove_image(&name).unwrap();
        });
        assert_eq!(kind_of(remove_image(&name)), io::ErrorKind::NotFound);
        assert!(!images("rbd:braid-ssd").unwrap().contains(&name));
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn image_in_a_namespace_is_a_device() {
        run("rbd", &["namespace", "create", "braid-ssd/space"]);
        let name = image("rbd:braid-ssd/space/image");
        assert_eq!(images("braid-ssd/space").unwrap(), std::slice::from_ref(&name));
        with_ring(async |ring, arena| {
            let device = open(ring, &name).await.unwrap();
            device.write(MIB * 4, &marked(arena, 3).await).await.unwrap();
            device.flush().await.unwrap();
            assert_eq!(mark_at(arena, &device, MIB * 4).await, 3);
        });
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn missing_pool_image_and_lock_are_errors() {
        run("rbd", &["create", "braid-ssd/plain", "--size", "8M", "--image-feature", "layering"]);
        with_ring(async |ring, _| {
            for (address, kind) in [
                ("rbd:missing/image", io::ErrorKind::NotFound),
                ("rbd:braid-ssd/missing", io::ErrorKind::NotFound),
                ("rbd:braid-ssd/plain", io::ErrorKind::Unsupported),
            ] {
                assert_eq!(kind_of(open(ring, &address.parse().unwrap()).await), kind, "{address}");
            }
        });
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn living_owner_is_respected_and_loses_the_image_by_force() {
        let name = image("rbd:braid-ssd/living");
        let mut owner = Owner::start(&name);
        with_ring(async |ring, arena| {
            assert_eq!(kind_of(open(ring, &name).await), io::ErrorKind::ResourceBusy);
            let device = RbdDevice::open_by_force(ring, &name, DeviceClass::Ssd).await.unwrap();
            device.write(Bytes::ZERO, &marked(arena, 2).await).await.unwrap();
            device.flush().await.unwrap();
            assert_eq!(owner.next("failed"), SHUT_OUT);
            assert_eq!(mark_at(arena, &device, Bytes::ZERO).await, 2);
        });
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn suspended_owner_writes_nothing_after_it_wakes() {
        let name = image("rbd:braid-ssd/suspended");
        let mut owner = Owner::start(&name);
        owner.signal("-STOP");
        with_ring(async |ring, arena| {
            let device = RbdDevice::open_by_force(ring, &name, DeviceClass::Ssd).await.unwrap();
            device.write(Bytes::ZERO, &marked(arena, 2).await).await.unwrap();
            device.flush().await.unwrap();
            owner.signal("-CONT");
            assert_eq!(owner.next("failed"), SHUT_OUT);
            assert_eq!(mark_at(arena, &device, Bytes::ZERO).await, 2);
        });
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn killed_owner_is_followed_by_force_with_flushed_data() {
        let name = image("rbd:braid-ssd/killed");
        Owner::start(&name).end();
        with_ring(async |ring, arena| {
            let device = RbdDevice::open_by_force(ring, &name, DeviceClass::Ssd).await.unwrap();
            assert_eq!(mark_at(arena, &device, Bytes::ZERO).await, 1);
            device.write(Bytes::ZERO, &marked(arena, 2).await).await.unwrap();
        });
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn killed_owner_is_followed_once_the_cluster_forgets_it() {
        let name = image("rbd:braid-ssd/forgotten");
        Owner::start(&name).end();
        with_ring(async |ring, arena| {
            let device = open(ring, &name).await.unwrap();
            assert_eq!(mark_at(arena, &device, Bytes::ZERO).await, 1);
            device.write(Bytes::ZERO, &marked(arena, 2).await).await.unwrap();
        });
    }

    /// A client that gives its lock to whoever asks: the `rbd` tool, a virtual machine.
    #[test]
    #[ignore = "needs a cluster"]
    fn lock_of_a_yielding_owner_is_not_taken() {
        let name = image("rbd:braid-ssd/yielding");
        let arguments =
            ["bench", "--io-type", "write", "--io-size", "4K", "--io-total", "1T", "braid-ssd/yielding"];
        let mut bench = Killed(Command::new("rbd").args(arguments).stdout(Stdio::null()).spawn().unwrap());
        let locks =
            || Command::new("rbd").args(["lock", "ls", "braid-ssd/yielding"]).output().unwrap().stdout;
        while locks().is_empty() {
            assert!(bench.0.try_wait().unwrap().is_none(), "the tool writes");
        }
        with_ring(async |ring, _| {
            assert_eq!(kind_of(open(ring, &name).await), io::ErrorKind::ResourceBusy);
        });
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    #[ignore = "needs a cluster"]
    fn image_that_shrinks_fails_flushes() {
        let name = image("rbd:braid-ssd/shrinks");
        with_ring(async |ring, arena| {
            let device = open(ring, &name).await.unwrap();
            let buf = marked(arena, 4).await;
            device.write(MIB * 6, &buf).await.unwrap();
            device.flush().await.unwrap();
            run("rbd", &["resize", "braid-ssd/shrinks", "--size", "4M", "--allow-shrink", "--no-progress"]);
            assert_eq!(kind_of(device.flush().await), io::ErrorKind::UnexpectedEof);
            assert_eq!(kind_of(device.write(Bytes::ZERO, &buf).await), io::ErrorKind::UnexpectedEof);
        });
    }

    /// The only case on the pool with hung OSDs.
    #[test]
    #[ignore = "needs a cluster"]
    fn requests_wait_for_a_hung_osd_and_end_by_giving_up() {
        let name = image("rbd:braid-hdd/hung");
        let folder = PathBuf::from(std::env::var("CEPH_CONF").unwrap());
        let osds = ["osd.1", "osd.3"].map(|osd| {
            let file = folder.with_file_name("run").join(format!("{osd}.pid"));
            std::fs::read_to_string(file).unwrap().trim().to_owned()
        });
        with_ring(async |ring, arena| {
            let device = Rc::new(open(ring, &name).await.unwrap());
            let buf = marked(arena, 5).await;
            // One hung OSD of two: requests wait for the repair by the cluster, and succeed.
            run("kill", &["-STOP", &osds[0]]);
            device.write(Bytes::ZERO, &buf).await.unwrap();
            assert_eq!(mark_at(arena, &device, Bytes::ZERO).await, 5);
            run("kill", &["-CONT", &osds[0]]);
            osds.iter().for_each(|osd| run("kill", &["-STOP", osd]));
            let (write, given_up) = {
                let giver = device.clone();
                let given_up = Rc::new(std::cell::Cell::new(None));
                let noted = given_up.clone();
                let world = ring.clone();
                ring.spawn(async move {
                    braid_runtime::Runtime::sleep(&world, braid_base::Nanos::from_millis(500)).await;
                    noted.set(Some(giver.give_up()));
                });
                (device.write(Bytes::ZERO, &marked(arena, 6).await).await, given_up)
            };
            assert_eq!((kind_of(write), given_up.get()), (io::ErrorKind::NotConnected, Some(true)));
            assert!(device.flush().await.is_err());
            osds.iter().for_each(|osd| run("kill", &["-CONT", osd]));
            let again = open(ring, &name).await.unwrap();
            again.write(Bytes::ZERO, &marked(arena, 7).await).await.unwrap();
            again.flush().await.unwrap();
            assert_eq!(mark_at(arena, &again, Bytes::ZERO).await, 7);
        });
    }
}
