//! The client with TLS: against Braid's own server, and against nbdkit with GnuTLS.

#[path = "support/certificates.rs"]
mod certificates;
mod support;
#[path = "support/tls.rs"]
mod tls;

use braid_base::MIB;
use certificates::{Authority, Wanted};
use rcgen::ExtendedKeyUsagePurpose;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use support::nbdkit::Nbdkit;
use support::remote::{conforms, refusal};
use support::{Running, Setup};
use tls::Secured;

/// A server with TLS, and the folder of a client that the server knows.
struct Stage {
    secured: Secured,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new(rules: &[&str]) -> Stage {
        let setup = Setup { arena: MIB * 256, ..Setup::default() };
        let stage = Stage {
            secured: Secured::start(setup, rules),
            directory: tempfile::tempdir().expect("a directory"),
        };
        stage.client("good");
        stage
    }

    /// Makes the folder of a client of this name.
    fn client(&self, name: &str) -> PathBuf {
        let folder = self.path(name);
        self.secured.authority.write(&folder, "client", &self.secured.authority.sign(&Wanted::client(name)));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn unix(&self, folder: &Path) -> String {
        let socket = self.secured.server.socket.display();
        format!("nbds+unix:///vol?socket={socket}&tls-certificates={}", folder.display())
    }

    fn tcp(&self, host: &str, folder: &Path) -> String {
        let port = self.secured.server.port;
        format!("nbds://{host}:{port}/vol?tls-certificates={}", folder.display())
    }
}

#[test]
fn braids_own_server_conforms_within_tls() {
    let stage = Stage::new(&["good=vol"]);
    let folder = stage.path("good");
    assert_eq!(conforms(&stage.unix(&folder)), 4);
    assert_eq!(conforms(&stage.tcp("localhost", &folder)), 4);
    assert_eq!(conforms(&stage.tcp("127.0.0.1", &folder)), 4);
    assert_eq!(stage.secured.server.state().counters.errors, 0);
    stage.secured.server.stop();
}

#[test]
fn server_of_another_authority_or_name_is_refused() {
    let stage = Stage::new(&[]);
    let stranger = Authority::new();
    let other = stage.path("other");
    stranger.write(&other, "client", &stranger.sign(&Wanted::client("good")));
    assert_eq!(refusal(&stage.unix(&other)), ErrorKind::InvalidData);
    let folder = stage.path("good");
    let wrong_name = format!("{}&tls-hostname=another.example", stage.unix(&folder));
    assert_eq!(refusal(&wrong_name), ErrorKind::InvalidData);
    let right_name = format!("{}&tls-hostname=127.0.0.1", stage.unix(&folder));
    conforms(&right_name);
}

#[test]
fn expired_and_revoked_servers_are_refused() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("client");
    authority.write(&folder, "client", &authority.sign(&Wanted::client("good")));
    let server_with = |wanted: &Wanted<'_>| {
        let identity = authority.sign(wanted);
        let files = braid_nbd::tls::TlsFiles {
            ca_cert: authority.pem.clone().into_bytes(),
            ca_crl: Vec::new(),
            server_cert: identity.certificate.clone().into_bytes(),
            server_key: identity.key.clone().into_bytes(),
        };
        (Running::start_with(Setup::default(), Some((files, Vec::new()))), identity)
    };
    let uri = |server: &Running| {
        let socket = server.socket.display();
        format!("nbds+unix:///vol?socket={socket}&tls-certificates={}", folder.display())
    };
    let (expired, _) = server_with(&Wanted { years: (2000, 2020), ..Wanted::server() });
    assert_eq!(refusal(&uri(&expired)), ErrorKind::InvalidData);
    let wrong_usage = Wanted { usage: ExtendedKeyUsagePurpose::ClientAuth, ..Wanted::server() };
    assert_eq!(refusal(&uri(&server_with(&wrong_usage).0)), ErrorKind::InvalidData);
    let (revoked, identity) = server_with(&Wanted::server());
    conforms(&uri(&revoked));
    fs::write(folder.join("ca-crl.pem"), authority.revoke(&identity)).expect("room");
    assert_eq!(refusal(&uri(&revoked)), ErrorKind::InvalidData);
}

