//! Commands in messages work as printed, in the state of the message.

use crate::machine::{Daemon, Ended, Machine, have, have_block_devices, qemu_io_ok};
use crate::replace::wait_until;

/// Commands in a message: `braid` and the following words, up to the first word of the sentence. `given`
/// holds values for names in capitals.
fn commands(message: &str, given: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for part in message.split("braid ").skip(1) {
        let mut command = Vec::new();
        for word in part.lines().next().unwrap_or_default().split_whitespace() {
            let bare = word.trim_end_matches([',', ';', ':', ')', '`', '\'', '.']);
            let value = given.iter().find(|(name, _)| bare.trim_end_matches('…') == *name);
            match value {
                Some((_, value)) => command.extend(value.split(' ').map(str::to_owned)),
                None if is_word_of_a_command(bare) => command.push(bare.to_owned()),
                None => break,
            }
            if bare != word {
                break;
            }
        }
        found.extend(Some(command).filter(|command| !command.is_empty()));
    }
    found
}

fn is_word_of_a_command(word: &str) -> bool {
    const WORDS: [&str; 15] = [
        "serve", "stop", "detach", "attach", "device", "add", "remove", "replace", "return", "forget",
        "status", "import", "check", "vault", "other",
    ];
    let is_device = word.strip_prefix('d').is_some_and(|number| number.parse::<u16>().is_ok());
    WORDS.contains(&word) || word.starts_with("--") || word.contains(['/', '.']) || is_device
}

/// Runs a printed command; for `serve`, waits until the daemon is ready.
fn run(machine: &Machine, command: &[String], daemon: &mut Option<Daemon>) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match words[0] {
        "serve" => *daemon = Some(machine.serve(&words[1..])),
        _ => drop(machine.ok(&words)),
    }
}

fn refused(machine: &Machine, words: &[&str]) -> Ended {
    let ended = machine.braid(words);
    assert_ne!(ended.status, 0, "braid {words:?}: {ended:?}");
    ended
}

/// After the removal of the cache, `forget` printed an import with a path "removed" and a file that `forget`
/// had just deleted.
#[test]
fn printed_commands_forget_an_adopted_disk() {
    let machine = Machine::new();
    std::fs::File::create(machine.path("disk.img")).unwrap().set_len(64 << 20).unwrap();
    machine.ok(&["create", "vault", "--adopt", "disk.img", "--ssd", "fast.img,size=64MiB"]);
    let printed = commands(&refused(&machine, &["forget", "vault"]).stderr, &[]);
    let words: Vec<String> = printed.iter().map(|command| command.join(" ")).collect();
    assert_eq!(words[..3], ["serve vault", "device remove vault d0", "stop vault"], "{words:?}");
    assert_eq!(words[3..], ["forget vault --force"], "{words:?}");
    let mut daemon = None;
    run(&machine, &printed[0], &mut daemon);
    run(&machine, &printed[1], &mut daemon);
    wait_until("the SSD has left", || {
        machine.braid(&["status", "vault"]).status == 0 && {
            machine.json(&["status", "vault"])["devices"].as_array().unwrap().len() == 2
        }
    });
    run(&machine, &printed[2], &mut daemon);
    assert_eq!(daemon.unwrap().wait().status, 0);
    let said = machine.ok(&["forget", "vault"]);
    assert!(commands(&said, &[]).is_empty() && said.contains("disk.img"), "{said}");
    // The SSD now belongs to another volume.
    machine.ok(&["create", "vault", "--adopt", "disk.img", "--ssd", "new.img,size=64MiB"]);
    machine.ok(&["create", "other", "--hdd", "new.img", "--force"]);
    let printed = commands(&refused(&machine, &["forget", "vault"]).stderr, &[]);
    run(&machine, printed.last().unwrap(), &mut None);
}

#[test]
fn printed_import_command_restores_a_forgotten_volume() {
    let machine = Machine::new();
    machine.ok(&["create", "vault", "--ssd", "my disk.img,size=64MiB", "--hdd", "vault.hdd,size=64MiB"]);
    let daemon = machine.serve(&["vault"]);
    machine.ok(&["device", "add", "vault", "--hdd", "more.hdd,size=64MiB"]);
    machine.ok(&["device", "remove", "vault", "d2"]);
    wait_until("it has left", || {
        machine.json(&["status", "vault"])["devices"].as_array().unwrap().len() == 2
    });
    assert_eq!(daemon.terminate().status, 0);
    let said = machine.ok(&["forget", "vault"]);
    let printed = said.split("to import it again: ").nth(1).unwrap().trim();
    // Run in a shell, because a shell removes the quotes.
    let braid = env!("CARGO_BIN_EXE_braid");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &printed.replacen("braid", braid, 1)]).env("BRAID_STATE_DIR", machine.state());
    let ended = crate::machine::run(shell);
    assert_eq!(ended.status, 0, "{printed}: {ended:?}");
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
}

