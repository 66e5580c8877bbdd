//! Several devices used as one: striped (RAID 0) or mirrored (RAID 1).
//!
//! Rules:
//! - Striped: units of a fixed size lie on the members in turn. A request has at most one part on each
//!   member, because its bytes on a member are contiguous.
//! - Mirrored: a write goes to all members. A read goes to the member with the fewest requests outstanding.
//!   Among several such members, the member whose last request ended nearest serves the read, so a sequential
//!   reader keeps its member.
//! - A request completes with its last part. Flushes go to all members, discards to the members with affected
//!   bytes.
//!
//! Left out: the controller's own time and memory. To include them, put a `dram` before the group.

use crate::library::{InvalidModel, Spec};
use crate::{Counters, DeviceModel, Model, Op, Request, assert_within};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use std::ops::RangeInclusive;

/// The properties of a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Params {
    /// The model of each member.
    pub member: Spec,
    /// The number of members: 1 to 64.
    pub count: usize,
    /// The use of the members.
    pub level: Level,
}

/// The use of the members of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// RAID 0.
    Striped {
        /// Consecutive bytes on one member before the next member's turn.
        unit: Bytes,
    },
    /// RAID 1.
    Mirrored,
}

impl Level {
    /// Verifies the level.
    ///
    /// # Errors
    /// If the stripe unit is not a power of two from 4 KiB to 64 MiB.
    pub fn check(self) -> Result<(), InvalidModel> {
        match self {
            Level::Striped { unit } if !unit.0.is_power_of_two() || !UNITS.contains(&unit) => {
                let problem = format!("a stripe unit of {unit}: use a power of two from 4KiB to 64MiB");
                Err(InvalidModel(problem))
            }
            Level::Striped { .. } | Level::Mirrored => Ok(()),
        }
    }
}

const UNITS: RangeInclusive<Bytes> = Bytes(4 * KIB.0)..=Bytes(64 * MIB.0);

/// The most members of a group.
pub const MOST_MEMBERS: usize = 64;

