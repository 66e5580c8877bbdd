//! Drives of different tiers in the papers on hierarchies of SSDs: 1.5 to 3 times apart.
//!
//! Tu et al. (FAST 2026) give latency at depth one and rates at a high depth, for reads of 4 and 16 KiB and
//! for writes of 4 KiB. `command` and the rates of the interface are solved from these figures. With c for a
//! command and r for the rate, 4 KiB / (c + 4 KiB / r) and 16 KiB / (c + 16 KiB / r) are the two rates. The
//! internals are assumed, and never the bottleneck. No garbage is collected, so these models do not show
//! wear.

use crate::library::Standing::Paper;
use crate::library::{Figure, Spec, Timing, figure};
use crate::measure::Measure::{RandomRead, RandomWrite};
use crate::rate::Rate;
use crate::ssd::{Blocks, FlushCost, Mapping, Params, State};
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos};
use std::borrow::Cow;

/// The names of this file's models.
pub(super) const NAMES: [&str; 3] = ["p4800x", "samsung-960", "samsung-870"];

/// The source of the figures.
const SOURCE: &str = "Tu et al., FAST 2026, the devices of their evaluation: 4 KiB";

const fn reads_at_depth_one(rate: f64) -> Figure {
    figure(RandomRead { depth: 1 }, rate, 0.05, Paper, SOURCE)
}

const fn reads(rate: f64) -> Figure {
    figure(RandomRead { depth: 256 }, rate, 0.05, Paper, SOURCE)
}

const fn writes(rate: f64) -> Figure {
    figure(RandomWrite { depth: 256, span: 1.0, state: State::Fresh }, rate, 0.10, Paper, SOURCE)
}

/// The common parameters of the three drives, all assumed.
const USUAL: Params = Params {
    channels: 256,
    flash_page: Bytes(KIB.0 * 4),
    read: Nanos::from_micros(60),
    program: Nanos::from_micros(200),
    erase_block: Bytes(MIB.0 * 4),
    erase: Nanos::from_millis(3),
    suspend: Some(Nanos::from_micros(5)),
    channel: Rate::from_mb(1_000),
    read_rate: Rate::from_mb(1_000),
    write_rate: Rate::from_mb(1_000),
    half_duplex: false,
    command: Nanos(1_000),
    latency: Nanos(1_000),
    intake: None,
    buffer: Bytes(MIB.0 * 64),
    flush: FlushCost::Protected(Nanos::from_micros(10)),
    queue_depth: 1_024,
    read_ahead: false,
    streams: 16,
    trim: true,
    mapping: Mapping::Blocks(Blocks { merge: Bytes::ZERO, reach: 1.0 }),
    state: State::Fresh,
};

/// The upper tier: 11 µs, and 2.2 GB/s of 4 KiB reads and writes, 2.4 of 16 KiB reads.
pub(super) const P4800X: Spec = Spec {
    name: Cow::Borrowed("p4800x"),
    title: Cow::Borrowed("Intel Optane P4800X, 750 GB"),
    class: DeviceClass::Ssd,
    capacity: Bytes(750_000_000_000),
    timing: Timing::Ssd(Params {
        read: Nanos::from_micros(3),
        program: Nanos::from_micros(4),
        erase: Nanos::from_micros(1),
        channel: Rate::from_mb(2_000),
        read_rate: Rate::from_mb(2_475),
        write_rate: Rate::from_mb(2_475),
        command: Nanos(207),
        latency: Nanos(4_100),
        ..USUAL
    }),
    figures: &[reads_at_depth_one(90_909.0), reads(537_109.0), writes(537_109.0)],
};

/// 82 µs, and 1.0 GB/s of 4 KiB reads, 1.6 of 16 KiB, 1.5 of writes.
pub(super) const SAMSUNG_960: Spec = Spec {
    name: Cow::Borrowed("samsung-960"),
    title: Cow::Borrowed("Samsung 960, NVMe, 1 TB"),
    class: DeviceClass::Ssd,
    capacity: Bytes(1_000_000_000_000),
    timing: Timing::Ssd(Params {
        read_rate: Rate::from_mb(2_000),
        write_rate: Rate::from_mb(6_000),
        command: Nanos(2_048),
        latency: Nanos(13_800),
        ..USUAL
    }),
    figures: &[reads_at_depth_one(12_195.0), reads(244_141.0), writes(366_211.0)],
};

/// 104 µs, and 0.38 GB/s of 4 KiB reads and writes, 0.5 of 16 KiB reads.
pub(super) const SAMSUNG_870: Spec = Spec {
    name: Cow::Borrowed("samsung-870"),
    title: Cow::Borrowed("Samsung 870, SATA, 1 TB"),
    class: DeviceClass::Ssd,
    capacity: Bytes(1_000_000_000_000),
    timing: Timing::Ssd(Params {
        read_rate: Rate::from_mb(559),
        write_rate: Rate::from_mb(559),
        half_duplex: true,
        command: Nanos(3_449),
        latency: Nanos(29_100),
        queue_depth: 32,
        ..USUAL
    }),
    figures: &[reads_at_depth_one(9_615.0), reads(92_773.0), writes(92_773.0)],
};
