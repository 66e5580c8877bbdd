//! `make install`: the installed tree, and its removal.

use crate::machine::{Ended, Machine, have, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a verb of the Makefile, with `DESTDIR` in the machine's directory.
fn make(machine: &Machine, verb: &str) -> Ended {
    run_make(verb, &[("DESTDIR", &machine.path("root"))])
}

fn run_make(verb: &str, places: &[(&str, &Path)]) -> Ended {
    let mut command = Command::new("make");
    command.current_dir(root()).args(["-s", verb]).env("BRAID", env!("CARGO_BIN_EXE_braid"));
    for variable in ["DESTDIR", "PREFIX", "SYSCONFDIR", "MAKEFLAGS", "MAKELEVEL"] {
        command.env_remove(variable);
    }
    run(places.iter().fold(command, |mut command, (variable, place)| {
        command.env(variable, place);
        command
    }))
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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
        "usr/local/lib/systemd/system/braid@.service",
        "usr/local/lib/systemd/system/braid@.socket",
        "usr/local/lib/systemd/system/braid-alert.service",
        "usr/local/lib/udev/rules.d/60-braid.rules",
        "usr/local/share/man/man1/braid-device-add.1",
        "usr/local/share/bash-completion/completions/braid",
        "usr/local/share/zsh/site-functions/_braid",
        "usr/local/share/fish/vendor_completions.d/braid.fish",
        "usr/local/share/braid/grafana.json",
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

/// Installation, removal and a boot: `make boot-test`.
#[test]
fn debian_package_has_the_program_its_units_and_dependencies() {
    if !have(&["make", "dpkg-deb", "dpkg-shlibdeps"]) {
        return;
    }
    let machine = Machine::new();
    let target = machine.path("target");
    std::fs::create_dir(&target).unwrap();
    let mut deb = Command::new("make");
    deb.current_dir(root()).args(["-s", "deb"]).env("BRAID", env!("CARGO_BIN_EXE_braid"));
    deb.env("CARGO_TARGET_DIR", &target).env("DEBIAN_VERSION", "0.1.0~test").env("DEBEMAIL", "a@example.org");
    // The program of a test is large.
    deb.env("DPKG_DEB_COMPRESSOR_TYPE", "none").env_remove("MAKEFLAGS").env_remove("DESTDIR");
    let made = run(deb);
    assert_eq!(made.status, 0, "{made:?}");
    let package = made.stdout.trim();
    assert!(package.starts_with('/'), "apt takes another path for a name: {package}");
    let ask = |words: &[&str]| {
        let mut command = Command::new("dpkg-deb");
        command.args(words);
        let ended = run(command);
        assert_eq!(ended.status, 0, "{words:?}: {ended:?}");
        ended.stdout
    };
    let files = ask(&["--contents", package]);
    for file in [
        " ./usr/bin/braid\n",
        " ./usr/lib/systemd/system/braid@.service\n",
        " ./usr/share/man/man1/braid-create.1.gz\n",
        " ./usr/share/doc/braid/copyright\n",
        " ./usr/share/braid/grafana.json\n",
        " ./usr/share/doc/braid/notices.gz\n",
        " ./etc/braid/\n",
    ] {
        assert!(files.contains(file), "{file:?} in {files}");
    }
    assert!(!files.contains("/usr/local/"), "{files}");
    assert_eq!(ask(&["--field", package, "Version"]).trim(), "0.1.0~test");
    assert!(ask(&["--field", package, "Depends"]).contains("libc6"));
}

/// systemd itself reads the units, without being the init system of this machine.
#[test]
fn systemd_accepts_the_units_and_their_sandbox() {
    if !have(&["make", "systemd-analyze"]) {
        return;
    }
    let machine = Machine::new();
    let prefix = machine.path("usr");
    let ended = run_make("install", &[("PREFIX", &prefix), ("SYSCONFDIR", &machine.path("etc"))]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let units = prefix.join("lib/systemd/system");
    let analyse = |words: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(words).current_dir(&units);
        run(command)
    };
    let verified =
        ["./braid@.service", "./braid@.socket", "./braid-attach@.service", "./braid-alert.service"];
    let ended = analyse(&[&["verify", "--man=no"], &verified[..]].concat());
    if ended.stderr.contains("Failed to initialize manager") {
        skip("systemd-analyze verify does not work on this machine");
        return;
    }
    let own: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("braid")).collect();
    assert_eq!((ended.status, own), (0, vec![]), "{ended:?}");
    // The threshold is ten times the exposure level.
    let ended = analyse(&["security", "--offline=true", "--threshold=30", "--no-pager", "./braid@.service"]);
    assert_eq!(ended.status, 0, "{}", ended.stdout);
}

/// udev runs the command of the rule with its own substitutions: `$$` is `$`, `%%` is `%`.
#[test]
fn udev_rule_finds_the_name_of_the_volume() {
    let rules = std::fs::read_to_string(root().join("packaging/60-braid.rules")).unwrap();
    let rule = rules.lines().find(|line| !line.starts_with('#')).unwrap();
    let (_, rest) = rule.split_once("PROGRAM=\"/bin/sh -c '").unwrap();
    let (script, rest) = rest.split_once("' sh $attr{loop/backing_file}\"").unwrap();
    assert_eq!(rest, ", SYMLINK+=\"braid/%c\"");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script.replace("$$", "$").replace("%%", "%"), "sh"]);
    command.arg("/var/lib/braid/my.vault-2/mount/volume");
    let ended = run(command);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "my.vault-2"), "{ended:?}");
}
