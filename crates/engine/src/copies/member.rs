//! A device in use by the volume: reads and writes in slots, timed, counted, and flushed only when there is a reason.

use crate::stats::DeviceStats;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_format::superblock::DeviceEntry;
use braid_policy::{Completion, Direction};
use braid_runtime::{Device, Runtime};
use std::cell::{Cell, RefCell};
use std::io;

/// A device of the volume.
pub(crate) struct Member<D> {
    pub id: DeviceId,
    pub entry: DeviceEntry,
    pub device: D,
    pub alignment: Bytes,
    /// Writes that completed, and how many of them a flush has covered.
    written: Cell<u64>,
    flushed: Cell<u64>,
    pub stats: RefCell<DeviceStats>,
}

/// How long a device took.
pub(crate) struct Timed {
    pub latency: Nanos,
}

impl<D: Device> Member<D> {
    pub fn new(id: DeviceId, entry: DeviceEntry, device: D) -> Member<D> {
        let alignment = device.geometry().alignment;
        Member {
            id,
            entry,
            device,
            alignment,
            // What an earlier run wrote may not be flushed: the first flush is never skipped.
            written: Cell::new(1),
            flushed: Cell::new(0),
            stats: RefCell::default(),
        }
    }

    /// Where a slot of this device lies.
    pub fn slot_offset(&self, index: u32, extent_size: Bytes) -> Bytes {
        self.entry.slots_offset + extent_size * u64::from(index)
    }

    /// Makes all completed writes durable, and says how long that took; does nothing where none completed since the last
    /// flush began.
    pub async fn flush<R: Runtime>(&self, rt: &R) -> io::Result<Option<Timed>> {
        let written = self.written.get();
        if self.flushed.get() >= written {
            return Ok(None);
        }
        let start = rt.now();
        let result = self.device.flush().await;
        let latency = rt.now().saturating_sub(start);
        let mut stats = self.stats.borrow_mut();
        stats.flushes += 1;
        match &result {
            Ok(()) => {
                stats.flush_time += latency;
                self.flushed.set(self.flushed.get().max(written));
            }
            Err(_) => stats.errors += 1,
        }
        result.map(|()| Some(Timed { latency }))
    }

    /// Counts a read or write that has ended.
    #[inline]
    pub fn record(&self, completion: &Completion, result: &io::Result<()>) {
        if completion.direction == Direction::Write {
            // Counted even where it failed: some of it may have been written.
            self.written.set(self.written.get() + 1);
        }
        let mut stats = self.stats.borrow_mut();
        match result {
            Ok(()) => stats.record(completion),
            Err(error) => {
                stats.errors += 1;
                stats.last_error = Some(error.to_string());
            }
        }
    }
}
