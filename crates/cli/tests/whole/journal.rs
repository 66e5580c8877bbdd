//! The log in the journal of systemd. A mount namespace has a socket of the test in the journal's place.

use crate::machine::{Daemon, Machine, run};
use crate::namespace::{REMOVE_COPIES, can_unshare, make_namespace};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Far longer than a daemon needs for its next entry.
const PATIENCE: Duration = Duration::from_secs(60);

/// A journal of the test.
struct Journal {
    /// Directory with the socket.
    directory: PathBuf,
    socket: UnixDatagram,
}

impl Journal {
    fn of(machine: &Machine) -> Journal {
        // A short path: the machine's directory may be longer than the path of a socket.
        let directory = machine.runtime().join("journal");
        std::fs::create_dir(&directory).unwrap();
        let socket = UnixDatagram::bind(directory.join("socket")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Journal { directory, socket }
    }

    /// `braid` with these words, in a mount namespace where this is the journal.
    fn command(&self, machine: &Machine, words: &[&str]) -> Command {
        let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                      mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";
        let script = format!("{REMOVE_COPIES}{script}");
        let mut command = machine.program("unshare");
        command.args(["--mount", "sh", "-c", &script]).arg(&self.directory);
        command.arg(env!("CARGO_BIN_EXE_braid")).args(words).env_remove("JOURNAL_STREAM");
        command
    }

    /// Fields of the next entry with this code.
    fn entry(&self, code: &str) -> BTreeMap<String, String> {
        loop {
            let mut bytes = vec![0; 1 << 16];
            let length = self.socket.recv(&mut bytes).expect("an entry of the daemon");
            let fields = fields(&bytes[..length]);
            if fields.get("BRAID_CODE").is_some_and(|found| found == code) {
                return fields;
            }
        }
    }
}

/// Fields of a datagram in the journal's native protocol: `NAME=value`, or the name, a length of eight bytes,
/// and the value.
fn fields(mut bytes: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|&byte| byte == b'\n').expect("a line ends");
        let line = String::from_utf8(bytes[..end].to_vec()).unwrap();
        bytes = &bytes[end + 1..];
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                let value = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
                bytes = &bytes[8 + length + 1..];
                (line, value)
            }
        };
        fields.insert(name, value);
    }
    fields
}

#[test]
fn entries_in_the_journal_have_the_volume_the_device_and_a_code() {
    if !can_unshare() {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--copies", "2"]);
    let journal = Journal::of(&machine);
    let command = journal.command(&machine, &["serve", "vault", "--log", "journal"]);
    let daemon = make_namespace(|| Daemon::start(command));
    machine.ok(&["device", "fail", "vault", "d1"]);
    let entry = journal.entry("device-failed");
    let of = |name: &str| entry.get(name).map(String::as_str);
    assert_eq!((of("BRAID_VOLUME"), of("BRAID_DEVICE")), (Some("vault"), Some("d1")), "{entry:?}");
    // An error, as in syslog.
    assert_eq!((of("PRIORITY"), of("SYSLOG_IDENTIFIER")), (Some("3"), Some("braid")), "{entry:?}");
    assert_eq!(of("BRAID_ERROR"), Some("excluded by the administrator"), "{entry:?}");
    machine.ok(&["device", "return", "vault", "d1"]);
    assert_eq!(journal.entry("device-returning").get("BRAID_DEVICE").map(String::as_str), Some("d1"));
    let ended = daemon.terminate();
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
    // A command that ends with an error: the error is an entry, too.
    let command = journal.command(&machine, &["serve", "other", "--log", "journal"]);
    let ended = make_namespace(|| run(command));
    assert!(ended.status == 1 && ended.stderr.contains("other"), "{ended:?}");
    let entry = journal.entry("invalid");
    assert_eq!(entry.get("BRAID_VOLUME").map(String::as_str), Some("other"), "{entry:?}");
}

#[test]
fn alerts_are_entries_in_the_journal() {
    if !can_unshare() {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--copies", "2"]);
    let daemon = machine.serve(&["vault"]);
    machine.ok(&["device", "fail", "vault", "d1"]);
    let journal = Journal::of(&machine);
    let mut command = journal.command(&machine, &["alert", "--log", "journal", "--every", "1"]);
    let (mut alert, entry) = make_namespace(|| (command.spawn().unwrap(), journal.entry("device-failed")));
    let of = |name: &str| entry.get(name).map(String::as_str);
    assert_eq!((of("BRAID_VOLUME"), of("BRAID_DEVICE")), (Some("vault"), Some("d1")), "{entry:?}");
    alert.kill().unwrap();
    alert.wait().unwrap();
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn missing_journal_is_an_error_with_a_remedy() {
    if !can_unshare() {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let journal = Journal::of(&machine);
    std::fs::remove_file(journal.directory.join("socket")).unwrap();
    let command = journal.command(&machine, &["serve", "vault", "--log", "journal"]);
    let ended = make_namespace(|| run(command));
    assert_eq!(ended.status, 1, "{ended:?}");
    for part in ["/run/systemd/journal/socket", "systemd-journald", "--log text"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
}
