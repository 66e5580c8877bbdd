//! A volume over two pools of a Ceph cluster, whose gateways die: another gateway goes on. Skipped without
//! Ceph.

use crate::machine::{Daemon, Machine, have, qemu_io_ok};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// A cluster, stopped when dropped.
struct Cluster(PathBuf);

impl Cluster {
    fn start() -> Cluster {
        let cluster = Cluster(std::env::temp_dir().join(format!("braid-whole-ceph-{}", std::process::id())));
        assert!(cluster.script("start").success(), "the cluster starts");
        cluster
    }

    fn script(&self, verb: &str) -> ExitStatus {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/ceph-cluster");
        Command::new(script).arg(verb).arg(&self.0).env("LIFETIME", "900").status().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        assert!(self.script("stop").success() || std::thread::panicking(), "the cluster stops");
    }
}

/// A host with a state directory of its own.
struct Gateway<'a> {
    machine: Machine,
    cluster: &'a Cluster,
}

impl Gateway<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.machine.command(words);
        command.env("CEPH_CONF", self.cluster.0.join("ceph.conf"));
        command
    }

    fn ok(&self, words: &[&str]) {
        let ended = crate::machine::run(self.command(words));
        assert_eq!(ended.status, 0, "braid {words:?}: {ended:?}");
    }
}

/// `BRAID_CEPH_FAILOVERS=n` kills n gateways, one after the other.
#[test]
fn killed_gateway_is_followed_by_another() {
    if !have(&["ceph-mon", "ceph-osd", "rbd", "qemu-io"]) {
        return;
    }
    let failovers: u64 = std::env::var("BRAID_CEPH_FAILOVERS").map_or(3, |text| text.parse().unwrap());
    let cluster = Cluster::start();
    let gateways = [0, 1].map(|_| Gateway { machine: Machine::new(), cluster: &cluster });
    let devices = ["--ssd", "rbd:braid-ssd/vault,size=128MiB", "--hdd", "rbd:braid-hdd/vault,size=256MiB"];
    gateways[0].ok(&[&["create", "vault", "--policy", "hystor"], &devices[..]].concat());
    let mut daemon = Daemon::start(gateways[0].command(&["serve", "vault"]));
    let (mut known, mut times) = (false, Vec::new());
    for round in 1..=failovers {
        let written = format!("write -P {} 0 16M", round % 250);
        qemu_io_ok(&daemon.uri, &[&written, "flush", "write -P 255 4M 1M"]);
        daemon.kill();
        let gateway = &gateways[(round % 2) as usize];
        let begun = Instant::now();
        if !known {
            gateway.ok(&["import", "rbd:braid-ssd", "rbd:braid-hdd"]);
            known = true;
        }
        daemon = Daemon::start(gateway.command(&["serve", "vault", "--take-over"]));
        times.push(begun.elapsed());
        let read = |at: &str| format!("read -P {} {at}", round % 250);
        qemu_io_ok(&daemon.uri, &[&read("0 4M"), &read("5M 11M")]);
    }
    println!("{failovers} failovers, the longest in {:?}", times.iter().max().unwrap_or(&Duration::ZERO));
    assert_eq!(daemon.terminate().status, 0);
}
