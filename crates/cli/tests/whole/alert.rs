//! `braid alert` beside real daemons.

use crate::json::assert_documented;
use crate::machine::{Daemon, Machine, client};
use crate::replace::wait_until;
use serde_json::Value;

#[test]
fn conditions_are_printed_and_told_to_the_program_when_they_begin_and_end() {
    let machine = Machine::new();
    machine.create("vault", &["--copies", "2", "--policy", "raid1"]);
    let vault = machine.serve(&["vault"]);
    machine.ok(&["device", "fail", "vault", "d1"]);
    let script =
        "#!/bin/sh\necho $1 $BRAID_VOLUME $BRAID_DEVICE $BRAID_LEVEL $BRAID_STATE $BRAID_MESSAGE >>told\n";
    std::fs::write(machine.path("script"), script).unwrap();
    // A file that this process wrote may still be open in the child of another test: text file busy.
    let paths = ["script", "tell"].map(|name| machine.path(name).display().to_string());
    client("install", &["-m", "755", &paths[0], &paths[1]]);
    let alert = Daemon::start(machine.command(&["alert", "--every", "1", "--run", "tell", "--json"]));
    let first: Value = serde_json::from_str(&alert.uri).unwrap();
    assert_documented(&machine, "alert", &[&first]);
    let told = || std::fs::read_to_string(machine.path("told")).unwrap_or_default();
    let is_told = |line: &str| told().lines().any(|told| told.starts_with(line));
    wait_until("the failure is told", || is_told("device-failed vault d1 warning begins d1"));
    machine.ok(&["device", "return", "vault", "d1"]);
    wait_until("the return is told", || is_told("device-failed vault d1 warning ends"));
    vault.kill();
    wait_until("the death is told", || is_told("daemon-died vault bad begins"));
    assert_eq!(alert.terminate().status, 0);
    let count = told().lines().filter(|line| line.starts_with("device-failed")).count();
    assert_eq!(count, 2, "{}", told());
}

#[test]
fn unknown_volumes_and_programs_are_refused() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.refused(&["alert", "nosuch"], "invalid", &["nosuch"]);
    machine.refused(&["alert", "--run", "nosuch"], "io", &["nosuch"]);
    std::fs::write(machine.path("text"), "").unwrap();
    machine.refused(&["alert", "vault", "--run", "text"], "invalid", &["text", "chmod"]);
}