/// A group at work.
#[derive(Clone, Debug)]
pub struct Group {
    size: Bytes,
    level: Level,
    members: Vec<Member>,
    /// Requests by the tag of their parts, and the free tags.
    requests: Vec<Parts>,
    free: Vec<usize>,
    /// Tags completed since the last `advance`, which drains the list.
    completed: Vec<u64>,
    /// Scratch for completions of members.
    parts: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Member {
    model: DeviceModel,
    /// Its next event, or `Nanos::MAX`.
    next: Nanos,
    outstanding: usize,
    /// End of its last request.
    head: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Parts {
    tag: u64,
    left: usize,
}

impl Group {
    /// A group of `size` bytes; its members differ in the seed.
    pub fn new(params: &Params, size: Bytes, seed: u64) -> Group {
        let member_size = match params.level {
            Level::Striped { unit } => unit * size.0.div_ceil(unit.0).div_ceil(params.count as u64),
            Level::Mirrored => size,
        };
        let mut rng = Rng::new(seed);
        let mut member = || {
            let model = params.member.build(member_size, rng.next_u64());
            Member { model, next: Nanos::MAX, outstanding: 0, head: Bytes::ZERO }
        };
        Group {
            size,
            level: params.level,
            members: (0..params.count).map(|_| member()).collect(),
            requests: Vec::new(),
            free: Vec::new(),
            completed: Vec::new(),
            parts: Vec::new(),
        }
    }
}

impl Model for Group {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_within(request, self.size);
        self.run(now);
        let parts = self.free.pop().unwrap_or(self.requests.len());
        if parts == self.requests.len() {
            self.requests.push(Parts { tag, left: 0 });
        }
        self.requests[parts] = Parts { tag, left: 0 };
        match (request.op, self.level) {
            (Op::Flush, _) | (Op::Write | Op::Discard, Level::Mirrored) => {
                (0..self.members.len()).for_each(|member| self.submit_part(parts, member, request, now));
            }
            (Op::Read, Level::Mirrored) => {
                self.submit_part(parts, self.nearest(request.offset), request, now)
            }
            (_, Level::Striped { unit }) => {
                for member in 0..self.members.len() {
                    if let Some((offset, len)) = self.part_of(request, member, unit) {
                        self.submit_part(parts, member, Request { offset, len, ..request }, now);
                    }
                }
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.members.iter().map(|member| member.next).min().filter(|at| *at < Nanos::MAX)
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        self.run(now);
        completed.append(&mut self.completed);
    }

    fn note(&mut self, request: Request) {
        assert_within(request, self.size);
        for place in 0..self.members.len() {
            let part = match self.level {
                Level::Mirrored => Some((request.offset, request.len)),
                Level::Striped { unit } => self.part_of(request, place, unit),
            };
            if let Some((offset, len)) = part {
                self.members[place].model.note(Request { offset, len, ..request });
            }
        }
    }

    fn counters(&self) -> Counters {
        self.members.iter().fold(Counters::default(), |sum, member| sum + member.model.counters())
    }
}

impl Group {
    /// Processes the members' events up to `now`, in order of time.
    fn run(&mut self, now: Nanos) {
        while let Some(member) = self.members.iter_mut().min_by_key(|member| member.next)
            && member.next <= now
        {
            member.model.advance(member.next, &mut self.parts);
            member.next = member.model.next_event().unwrap_or(Nanos::MAX);
            member.outstanding -= self.parts.len();
            for part in self.parts.drain(..) {
                let request = &mut self.requests[part as usize];
                request.left -= 1;
                if request.left == 0 {
                    self.completed.push(request.tag);
                    self.free.push(part as usize);
                }
            }
        }
    }

    fn submit_part(&mut self, parts: usize, member: usize, request: Request, now: Nanos) {
        self.requests[parts].left += 1;
        let member = &mut self.members[member];
        member.model.submit(parts as u64, request, now);
        member.next = member.model.next_event().unwrap_or(Nanos::MAX);
        member.outstanding += 1;
        if request.op != Op::Flush {
            member.head = request.offset + request.len;
        }
    }

    /// The part of a request on a member. An empty request lies at its offset.
    fn part_of(&self, request: Request, member: usize, unit: Bytes) -> Option<(Bytes, Bytes)> {
        let (count, member) = (self.members.len() as u64, member as u64);
        let (start, end) = (request.offset, request.offset + request.len);
        let first = start / unit;
        let last = if request.len == Bytes::ZERO { first } else { (end.0 - 1) / unit.0 };
        let own_first = first + (member + count - first % count) % count;
        if own_first > last {
            return None;
        }
        let own_last = last - (last % count + count - member) % count;
        let within = |at: u64| unit * (at / count);
        let from = within(own_first) + if own_first == first { start - unit * first } else { Bytes::ZERO };
        let to = within(own_last) + if own_last == last { end - unit * last } else { unit };
        Some((from, to - from))
    }

    fn nearest(&self, offset: Bytes) -> usize {
        let cost = |member: &Member| (member.outstanding, member.head.0.abs_diff(offset.0));
        (0..self.members.len()).min_by_key(|&at| cost(&self.members[at])).expect("a group has members")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_name;
    use braid_base::GIB;

    #[test]
    fn each_byte_of_striped_request_lies_on_one_member() {
        let spec = by_name("nvme-ssd").unwrap().raid0(3, KIB * 64).unwrap();
        let DeviceModel::Group(group) = spec.build(GIB, 1) else { panic!("a group was asked for") };
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let (offset, len) = (Bytes(rng.below(1 << 24)), Bytes(rng.below(1 << 20)));
            let request = Request { op: Op::Read, offset, len };
            let parts: Vec<_> =
                (0..3).filter_map(|member| group.part_of(request, member, KIB * 64)).collect();
            assert_eq!(parts.iter().map(|part| part.1).sum::<Bytes>(), len, "{request:?}");
            for at in [offset, offset + len / 2, (offset + len).saturating_sub(Bytes(1))] {
                let (unit, count) = (at / (KIB * 64), 3);
                let place = KIB * 64 * (unit / count) + at % (KIB * 64);
                let (from, part) = group.part_of(request, (unit % count) as usize, KIB * 64).unwrap();
                assert!(len == Bytes::ZERO || from <= place && place < from + part, "{request:?}: {at:?}");
            }
        }
    }
}
