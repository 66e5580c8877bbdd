//! Devices that papers simulate by two rates.

use crate::library::Standing::Paper;
use crate::library::{Spec, Timing, figure};
use crate::measure::Measure::{SequentialRead, SequentialWrite};
use crate::rate::Rate;
use crate::rates::Params;
use braid_base::{Bytes, DeviceClass};
use std::borrow::Cow;

/// The source of the figures.
const TABLE_II: &str = "Chen, Liu, Roth, Chen, working set reorganization, table II: seconds per GB";

/// The SSD of the simulator for WS-ROS: 0.1 s for a GB read, 0.5 s for a GB written.
pub(super) const WS_ROS_SSD: Spec = Spec {
    name: Cow::Borrowed("ws-ros-ssd"),
    title: Cow::Borrowed("SSD as simulated for WS-ROS: two rates"),
    class: DeviceClass::Ssd,
    capacity: Bytes(64_000_000_000),
    timing: Timing::Rates(Params {
        class: DeviceClass::Ssd,
        read: Rate::from_mb(10_000),
        write: Rate::from_mb(2_000),
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 10_000.0, 0.01, Paper, TABLE_II),
        figure(SequentialWrite { depth: 1 }, 2_000.0, 0.01, Paper, TABLE_II),
    ],
};

/// The disk of the simulator for WS-ROS: 1 s for a GB read, 2 s for a GB written, and no time to position.
pub(super) const WS_ROS_HDD: Spec = Spec {
    name: Cow::Borrowed("ws-ros-hdd"),
    title: Cow::Borrowed("Disk as simulated for WS-ROS: two rates"),
    class: DeviceClass::Hdd,
    capacity: Bytes(512_000_000_000),
    timing: Timing::Rates(Params {
        class: DeviceClass::Hdd,
        read: Rate::from_mb(1_000),
        write: Rate::from_mb(500),
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 1_000.0, 0.01, Paper, TABLE_II),
        figure(SequentialWrite { depth: 1 }, 500.0, 0.01, Paper, TABLE_II),
    ],
};
