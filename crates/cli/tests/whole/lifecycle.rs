//! From `create` to the second `serve`; and the exports of a daemon.

use crate::machine::{Machine, client, have, qemu_io_ok};

#[test]
fn copied_image_is_read_back_after_restart() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let machine = Machine::new();
    let said = machine.ok(&["create", "vault", "--ssd", "a.img,size=64MiB", "--hdd", "b.img,size=128MiB"]);
    assert!(said.contains("braid serve vault"), "{said}");
    let bytes: Vec<u8> = (0..40u32 << 18).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let (source, target) = (machine.path("source"), machine.path("target"));
    std::fs::write(&source, &bytes).unwrap();

    let daemon = machine.serve(&["vault"]);
    assert!(daemon.uri.starts_with("nbd+unix:///vault?socket="), "{}", daemon.uri);
    client("nbdcopy", &["--flush", source.to_str().unwrap(), &daemon.uri]);
    let ended = daemon.terminate();
    assert_eq!(ended.status, 0, "{ended:?}");

    let daemon = machine.serve(&["vault"]);
    client("nbdcopy", &[&daemon.uri, target.to_str().unwrap()]);
    assert_eq!(daemon.terminate().status, 0);
    let copied = std::fs::read(&target).unwrap();
    assert!(copied.starts_with(&bytes), "what came out is not what went in");
    assert!(copied[bytes.len()..].iter().all(|&byte| byte == 0), "what was never written is not zero");
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

#[test]
fn volume_is_served_on_all_requested_addresses() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault", "--nbd", "127.0.0.1:0", "--nbd", "unix:door"]);
    let uris: Vec<&str> = daemon.uri.split(' ').collect();
    assert_eq!(uris.len(), 2, "{uris:?}");
    assert!(uris[0].starts_with("nbd://127.0.0.1:") && !uris[0].contains(":0/"), "{uris:?}");
    qemu_io_ok(uris[0], &["write -P 7 1M 64k", "flush"]);
    qemu_io_ok(uris[1], &["read -P 7 1M 64k", "read -P 0 2M 64k"]);
    machine.refused(&["serve", "vault", "--nbd", "0.0.0.0:10809"], "usage", &["0.0.0.0:10809"]);
}

#[test]
fn stopped_temporary_volume_leaves_no_files() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let (ssd, hdd) = ("memory,size=64MiB", "slow.img,size=64MiB,model=mba3073");
    let daemon = machine.serve(&["--temporary", "--ssd", ssd, "--hdd", hdd]);
    qemu_io_ok(&daemon.uri, &["write -P 9 0 1M", "flush", "read -P 9 0 1M"]);
    assert!(machine.path("slow.img").exists());
    let status = machine.json(&["status", "temporary"]);
    assert_eq!(status["durability"], "none");
    assert_eq!(status["devices"][1]["model"], "mba3073");
    machine.ok(&["stop", "temporary"]);
    drop(daemon);
    assert!(!machine.path("slow.img").exists());
    assert_eq!(std::fs::read_dir(machine.state()).unwrap().count(), 0);
}

#[test]
fn temporary_volume_replaces_a_killed_memory_volume() {
    let machine = Machine::new();
    let words = ["--temporary", "--ssd", "memory,size=64MiB"];
    machine.serve(&words).kill();
    machine.refused(&["serve", "temporary"], "invalid", &["braid forget temporary"]);
    let daemon = machine.serve(&words);
    machine.refused(&[&["serve"], &words[..]].concat(), "busy", &["braid stop temporary"]);
    assert_eq!(daemon.terminate().status, 0);
    machine.create("vault", &[]);
    machine.refused(&[&["serve", "vault"], &words[..]].concat(), "invalid", &["'vault'"]);
}

#[test]
fn files_of_a_killed_temporary_volume_remain_importable() {
    let machine = Machine::new();
    let words = ["--temporary", "--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"];
    machine.serve(&words).kill();
    machine.refused(&[&["serve"], &words[..]].concat(), "invalid", &["braid forget temporary"]);
    assert!(machine.path("fast.img").exists() && machine.path("slow.img").exists());
    // The volume's bytes are still present, and can be imported.
    assert_eq!(machine.json(&["import", "fast.img", "slow.img"])["check"]["clean"], true);
}

#[test]
fn forgetting_temporary_volume_leaves_files_of_new_volume() {
    let machine = Machine::new();
    machine.serve(&["--temporary", "--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"]).kill();
    machine.ok(&["create", "vault", "--hdd", "slow.img", "--force"]);
    machine.ok(&["forget", "temporary"]);
    assert!(!machine.path("fast.img").exists());
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

#[test]
fn volume_is_imported_from_the_devices_alone() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "hdd-only"]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 5 0 1M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    machine.ok(&["forget", "vault"]);
    machine.refused(&["serve", "vault"], "invalid", &["'vault'", "braid import"]);
    std::fs::rename(machine.path("vault.ssd"), machine.path("moved")).unwrap();
    let found = machine.json(&["import", "vault.hdd", "moved"]);
    assert_eq!(found["name"], "vault");
    assert_eq!(found["check"]["clean"], true);
    assert!(found["policy"].as_str().unwrap().starts_with("hdd-only"), "{found}");
    assert!(found["devices"][0]["path"].as_str().unwrap().ends_with("/moved"), "{found}");
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 5 0 1M"]);
}

#[test]
fn refused_create_leaves_no_files() {
    let machine = Machine::new();
    machine.refused(
        &["create", "vault", "--ssd", "a.img,size=64MiB", "--hdd", "b.img,size=1MiB"],
        "invalid",
        &["1 MiB", "d1", "b.img"],
    );
    assert!(!machine.path("a.img").exists() && !machine.path("b.img").exists());
    machine.refused(&["status", "vault"], "invalid", &["'vault'"]);
}

/// A daemon with closed output served nobody: at the failed attempt to report readiness, the daemon ended
/// with success.
#[test]
fn daemon_serves_if_the_output_pipe_is_closed() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let mut command = machine.command(&["serve", "vault"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut daemon = command.stdout(writer).stderr(std::process::Stdio::null()).spawn().unwrap();
    let served = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        machine.json(&["status", "vault"])["served"] == true
    });
    if served {
        machine.ok(&["stop", "vault"]);
    }
    let _ = daemon.kill();
    daemon.wait().unwrap();
    assert!(served);
}
