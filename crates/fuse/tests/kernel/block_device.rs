//! The block device as programs see it: bytes, size, discards, many requests at once, attaching and
//! detaching.

use crate::file_export::MET;
use crate::machine::{Machine, Setup, fio, output, run};
use braid_base::{GIB, MIB, Rng};
use braid_fuse::{Attachment, Use, uses};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

#[test]
fn bytes_come_back_and_the_size_is_visible() {
    let Some(machine) = Machine::start(Setup::of(MIB * 256), &["fio", "blockdev"]) else { return };
    let device = machine.attach();
    assert_eq!(run("blockdev", &[&"--getsize64", &device]).trim(), (256 << 20).to_string());
    assert_eq!(run("blockdev", &[&"--getss", &device]).trim(), "4096");
    let mixed = ["--ioengine=io_uring", "--rw=randrw", "--bsrange=4k-1m", "--iodepth=32", "--verify=crc32c"];
    fio(&device, &[&mixed[..], &["--size=256m", "--randseed=1", "--do_verify=1"]].concat());
}

#[test]
fn volume_file_accepts_requests_of_any_offset_and_length() {
    let Some(machine) = Machine::start(Setup::of(MIB * 8), &[]) else { return };
    let file = machine.served().join("volume");
    let opened = OpenOptions::new().read(true).write(true).open(&file).unwrap();
    assert_eq!(opened.metadata().unwrap().size(), 8 << 20);
    assert_eq!(
        fs::read_dir(machine.served()).unwrap().map(|entry| entry.unwrap().file_name()).last().unwrap(),
        "volume"
    );
    let mut expected = vec![0; 8 << 20];
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let len = rng.between(1, 2_500_000) as usize;
        let at = rng.below((expected.len() - len) as u64) as usize;
        rng.fill(&mut expected[at..at + len]);
        opened.write_all_at(&expected[at..at + len], at as u64).unwrap();
    }
    assert!(fs::read(&file).unwrap() == expected);
    let beyond = opened.write_all_at(&[1; 100], (8 << 20) - 50).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert!(opened.set_len(1).is_err() && fs::read(&file).unwrap() == expected);
}

#[test]
fn a_discard_frees_and_zeroing_reads_as_zeros() {
    let Some(machine) = Machine::start(Setup::of(MIB * 64), &["blkdiscard"]) else { return };
    let device = machine.attach();
    let taken = || fs::metadata(machine.store()).unwrap().blocks() * 512;
    fs::write(&device, vec![7; 64 << 20]).unwrap();
    File::open(&device).unwrap().sync_all().unwrap();
    assert_eq!(taken(), 64 << 20);
    run("blkdiscard", &[&"-o", &"16MiB", &"-l", &"32MiB", &device]);
    assert_eq!(taken(), 32 << 20);
    let file = File::open(machine.served().join("volume")).unwrap();
    let seek = |from| rustix::fs::seek(&file, from).unwrap();
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), 16 << 20);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(16 << 20)), 48 << 20);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(48 << 20)), 64 << 20);

    run("blkdiscard", &[&"--zeroout", &"-o", &"56MiB", &"-l", &"4MiB", &device]);
    let mut expected = vec![7; 64 << 20];
    expected[16 << 20..48 << 20].fill(0);
    expected[56 << 20..60 << 20].fill(0);
    assert!(fs::read(&device).unwrap() == expected);
}

#[test]
fn many_requests_are_in_flight() {
    for rw in ["--rw=randread", "--rw=randwrite"] {
        let patient = Setup { together: 24, ..Setup::of(MIB * 64) };
        let Some(mut machine) = Machine::start(patient, &["fio"]) else { return };
        let device = machine.attach();
        fio(&device, &[rw, "--ioengine=io_uring", "--bs=4k", "--iodepth=32", "--number_ios=2000"]);
        machine.attachment().detach().unwrap();
        run("umount", &[&machine.served()]);
        assert!(machine.says(MET), "24 of 32 requests never were in flight at the same time");
        machine.wait_for_end();
    }
}

