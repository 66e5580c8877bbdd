//! Converts the engine's counters to reports: units become names, counts become shares.

use crate::device::open::OpenDevice;
use crate::members::open::Member;
use crate::report::ranges::lost_ranges;
use crate::report::types::{
    BackgroundReport, CopyReport, DeviceReport, Durability, ExplainReport, GuestReport, LatencyReport,
    OperationReport, ResponseReport, StatusReport,
};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::{BackgroundStats, DeviceStatus, Explanation, GuestStats, Latency, MovesStatus, Status};
use braid_format::superblock::DeviceState;
use std::collections::BTreeMap;

/// Limit of lost ranges in one report: a reply of the daemon has a bounded length.
const LOST_SHOWN: usize = 1_000;

/// Returns the engine's part of a status; the daemon fills in the rest.
pub(crate) fn status_report(name: &str, uptime: Nanos, status: Status, members: &[Member]) -> StatusReport {
    let (extent, block) = (status.shape.extent_size, status.shape.block_size);
    let total = Totals::of(&status.devices, uptime);
    // A removed device no longer belongs to the volume.
    let is_left = |device: &&DeviceStatus| device.state != DeviceState::Removed;
    let devices = status.devices.iter().filter(is_left);
    let lost = lost_ranges(&status);
    StatusReport {
        name: name.to_owned(),
        served: true,
        uuid: status.uuid.to_string(),
        process_id: std::process::id(),
        uptime_seconds: uptime.as_secs_f64(),
        nbd_uris: Vec::new(),
        nbd_connections: 0,
        nbd_clients: Vec::new(),
        attached_file: None,
        vhost_user_socket: None,
        vhost_user_guest: None,
        policy: status.policy,
        size_bytes: status.shape.volume_size.0,
        extent_bytes: extent.0,
        block_bytes: block.0,
        copies: status.shape.copies,
        mapped_bytes: (extent * u64::from(status.mapped_extents)).0,
        lost_bytes: lost.iter().map(|range| range.length_bytes).sum(),
        lost: lost.into_iter().take(LOST_SHOWN).collect(),
        extra_bytes: (block * status.extra_blocks.0 as u64).0,
        dirty_bytes: (block * status.extra_blocks.1 as u64).0,
        cache_bytes: (extent * status.cached_extents.0 as u64).0,
        cache_limit_bytes: (extent * status.cached_extents.1 as u64).0,
        map_memory_bytes: status.map_memory as u64,
        journal_bytes: status.journal.0,
        behind_bytes: (status.behind - status.deferred).0,
        caught_up_bytes_per_second: 0.0,
        behind_left_seconds: None,
        over_committed_bytes: 0,
        deferred_bytes: (status.deferred - status.journaled).0,
        journaled_bytes: status.journaled.0,
        epoch: status.epoch,
        policy_lacks: status.policy_lacks,
        epoch_failure: status.epoch_failure,
        unapplied_bytes: status.unapplied.map(|bytes| bytes.0),
        unapplied_failure: status.unapplied_failure,
        written_lately_bytes: (status.span_size * status.spans.0 as u64).0,
        stale_pages: status.stale_pages as u64,
        pending_changes: status.pending_changes as u64,
        pending_log: None,
        pending_log_failure: None,
        guard: None,
        durability: durability(members),
        failure: status.failure,
        guests: guest_report(&status.guests),
        background: background_report(&status.background, &status.moves),
        devices: devices.map(|device| device_report(device, members, extent, &total)).collect(),
    }
}

/// Sums over the devices, for shares.
struct Totals {
    used_slots: u64,
    requests: u64,
    uptime: Nanos,
}

impl Totals {
    fn of(devices: &[DeviceStatus], uptime: Nanos) -> Totals {
        Totals {
            used_slots: devices.iter().map(used_slots).sum(),
            requests: devices.iter().map(guest_requests).sum(),
            uptime,
        }
    }
}

/// Returns the slots in use. A missing or failed device uses none: its data was reproduced elsewhere, or is
/// lost.
fn used_slots(device: &DeviceStatus) -> u64 {
    match device.state {
        DeviceState::Missing | DeviceState::Failed => 0,
        _ => u64::from(device.slots - device.free),
    }
}

