//! A daemon that dies, and is started again while the machine goes on: every write that it acknowledged is
//! read, flushed or not.

use crate::machine::{Daemon, Machine};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

/// Volumes of all kinds, as words of `braid create`.
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

/// A client that says nothing of flushes: clients of others flush when they leave.
struct Client(UnixStream);

impl Client {
    fn connect(daemon: &Daemon) -> Client {
        let (_, socket) = daemon.uri.split_once("socket=").unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        // No zeros; the option GO, for the default export, without questions.
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

    /// The value in a block; none if it differs within the block.
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

/// 16 writes of 4 KiB to new extents were acknowledged, and nothing was flushed. The daemon was killed, and
/// served the volume again: all 16 read as zeros.
#[test]
fn writes_to_new_extents_that_were_not_flushed_outlive_the_daemon() {
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

/// The daemon is killed three times under a load, each time at another moment, and comes back.
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
                    // Every place is hit again and again, in another order each time.
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
                // The one under way may have happened.
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
        // A write that the death interrupted may be there in part.
        let is_right = found.is_none() && least < most || found == Some(least) || found == Some(most);
        assert!(is_right, "{kind:?}: {found:?} at {at}, and {least} was acknowledged, {most} written last");
    }
}

/// A log that another life of the machine has left, and one that is no log, are told and do no harm; and
/// `status` says where the log is.
#[test]
fn a_log_that_does_not_count_keeps_no_volume_from_being_served() {
    let machine = made(&[]);
    let vault = machine.serve(&["vault"]);
    let status = machine.json(&["status", "vault"]);
    let log = status["pending_log"].as_str().expect("there is room for a log").to_owned();
    assert!(std::path::Path::new(&log).starts_with(machine.runtime()), "{log}");
    Client::connect(&vault).write(0, 5).unwrap();
    vault.kill();
    // Where nothing will be lost, it said that what was not flushed may be.
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

/// No directory in memory for the log: the volume is served all the same, and says so. A file on a disk was taken:
/// a write of a guest waited until the kernel had written that file back, perhaps to the same volume.
#[test]
fn without_memory_for_the_log_the_volume_is_served_and_status_says_so() {
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
