//! Clairvoyant cache: Belady's MIN for copies on the SSD, with knowledge of the load, on the models of the
//! devices with their queues. There is no engine.
//!
//! ```text
//! load.rs     requests by client and time   future.rs  later requests, and contents under MIN
//! devices.rs  models, and the next end of a request
//! ```
//!
//! All data is on the disks, extents in turn, with copies of blocks on the SSD. A read with all its blocks on
//! the SSD is served by the SSD or by the disks. Any other read is served by the disks, except for its first
//! and last blocks if they are on the SSD. A write goes to either. Requests wait in the queues of the models.
//!
//! **Optimistic**: copies, write-backs and moves take no time and no journal. The whole SSD is room for
//! copies, and blocks of a request are adjacent there. A write to one device is a write to all. When the load
//! begins, and when the judged part begins, the SSD holds the blocks with the nearest next reads; the initial
//! layout is ignored. At the first touch of an extent after that, all its blocks may be copied without cost;
//! later only requested blocks may.
//!
//! **No proven bound**: MIN has the fewest misses of blocks, not the least time of requests. A copy may be
//! worth more because its disk is slow or busy, or because the copy completes a request. The device that ends
//! first is predicted, and the best choice for a request may not be best for all. Clients of a closed loop
//! use blocks in an order other than expected. A policy may read ahead blocks that were not requested; the
//! bound never does. The best of several ways is therefore taken ([`WAYS`]).

mod devices;
mod future;
mod load;
#[cfg(test)]
mod tests;

use super::oracle::Costs;
use super::run::{Figures, LatencyCourse};
use crate::rig::Sized;
use crate::{Error, Result, Setup, Size, source};
use braid_base::{Bytes, Nanos, Op, Request, Rng};
use braid_engine::Latency;
use devices::Device;
use future::{Content, Future, Uses, Worth, blocks};
use load::{EndedRequest, Place, Server};
use std::ops::Range;

/// Choice among the devices that can serve a request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    /// The SSD.
    Ssd,
    /// The disks.
    Disk,
    /// The device with the earliest predicted end.
    Least,
}

/// Devices for reads with all or some blocks on the SSD, and devices for writes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ways {
    worth: Worth,
    reads: Way,
    writes: Way,
}

/// Ways that are tried; the best result counts.
const WAYS: [Ways; 5] = [
    Ways { worth: Worth::Every, reads: Way::Least, writes: Way::Least },
    Ways { worth: Worth::Every, reads: Way::Ssd, writes: Way::Disk },
    Ways { worth: Worth::Every, reads: Way::Ssd, writes: Way::Ssd },
    // For loads with scans.
    Ways { worth: Worth::Scattered, reads: Way::Least, writes: Way::Least },
    Ways { worth: Worth::Scattered, reads: Way::Ssd, writes: Way::Disk },
];

/// Figures of the best way under a setup's load, on `threads` threads. The setup's devices must be an SSD and
/// disks.
///
/// # Errors
/// Of kind `Setup`: a load or devices unsuitable for the bound.
pub(crate) fn figures(setup: &Setup, recovery_from: Option<f64>, threads: usize) -> Result<Figures> {
    if setup.cache_extents > 0 {
        return Err(Error::setup("the bound has no memory cache"));
    }
    let need = source::open(setup)?.need;
    let size = need.data.unwrap_or_default().align_up(setup.extent_size);
    let filled = need.filled.clone().unwrap_or_default();
    let sized = Sized::of(setup, &need)?;
    let blocks = (size / setup.block_size) as usize;
    let ssd = Costs::of(&sized.specs[0]);
    let takes = |len| Nanos::from_secs_f64(ssd.takes(Op::Read, len, false) / 2e3);
    let mut all = Vec::new();
    for worth in [Worth::Every, Worth::Scattered] {
        let uses = Uses::of(setup, blocks, &takes, worth)?;
        let run = |ways| run(setup, &sized, &filled, &uses, ways, recovery_from);
        let ways: Vec<Ways> = WAYS.into_iter().filter(|ways| ways.worth == worth).collect();
        for ways in ways.chunks(threads.max(1)) {
            all.extend(std::thread::scope(|scope| {
                let threads: Vec<_> = ways.iter().map(|&ways| scope.spawn(move || run(ways))).collect();
                let join = |thread: std::thread::ScopedJoinHandle<_>| thread.join().expect("no way panics");
                threads.into_iter().map(join).collect::<Vec<Result<Figures>>>()
            }));
        }
    }
    let all: Vec<Figures> = all.into_iter().collect::<Result<_>>()?;
    Ok(all.into_iter().min_by_key(|figures| figures.latency_ns_mean).expect("there are ways"))
}

