//! Initial layout of a cell: ranges of whole extents on the SSD, the same for all rows and policies.

use super::{Cell, InitialLayout, in_cell};
use crate::fill::OWN;
use crate::{Result, Setup, WarmUp, simulate};
use braid_base::{Bytes, Rng};
use std::ops::Range;

/// Slots that a volume keeps spare on a device, or uses itself.
pub(crate) const SPARE: u64 = 5;
/// A neutral layout leaves one in this many slots of the SSD free: policies want room for a cache or for
/// moves.
const FREE: u64 = 10;

/// Extents that fit an SSD with room for this share of `extents`, in per cent; and the number that a neutral
/// layout puts there.
pub fn room(extents: u64, ssd_percent: u32) -> (u64, u64) {
    let slots = (extents * u64::from(ssd_percent)).div_ceil(100);
    let most = slots.saturating_sub(SPARE).min(extents);
    let neutral = (slots - slots / FREE).saturating_sub(SPARE).min(extents);
    (most, neutral)
}

/// Ranges on the SSD when a cell of `extents` extents begins.
///
/// # Errors
/// Errors of the policy that left the layout.
pub(crate) fn on_ssd(cell: &Cell, extents: u64, extent: Bytes, quick: bool) -> Result<Vec<Range<Bytes>>> {
    let (most, neutral) = room(extents, cell.ssd_percent);
    Ok(match cell.beginning {
        InitialLayout::OnDisks => Vec::new(),
        InitialLayout::ByAddress => ranges((0..neutral).collect(), extent),
        InitialLayout::Striped => ranges(spread(neutral, extents, cell.seed), extent),
        InitialLayout::LeftBy(policy) => {
            let left = left_by(cell, policy, quick).map_err(|error| in_cell(cell, policy, error))?;
            let of_range = |range: &Range<Bytes>| range.start / extent..range.end.0.div_ceil(extent.0);
            let all: Vec<u64> = left.iter().flat_map(of_range).collect();
            ranges(all.into_iter().take(most as usize).collect(), extent)
        }
    })
}

/// Runs the first half of a cell's load under a policy that also places the data; returns the resulting
/// ranges on SSDs.
fn left_by(cell: &Cell, policy: &str, quick: bool) -> Result<Vec<Range<Bytes>>> {
    let mut setup =
        Setup { prefill_policy: Some(OWN.to_owned()), list_homes: true, ..cell.setup(policy, quick)? };
    match setup.warm_up {
        WarmUp::Time(time) => setup.duration = Some(time),
        _ => setup.requests = setup.requests.map(|requests| (requests / 2).max(1)),
    }
    setup.warm_up = WarmUp::NONE;
    Ok(simulate(&setup)?.outcome.ssd_homes.unwrap_or_default())
}

/// Draws `count` extents of all, one from each part of equal length. A fixed stride would meet only some of
/// the disks.
fn spread(count: u64, of: u64, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let edge = |number: u64| (u128::from(of) * u128::from(number) / u128::from(count.max(1))) as u64;
    (0..count).map(|number| rng.between(edge(number), edge(number + 1))).collect()
}

/// Converts extents in rising order to ranges; neighbours are joined.
pub(crate) fn ranges(extents: Vec<u64>, extent: Bytes) -> Vec<Range<Bytes>> {
    let mut ranges: Vec<Range<Bytes>> = Vec::new();
    for number in extents {
        let (start, end) = (extent * number, extent * (number + 1));
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}
