//! Runs of extents in few bytes: scattered extents take two or three bytes each.
//!
//! ```text
//! a run    gap << 1 | (1 if the run has more than one extent), as LEB128: the gap since the end of the run before
//!          extents - 2, as LEB128, if the run has more than one
//! ```

use crate::Invalid;
use braid_base::ExtentId;

/// Runs, in order: first extent and number of extents.
pub type Runs = Vec<(u32, u32)>;

/// Packs extents, given in order, into runs of at most `room` packed bytes. Too many runs are merged across
/// short gaps.
pub(crate) fn runs_within(extents: impl Iterator<Item = ExtentId>, room: usize) -> Runs {
    let mut runs = all(extents);
    let mut gap = 1;
    while pack(&runs).len() > room {
        runs = join(runs, gap);
        gap = gap.saturating_mul(2);
    }
    runs
}

/// The runs of extents, given in order.
pub(crate) fn all(extents: impl Iterator<Item = ExtentId>) -> Runs {
    let mut runs = Runs::new();
    for extent in extents {
        match runs.last_mut() {
            Some((first, len)) if *first + *len == extent.0 => *len += 1,
            _ => runs.push((extent.0, 1)),
        }
    }
    runs
}

/// Merges runs across gaps of at most `gap` extents.
pub(crate) fn join(runs: Runs, gap: u32) -> Runs {
    let mut joined: Runs = Vec::new();
    for (first, len) in runs {
        match joined.last_mut() {
            Some((before, length)) if first - (*before + *length) <= gap => *length = first + len - *before,
            _ => joined.push((first, len)),
        }
    }
    joined
}

/// The packed bytes of runs in order that do not touch.
pub(crate) fn pack(runs: &[(u32, u32)]) -> Vec<u8> {
    let (mut bytes, mut end) = (Vec::new(), 0);
    for &(first, len) in runs {
        push(&mut bytes, (u64::from(first - end) << 1) | u64::from(len > 1));
        if len > 1 {
            push(&mut bytes, u64::from(len - 2));
        }
        end = first + len;
    }
    bytes
}

/// The runs in `bytes`, all of which must be packed runs.
pub(crate) fn unpack(mut bytes: &[u8]) -> Result<Runs, Invalid> {
    let (mut runs, mut end) = (Runs::new(), 0u32);
    let wrong = || Invalid::Value("packed runs reach beyond the largest volume".to_owned());
    while !bytes.is_empty() {
        let head = take(&mut bytes)?;
        let gap = u32::try_from(head >> 1).map_err(|_| wrong())?;
        let more = if head & 1 == 1 { take(&mut bytes)?.saturating_add(1) } else { 0 };
        let len = u32::try_from(more).ok().and_then(|more| more.checked_add(1)).ok_or_else(wrong)?;
        if gap == 0 && !runs.is_empty() {
            return Err(Invalid::Value("packed runs touch each other".to_owned()));
        }
        let first = end.checked_add(gap).ok_or_else(wrong)?;
        end = first.checked_add(len).ok_or_else(wrong)?;
        runs.push((first, len));
    }
    Ok(runs)
}

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Result<u64, Invalid> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let Some((&first, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            // Only the shortest form of a number is accepted.
            if shift > 0 && first == 0 {
                break;
            }
            return Ok(number);
        }
    }
    Err(Invalid::Value("a number in packed runs has no end".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: impl IntoIterator<Item = u32>) -> impl Iterator<Item = ExtentId> {
        all.into_iter().map(ExtentId)
    }

    #[test]
    fn runs_round_trip_in_few_bytes() {
        for runs in
            [vec![], vec![(0, 1)], vec![(0, 3), (4, 1), (9, 2), (1 << 20, 500)], vec![(u32::MAX - 2, 2)]]
        {
            assert_eq!(unpack(&pack(&runs)), Ok(runs));
        }
        let scattered = runs_within(ids((0..400).map(|i| i * 5_000)), 1_000);
        assert_eq!((scattered.len(), pack(&scattered).len()), (400, 799));
    }

    #[test]
    fn excess_runs_are_joined_and_omit_no_extent() {
        let all: Vec<u32> = (0..10_000u32).map(|i| i * 77 + i % 13 * 3).collect();
        for room in [0, 1, 9, 200, 4_000] {
            let runs = runs_within(ids(all.iter().copied()), room.max(10));
            assert!(pack(&runs).len() <= room.max(10) && unpack(&pack(&runs)) == Ok(runs.clone()));
            let holds = |id: &u32| runs.iter().any(|(first, len)| (*first..first + len).contains(id));
            assert!(all.iter().step_by(17).all(holds));
        }
    }

    #[test]
    fn bytes_not_produced_by_pack_are_rejected() {
        for bytes in [&[0x80][..], &[0x80, 0], &[0xff; 6], &[4, 0], &[1, 0xff, 0xff, 0xff, 0xff, 0x1f], &[3]]
        {
            assert!(unpack(bytes).is_err(), "{bytes:?}");
        }
    }
}
