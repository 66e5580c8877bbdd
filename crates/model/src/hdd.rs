//! A hard disk: an arm, a spindle, an on-drive queue and a buffer.
//!
//! A read takes the seek (`seek`), the wait for its first sector (`geometry`), the transfer, and the
//! command's overhead; the transfer to the host overlaps with the transfer from the platter. The structure
//! follows C. Ruemmler, J. Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer, March 1994).
//!
//! Rules:
//! - Of the requests on the drive, the request with the shortest positioning time goes first, less a share of
//!   its age, so no request starves (aged shortest positioning time first: D. Jacobson, J. Wilkes, "Disk
//!   scheduling algorithms based on rotational position", HP Laboratories, 1991).
//! - With the write cache on, a write completes in the buffer. Buffered runs go to the platter when no read
//!   waits. Once the buffer fills or a flush waits, runs and reads take turns.
//! - A flush waits until the buffer is clean. Later writes wait for the flush, as behind the unqueued flush
//!   of ATA; reads continue.
//! - After a read, the disk reads ahead until the arm is needed elsewhere.
//!
//! Left out: defects, thermal calibration, errors and retries, and partial reads that begin in the middle of
//! a transfer.

mod arm;
mod geometry;
mod read_buffer;
mod seek;
mod write_buffer;

pub use geometry::{Geometry, Place};
pub use seek::{Curve, Seek};

use crate::link::Link;
use crate::rate::Rate;
use crate::{Model, Op, Request, assert_within};
use arm::Arm;
use braid_base::{Bytes, Nanos, Rng, SECTOR};
use read_buffer::ReadBuffer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use write_buffer::{Run, WriteBuffer};

/// The properties of a disk. The size is separate: a smaller device has fewer cylinders of the same kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// One turn of the spindle.
    pub revolution: Nanos,
    /// Surfaces with a head.
    pub heads: u32,
    /// Sustained rate at the outer edge, switches between tracks included.
    pub outer: Rate,
    /// Sustained rate at the inner edge, switches between tracks included.
    pub inner: Rate,
    /// The seek curve's figures.
    pub seek: Seek,
    /// Time from one head to the next on a cylinder; also the skew between their tracks.
    pub head_switch: Nanos,
    /// The rate of the host interface.
    pub interface: Rate,
    /// The overhead of a command on the interface and in the controller.
    pub command: Nanos,
    /// Requests that the drive holds; further requests wait outside.
    pub queue_depth: usize,
    /// The oldest requests on the drive that are weighed for the nearest.
    pub weighed: usize,
    /// Memory for writes while the write cache is on.
    pub buffer: Bytes,
    /// True if writes complete in the buffer.
    pub write_cache: bool,
    /// Separate runs of sectors in the write cache.
    pub buffered_runs: usize,
    /// Stretches of read or read-ahead data in the buffer: the number of separate sequential readers.
    pub segments: usize,
    /// The distance of read-ahead in front of the host.
    pub read_ahead: Bytes,
}

/// The segments of a disk with an unknown number. Assumed: the Cheetah 15K.5 has 32, at most 11 of them for
/// writes (DiskSim model file, `[paper]`); half as many are enough for a closed set of readers.
pub const SEGMENTS: usize = 16;

/// A disk at work.
#[derive(Clone, Debug)]
pub struct Hdd {
    params: Params,
    size: Bytes,
    arm: Arm,
    link: Link,
    /// Requests beyond the queue depth, in order.
    outside: VecDeque<(u64, Request)>,
    /// Incomplete requests on the drive.
    held: usize,
    /// Writes and flushes that wait for the buffer, in order.
    intake: VecDeque<(u64, Request)>,
    /// Requests that wait for the arm, the oldest first.
    queue: Vec<Waiting>,
    /// The current work of the arm.
    job: Option<Job>,
    destage_next: bool,
    writes: WriteBuffer,
    reads: ReadBuffer,
    /// Scheduled completions: time, order, tag.
    due: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    order: u64,
    /// Tags completed since the last `advance`, which drains the list.
    completed: Vec<u64>,
}

/// A request that needs the arm.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: u64,
    op: Op,
    sector: u64,
    count: u64,
    place: Place,
    since: Nanos,
    /// Earliest start: for a write, the time when its bytes are on the drive.
    ready: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    /// The time when its first sector passes.
    begins: Nanos,
    ends: Nanos,
    work: Work,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Serve(Waiting),
    Destage,
}

/// A waiting request gains a positioning time of 1/`AGEING` of its age. A request that has waited for two
/// seconds goes before any other, and at usual ages the order hardly changes.
const AGEING: u64 = 128;

/// The divisor for buffered runs. No request waits for a single run, and runs wait for many seconds in a
/// large buffer.
const BUFFERED_AGEING: u64 = 16_384;

