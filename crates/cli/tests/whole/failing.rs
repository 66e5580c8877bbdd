//! A device fails while the volume is served: the failure is logged, and no flush succeeds despite lost data.

use crate::machine::{Machine, have_block_devices};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A device file was truncated while the volume was served: writes extended the file again, flushes
/// succeeded, and nothing was logged.
#[test]
fn a_truncated_device_fails_flushes_and_is_logged_once() {
    if !have_block_devices() {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "hdd-only"]);
    let daemon = machine.serve(&["vault", "--cache", "0"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    let block_device = File::options().read(true).write(true).open(&device).unwrap();
    block_device.write_all_at(&[7; 1 << 20], 0).unwrap();
    block_device.sync_all().unwrap();
    File::options().write(true).open(machine.path("vault.hdd")).unwrap().set_len(1 << 20).unwrap();
    for attempt in 0..20 {
        let written = block_device.write_all_at(&[8; 4096], attempt * 4096);
        assert!(written.and_then(|()| block_device.sync_all()).is_err(), "attempt {attempt}");
    }
    assert_eq!(std::fs::metadata(machine.path("vault.hdd")).unwrap().len(), 1 << 20, "it was extended");
    drop(block_device);
    let ended = daemon.terminate();
    assert_eq!(ended.status, 3, "{ended:?}");
    let lines =
        ended.stderr.lines().filter(|line| line.contains("ERROR") && line.contains("vault.hdd")).count();
    assert!((1..10).contains(&lines), "{lines} lines: {}", ended.stderr);
}
