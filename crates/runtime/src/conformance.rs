//! Contract of every device, as one test body: for real, modelled and wrapped devices.
//!
//! `conformance::device(&runtime, device, seed)` runs to its end, or panics with the device's fault and the
//! seed that reproduces the fault. Overwrites the first MiB of the device and its last block.

use crate::{Arena, Buf, Device, Event, Geometry, Runtime};
use braid_base::{Bytes, MIB, Rng};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// Tasks that use the device at the same time, each within its own part.
const TASKS: u64 = 8;
/// Requests of each task.
const REQUESTS: usize = 200;

/// Runs every check on `device`, which must hold at least 64 KiB.
///
/// # Panics
/// If the device breaks the contract of [`Device`].
pub async fn device<R: Runtime, D: Device>(runtime: &R, device: Rc<D>, seed: u64) {
    let arena = Arena::new(MIB * 4);
    refuses_what_does_not_fit(&arena, &*device).await;
    reaches_the_last_byte(&arena, &*device).await;
    refuses_addresses_or_uses_them(&arena, &*device).await;
    reads_what_was_written(runtime, &arena, &device, seed).await;
    discards_only_what_it_is_told(&arena, &*device).await;
    device.flush().await.expect("a flush of a sound device succeeds");
}

/// Offsets and lengths beyond the end or not aligned are `InvalidInput`, and change nothing.
async fn refuses_what_does_not_fit<D: Device>(arena: &Arena, device: &D) {
    let geometry = device.geometry();
    let unit = geometry.alignment;
    for alignment in [unit, geometry.memory_alignment] {
        assert!(alignment.0.is_power_of_two(), "an alignment is a power of two, not {alignment:?}");
    }
    let buf = arena.alloc(unit * 2).await;
    let last = geometry.size - unit;
    let mut refused = vec![
        (last, buf.clone()),
        (geometry.size, buf.slice(Bytes::ZERO..unit)),
        (Bytes(u64::MAX).align_down(unit), buf.clone()),
    ];
    if unit > Bytes(1) {
        refused.push((Bytes(1), buf.slice(Bytes::ZERO..unit)));
        refused.push((Bytes::ZERO, buf.slice(Bytes::ZERO..unit + Bytes(1))));
        refused.push((Bytes(unit.0 / 2), buf.slice(Bytes::ZERO..Bytes(unit.0 / 2))));
    }
    for (offset, buf) in refused {
        let range = format!("{:?} at {offset:?}", buf.len());
        assert_invalid(device.read(offset, &buf).await, "read", &range);
        assert_invalid(device.write(offset, &buf).await, "write", &range);
        assert_invalid(device.discard(offset, buf.len()).await, "discard", &range);
    }
}

fn assert_invalid(result: io::Result<()>, operation: &str, range: &str) {
    let kind = result.map_err(|error| error.kind());
    assert_eq!(kind, Err(io::ErrorKind::InvalidInput), "a {operation} of {range} must be refused");
}

async fn reaches_the_last_byte<D: Device>(arena: &Arena, device: &D) {
    let geometry = device.geometry();
    let buf = arena.alloc(geometry.alignment).await;
    let last = geometry.size - geometry.alignment;
    buf.with_bytes_mut(|bytes| bytes.fill(0xb5));
    device.write(last, &buf).await.expect("the last block can be written");
    buf.fill_zero();
    device.read(last, &buf).await.expect("the last block can be read");
    assert!(
        buf.with_bytes(|bytes| bytes.iter().all(|&b| b == 0xb5)),
        "the last block holds what was written"
    );
}

/// A buffer at an address of the memory alignment must work. A buffer at any other address works or is
/// `InvalidInput`.
async fn refuses_addresses_or_uses_them<D: Device>(arena: &Arena, device: &D) {
    let Geometry { alignment, memory_alignment, .. } = device.geometry();
    assert!(memory_alignment <= Buf::ALIGNMENT, "buffers keep no alignment of {memory_alignment:?}");
    let whole = arena.alloc(alignment * 2 + Buf::ALIGNMENT).await;
    let plain = arena.alloc(alignment * 2).await;
    for lead in [1, 2, 4, 8, 64, 256, 512, 1024, 1536, 2048, 4095, 4096].map(Bytes) {
        let buf = whole.slice(lead..lead + alignment * 2);
        let mark = (lead.0 % 251) as u8 + 1;
        buf.with_bytes_mut(|bytes| bytes.fill(mark));
        plain.fill_zero();
        device.write(Bytes::ZERO, &plain).await.expect("a write of an aligned buffer succeeds");
        let is_written = is_used(device.write(Bytes::ZERO, &buf).await, lead, memory_alignment);
        device.read(Bytes::ZERO, &plain).await.expect("a read into an aligned buffer succeeds");
        let expected = if is_written { mark } else { 0 };
        assert!(
            plain.with_bytes(|bytes| bytes.iter().all(|&b| b == expected)),
            "written from address {lead:?}"
        );
        plain.with_bytes_mut(|bytes| bytes.fill(!mark));
        device.write(Bytes::ZERO, &plain).await.expect("a write of an aligned buffer succeeds");
        let is_read = is_used(device.read(Bytes::ZERO, &buf).await, lead, memory_alignment);
        let expected = if is_read { !mark } else { mark };
        assert!(buf.with_bytes(|bytes| bytes.iter().all(|&b| b == expected)), "read to address {lead:?}");
    }
}

