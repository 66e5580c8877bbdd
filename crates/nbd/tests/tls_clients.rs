//! Real clients with TLS against the server: libnbd, qemu, fio.

#[path = "support/certificates.rs"]
mod certificates;
mod support;
#[path = "support/tls.rs"]
mod tls;

use braid_base::{GIB, MIB};
use certificates::{Authority, Wanted};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Running, Setup, installed, run_client};
use tls::Secured;

/// A server, and the folder of a client.
struct Stage {
    secured: Secured,
    folder: PathBuf,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new(setup: Setup, rules: &[&str]) -> Stage {
        let (secured, directory) = (Secured::start(setup, rules), tempfile::tempdir().expect("a directory"));
        let folder = directory.path().join("client");
        secured.authority.write(&folder, "client", &secured.authority.sign(&Wanted::client("good")));
        Stage { secured, folder, directory }
    }

    fn server(&self) -> &Running {
        &self.secured.server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn tcp(&self) -> String {
        format!("nbds://localhost:{}/vol?tls-certificates={}", self.server().port, self.folder.display())
    }

    fn unix(&self) -> String {
        let (socket, folder) = (self.server().socket.display(), self.folder.display());
        format!("nbds+unix:///vol?socket={socket}&tls-certificates={folder}")
    }

    /// Options of qemu's tools: credentials, and the export as an image.
    fn qemu(&self) -> (String, String) {
        let credentials =
            format!("tls-creds-x509,id=tls0,dir={},endpoint=client,verify-peer=yes", self.folder.display());
        let port = self.server().port;
        (credentials, format!("driver=nbd,host=localhost,port={port},export=vol,tls-creds=tls0"))
    }
}

fn image(path: &Path, mib: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..mib << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    fs::write(path, &bytes).expect("room for the image");
    bytes
}

/// Runs a client that has to fail. Returns its output.
fn fails(programme: &str, arguments: &[&str]) -> String {
    let output: Output = Command::new(programme).args(arguments).output().expect(programme);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{programme} {arguments:?}: {said}");
    said.into_owned()
}

#[test]
fn nbdinfo_sees_the_export_within_tls_alone() {
    if !installed("nbdinfo", "libnbd-bin") {
        return;
    }
    let stage = Stage::new(Setup::default(), &["good=vol:ro"]);
    for uri in [stage.tcp(), stage.unix()] {
        let shown = run_client("nbdinfo", &["--json", &uri]);
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("nbdinfo writes JSON");
        assert_eq!(shown["TLS"], true, "{shown}");
        assert_eq!(shown["structured"], true);
        assert_eq!(shown["exports"][0]["export-size"], MIB.0 * 64);
        assert_eq!(shown["exports"][0]["is_read_only"], true);
    }
    let plain = format!("nbd://localhost:{}/vol", stage.server().port);
    fails("nbdinfo", &[&plain]);
}

#[test]
fn nbdinfo_is_refused_with_wrong_certificates() {
    if !installed("nbdinfo", "libnbd-bin") {
        return;
    }
    let stage = Stage::new(Setup::default(), &["good=vol"]);
    let authority = &stage.secured.authority;
    let uri = |folder: &str| {
        let folder = stage.path(folder);
        format!("nbds://localhost:{}/vol?tls-certificates={}", stage.server().port, folder.display())
    };
    let stranger = Authority::new();
    stranger.write(&stage.path("stranger"), "client", &stranger.sign(&Wanted::client("good")));
    let said = fails("nbdinfo", &[&uri("stranger")]);
    assert!(said.contains("certificate"), "the client does not trust the server: {said}");
    // A client that trusts the server, with a certificate of another authority.
    let mixed = stage.path("mixed");
    stranger.write(&mixed, "client", &stranger.sign(&Wanted::client("good")));
    fs::write(mixed.join("ca-cert.pem"), &authority.pem).expect("room");
    fails("nbdinfo", &[&uri("mixed")]);
    let expired = authority.sign(&Wanted { years: (2000, 2020), ..Wanted::client("good") });
    authority.write(&stage.path("expired"), "client", &expired);
    fails("nbdinfo", &[&uri("expired")]);
    authority.write(&stage.path("other"), "client", &authority.sign(&Wanted::client("other")));
    fails("nbdinfo", &[&uri("other")]);
    let said = fails("nbdinfo", &["--list", &uri("other")]);
    assert!(!said.contains("vol:"), "{said}");
    run_client("nbdinfo", &[&stage.tcp()]);
}

#[test]
fn nbdcopy_round_trips_an_image_within_tls() {
    if !installed("nbdcopy", "libnbd-bin") {
        return;
    }
    let stage = Stage::new(Setup::default(), &[]);
    let (there, back) = (stage.path("there"), stage.path("back"));
    for (uri, mib) in [(stage.tcp(), 64), (stage.unix(), 48)] {
        let bytes = image(&there, mib);
        run_client("nbdcopy", &[there.to_str().unwrap(), &uri]);
        run_client("nbdcopy", &[&uri, back.to_str().unwrap()]);
        assert!(fs::read(&back).expect("a copy")[..bytes.len()] == bytes, "{uri}: the image has changed");
    }
    assert_eq!(stage.server().state().counters.errors, 0);
    stage.secured.server.stop();
}

#[test]
fn qemu_img_converts_within_tls() {
    if !installed("qemu-img", "qemu-utils") {
        return;
    }
    let stage = Stage::new(Setup { size: MIB * 32, ..Setup::default() }, &["good=vol"]);
    let (there, back) = (stage.path("there.raw"), stage.path("back.raw"));
    let bytes = image(&there, 32);
    let (there, (credentials, export)) = (there.to_str().unwrap(), stage.qemu());
    let to = ["convert", "--object", &credentials, "-n", "-f", "raw", "--target-image-opts", there, &export];
    run_client("qemu-img", &to);
    let from = ["convert", "--object", &credentials, "--image-opts", &export, "-O", "raw"];
    run_client("qemu-img", &[&from[..], &[back.to_str().unwrap()]].concat());
    assert!(fs::read(&back).expect("a copy") == bytes, "the image has changed");
    let plain = format!("nbd://localhost:{}/vol", stage.server().port);
    fails("qemu-img", &["info", &plain]);
    stage.secured.server.stop();
}

/// fio takes no path of certificates: libnbd finds them in the home directory, but not for root.
#[test]
fn fio_verifies_random_writes_within_tls() {
    if !installed("fio", "fio") || !installed("setpriv", "util-linux") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: fio_verifies_random_writes_within_tls: needs root, to become another user");
        return;
    }
    let stage = Stage::new(Setup { size: GIB, ..Setup::default() }, &[]);
    let (pki, user) = (stage.path(".pki"), 65_534);
    fs::create_dir(&pki).expect("room");
    fs::rename(&stage.folder, pki.join("libnbd")).expect("room");
    fs::set_permissions(stage.directory.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
    for entry in fs::read_dir(pki.join("libnbd")).expect("a folder") {
        chown(entry.expect("an entry").path(), Some(user), None).expect("root may");
    }
    chown(stage.directory.path(), Some(user), None).expect("root may");
    for depth in [1, 32] {
        let uri = format!("--uri=nbds://localhost:{}/vol", stage.server().port);
        let load = ["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--verify=crc32c", "--size=32M"];
        let more = ["--bsrange=512-512k", "--verify_fatal=1", "--output-format=terse"];
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "fio"]);
        command.args(load).args(more).args([&uri, &format!("--iodepth={depth}")]);
        command.env("HOME", stage.directory.path()).current_dir(stage.directory.path());
        let output = command.output().expect("setpriv runs");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    assert_eq!(stage.server().state().counters.errors, 0);
    stage.secured.server.stop();
}
