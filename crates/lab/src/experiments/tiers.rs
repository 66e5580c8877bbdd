//! What the experiments on heirs have alike: hierarchies, loads and baselines.
//!
//! The papers' hierarchies are of SSDs that are 1.25 to 3 times apart: which it is depends on the size of a
//! request. `p4800x` and `samsung-960` serve reads of 4 KiB at 2.2 and 1.0 GB/s, of 16 KiB at 2.4 and 1.6, of
//! 64 KiB at 2.5 and 1.9. Ours is an SSD above four disks.

use crate::experiment::{Axis, Bound, Published, Quantity, Series, Test};
use braid_base::DeviceClass::{self, Hdd, Ssd};

pub type Devices = &'static [(DeviceClass, &'static str)];

/// 1.3 times apart with requests of 64 KiB. The upper one has as much room as there is data.
pub const NEAR: Devices = &[(Ssd, "110%,model=p4800x"), (Hdd, "150%,model=samsung-960,as=hdd")];
/// The same for a cache of three tenths of the data: what is hot fits.
pub const NEAR_CACHE: Devices = &[(Ssd, "30%,model=p4800x"), (Hdd, "150%,model=samsung-960,as=hdd")];
/// Ours: an SSD, and four disks as one. About a hundred times apart with random reads.
pub const DISKS: Devices = &[(Ssd, "30%,model=sata-ssd"), (Hdd, "150%,model=exos-x20,raid0=4")];

/// A fifth of the data gets nine of ten requests: the load of Tu et al.
pub const READS: &str =
    "hot-cold,span=1GiB,hot=20%,to-hot=90%,every=never,size=64KiB,read=100%,clients={x},requests=endless";
pub const WRITES: &str =
    "hot-cold,span=1GiB,hot=20%,to-hot=90%,every=never,size=64KiB,read=0%,clients={x},requests=endless";
/// A fifth of the data gets 95 % of requests: the hit ratio of a cache for which that is room.
pub const HITS: &str =
    "hot-cold,span=1GiB,hot=20%,to-hot=95%,every=never,size=64KiB,read=100%,clients={x},requests=endless";
/// The same with the requests of 4 KiB that disks take apart, and less data, so that a cache fills in time.
pub const SMALL_HITS: &str =
    "hot-cold,span=128MiB,hot=20%,to-hot=95%,every=never,size=4KiB,read=100%,clients={x},requests=endless";

/// The load, from what one device hardly notices to several times what it serves.
pub const CLIENTS: Axis = Axis::Numbers { label: "clients", places: &[1, 4, 16, 64] };

/// Tiering by heat alone, by which HeMem stands here: the hottest extents are on the SSDs, whatever their
/// load.
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

/// What is not as in any of these papers.
pub const MODELS: &str = "The devices are models, solved from the rates and latencies that Tu et al. give (crates/model/src/library/tiers.rs); what is inside them is assumed. The data is 1 GiB, \
     where the papers have hundreds: all that moves at 100 MB/s is there in seconds.";
/// Likewise.
pub const CLOSED: &str = "The load is a closed loop of clients without think time. The papers give it as a multiple of what the upper device serves.";
