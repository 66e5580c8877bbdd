//! The volume as a block device by ublk. This machine's kernel need not have the driver: a virtual machine
//! boots a kernel with the driver, once for all tests, and runs `ublk.sh`. Each test is about a step of the
//! job. If the virtual machine cannot run here, the tests print `SKIPPED` and the reason.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Exit status of `scripts/guest` if this machine cannot run the virtual machine.
const CANNOT: i32 = 77;

/// Result of the virtual machine.
enum Guest {
    /// Console output.
    Ran(String),
    /// Reason.
    Cannot(String),
}

/// Fails if the step of the guest's job did not hold. Reports the test as skipped, past the capture of its
/// output, if there is no guest.
fn holds(step: &str) {
    match guest() {
        Guest::Cannot(why) => skip(why),
        Guest::Ran(console) => {
            let held = console.lines().any(|line| line.starts_with(&format!("@@ok {step} ")));
            assert!(held, "step '{step}' did not hold:\n{console}");
        }
    }
}

fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

fn guest() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(run_guest)
}

fn run_guest() -> Guest {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/ublk.sh");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/guest");
    let programs = ["fio", "mke2fs"].map(find);
    let Some(mut programs) = programs.into_iter().collect::<Option<Vec<_>>>() else {
        return Guest::Cannot("fio or mke2fs is not installed".to_owned());
    };
    programs.extend(find("mkfs.xfs"));
    let mut command = Command::new(script);
    command.arg(tests).arg(env!("CARGO_BIN_EXE_braid")).args(programs).stdin(Stdio::null());
    if let Ok(upgrades) = std::env::var("BRAID_UPGRADES") {
        command.env("GUEST_WORDS", format!("upgrades={upgrades}")).env("GUEST_SECONDS", "7200");
    }
    let output = command.output().expect("the script of this repository runs");
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.code() == Some(CANNOT) { Guest::Cannot(problem) } else { Guest::Ran(console + &problem) }
}

fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|place| place.join(program)).find(|path| path.exists())
}

#[test]
fn attach_prefers_ublk_and_loads_the_driver() {
    holds("attach");
}

#[test]
fn fio_verifies_a_ublk_device_and_discards_it() {
    holds("verify");
}

/// Without recovery by the kernel, fio ended with an error; without the pending log, with wrong bytes.
#[test]
fn fio_sees_no_error_while_daemons_are_killed() {
    holds("kill");
}

/// With all places for requests in use, Linux 6.12 notices the death only when a request times out.
#[test]
fn fio_sees_no_error_if_all_places_are_in_use_at_the_death() {
    holds("full");
}

#[test]
fn daemon_may_die_at_any_moment_of_a_take_over() {
    holds("moments");
}

#[test]
fn mounted_file_system_outlives_daemons_that_end_by_signals() {
    holds("successor");
}

#[test]
fn ublk_device_in_use_is_not_detached() {
    holds("cycles");
}

#[test]
fn unused_ublk_device_goes_with_its_daemon() {
    holds("unused");
}

#[test]
fn ublk_device_of_a_dead_daemon_is_given_up_by_force_only() {
    holds("dead");
}

#[test]
fn ublk_device_of_a_temporary_volume_ends_with_its_daemon() {
    holds("temporary");
}

#[test]
fn size_of_a_ublk_device_changes_if_the_driver_can() {
    holds("size");
}

#[test]
fn metadata_flag_of_requests_reaches_the_policy() {
    match find("mkfs.xfs") {
        Some(_) => holds("metadata"),
        None => skip("mkfs.xfs is not installed"),
    }
}

#[test]
fn loop_device_stays_a_choice_beside_ublk() {
    holds("loop");
}
