//! Cost of the monitor of `hystor`: processor time of `observe`, and memory of the block table, on a volume
//! of 1 TiB.
//!
//! `cargo run --release -p braid-bench --bin hystor-monitor`

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, MIB, Nanos, Op, Rng, TIB};
use braid_bench::{machine, median, thread_cpu_time};
use braid_policy::{ByteRange, DeviceView, ExtraCopy, Flags, Homes, Plan, Request, View, parse};

const REQUESTS: usize = 2_000_000;
const ROUNDS: usize = 7;
const SEED: u64 = 1;

/// Homes with all data on the disk, and none on the SSD.
struct OnDisk;

impl Homes for OnDisk {
    fn extents(&self) -> u32 {
        (TIB / (KIB * 128)) as u32
    }

    fn home(&self, _: ExtentId) -> Option<DeviceId> {
        Some(DeviceId(1))
    }

    fn extra(&self, _: BlockId) -> Option<ExtraCopy> {
        None
    }
}

fn main() {
    println!("hystor-monitor: {REQUESTS} requests, {ROUNDS} rounds, seed {SEED}; {}", machine());
    let blocks = |span: Bytes| span / (KIB * 4);
    // One half of these requests goes to 0.1 % of the span: 0.5 to the tenth.
    let skewed = move |rng: &mut Rng, span: Bytes| {
        let rank = (rng.unit().powi(10) * blocks(span) as f64) as u64;
        KIB * 4 * (rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks(span))
    };
    let uniform = move |rng: &mut Rng, span: Bytes| KIB * 4 * rng.below(blocks(span));
    measure("4 KiB, skewed over 8 GiB", |rng, _| (skewed(rng, Bytes(8 << 30)), KIB * 4));
    measure("4 KiB, skewed over 1 TiB", |rng, _| (skewed(rng, TIB), KIB * 4));
    measure("4 KiB, uniform over 8 GiB", |rng, _| (uniform(rng, Bytes(8 << 30)), KIB * 4));
    measure("4 KiB, uniform over 1 TiB", |rng, _| (uniform(rng, TIB), KIB * 4));
    measure("128 KiB, in sequence", |_, i| (KIB * 128 * (i as u64 % (TIB / (KIB * 128))), KIB * 128));
    measure("1 MiB, in sequence", |_, i| (MIB * (i as u64 % (TIB / MIB)), MIB));
}

fn measure(what: &str, next: impl Fn(&mut Rng, usize) -> (Bytes, Bytes)) {
    let devices = [(0, DeviceClass::Ssd, 1 << 18), (1, DeviceClass::Hdd, 1 << 23)]
        .map(|(id, class, slots)| DeviceView::empty(DeviceId(id), class, slots));
    let view =
        |now| View { now, extent_size: KIB * 128, block_size: KIB * 4, devices: &devices, homes: &OnDisk };
    let mut policy = parse("hystor", &devices).expect("its settings have defaults");
    let mut rng = Rng::new(SEED);
    let requests: Vec<(Bytes, Bytes)> = (0..REQUESTS).map(|i| next(&mut rng, i)).collect();
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        let start = thread_cpu_time();
        for &(offset, len) in &requests {
            let request =
                Request { op: Op::Read, range: ByteRange::new(offset, len), flags: Flags::default() };
            policy.arrived(&request, &view(Nanos::ZERO));
        }
        figures.push((thread_cpu_time() - start).as_secs_f64() * 1e9 / REQUESTS as f64);
    }
    let (middle, low, high) = median(&figures);
    let memory = Bytes::of_len(policy.memory());
    // Longest time that guests wait for a step of the search.
    let (mut now, mut longest, mut whole) = (Nanos::ZERO, 0.0f64, 0.0);
    policy.plan(&view(now), &mut Plan::default());
    for _ in 0..2_000 {
        now += Nanos::from_millis(10);
        let start = thread_cpu_time();
        policy.plan(&view(now), &mut Plan::default());
        let took = (thread_cpu_time() - start).as_secs_f64() * 1e3;
        (longest, whole) = (longest.max(took), whole + took);
    }
    println!(
        "{what:26}: median {middle:.0} ns ({low:.0} to {high:.0}), {memory}; a search {whole:.1} ms in steps of up to {longest:.2} ms"
    );
}
