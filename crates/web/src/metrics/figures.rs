//! The metrics that are one field of a report, each with its name, help and unit.

use braid_control::{DeviceReport, StatusReport};
use prometheus_client::registry::Unit;

/// A metric with one value for each `T`. The unit and, for counters, `_total` end the name.
pub(super) struct Figure<T> {
    pub name: &'static str,
    pub help: &'static str,
    pub unit: Option<Unit>,
    pub value: fn(&T) -> Value,
}

/// A value, which tells the kind of its metric.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// A counter since the daemon started.
    Count(u64),
    /// A counter with fractions.
    Total(f64),
    /// A present value; none if unknown.
    Gauge(Option<f64>),
}

impl Value {
    /// The value of a condition: 0 or 1.
    pub fn of(holds: bool) -> Value {
        Value::Gauge(Some(f64::from(u8::from(holds))))
    }
}

/// States of devices.
pub(super) const STATES: [&str; 6] = ["active", "slow", "missing", "failed", "returning", "draining"];

const fn figure<T>(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: fn(&T) -> Value,
) -> Figure<T> {
    Figure { name, help, unit, value }
}

const BYTES: Option<Unit> = Some(Unit::Bytes);
const SECONDS: Option<Unit> = Some(Unit::Seconds);

const fn now(value: u64) -> Value {
    Value::Gauge(Some(value as f64))
}

/// Metrics of a served volume.
pub(super) const VOLUME: &[Figure<StatusReport>] = &[
    figure("braid_volume_uptime", "Time since the daemon started", SECONDS, |v| {
        Value::Gauge(Some(v.uptime_seconds))
    }),
    figure("braid_volume_flush_failed", "1 if no flush can succeed any more", None, |v| {
        Value::of(v.failure.is_some())
    }),
    figure("braid_volume_size", "Size that guests see", BYTES, |v| now(v.size_bytes)),
    figure("braid_volume_mapped", "Extents with a home", BYTES, |v| now(v.mapped_bytes)),
    figure("braid_volume_lost", "Lost bytes: reads fail", BYTES, |v| now(v.lost_bytes)),
    figure("braid_volume_behind", "Stale bytes, to be resynchronised", BYTES, |v| now(v.behind_bytes)),
    figure("braid_volume_deferred", "Stale bytes that the policy copies later", BYTES, |v| {
        now(v.deferred_bytes)
    }),
    figure("braid_volume_journaled", "Bytes in the disk's journal of epochs", BYTES, |v| {
        now(v.journaled_bytes)
    }),
    figure("braid_volume_extra", "Blocks with an extra copy", BYTES, |v| now(v.extra_bytes)),
    figure("braid_volume_dirty", "Dirty part of the extra copies", BYTES, |v| now(v.dirty_bytes)),
    figure("braid_volume_memory_cache", "Content of the memory cache", BYTES, |v| now(v.cache_bytes)),
    figure("braid_volume_memory_cache_limit", "Limit of the memory cache", BYTES, |v| {
        now(v.cache_limit_bytes)
    }),
    figure("braid_volume_map_memory", "Memory of the map", BYTES, |v| now(v.map_memory_bytes)),
    figure("braid_volume_journal", "Journal bytes that a recovery would read", BYTES, |v| {
        now(v.journal_bytes)
    }),
    figure("braid_volume_over_committed", "Possible growth of files beyond the free space", BYTES, |v| {
        now(v.over_committed_bytes)
    }),
    figure("braid_volume_moves_left", "Bytes of the pending moves", BYTES, |v| {
        now(v.background.moves_left_bytes)
    }),
    figure("braid_volume_pending_changes", "Map changes that wait for a commit", None, |v| {
        now(v.pending_changes)
    }),
    figure("braid_volume_nbd_connections", "Open NBD connections", None, |v| now(v.nbd_connections)),
    figure("braid_guest_errors", "Failed requests of guests", None, |v| Value::Count(v.guests.errors)),
    figure("braid_memory_cache_hits", "Pieces of reads served by the memory cache", None, |v| {
        Value::Count(v.guests.cache_hits)
    }),
    figure("braid_memory_cache_misses", "Pieces of reads not in the memory cache", None, |v| {
        Value::Count(v.guests.cache_misses)
    }),
    figure("braid_migrated", "Bytes copied by migrations", BYTES, |v| {
        Value::Count(v.background.migrated_bytes)
    }),
    figure("braid_migrations", "Extents moved to a new home", None, |v| {
        Value::Count(v.background.migrations)
    }),
    figure("braid_mirrors", "Second required copies made", None, |v| Value::Count(v.background.mirrors)),
    figure("braid_promotions", "Extra copies made", None, |v| Value::Count(v.background.promotions)),
    figure("braid_write_backs", "Dirty blocks written back", None, |v| {
        Value::Count(v.background.write_backs)
    }),
    figure("braid_commits", "Commits of the journal", None, |v| Value::Count(v.background.commits)),
    figure("braid_checkpoints", "Checkpoints of the map", None, |v| Value::Count(v.background.checkpoints)),
];