fn run(
    setup: &Setup,
    sized: &Sized,
    filled: &[Range<Bytes>],
    uses: &Uses,
    ways: Ways,
    recovery_from: Option<f64>,
) -> Result<Figures> {
    let mut server = BoundServer::new(setup, sized, filled, uses, ways);
    let (mut seen, mut course) = (Seen::default(), LatencyCourse::new(setup.interval));
    let length = load::drive(setup, &mut server, &mut |ended| {
        seen.add(ended);
        if ended.op != Op::Discard {
            course.add(ended.at - ended.from, ended.at - ended.arrived);
        }
    })?;
    let requests = seen.latency.len() + seen.flushes;
    if requests == 0 {
        return Err(Error::setup("no request completed in the judged half"));
    }
    let time = seen.latency.sum().0 as f64 + seen.flush_time.0 as f64;
    let seconds = length.as_secs_f64().max(1e-9);
    let (is_steady, recovery_ms) = course.told(seconds, recovery_from);
    Ok(Figures {
        latency_ns_mean: (time / requests as f64).round() as u64,
        latency_ns_p99: seen.latency.quantile(0.99).0,
        throughput_bytes_per_second: (seen.bytes.0 as f64 / seconds).round() as u64,
        ssd_written_bytes: (server.devices[0].written - server.written_before).0,
        is_steady,
        recovery_ms,
    })
}

/// Measurements of guests.
#[derive(Default)]
struct Seen {
    latency: Latency,
    flushes: u64,
    flush_time: Nanos,
    bytes: Bytes,
}

impl Seen {
    fn add(&mut self, ended: EndedRequest) {
        let time = ended.at - ended.arrived;
        match ended.op {
            Op::Read | Op::Write => {
                self.latency.record(time);
                self.bytes += ended.len;
            }
            Op::Flush => {
                self.flushes += 1;
                self.flush_time += time;
            }
            Op::Discard => {}
        }
    }
}

/// The SSD and the disks, with their contents.
struct BoundServer<'a> {
    /// The SSD, then the disks.
    devices: Vec<Device>,
    extent: Bytes,
    block: Bytes,
    ways: Ways,
    future: Future<'a>,
    content: Content,
    /// Blocks that hold data, and touched extents.
    holds_data: Vec<bool>,
    is_touched: Vec<bool>,
    /// Outstanding parts of each request.
    left: Vec<u32>,
    /// Requests that ended at once, at the present time.
    ready: Vec<usize>,
    now: Nanos,
    /// Bytes written to the SSD before the judged part.
    written_before: Bytes,
    /// Scratch: parts of disks.
    parts: Vec<(usize, Bytes, Bytes)>,
}

