//! Counters of a volume and its devices: plain cells, added to on the way, read by status.

use braid_base::{Bytes, Nanos};
use braid_policy::{Direction, Origin};
use hdrhistogram::Histogram;

/// What a device has done since the volume was opened.
#[derive(Clone, Debug)]
pub struct DeviceStats {
    /// Reads and writes of guests.
    pub guest_reads: u64,
    /// Writes of guests.
    pub guest_writes: u64,
    /// Bytes read for guests.
    pub guest_read_bytes: u64,
    /// Bytes written for guests.
    pub guest_write_bytes: u64,
    /// Bytes read and written by background work, metadata and probes.
    pub background_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// How long those that succeeded took, all together.
    pub flush_time: Nanos,
    /// Requests that failed.
    pub errors: u64,
    /// What the last of them said.
    pub last_error: Option<String>,
    /// Response times of guests' requests, added up.
    pub guest_time: Nanos,
    /// Response times of guests' requests, in nanoseconds.
    pub latency_ns: Latency,
}

/// Response times, in nanoseconds, from 1 µs to 1000 s with two digits.
pub type Latency = Histogram<u64>;

/// An empty histogram of response times.
pub fn latency() -> Latency {
    Histogram::new_with_bounds(1_000, 1_000_000_000_000, 2).expect("the bounds of a histogram are in order")
}

impl Default for DeviceStats {
    fn default() -> DeviceStats {
        DeviceStats {
            guest_reads: 0,
            guest_writes: 0,
            guest_read_bytes: 0,
            guest_write_bytes: 0,
            background_bytes: 0,
            flushes: 0,
            flush_time: Nanos::ZERO,
            errors: 0,
            last_error: None,
            guest_time: Nanos::ZERO,
            latency_ns: latency(),
        }
    }
}

impl DeviceStats {
    pub(crate) fn record(&mut self, direction: Direction, origin: Origin, len: Bytes, took: Nanos) {
        if origin != Origin::Guest {
            self.background_bytes += len.0;
            return;
        }
        match direction {
            Direction::Read => {
                self.guest_reads += 1;
                self.guest_read_bytes += len.0;
            }
            Direction::Write | Direction::Flush => {
                self.guest_writes += 1;
                self.guest_write_bytes += len.0;
            }
        }
        self.guest_time += took;
        self.latency_ns.saturating_record(took.0);
    }
}

/// What guests did since the volume was opened.
#[derive(Clone, Debug)]
pub struct GuestStats {
    /// Requests to read.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Requests to flush.
    pub flushes: u64,
    /// Requests to discard or write zeros.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Pieces of reads that the memory cache served.
    pub cache_hits: u64,
    /// Pieces of reads that it did not.
    pub cache_misses: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Response times of reads, in nanoseconds.
    pub read_latency_ns: Latency,
    /// Response times of writes, in nanoseconds.
    pub write_latency_ns: Latency,
    /// Response times of flushes, in nanoseconds.
    pub flush_latency_ns: Latency,
}

impl Default for GuestStats {
    fn default() -> GuestStats {
        GuestStats {
            reads: 0,
            writes: 0,
            flushes: 0,
            discards: 0,
            read_bytes: 0,
            write_bytes: 0,
            cache_hits: 0,
            cache_misses: 0,
            errors: 0,
            read_latency_ns: latency(),
            write_latency_ns: latency(),
            flush_latency_ns: latency(),
        }
    }
}

/// What happened behind the scenes since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackgroundStats {
    /// Extents that got a new home.
    pub migrations: u64,
    /// Migrations that gave way to a guest's write or found no room.
    pub migrations_stopped: u64,
    /// Bytes copied by migrations.
    pub migrated_bytes: u64,
    /// Second copies made.
    pub mirrors: u64,
    /// Bytes copied for them.
    pub mirrored_bytes: u64,
    /// Extra copies made.
    pub promotions: u64,
    /// Bytes written for them.
    pub promoted_bytes: u64,
    /// Dirty blocks written back.
    pub write_backs: u64,
    /// Bytes copied for them.
    pub written_back_bytes: u64,
    /// Probes of devices without guests.
    pub probes: u64,
    /// Bytes read and written by them.
    pub probed_bytes: u64,
    /// Commits of the journal.
    pub commits: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes of map pages written by them.
    pub map_bytes: u64,
}
