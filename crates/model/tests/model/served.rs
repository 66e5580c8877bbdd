//! A model that is made from what a device has served foretells what it takes for other loads.

use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, Nanos, Rng};
use braid_model::{DeviceModel, Model, Op, Request, Served, Spec, Timing, by_name, nearest};

/// A load: clients that wait for each answer and think for a while on average.
#[derive(Clone, Copy)]
struct Guests {
    clients: usize,
    think: Nanos,
    /// The part of reads among small requests at random places.
    reads: f64,
    /// One client in so many goes on in order, with large requests.
    streams: usize,
    /// Writes before a flush; none without.
    flush: u64,
}

/// What a device serves for them, in order of the times at which it was given.
fn serve(device: &mut DeviceModel, size: Bytes, guests: Guests, count: usize, seed: u64) -> Vec<Served> {
    let mut rng = Rng::new(seed);
    let mut served: Vec<Served> = Vec::new();
    let mut due: Vec<(Nanos, usize)> =
        (0..guests.clients).map(|client| (Nanos(client as u64), client)).collect();
    let (mut by, mut completed, mut ended, mut writes) = (Vec::new(), Vec::new(), 0, 0);
    let mut streams: Vec<Bytes> = (0..guests.clients).map(|_| KIB * 128 * rng.below(size.0 >> 18)).collect();
    while ended < count {
        let next = due.iter().map(|due| due.0).min();
        let now = [next, device.next_event()].into_iter().flatten().min().unwrap();
        device.advance(now, &mut completed);
        for tag in completed.drain(..) {
            let n = tag as usize;
            served[n].took = now - served[n].at;
            ended += 1;
            let think = (guests.think.0 as f64 * -rng.unit().max(1e-9).ln()) as u64;
            due.push((now + Nanos(think), by[n]));
        }
        due.sort_unstable();
        while due.first().is_some_and(|due| due.0 <= now) {
            let (_, client) = due.remove(0);
            let op = if rng.unit() < guests.reads { Op::Read } else { Op::Write };
            let request = if guests.streams > 0 && client % guests.streams == 0 {
                let at = &mut streams[client];
                *at = if *at + KIB * 256 > size { Bytes::ZERO } else { *at + KIB * 128 };
                Request {
                    op: if client % 2 == 0 { Op::Read } else { Op::Write },
                    offset: *at,
                    len: KIB * 128,
                }
            } else if guests.flush > 0 && writes >= guests.flush {
                writes = 0;
                Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO }
            } else {
                writes += u64::from(op == Op::Write);
                Request { op, offset: KIB * 4 * rng.below(size.0 >> 12), len: KIB * 4 }
            };
            device.submit(served.len() as u64, request, now);
            by.push(client);
            served.push(Served { at: now, request, took: Nanos(u64::MAX) });
        }
    }
    served.retain(|one| one.took.0 < u64::MAX);
    served
}

fn mean(served: &[Served]) -> f64 {
    served.iter().map(|one| one.took.0 as f64).sum::<f64>() / served.len() as f64
}

/// As many at once as a device ever has, and the same load when it is quiet.
const BUSY: Guests = Guests { clients: 32, think: Nanos(1_000_000), reads: 0.6, streams: 4, flush: 200 };
const QUIET: Guests = Guests { clients: 3, think: Nanos(20_000_000), reads: 0.6, streams: 4, flush: 0 };
const OTHERS: [Guests; 4] = [
    Guests { clients: 1, think: Nanos(0), reads: 1.0, streams: 0, flush: 0 },
    Guests { clients: 6, think: Nanos(1_000_000), reads: 0.3, streams: 2, flush: 0 },
    Guests { clients: 4, think: Nanos(10_000_000), reads: 0.9, streams: 0, flush: 0 },
    Guests { clients: 24, think: Nanos(0), reads: 0.8, streams: 0, flush: 0 },
];

const SIZE: Bytes = Bytes(GIB.0 * 4);