impl<'a> BoundServer<'a> {
    fn new(
        setup: &Setup,
        sized: &Sized,
        filled: &[Range<Bytes>],
        uses: &'a Uses,
        ways: Ways,
    ) -> BoundServer<'a> {
        let mut rng = Rng::new(setup.seed);
        let extent = setup.extent_size;
        let build = |(spec, size): (_, &Bytes)| Device::new(spec, *size, rng.next_u64());
        let devices: Vec<Device> = sized.specs.iter().zip(&sized.sizes).map(build).collect();
        let mut holds_data = vec![false; uses.blocks()];
        for range in filled {
            let of_range = Request { op: Op::Write, offset: range.start, len: range.end - range.start };
            let blocks = blocks(&of_range, setup.block_size);
            holds_data[blocks.start..blocks.end.min(uses.blocks())].fill(true);
        }
        let extents = (uses.blocks() as u64).div_ceil(extent / setup.block_size);
        let room = match setup.devices[0].size {
            Size::Share(share) => extent * (extents as f64 * share).ceil() as u64,
            Size::Bytes(bytes) => bytes,
        };
        let mut future = Future::new(uses);
        let mut content = Content::new((room / setup.block_size) as usize, uses.blocks());
        content.choose(&mut future);
        BoundServer {
            devices,
            extent,
            block: setup.block_size,
            ways,
            future,
            content,
            holds_data,
            is_touched: vec![false; extents as usize],
            left: Vec::new(),
            ready: Vec::new(),
            now: Nanos::ZERO,
            written_before: Bytes::ZERO,
            parts: Vec::new(),
        }
    }

    /// Adds the parts of disks for a range of bytes.
    fn add_parts(&mut self, offset: Bytes, len: Bytes) {
        let disks = self.devices.len() as u64 - 1;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let number = at / self.extent;
            let until = (self.extent * (number + 1)).min(end);
            let disk = 1 + (number % disks) as usize;
            let place = self.extent * (number / disks) + at % self.extent;
            match self.parts.iter_mut().rev().find(|part| part.0 == disk) {
                Some((_, from, len)) if *from + *len == place => *len += until - at,
                _ => self.parts.push((disk, place, until - at)),
            }
            at = until;
        }
    }

    /// Predicted end of the parts of disks.
    fn predicts(&self, op: Op) -> f64 {
        let ends = self
            .parts
            .iter()
            .map(|&(disk, offset, len)| self.devices[disk].predicts(op, offset, len, self.now));
        ends.fold(0.0, f64::max)
    }

    fn begin_parts(&mut self, ticket: usize, op: Op) {
        for (disk, offset, len) in std::mem::take(&mut self.parts) {
            self.devices[disk].begin(ticket, op, offset, len, self.now);
            self.left[ticket] += 1;
        }
    }

    fn begin_on_ssd(&mut self, ticket: usize, op: Op, offset: Bytes, len: Bytes) {
        self.devices[0].begin(ticket, op, offset, len, self.now);
        self.left[ticket] += 1;
    }

    fn read(&mut self, ticket: usize, request: &Request) {
        let (start, end) = (request.offset, request.offset + request.len);
        let mut on_ssd = Bytes::ZERO;
        // Of each extent, the disk reads the range missing on the SSD, from its first byte to its last.
        let mut at = start;
        while at < end {
            let until = (at.align_down(self.extent) + self.extent).min(end);
            let of_extent = Request { op: Op::Read, offset: at, len: until - at };
            let (mut with_data, mut lacked) = (Bytes::ZERO, None);
            for block in blocks(&of_extent, self.block) {
                if !self.holds_data[block] {
                    continue;
                }
                let from = (self.block * block as u64).max(at);
                let to = (self.block * (block as u64 + 1)).min(until);
                with_data += to - from;
                if !self.content.holds(block) {
                    let (first, _) = lacked.unwrap_or((from, to));
                    lacked = Some((first, to));
                }
            }
            if let Some((from, to)) = lacked {
                self.add_parts(from, to - from);
                with_data = with_data.saturating_sub(to - from);
            }
            on_ssd += with_data;
            at = until;
        }
        if on_ssd == Bytes::ZERO {
            return self.begin_parts(ticket, Op::Read);
        }
        if self.ways.reads == Way::Least {
            let both =
                self.predicts(Op::Read).max(self.devices[0].predicts(Op::Read, start, on_ssd, self.now));
            let lacked = std::mem::take(&mut self.parts);
            self.add_parts(start, request.len);
            if self.predicts(Op::Read) < both {
                return self.begin_parts(ticket, Op::Read);
            }
            self.parts = lacked;
        }
        self.begin_parts(ticket, Op::Read);
        self.begin_on_ssd(ticket, Op::Read, start, on_ssd);
    }

    fn write(&mut self, ticket: usize, request: &Request) {
        let Request { offset, len, .. } = *request;
        self.holds_data[blocks(request, self.block)].fill(true);
        self.add_parts(offset, len);
        let goes_to_ssd = match self.ways.writes {
            Way::Ssd => true,
            Way::Disk => false,
            Way::Least => {
                let ssd = self.devices[0].predicts(Op::Write, offset, len, self.now);
                ssd <= self.predicts(Op::Write)
            }
        };
        if goes_to_ssd {
            self.parts.clear();
            self.begin_on_ssd(ticket, Op::Write, offset, len);
        } else {
            self.begin_parts(ticket, Op::Write);
        }
    }

    /// Offers the blocks of a request, and at the first touch of an extent all its blocks.
    fn offer(&mut self, request: &Request) {
        let extents = blocks(request, self.extent);
        let of_extent = (self.extent / self.block) as usize;
        for extent in extents {
            if !std::mem::replace(&mut self.is_touched[extent], true) {
                let end = ((extent + 1) * of_extent).min(self.holds_data.len());
                (extent * of_extent..end).for_each(|block| self.offer_block(block));
            }
        }
        blocks(request, self.block).for_each(|block| self.offer_block(block));
    }

    fn offer_block(&mut self, block: usize) {
        let next = self.future.next(block);
        self.content.offer(block, next);
    }
}

impl Server for BoundServer<'_> {
    fn begin(&mut self, ticket: usize, place: Place, request: &Request, now: Nanos) {
        self.now = now;
        if self.left.len() <= ticket {
            self.left.resize(ticket + 1, 0);
        }
        self.future.make(place);
        match request.op {
            Op::Read => {
                self.read(ticket, request);
                self.offer(request);
            }
            Op::Write => {
                self.write(ticket, request);
                self.offer(request);
            }
            Op::Flush => {
                for device in &mut self.devices {
                    self.left[ticket] += u32::from(device.flush(ticket, now));
                }
            }
            Op::Discard => self.holds_data[blocks(request, self.block)].fill(false),
        }
        if self.left[ticket] == 0 {
            self.ready.push(ticket);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let ready = (!self.ready.is_empty()).then_some(self.now);
        self.devices.iter().filter_map(Device::next_event).chain(ready).min()
    }

    fn advance(&mut self, now: Nanos, ended: &mut Vec<usize>) {
        self.now = now;
        ended.append(&mut self.ready);
        for device in &mut self.devices {
            device.advance(now, |ticket| {
                self.left[ticket] -= 1;
                if self.left[ticket] == 0 {
                    ended.push(ticket);
                }
            });
        }
    }

    fn judged_begins(&mut self) {
        self.content.choose(&mut self.future);
        self.is_touched.fill(false);
        self.written_before = self.devices[0].written;
    }
}
