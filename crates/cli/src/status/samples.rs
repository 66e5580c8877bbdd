//! Reports for tests.

use braid_control::{StatusReport, VolumeReport};
use serde_json::{Value, json};

/// An active device with figures of its policy.
pub fn device(name: &str, class: &str, figures: Value) -> Value {
    json!({
        "device": name, "path": name, "class": class, "state": "active", "model": null, "uuid": "", "size_bytes": 0,
        "slots_bytes": 0, "used_bytes": 0, "data_share": 0.0, "requests_share": 0.0, "in_flight": 0, "guest_read_requests": 0,
        "guest_write_requests": 0, "guest_read_bytes": 0, "guest_written_bytes": 0, "background_bytes": 0, "flushes": 0,
        "flush_response_ns_mean": 0, "errors": 0, "last_error": null, "response_ns_mean": 0, "response_ns_p50": 0,
        "response_ns_p95": 0, "response_ns_p99": 0, "response_ns_p999": 0, "response_ns_max": 0, "lateness_requests": null,
        "lateness_ns_mean": null, "lateness_ns_max": null, "policy_figures": figures,
    })
}

/// A report on a volume of 1 GiB; `differs` replaces fields.
pub fn status(policy: &str, devices: &[Value], differs: Value) -> StatusReport {
    let operation = json!({
        "requests": 0, "bytes": 0, "latency_ns_mean": 0, "latency_ns_p50": 0, "latency_ns_p95": 0, "latency_ns_p99": 0,
        "latency_ns_p999": 0, "latency_ns_max": 0,
    });
    let mut value = json!({
        "name": "vault", "served": true, "uuid": "", "process_id": 1, "uptime_seconds": 1.0, "nbd_uris": [], "nbd_connections": 0,
        "attached_file": null, "policy": policy, "size_bytes": 1 << 30, "extent_bytes": 1 << 17, "block_bytes": 4096, "copies": 2,
        "mapped_bytes": 0, "lost_bytes": 0, "lost": [], "extra_bytes": 0, "dirty_bytes": 0, "cache_bytes": 0, "cache_limit_bytes": 0,
    });
    let rest = json!({
        "map_memory_bytes": 0, "journal_bytes": 0, "behind_bytes": 0, "deferred_bytes": 0, "epoch": null, "epoch_failure": null,
        "written_lately_bytes": 0, "stale_pages": 0, "pending_changes": 0, "durability": "power_cut", "failure": null,
        "guests": {
            "read": operation, "write": operation, "flush": operation, "discard_requests": 0, "cache_hits": 0, "cache_misses": 0,
            "errors": 0,
        },
        "background": {
            "migrations": 0, "migrations_stopped": 0, "migrated_bytes": 0, "mirrors": 0, "promotions": 0, "promotions_skipped": 0,
            "write_backs": 0, "probes": 0, "commits": 0, "checkpoints": 0,
        },
        "devices": devices,
    });
    for (key, differing) in [&rest, &differs].iter().flat_map(|group| group.as_object().unwrap()) {
        value[key] = differing.clone();
    }
    match serde_json::from_value(value).unwrap() {
        VolumeReport::Served(status) => *status,
        VolumeReport::Resting(_) | VolumeReport::Silent(_) => panic!("it is served"),
    }
}