/// Makes a model from one load, and says by what factor it is off under others, and under its own.
fn off(device: &Spec, seen: Guests, noise: f64) -> (Vec<f64>, f64) {
    let mut served = serve(&mut device.build(SIZE, 1), SIZE, seen, 2_048, 1);
    let mut rng = Rng::new(3);
    for one in &mut served {
        // A machine has other things to do.
        let hiccup = if noise > 0.0 && rng.unit() < 0.005 { Nanos(20_000_000) } else { Nanos::ZERO };
        one.took = Nanos((one.took.0 as f64 * (1.0 + noise * rng.unit())) as u64) + hiccup;
    }
    let found = nearest("d0", device.class, SIZE, &served).unwrap();
    assert_eq!((&*found.spec.name, found.spec.class, found.spec.capacity), ("d0", device.class, SIZE));
    assert!(Spec::from_toml(&found.spec.to_toml().unwrap()).is_ok(), "{:?}", found.spec);
    let of = |spec: &Spec, guests| mean(&serve(&mut spec.build(SIZE, 2), SIZE, guests, 2_048, 3));
    (OTHERS.iter().map(|&guests| of(&found.spec, guests) / of(device, guests)).collect(), found.off)
}

/// Devices that no library has.
fn others() -> Vec<Spec> {
    let other = |name: &str, by: f64| {
        let mut spec = by_name(name).unwrap().clone();
        let times = |time: &mut Nanos, by: f64| *time = Nanos((time.0 as f64 * by) as u64);
        match &mut spec.timing {
            Timing::Hdd(params) => {
                let seek = &mut params.seek;
                for time in [&mut seek.track_read, &mut seek.settle, &mut seek.average, &mut seek.full] {
                    times(time, by);
                }
                params.outer.0 = (params.outer.0 as f64 / by) as u64;
                params.inner.0 = (params.inner.0 as f64 / by) as u64;
            }
            Timing::Ssd(params) => {
                times(&mut params.latency, by);
                times(&mut params.read, by);
                times(&mut params.command, by * by);
                params.write_rate.0 = (params.write_rate.0 as f64 / by) as u64;
                params.read_rate.0 = (params.read_rate.0 as f64 / by) as u64;
            }
            _ => unreachable!("{name} is an SSD or a disk"),
        }
        spec
    };
    let made =
        [("barracuda-7200.12", 1.6), ("exos-x20", 0.7), ("sata-ssd", 2.5), ("nvme-ssd", 1.7), ("x25-m", 0.6)];
    made.iter().map(|&(name, by)| other(name, by)).collect()
}

/// The load of a drive that collects all the time tells least: its pauses are taken for the time of its
/// requests.
#[test]
fn served_requests_predict_timing_of_different_loads() {
    let mut all = Vec::new();
    for device in others() {
        for (seen, noise) in [(BUSY, 0.0), (QUIET, 0.0), (BUSY, 0.2)] {
            let (factors, off) = off(&device, seen, noise);
            println!("{} {factors:.2?}, its own {off:.3}", device.name);
            assert!(off < 1.2, "{} is off by {off} under its own load", device.name);
            all.extend(factors.iter().map(|factor| factor.ln().abs()));
        }
    }
    all.sort_by(f64::total_cmp);
    let (median, most) = (all[all.len() / 2], all[all.len() * 9 / 10]);
    assert!(median < 0.2 && most < 0.5, "half are within {median}, nine tenths within {most}");
}

#[test]
fn ssd_labelled_as_disk_gets_ssd_timing() {
    let mut file = by_name("nvme-ssd").unwrap().clone();
    file.class = DeviceClass::Hdd;
    let (factors, off) = off(&file, BUSY, 0.0);
    assert!(off < 1.2 && factors[0].ln().abs() < 0.2, "{off} {factors:?}");
}

#[test]
fn odd_requests_yield_finite_model_or_none() {
    let at = |n: u64| Nanos(n * 1_000);
    let one = |at, took| Served { at, request: Request { op: Op::Write, offset: SIZE, len: MIB * 64 }, took };
    let class = DeviceClass::Ssd;
    let few: Vec<Served> = (0..Served::FEWEST as u64 - 1).map(|n| one(at(n), at(1))).collect();
    assert!(nearest("d0", class, SIZE, &few).is_none(), "of too few requests");
    for took in [Nanos::ZERO, Nanos(1), Nanos::from_secs(100)] {
        let at_once: Vec<Served> = (0..300).map(|_| one(at(1), took)).collect();
        let found = nearest("d0", class, MIB, &at_once).expect("there are enough");
        assert!(found.off.is_finite(), "{found:?}");
    }
}
