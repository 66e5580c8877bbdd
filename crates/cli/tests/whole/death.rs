//! A daemon dies and starts again while the machine runs: every acknowledged write is readable, flushed or
//! not.

use crate::machine::{Daemon, Ended, Machine, client, run};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use tempfile::TempDir;

/// Kinds of volumes, as arguments of `braid create`.
const KINDS: [&[&str]; 7] = [
    &["--policy", "equi"],
    &["--policy", "wardrop"],
    &["--policy", "hystor,write-back=20%"],
    &["--policy", "cache,mode=write-back"],
    &["--policy", "exclusive"],
    &["--policy", "stripe", "--copies", "2"],
    &["--policy", "pass", "--copies", "2"],
];
const BLOCK: usize = 4096;
const STEP: u64 = 1 << 20;

/// An NBD client without flushes: other clients flush at the end of a connection.
struct Client(UnixStream);

impl Client {
    fn connect(daemon: &Daemon) -> Client {
        let (_, socket) = daemon.uri.split_once("socket=").unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        // Flag "no zeroes"; the option GO, for the default export, without information requests.
        let go = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &7u32.to_be_bytes(), &6u32.to_be_bytes(), &[0; 6]];
        stream.write_all(&go.concat()).unwrap();
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head).unwrap();
            let [.., a, b, c, d, e, f, g, h] = head;
            let mut data = vec![0; u32::from_be_bytes([e, f, g, h]) as usize];
            stream.read_exact(&mut data).unwrap();
            match u32::from_be_bytes([a, b, c, d]) {
                1 => return Client(stream),
                kind => assert!(kind < 1 << 31, "the option was refused"),
            }
        }
    }

    fn ask(&mut self, command: u16, at: u64, len: usize, data: &[u8]) -> std::io::Result<()> {
        let head = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0], &command.to_be_bytes(), &[7; 8]];
        let range = [&at.to_be_bytes()[..], &(len as u32).to_be_bytes(), data];
        self.0.write_all(&[head.concat(), range.concat()].concat())?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[4..8], [0; 4], "command {command} at {at} failed");
        Ok(())
    }

    fn write(&mut self, at: u64, value: u64) -> std::io::Result<()> {
        self.ask(1, at, BLOCK, &value.to_be_bytes().repeat(BLOCK / 8))
    }

    /// Returns the value in a block; `None` if the block holds several values.
    fn read(&mut self, at: u64) -> Option<u64> {
        self.ask(0, at, BLOCK, &[]).unwrap();
        let mut block = [0; BLOCK];
        self.0.read_exact(&mut block).unwrap();
        let (first, _) = block.split_first_chunk::<8>().unwrap();
        block.chunks(8).all(|word| word == first).then(|| u64::from_be_bytes(*first))
    }
}

fn made(kind: &[&str]) -> Machine {
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=96MiB", "--hdd", "slow.img,size=160MiB"];
    machine.ok(&[&["create", "vault", "--size", "32MiB"], &devices[..], kind].concat());
    machine
}

/// 16 writes of 4 KiB to new extents were acknowledged, without a flush. After the daemon was killed and
/// started again, all 16 blocks read as zeros.
#[test]
fn unflushed_writes_to_new_extents_survive_daemon_kill() {
    for kind in KINDS {
        let machine = made(kind);
        let vault = machine.serve(&["vault"]);
        let mut client = Client::connect(&vault);
        (0..16).for_each(|i| client.write(i * STEP, i + 1).unwrap());
        vault.kill();
        let vault = machine.serve(&["vault"]);
        let mut client = Client::connect(&vault);
        let found: Vec<Option<u64>> = (0..16).map(|i| client.read(i * STEP)).collect();
        assert_eq!(found, (1..17).map(Some).collect::<Vec<_>>(), "{kind:?}");
        drop(client);
        assert_eq!(vault.terminate().status, 0);
    }
}

/// The daemon is killed three times under a load, each time at another moment, and started again.
#[test]
fn each_acknowledged_write_of_a_load_outlives_the_daemon() {
    for kind in KINDS {
        let machine = made(kind);
        let (mut last, mut version) = (BTreeMap::new(), 0u64);
        for round in 1..4 {
            let vault = machine.serve(&["vault"]);
            verify(&mut Client::connect(&vault), &last, kind);
            let (told, hear) = mpsc::channel();
            let mut client = Client::connect(&vault);
            let load = std::thread::spawn(move || {
                for number in version + 1.. {
                    // Every place is written many times, each time in another order.
                    let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0x3ff;
                    let written = client.write(at * 32 * 1024, number);
                    let _ = told.send((at * 32 * 1024, number, written.is_ok()));
                    if written.is_err() {
                        return;
                    }
                }
            });
            let mut vault = Some(vault);
            for (at, number, is_acknowledged) in hear {
                version = number;
                // The write in flight may have taken effect.
                let least =
                    if is_acknowledged { number } else { last.get(&at).map_or(0, |&(least, _)| least) };
                last.insert(at, (least, number));
                if is_acknowledged && number % 1_000 > round * 250 {
                    vault.take().into_iter().for_each(Daemon::kill);
                }
            }
            load.join().unwrap();
        }
        let vault = machine.serve(&["vault"]);
        verify(&mut Client::connect(&vault), &last, kind);
        assert_eq!(vault.terminate().status, 0);
        assert_eq!(machine.braid(&["check", "vault"]).status, 0);
    }
}

