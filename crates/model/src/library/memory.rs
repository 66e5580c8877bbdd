//! Memory. All of its figures are assumed: no source is available.

use crate::dram::Params;
use crate::library::Standing::Assumed;
use crate::library::{Spec, Timing, figure};
use crate::measure::Measure::{RandomRead, RandomWrite, SequentialRead, SequentialWrite};
use crate::rate::Rate;
use crate::ssd::State;
use braid_base::{Bytes, DeviceClass, GIB, Nanos};
use std::borrow::Cow;

/// The protected memory of an array controller.
pub(super) const DRAM: Spec = Spec {
    name: Cow::Borrowed("dram"),
    title: Cow::Borrowed("Protected memory of an array controller"),
    class: DeviceClass::Ssd,
    capacity: Bytes(64 * GIB.0),
    timing: Timing::Dram(Params {
        // PCIe 4.0 ×4, as the NVMe drive's interface [assumed].
        rate: Rate::from_mb(7_200),
        // From 1,000,000 requests/s of 4 KiB [assumed].
        command: Nanos(431),
        // From 10 µs for each [assumed]: the way through host and controller, not the memory's own 0.1.
        latency: Nanos(9_000),
    }),
    figures: &[
        figure(SequentialRead { depth: 32, from: 0.0 }, 7_000.0, 0.10, Assumed, "the interface"),
        figure(SequentialWrite { depth: 32 }, 7_000.0, 0.10, Assumed, "the interface"),
        figure(RandomRead { depth: 1 }, 100_000.0, 0.10, Assumed, "10 µs"),
        figure(RandomRead { depth: 32 }, 1_000_000.0, 0.10, Assumed, "the controller"),
        figure(RandomWrite { depth: 1, span: 1.0, state: State::Filled }, 100_000.0, 0.10, Assumed, "10 µs"),
    ],
};
