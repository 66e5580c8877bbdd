//! What a guest's request costs a policy: `cargo bench -p braid-policy [-- NAME,key=value…]`, all policies by
//! default.
//!
//! Half reads, half writes of 4 KiB in 48,000 extents at random, by `place` and `completed`; and the longest
//! `plan` in idle time after that, which a guest that comes back may have to wait for, and what plans cost in
//! a second of idle time after ten.

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos, Rng};
use braid_policy::{
    Completion, DeviceView, Direction, Homes, NAMES, Occasion, Origin, Piece, Plan, Policy, View, parse,
};
use std::hint::black_box;
use std::time::Instant;

const REQUESTS: u32 = 2_000_000;
const EXTENTS: u32 = 48_000;
const SSD: DeviceId = DeviceId(0);
const HDD: DeviceId = DeviceId(1);

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|text| !text.starts_with("--")).collect();
    let all =
        NAMES.iter().map(|&name| if name == "static" { "static,ssd=50%".into() } else { name.to_owned() });
    let texts: Vec<String> = if asked.is_empty() { all.collect() } else { asked };
    for text in texts {
        let devices = devices();
        let mut policy = parse(&text, &devices).unwrap_or_else(|error| panic!("{error}"));
        let places: Vec<(u32, u64)> = {
            let mut rng = Rng::new(1);
            (0..REQUESTS).map(|_| (rng.below(EXTENTS.into()) as u32, rng.below(32))).collect()
        };
        let times = (0..3_u64).map(|round| cost(policy.as_mut(), &places, &devices, round));
        let request_ns = times.fold(f64::INFINITY, f64::min);
        let [longest_ms, idle_us] = plans(policy.as_mut(), &devices);
        println!(
            "{text:24} {request_ns:6.1} ns per request, {longest_ms:6.2} ms for the longest plan, {idle_us:6.1} µs a second in idle time"
        );
    }
}

/// Half of the extents lie on each device.
struct Halves;

impl Homes for Halves {
    fn extents(&self) -> u32 {
        EXTENTS
    }

    fn home(&self, extent: ExtentId) -> Option<DeviceId> {
        Some(DeviceId((extent.0 % 2) as u16))
    }
}

fn devices() -> Vec<DeviceView> {
    let device =
        |(id, class)| DeviceView { free: EXTENTS, ..DeviceView::empty(id, class, EXTENTS + EXTENTS / 2) };
    [(SSD, DeviceClass::Ssd), (HDD, DeviceClass::Hdd)].map(device).to_vec()
}

fn view(now: Nanos, devices: &[DeviceView]) -> View<'_> {
    View { now, extent_size: KIB * 128, block_size: KIB * 4, devices, homes: &Halves }
}

/// Nanoseconds per request.
fn cost(policy: &mut dyn Policy, places: &[(u32, u64)], devices: &[DeviceView], round: u64) -> f64 {
    let start = Instant::now();
    for (i, &(extent, block)) in (0_u64..).zip(places) {
        let now = Nanos::from_micros((round * places.len() as u64 + i) * 10);
        let from = KIB * 4 * block;
        let piece = Piece {
            extent: ExtentId(extent),
            range: from..from + KIB * 4,
            first_block: BlockId(u64::from(extent) * 32 + block),
            blocks: 1,
            request: braid_policy::ByteRange::new(KIB * 128 * u64::from(extent) + from, KIB * 4),
            whole: None,
        };
        let (occasion, direction) = match i % 2 {
            0 => (Occasion::ReadMiss(piece), Direction::Read),
            _ => (Occasion::Write(piece), Direction::Write),
        };
        black_box(policy.place(&occasion, &view(now, devices)));
        let device = DeviceId((extent % 2) as u16);
        let latency = Nanos::from_micros(100);
        policy.completed(&Completion { device, direction, len: Bytes(4096), latency, origin: Origin::Guest });
    }
    start.elapsed().as_nanos() as f64 / places.len() as f64
}

/// Milliseconds of the longest plan, then microseconds of all plans in the last of ten seconds.
fn plans(policy: &mut dyn Policy, devices: &[DeviceView]) -> [f64; 2] {
    let (mut now, mut longest, mut last, mut plan) = (Nanos::from_secs(100), 0.0_f64, 0.0, Plan::default());
    while now < Nanos::from_secs(110) {
        plan.clear();
        let start = Instant::now();
        let next = policy.plan(&view(now, devices), &mut plan);
        let took = start.elapsed().as_secs_f64();
        longest = longest.max(took * 1e3);
        if now >= Nanos::from_secs(109) {
            last += took * 1e6;
        }
        now = next.max(now + Nanos::from_millis(1));
    }
    [longest, last]
}
