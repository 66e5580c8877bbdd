//! State kept over a restart; the paper says nothing about restarts. Saved are τ, the bandwidths of the
//! devices, the working sets after the last reorganization, and as many rows as fit. Rows that are not cold
//! are saved, the most recently requested row first. All numbers are little-endian:
//!
//! ```text
//! u8   version                              u64  τ in ns                    u16  devices, then for each an f64 with its bandwidth, NaN if unknown
//! u8   1 if something was settled, then     u64  slots lacking              for reads, then writes: u64 size, hot, cold; u8 count, then each hottest extent as a u32
//! for reads, then writes:                   u32  rows                       then for each a u32 with the extent and a u8 with its hotness
//! ```
//!
//! A restored row belongs to the half before the present half, and counts for another half of the window.

use super::WorkingSet;
use super::trigger::{HOTTEST, WorkingSets};
use crate::{LONGEST_STATE, View};
use braid_base::{DeviceId, ExtentId, Nanos};

const VERSION: u8 = 1;
/// An extent with its hotness.
const ROW: usize = size_of::<u32>() + size_of::<u8>();

pub fn save(policy: &WorkingSet) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(policy.window.tau().0.to_le_bytes());
    let devices = policy.classes.len() as u16;
    bytes.extend(devices.to_le_bytes());
    let bandwidths = (0..devices).map(|device| policy.stripe.bandwidth(DeviceId(device)).unwrap_or(f64::NAN));
    bytes.extend(bandwidths.flat_map(f64::to_le_bytes));
    match policy.trigger.settled() {
        None => bytes.push(0),
        Some(settled) => {
            bytes.push(1);
            save_settled(settled, &mut bytes);
        }
    }
    let half = policy.window.half();
    let is_kept = |row: &(ExtentId, u8)| row.1 >= policy.constants.threshold_l.max(1);
    let tables = [&policy.reads, &policy.writes];
    // Half of the room for each table; room left by reads is for writes.
    let room = (LONGEST_STATE.as_usize() - bytes.len()) / ROW - 2;
    let mut left = room;
    for (table, part) in tables.into_iter().zip([room / 2, room]) {
        let rows: Vec<(ExtentId, u8)> =
            table.newest_first(half).filter(is_kept).take(part.min(left)).collect();
        left -= rows.len();
        bytes.extend((rows.len() as u32).to_le_bytes());
        for (extent, hotness) in rows {
            bytes.extend(extent.0.to_le_bytes());
            bytes.push(hotness);
        }
    }
    bytes
}

fn save_settled(settled: &WorkingSets, bytes: &mut Vec<u8>) {
    bytes.extend(settled.lacking.to_le_bytes());
    for set in [&settled.reads, &settled.writes] {
        bytes.extend([set.size, set.hot, set.cold].into_iter().flat_map(u64::to_le_bytes));
        bytes.push(set.hottest.len() as u8);
        bytes.extend(set.hottest.iter().flat_map(|extent| extent.0.to_le_bytes()));
    }
}

/// Restores all understandable parts of a saved state. Any bytes are accepted.
pub fn restore(policy: &mut WorkingSet, state: &[u8], view: &View) {
    let mut reader = Reader(state);
    // A missing part ends the restore; parts read before stay in force.
    let _end = read(policy, &mut reader, view);
}

fn read(policy: &mut WorkingSet, reader: &mut Reader, view: &View) -> Option<()> {
    if reader.number::<1>()? != u64::from(VERSION) {
        return None;
    }
    let tau = Nanos(reader.number::<8>()?);
    let devices = reader.number::<2>()?;
    let numbers: Option<Vec<u64>> = (0..devices).map(|_| reader.number::<8>()).collect();
    let is_sound = |bandwidth: &f64| (1.0..1e15).contains(bandwidth);
    let bandwidths = numbers?.into_iter().map(|bits| Some(f64::from_bits(bits)).filter(is_sound));
    let settled = match reader.number::<1>()? {
        0 => None,
        _ => Some(read_settled(reader)?),
    };
    policy.window.restore(tau);
    if usize::from(devices as u16) == policy.classes.len() {
        policy.stripe.restore(bandwidths);
        settled.into_iter().for_each(|settled| policy.trigger.restore(settled));
    }
    let half = policy.window.half();
    for table in [&mut policy.reads, &mut policy.writes] {
        let rows = reader.number::<4>()? as usize;
        let rows = reader.take(rows.checked_mul(ROW)?)?;
        // The oldest rows come first: they are the first to be dropped.
        for row in rows.chunks_exact(ROW).rev() {
            let extent = ExtentId(u32::from_le_bytes([row[0], row[1], row[2], row[3]]));
            if extent.0 < view.homes.extents() {
                table.restore(extent, row[4], half);
            }
        }
    }
    Some(())
}

fn read_settled(reader: &mut Reader) -> Option<WorkingSets> {
    let mut settled = WorkingSets { lacking: reader.number::<8>()?, ..WorkingSets::default() };
    for set in [&mut settled.reads, &mut settled.writes] {
        set.size = reader.number::<8>()?;
        set.hot = reader.number::<8>()?;
        set.cold = reader.number::<8>()?;
        let count = (reader.number::<1>()? as usize).min(HOTTEST);
        let hottest: Option<Vec<u64>> = (0..count).map(|_| reader.number::<4>()).collect();
        set.hottest = hottest?.into_iter().map(|extent| ExtentId(extent as u32)).collect();
        set.hottest.sort_unstable();
    }
    Some(settled)
}

/// Reader of bytes that may end anywhere.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    /// Reads a number of `N` bytes.
    fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(bytes))
    }
}
