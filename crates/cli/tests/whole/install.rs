//! `make install`: the installed tree, and its removal.

use crate::machine::{Ended, Machine, have, run};
use std::path::Path;
use std::process::Command;

/// Runs a verb of the Makefile, with `DESTDIR` in the machine's directory.
fn make(machine: &Machine, verb: &str) -> Ended {
    let mut command = Command::new("make");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).args(["-s", verb]);
    command.env("DESTDIR", machine.path("root")).env("BRAID", env!("CARGO_BIN_EXE_braid"));
    for variable in ["PREFIX", "SYSCONFDIR", "MAKEFLAGS", "MAKELEVEL"] {
        command.env_remove(variable);
    }
    run(command)
}

/// Files below a directory, as paths from there.
fn files(below: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path()).iter().map(|file| format!("{name}/{file}"))),
            false => found.push(name),
        }
    }
    found
}

#[test]
fn installed_files_work_and_uninstall_keeps_only_configurations() {
    if !have(&["make"]) {
        return;
    }
    let machine = Machine::new();
    let root = machine.path("root");
    for attempt in ["installed", "installed again"] {
        let ended = make(&machine, "install");
        assert_eq!(ended.status, 0, "{attempt}: {ended:?}");
    }
    let found = files(&root);
    for file in [
        "usr/local/bin/braid",
        "usr/local/share/man/man1/braid-device-add.1",
        "usr/local/share/bash-completion/completions/braid",
        "usr/local/share/zsh/site-functions/_braid",
        "usr/local/share/fish/vendor_completions.d/braid.fish",
    ] {
        assert!(found.iter().any(|there| there == file), "{file} in {found:?}");
    }
    assert!(root.join("etc/braid").is_dir(), "{found:?}");
    let mut version = Command::new(root.join("usr/local/bin/braid"));
    version.arg("--version");
    assert!(run(version).stdout.starts_with("braid "));

    std::fs::write(root.join("etc/braid/vault.toml"), "").unwrap();
    let ended = make(&machine, "uninstall");
    assert!(ended.status == 0 && ended.stdout.contains("kept: "), "{ended:?}");
    assert_eq!(files(&root), ["etc/braid/vault.toml"]);
    let ended = make(&machine, "uninstall");
    assert!(ended.status != 0 && ended.stderr.contains("nothing is installed"), "{ended:?}");
}
