//! Counters of a volume and its devices: plain cells, added to on the way, read by status.

use crate::Latency;
use braid_base::Nanos;
use braid_policy::{Completion, Direction, Origin};

/// What a device has done since the volume was opened.
#[derive(Clone, Debug, Default)]
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

/// What guests did since the volume was opened.
#[derive(Clone, Debug, Default)]
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
    /// Of these, pieces of extents without a home: they read as zeros without touching a device.
    pub unwritten: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Response times of reads.
    pub read_latency: Latency,
    /// Response times of writes.
    pub write_latency: Latency,
    /// Response times of flushes.
    pub flush_latency: Latency,
}

/// What happened behind the scenes since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackgroundStats {
    /// Extents that got a new home.
    pub migrations: u64,
    /// Of these, extents that the memory cache held, so that no device was read.
    pub migrations_from_memory: u64,
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
    /// Blocks that got none, as no block slot was free.
    pub promotions_skipped: u64,
    /// Dirty blocks written back.
    pub write_backs: u64,
    /// Bytes copied for them.
    pub written_back_bytes: u64,
    /// Probes of devices without guests.
    pub probes: u64,
    /// Bytes read and written by them.
    pub probed_bytes: u64,
    /// Bad places that were written again from another copy.
    pub repairs: u64,
    /// Bytes copied to copies that were behind.
    pub resynced_bytes: u64,
    /// Commits of the journal.
    pub commits: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes of map pages written by them.
    pub map_bytes: u64,
}
