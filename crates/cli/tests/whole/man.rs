//! Manual pages of all commands.

use crate::help::VERBS;
use crate::machine::{Machine, have, run};
use std::process::Command;

#[test]
fn every_command_has_a_manual_page_that_mandoc_accepts() {
    let machine = Machine::new();
    let mut command = machine.command(&["man", "man1"]);
    command.env("SOURCE_DATE_EPOCH", "1795910400");
    let ended = run(command);
    assert_eq!(ended.status, 0, "{ended:?}");
    let pages: Vec<&str> = ended.stdout.lines().collect();
    let name = |verb: &str| format!("man1/braid-{}.1", verb.replace(' ', "-"));
    let expected: Vec<String> = VERBS.iter().map(|verb| name(verb)).chain(["man1/braid.1".into()]).collect();
    let missing: Vec<&String> = expected.iter().filter(|page| !pages.contains(&page.as_str())).collect();
    assert!(missing.is_empty() && pages.len() == expected.len(), "{missing:?} of {pages:?}");
    let serve = std::fs::read_to_string(machine.path("man1/braid-serve.1")).unwrap();
    for part in [".TH BRAID-SERVE 1 2026-11-29", ".SH EXAMPLES", r"\fB\-\-clients\fR"] {
        assert!(serve.contains(part), "{part}: {serve}");
    }
    if !have(&["mandoc"]) {
        return;
    }
    let mut lint = Command::new("mandoc");
    lint.args(["-T", "lint", "-W", "warning"]).args(&pages).current_dir(machine.path(""));
    let ended = run(lint);
    assert_eq!((ended.status, ended.stdout.as_str()), (0, ""), "{}", ended.stderr);
}
