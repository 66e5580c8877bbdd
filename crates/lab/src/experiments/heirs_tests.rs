//! Each heir achieves its purpose, on tiers of nearly equal speed, with intervals short enough for a short
//! run. If the load exceeds the upper device's capacity, the lower device takes a part. Every read is
//! verified.

use super::tiers::{Devices, HITS, NEAR, NEAR_CACHE, READS};
use crate::{DeviceSetup, Load, OWN, Setup, WarmUp, simulate};
use braid_base::{Bytes, Nanos};
use braid_engine::Readahead;

/// MB/s of 64 clients.
fn throughput(devices: Devices, policy: &str, load: &str) -> f64 {
    let load = load.replace("{x}", "64").replace("span=1GiB", "span=256MiB");
    let device = |&(class, text)| DeviceSetup::parse(class, text).unwrap();
    let setup = Setup {
        cache_extents: 0,
        readahead: Readahead::Off,
        ahead: Bytes::ZERO,
        prefill_policy: Some(OWN.to_owned()),
        warm_up: WarmUp::Time(Nanos::from_millis(1_500)),
        duration: Some(Nanos::from_millis(300)),
        verify: true,
        ..Setup::new(devices.iter().map(device).collect(), policy, Load::Workload(load))
    };
    let outcome = simulate(&setup).unwrap().outcome;
    let throughput = outcome.throughput_bytes_per_second / 1e6;
    println!("{policy}: {throughput:.0} MB/s");
    throughput
}

#[test]
fn orthus_leaves_hits_to_the_lower_device_and_serves_more_than_a_cache() {
    let cache = throughput(NEAR_CACHE, "cache", HITS);
    let orthus = throughput(NEAR_CACHE, "orthus,window=100ms,interval=10ms,step=5%", HITS);
    assert!(orthus > 1.2 * cache, "{orthus:.0} and {cache:.0} MB/s");
}

#[test]
fn colloid_and_most_serve_more_than_the_upper_device_alone() {
    let alone = throughput(NEAR, "ssd-only", READS);
    let colloid = throughput(NEAR, "colloid,round=20ms,weight=0.5,rate=1GB", READS);
    let most = throughput(NEAR, "most,round=20ms,step=10%,rate=1GB", READS);
    assert!(colloid > 1.1 * alone && most > 1.1 * alone, "{colloid:.0}, {most:.0} and {alone:.0} MB/s");
}
