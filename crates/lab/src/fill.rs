//! Contents and placement of a volume before the load begins.
//!
//! Policies are compared from the same initial state. If each policy placed the data by itself, a policy that
//! fills the SSD in order of address would begin with another tenth of the data there than a policy that
//! spreads the data. A trace of an hour would measure that difference. A *neutral* policy therefore places
//! the data for all, as on a volume that has been in use for long. The SSDs are full except for a tenth, with
//! extents taken evenly from the whole address space; the disks have the rest. Nothing is known of heat, so
//! no policy is favoured. Rejected alternatives:
//! - All data on the disks, SSDs empty: a policy that caches once the SSDs are full (`ssd-first`) would never
//!   begin to cache.
//! - By shares of capacity: results would depend on the empty part of a disk, which is not the question;
//!   beside a large disk the SSDs would be nearly empty, too.
//!
//! A tenth stays free because policies want room: the cache of `ssd-first`, moves of `wardrop`.
//!
//! Policies that keep all data on disks and learn from guests' requests what deserves a copy on the SSDs
//! (`hystor`) begin with all data on disks.
//!
//! Policies that are a placement rule (`static`, `stripe`, `ssd-only`, `hdd-only`, `cache`, `orthus`) place
//! data by themselves: such a policy would never move data to the places of its rule.

use crate::sweep::Gauge;
use crate::verify::Verifier;
use crate::{Error, Prefill, Result, Setup};
use braid_base::{Bytes, DeviceClass};
use braid_engine::{DeviceStatus, Durability, Export, Volume};
use braid_runtime::{Arena, Buf, Device};
use braid_sim::World;
use std::cell::RefCell;
use std::ops::Range;

/// Instead of a policy's name: the simulated policy.
pub const OWN: &str = "own";

/// Instead of a policy's name: a list of the ranges on SSDs.
const LISTED: &str = "listed";

/// Policies that are a placement rule.
const RULES: [&str; 6] = ["static", "stripe", "ssd-only", "hdd-only", "cache", "orthus"];

/// Policies with all homes on disks that learn what deserves a copy on the SSDs. Filling the disks is not an
/// access to learn from.
const LEARNING_CACHES: [&str; 1] = ["hystor"];

/// The neutral policy leaves one in this many slots of an SSD free. `ssd-first` keeps the same share for its
/// cache, and begins to fill the cache only when no more slots are free.
const FREE_SHARE: u32 = 10;

/// Fills these ranges of a volume and returns the policy that placed them. Afterwards the simulated policy is
/// active.
///
/// # Errors
/// If the policy for the fill is invalid, or the volume is too large for the policy.
pub(crate) async fn fill<D: Device>(
    volume: &Volume<World, D>,
    setup: &Setup,
    ranges: Vec<Range<Bytes>>,
    verifier: Option<&RefCell<Verifier>>,
    gauge: &Gauge,
) -> Result<Option<String>> {
    if ranges.is_empty() {
        return Ok(None);
    }
    let extents = ranges.iter().map(|range| (range.end - range.start).0.div_ceil(setup.extent_size.0)).sum();
    let devices = volume.status().devices;
    let other = match (setup.prefill_policy.as_deref(), &setup.made_policy) {
        (Some(OWN), _) => None,
        (Some(policy), _) => Some(policy.to_owned()),
        (None, None) => neutral(&setup.policy, &devices, extents),
        (None, Some(_)) => Some(from_everywhere(&devices, extents)),
    };
    let in_charge = async |policy: &str| {
        let changed = volume.set_policy(policy).await;
        changed.map_err(|error| Error::setup(error.to_string()))
    };
    // A policy without a name becomes active when the volume is reopened.
    let simulated = async || match &setup.made_policy {
        Some(_) => Ok(()),
        None => in_charge(&setup.policy).await,
    };
    let arena = Arena::new(Arena::LARGEST);
    let buf = arena.alloc(setup.extent_size.min(Arena::LARGEST)).await;
    if let Some(listed) = &setup.prefill_ssd {
        for (policy, ranges) in [("ssd-only", both(&ranges, listed)), ("hdd-only", without(&ranges, listed))]
        {
            in_charge(policy).await?;
            for range in ranges {
                write(volume, range, &buf, verifier, gauge).await?;
            }
        }
        volume.flush().await?;
        simulated().await?;
        return Ok(Some(LISTED.to_owned()));
    }
    match (&other, &setup.made_policy) {
        (Some(other), _) => in_charge(other).await?,
        (None, Some(made)) => volume.replace_policy(made.make()?),
        (None, None) => {}
    }
    let placed_by = volume.status().policy;
    for range in ranges {
        write(volume, range, &buf, verifier, gauge).await?;
    }
    volume.flush().await?;
    if other.is_some() {
        simulated().await?;
    }
    Ok(Some(placed_by))
}

