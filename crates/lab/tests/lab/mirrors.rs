//! Two synchronous copies, in virtual time: what they cost writes, and that both serve reads.

use braid_base::{DeviceClass, GIB, Nanos};
use braid_lab::{DeviceSetup, Load, Outcome, Setup, Size, WarmUp, simulate};

fn run(models: &[(DeviceClass, &str)], policy: &str, workload: &str, copies: u8, seed: u64) -> Outcome {
    let device = |&(class, model): &(DeviceClass, &str)| DeviceSetup {
        class,
        size: Size::Bytes(GIB * 8),
        model: model.to_owned(),
        lower: false,
        write_cache: true,
        count: 1,
        nodes: None,
        group: None,
    };
    let load = Load::Workload(workload.to_owned());
    let mut setup = Setup::new(models.iter().map(device).collect(), policy, load);
    (setup.copies, setup.seed, setup.cache_extents) = (copies, seed, 0);
    (setup.warm_up, setup.duration) = (WarmUp::Time(Nanos::from_secs(5)), Some(Nanos::from_secs(30)));
    simulate(&setup).expect("the load fits").outcome
}

/// A mirror is as fast as its slower device, and the set of what may differ costs nearly nothing beside it.
#[test]
fn two_copies_write_at_nine_tenths_of_the_slower_devices_own_rate_at_least() {
    let (ssd, hdd) = ((DeviceClass::Ssd, "x25-m"), (DeviceClass::Hdd, "mba3073"));
    let load = "random,read=0%,clients=32,span=4GiB,size=4KiB";
    for seed in [1, 2, 3] {
        let alone = run(&[hdd], "hdd-only", load, 1, seed).write.requests;
        let mirror = run(&[ssd, hdd], "ssd-only", load, 2, seed).write.requests;
        println!("seed {seed}: {alone} writes alone, {mirror} with two copies");
        assert!(mirror * 10 >= alone * 9, "seed {seed}: {mirror} writes, the slower device alone {alone}");
    }
}

#[test]
fn both_of_two_alike_copies_serve_reads() {
    let hdd = (DeviceClass::Hdd, "mba3073");
    let load = "random,read=100%,clients=32,span=4GiB,size=4KiB";
    let alone = run(&[hdd], "hdd-only", load, 1, 1).read.requests;
    let mirror = run(&[hdd, hdd], "hdd-only", load, 2, 1);
    let shares: Vec<u64> = mirror.devices.iter().map(|device| device.device_read_bytes).collect();
    println!("{alone} reads alone, with two copies {}, {shares:?}", mirror.read.requests);
    assert!(shares.iter().all(|&bytes| bytes * 3 > shares.iter().sum()), "{shares:?}");
    assert!(mirror.read.requests * 2 > alone * 3);
}