fn verify(client: &mut Client, last: &BTreeMap<u64, (u64, u64)>, kind: &[&str]) {
    for (&at, &(least, most)) in last {
        let found = client.read(at);
        // An interrupted write may be present in part.
        let is_right = found.is_none() && least < most || found == Some(least) || found == Some(most);
        assert!(is_right, "{kind:?}: {found:?} at {at}, and {least} was acknowledged, {most} written last");
    }
}

/// A log from an earlier boot of the machine and a file that is no log are reported and do no harm. `status`
/// shows the path of the log.
#[test]
fn invalid_pending_log_does_not_prevent_serving() {
    let machine = made(&[]);
    let vault = machine.serve(&["vault"]);
    let status = machine.json(&["status", "vault"]);
    let log = status["pending_log"].as_str().expect("there is room for a log").to_owned();
    assert!(std::path::Path::new(&log).starts_with(machine.runtime()), "{log}");
    Client::connect(&vault).write(0, 5).unwrap();
    vault.kill();
    // Once, `status` warned about lost unflushed writes although the log held all of them.
    let resting = machine.json(&["status", "vault"]);
    assert_eq!((&resting["ended_unclean"], &resting["pending_log"]), (&true.into(), &log.as_str().into()));
    let mut bytes = std::fs::read(&log).unwrap();
    for (name, change) in [
        ("garbage", (|bytes| bytes.fill(0xa5)) as fn(&mut Vec<u8>)),
        ("cut short", |bytes| bytes.truncate(5_000)),
        ("another life", |bytes| bytes[40] ^= 1),
        ("huge", |bytes| bytes.resize(100 << 20, 7)),
    ] {
        change(&mut bytes);
        std::fs::write(&log, &bytes).unwrap();
        let vault = machine.serve(&["vault"]);
        assert_eq!(Client::connect(&vault).read(STEP), Some(0), "{name}");
        vault.kill();
    }
    let vault = machine.serve(&["vault"]);
    assert_eq!(vault.terminate().status, 0);
    assert!(!std::path::Path::new(&log).exists(), "a volume that was shut down leaves no log");
}

/// Without a directory in memory for the log, the volume is served, and `status` says so. Once, a file on a
/// disk was used: guests' writes waited until the kernel had written the file back, perhaps to the same
/// volume.
#[test]
fn volume_without_pending_log_is_served_and_status_warns() {
    let machine = made(&[]);
    std::fs::create_dir(machine.path("disk")).unwrap();
    std::fs::write(machine.path("file"), "no directory").unwrap();
    for (runtime, why) in
        [("disk", "lies on a disk"), ("file", "no directory"), ("none/at/all", "none/at/all")]
    {
        let mut command = machine.command(&["serve", "vault"]);
        command.env("BRAID_RUNTIME_DIR", machine.path(runtime));
        let vault = Daemon::start(command);
        let status = machine.json(&["status", "vault"]);
        assert!(status["pending_log"].is_null(), "{status}");
        let failure = status["pending_log_failure"].as_str().unwrap();
        assert!(failure.contains(why) && failure.contains(runtime), "{failure}");
        let text = machine.ok(&["status", "vault"]);
        assert!(text.contains("a crash of the daemon loses what is not flushed"), "{text}");
        let ended = vault.terminate();
        assert!(ended.status == 0 && ended.stderr.contains("crash of this daemon"), "{ended:?}");
    }
}

/// A command for the copy of the volume, with a separate state directory.
fn of_copy(machine: &Machine, words: &[&str]) -> Command {
    let mut command = machine.command(words);
    command.env("BRAID_STATE_DIR", machine.path("state-of-copy"));
    command
}