#[test]
fn printed_import_command_works_after_devices_moved() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    for class in ["ssd", "hdd"] {
        let (from, to) = (format!("vault.{class}"), format!("new.{class}"));
        std::fs::rename(machine.path(&from), machine.far_away(&to)).unwrap();
    }
    let ended = machine.braid(&["serve", "vault"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    let printed = commands(&ended.stderr, &[("PATH", "far/new.ssd far/new.hdd")]);
    let import = printed.iter().find(|command| command[0] == "import").unwrap();
    run(&machine, import, &mut None);
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
}

#[test]
fn printed_command_replaces_a_failed_mirror_device() {
    let machine = Machine::new();
    machine.create("vault", &["--copies", "2", "--policy", "raid1"]);
    let mut daemon = Some(machine.serve(&["vault"]));
    let said = machine.ok(&["device", "fail", "vault", "d1"]);
    let printed = commands(&said, &[("PATH", "new.hdd,size=128MiB")]);
    run(&machine, &printed[0], &mut daemon);
    wait_until("all copies are there", || machine.braid(&["status", "vault"]).status == 0);
    assert_eq!(daemon.unwrap().terminate().status, 0);
}

/// The message said "Wait until its copies are up to date", but with one copy of everything this never
/// happens.
#[test]
fn printed_command_removes_device_of_single_copy_volume() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "stripe", "--size", "32MiB"]);
    let mut daemon = Some(machine.serve(&["vault"]));
    qemu_io_ok(&daemon.as_ref().unwrap().uri, &["write -P 6 0 32M", "flush"]);
    let printed = commands(&refused(&machine, &["device", "fail", "vault", "d1"]).stderr, &[]);
    assert_eq!(printed[0].join(" "), "device remove vault d1");
    run(&machine, &printed[0], &mut daemon);
    let daemon = daemon.unwrap();
    qemu_io_ok(&daemon.uri, &["read -P 6 0 32M"]);
    wait_until("it has left", || {
        machine.json(&["status", "vault"])["devices"].as_array().unwrap().len() == 1
    });
    qemu_io_ok(&daemon.uri, &["read -P 6 0 32M"]);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn printed_commands_work_for_taken_names_daemons_and_devices() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let again = ["create", "vault", "--ssd", "more.img,size=64MiB"];
    let printed = commands(&refused(&machine, &again).stderr, &[]);
    let words: Vec<String> = printed.iter().map(|command| command.join(" ")).collect();
    assert_eq!(words, ["status vault", "forget vault"]);
    run(&machine, &printed[0], &mut None);
    let mut daemon = None;
    let printed = commands(&refused(&machine, &["stop", "vault"]).stderr, &[]);
    run(&machine, &printed[0], &mut daemon);
    let printed = commands(&refused(&machine, &["forget", "vault"]).stderr, &[]);
    let said = machine.ok(&["device", "add", "vault", "--hdd", "more.hdd,size=64MiB"]);
    run(&machine, &commands(&said, &[])[0], &mut None);
    let said = machine.ok(&["device", "remove", "vault", "d2"]);
    // First the progress, then the way back.
    for command in commands(&said, &[]).iter().filter(|command| command.len() > 1 && command[0] == "status") {
        run(&machine, command, &mut None);
    }
    run(&machine, &printed[0], &mut None);
    assert_eq!(daemon.unwrap().wait().status, 0);
}

#[test]
fn printed_commands_clean_up_after_a_killed_daemon() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    machine.serve_mounted("vault").kill();
    wait_until("the daemon is gone", || machine.braid(&["status", "vault"]).stdout.contains("DEAD"));
    let mut daemon = None;
    for command in commands(&machine.braid(&["status", "vault"]).stdout, &[]) {
        run(&machine, &command, &mut daemon);
    }
    let mut daemon = daemon.unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    let printed = commands(&refused(&machine, &["stop", "vault"]).stderr, &[]);
    run(&machine, printed.last().unwrap(), &mut None);
    assert_eq!(daemon.wait().status, 0);
}