#[test]
fn client_that_the_server_refuses_is_told() {
    let stage = Stage::new(&["good=vol"]);
    let other = stage.client("other");
    assert_eq!(refusal(&stage.unix(&other)), ErrorKind::PermissionDenied);
    // A certificate of another authority, or none: the server ends TLS.
    let stranger = Authority::new();
    let mixed = stage.path("mixed");
    stranger.write(&mixed, "client", &stranger.sign(&Wanted::client("good")));
    fs::write(mixed.join("ca-cert.pem"), &stage.secured.authority.pem).expect("room");
    assert_eq!(refusal(&stage.unix(&mixed)), ErrorKind::InvalidData);
    for file in ["client-cert.pem", "client-key.pem"] {
        fs::remove_file(mixed.join(file)).expect("a file");
    }
    assert_eq!(refusal(&stage.unix(&mixed)), ErrorKind::InvalidData);
}

#[test]
fn server_without_tls_is_never_used_in_plain() {
    let stage = Stage::new(&[]);
    let folder = stage.path("good");
    let plain = Running::start(Setup::default());
    let uri = plain.uri().replace("nbd+unix", "nbds+unix");
    assert_eq!(refusal(&format!("{uri}&tls-certificates={}", folder.display())), ErrorKind::Unsupported);
    assert_eq!(plain.state().counters.requests, 0);
    // And a server with TLS is not used in plain.
    let uri = format!("nbd+unix:///vol?socket={}", stage.secured.server.socket.display());
    assert_eq!(refusal(&uri), ErrorKind::PermissionDenied);
}

#[test]
fn wrong_files_are_refused() {
    let stage = Stage::new(&[]);
    let folder = stage.path("good");
    let uri = stage.unix(&folder);
    let with = |file: &str, content: Option<&str>| {
        let path = folder.join(file);
        let before = fs::read(&path).ok();
        match content {
            Some(content) => fs::write(&path, content).expect("room"),
            None => fs::remove_file(&path).expect("a file"),
        }
        let kind = refusal(&uri);
        match before {
            Some(before) => fs::write(&path, before).expect("room"),
            None => fs::remove_file(&path).expect("a file"),
        }
        kind
    };
    assert_eq!(with("ca-cert.pem", None), ErrorKind::NotFound);
    let long = "x".repeat(2 << 20);
    let other_key = stage.secured.authority.sign(&Wanted::client("good")).key;
    for (file, content) in [
        ("ca-cert.pem", Some("")),
        ("ca-cert.pem", Some("text")),
        ("ca-cert.pem", Some(&long)),
        ("ca-crl.pem", Some("text")),
        ("client-cert.pem", None),
        ("client-cert.pem", Some("text")),
        ("client-key.pem", None),
        ("client-key.pem", Some("text")),
        ("client-key.pem", Some(&other_key)),
    ] {
        assert_eq!(with(file, content), ErrorKind::InvalidInput, "{file}");
    }
    conforms(&uri);
}

#[test]
fn nbdkit_conforms_within_tls() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().expect("a directory");
    let (server, client) = (directory.path().join("server"), directory.path().join("client"));
    authority.write(&server, "server", &authority.sign(&Wanted::server()));
    authority.write(&client, "client", &authority.sign(&Wanted::client("good")));
    let certificates = format!("--tls-certificates={}", server.display());
    let arguments = ["--tls=require", &certificates, "--tls-verify-peer", "memory", "64M"];
    let Some(nbdkit) = Nbdkit::start(&arguments) else { return };
    let uri = nbdkit.uri().replace("nbd+unix", "nbds+unix");
    conforms(&format!("{uri}&tls-certificates={}", client.display()));
    let stranger = Authority::new();
    stranger.write(&client, "client", &stranger.sign(&Wanted::client("good")));
    assert_eq!(refusal(&format!("{uri}&tls-certificates={}", client.display())), ErrorKind::InvalidData);
    assert_eq!(refusal(&nbdkit.uri()), ErrorKind::PermissionDenied);
    let Some(plain) = Nbdkit::start(&["--tls=off", "memory", "64M"]) else { return };
    let uri = plain.uri().replace("nbd+unix", "nbds+unix");
    assert_eq!(refusal(&format!("{uri}&tls-certificates={}", client.display())), ErrorKind::Unsupported);
}