/// Metrics of a device.
pub(super) const DEVICE: &[Figure<DeviceReport>] = &[
    figure("braid_device_size", "Size of the device", BYTES, |d| now(d.size_bytes)),
    figure("braid_device_slots", "Room for extents", BYTES, |d| now(d.slots_bytes)),
    figure("braid_device_used", "Used part of the room", BYTES, |d| now(d.used_bytes)),
    figure("braid_device_loss", "Bytes of the volume that a loss of the device would cost", BYTES, |d| {
        now(d.loss_bytes)
    }),
    figure("braid_device_data_ratio", "Share of the used bytes of all devices", None, |d| {
        Value::Gauge(Some(d.data_share))
    }),
    figure(
        "braid_device_move_budget_ratio",
        "Share of the device's time that moves may take now",
        None,
        |d| Value::Gauge(Some(d.move_share)),
    ),
    figure("braid_device_in_flight_requests", "Guests' requests at the device", None, |d| {
        now(d.in_flight as u64)
    }),
    figure("braid_device_guest_read_requests", "Reads for guests", None, |d| {
        Value::Count(d.guest_read_requests)
    }),
    figure("braid_device_guest_write_requests", "Writes for guests", None, |d| {
        Value::Count(d.guest_write_requests)
    }),
    figure("braid_device_guest_read", "Bytes read for guests", BYTES, |d| Value::Count(d.guest_read_bytes)),
    figure("braid_device_guest_written", "Bytes written for guests", BYTES, |d| {
        Value::Count(d.guest_written_bytes)
    }),
    figure("braid_device_background", "Bytes of moves, metadata and probes", BYTES, |d| {
        Value::Count(d.background_bytes)
    }),
    figure("braid_device_written", "All bytes written: wear of an SSD", BYTES, |d| {
        Value::Count(d.device_written_bytes)
    }),
    figure("braid_device_busy", "Time with a request at the device", SECONDS, |d| {
        Value::Total(d.device_busy_seconds)
    }),
    figure("braid_device_flushes", "Flushes of the device", None, |d| Value::Count(d.flushes)),
    figure("braid_device_errors", "Failed requests of the device", None, |d| Value::Count(d.errors)),
    figure(
        "braid_device_flush_response_mean",
        "Mean time for a flush since the daemon started",
        SECONDS,
        |d| Value::Gauge(Some(d.flush_response_ns_mean as f64 / 1e9)),
    ),
    figure("braid_device_response_mean", "Mean response time since the daemon started", SECONDS, |d| {
        Value::Gauge(Some(d.response.response_ns_mean as f64 / 1e9))
    }),
    figure("braid_device_drain_left", "Bytes to be moved before the device can be removed", BYTES, |d| {
        Value::Gauge(d.drain_left_bytes.map(|bytes| bytes as f64))
    }),
    figure("braid_device_life_left", "Life of the SSD at the present rate", SECONDS, |d| {
        Value::Gauge(d.ssd_life_days.map(|days| days * 86_400.0))
    }),
    figure("braid_device_drive_writes_per_day", "Written bytes in sizes of the device per day", None, |d| {
        Value::Gauge(d.drive_writes_per_day)
    }),
];
