//! Output to stdout and the terminal is complete, or the exit status reports the failure.

use crate::machine::{Machine, run};
use std::fs::File;
use std::process::Stdio;

/// `braid check v >/dev/full` on a damaged volume ended with success: neither the failed output nor the
/// damage was reported.
#[test]
fn unwritable_output_fails_and_damage_keeps_exit_status_3() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let to_full = |words: &[&str]| {
        let mut command = machine.command(words);
        command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
        let ended = command.spawn().unwrap().wait_with_output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let (status, said) = to_full(&["status", "vault"]);
    assert!(status == Some(1) && said.contains("os error 28"), "{status:?}: {said}");
    assert_eq!(to_full(&["--help"]).0, Some(1));
    // All metadata but the superblocks.
    for name in ["vault.ssd", "vault.hdd"] {
        let mut bytes = std::fs::read(machine.path(name)).unwrap();
        let end = bytes.len() - (16 << 10);
        bytes[32 << 10..end].fill(0x55);
        std::fs::write(machine.path(name), bytes).unwrap();
    }
    for words in [&["check", "vault"][..], &["check", "vault", "--json"]] {
        assert_eq!(to_full(words).0, Some(3));
    }
}

/// A reader that closes the pipe early causes no failure and no other exit status.
#[test]
fn closed_output_pipe_changes_no_exit_status() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let to_nobody = |words: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        machine.command(words).stdout(writer).stderr(Stdio::null()).status().unwrap().code()
    };
    assert_eq!(to_nobody(&["check", "vault"]), Some(0));
    assert_eq!(to_nobody(&["status", "vault", "--watch"]), Some(0));
    assert_eq!(to_nobody(&["check", "nosuch", "--json"]), Some(1));
}

#[test]
fn wrong_usage_is_json_too_if_json_was_asked_for() {
    let machine = Machine::new();
    for words in [&["--json", "nosuch"][..], &["serve", "--json"], &["check", "a", "--colour", "--json"]] {
        let ended = machine.braid(words);
        assert_eq!(ended.status, 2, "{ended:?}");
        let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(answer["error"]["kind"], "usage", "{answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().starts_with("error"), "{answer}");
        assert!(ended.stderr.contains("Usage"), "{}", ended.stderr);
    }
    let help = machine.braid(&["--json", "--help"]);
    assert_eq!((help.status, help.stderr.as_str()), (0, ""));
}

/// The name of a file, or of a volume in a hostile superblock, could clear an administrator's screen or write
/// to the screen.
#[test]
fn control_characters_in_names_are_escaped_in_output() {
    let machine = Machine::new();
    let hostile = "\u{1b}[2J\u{9b}2J\u{7}.img";
    let spec = format!("{hostile},size=64MiB");
    let ended = machine.braid(&["create", "vault", "--ssd", &spec]);
    assert_eq!(ended.status, 0, "{ended:?}");
    for words in [
        &["status", "vault"][..],
        &["status", "vault", "--json"],
        &["import", hostile, hostile],
        &["create", hostile, "--ssd", hostile],
        &["check", hostile],
    ] {
        let ended = run(machine.command(words));
        for said in [&ended.stdout, &ended.stderr] {
            let obeyed = said.chars().find(|&c| c.is_control() && c != '\n' && c != '\t');
            assert_eq!(obeyed, None, "braid {words:?}: {said:?}");
        }
    }
    assert!(machine.ok(&["status", "vault"]).contains("\\u{1b}[2J"));
}
