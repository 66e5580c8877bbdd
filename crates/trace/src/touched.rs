//! Numbers the extents that a trace touches, without the gaps between them.
//!
//! A trace of a server touches some gigabytes of a disk of terabytes. A direct simulation would need devices
//! of the disk's size. This module numbers the extents touched by reads and writes in order of address,
//! device after device. The numbered extents form a dense volume. Offsets within an extent stay the same, and
//! adjacent extents stay adjacent. Distant extents may become adjacent, and seeks between them become
//! shorter.
//!
//! A discard touches no extent. A discard is narrowed to the touched extents within its range, and may become
//! empty.
//!
//! Extents are kept in groups of 64. Each group takes 17 bytes plus room to grow. For [`MOST_GROUPS`] groups,
//! the limit of a trace, this is at most some 300 MiB during reading, and 200 MiB afterwards.

use crate::Error;
use crate::devices::layout_order;
use crate::reader::Record;
use braid_base::{Bytes, Op, Request};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The extents touched so far.
pub(crate) struct Touched {
    extent: Bytes,
    /// Bitmap of touched extents in each group, by device and group number.
    groups: HashMap<u64, u64, FixedState>,
    most: usize,
}

/// Limit of groups that a trace may touch: 8,388,608. With extents of 128 KiB, the limit is 1 TiB of
/// scattered extents, or 64 TiB of adjacent extents.
pub const MOST_GROUPS: usize = 1 << 23;

/// Extents in a group: the bits of a word.
const GROUP: u64 = 64;

/// Position of the device number in the key of a group. Addresses end at 64 PiB, and extents have at least
/// 512 bytes.
const DEVICE_SHIFT: u32 = 48;

impl Touched {
    /// Creates an empty set of extents of the given size.
    pub(crate) fn new(extent: Bytes) -> Result<Touched, Error> {
        if extent < Bytes(512) {
            return Err(Error::Options(format!("extents of {extent}: use 512 B at least")));
        }
        Ok(Touched { extent, groups: HashMap::default(), most: MOST_GROUPS })
    }

    /// Marks the extents that a record touches.
    pub(crate) fn add(&mut self, record: &Record) -> Result<(), Error> {
        let Request { op, len, .. } = record.arrival.request;
        if matches!(op, Op::Flush | Op::Discard) || len == Bytes::ZERO {
            return Ok(());
        }
        let (first, last) = (record.within / self.extent, (record.within + len - Bytes(1)) / self.extent);
        for group in first / GROUP..=last / GROUP {
            let from = first.max(group * GROUP) % GROUP;
            let to = last.min(group * GROUP + GROUP - 1) % GROUP;
            let bits = u64::MAX << from & u64::MAX >> (GROUP - 1 - to);
            *self.groups.entry(key(record.device, group)).or_default() |= bits;
        }
        if self.groups.len() > self.most {
            return Err(Error::Options(format!(
                "its requests are too scattered for compaction: they touch more than {} groups of {GROUP} \
                 extents of {}; use larger extents, one device of the trace, or no compaction",
                self.most, self.extent
            )));
        }
        Ok(())
    }

    /// Numbers the extents, in the layout order of the devices. `labels` holds the device labels by number.
    pub(crate) fn number(self, labels: &[String]) -> Compaction {
        let mut groups: Vec<(u64, u64)> = self.groups.into_iter().collect();
        let place = |key: u64| (labels.get((key >> DEVICE_SHIFT) as usize).map_or("", String::as_str), key);
        groups.sort_unstable_by(|&(a, _), &(b, _)| {
            let ((a, a_key), (b, b_key)) = (place(a), place(b));
            layout_order(a, b).then(a_key.cmp(&b_key))
        });
        let (mut numbered, mut extents) = (Vec::with_capacity(groups.len()), 0);
        let mut first = vec![];
        for (key, touched) in groups {
            let device = usize::from((key >> DEVICE_SHIFT) as u16);
            if first.len() <= device {
                first.resize(device + 1, (usize::MAX, 0));
            }
            let (from, to) = first[device];
            first[device] = (from.min(numbered.len()), to.max(numbered.len() + 1));
            numbered.push(Group { number: key & ((1 << DEVICE_SHIFT) - 1), touched, before: extents });
            extents += u64::from(touched.count_ones());
        }
        Compaction { extent: self.extent, groups: numbered, devices: first, extents }
    }
}

fn key(device: u16, group: u64) -> u64 {
    u64::from(device) << DEVICE_SHIFT | group
}

/// Mapping of touched extents to a dense volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compaction {
    extent: Bytes,
    /// Groups, each device's groups together, in order of number.
    groups: Vec<Group>,
    /// Range of each device's groups in `groups`, by device number.
    devices: Vec<(usize, usize)>,
    extents: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group {
    number: u64,
    touched: u64,
    /// Touched extents before this group.
    before: u64,
}

impl Compaction {
    /// Returns the number of touched extents.
    pub fn extents(&self) -> u64 {
        self.extents
    }

    /// Returns the size of the dense volume.
    pub fn span(&self) -> Bytes {
        self.extent * self.extents
    }

    /// Maps a record of the same trace to the dense volume. `None` for a read or write of untouched extents,
    /// possible only in another trace.
    pub fn place(&self, record: &Record) -> Option<Request> {
        let request = record.arrival.request;
        if request.op == Op::Flush {
            return Some(request);
        }
        let from = self.bound(record.device, record.within);
        let to = self.bound(record.device, record.within + request.len);
        let len = Bytes(to.0.checked_sub(from.0)?);
        let whole = len == request.len || request.op == Op::Discard;
        whole.then_some(Request { offset: from, len, ..request })
    }