impl Hdd {
    /// A disk of `size` at rest; the seed gives the angle of the spindle.
    pub fn new(params: &Params, size: Bytes, seed: u64) -> Hdd {
        assert!(size >= SECTOR, "a disk of {size} has no sector");
        let phase = Rng::new(seed).below(params.revolution.0);
        Hdd {
            params: *params,
            size,
            arm: Arm::new(Geometry::new(params, size), Curve::fit(params.seek), Nanos(phase)),
            link: Link::new(params.interface, params.command),
            outside: VecDeque::new(),
            held: 0,
            intake: VecDeque::with_capacity(params.queue_depth),
            queue: Vec::with_capacity(params.queue_depth),
            job: None,
            destage_next: false,
            writes: WriteBuffer::new(params.buffer, params.buffered_runs),
            reads: ReadBuffer::new(params.segments, params.read_ahead, size),
            due: BinaryHeap::with_capacity(params.queue_depth),
            order: 0,
            completed: Vec::with_capacity(params.queue_depth),
        }
    }
}

impl Model for Hdd {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_within(request, self.size);
        self.run(now);
        if self.held == self.params.queue_depth {
            self.outside.push_back((tag, request));
            return;
        }
        self.admit(tag, request, now);
        self.start(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        let due = self.due.peek().map(|Reverse((at, ..))| *at);
        let job = self.job.map(|job| job.ends);
        due.into_iter().chain(job).min()
    }

    fn next_tag(&self) -> Option<u64> {
        match (self.due.peek(), self.job) {
            (Some(Reverse((at, _, tag))), job) if job.is_none_or(|job| *at <= job.ends) => Some(*tag),
            (_, Some(Job { work: Work::Serve(waiting), .. })) => Some(waiting.tag),
            _ => None,
        }
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        self.run(now);
        completed.append(&mut self.completed);
    }
}