#[test]
fn second_attach_returns_same_device_and_detach_removes_device() {
    let Some(mut machine) = Machine::start(Setup::of(MIB * 64), &["umount"]) else { return };
    let attachment = machine.attachment();
    assert_eq!(attachment.device().unwrap(), None);
    let device = attachment.attach().unwrap();
    assert_eq!(attachment.attach().unwrap(), device);
    assert_eq!(attachment.device().unwrap(), Some(device.clone()));
    assert!(!output("umount", &[&machine.served()]).status.success(), "the loop device holds the mount");
    attachment.detach().unwrap();
    assert_eq!(attachment.device().unwrap(), None);
    let size =
        fs::read_to_string(Path::new("/sys/class/block").join(device.file_name().unwrap()).join("size"));
    assert_eq!(size.unwrap().trim(), "0");
    assert!(attachment.detach().is_err());
    run("umount", &[&machine.served()]);
    machine.wait_for_end();
    assert!(attachment.attach().unwrap_err().to_string().contains("braid serve"));
}

#[test]
fn a_mounted_device_is_not_detached() {
    let Some(machine) = Machine::start(Setup::of(MIB * 64), &["mkfs.ext4"]) else { return };
    let device = machine.attach();
    let no_file_system = braid_fuse::mount(&device, &machine.served()).unwrap_err();
    assert!(no_file_system.to_string().contains("mkfs.ext4"));
    run("mkfs.ext4", &[&"-q", &device]);
    let point = machine.mount_point("a place with blanks");
    braid_fuse::mount(&device, &point.0).unwrap();
    let refused = machine.attachment().detach().unwrap_err().to_string();
    assert!(refused.contains(&point.0.display().to_string()), "{refused}");
    assert_eq!(uses(&device).unwrap(), [Use::Mounted(point.0.clone())]);
    point.unmount();
    machine.attachment().detach().unwrap();
}

#[test]
fn volume_formatted_with_512_byte_sectors_keeps_sector_size() {
    let Some(machine) = Machine::start(Setup::of(GIB), &["mkfs.xfs", "blockdev"]) else { return };
    run("mkfs.xfs", &[&"-q", &"-f", &"-s", &"size=512", &machine.store()]);
    let device = machine.attach();
    assert_eq!(run("blockdev", &[&"--getss", &device]).trim(), "512");
    let point = machine.mount_point("point");
    assert_eq!(braid_fuse::mount(&device, &point.0).unwrap().name(), "xfs");
    point.unmount();
}

#[test]
fn daemon_is_protected_from_reclaim_or_reports_the_failure() {
    let Some(machine) = Machine::start(Setup { protected: true, ..Setup::of(MIB) }, &[]) else { return };
    let of_daemon = |name| fs::read_to_string(format!("/proc/{}/{name}", machine.daemon_id())).unwrap();
    let complained = |what| machine.said.iter().any(|line| line.contains(what));
    let status = of_daemon("status");
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    let kib: u64 = locked.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(complained("could not lock memory") != (kib > 64 << 10), "the arena and all else: {locked}");
    let lowest = of_daemon("oom_score_adj").trim() == "-1000";
    assert!(complained("could not lower the out-of-memory score") != lowest);
    // PF_MEMALLOC_NOIO, of the thread that asked for it: a test does not run on the first one.
    let is_marked = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
        let flags: u64 = stat.rsplit(") ").next().unwrap().split(' ').nth(6).unwrap().parse().unwrap();
        flags & 0x0008_0000 != 0
    };
    let threads = fs::read_dir(format!("/proc/{}/task", machine.daemon_id())).unwrap();
    let is_flusher = threads.flatten().any(is_marked);
    assert!(complained("could not declare an I/O flusher") != is_flusher);
}