    /// Returns the bytes of touched extents before a byte of a device.
    fn bound(&self, device: u16, at: Bytes) -> Bytes {
        let (number, rest) = (at / self.extent, at % self.extent);
        let Some(&(from, to)) = self.devices.get(usize::from(device)).filter(|(from, to)| from < to) else {
            return Bytes::ZERO;
        };
        let groups = &self.groups[from..to];
        let next = groups.partition_point(|group| group.number < number / GROUP);
        let (before, touched) = match groups.get(next) {
            Some(group) if group.number == number / GROUP => {
                let bit = 1 << (number % GROUP);
                let below = group.touched & (bit - 1);
                (group.before + u64::from(below.count_ones()), group.touched & bit != 0)
            }
            Some(group) => (group.before, false),
            None => {
                let last = groups[groups.len() - 1];
                (last.before + u64::from(last.touched.count_ones()), false)
            }
        };
        self.extent * before + if touched { rest } else { Bytes::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Arrival, KIB, Nanos, Rng};
    use std::collections::BTreeSet;

    const EXTENT: Bytes = Bytes(128 << 10);

    fn record(device: u16, op: Op, within: u64, len: u64) -> Record {
        let request = Request { op, offset: Bytes(within), len: Bytes(len) };
        Record { arrival: Arrival { at: Nanos::ZERO, request }, device, within: Bytes(within) }
    }

    fn compacted(records: &[Record]) -> Compaction {
        let mut touched = Touched::new(EXTENT).expect("the size is one");
        records.iter().for_each(|record| touched.add(record).expect("they are few"));
        touched.number(&["7".to_owned(), "2".to_owned()])
    }

    fn placed(compaction: &Compaction, record: Record) -> Option<(u64, u64)> {
        compaction.place(&record).map(|request| (request.offset.0, request.len.0))
    }

    #[test]
    fn touched_extents_are_packed_by_device_and_address() {
        let far = 9_000_000_000_000 / EXTENT.0 * EXTENT.0;
        let records = [
            record(0, Op::Write, far + 4096, 4096),
            record(0, Op::Read, EXTENT.0 * 63 - 512, 1024),
            record(1, Op::Read, EXTENT.0 * 5, EXTENT.0 * 2),
            record(0, Op::Flush, 0, 0),
        ];
        let compaction = compacted(&records);
        assert_eq!((compaction.extents(), compaction.span()), (5, EXTENT * 5));
        // Device 1 has the label 2, and comes before label 7.
        let extent = EXTENT.0;
        assert_eq!(placed(&compaction, records[2]), Some((0, extent * 2)));
        assert_eq!(placed(&compaction, records[1]), Some((extent * 3 - 512, 1024)));
        assert_eq!(placed(&compaction, records[0]), Some((extent * 4 + 4096, 4096)));
        assert_eq!(placed(&compaction, records[3]), Some((0, 0)));
        assert_eq!(placed(&compaction, record(0, Op::Read, extent * 70, 512)), None, "it was not seen");
    }

    #[test]
    fn discard_touches_nothing_and_shrinks_to_touched_extents() {
        let extent = EXTENT.0;
        let everything = record(0, Op::Discard, 0, 1 << 50);
        let compaction = compacted(&[
            everything,
            record(0, Op::Write, extent * 100, extent),
            record(0, Op::Write, extent * 300, 512),
        ]);
        assert_eq!(compaction.extents(), 2);
        assert_eq!(placed(&compaction, everything), Some((0, extent * 2)));
        let half = record(0, Op::Discard, extent * 100 + extent / 2, extent * 50);
        assert_eq!(placed(&compaction, half), Some((extent / 2, extent / 2)));
        assert_eq!(placed(&compaction, record(0, Op::Discard, 0, extent * 100)), Some((0, 0)));
        assert_eq!(placed(&compaction, record(1, Op::Discard, 0, 1 << 50)), Some((0, 0)));
    }

    #[test]
    fn numbers_are_the_ranks_of_a_sorted_set() {
        let mut rng = Rng::new(7);
        for _ in 0..20 {
            let records: Vec<Record> = (0..200)
                .map(|_| record(0, Op::Write, rng.below(40_000) * 4096, 4096 * rng.between(1, 100)))
                .collect();
            let compaction = compacted(&records);
            let extents = |record: &Record| {
                let end = record.within + record.arrival.request.len - Bytes(1);
                record.within / EXTENT..=end / EXTENT
            };
            let set: BTreeSet<u64> = records.iter().flat_map(extents).collect();
            assert_eq!(compaction.extents(), set.len() as u64);
            for record in &records {
                let rank = set.range(..record.within / EXTENT).count() as u64;
                let expected = EXTENT * rank + record.within % EXTENT;
                let request = compaction.place(record).expect("it was seen");
                assert_eq!((request.offset, request.len), (expected, record.arrival.request.len));
            }
        }
    }

    #[test]
    fn too_scattered_trace_is_rejected() {
        let touched = Touched::new(KIB * 4).expect("the size is one");
        let mut touched = Touched { most: 100, ..touched };
        let apart = (KIB * 4).0 * GROUP;
        let mut add = |group: u64| touched.add(&record(0, Op::Read, group * apart, 512));
        assert!((0..100).chain(0..100).all(|group| add(group).is_ok()));
        assert!(matches!(add(100), Err(Error::Options(_))));
    }
}
