//! What a request costs on its way through loop device and FUSE, over an export that does next to nothing:
//! `cargo test --release -p braid-fuse --test kernel measure -- --ignored --nocapture`.

use crate::machine::{Machine, Setup, fio, iops};
use braid_base::GIB;

#[test]
#[ignore = "a measurement, of half a minute"]
fn measure_requests_per_second() {
    let Some(machine) = Machine::start(Setup::of(GIB), &["fio"]) else { return };
    let device = machine.attach();
    fio(&device, &["--rw=write", "--bs=1m", "--size=1g"]);
    let timed = ["--ioengine=io_uring", "--runtime=4", "--time_based"];
    for rw in ["randread", "randwrite"] {
        for depth in [1, 64] {
            let how = [format!("--rw={rw}"), format!("--iodepth={depth}"), "--bs=4k".to_owned()];
            let report = fio(&device, &[&timed[..], &how.each_ref().map(String::as_str)].concat());
            println!("{rw} 4 KiB, depth {depth}: {:.0} requests/s", iops(&report));
        }
    }
    for rw in ["read", "write"] {
        let how = [format!("--rw={rw}"), "--iodepth=8".to_owned(), "--bs=1m".to_owned()];
        let report = fio(&device, &[&timed[..], &how.each_ref().map(String::as_str)].concat());
        println!("{rw} 1 MiB, depth 8: {:.0} MiB/s", iops(&report));
    }
}
