//! NBD with TLS: `braid tls` makes the certificates, `braid serve --tls` asks clients for theirs.

use crate::json::assert_documented;
use crate::machine::{Daemon, Ended, Machine, client, have, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const FILES: [&str; 4] = ["ca-key.pem", "ca-cert.pem", "server-key.pem", "server-cert.pem"];

/// A machine with a volume, an authority in `tls`, and the folders of clients.
fn prepared(clients: &[&str]) -> Machine {
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.ok(&["tls", "init", "tls"]);
    for name in clients {
        machine.ok(&["tls", "client", "tls", name]);
    }
    machine
}

/// URI of a daemon's only TCP address, for a client with the folder of `name`.
fn uri(machine: &Machine, daemon: &Daemon, name: &str) -> String {
    let folder = machine.path("tls").join(name);
    let address = daemon.uri.replace("//0.0.0.0:", "//127.0.0.1:");
    format!("{address}?tls-certificates={}", folder.display())
}

fn attempt(programme: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(programme);
    command.args(arguments);
    run(command)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn image_is_copied_to_a_volume_over_the_network() {
    if !have(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let machine = prepared(&["ada", "backup"]);
    let options = ["--tls", "tls", "--tls-client", "ada=vault", "--tls-client", "backup=vault:ro"];
    let daemon = machine.serve(&[&["vault", "--nbd", "0.0.0.0:0"], &options[..]].concat());
    assert!(daemon.uri.starts_with("nbds://0.0.0.0:"), "{}", daemon.uri);
    let bytes: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let (there, back) = (machine.path("there"), machine.path("back"));
    std::fs::write(&there, &bytes).unwrap();
    client("nbdcopy", &[there.to_str().unwrap(), &uri(&machine, &daemon, "ada")]);
    client("nbdcopy", &[&uri(&machine, &daemon, "backup"), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap()[..bytes.len()] == bytes, "the image has changed");

    let refused = attempt("nbdcopy", &[there.to_str().unwrap(), &uri(&machine, &daemon, "backup")]);
    assert!(refused.status != 0 && refused.stderr.contains("read-only"), "{refused:?}");
    let plain = daemon.uri.replace("nbds://0.0.0.0", "nbd://127.0.0.1");
    assert_ne!(attempt("nbdinfo", &[&plain]).status, 0);
    // A client whose name came off the list, and a stranger.
    machine.ok(&["tls", "client", "tls", "eve"]);
    assert_ne!(attempt("nbdinfo", &[&uri(&machine, &daemon, "eve")]).status, 0);
    machine.ok(&["tls", "init", "elsewhere"]);
    machine.ok(&["tls", "client", "elsewhere", "ada"]);
    std::fs::copy(machine.path("tls/ca-cert.pem"), machine.path("elsewhere/ada/ca-cert.pem")).unwrap();
    let stranger = uri(&machine, &daemon, "../elsewhere/ada");
    assert_ne!(attempt("nbdinfo", &[&stranger]).status, 0);

    let ended = daemon.terminate();
    assert_eq!(ended.status, 0, "{ended:?}");
    for part in ["\"eve\"", "--tls-client eve=vault", "did not get as far as TLS"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

#[test]
fn configured_certificates_guard_a_unix_socket_too() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let machine = prepared(&["ada"]);
    std::fs::create_dir(machine.path("config")).unwrap();
    let config =
        format!("[serve]\ntls = \"{}\"\ntls-clients = [\"ada=vault\"]\n", machine.path("tls").display());
    std::fs::write(machine.path("config/vault.toml"), config).unwrap();
    let daemon = machine.serve(&["vault"]);
    assert!(daemon.uri.starts_with("nbds+unix:///vault?socket="), "{}", daemon.uri);
    let secure = format!("{}&tls-certificates={}", daemon.uri, machine.path("tls/ada").display());
    client("nbdinfo", &[&secure]);
    assert_ne!(attempt("nbdinfo", &[&daemon.uri.replace("nbds+", "nbd+")]).status, 0);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn certificates_are_private_and_never_overwritten() {
    let machine = Machine::new();
    let made = machine.json(&["tls", "init", "tls", "--server", "nas.example.org", "--server", "10.0.0.7"]);
    assert_documented(&machine, "tls init", &[&made]);
    assert_eq!(made["names"], serde_json::json!(["nas.example.org", "10.0.0.7"]));
    let made = machine.json(&["tls", "client", "tls", "ada", "--days", "30"]);
    assert_documented(&machine, "tls client", &[&made]);
    assert_eq!(made["valid_days"], 30);
    let of_client = ["ada/ca-cert.pem", "ada/client-key.pem", "ada/client-cert.pem"];
    let files: Vec<_> = FILES.iter().chain(&of_client).map(|name| machine.path("tls").join(name)).collect();
    let contents = || files.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>();
    assert!(files.iter().all(|file| mode(file) == 0o600));
    assert_eq!((mode(&machine.path("tls")), mode(&machine.path("tls/ada"))), (0o700, 0o700));
    let before = contents();
    machine.refused(&["tls", "init", "tls"], "invalid", &["server-key.pem exists"]);
    machine.refused(&["tls", "client", "tls", "ada"], "invalid", &["ca-cert.pem exists"]);
    // A half of the server's files, and a link that leads nowhere.
    std::fs::remove_file(machine.path("tls/server-key.pem")).unwrap();
    machine.refused(&["tls", "init", "tls"], "invalid", &["server-cert.pem exists"]);
    std::os::unix::fs::symlink("/nowhere", machine.path("tls/server-key.pem")).unwrap();
    machine.refused(&["tls", "init", "tls"], "invalid", &["server-key.pem exists"]);
    std::fs::remove_file(machine.path("tls/server-key.pem")).unwrap();
    std::fs::write(machine.path("tls/server-key.pem"), &before[2]).unwrap();
    assert!(contents() == before, "a refused command changed a file");

    // Renewed: the authority stays.
    std::fs::remove_file(machine.path("tls/server-key.pem")).unwrap();
    std::fs::remove_file(machine.path("tls/server-cert.pem")).unwrap();
    let renewed = machine.json(&["tls", "init", "tls"]);
    assert_eq!(renewed["files"].as_array().map(Vec::len), Some(2));
    let after = contents();
    assert!(after[..2] == before[..2] && after[2] != before[2]);
}

#[test]
fn wrong_names_and_authorities_are_refused() {
    let machine = Machine::new();
    for wrong in ["", "a b", "-a", "a..b", "nas/x", "*.example.org"] {
        let option = format!("--server={wrong}");
        machine.refused(&["tls", "init", "tls", &option], "usage", &["host name"]);
    }
    assert!(!machine.path("tls").exists(), "a refused command made the directory");
    machine.refused(&["tls", "client", "tls", "ada"], "invalid", &["ca-cert.pem", "braid tls init"]);
    machine.ok(&["tls", "init", "tls"]);
    let long = "a".repeat(65);
    for wrong in ["", "..", "../x", "/tmp/x", "a=b", "a\nb", ".hidden", &long] {
        machine.refused(&["tls", "client", "tls", wrong], "usage", &["name of a client"]);
    }
    machine.refused(&["tls", "client", "tls", "ca-cert.pem"], "io", &["ca-cert.pem"]);
    for days in ["0", "3651", "many"] {
        assert_eq!(machine.braid(&["tls", "client", "tls", "ada", "--days", days]).status, 2);
    }
    std::fs::set_permissions(machine.path("tls/ca-key.pem"), PermissionsExt::from_mode(0o644)).unwrap();
    machine.refused(&["tls", "client", "tls", "ada"], "usage", &["ca-key.pem", "chmod 600"]);
    std::fs::remove_file(machine.path("tls/ca-key.pem")).unwrap();
    machine.refused(&["tls", "client", "tls", "ada"], "invalid", &["ca-key.pem is missing"]);
    assert!(!machine.path("tls/ada").exists());
}

#[test]
fn daemon_refuses_what_would_open_the_volume() {
    let machine = prepared(&[]);
    let refused = |words: &[&str], named: &[&str]| {
        machine.refused(&[&["serve", "vault"], words].concat(), "usage", named);
    };
    for address in ["0.0.0.0:10809", "[::]:10809", "192.0.2.1:10809"] {
        refused(&["--nbd", address], &[address, "--tls", "braid tls init"]);
        machine.refused(
            &["recover", "vault", "--read-only", "--nbd", address],
            "usage",
            &[address, "ssh -L"],
        );
    }
    refused(&["--tls-client", "ada=vault"], &["--tls DIR"]);
    refused(&["--tls", "tls", "--tls-client", "ada=valut:ro"], &["--tls-client ada=vault"]);
    refused(&["--tls", "tls", "--tls-client", "ada"], &["NAME=EXPORT"]);
    refused(&["--tls", "nowhere"], &["nowhere/ca-cert.pem is missing", "braid tls init"]);
    let key = machine.path("tls/server-key.pem");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    refused(&["--tls", "tls"], &["server-key.pem", "chmod 600"]);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::copy(machine.path("tls/ca-key.pem"), &key).unwrap();
    refused(&["--tls", "tls"], &["server-key.pem", "braid tls init"]);
}

/// A renewed certificate serves new connections, and guests stay connected.
#[test]
fn renewed_certificates_are_used_without_a_restart() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let machine = prepared(&["ada"]);
    let daemon = machine.serve(&["vault", "--nbd", "127.0.0.1:0", "--tls", "tls"]);
    client("nbdinfo", &[&uri(&machine, &daemon, "ada")]);
    // First a file that no server can use: the certificates in use stay.
    let certificate = machine.path("tls/server-cert.pem");
    std::fs::write(&certificate, "nonsense").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    client("nbdinfo", &[&uri(&machine, &daemon, "ada")]);
    // A new authority, which the old client does not know.
    std::fs::rename(machine.path("tls/ada"), machine.path("ada")).unwrap();
    for name in FILES {
        std::fs::remove_file(machine.path("tls").join(name)).unwrap();
    }
    machine.ok(&["tls", "init", "tls"]);
    machine.ok(&["tls", "client", "tls", "ada"]);
    let start = Instant::now();
    while attempt("nbdinfo", &[&uri(&machine, &daemon, "ada")]).status != 0 {
        assert!(start.elapsed() < Duration::from_secs(120), "the daemon keeps old certificates");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_ne!(attempt("nbdinfo", &[&uri(&machine, &daemon, "../ada")]).status, 0);
    assert_eq!(daemon.terminate().status, 0);
}
