//! `clairvoyant`: an SSD cache that knows all requests beforehand, on the cell's devices, with their queues.
//!
//! All homes are on the disks, extents by turns. The SSD holds the blocks that [`Held`] names, in all of its room:
//! there is no metadata. Requests run on the device models, which queue waiting requests.
//!
//! - A read of a held block goes to the SSD or to the home: to the device with the earlier predicted completion.
//!   The prediction adds the request's own unloaded time to the unloaded times of all requests at the device,
//!   divided by the device's parallelism.
//! - A write goes to the SSD or to the home by the same rule, held or not.
//! - Copies into and out of the cache, write-back and metadata cost nothing: no device sees them.
//!
//! What this bounds: the number of reads that the disks must serve is a true lower bound for policies that copy
//! a block to the SSD at an access and not before ([`super::belady`]). The latency is an *estimate*, on the low side
//! because background work is free, and no bound. A policy that moves whole extents fetches blocks before their
//! first read; a greedy choice of devices is not always the best; and Belady's rule counts misses, not
//! milliseconds. Two caches run, one with [`Which::All`] and one with [`Which::Scattered`], and the lower mean of a
//! cell counts. The report says in how many cells a policy is better still.

use super::belady::{BLOCK, Held, Which, blocks};
use super::cell::Cell;
use super::heat::{Costs, Streams};
use super::rows::Room;
use super::run::Value;
use super::write::{EXTENT, Written, clients_at};
use crate::{Drive, Error, Result};
use braid_base::{Bytes, Nanos, Op, Request, Rng, SECTOR};
use braid_engine::Latency;
use braid_model::{DeviceModel, Model, by_name};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What such a cache does in a cell.
///
/// # Errors
/// A model that is none.
pub fn clairvoyant(cell: &Cell, written: &Written, seed: u64) -> Result<Value> {
    let room = Room::of(cell, written.script.span);
    let blocks = (room.ssd_slots * (EXTENT / BLOCK)) as usize;
    let mut best: Option<Value> = None;
    for which in [Which::All, Which::Scattered] {
        let held = Held::of(written.script.entries.iter().map(|entry| &entry.request), blocks, which);
        let value = Devices::new(cell, &room, seed)?.run(written, &held);
        if best.as_ref().is_none_or(|best| value.mean_ns < best.mean_ns) {
            best = Some(value);
        }
    }
    best.ok_or_else(|| Error::setup("a cache that knows all requests has run at least once"))
}

/// The SSD first, then the disks.
struct Devices {
    models: Vec<DeviceModel>,
    sizes: Vec<Bytes>,
    costs: Vec<Costs>,
    /// Predicted times of what waits at each device, in milliseconds, and what each request of it adds.
    waiting: Vec<f64>,
    parts: Vec<Part>,
    streams: Streams,
}

/// A part of a request at a device.
#[derive(Clone, Copy)]
struct Part {
    request: usize,
    device: usize,
    ms: f64,
}

/// A request under way.
#[derive(Clone, Copy, Default)]
struct Pending {
    parts: u32,
    arrived: Nanos,
}

impl Devices {
    fn new(cell: &Cell, room: &Room, seed: u64) -> Result<Devices> {
        let spec =
            |name: &str| by_name(name).ok_or_else(|| Error::setup(format!("no device model '{name}'")));
        let mut rng = Rng::new(seed);
        let mut sizes = vec![EXTENT * room.ssd_slots];
        let mut models = vec![spec(cell.ssd)?.build(sizes[0], rng.next_u64())];
        // An SSD that was filled once, as those of the other rows are in parts.
        let mut at = Bytes::ZERO;
        while at < sizes[0] {
            models[0].note(Request { op: Op::Write, offset: at, len: EXTENT });
            at += EXTENT;
        }
        for _ in 0..cell.disks {
            sizes.push(EXTENT * room.hdd_slots);
            models.push(spec(cell.hdd)?.build(EXTENT * room.hdd_slots, rng.next_u64()));
        }
        let mut costs = vec![Costs::of_model(cell.ssd)?];
        costs.extend(vec![Costs::of_model(cell.hdd)?; cell.disks]);
        let waiting = vec![0.0; models.len()];
        Ok(Devices { models, sizes, costs, waiting, parts: Vec::new(), streams: Streams::default() })
    }

