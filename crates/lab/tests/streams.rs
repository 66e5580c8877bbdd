//! Readers of striped data: what is read ahead of them keeps all devices at work.

use braid_base::{Bytes, DeviceClass, MIB};
use braid_lab::{DeviceSetup, Load, Outcome, READ_AHEAD, Setup, WarmUp, simulate};

/// Striped over two SSDs and two disks; every read is verified.
fn setup(workload: &str, ahead: Bytes) -> Setup {
    let device = |class, text: &str| DeviceSetup::parse(class, text).expect("a device");
    let kinds = [
        device(DeviceClass::Ssd, "1GiB,model=x25-m"),
        device(DeviceClass::Hdd, "4GiB,model=barracuda-7200.12"),
    ];
    let devices = kinds.into_iter().flat_map(|device| [device.clone(), device]).collect();
    let mut setup = Setup::new(devices, "stripe", Load::Workload(workload.to_owned()));
    (setup.verify, setup.cache_extents, setup.ahead) = (true, 0, ahead);
    setup.warm_up = WarmUp::Share(0.51);
    setup
}

fn run(workload: &str, ahead: Bytes) -> Outcome {
    simulate(&setup(workload, ahead)).expect("the load fits").outcome
}

/// A checkpoint that is read again, in pieces of 128 KiB.
fn checkpoint(clients: u32, read: &str) -> String {
    let state = 256 / clients;
    format!(
        "checkpoint,clients={clients},state={state}MiB,rounds=1,reads=1,compute=0s,size=128KiB,read={read}"
    )
}

fn read_rate(workload: &str, ahead: Bytes) -> f64 {
    run(workload, ahead).throughput_bytes_per_second / 1e6
}

#[test]
fn one_reader_in_small_requests_gets_the_sum_of_the_devices() {
    let load = checkpoint(1, "order");
    let (without, with) = (read_rate(&load, Bytes::ZERO), read_rate(&load, READ_AHEAD));
    println!("{without:.0} MB/s, {with:.0} read ahead");
    // A disk alone reads 125 MB/s at its outer edge; striped evenly, four devices read four times as much.
    assert!(with > 4.0 * 115.0 && with > 2.0 * without, "{with:.0} MB/s, and {without:.0} without");
}

#[test]
fn readers_of_files_of_their_own_and_by_a_stride_are_faster_than_without() {
    for (clients, read) in [(4, "order"), (2, "stride")] {
        let load = checkpoint(clients, read);
        let (without, with) = (read_rate(&load, Bytes::ZERO), read_rate(&load, READ_AHEAD));
        println!("{clients} by {read}: {without:.0} MB/s, {with:.0} read ahead");
        assert!(with > 1.2 * without, "{clients} by {read}: {with:.0} MB/s, and {without:.0} without");
    }
}

/// No buffer holds an extent of more than 1 MiB: one that was to be read ahead was a panic.
#[test]
fn extents_that_no_run_holds_are_not_read_ahead() {
    let run = |ahead| {
        let mut setup = setup(&checkpoint(1, "order"), ahead);
        setup.extent_size = MIB * 2;
        simulate(&setup).expect("the load fits").outcome.throughput_bytes_per_second
    };
    assert_eq!(run(READ_AHEAD), run(Bytes::ZERO));
}

#[test]
fn a_random_load_is_as_fast_as_without() {
    let load = "random,clients=8,read=70%,span=256MiB,requests=20k";
    let (without, with) = (run(load, Bytes::ZERO), run(load, READ_AHEAD));
    assert_eq!(without.all.latency.mean, with.all.latency.mean);
    assert_eq!(without.devices[2].guest_read_bytes, with.devices[2].guest_read_bytes);
}