/// True if a device accepted a buffer at an offset within a page. The device may refuse only an address that
/// breaks its alignment.
fn is_used(result: io::Result<()>, lead: Bytes, memory_alignment: Bytes) -> bool {
    let kind = result.map_err(|error| error.kind());
    let may_refuse = !lead.is_aligned(memory_alignment);
    let is_refused = kind == Err(io::ErrorKind::InvalidInput) && may_refuse;
    assert!(kind.is_ok() || is_refused, "a buffer {lead:?} into a page, of {memory_alignment:?}: {kind:?}");
    kind.is_ok()
}

/// Tasks write, read, flush and compare at random places, at the same time, each against its own copy of its
/// part.
async fn reads_what_was_written<R: Runtime, D: Device>(
    runtime: &R,
    arena: &Arena,
    device: &Rc<D>,
    seed: u64,
) {
    let geometry = device.geometry();
    let part = Bytes(geometry.size.min(MIB).0 / TASKS).align_down(geometry.alignment);
    assert!(part >= geometry.alignment * 2, "{:?} are too few to test", geometry.size);
    let (left, ended) = (Rc::new(Cell::new(TASKS)), Event::default());
    for number in 0..TASKS {
        let worker = Worker { device: device.clone(), start: part * number, len: part, seed };
        let (arena, left, ended) = (arena.clone(), left.clone(), ended.clone());
        runtime.spawn(async move {
            worker.run(&arena, &mut Rng::new(seed ^ (number << 32))).await;
            left.set(left.get() - 1);
            ended.notify();
        });
    }
    ended.wait_for(|| (left.get() == 0).then_some(())).await;
}

/// Writes and reads a part of the device that no other task uses.
struct Worker<D> {
    device: Rc<D>,
    start: Bytes,
    len: Bytes,
    seed: u64,
}

impl<D: Device> Worker<D> {
    async fn run(&self, arena: &Arena, rng: &mut Rng) {
        let mut expected = vec![0; self.len.as_usize()];
        let whole = arena.alloc(self.len).await;
        whole.fill_zero();
        self.write(Bytes::ZERO, &whole).await;
        drop(whole);
        for _ in 0..REQUESTS {
            let (at, len) = self.random_range(rng);
            let lead = self.random_lead(rng);
            let buf = arena.alloc(lead + len).await.slice(lead..lead + len);
            let place = at.as_usize()..(at + len).as_usize();
            if rng.chance(0.5) {
                rng.fill(&mut expected[place.clone()]);
                buf.copy_from_slice(Bytes::ZERO, &expected[place]);
                self.write(at, &buf).await;
            } else {
                self.compare(at, &buf, &expected[place]).await;
            }
            if rng.chance(0.02) {
                self.device.flush().await.expect("a flush of a sound device succeeds");
            }
        }
        let whole = arena.alloc(self.len).await;
        self.compare(Bytes::ZERO, &whole, &expected).await;
    }

    async fn write(&self, at: Bytes, buf: &Buf) {
        let result = self.device.write(self.start + at, buf).await;
        result.unwrap_or_else(|e| panic!("seed {}: a write within the device succeeds: {e}", self.seed));
    }

    async fn compare(&self, at: Bytes, buf: &Buf, expected: &[u8]) {
        let offset = self.start + at;
        let result = self.device.read(offset, buf).await;
        result.unwrap_or_else(|e| panic!("seed {}: a read within the device succeeds: {e}", self.seed));
        let wrong = buf.with_bytes(|bytes| bytes.iter().zip(expected).position(|(a, b)| a != b));
        assert_eq!(wrong, None, "seed {}: {:?} read at {offset:?} differ at this byte", self.seed, buf.len());
    }

    /// Offset of a buffer within its page.
    fn random_lead(&self, rng: &mut Rng) -> Bytes {
        let unit = self.device.geometry().memory_alignment;
        unit * rng.below(Buf::ALIGNMENT / unit)
    }

    fn random_range(&self, rng: &mut Rng) -> (Bytes, Bytes) {
        let unit = self.device.geometry().alignment;
        let units = self.len / unit;
        let at = rng.below(units);
        let len = rng.between(1, units - at + 1);
        (unit * at, unit * len)
    }
}

/// Bytes beside a discarded range stay, and the range can be written again.
async fn discards_only_what_it_is_told<D: Device>(arena: &Arena, device: &D) {
    let geometry = device.geometry();
    let unit = geometry.alignment.max(Bytes(4096));
    let buf = arena.alloc(unit * 4).await;
    buf.with_bytes_mut(|bytes| bytes.fill(0x5b));
    device.write(Bytes::ZERO, &buf).await.expect("a write within the device succeeds");
    device.discard(unit, unit * 2).await.expect("a discard of a sound device succeeds");
    buf.fill_zero();
    device.read(Bytes::ZERO, &buf).await.expect("a discarded range can be read");
    for beside in [Bytes::ZERO..unit, unit * 3..unit * 4] {
        let kept = buf.slice(beside).with_bytes(|bytes| bytes.iter().all(|&b| b == 0x5b));
        assert!(kept, "what lies beside a discarded range stays");
    }
    buf.with_bytes_mut(|bytes| bytes.fill(0x77));
    device.write(Bytes::ZERO, &buf).await.expect("a discarded range can be written");
    buf.fill_zero();
    device.read(Bytes::ZERO, &buf).await.expect("a written range can be read");
    assert!(
        buf.with_bytes(|bytes| bytes.iter().all(|&b| b == 0x77)),
        "a discarded range holds what was written"
    );
}