    /// Runs the script; `held` says which blocks the SSD has.
    fn run(mut self, written: &Written, held: &Held) -> Value {
        let entries = &written.script.entries;
        let mut pending = vec![Pending::default(); entries.len()];
        let mut latency = Latency::default();
        let (mut bytes, mut ssd_written) = (0, 0);
        let (mut begun_at, mut ended_at) = (None, Nanos::ZERO);
        // Closed loop: when the client of an entry has done thinking. Clients that no stage wants wait.
        let mut coming: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
        let (mut next, mut running, mut now, mut done) = (0, 0, Nanos::ZERO, Vec::new());
        loop {
            // Clients of a closed loop take entries, an open loop has one entry ahead.
            loop {
                let may_take = match &written.script.drive {
                    Drive::Open => coming.is_empty(),
                    Drive::Closed(stages) => running < clients_at(stages, next),
                };
                let Some(entry) = entries.get(next).filter(|_| may_take) else { break };
                let at = match written.script.drive {
                    Drive::Open => entry.wait,
                    Drive::Closed(_) => now + entry.wait,
                };
                coming.push(Reverse((at, next)));
                (next, running) = (next + 1, running + 1);
            }
            let event = self.models.iter().filter_map(Model::next_event).min();
            let arrival = coming.peek().map(|Reverse((at, _))| *at);
            let Some(at) = event.into_iter().chain(arrival).min() else { break };
            if arrival.is_none() && pending.iter().all(|pending| pending.parts == 0) {
                // Only buffers of devices are left.
                break;
            }
            now = at;
            let mut ended = Vec::new();
            for (device, model) in self.models.iter_mut().enumerate() {
                model.advance(now, &mut done);
                for tag in done.drain(..) {
                    let part = self.parts[tag as usize];
                    self.waiting[device] -= part.ms;
                    let request = &mut pending[part.request];
                    request.parts -= 1;
                    if request.parts == 0 {
                        ended.push(part.request);
                    }
                }
            }
            if let Some(Reverse((_, request))) = coming.peek().copied().filter(|_| arrival == Some(at)) {
                coming.pop();
                if request >= written.warm {
                    begun_at.get_or_insert(now);
                }
                let counted = request >= written.warm;
                let (parts, to_ssd) = self.begin(request, &entries[request].request, held, now);
                pending[request] = Pending { parts, arrived: now };
                ssd_written += if counted { to_ssd.0 } else { 0 };
                if parts == 0 {
                    ended.push(request);
                }
            }
            for request in ended {
                running -= 1;
                let Request { op, len, .. } = entries[request].request;
                if request >= written.warm && matches!(op, Op::Read | Op::Write) {
                    latency.record(now - pending[request].arrived);
                    bytes += len.0;
                    ended_at = now;
                }
            }
        }
        let seconds = ended_at.saturating_sub(begun_at.unwrap_or_default()).as_secs_f64().max(1e-9);
        Value {
            mean_ns: latency.mean(),
            p99_ns: latency.quantile(0.99).0,
            requests: latency.len(),
            requests_per_second: latency.len() as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            ssd_written_bytes: ssd_written,
            recovery_seconds: None,
            is_overloaded: false,
            measured_seconds: seconds,
        }
    }

    /// Submits the parts of a request: how many, and what the SSD is given to write.
    fn begin(&mut self, number: usize, request: &Request, held: &Held, now: Nanos) -> (u32, Bytes) {
        let continues = matches!(request.op, Op::Read | Op::Write) && self.streams.add(request);
        let (mut parts, mut to_ssd, mut at) = (0, Bytes::ZERO, request.offset);
        let (first, end) = (request.offset / BLOCK, request.offset + request.len);
        let last = blocks(request).end;
        let is_held = |block: u64| held.is_held(number, (block - first) as usize);
        let mut block = blocks(request).start;
        while block < last {
            let has_copy = request.op == Op::Write || is_held(block);
            let same = |next: u64| next < last && (request.op == Op::Write || is_held(next) == has_copy);
            let mut until = block + 1;
            while same(until) && !(BLOCK * until).is_aligned(EXTENT) {
                until += 1;
            }
            let len = (BLOCK * until).min(end) - at;
            let disk = 1 + ((at / EXTENT) % (self.models.len() as u64 - 1)) as usize;
            let takes = [(0, continues && at > request.offset), (disk, continues || at > request.offset)]
                .map(|(device, continues)| self.costs[device].takes(request.op, len, continues));
            let ends = |device: usize, takes: f64| self.waiting[device] / self.costs[device].parallel + takes;
            let on_ssd = has_copy && ends(0, takes[0]) <= ends(disk, takes[1]);
            let (device, ms) = if on_ssd { (0, takes[0]) } else { (disk, takes[1]) };
            if on_ssd && request.op == Op::Write {
                to_ssd += len;
            }
            self.submit(
                Part { request: number, device, ms },
                Request { op: request.op, offset: at, len },
                now,
            );
            (parts, at, block) = (parts + 1, at + len, until);
        }
        (parts, to_ssd)
    }

    /// A place of the volume at a device: on the SSD anywhere, on the disks in order of address.
    fn submit(&mut self, part: Part, request: Request, now: Nanos) {
        let disks = self.models.len() as u64 - 1;
        let slot = match part.device {
            0 => request.offset / EXTENT % (self.sizes[0] / EXTENT),
            _ => request.offset / EXTENT / disks,
        };
        let from = EXTENT * slot + (request.offset % EXTENT).align_down(SECTOR);
        let to = (EXTENT * slot + request.offset % EXTENT + request.len).align_up(SECTOR);
        self.waiting[part.device] += part.ms;
        self.parts.push(part);
        let tag = self.parts.len() as u64 - 1;
        self.models[part.device].submit(tag, Request { op: request.op, offset: from, len: to - from }, now);
    }
}