/// Copies the devices in their current state, and imports the copy.
fn copy(machine: &Machine) {
    let paths = ["fast.img", "slow.img"].map(|name| {
        let (from, to) = (machine.path(name), machine.far_away(name));
        client("cp", &["--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()]);
        to.to_str().unwrap().to_owned()
    });
    let imported = run(of_copy(machine, &["import", &paths[0], &paths[1]]));
    assert!(machine.path("state-of-copy/vault/volume.json").exists(), "{imported:?}");
}

fn serve_copy(machine: &Machine) -> Daemon {
    Daemon::start(of_copy(machine, &["serve", "vault"]))
}

fn write_all(daemon: &Daemon, version: u64) {
    let mut client = Client::connect(daemon);
    (0..16).for_each(|i| client.write(i * STEP, version + i).unwrap());
}

fn assert_all(daemon: &Daemon, version: u64, what: &str) {
    let mut client = Client::connect(daemon);
    let found: Vec<Option<u64>> = (0..16).map(|i| client.read(i * STEP)).collect();
    assert_eq!(found, (version..version + 16).map(Some).collect::<Vec<_>>(), "{what}");
}

/// A volume was shut down, backed up and served again, and its backup was served at the same time. Both
/// daemons used one pending log, because the UUIDs were equal. After both daemons had died, flushed data of
/// the original read as zeros if the backup had discarded the same range.
#[test]
fn copy_served_beside_original_has_separate_pending_log() {
    for original_first in [true, false] {
        let machine = made(&[]);
        let vault = machine.serve(&["vault"]);
        write_all(&vault, 100);
        assert_eq!(vault.terminate().status, 0);
        copy(&machine);
        let (vault, beside) = match original_first {
            true => {
                let vault = machine.serve(&["vault"]);
                (vault, serve_copy(&machine))
            }
            false => {
                let beside = serve_copy(&machine);
                (machine.serve(&["vault"]), beside)
            }
        };
        let mut client = Client::connect(&beside);
        (8..16).for_each(|i| client.ask(4, i * STEP, STEP as usize, &[]).unwrap());
        (16..24).for_each(|i| client.write(i * STEP, 300).unwrap());
        Client::connect(&vault).write(20 * STEP, 200).unwrap();
        if original_first {
            vault.kill();
            beside.kill();
        } else {
            beside.kill();
            vault.kill();
        }
        let what = format!("original first: {original_first}");
        let (vault, beside) = (machine.serve(&["vault"]), serve_copy(&machine));
        assert_all(&vault, 100, &what);
        let mut client = Client::connect(&vault);
        assert_eq!([19, 20].map(|i| client.read(i * STEP)), [Some(0), Some(200)], "{what}");
        let mut client = Client::connect(&beside);
        assert_eq!([7, 8, 20].map(|i| client.read(i * STEP)), [Some(107), Some(0), Some(300)], "{what}");
        assert_eq!((vault.terminate().status, beside.terminate().status), (0, 0));
    }
}

/// A copy of the devices of a running daemon was served. The second daemon zeroed the first daemon's log at
/// its start, and removed the log at its stop. The death of the first daemon then lost all unflushed writes.
#[test]
fn serving_a_copy_leaves_the_original_pending_log_intact() {
    let machine = made(&[]);
    let vault = machine.serve(&["vault"]);
    write_all(&vault, 100);
    assert_eq!(vault.terminate().status, 0);
    let vault = machine.serve(&["vault"]);
    let log = machine.json(&["status", "vault"])["pending_log"].as_str().unwrap().to_owned();
    copy(&machine);
    write_all(&vault, 200);
    Client::connect(&vault).write(20 * STEP, 201).unwrap();
    let beside = serve_copy(&machine);
    assert_all(&beside, 100, "the copy");
    Client::connect(&vault).write(21 * STEP, 202).unwrap();
    assert_eq!(beside.terminate().status, 0);
    assert!(Path::new(&log).exists());
    Client::connect(&vault).write(22 * STEP, 203).unwrap();
    vault.kill();
    let vault = machine.serve(&["vault"]);
    assert_all(&vault, 200, "the original");
    let mut client = Client::connect(&vault);
    assert_eq!([20, 21, 22].map(|i| client.read(i * STEP)), [Some(201), Some(202), Some(203)]);
    drop(client);
    let ended = vault.terminate();
    assert!(ended.status == 0 && ended.stderr.contains("from its pending log"), "{ended:?}");
}

/// A daemon died, and a copy of the devices was served before the volume: the copy consumed the pending log,
/// also if the state directory was copied.
#[test]
fn serving_a_copy_after_daemon_death_keeps_pending_log() {
    for with_state in [false, true] {
        let machine = made(&[]);
        let vault = machine.serve(&["vault"]);
        write_all(&vault, 100);
        vault.kill();
        copy(&machine);
        if with_state {
            let note = "vault/noted.json";
            std::fs::copy(machine.state().join(note), machine.path("state-of-copy").join(note)).unwrap();
        }
        let beside = serve_copy(&machine);
        Client::connect(&beside).write(0, 7).unwrap();
        let ended = beside.terminate();
        assert!(ended.status == 0 && ended.stderr.contains(".pending"), "the log is named: {ended:?}");
        let vault = machine.serve(&["vault"]);
        assert_all(&vault, 100, "the original");
        assert_eq!(vault.terminate().status, 0);
    }
}

/// The daemon of a login session was killed, and a system service served the volume again, with another
/// directory in memory. Acknowledged writes read as zeros, without a message.
#[test]
fn a_log_is_found_whatever_the_environment_of_the_next_daemon_is() {
    let machine = made(&[]);
    let vault = machine.serve(&["vault"]);
    write_all(&vault, 100);
    vault.kill();
    let left = machine.json(&["status", "vault"])["pending_log"].as_str().unwrap().to_owned();
    let elsewhere = TempDir::new_in("/dev/shm").unwrap();
    let with = |dir: &Path, words: &[&str]| {
        let mut command = machine.command(words);
        command.env("BRAID_RUNTIME_DIR", dir);
        command
    };
    let status = run(with(elsewhere.path(), &["status", "vault"]));
    assert!(status.stdout.contains(&left), "{status:?}");
    let vault = Daemon::start(with(elsewhere.path(), &["serve", "vault"]));
    assert_all(&vault, 100, "another directory");
    let log = machine.json(&["status", "vault"])["pending_log"].as_str().unwrap().to_owned();
    assert!(Path::new(&log).starts_with(elsewhere.path()) && !Path::new(&left).exists(), "{log}");
    write_all(&vault, 200);
    vault.kill();
    // A command that opens the volume, and a directory unsuitable for logs.
    machine.ok(&["policy", "vault", "ssd-first"]);
    assert!(!Path::new(&log).exists());
    let vault = machine.serve(&["vault"]);
    assert_all(&vault, 200, "a command");
    write_all(&vault, 300);
    vault.kill();
    let vault = Daemon::start(with(&machine.path("."), &["serve", "vault"]));
    assert_all(&vault, 300, "no directory for logs");
    assert_eq!(vault.terminate().status, 0);
    let (left, elsewhere) = (machine.runtime().read_dir().unwrap(), elsewhere.path().read_dir().unwrap());
    assert_eq!(left.chain(elsewhere).count(), 0, "a volume that was shut down leaves no log");
}

/// The log was removed after the death, as systemd does at a logout: the next daemon reports the loss.
#[test]
fn removed_pending_log_is_reported_once_after_a_kill() {
    let machine = made(&[]);
    let vault = machine.serve(&["vault"]);
    let log = machine.json(&["status", "vault"])["pending_log"].as_str().unwrap().to_owned();
    std::fs::remove_file(&log).unwrap();
    let status = machine.json(&["status", "vault"]);
    let failure = status["pending_log_failure"].as_str().unwrap();
    assert!(status["pending_log"].is_null() && failure.contains("removed"), "{status}");
    vault.kill();
    let served = |machine: &Machine| -> Ended { machine.serve(&["vault"]).terminate() };
    let ended = served(&machine);
    assert!(ended.stderr.contains("is gone") && ended.stderr.contains(&log), "{ended:?}");
    let ended = served(&machine);
    assert!(!ended.stderr.contains("is gone"), "{ended:?}");
}

/// If the note names a file that is no log, the daemon serves, and leaves the file untouched.
#[test]
fn note_with_invalid_log_path_changes_no_file() {
    let machine = made(&[]);
    machine.serve(&["vault"]).kill();
    let note = machine.state().join("vault/noted.json");
    let text = std::fs::read_to_string(&note).unwrap();
    let known: serde_json::Value = serde_json::from_str(&text).unwrap();
    let uuid = known["uuid"].as_str().unwrap().to_owned();
    let victim = machine.path("victim");
    std::fs::write(&victim, "precious").unwrap();
    let on_disk = machine.path(&format!("{uuid}.pending"));
    std::fs::write(&on_disk, "precious").unwrap();
    let link = machine.runtime().join(format!("{uuid}-0123456789abcdef.pending"));
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    let relative = format!("{uuid}.pending").into();
    for path in [victim.clone(), on_disk.clone(), link, relative, "/".into(), "".into(), "/dev/zero".into()] {
        let mut note_of = known.clone();
        note_of["log"]["path"] = path.to_str().unwrap().into();
        std::fs::write(&note, note_of.to_string()).unwrap();
        machine.serve(&["vault"]).kill();
        assert_eq!([&victim, &on_disk].map(|p| std::fs::read(p).unwrap()), [b"precious", b"precious"]);
    }
    for text in [r#"{"log":7}"#.to_owned(), "x".repeat(1 << 20)] {
        std::fs::write(&note, text).unwrap();
        machine.serve(&["vault"]).kill();
    }
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
}
