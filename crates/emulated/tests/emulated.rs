//! The wrapper in real time, over memory: what a model says is what a request takes.
#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos, Rng};
use braid_emulated::{Emulated, Lateness};
use braid_model::{Model, Op, Request};
use braid_runtime::{Arena, Buf, Device, Event, Executor, Geometry, Order, Runtime, Sleep, conformance};
use braid_uring::{MemoryDevice, Ring};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A device with `channels` of which each takes `time` for any request, first come, first served.
struct Fixed {
    time: Nanos,
    channels: usize,
    running: VecDeque<(Nanos, u64)>,
    waiting: VecDeque<u64>,
}

impl Fixed {
    fn new(time: Nanos, channels: usize) -> Fixed {
        Fixed { time, channels, running: VecDeque::new(), waiting: VecDeque::new() }
    }
}

impl Model for Fixed {
    fn submit(&mut self, tag: u64, _: Request, now: Nanos) {
        if self.running.len() < self.channels {
            self.running.push_back((now + self.time, tag));
        } else {
            self.waiting.push_back(tag);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.running.front().map(|&(time, _)| time)
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        while let Some(&(time, tag)) = self.running.front().filter(|(time, _)| *time <= now) {
            self.running.pop_front();
            completed.push(tag);
            if let Some(next) = self.waiting.pop_front() {
                self.running.push_back((time + self.time, next));
            }
        }
    }
}

const READ_TIME: Nanos = Nanos::from_micros(100);

/// Whether requests came back late by so little that how long they took says something.
fn is_in_time(lateness: Lateness) -> bool {
    let in_time = lateness.mean() < READ_TIME / 5;
    if !in_time {
        println!(
            "SKIPPED: how long requests take at most: this machine is too busy, {} late",
            lateness.mean()
        );
    }
    in_time
}

fn with_ring(body: impl AsyncFnOnce(&Ring, &Arena)) {
    let arena = Arena::new(MIB);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(body(&ring, &arena));
    ring.clear();
}

fn emulate<M: Model>(ring: &Ring, model: M) -> Emulated<Ring, MemoryDevice, M> {
    Emulated::new(ring.clone(), MemoryDevice::new(MIB * 2, DeviceClass::Ssd).unwrap(), model)
}

#[test]
fn an_emulated_device_is_a_device() {
    with_ring(async |ring, _| {
        let device = emulate(ring, Fixed::new(Nanos::from_micros(5), 4));
        conformance::device(ring, Rc::new(device), 1).await;
    });
}

#[test]
fn a_device_of_the_library_is_a_device() {
    with_ring(async |ring, _| {
        let model = braid_model::by_name("nvme-ssd").unwrap().build(MIB * 2, 1);
        let device = emulate(ring, model);
        conformance::device(ring, Rc::new(device), 1).await;
    });
}

#[test]
fn sequential_requests_take_the_model_time() {
    with_ring(async |ring, arena| {
        let device = emulate(ring, Fixed::new(READ_TIME, 1));
        let buf = arena.alloc(KIB * 4).await;
        let mut taken = Vec::new();
        for _ in 0..500 {
            let start = ring.now();
            device.read(Bytes::ZERO, &buf).await.unwrap();
            taken.push(ring.now() - start);
        }
        taken.sort();
        let lateness = device.lateness();
        println!(
            "median {}, p99 {}, late {} (mean), {} (max)",
            taken[250],
            taken[495],
            lateness.mean(),
            lateness.max
        );
        assert!(taken[0] >= READ_TIME, "{}", taken[0]);
        assert_eq!(lateness.requests, 500);
        if is_in_time(lateness) {
            assert!(taken[250] < READ_TIME + Nanos::from_micros(30), "median {}", taken[250]);
        }
    });
}

/// Reads with `depth` requests outstanding; gives requests per second.
async fn throughput(ring: &Ring, arena: &Arena, device: Rc<impl Device>, depth: u64) -> f64 {
    const EACH: u64 = 200;
    let (left, ended, start) = (Rc::new(Cell::new(depth)), Event::default(), ring.now());
    for _ in 0..depth {
        let (device, left, ended) = (device.clone(), left.clone(), ended.clone());
        let buf = arena.alloc(KIB * 4).await;
        ring.spawn(async move {
            for _ in 0..EACH {
                device.read(Bytes::ZERO, &buf).await.unwrap();
            }
            left.set(left.get() - 1);
            ended.notify();
        });
    }
    ended.wait_for(|| (left.get() == 0).then_some(())).await;
    (depth * EACH) as f64 / (ring.now() - start).as_secs_f64()
}

#[test]
fn depth_helps_up_to_the_models_channels() {
    with_ring(async |ring, arena| {
        let (mut at_depth, mut in_time) = (Vec::new(), true);
        for depth in [1, 4, 16] {
            let device = Rc::new(emulate(ring, Fixed::new(READ_TIME, 4)));
            at_depth.push(throughput(ring, arena, device.clone(), depth).await);
            in_time &= is_in_time(device.lateness());
        }
        println!("requests per second at depth 1, 4, 16: {at_depth:.0?}");
        assert!(at_depth[0] <= 10_000.0 && at_depth[2] <= 40_000.0, "{at_depth:?}");
        if in_time {
            assert!(at_depth[1] > 2.0 * at_depth[0], "{at_depth:?}");
            assert!(at_depth[2] > 10_000.0, "{at_depth:?}");
        }
    });
}

/// A device whose reads fail, and take `time` to do so.
struct Broken<R> {
    runtime: R,
    time: Nanos,
}

impl<R: Runtime> Device for Broken<R> {
    fn geometry(&self) -> Geometry {
        Geometry { size: MIB, class: DeviceClass::Hdd, alignment: Bytes(512), memory_alignment: Bytes(1) }
    }

