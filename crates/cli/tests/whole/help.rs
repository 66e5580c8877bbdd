//! The help is part of the interface: its text is kept in `help.txt`, so reviews show changes.
//!
//! `BRAID_UPDATE_HELP=1 cargo test -p braid --test whole help` rewrites the file.

use crate::machine::{Machine, run};
use std::path::Path;

pub const VERBS: &[&str] = &[
    "create",
    "serve",
    "stop",
    "tls",
    "tls init",
    "tls client",
    "attach",
    "detach",
    "status",
    "web",
    "alert",
    "explain",
    "check",
    "recover",
    "policy",
    "resize",
    "import",
    "forget",
    "device",
    "device show",
    "device calibrate",
    "device add",
    "device remove",
    "device fail",
    "device return",
    "device replace",
    "simulate",
    "advise",
    "plan",
    "lab",
    "lab list",
    "lab show",
    "lab run",
    "lab report",
    "trace",
    "trace info",
    "trace mrc",
    "trace convert",
    "trace record",
    "demo",
    "demo pass",
    "demo cache",
    "demo policies",
    "demo dbench",
    "completions",
];

fn help(verb: &str) -> Vec<&str> {
    verb.split(' ').chain(["--help"]).collect()
}

#[test]
fn help_matches_the_reviewed_text() {
    let machine = Machine::new();
    let mut text = machine.ok(&["--help"]);
    for verb in VERBS {
        text += &format!("\n==== braid {verb} --help ====\n{}", machine.ok(&help(verb)));
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/help.txt");
    if std::env::var_os("BRAID_UPDATE_HELP").is_some() {
        std::fs::write(&kept, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&kept).unwrap_or_default();
    for (number, (now, then)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(now, then, "line {} of help.txt; BRAID_UPDATE_HELP=1 writes it anew", number + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count(), "BRAID_UPDATE_HELP=1 writes help.txt anew");
}

/// The help names every known model and policy.
#[test]
fn the_help_names_every_model_and_every_policy() {
    let machine = Machine::new();
    let names = |words: &[&str]| {
        let said = machine.refused(words, "usage", &["nosuch"]);
        let (_, list) = said.trim().rsplit_once("use one of ").unwrap();
        list.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let create = machine.ok(&["create", "--help"]);
    for model in names(&["create", "x", "--ssd", "a,model=nosuch"]) {
        assert!(create.contains(&model), "create --help does not name the model {model}");
    }
    let policy = machine.ok(&["policy", "--help"]);
    for name in names(&["create", "x", "--ssd", "a", "--policy", "nosuch"]) {
        assert!(policy.contains(&name), "policy --help does not name the policy {name}");
    }
}

/// Completions of the words by bash, as after a press of the tab key.
fn completed(machine: &Machine, words: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_braid"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut bash = machine.program("bash");
    bash.env("PATH", path).args(["--norc", "-c"]);
    // bash also divides the words at = and :, and then replaces only the last part.
    bash.arg(
        r#"source <(braid completions bash); COMP_LINE=$*; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
        read -ra COMP_WORDS <<<"${COMP_LINE//[=:]/ & }"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _braid braid "${COMP_WORDS[COMP_CWORD]}" "" 2>/dev/null; printf '%s\n' "${COMPREPLY[@]}""#,
    );
    bash.arg("bash").arg("braid").args(words);
    let ended = run(bash);
    ended.stdout.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn a_shell_completes_commands_and_names() {
    let machine = Machine::new();
    for name in ["vault", "valley", "attic"] {
        machine.create(name, &[]);
    }
    let completed = |words: &[&str]| completed(&machine, words);
    assert_eq!(completed(&["dem"]), ["demo"]);
    assert_eq!(completed(&["policy", "va"]), ["valley", "vault"]);
    assert_eq!(completed(&["device", "add", "at"]), ["attic"]);
    assert_eq!(completed(&["policy", "vault", "excl"]), ["exclusive"]);
    assert_eq!(completed(&["simulate", "--workload", "tpc"]), ["tpcc-like", "tpch-q1-like"]);
    assert_eq!(
        completed(&["lab", "run", "wardrop/fig1"]),
        ["wardrop/fig1", "wardrop/fig10", "wardrop/fig11"]
    );
    let disks = completed(&["create", "x", "--hdd", "a.img,model=mb"]);
    assert_eq!(disks, ["mba3073"]);
    // A new name has no completions; a new device is a file.
    assert_eq!(completed(&["create", "va"]), [""; 0]);
    std::fs::write(machine.path("disk.img"), "").unwrap();
    assert_eq!(completed(&["create", "x", "--hdd", "disk"]), ["disk.img"]);
    assert_eq!(completed(&["demo", "--ssd", "x25-m"]), ["x25-m", "x25-m-worn"]);
    assert_eq!(completed(&["device", "replace", "vault", "d1", "disk"]), ["disk.img"]);
    for shell in ["zsh", "fish"] {
        let script = machine.ok(&["completions", shell]);
        assert!(script.contains("BRAID_COMPLETE"), "{shell}: {script}");
    }
}