fn guest_requests(device: &DeviceStatus) -> u64 {
    device.stats.guest_reads + device.stats.guest_writes
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns what a flush survives, as the weakest device decides.
pub(crate) fn durability(members: &[Member]) -> Durability {
    let any = |test: fn(&OpenDevice) -> bool| members.iter().filter_map(|m| m.device.as_ref()).any(test);
    if any(OpenDevice::is_memory) {
        Durability::None
    } else if any(OpenDevice::is_emulated) {
        Durability::DaemonCrash
    } else {
        Durability::PowerCut
    }
}

fn device_report(device: &DeviceStatus, members: &[Member], extent: Bytes, total: &Totals) -> DeviceReport {
    let member = members.iter().find(|member| member.id == device.id);
    let opened = member.and_then(|member| member.device.as_ref());
    let (stats, lateness) = (&device.stats, opened.and_then(OpenDevice::lateness));
    let per_day = drive_writes_per_day(device.written, device.size, total.uptime);
    let rated = device.figures.iter().find(|(name, _)| *name == "wear_drive_writes_per_day");
    DeviceReport {
        device: device.id.to_string(),
        path: path_of(device.id, members),
        class: device.class.to_string(),
        state: device.state.to_string(),
        keeps_addresses: device.keeps_addresses,
        adopted: device.is_adopted,
        model: Some(device.model.clone()).filter(|model| !model.is_empty()),
        uuid: device.uuid.to_string(),
        size_bytes: device.size.0,
        slots_bytes: (extent * u64::from(device.slots)).0,
        used_bytes: (extent * used_slots(device)).0,
        loss_bytes: device.loss.0,
        data_share: share(used_slots(device), total.used_slots),
        requests_share: share(guest_requests(device), total.requests),
        in_flight: device.in_flight,
        move_share: device.move_share,
        times_slower: device.times_slower,
        drain_left_bytes: device.drain.map(|drain| drain.left_bytes.0),
        drained_bytes_per_second: device.drain.map(|drain| drain.bytes_per_second),
        drain_left_seconds: device.drain.and_then(|drain| drain.seconds_left()),
        guest_read_requests: stats.guest_reads,
        guest_write_requests: stats.guest_writes,
        guest_read_bytes: stats.guest_read_bytes,
        guest_written_bytes: stats.guest_write_bytes,
        background_bytes: stats.background_bytes,
        device_written_bytes: device.written.0,
        device_busy_seconds: device.busy.as_secs_f64(),
        drive_writes_per_day: per_day,
        ssd_life_days: rated.zip(per_day).and_then(|((_, rated), per_day)| life_days(*rated, per_day)),
        flushes: stats.flushes,
        flush_response_ns_mean: stats.flush_time.0 / stats.flushes.max(1),
        errors: stats.errors,
        last_error: stats.last_error.clone(),
        response: response_report(&stats.latency),
        lateness_requests: lateness.map(|lateness| lateness.requests),
        lateness_ns_mean: lateness.map(|lateness| lateness.mean().0),
        lateness_ns_max: lateness.map(|lateness| lateness.max.0),
        policy_figures: known_figures(&device.figures),
    }
}

/// Returns device sizes written per day, at the mean rate of the uptime. `None` within the first hour: a
/// single copied file would count for hundreds.
fn drive_writes_per_day(written: Bytes, size: Bytes, uptime: Nanos) -> Option<f64> {
    const LEAST: Nanos = Nanos::from_secs(3600);
    (uptime >= LEAST).then(|| share(written.0, size.0) * 86_400.0 / uptime.as_secs_f64())
}

/// Returns the days until a drive has written its rated amount; `None` if nothing is written. The rating is
/// in drive writes per day over five years, as usual.
fn life_days(rated_per_day: f64, per_day: f64) -> Option<f64> {
    const RATED_DAYS: f64 = 5.0 * 365.0;
    (per_day > 0.0).then(|| RATED_DAYS * rated_per_day / per_day)
}

/// Returns the path of a device; empty if unknown.
fn path_of(device: DeviceId, members: &[Member]) -> String {
    members.iter().find(|member| member.id == device).map(|member| member.name.clone()).unwrap_or_default()
}

/// Returns the policy's finite figures. An unknown figure is not a number, and JSON cannot express one: left
/// out.
fn known_figures(figures: &[(&'static str, f64)]) -> BTreeMap<String, f64> {
    let known = figures.iter().filter(|(_, value)| value.is_finite());
    known.map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn latency_report(latency: &Latency) -> LatencyReport {
    if latency.is_empty() {
        return LatencyReport::default();
    }
    LatencyReport {
        latency_ns_mean: latency.mean().round() as u64,
        latency_ns_p50: latency.quantile(0.5).0,
        latency_ns_p95: latency.quantile(0.95).0,
        latency_ns_p99: latency.quantile(0.99).0,
        latency_ns_p999: latency.quantile(0.999).0,
        latency_ns_max: latency.max().0,
    }
}

fn response_report(response: &Latency) -> ResponseReport {
    let times = latency_report(response);
    ResponseReport {
        response_ns_mean: times.latency_ns_mean,
        response_ns_p50: times.latency_ns_p50,
        response_ns_p95: times.latency_ns_p95,
        response_ns_p99: times.latency_ns_p99,
        response_ns_p999: times.latency_ns_p999,
        response_ns_max: times.latency_ns_max,
    }
}

fn guest_report(guests: &GuestStats) -> GuestReport {
    let operation =
        |requests, bytes, latency| OperationReport { requests, bytes, latency: latency_report(latency) };
    GuestReport {
        read: operation(guests.reads, guests.read_bytes, &guests.read_latency),
        write: operation(guests.writes, guests.write_bytes, &guests.write_latency),
        flush: operation(guests.flushes, 0, &guests.flush_latency),
        discard_requests: guests.discards,
        cache_hits: guests.cache_hits,
        cache_misses: guests.cache_misses,
        errors: guests.errors,
        latency_ns_counts: latency_counts(guests),
    }
}

/// Merges the histograms of reads, writes and flushes: pairs of time and count, by time.
fn latency_counts(guests: &GuestStats) -> Vec<(u64, u64)> {
    let mut all = Latency::default();
    for each in [&guests.read_latency, &guests.write_latency, &guests.flush_latency] {
        all.add(each);
    }
    all.counts().map(|(time, count)| (time.0, count)).collect()
}

fn background_report(background: &BackgroundStats, moves: &MovesStatus) -> BackgroundReport {
    BackgroundReport {
        migrations: background.migrations,
        migrations_stopped: background.migrations_stopped,
        migrated_bytes: background.migrated_bytes,
        mirrors: background.mirrors,
        promotions: background.promotions,
        promotions_skipped: background.promotions_skipped,
        write_backs: background.write_backs,
        probes: background.probes,
        commits: background.commits,
        checkpoints: background.checkpoints,
        moves_left: moves.left as u64,
        moves_left_bytes: moves.left_bytes.0,
        moved_bytes_per_second: moves.bytes_per_second,
        moves_left_seconds: moves.seconds_left(),
    }
}

/// Converts an explanation to a report, with the devices' paths.
pub(crate) fn explain_report(
    name: &str,
    policy: String,
    explanation: Explanation,
    status: &Status,
    members: &[Member],
) -> ExplainReport {
    let copy = |device: DeviceId, offset: Option<Bytes>, state: &str| CopyReport {
        device: device.to_string(),
        class: status.devices[device.index()].class.to_string(),
        path: path_of(device, members),
        device_offset_bytes: offset.map(|offset| offset.0),
        copy_state: state.to_owned(),
    };
    ExplainReport {
        name: name.to_owned(),
        offset_bytes: explanation.offset.0,
        extent: explanation.extent.0,
        home: explanation.home.map(|(device, at)| copy(device, Some(at), "current")),
        second: explanation
            .second
            .map(|(device, at, behind)| copy(device, Some(at), if behind { "behind" } else { "current" })),
        extra: explanation
            .extra
            .map(|(device, dirty)| copy(device, None, if dirty { "dirty" } else { "clean" })),
        written: explanation.written,
        cached: explanation.cached,
        policy,
        reason: explanation.reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: 300 MiB written to 512 MiB in the first minute were shown as 857 drive writes per day.
    #[test]
    fn a_day_is_projected_from_an_hour_at_least() {
        let per_day = |seconds| drive_writes_per_day(Bytes(300), Bytes(600), Nanos::from_secs(seconds));
        assert_eq!([per_day(0), per_day(61), per_day(3599)], [None; 3]);
        assert_eq!(
            [per_day(3600), per_day(86_400), per_day(10 * 86_400)],
            [Some(12.0), Some(0.5), Some(0.05)]
        );
        assert_eq!(
            [life_days(0.3, 0.3), life_days(0.3, 3.0), life_days(0.3, 0.0)],
            [Some(1825.0), Some(182.5), None]
        );
    }
}
