//! `kill -9`: flushed data is present afterwards.

use crate::machine::{Daemon, Machine, client, have, qemu_io_ok};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// A client writes one area after another, with a flush after each, and the daemon is killed meanwhile. Every
/// area with an answered flush reads as written.
#[test]
fn flushed_writes_survive_the_death_of_the_daemon() {
    if !have(&["qemu-io"]) {
        return;
    }
    const FLUSHED: usize = 60;
    let machine = Machine::new();
    machine.create("vault", &["--policy", "stripe"]);
    let daemon = machine.serve(&["vault"]);
    let uri = daemon.uri.clone();
    let done = write_until(&uri, FLUSHED, || daemon.kill());
    assert!(done >= FLUSHED);

    let left = machine.json(&["check", "vault"]);
    assert!(left["journal_batches"].as_u64() > Some(1), "nothing is left to replay: {left}");
    let daemon = machine.serve(&["vault"]);
    let read = |i: usize| format!("read -P {} {} {AREA}", pattern(i), place(i));
    let commands: Vec<String> = (done.saturating_sub(AREAS)..done).map(read).collect();
    qemu_io_ok(&daemon.uri, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// Bytes of one area: more than half an extent, so areas share extents.
const AREA: usize = 72 << 10;
/// Number of areas; then writes start again at the first area.
const AREAS: usize = 200;

fn place(i: usize) -> usize {
    // A step that visits every area before the first area returns.
    (i * 37 % AREAS) * AREA
}

fn pattern(i: usize) -> usize {
    i % 251 + 1
}

/// Writes and flushes areas in turn; calls `kill` after `enough` answered flushes. Returns the number of
/// answered flushes.
fn write_until(uri: &str, enough: usize, kill: impl FnOnce()) -> usize {
    let mut qemu = Command::new("qemu-io");
    qemu.args(["-f", "raw", uri]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut qemu = qemu.spawn().unwrap();
    let mut commands = qemu.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for i in 0..AREAS * 5 {
            let (pattern, place) = (pattern(i), place(i));
            // qemu-io prints nothing for a flush: the output of the next command shows the answer.
            let sent = writeln!(commands, "write -P {pattern} {place} {AREA}\nflush\nlength");
            if sent.is_err() {
                return;
            }
        }
    });
    let (mut flushed, mut failed, mut kill) = (0, false, Some(kill));
    for line in BufReader::new(qemu.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        failed |= line.contains("failed") || line.contains("error");
        // Only `length` prints a bare size.
        let is_length = line.trim_start_matches("qemu-io> ").trim().ends_with("MiB") && !line.contains("ops");
        if is_length && !failed {
            flushed += 1;
        }
        if flushed >= enough
            && let Some(kill) = kill.take()
        {
            kill();
        }
        if failed {
            break;
        }
    }
    let _ = qemu.kill();
    let _ = qemu.wait();
    let _ = writer.join();
    flushed
}

/// fio's own verification: one half is written and flushed completely; writes to the other half are in flight
/// at the daemon's death.
#[test]
fn fio_verifies_flushed_writes_after_daemon_kill() {
    if !have(&["fio"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    client("fio", &refs(&fio(&daemon, "0", &["--end_fsync=1", "--do_verify=0"])));
    let mut other = Command::new("fio");
    other.args(fio(&daemon, "48m", &["--fsync=16", "--do_verify=0", "--time_based", "--runtime=60"]));
    let mut other = other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(other.try_wait().unwrap().is_none(), "fio ended too early");
    daemon.kill();
    other.wait().unwrap();

    let daemon = machine.serve(&["vault"]);
    client("fio", &refs(&fio(&daemon, "0", &["--verify_only"])));
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

fn fio(daemon: &Daemon, offset: &str, more: &[&str]) -> Vec<String> {
    let uri = format!("--uri={}", daemon.uri);
    let offset = format!("--offset={offset}");
    let words =
        ["--name=verify", "--ioengine=nbd", &uri, &offset, "--size=48m", "--rw=randwrite", "--bs=12k"];
    let rest =
        ["--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--randseed=11", "--verify_state_save=0"];
    words.iter().chain(&rest).chain(more).map(|&word| word.to_owned()).collect()
}

fn refs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
