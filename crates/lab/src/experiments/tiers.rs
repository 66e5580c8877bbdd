//! Common parts of the experiments on heirs: hierarchies, loads and baselines.
//!
//! The papers' hierarchies are SSDs that differ in speed by factors of 1.25 to 3, depending on the size of a
//! request. `p4800x` and `samsung-960` serve reads of 4 KiB at 2.2 and 1.0 GB/s, of 16 KiB at 2.4 and 1.6, of
//! 64 KiB at 2.5 and 1.9. The hierarchy added here is an SSD above four disks.

use crate::experiment::{Axis, Bound, Published, Quantity, Series, Test};
use braid_base::DeviceClass::{self, Hdd, Ssd};

pub type Devices = &'static [(DeviceClass, &'static str)];

/// A factor of 1.3 with requests of 64 KiB. The upper device has room for all data.
pub const NEAR: Devices = &[(Ssd, "110%,model=p4800x"), (Hdd, "150%,model=samsung-960,as=hdd")];
/// The same devices for a cache of three tenths of the data: hot data fits.
pub const NEAR_CACHE: Devices = &[(Ssd, "30%,model=p4800x"), (Hdd, "150%,model=samsung-960,as=hdd")];
/// Not in the papers: an SSD, and four disks as one. About a factor of a hundred with random reads.
pub const DISKS: Devices = &[(Ssd, "30%,model=sata-ssd"), (Hdd, "150%,model=exos-x20,raid0=4")];

/// A fifth of the data gets nine of ten requests: the load of Tu et al.
pub const READS: &str =
    "hot-cold,span=1GiB,hot=20%,to-hot=90%,every=never,size=64KiB,read=100%,clients={x},requests=endless";
pub const WRITES: &str =
    "hot-cold,span=1GiB,hot=20%,to-hot=90%,every=never,size=64KiB,read=0%,clients={x},requests=endless";
/// A fifth of the data gets 95 % of requests: the hit ratio of a cache with room for a fifth.
pub const HITS: &str =
    "hot-cold,span=1GiB,hot=20%,to-hot=95%,every=never,size=64KiB,read=100%,clients={x},requests=endless";
/// The same load with requests of 4 KiB, which show the difference to disks, and less data, so that a cache
/// fills in time.
pub const SMALL_HITS: &str =
    "hot-cold,span=128MiB,hot=20%,to-hot=95%,every=never,size=4KiB,read=100%,clients={x},requests=endless";

/// The load, from negligible for one device to several times its capacity.
pub const CLIENTS: Axis = Axis::Numbers { label: "clients", places: &[1, 4, 16, 64] };

/// Tiering by heat alone, as a stand-in for HeMem: the hottest extents are on the SSDs, whatever the load of
/// the SSDs.
pub const TIERING: &str = "exclusive,cache=0%,page=128KiB,period=2s,rate=100MB";

pub const fn series(
    label: &'static str,
    devices: Devices,
    policy: &'static str,
    load: &'static str,
) -> Series {
    Series {
        label,
        devices,
        network: None,
        copies: 1,
        policy,
        load,
        block_size: None,
        metric: None,
        dram: None,
        variant_of: None,
    }
}

/// Another setting of a series.
pub const fn variant(of: &'static str, series: Series) -> Series {
    Series { variant_of: Some(of), ..series }
}

pub const fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}

/// Differences from all of these papers.
pub const MODELS: &str = "The devices are models, solved from the rates and latencies that Tu et al. give (crates/model/src/library/tiers.rs); what is inside them is assumed. The data is 1 GiB, \
     where the papers have hundreds: all that moves at 100 MB/s is there in seconds.";
/// A further difference from these papers.
pub const CLOSED: &str = "The load is a closed loop of clients without think time. The papers give it as a multiple of what the upper device serves.";
