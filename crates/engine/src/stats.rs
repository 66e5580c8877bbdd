//! Counters of a volume and its devices, increased by requests and read by status, and recent rates.

use crate::Latency;
use braid_base::{Bytes, Nanos};
use braid_policy::{Completion, Direction, Origin};

/// Counters of a device since the opening of the volume.
#[derive(Clone, Debug, Default)]
pub struct DeviceStats {
    /// Reads of guests.
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
    /// Total time of all successful flushes.
    pub flush_time: Nanos,
    /// Failed requests.
    pub errors: u64,
    /// Message of the last failed request.
    pub last_error: Option<String>,
    /// Response times of guests' requests.
    pub latency: Latency,
}

impl DeviceStats {
    #[inline]
    pub(crate) fn record(&mut self, &Completion { direction, origin, len, latency, .. }: &Completion) {
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
        self.latency.record(latency);
    }
}

/// Counters of guests' requests since the opening of the volume.
#[derive(Clone, Debug, Default)]
pub struct GuestStats {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Requests to discard or write zeros.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Pieces of reads served by the memory cache.
    pub cache_hits: u64,
    /// Pieces of reads not served by the memory cache.
    pub cache_misses: u64,
    /// Misses in extents without a home: these read as zeros without access to a device.
    pub unwritten: u64,
    /// Failed requests.
    pub errors: u64,
    /// Response times of reads.
    pub read_latency: Latency,
    /// Response times of writes.
    pub write_latency: Latency,
    /// Response times of flushes.
    pub flush_latency: Latency,
}

/// Counters of background work since the opening of the volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackgroundStats {
    /// Extents with a new home.
    pub migrations: u64,
    /// Migrations of extents in the memory cache, without a read of a device.
    pub migrations_from_memory: u64,
    /// Migrations stopped by a guest's write or for lack of room.
    pub migrations_stopped: u64,
    /// Bytes copied by migrations.
    pub migrated_bytes: u64,
    /// Second copies made.
    pub mirrors: u64,
    /// Bytes copied for second copies.
    pub mirrored_bytes: u64,
    /// Extra copies made.
    pub promotions: u64,
    /// Bytes written for extra copies.
    pub promoted_bytes: u64,
    /// Blocks left without an extra copy because no block slot was free.
    pub promotions_skipped: u64,
    /// Dirty blocks written back.
    pub write_backs: u64,
    /// Bytes copied by write back.
    pub written_back_bytes: u64,
    /// Probes of devices without guest requests.
    pub probes: u64,
    /// Bytes read and written by probes.
    pub probed_bytes: u64,
    /// Bad places rewritten from another copy.
    pub repairs: u64,
    /// Bytes copied to stale copies.
    pub resynced_bytes: u64,
    /// Commits of the journal.
    pub commits: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes of map pages written by checkpoints.
    pub map_bytes: u64,
}

/// Bytes moved in the last seconds.
#[derive(Default)]
pub(crate) struct Lately {
    /// Number of a second and its bytes, at the index of the second modulo the length. Entries older than the
    /// window do not count.
    seconds: [(u64, u64); WINDOW as usize],
    /// End of the first move.
    since: Option<Nanos>,
}

/// Seconds that give the rate, the current second included.
const WINDOW: u64 = 10;

impl Lately {
    /// Counts moved bytes.
    pub fn count(&mut self, len: Bytes, now: Nanos) {
        let second = now.0 / Nanos::from_secs(1).0;
        self.since.get_or_insert(now);
        let entry = &mut self.seconds[(second % WINDOW) as usize];
        *entry = (second, len.0 + if entry.0 == second { entry.1 } else { 0 });
    }

    /// Returns the rate in bytes per second.
    pub fn per_second(&self, now: Nanos) -> f64 {
        let second = now.0 / Nanos::from_secs(1).0;
        let first = (second + 1).saturating_sub(WINDOW);
        let bytes: u64 = self.seconds.iter().filter(|(s, _)| *s >= first).map(|(_, bytes)| bytes).sum();
        // At least one second: a first move that has just ended says little about the rate.
        let since = self.since.unwrap_or(now).max(Nanos::from_secs(first));
        let seconds = now.saturating_sub(since).as_secs_f64().max(1.0);
        bytes as f64 / seconds
    }
}