/// The neutral policy for `extents` on empty devices; `None` if the simulated policy is a placement rule.
fn neutral(policy: &str, devices: &[DeviceStatus], extents: u64) -> Option<String> {
    let name = policy.split(',').next().unwrap_or_default();
    if RULES.contains(&name.trim()) {
        return None;
    }
    if LEARNING_CACHES.contains(&name.trim()) {
        return Some("hdd-only".to_owned());
    }
    Some(from_everywhere(devices, extents))
}

/// Policy that takes `extents` evenly from the whole address space.
fn from_everywhere(devices: &[DeviceStatus], extents: u64) -> String {
    let is = |class| devices.iter().filter(move |device| device.class == class);
    let room = |device: &DeviceStatus| u64::from(device.free.saturating_sub(device.slots / FREE_SHARE));
    match (is(DeviceClass::Ssd).count(), is(DeviceClass::Hdd).count()) {
        (0, _) | (_, 0) => "stripe".to_owned(),
        _ => evenly(is(DeviceClass::Ssd).map(room).sum(), extents),
    }
}

/// Policy that places `room` of these extents on the SSDs.
fn evenly(room: u64, extents: u64) -> String {
    if extents <= room {
        return "ssd-first,cache=0%".to_owned();
    }
    // Rounded up: with an extent too few, `ssd-first` would find room for homes.
    let millionths = (u128::from(room) * 1_000_000).div_ceil(u128::from(extents));
    match millionths {
        0 => "hdd-only".to_owned(),
        _ => format!("static,ssd={}%", millionths as f64 / 1e4),
    }
}

/// Intersection of two lists of ranges. Each list is in order and without overlap.
fn both(one: &[Range<Bytes>], other: &[Range<Bytes>]) -> Vec<Range<Bytes>> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut both = Vec::new();
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let common = a.start.max(b.start)..a.end.min(b.end);
        let ends_first = if a.end <= b.end { &mut one } else { &mut other };
        ends_first.next();
        both.extend((!common.is_empty()).then_some(common));
    }
    both
}

/// Ranges of the first list minus the second.
fn without(ranges: &[Range<Bytes>], listed: &[Range<Bytes>]) -> Vec<Range<Bytes>> {
    let begins = std::iter::once(Bytes::ZERO).chain(listed.iter().map(|range| range.end));
    let ends = listed.iter().map(|range| range.start).chain([Bytes(u64::MAX)]);
    both(ranges, &begins.zip(ends).map(|(begin, end)| begin..end).collect::<Vec<_>>())
}

/// Ranges to fill of a volume of this size.
pub(crate) fn ranges(setup: &Setup, used: Option<&[Range<Bytes>]>, size: Bytes) -> Vec<Range<Bytes>> {
    match (setup.prefill, used) {
        (Prefill::None, _) => Vec::new(),
        // A trace may reach beyond the volume; `Beyond` decides how such requests are handled.
        (Prefill::Used, Some(used)) => {
            let within = |range: &Range<Bytes>| range.start.min(size)..range.end.min(size);
            used.iter().map(within).filter(|range| !range.is_empty()).collect()
        }
        (Prefill::Used, None) | (Prefill::All, _) => vec![Bytes::ZERO..size],
    }
}

/// Writes a range, one extent at a time.
async fn write<D: Device>(
    volume: &Volume<World, D>,
    range: Range<Bytes>,
    buf: &Buf,
    verifier: Option<&RefCell<Verifier>>,
    gauge: &Gauge,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        if gauge.is_stopped() {
            return Err(Error::stopped());
        }
        let end = (at.align_down(buf.len()) + buf.len()).min(range.end);
        let part = buf.slice(Bytes::ZERO..end - at);
        let write = verifier.map(|verifier| verifier.borrow_mut().begin_write(at, &part));
        volume.write(at, &part, Durability::Volatile).await?;
        if let (Some(verifier), Some(write)) = (verifier, write) {
            verifier.borrow_mut().end_write(write);
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_splits_filled_ranges_without_loss() {
        let ranges =
            |pairs: &[(u64, u64)]| pairs.iter().map(|&(a, b)| Bytes(a)..Bytes(b)).collect::<Vec<_>>();
        let filled = ranges(&[(0, 10), (20, 30), (40, 50)]);
        let listed = ranges(&[(5, 22), (28, 29), (50, 60)]);
        assert_eq!(both(&filled, &listed), ranges(&[(5, 10), (20, 22), (28, 29)]));
        assert_eq!(without(&filled, &listed), ranges(&[(0, 5), (22, 28), (29, 30), (40, 50)]));
        assert_eq!((both(&filled, &[]), without(&filled, &[])), (Vec::new(), filled));
    }

    #[test]
    fn the_ssds_are_filled_but_for_a_tenth_by_extents_from_everywhere() {
        assert_eq!(evenly(90, 1000), "static,ssd=9%");
        assert_eq!(evenly(1, 3), "static,ssd=33.3334%");
        assert_eq!((evenly(90, 90), evenly(0, 2_000_000)), ("ssd-first,cache=0%".into(), "hdd-only".into()));
    }
}