impl Hdd {
    /// Processes every event up to `now`, in order of time.
    fn run(&mut self, now: Nanos) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            if let Some(job) = self.job.take_if(|job| job.ends == at) {
                self.finish(job);
            }
            while let Some(Reverse((_, _, tag))) = self.due.peek().filter(|Reverse(due)| due.0 == at) {
                self.completed.push(*tag);
                self.due.pop();
                self.held -= 1;
            }
            while self.held < self.params.queue_depth
                && let Some((tag, request)) = self.outside.pop_front()
            {
                self.admit(tag, request, at);
            }
            self.start(at);
        }
    }

    /// Takes a request onto the drive.
    fn admit(&mut self, tag: u64, request: Request, now: Nanos) {
        self.held += 1;
        match request.op {
            Op::Read if request.len > Bytes::ZERO => self.admit_read(tag, request, now),
            Op::Write if request.len > Bytes::ZERO && !self.params.write_cache => {
                let ready = self.link.carry(request.len, now);
                self.enqueue(tag, request, now, ready);
            }
            Op::Write | Op::Flush => {
                self.intake.push_back((tag, request));
                self.take_in(now);
            }
            Op::Read | Op::Discard => self.complete_over_link(tag, Bytes::ZERO, now),
        }
    }

    fn admit_read(&mut self, tag: u64, request: Request, now: Nanos) {
        let (sector, count) = sectors_of(request);
        self.reads.follow(now, &self.arm.geometry);
        if !self.writes.holds(sector, count) && !self.reads.take(sector, count) {
            self.enqueue(tag, request, now, now);
            return;
        }
        self.complete_over_link(tag, request.len, now);
        if self.job.is_none()
            && let Some(end) = self.reads.stalled()
        {
            let wait = self.arm.wait_for_sector(end, now);
            self.reads.resume(now + wait);
        }
    }

    fn enqueue(&mut self, tag: u64, request: Request, now: Nanos, ready: Nanos) {
        let (sector, count) = sectors_of(request);
        let place = self.arm.geometry.locate(sector);
        self.queue.push(Waiting { tag, op: request.op, sector, count, place, since: now, ready });
    }

    /// Takes writes into the buffer while there is room, and completes a flush once the buffer is clean.
    ///
    /// The arm may take a run before its bytes have come over the link: positioning takes longer than the
    /// transfer.
    fn take_in(&mut self, now: Nanos) {
        while let Some(&(tag, request)) = self.intake.front() {
            let (sector, count) = sectors_of(request);
            let ready = match request.op {
                Op::Flush => self.writes.is_clean(),
                _ => count == 0 || self.writes.has_room(sector, count),
            };
            if !ready {
                return;
            }
            if count > 0 {
                self.writes.insert(sector, count, now, &self.arm.geometry);
            }
            self.intake.pop_front();
            self.complete_over_link(tag, request.len, now);
        }
    }

    fn complete_over_link(&mut self, tag: u64, len: Bytes, now: Nanos) {
        let at = self.link.carry(len, now);
        self.complete(tag, at);
    }

    fn complete(&mut self, tag: u64, at: Nanos) {
        self.order += 1;
        self.due.push(Reverse((at, self.order, tag)));
    }

    /// Gives a free arm its next job, if there is a job.
    fn start(&mut self, now: Nanos) {
        while self.job.is_none() {
            if let Some(sector) = self.reads.follow(now, &self.arm.geometry) {
                self.arm.leave_at(sector);
            }
            let pressed = !self.intake.is_empty() || self.writes.is_filling();
            let destage = self.writes.has_runs() && (self.queue.is_empty() || pressed && self.destage_next);
            self.destage_next = !destage;
            if destage {
                self.start_destage(now);
            } else if let Some(next) = self.nearest(now) {
                self.start_serving(next, now);
            } else {
                return;
            }
        }
    }

    /// The waiting request with the shortest positioning time, less its age's share.
    fn nearest(&self, now: Nanos) -> Option<usize> {
        let cost = |waiting: &Waiting| {
            let continues = waiting.op == Op::Read && self.reads.continues(waiting.sector).is_some();
            let position = if continues {
                Nanos::ZERO
            } else {
                self.arm.wait_for(waiting.place, waiting.op, now.max(waiting.ready))
            };
            position.0 as i64 - (now.saturating_sub(waiting.since) / AGEING).0 as i64
        };
        let weighed = self.queue.len().min(self.params.weighed);
        (0..weighed).min_by_key(|&at| cost(&self.queue[at]))
    }

    fn start_serving(&mut self, at: usize, now: Nanos) {
        let waiting = self.queue.remove(at);
        if waiting.op == Op::Read && self.reads.take(waiting.sector, waiting.count) {
            self.complete_over_link(waiting.tag, Bytes(waiting.count * SECTOR.0), now);
            return;
        }
        let end = waiting.sector + waiting.count;
        let continued = self.reads.continues(waiting.sector).filter(|_| waiting.op == Op::Read);
        let (from, begins) = continued.unwrap_or_else(|| {
            self.reads.stop();
            let from = now.max(waiting.ready);
            (waiting.sector, from + self.arm.wait_for(waiting.place, waiting.op, from))
        });
        let ends = begins + self.arm.geometry.passing(from, end - from);
        self.job = Some(Job { begins, ends, work: Work::Serve(waiting) });
        self.arm.leave_at(end - 1);
    }

    fn start_destage(&mut self, now: Nanos) {
        let cost = |run: &Run| {
            let age = now.saturating_sub(run.since) / BUFFERED_AGEING;
            let position = self.arm.wait_for(run.place, Op::Write, now);
            position.0 as i64 - age.0 as i64
        };
        let Some(run) = self.writes.take(self.arm.cylinder(), self.most_destaged(), &self.arm.geometry, cost)
        else {
            return;
        };
        self.reads.stop();
        let begins = now + self.arm.wait_for(run.place, Op::Write, now);
        let ends = begins + self.arm.geometry.passing(run.sector, run.count);
        self.job = Some(Job { begins, ends, work: Work::Destage });
        self.arm.leave_at(run.sector + run.count - 1);
    }

    /// The most sectors of a destage: about one turn, so a read does not wait for longer.
    fn most_destaged(&self) -> u64 {
        (self.params.outer.0 * self.params.revolution.0 / 1_000_000_000 / SECTOR.0).max(1)
    }

    fn finish(&mut self, job: Job) {
        match job.work {
            Work::Destage => {
                self.writes.arrived();
                self.take_in(job.ends);
            }
            Work::Serve(waiting) if waiting.op == Op::Write => self.complete(waiting.tag, job.ends),
            Work::Serve(waiting) => {
                let len = Bytes(waiting.count * SECTOR.0);
                let at = self.link.carry_overlapped(len, job.begins, job.ends);
                self.complete(waiting.tag, at);
                self.read_ahead(waiting.sector, waiting.sector + waiting.count, job.ends);
            }
        }
    }

    fn read_ahead(&mut self, sector: u64, end: u64, now: Nanos) {
        let next = end.min(self.size.align_up(SECTOR) / SECTOR - 1);
        let wait = self.arm.wait_for_sector(next, now);
        self.reads.start(sector, end, now + wait);
    }
}

/// The first sector of a request, and the number of touched sectors.
fn sectors_of(request: Request) -> (u64, u64) {
    let first = request.offset / SECTOR;
    let end = (request.offset + request.len).align_up(SECTOR) / SECTOR;
    (first, end.saturating_sub(first))
}
