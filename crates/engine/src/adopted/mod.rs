//! An adopted disk: the volume is a disk with earlier data, byte for byte, and the SSDs before the disk are a
//! removable cache.
//!
//! ```text
//! same_disk.rs     identity of the disk, and changes of the disk by other software
//! sums.rs          marks of the disk for an opening after an unclean stop
//! noting.rs        keeps the marks durable ahead of guests' writes
//! fingerprint.rs   reads samples of the disk
//! fail_over.rs     failure of the SSD while the volume is served
//! leave.rs         moves the journal off an SSD before its removal
//! ```
//!
//! Only guests' bytes are written to the disk. Each extent lies at its own address, valid from the start, and
//! never moves: there is no map. All metadata beside the cache tables lies on the first SSD and on a
//! *record*, a small file that serves as a device without room for data.

mod fail_over;
mod fingerprint;
mod leave;
mod noting;
mod same_disk;
mod sums;

pub(crate) use fingerprint::{Disk, fingerprint_of};
pub(crate) use leave::remove_metadata;
pub(crate) use noting::{write_first_sums, write_unknown};
pub(crate) use same_disk::{Looked, accept, compare, is_vouched, look_at, read_table};
pub(crate) use sums::DiskSums;

use crate::{Error, ErrorKind, Result};
use braid_policy::{DeviceView, Policy};

/// Refuses a policy that moves homes: on an adopted disk every byte keeps its place.
pub(crate) fn refuse_moving_homes(policy: &dyn Policy, devices: &[DeviceView]) -> Result<()> {
    if policy.keeps_homes() {
        return Ok(());
    }
    let text = format!(
        "policy '{}' places homes, and the homes of an adopted disk stay at their addresses: use {}",
        policy.name(),
        braid_policy::keeping_homes(devices).join(", ")
    );
    Err(Error::new(ErrorKind::Invalid, text))
}
