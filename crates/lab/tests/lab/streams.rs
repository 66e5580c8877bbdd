//! Readers of striped data: what is read ahead of them keeps all devices at work.

use braid_base::{Bytes, DeviceClass, GIB, MIB, Rng};
use braid_lab::{DeviceSetup, Load, Outcome, Prefill, READ_AHEAD, Setup, Size, Trace, WarmUp, simulate};

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
fn read_ahead_gives_one_reader_all_device_throughput() {
    let load = checkpoint(1, "order");
    let (without, with) = (read_rate(&load, Bytes::ZERO), read_rate(&load, READ_AHEAD));
    println!("{without:.0} MB/s, {with:.0} read ahead");
    // A disk alone reads 125 MB/s at its outer edge; striped evenly, four devices read four times as much.
    assert!(with > 4.0 * 115.0 && with > 2.0 * without, "{with:.0} MB/s, and {without:.0} without");
}

#[test]
fn read_ahead_speeds_up_strided_and_own_file_readers() {
    for (clients, read) in [(4, "order"), (2, "stride")] {
        let load = checkpoint(clients, read);
        let (without, with) = (read_rate(&load, Bytes::ZERO), read_rate(&load, READ_AHEAD));
        println!("{clients} by {read}: {without:.0} MB/s, {with:.0} read ahead");
        assert!(with > 1.2 * without, "{clients} by {read}: {with:.0} MB/s, and {without:.0} without");
    }
}

/// No buffer holds an extent of more than 1 MiB: one that was to be read ahead was a panic.
#[test]
fn extents_larger_than_a_buffer_are_not_read_ahead() {
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

/// Pieces of a checkpoint, in the orders in which programs write them: in order, from its end, at random, and
/// as four processes do, each a part of its own.
fn orders() -> [Vec<u64>; 4] {
    let mut shuffled: Vec<u64> = (0..PIECES).collect();
    let mut rng = Rng::new(11);
    for last in (1..PIECES).rev() {
        shuffled.swap(last as usize, rng.below(last + 1) as usize);
    }
    let interleaved = (0..PIECES).map(|i| i % 4 * (PIECES / 4) + i / 4);
    [(0..PIECES).collect(), (0..PIECES).rev().collect(), shuffled, interleaved.collect()]
}

const PIECE: Bytes = Bytes(64 << 10);
const PIECES: u64 = 4096;

/// Bytes of the checkpoint that lie on each device, and how fast it is read in order.
fn write_and_read(policy: &str, order: &[u64]) -> (Vec<u64>, f64) {
    // An extent that comes before its neighbours lies where it would if all devices were filled about alike,
    // as these are.
    let size = Size::Bytes(GIB * 4);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut text = String::new();
    let line = |piece: u64, op| format!("0,{},{},{op},0.0\n", PIECE.0 / 512 * piece, PIECE.0);
    order.iter().for_each(|&piece| text += &line(piece, 'w'));
    // Once until the disks have written what they took, and once to measure.
    (0..2 * PIECES).for_each(|i| text += &line(i % PIECES, 'r'));
    let path = folder.path().join("checkpoint.spc");
    std::fs::write(&path, text).expect("a temporary folder can be written");
    let mut setup = Setup { policy: policy.to_owned(), ..setup("", READ_AHEAD) };
    setup.devices.iter_mut().for_each(|device| device.size = size);
    setup.load = Load::Trace(Trace { clients: Some(1), ..Trace::new(path) });
    (setup.prefill, setup.warm_up) = (Prefill::None, WarmUp::Requests(2 * PIECES));
    let outcome = simulate(&setup).expect("the load fits").outcome;
    let homes = outcome.devices.iter().map(|device| device.guest_read_bytes).collect();
    (homes, outcome.throughput_bytes_per_second / 1e6)
}

/// New data is placed by its address, and neighbours in the volume are neighbours on their devices, whichever
/// comes first. What comes at random lies in order, too, but with gaps: nobody knows then how much each
/// device will get.
#[test]
fn checkpoint_written_in_any_order_reads_as_stream() {
    for policy in ["stripe", "working-set,stripe=even"] {
        let found = orders().map(|order| write_and_read(policy, &order));
        println!("{policy}: {found:?}");
        let (homes, rate) = &found[0];
        for ((others, other_rate), least) in found.iter().zip([1.0, 0.95, 0.7, 0.95]) {
            let differ = |(a, b): (&u64, &u64)| a.abs_diff(*b) as f64 / (PIECE.0 * PIECES) as f64;
            assert!(
                homes.iter().zip(others).all(|pair| differ(pair) < 0.02),
                "{policy}: {homes:?}, {others:?}"
            );
            assert!(other_rate / rate >= least, "{policy}: {rate:.0} MB/s, {other_rate:.0}");
        }
    }
}
