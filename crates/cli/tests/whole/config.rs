//! `NAME.toml` in the directory of configurations: settings of `serve` and `attach`.

use crate::machine::{Machine, client, have, have_block_devices};

fn configure(machine: &Machine, name: &str, text: &str) {
    std::fs::create_dir_all(machine.path("config")).unwrap();
    std::fs::write(machine.path("config").join(format!("{name}.toml")), text).unwrap();
}

#[test]
fn serve_reads_its_configuration_and_options_override_it() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    configure(&machine, "vault", "[serve]\nnbd = [\"127.0.0.1:0\"]\nclients = 3\nahead = \"4MiB\"\n");
    let daemon = machine.serve(&["vault"]);
    assert!(daemon.uri.starts_with("nbd://127.0.0.1:"), "{}", daemon.uri);
    let ended = daemon.terminate();
    let file = machine.path("config/vault.toml");
    let logged = ended.stderr.contains(&format!("is configured by {}", file.display()));
    assert!(ended.status == 0 && logged, "{ended:?}");

    let socket = machine.path("own.sock");
    let daemon = machine.serve(&["vault", "--nbd", &format!("unix:{}", socket.display())]);
    assert!(daemon.uri.contains("own.sock"), "{}", daemon.uri);
    assert_eq!(daemon.terminate().status, 0);

    std::fs::remove_file(file).unwrap();
    let daemon = machine.serve(&["vault"]);
    assert!(daemon.uri.contains("state/vault/nbd.sock"), "{}", daemon.uri);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn wrong_configuration_is_refused_before_the_volume_is_opened() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    for (text, line, key) in [
        ("[serve]\nclient = 3\n", "line 2", "client"),
        ("[serve]\ncache = 100\nclients = 257\n", "line 3", "clients"),
        ("[attach]\nmount = \"relative\"\n", "line 2", "mount"),
    ] {
        configure(&machine, "vault", text);
        for command in ["serve", "attach"] {
            let named = ["config/vault.toml", line, key, "correct or remove the key"];
            machine.refused(&[command, "vault"], "usage", &named);
        }
    }
    // A configuration of another volume, and one of a temporary volume's name, do not matter.
    configure(&machine, "temporary", "nonsense");
    let daemon = machine.serve(&["--temporary", "--ssd", "memory,size=64MiB"]);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn attach_mounts_as_configured() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let (mnt, other) = (machine.path("mnt"), machine.path("other"));
    std::fs::create_dir(&mnt).unwrap();
    std::fs::create_dir(&other).unwrap();
    let text = format!("[attach]\nmount = \"{}\"\noptions = \"noatime,nodev,commit=7\"\n", mnt.display());
    configure(&machine, "vault", &text);
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault", "--no-mount"]).trim().to_owned();
    client("mkfs.ext4", &["-q", &device]);
    let options = |directory: &std::path::Path| {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let point = format!(" {} ", directory.display());
        mounts.lines().find(|line| line.contains(&point)).unwrap_or_default().to_owned()
    };
    assert_eq!(options(&mnt), "");
    for attempt in ["mounted", "found again"] {
        let attached = machine.json(&["attach", "vault"]);
        let found = (attached["mounted_on"].as_str(), attached["file_system"].as_str());
        assert_eq!(found, (mnt.to_str(), Some("ext4")), "{attempt}");
    }
    let found = options(&mnt);
    assert!(["noatime", "nodev", "commit=7"].iter().all(|option| found.contains(option)), "{found}");
    machine.ok(&["detach", "vault"]);

    let words = ["attach", "vault", "--mount", other.to_str().unwrap(), "--options", "ro"];
    machine.ok(&words);
    let found = options(&other);
    assert!(found.contains(" ro") && !found.contains("noatime") && options(&mnt).is_empty(), "{found}");
    machine.ok(&["detach", "vault"]);
    let words = ["attach", "vault", "--options", "nosuchoption"];
    machine.refused(&words, "io", &["with options nosuchoption"]);
    assert_eq!(daemon.terminate().status, 0);
}
