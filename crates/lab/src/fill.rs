//! What a volume holds before the load begins, and where it lies then.
//!
//! Policies are compared from one beginning. If each placed the data by itself, one that fills the SSD first
//! in order of address would begin with another tenth of the data there than one that spreads it, and a trace
//! of an hour would measure that. So one *neutral* policy places the data for all, as on a volume that has
//! been in use for long: the SSDs are full but for a tenth, with extents taken evenly from the whole address
//! space, and the disks have the rest. Nothing is known of heat, so no policy is favoured. Why not otherwise:
//! - All on the disks, the SSDs empty: what caches once the SSDs are full (`ssd-first`) would never begin to.
//! - By shares of capacity: results would depend on how much of a disk is empty, which is not the question,
//!   and beside a large disk the SSDs would be as good as empty, too.
//! - A tenth stays free because policies want room: the cache of `ssd-first`, moves of `wardrop`.
//!
//! Policies that have all data on disks, and learn from what guests ask for what of it is worth a copy on the
//! SSDs (`hystor`), begin so.
//!
//! Policies that are a rule of where data lies (`static`, `stripe`, `ssd-only`, `hdd-only`, `cache`,
//! `orthus`) place it by themselves: they would never move it to where they say it is.

use crate::sweep::Gauge;
use crate::verify::Verifier;
use crate::{Error, Prefill, Result, Setup};
use braid_base::{Bytes, DeviceClass};
use braid_engine::{DeviceStatus, Durability, Export, Volume};
use braid_runtime::{Arena, Buf, Device};
use braid_sim::World;
use std::cell::RefCell;
use std::ops::Range;

/// In place of a policy's name: the policy that is simulated.
pub const OWN: &str = "own";

/// In place of a policy's name: a list of what lies on SSDs.
const LISTED: &str = "listed";

/// Policies that are a rule of where data lies.
const RULES: [&str; 6] = ["static", "stripe", "ssd-only", "hdd-only", "cache", "orthus"];

/// Policies that have all homes on disks, and learn what is worth a copy on the SSDs: what fills the disks is
/// no access for them to learn from.
const LEARNING_CACHES: [&str; 1] = ["hystor"];

/// The neutral policy leaves one in this many slots of an SSD free: what `ssd-first` keeps for its cache,
/// which it does not begin to fill before no more are free.
const FREE_SHARE: u32 = 10;

/// Fills these ranges of a volume; says which policy placed them. Afterwards the policy is the one that is
/// simulated.
///
/// # Errors
/// A policy for the fill that cannot be, or one to which the volume is too large.
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
    // One without a name takes charge when the volume is open again.
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

/// The neutral policy for so many extents on empty devices; none under a policy that is a rule.
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

/// The policy that takes so many extents evenly from the whole address space.
fn from_everywhere(devices: &[DeviceStatus], extents: u64) -> String {
    let is = |class| devices.iter().filter(move |device| device.class == class);
    let room = |device: &DeviceStatus| u64::from(device.free.saturating_sub(device.slots / FREE_SHARE));
    match (is(DeviceClass::Ssd).count(), is(DeviceClass::Hdd).count()) {
        (0, _) | (_, 0) => "stripe".to_owned(),
        _ => evenly(is(DeviceClass::Ssd).map(room).sum(), extents),
    }
}

/// The policy that places as many of these extents on the SSDs as `room` says.
fn evenly(room: u64, extents: u64) -> String {
    if extents <= room {
        return "ssd-first,cache=0%".to_owned();
    }
    // Rounded up: an extent too few, and `ssd-first` would find room for homes.
    let millionths = (u128::from(room) * 1_000_000).div_ceil(u128::from(extents));
    match millionths {
        0 => "hdd-only".to_owned(),
        _ => format!("static,ssd={}%", millionths as f64 / 1e4),
    }
}

/// What lies in ranges of both lists. Each list is in order and without overlap.
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

/// What lies in ranges of the first list alone.
fn without(ranges: &[Range<Bytes>], listed: &[Range<Bytes>]) -> Vec<Range<Bytes>> {
    let begins = std::iter::once(Bytes::ZERO).chain(listed.iter().map(|range| range.end));
    let ends = listed.iter().map(|range| range.start).chain([Bytes(u64::MAX)]);
    both(ranges, &begins.zip(ends).map(|(begin, end)| begin..end).collect::<Vec<_>>())
}

/// What is to be filled of a volume of this size.
pub(crate) fn ranges(setup: &Setup, used: Option<&[Range<Bytes>]>, size: Bytes) -> Vec<Range<Bytes>> {
    match (setup.prefill, used) {
        (Prefill::None, _) => Vec::new(),
        // A trace may reach beyond the volume; what becomes of that, `Beyond` says.
        (Prefill::Used, Some(used)) => {
            let within = |range: &Range<Bytes>| range.start.min(size)..range.end.min(size);
            used.iter().map(within).filter(|range| !range.is_empty()).collect()
        }
        (Prefill::Used, None) | (Prefill::All, _) => vec![Bytes::ZERO..size],
    }
}

/// Writes a range, an extent at a time.
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
    fn a_list_divides_what_is_filled_without_loss() {
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
