//! Tests the commands of the README, the guide and the pages of policies.
//!
//! The `sh` blocks of a page, in order, form a script. The script runs in a directory of its own, with files
//! in place of the devices in `/dev/disk/by-id`. Line n of the script is line n of the page: a failure names
//! the line.
//!
//! | in a page | meaning |
//! |---|---|
//! | `sh` | each command succeeds |
//! | `sh exits-3` | each line ends with this exit status |
//! | `sh untested` | not run; a comment in its first line says why |
//! | `<!-- sh: COMMAND -->` | run, and not shown: the state in which a reader comes to the page |
//!
//! After `braid serve NAME &`, the script waits until the volume is ready, as the guide advises.

use crate::machine::{Machine, have, have_block_devices, number, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of untested blocks of all pages: such blocks need a load, a recording, an init system or minutes.
const UNTESTED_BLOCKS: usize = 9;
const MIB: u64 = 1 << 20;
/// Programs other than `braid` in pages, not present on every machine.
const PROGRAMMES: [&str; 6] = ["mkfs.ext4", "nbdcopy", "nbdinfo", "fio", "qemu-img", "jq"];

macro_rules! pages {
    ($($test:ident: $page:literal),* $(,)?) => {
        /// All pages with commands.
        const PAGES: &[&str] = &[$($page),*];
        mod commands_work_in { $(#[test] fn $test() { super::follow($page); })* }
    };
}

pages! {
    readme: "README.md",
    guide_advise: "docs/guide/advise.md",
    guide_another_host: "docs/guide/another-host.md",
    guide_at_boot: "docs/guide/at-boot.md",
    guide_back_up: "docs/guide/back-up.md",
    guide_block_device: "docs/guide/block-device.md",
    guide_cache_before_a_disk: "docs/guide/cache-before-a-disk.md",
    guide_choose_a_policy: "docs/guide/choose-a-policy.md",
    guide_configuration: "docs/guide/configuration.md",
    guide_devices: "docs/guide/devices.md",
    guide_disk_changed: "docs/guide/disk-changed.md",
    guide_disk_failed: "docs/guide/disk-failed.md",
    guide_first_volume: "docs/guide/first-volume.md",
    guide_grow: "docs/guide/grow.md",
    guide_host_died: "docs/guide/host-died.md",
    guide_mirror: "docs/guide/mirror.md",
    guide_nbd: "docs/guide/nbd.md",
    guide_pass: "docs/guide/pass.md",
    guide_pass_epochs: "docs/guide/pass-epochs.md",
    guide_recover: "docs/guide/recover.md",
    guide_second_machine: "docs/guide/second-machine.md",
    guide_repair: "docs/guide/repair.md",
    guide_ssd_failed: "docs/guide/ssd-failed.md",
    guide_ssd_failed_single_copy: "docs/guide/ssd-failed-single-copy.md",
    guide_status: "docs/guide/status.md",
    guide_take_braid_off: "docs/guide/take-braid-off.md",
    guide_tls: "docs/guide/tls.md",
    guide_upgrade: "docs/guide/upgrade.md",
    guide_virtual_machines: "docs/guide/virtual-machines.md",
    policy_cache: "docs/policies/cache.md",
    policy_colloid: "docs/policies/colloid.md",
    policy_equi: "docs/policies/equi.md",
    policy_exclusive: "docs/policies/exclusive.md",
    policy_fixed: "docs/policies/fixed.md",
    policy_hystor: "docs/policies/hystor.md",
    policy_most: "docs/policies/most.md",
    policy_orthus: "docs/policies/orthus.md",
    policy_pass: "docs/policies/pass.md",
    policy_raid1: "docs/policies/raid1.md",
    policy_ssd_first: "docs/policies/ssd-first.md",
    policy_wardrop: "docs/policies/wardrop.md",
    policy_working_set: "docs/policies/working-set.md",
}

#[test]
fn every_page_with_commands_is_run() {
    let folders = ["docs/guide", "docs/policies"];
    let mut found = vec!["README.md".to_owned()];
    for folder in folders {
        let pages = std::fs::read_dir(root().join(folder)).unwrap();
        let names = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
        found.extend(names.map(|name| format!("{folder}/{name}")));
    }
    found.retain(|name| lines(name).iter().any(|line| matches!(line, Line::Run { .. })));
    found.sort();
    let mut listed = PAGES.to_vec();
    listed.sort_unstable();
    assert_eq!(listed, found, "the list of pages in guide.rs");
}

#[test]
fn every_page_is_in_the_book() {
    let contents = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for folder in ["guide", "policies", "design"] {
        for page in std::fs::read_dir(root().join("docs").join(folder)).unwrap() {
            let name = format!("{folder}/{}", page.unwrap().file_name().to_str().unwrap());
            assert!(contents.contains(&format!("]({name})")), "docs/SUMMARY.md does not list {name}");
        }
    }
}

/// Figures of a simulation are equal on every machine, so the README must show current figures. The test
/// checks two rows only: without optimisation the whole command takes minutes.
#[test]
fn readme_table_matches_the_simulation() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let from = readme.find("braid simulate").expect("the README has the command of its table");
    let length = readme[from..].find("\n```").expect("its block ends");
    let command = readme[from..from + length].replace("\\\n", " ");
    let policies = command.find("--policy").expect("it names policies");
    let mut words: Vec<&str> = command[..policies].split_whitespace().skip(1).collect();
    for policy in ["ssd-first", "hdd-only"] {
        assert!(command[policies..].contains(policy), "the command has {policy}");
        words.extend(["--policy", policy]);
    }
    let report = Machine::new().json(&words);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(2), "one run for each");
    for run in report["runs"].as_array().unwrap() {
        let policy = run["given"]["policy"].as_str().unwrap();
        let rate = format!("{:.0}", number(run, "requests_per_second"));
        let rate = format!("{},{}", &rate[..rate.len() - 3], &rate[rate.len() - 3..]);
        let ms = |field| number(run, field) / 1e6;
        let (mean, p99) = (ms("all.latency_ns_mean"), ms("all.latency_ns_p99"));
        let row = format!(" | {rate} | {mean:.1} ms | {p99:.1} ms |");
        let found =
            readme.lines().any(|line| line.starts_with(&format!("| `{policy}`")) && line.ends_with(&row));
        assert!(found, "the README's row of {policy} should end with {row}");
    }
}

#[test]
fn few_blocks_are_untested_and_each_says_why() {
    let mut blocks = Vec::new();
    for page in PAGES {
        let lines = lines(page);
        for (number, pair) in lines.windows(2).enumerate() {
            if pair[0] == Line::Untested {
                let place = format!("{page}:{}", number + 2);
                let reason = matches!(&pair[1], Line::Other(text) if text.starts_with("# "));
                assert!(reason, "{place}: an untested block begins with a comment that says why");
                blocks.push(place);
            }
        }
    }
    assert!(blocks.len() <= UNTESTED_BLOCKS, "{} untested blocks: {blocks:?}", blocks.len());
}

#[test]
fn failed_guide_command_is_reported_with_page_and_line() {
    let machine = Machine::new();
    let page = "# Page\n\n```sh\ntrue\n```\n\n```sh exits-2\nbraid --no-such-option\nbraid --version\n```\n";
    let ended = run_page(&machine, "page.md", &parse("page.md", page));
    assert_ne!(ended.status, 0);
    assert!(ended.stderr.contains("page.md:9: "), "{}", ended.stderr);
    assert!(ended.stderr.contains("exit status 0, not 2: braid --version"), "{}", ended.stderr);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A line of a page.
#[derive(Debug, PartialEq)]
enum Line {
    /// A command, and its expected exit status.
    Run {
        command: String,
        exit: u8,
    },
    /// The fence of an untested block.
    Untested,
    Other(String),
}

fn lines(page: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    parse(page, &text)
}

fn parse(page: &str, text: &str) -> Vec<Line> {
    // `Some` within a fenced block; the inner value is the exit status of its commands, `None` if not run.
    let mut block: Option<Option<u8>> = None;
    let read = |(number, line): (usize, &str)| {
        let other = Line::Other(line.to_owned());
        let hidden = line.strip_prefix("<!-- sh: ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(command) = hidden {
            return Line::Run { command: command.to_owned(), exit: 0 };
        }
        let Some(fence) = line.strip_prefix("```") else {
            return match block {
                Some(Some(exit)) if !line.is_empty() && !line.starts_with('#') => {
                    Line::Run { command: line.to_owned(), exit }
                }
                _ => other,
            };
        };
        let exit = match fence.strip_prefix("sh").map(str::trim) {
            _ if block.is_some() => None,
            Some("") => Some(0),
            Some("untested") => {
                block = Some(None);
                return Line::Untested;
            }
            Some(words) => {
                let status = words.strip_prefix("exits-").and_then(|status| status.parse().ok());
                Some(status.unwrap_or_else(|| panic!("{page}:{}: unknown fence {line}", number + 1)))
            }
            None => None,
        };
        block = if block.is_some() { None } else { Some(exit) };
        other
    };
    text.lines().enumerate().map(read).collect()
}

/// Runs a page, if this machine meets the needs of its commands.
fn follow(page: &str) {
    let lines = lines(page);
    let says =
        |word: &str| lines.iter().any(|l| matches!(l, Line::Run { command, .. } if command.contains(word)));
    let needed: Vec<&str> = PROGRAMMES.into_iter().filter(|programme| says(programme)).collect();
    if !have(&needed) || (says("/mnt") || says("attach")) && !have_block_devices() {
        return;
    }
    let machine = Machine::new();
    let ended = run_page(&machine, page, &lines);
    assert_eq!(ended.status, 0, "{page}:\n{}\n{}", ended.stdout, ended.stderr);
}

/// Sourced before a page's commands: errors end the script and name the line, daemons end with the script,
/// and `served` waits for a daemon.
const PRELUDE: &str = r#"
unset BASH_ENV
set -Eeuo pipefail
trap 'echo "PAGE:$LINENO: $BASH_COMMAND" >&2' ERR
trap 'kill $(jobs -p) 2> /dev/null || true; wait || true' EXIT
served() {
  for _ in $(seq 600); do
    case "$(braid status "$1" --json 2> /dev/null || true)" in *'"served":true'*) return ;; esac
    sleep 0.1
  done
  echo "$1 is not served" >&2
  return 1
}
expect() {
  local want=$1 got=0
  shift
  "$@" || got=$?
  [ $got = $want ] || { echo "exit status $got, not $want: $*" >&2; return 1; }
}
"#;

fn run_page(machine: &Machine, page: &str, lines: &[Line]) -> crate::machine::Ended {
    let (by_id, mnt) = (machine.path("by-id"), machine.path("mnt"));
    std::fs::create_dir(&by_id).unwrap();
    std::fs::create_dir(&mnt).unwrap();
    for (class, size) in [("SSD", 256 * MIB), ("HDD", 1024 * MIB)] {
        for (number, more) in [("", 0), ("2", 64), ("3", 64), ("4", 64)] {
            let file = std::fs::File::create(by_id.join(format!("ata-{class}{number}"))).unwrap();
            file.set_len(size + more * MIB).unwrap();
        }
    }
    let place = |text: &str| {
        let text = text.replace("/dev/disk/by-id", by_id.to_str().unwrap());
        text.replace("/mnt", mnt.to_str().unwrap())
    };
    let shell = |line: &Line| match line {
        Line::Run { command, exit } => {
            let command = command.split("  #").next().unwrap_or(command).trim_end();
            let expect = if *exit == 0 { String::new() } else { format!("expect {exit} ") };
            format!("{expect}{}{}", place(command), wait_after(command))
        }
        Line::Untested | Line::Other(_) => String::new(),
    };
    let script: Vec<String> = lines.iter().map(shell).collect();
    let file = machine.path("page.sh");
    let prelude = machine.path("prelude.sh");
    std::fs::write(&file, script.join("\n") + "\n").unwrap();
    std::fs::write(&prelude, PRELUDE.replace("PAGE", page)).unwrap();
    let programme = Path::new(env!("CARGO_BIN_EXE_braid")).parent().unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", programme.display(), std::env::var("PATH").unwrap());
    // A hanging page ends with its daemons: `timeout` signals all processes.
    let mut command = Command::new("timeout");
    command.args(["240", "bash"]).arg(&file).current_dir(machine.path(""));
    command.env("PATH", path).env("BASH_ENV", prelude).env_remove("BRAID_LOG");
    command.env("BRAID_STATE_DIR", machine.state()).env("BRAID_RUNTIME_DIR", machine.runtime());
    command.env("BRAID_CONFIG_DIR", machine.path("config"));
    run(command)
}

/// Wait after `braid serve NAME … &`, as by a reader; empty for other commands.
fn wait_after(command: &str) -> String {
    let name = command.strip_prefix("braid serve ").filter(|rest| rest.ends_with('&'));
    name.and_then(|rest| rest.split(' ').next()).map(|name| format!(" served {name}")).unwrap_or_default()
}
