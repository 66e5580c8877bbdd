//! Toy policies: two systems on the engine's mechanism, each in about sixty lines. The toys show the power
//! of the policy interface, and are no products.

mod pass;
mod write_back_cache;

pub use pass::Pass;
pub use write_back_cache::WriteBackCache;

use braid_base::DeviceId;

/// Device 0 is an SSD and device 1 a disk.
pub const SSD: DeviceId = DeviceId(0);
pub const HDD: DeviceId = DeviceId(1);
