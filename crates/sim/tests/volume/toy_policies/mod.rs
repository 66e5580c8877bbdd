//! Toy policies: two systems on the engine's mechanism, each in about sixty lines. They show what the
//! interface of policies carries, and are no product.

mod pass;
mod write_back_cache;

pub use pass::Pass;
pub use write_back_cache::WriteBackCache;

use braid_base::DeviceId;

/// Device 0 is an SSD and device 1 a disk.
pub const SSD: DeviceId = DeviceId(0);
pub const HDD: DeviceId = DeviceId(1);
