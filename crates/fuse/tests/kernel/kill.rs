//! The daemon is killed under load: requests fail and nothing hangs; what is left can be found and removed.

use crate::machine::{Machine, Setup, fio, run, within};
use braid_base::MIB;
use braid_fuse::{Attachment, Use, stale};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn requests_fail_at_once_and_a_restart_serves_again() {
    let Some(mut machine) = Machine::start(Setup::of(MIB * 64), &["fio"]) else { return };
    let device = machine.attach();
    let mut load = Command::new("timeout")
        .args(["60", "fio", "--name=t", "--direct=1", "--ioengine=io_uring", "--rw=randrw", "--bs=4k"])
        .args(["--iodepth=64", "--runtime=50", "--time_based"])
        .arg(format!("--filename={}", device.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(load.try_wait().unwrap().is_none(), "fio runs");
    let killed = Instant::now();
    machine.kill();
    within(Duration::from_secs(5), "fio ends", || load.try_wait().unwrap().is_some());
    println!("fio ended {:?} after the kill", killed.elapsed());
    assert!(!load.wait().unwrap().success());

    let left = stale(&machine.served()).unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].device.clone(), left[0].uses.as_slice()), (device, &[][..]));
    machine.serve();
    assert_eq!(stale(&machine.served()).unwrap(), left, "also once the dead mount is gone");
    let device = machine.attach();
    assert_eq!(stale(&machine.served()).unwrap(), []);
    fio(&device, &["--ioengine=io_uring", "--rw=randwrite", "--bs=4k", "--size=64m", "--verify=crc32c"]);
    machine.attachment().detach().unwrap();
}

#[test]
fn stale_device_is_removed_with_the_last_mount() {
    let Some(mut machine) = Machine::start(Setup::of(MIB * 64), &["mkfs.ext4"]) else { return };
    let device = machine.attach();
    run("mkfs.ext4", &[&"-q", &device]);
    let point = machine.mount_point("point");
    braid_fuse::mount(&device, &point.0).unwrap();
    machine.kill();
    let refused = machine.attachment().detach().unwrap_err().to_string();
    assert!(refused.contains(&point.0.display().to_string()), "{refused}");
    machine.serve();
    let fresh = machine.attach();
    assert_ne!(fresh, device);
    let left = stale(&machine.served()).unwrap();
    assert_eq!(left[0].uses, [Use::Mounted(point.0.clone())]);
    point.unmount();
    within(Duration::from_secs(5), "the stale device goes", || stale(&machine.served()).unwrap().is_empty());
    assert_eq!(machine.attachment().device().unwrap(), Some(fresh));
}

#[test]
fn repeated_crashes_leave_no_stale_device() {
    let Some(mut machine) = Machine::start(Setup::of(MIB), &[]) else { return };
    for _ in 0..5 {
        machine.attach();
        machine.kill();
        machine.serve();
    }
    machine.attach();
    assert_eq!(stale(&machine.served()).unwrap(), []);
}