    async fn read(&self, _: Bytes, _: &Buf) -> io::Result<()> {
        self.runtime.sleep(self.time).await;
        Err(io::Error::other("a scratch"))
    }

    async fn write(&self, _: Bytes, _: &Buf) -> io::Result<()> {
        Ok(())
    }

    async fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    async fn discard(&self, _: Bytes, _: Bytes) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_pass_through_and_slow_real_work_counts_as_lateness() {
    with_ring(async |ring, arena| {
        let inner = Broken { runtime: ring.clone(), time: Nanos::from_millis(2) };
        let device = Emulated::new(ring.clone(), inner, Fixed::new(READ_TIME, 1));
        let buf = arena.alloc(KIB * 4).await;
        let start = ring.now();
        let error = device.read(Bytes::ZERO, &buf).await.unwrap_err();
        assert_eq!(error.to_string(), "a scratch");
        assert!(ring.now() - start >= Nanos::from_millis(2));
        assert!(device.lateness().max >= Nanos::from_micros(1_800), "{:?}", device.lateness());
        device.reset_lateness();
        let start = ring.now();
        device.flush().await.unwrap();
        assert!(ring.now() - start >= READ_TIME, "a flush takes the model's time too");
        assert_eq!(device.lateness().requests, 1);
        let error = device.read(Bytes(1), &buf).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

/// Each request asks for its own time: its offset in microseconds.
struct ByOffset(Vec<(Nanos, u64)>);

impl Model for ByOffset {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_eq!(request.op, Op::Read);
        self.0.push((now + Nanos::from_micros(request.offset.0), tag));
        self.0.sort();
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.first().map(|&(time, _)| time)
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        while let Some(&(_, tag)) = self.0.first().filter(|(time, _)| *time <= now) {
            self.0.remove(0);
            completed.push(tag);
        }
    }
}

#[test]
fn quick_request_overtakes_slow_and_dropped_is_not_counted() {
    with_ring(async |ring, arena| {
        let device = Rc::new(emulate(ring, ByOffset(Vec::new())));
        let buf = arena.alloc(KIB * 4).await;
        let slow_done = Rc::new(Cell::new(false));
        let (slow, done, slow_buf) = (device.clone(), slow_done.clone(), buf.clone());
        ring.spawn(async move {
            slow.read(Bytes(1_000_000), &slow_buf).await.unwrap();
            done.set(true);
        });
        ring.sleep(Nanos::from_millis(1)).await;
        let mut dropped = Box::pin(device.read(Bytes(3_000), &buf));
        poll_fn(|cx| {
            assert!(pin!(dropped.as_mut()).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(dropped);
        device.read(Bytes(500), &buf).await.unwrap();
        assert!(!slow_done.get(), "the quick one came later and is done before");
        while !slow_done.get() {
            ring.sleep(Nanos::from_millis(10)).await;
        }
        assert_eq!(device.lateness().requests, 2, "the dropped one is not counted");
    });
}

/// A world whose clock goes on at every look, and in which ready tasks run in any order: as on a busy
/// machine.
#[derive(Clone)]
struct Busy {
    executor: Executor,
    clock: Rc<RefCell<(Nanos, Rng)>>,
}

impl Runtime for Busy {
    fn now(&self) -> Nanos {
        let (now, rng) = &mut *self.clock.borrow_mut();
        *now += Nanos(rng.below(40_000));
        *now
    }

    fn sleep_until(&self, deadline: Nanos) -> Sleep {
        self.executor.sleep_until(deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task);
    }
}

#[test]
fn no_request_is_forgotten_on_a_busy_machine() {
    for seed in 0..40 {
        let executor = Executor::new(Order::Random(Rng::new(seed)));
        let rt =
            Busy { executor: executor.clone(), clock: Rc::new(RefCell::new((Nanos(1), Rng::new(seed)))) };
        let inner = MemoryDevice::new(MIB * 2, DeviceClass::Ssd).unwrap();
        let device = Rc::new(Emulated::new(rt.clone(), inner, Fixed::new(READ_TIME, 3)));
        let (arena, left) = (Arena::new(MIB), Rc::new(Cell::new(8)));
        for task in 0..8 {
            let (device, left, arena, rt) = (device.clone(), left.clone(), arena.clone(), rt.clone());
            let mut rng = Rng::new(seed * 8 + task);
            executor.spawn(async move {
                let buf = arena.alloc(KIB * 4).await;
                for _ in 0..100 {
                    if rng.chance(0.2) {
                        rt.sleep(Nanos(rng.below(300_000))).await;
                    }
                    device.write(KIB * 4 * rng.below(64), &buf).await.unwrap();
                    device.flush().await.unwrap();
                }
                left.set(left.get() - 1);
            });
        }
        executor.run_ready();
        while left.get() > 0 {
            let next = executor.next_timer().filter(|deadline| *deadline < Nanos::MAX);
            let next = next.unwrap_or_else(|| panic!("seed {seed}: {} tasks wait for nothing", left.get()));
            let now = rt.now().max(next);
            rt.clock.borrow_mut().0 = now;
            executor.fire_timers(now);
            executor.run_ready();
        }
        executor.clear();
    }
}
