//! Real clients against the server: libnbd, qemu, fio.

mod support;

use braid_base::{GIB, MIB, Nanos};
use serde_json::Value;
use std::fs;
use support::{Kind, Running, Setup, installed, run_client};

#[test]
fn nbdinfo_shows_flags_sizes_and_contexts() {
    if !installed("nbdinfo", "libnbd-bin") {
        return;
    }
    let server = Running::start(Setup::default());
    let shown = run_client("nbdinfo", &["--json", &server.uri()]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("nbdinfo writes JSON");
    assert_eq!(shown["protocol"], "newstyle-fixed");
    assert_eq!(shown["structured"], true);
    let export = &shown["exports"][0];
    assert_eq!(export["export-name"], "vol");
    assert_eq!(export["export-size"], MIB.0 * 64);
    assert_eq!(export["contexts"][0], "base:allocation");
    for can in ["cache", "df", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert_eq!(export[format!("can_{can}")], true, "{can}: {export}");
    }
    assert_eq!(export["can_fast_zero"], false);
    assert_eq!(export["is_read_only"], false);
    let sizes =
        ["block_size_minimum", "block_size_preferred", "block_size_maximum"].map(|name| &export[name]);
    assert_eq!(sizes, [&Value::from(1), &Value::from(4096), &Value::from(32 << 20)]);
}

#[test]
fn nbdinfo_lists_the_export() {
    if !installed("nbdinfo", "libnbd-bin") {
        return;
    }
    let server = Running::start(Setup::default());
    let uri = format!("nbd+unix:///?socket={}", server.socket.display());
    let listed = run_client("nbdinfo", &["--list", "--json", &uri]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("nbdinfo writes JSON");
    assert_eq!(listed["exports"][0]["export-name"], "vol");
}

#[test]
fn tcp_export_has_the_expected_size() {
    if !installed("nbdinfo", "libnbd-bin") {
        return;
    }
    let server = Running::start(Setup::default());
    let shown = run_client("nbdinfo", &["--size", &format!("nbd://127.0.0.1:{}/vol", server.port)]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), (MIB.0 * 64).to_string());
    server.stop();
}

/// An image of `size` MiB: a third data, the rest holes.
fn sparse_image(path: &std::path::Path, mib: usize) -> Vec<u8> {
    let mut image = vec![0u8; mib << 20];
    for (at, byte) in image.iter_mut().enumerate() {
        if (at >> 20).is_multiple_of(3) {
            *byte = (at.wrapping_mul(2_654_435_761) >> 7) as u8 | 1;
        }
    }
    fs::write(path, &image).expect("room for the image");
    image
}

#[test]
fn nbdcopy_round_trips_a_sparse_image() {
    if !installed("nbdcopy", "libnbd-bin") {
        return;
    }
    for kind in [Kind::Fast, Kind::Slow(Nanos::from_micros(200))] {
        let server = Running::start(Setup { kind, ..Setup::default() });
        let directory = tempfile::tempdir().expect("a directory");
        let (there, back) = (directory.path().join("there"), directory.path().join("back"));
        let image = sparse_image(&there, 64);
        run_client("nbdcopy", &[there.to_str().unwrap(), &server.uri()]);
        run_client("nbdcopy", &[&server.uri(), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == image, "{kind:?}: the image has changed");
        let map = run_client("nbdinfo", &["--map", "--json", &server.uri()]);
        let map: Value = serde_json::from_slice(&map.stdout).expect("nbdinfo writes JSON");
        let extents = map.as_array().expect("a list of extents");
        assert_eq!(extents.len(), 43, "22 MiB of data apart, and the holes between: {map}");
        assert!(extents.iter().step_by(2).all(|extent| extent["type"] == 0 && extent["length"] == MIB.0));
        server.stop();
    }
}

#[test]
fn qemu_io_reads_back_written_zeroed_and_discarded_ranges() {
    if !installed("qemu-io", "qemu-utils") {
        return;
    }
    let server = Running::start(Setup::default());
    let commands = [
        "write -P 0xaa 0 1M",
        "write -P 0xbb 12345 777",
        "read -P 0xaa 0 12345",
        "read -P 0xbb 12345 777",
        "write -f -P 0xcc 5M 4M",
        "write -z 6M 64k",
        "write -z -u 7M 64k",
        "read -P 0 6M 64k",
        "read -P 0 7M 64k",
        "read -P 0xcc 5M 1M",
        "discard 8M 64k",
        "read -P 0 8M 64k",
        "flush",
        "write -P 0xdd 16M 32M",
        "read -P 0xdd 16M 32M",
        "aio_write -P 0x11 50M 2M",
        "aio_write -P 0x22 52M 2M",
        "aio_flush",
        "read -P 0x11 50M 2M",
        "read -P 0x22 52M 2M",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let uri = server.uri();
    arguments.push(&uri);
    let output = run_client("qemu-io", &arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("erification failed") && !said.contains("rror"), "{said}");
    let state = server.state();
    assert_eq!(state.counters.errors, 0);
}

#[test]
fn qemu_io_gets_an_error_for_a_bad_place_and_goes_on() {
    if !installed("qemu-io", "qemu-utils") {
        return;
    }
    let server = Running::start(Setup { kind: Kind::Broken, ..Setup::default() });
    let commands = ["-c", "read 2M 4M", "-c", "write 2M 4M", "-c", "write -P 7 0 1M", "-c", "read -P 7 0 1M"];
    let output = std::process::Command::new("qemu-io")
        .args(["-f", "raw"])
        .args(commands)
        .arg(server.uri())
        .output()
        .expect("qemu-io runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("read failed: Input/output error"), "{said}");
    assert!(said.contains("write failed: Input/output error"), "{said}");
    assert!(said.contains("read 1048576/1048576"), "{said}");
}

#[test]
fn qemu_img_converts_through_the_server() {
    if !installed("qemu-img", "qemu-utils") {
        return;
    }
    let server = Running::start(Setup { size: MIB * 32, ..Setup::default() });
    let directory = tempfile::tempdir().expect("a directory");
    let (there, back) = (directory.path().join("there.raw"), directory.path().join("back.qcow2"));
    sparse_image(&there, 32);
    let (there, back, uri) = (there.to_str().unwrap(), back.to_str().unwrap(), server.uri());
    run_client("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", there, &uri]);
    run_client("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, back]);
    run_client("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", there, back]);
}

#[test]
fn fio_verifies_random_writes_over_nbd() {
    if !installed("fio", "fio") {
        return;
    }
    for (kind, depth) in [(Kind::Fast, 1), (Kind::Fast, 64), (Kind::Slow(Nanos::from_micros(100)), 32)] {
        let server = Running::start(Setup { size: GIB, kind, ..Setup::default() });
        let (uri, depth) = (format!("--uri={}", server.uri()), format!("--iodepth={depth}"));
        let fixed = ["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--verify=crc32c", "--size=64M"];
        let sizes = ["--bsrange=512-512k", "--verify_fatal=1", "--randrepeat=1", "--output-format=terse"];
        run_client("fio", &[&fixed[..], &sizes, &[&uri, &depth]].concat());
        let state = server.state();
        assert_eq!(state.counters.errors, 0, "{kind:?}");
        server.stop();
    }
}
