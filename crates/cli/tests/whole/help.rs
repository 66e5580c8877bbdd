//! The help is part of the interface: its text is kept in `help.txt`, so reviews show changes.
//!
//! `BRAID_UPDATE_HELP=1 cargo test -p braid --test whole help` rewrites the file.

use crate::machine::Machine;
use std::path::Path;

pub const VERBS: &[&str] = &[
    "create",
    "serve",
    "stop",
    "attach",
    "detach",
    "status",
    "web",
    "alert",
    "explain",
    "check",
    "recover",
    "policy",
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
    "demo dbench",
    "demo pass",
    "demo cache",
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

#[test]
fn completions_know_the_verbs() {
    let machine = Machine::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = machine.ok(&["completions", shell]);
        assert!(VERBS.iter().all(|verb| verb.split(' ').all(|word| script.contains(word))), "{shell}");
    }
}
