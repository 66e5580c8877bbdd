//! `braid detach` while another program looks at the block device in passing, as udev does, and a `braid`
//! that searches for the devices of its volume.

use crate::machine::{Machine, have_block_devices, run};
use crate::namespace::without_copies;
use crate::replace::wait_until;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Detaches the volume `vault` while `held` is open, until `is_over`.
fn detach_beside(machine: &Machine, held: File, is_over: impl FnMut() -> bool) {
    let detach = machine.command(&["detach", "vault"]);
    let detaching = std::thread::spawn(move || {
        let _unused = without_copies();
        run(detach)
    });
    wait_until("the detach", is_over);
    drop(held);
    let ended = detaching.join().unwrap();
    assert_eq!(ended.status, 0, "{ended:?}");
}

fn loop_file(device: &str, name: &str) -> Option<String> {
    let device = Path::new(device).file_name().unwrap();
    let file = Path::new("/sys/class/block").join(device).join("loop").join(name);
    std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// `detach` gave up at once if another program had exclusive access to the loop device, or had the daemon's
/// file open after the loop device was gone.
#[test]
fn detach_waits_for_programs_that_look_in_passing() {
    if !have_block_devices() {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let attach = || machine.ok(&["attach", "vault"]).trim().to_owned();

    // The kernel lets the device go when the last program closes it.
    let device = attach();
    let open = File::open(&device).unwrap();
    detach_beside(&machine, open, || loop_file(&device, "autoclear").as_deref() == Some("1"));

    // A short exclusive access. If `detach` starts later than the access ends, nothing is tested.
    let device = attach();
    let exclusive = OFlags::EXCL.bits() as i32;
    let claim = OpenOptions::new().read(true).custom_flags(exclusive).open(&device).unwrap();
    let mut looks = 0;
    detach_beside(&machine, claim, || {
        looks += 1;
        std::thread::sleep(Duration::from_millis(100));
        looks > 8
    });

    // The file beneath, which a search opens to lock the range of the loop device.
    let device = attach();
    let file = File::open(machine.state().join("vault/mount/volume")).unwrap();
    detach_beside(&machine, file, || loop_file(&device, "backing_file").is_none());
    machine.refused(&["detach", "vault"], "invalid", &["vault"]);
    assert_eq!(daemon.terminate().status, 0);
}
