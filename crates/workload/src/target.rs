//! Target of simple workloads: a span cut into pieces of one size, each read or written as a whole.

use crate::catalogue::Setting;
use braid_base::{BadSetting, Bytes, KIB, MIB, Op, Request, Rng, SECTOR, Settings, TIB};

/// Span, size of requests, and share of reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub span: Bytes,
    pub size: Bytes,
    /// From 0 to 1.
    pub read: f64,
}

/// Settings that [`Target::take`] takes.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting { key: "span", default: "1GiB", meaning: "bytes that are used, from the start of the volume" },
    Setting { key: "size", default: "4KiB", meaning: "size of a request, a multiple of 512 B" },
    Setting { key: "read", default: "70%", meaning: "share of reads; the rest writes" },
];

/// Largest span of any workload.
pub(crate) const LARGEST_SPAN: Bytes = Bytes(256 << 40);

impl Target {
    /// Takes `span`, `size` and `read`.
    pub fn take(settings: &mut Settings) -> Result<Target, BadSetting> {
        let span = settings.take_bytes("span", MIB * 1024, SECTOR..=LARGEST_SPAN)?;
        let size = settings.take_bytes("size", KIB * 4, SECTOR..=MIB * 64)?;
        let read = settings.take_share("read")?.unwrap_or(0.7);
        if !size.is_aligned(SECTOR) {
            return Err(settings.bad("size", &size.to_string(), "a multiple of 512 B"));
        }
        if size > span {
            return Err(settings.bad(
                "span",
                &span.to_string(),
                &format!("at least the size of a request, {size}"),
            ));
        }
        Ok(Target { span: span.align_down(size), size, read })
    }

    /// Returns the number of pieces in the span, at least one.
    pub fn pieces(&self) -> u64 {
        self.span / self.size
    }

    /// Returns a read or a write of a piece.
    pub fn request(&self, piece: u64, rng: &mut Rng) -> Request {
        Request { op: read_or_write(self.read, rng), offset: self.size * piece, len: self.size }
    }
}

/// Draws a read with the given probability, otherwise a write.
pub(crate) fn read_or_write(read: f64, rng: &mut Rng) -> Op {
    if rng.chance(read) { Op::Read } else { Op::Write }
}

const _: () = assert!(LARGEST_SPAN.0 == TIB.0 * 256 && LARGEST_SPAN.0 / SECTOR.0 < 1 << 52);
