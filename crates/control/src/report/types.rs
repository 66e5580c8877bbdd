//! Types of status and explain: the stable JSON of `--json` and the admin socket, and the source of tables
//! and dashboards. Names end with units: `_bytes`, `_ns` (nanoseconds), `_seconds`; a `_share` is from 0 to
//! 1; no unit means a count. Counters begin at 0 when the daemon starts. Fields may be added; no field
//! changes its meaning.

use crate::report::guard::GuardReport;
use crate::report::ranges::LostRange;
use crate::{DeviceRecord, Error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A served volume at one moment.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Name under which the volume is served.
    pub name: String,
    /// True: distinguishes the report from a [`RestingReport`].
    pub served: bool,
    /// UUID of the volume.
    pub uuid: String,
    /// Process ID of the daemon.
    pub process_id: u32,
    /// Time since the daemon started to serve.
    pub uptime_seconds: f64,
    /// URIs of the NBD exports.
    pub nbd_uris: Vec<String>,
    /// Open NBD connections.
    pub nbd_connections: u64,
    /// The first 100 NBD clients: addresses, or processes of this machine.
    #[serde(default)]
    pub nbd_clients: Vec<String>,
    /// The ublk device, or the file under a loop device, if attached.
    pub attached_file: Option<PathBuf>,
    /// The socket for a virtual machine (vhost-user); null without.
    #[serde(default)]
    pub vhost_user_socket: Option<PathBuf>,
    /// The process of the connected virtual machine; null if none is connected.
    #[serde(default)]
    pub vhost_user_guest: Option<String>,
    /// The policy with its settings, as `name,key=value,…`.
    pub policy: String,
    /// State of the guard of `equi,mode=auto`; null for a policy without modes.
    #[serde(default)]
    pub guard: Option<GuardReport>,
    /// Size that guests see.
    pub size_bytes: u64,
    /// The unit of placement.
    pub extent_bytes: u64,
    /// The unit of caching.
    pub block_bytes: u64,
    /// Required copies of each extent.
    pub copies: u8,
    /// Extents with a home, in bytes of the volume.
    pub mapped_bytes: u64,
    /// Lost bytes: reads fail until the guest writes whole parts of their extents, or discards them.
    pub lost_bytes: u64,
    /// Ranges of lost bytes, the first 1,000.
    pub lost: Vec<LostRange>,
    /// Blocks with an extra copy, in bytes.
    pub extra_bytes: u64,
    /// Dirty part of `extra_bytes`: newer than any required copy.
    pub dirty_bytes: u64,
    /// Content of the memory cache.
    pub cache_bytes: u64,
    /// Limit of the memory cache.
    pub cache_limit_bytes: u64,
    /// Memory used by the map.
    pub map_memory_bytes: u64,
    /// Journal bytes that a recovery would read.
    pub journal_bytes: u64,
    /// Stale bytes after missed writes or an unclean stop, and extents without a second copy: to be
    /// resynchronised.
    pub behind_bytes: u64,
    /// Rate of resynchronisation over the last ten seconds; guests' writes meanwhile count against the rate.
    #[serde(default)]
    pub caught_up_bytes_per_second: f64,
    /// Time left at this rate; null if nothing is stale, or nothing was resynchronised recently.
    #[serde(default)]
    pub behind_left_seconds: Option<f64>,
    /// Device class that the policy needs and the volume no longer has: the policy uses other devices.
    #[serde(default)]
    pub policy_lacks: Option<String>,
    /// Stale bytes of copies that the policy makes later: the cost of a loss of the other copy now.
    pub deferred_bytes: u64,
    /// Bytes in the disk's journal of epochs and not yet at their places, beside `deferred_bytes`.
    #[serde(default)]
    pub journaled_bytes: u64,
    /// Newest epoch whose state the disk that keeps epochs has by itself; null if no disk keeps epochs, or
    /// the disk is not a state of the volume yet.
    pub epoch: Option<u64>,
    /// Why no epoch can end, if so: the disk may then lag by more than `max-lag`.
    pub epoch_failure: Option<String>,
    /// After a recovery, bytes in the disk's journal of epochs and not yet at their places; null once all
    /// bytes are applied. Until then no other data is moved or copied.
    #[serde(default)]
    pub unapplied_bytes: Option<u64>,
    /// Error of the last attempt to apply these bytes.
    #[serde(default)]
    pub unapplied_failure: Option<String>,
    /// Bytes that would be resynchronised after an unclean stop, in whole spans. With one required copy:
    /// bytes whose clean extra copies would be forgotten.
    pub written_lately_bytes: u64,
    /// Map pages older than the journal.
    pub stale_pages: u64,
    /// Changes waiting for a commit.
    pub pending_changes: u64,
    /// The file in memory with changes that are not in the journal yet, which survive a crash of the daemon.
    /// Null if there is none.
    #[serde(default)]
    pub pending_log: Option<PathBuf>,
    /// Why there is no pending log, unless the volume ends with the daemon.
    #[serde(default)]
    pub pending_log_failure: Option<String>,
    /// Events that flushed writes survive.
    pub durability: Durability,
    /// Why no flush can succeed any more, if so: the volume must be served anew.
    pub failure: Option<String>,
    /// Bytes by which the volume's files may outgrow the free space of their file systems.
    #[serde(default)]
    pub over_committed_bytes: u64,
    /// Requests of guests.
    pub guests: GuestReport,
    /// Background work.
    pub background: BackgroundReport,
    /// The devices, by place.
    pub devices: Vec<DeviceReport>,
}

impl StatusReport {
    /// True if nothing is stale, epochs can end, and every device is active or draining: otherwise a further
    /// failure may lose data.
    pub fn is_whole(&self) -> bool {
        self.behind_bytes == 0
            && self.epoch_failure.is_none()
            && self.devices.iter().all(|d| matches!(d.state.as_str(), "active" | "draining"))
    }

    /// Exit status for scripts: 3 if no flush can succeed, data is lost or not [`Self::is_whole`]; else 0.
    pub fn exit_status(&self) -> u8 {
        if self.failure.is_none() && self.is_whole() && self.lost_bytes == 0 { 0 } else { 3 }
    }
}

/// A volume that no daemon serves.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct RestingReport {
    /// Name of the volume.
    pub name: String,
    /// False: distinguishes the report from a [`StatusReport`].
    pub served: bool,
    /// UUID of the volume.
    pub uuid: String,
    /// Made by `serve --temporary`, and its daemon died.
    pub temporary: bool,
    /// The last daemon did not close the volume: the daemon was killed, or the machine failed.
    #[serde(default)]
    pub ended_unclean: bool,
    /// Why the last daemon cannot end, and the remedy; a device does not answer. Null if it has ended.
    #[serde(default)]
    pub cannot_end: Option<String>,
    /// Pending log of this daemon: acknowledged writes that were not flushed.
    #[serde(default)]
    pub pending_log: Option<PathBuf>,
    /// Block devices left behind by this daemon: every request fails.
    #[serde(default)]
    pub dead_block_devices: Vec<PathBuf>,
    /// Block devices by ublk whose requests wait for the next daemon, for root.
    #[serde(default)]
    pub waiting_block_devices: Vec<PathBuf>,
    /// Mounts on dead block devices, and the dead mount of the file.
    #[serde(default)]
    pub dead_mounts: Vec<PathBuf>,
    /// The devices by place, as last recorded.
    pub devices: Vec<DeviceRecord>,
}

impl RestingReport {
    /// True if a dead daemon has left mounts or block devices behind.
    pub fn is_attached_dead(&self) -> bool {
        !self.dead_block_devices.is_empty() || !self.dead_mounts.is_empty()
    }

    /// Exit status for scripts: 3 if a daemon cannot end, or has left mounts or block devices behind; else 0.
    pub fn exit_status(&self) -> u8 {
        if self.is_attached_dead() || self.cannot_end.is_some() { 3 } else { 0 }
    }
}

/// A volume whose daemon does not answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SilentReport {
    /// Name of the volume.
    pub name: String,
    /// True: a process has the volume.
    pub served: bool,
    /// Process ID of the daemon; null if the lock file does not say.
    pub process_id: Option<u32>,
    /// `stopped` (by a signal), `traced`, `in_kernel`, `opening` (the volume), `running` or `unknown`.
    pub process_state: String,
    /// Why no more is known, with the remedy.
    pub error: Error,
}

impl SilentReport {
    /// True if an answer can be expected soon.
    pub fn is_opening(&self) -> bool {
        self.process_state == "opening"
    }
}

/// A volume, served or not: `served` distinguishes the two, and `error` marks a daemon that does not answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VolumeReport {
    /// Served.
    Served(Box<StatusReport>),
    /// Served by a daemon that does not answer.
    Silent(SilentReport),
    /// Not served.
    Resting(RestingReport),
}

/// Events that successfully flushed writes survive.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut.
    PowerCut,
    /// The death of the daemon, but no power cut: a device is emulated on a file.
    DaemonCrash,
    /// Nothing: a device is memory.
    #[default]
    None,
}

/// A device of the volume.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Place in the volume: `d0`.
    pub device: String,
    /// Path, or `memory`.
    pub path: String,
    /// `ssd` or `hdd`.
    pub class: String,
    /// `active`, `missing`, `failed`, `draining`, `slow` or `returning` (in a resync).
    pub state: String,
    /// True if data keeps its volume addresses on the device (layout=tail, or adopted).
    #[serde(default)]
    pub keeps_addresses: bool,
    /// True if the device is an adopted disk: it had data before, and equals the volume byte for byte.
    #[serde(default)]
    pub adopted: bool,
    /// Emulated model.
    pub model: Option<String>,
    /// UUID of the device.
    pub uuid: String,
    /// Size of the device.
    pub size_bytes: u64,
    /// Room for extents.
    pub slots_bytes: u64,
    /// Used part of `slots_bytes`; 0 on a missing or failed device.
    pub used_bytes: u64,
    /// Bytes of the volume that a loss of the device would cost now, at most: written bytes without another
    /// copy, and bytes with a stale second copy. Exact unless more than 16,384 pieces of extents are stale.
    #[serde(default)]
    pub loss_bytes: u64,
    /// Share of all used bytes.
    pub data_share: f64,
    /// Share of the guests' requests to devices.
    pub requests_share: f64,
    /// Guests' requests in flight at the device.
    pub in_flight: u32,
    /// Share of the device's time that moves of the plan may take now.
    #[serde(default)]
    pub move_share: f64,
    /// For a slow device that answers in time: factor by which requests take longer; null otherwise.
    #[serde(default)]
    pub times_slower: Option<f64>,
    /// While draining: bytes still to be moved, in whole slots; null otherwise.
    #[serde(default)]
    pub drain_left_bytes: Option<u64>,
    /// While draining: bytes moved in a second, over the last ten; null otherwise.
    #[serde(default)]
    pub drained_bytes_per_second: Option<f64>,
    /// While draining: time left at this rate; null if nothing has moved recently.
    #[serde(default)]
    pub drain_left_seconds: Option<f64>,
    /// Guests' reads.
    pub guest_read_requests: u64,
    /// Guests' writes.
    pub guest_write_requests: u64,
    /// Bytes read for guests.
    pub guest_read_bytes: u64,
    /// Bytes written for guests.
    pub guest_written_bytes: u64,
    /// Bytes of moves, metadata and probes.
    pub background_bytes: u64,
    /// All bytes written to the device, metadata included: wear of an SSD.
    #[serde(default)]
    pub device_written_bytes: u64,
    /// Time with a request of any origin at the device. The growth between two reports, divided by the time
    /// between them, is the utilisation.
    #[serde(default)]
    pub device_busy_seconds: f64,
    /// Written bytes in device sizes per day of uptime; null within the first hour, too short to tell a daily
    /// rate.
    #[serde(default)]
    pub drive_writes_per_day: Option<f64>,
    /// For an SSD under `wear`: life at this rate, if rated for the `wear` setting over five years; null
    /// while the rate is unknown.
    #[serde(default)]
    pub ssd_life_days: Option<f64>,
    /// Flushes.
    pub flushes: u64,
    /// Mean duration of a flush.
    #[serde(default)]
    pub flush_response_ns_mean: u64,
    /// Failed requests.
    pub errors: u64,
    /// Message of the last error.
    pub last_error: Option<String>,
    /// Response times of guests' requests.
    #[serde(flatten)]
    pub response: ResponseReport,
    /// For an emulated device: requests with measured lateness, background included.
    #[serde(default)]
    pub lateness_requests: Option<u64>,
    /// For an emulated device: mean delay of these requests against the model.
    pub lateness_ns_mean: Option<u64>,
    /// Largest delay.
    pub lateness_ns_max: Option<u64>,
    /// The policy's figures for the device, by names with units.
    pub policy_figures: BTreeMap<String, f64>,
}

/// Durations of guests' requests, from request to reply, since the daemon started, with two digits.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Mean; all fields are 0 if nothing was measured.
    pub latency_ns_mean: u64,
    /// 50th percentile.
    pub latency_ns_p50: u64,
    /// 95th percentile.
    pub latency_ns_p95: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Maximum.
    pub latency_ns_max: u64,
}

/// Durations of guests' requests at a device, its queue included, since the daemon started; otherwise as
/// [`LatencyReport`].
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResponseReport {
    /// Mean; all fields are 0 if nothing was measured.
    pub response_ns_mean: u64,
    /// 50th percentile.
    pub response_ns_p50: u64,
    /// 95th percentile.
    pub response_ns_p95: u64,
    /// 99th percentile.
    pub response_ns_p99: u64,
    /// 99.9th percentile.
    pub response_ns_p999: u64,
    /// Maximum.
    pub response_ns_max: u64,
}

/// Requests of guests.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct GuestReport {
    /// Reads.
    pub read: OperationReport,
    /// Writes.
    pub write: OperationReport,
    /// Flushes, without bytes.
    pub flush: OperationReport,
    /// Requests to discard or write zeros.
    pub discard_requests: u64,
    /// Pieces of reads served by the memory cache.
    pub cache_hits: u64,
    /// Pieces of reads not in the memory cache.
    pub cache_misses: u64,
    /// Failed requests.
    pub errors: u64,
    /// Response times of reads, writes and flushes together: pairs of a time in nanoseconds and the number of
    /// requests near this time. The difference of two reports gives the percentiles between them.
    #[serde(default)]
    pub latency_ns_counts: Vec<(u64, u64)>,
}

/// One kind of request.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// Number of requests.
    pub requests: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Response times.
    #[serde(flatten)]
    pub latency: LatencyReport,
}

/// Background work.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct BackgroundReport {
    /// Extents moved to a new home.
    pub migrations: u64,
    /// Migrations stopped by a guest's write or a lack of room.
    pub migrations_stopped: u64,
    /// Bytes that migrations copied.
    pub migrated_bytes: u64,
    /// Second required copies made.
    pub mirrors: u64,
    /// Extra copies made.
    pub promotions: u64,
    /// Promotions skipped for lack of a free slot.
    pub promotions_skipped: u64,
    /// Dirty blocks written back.
    pub write_backs: u64,
    /// Measurements of devices without guests.
    pub probes: u64,
    /// Commits of the journal.
    pub commits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Pending moves of the policy's plan.
    #[serde(default)]
    pub moves_left: u64,
    /// Bytes of these moves.
    #[serde(default)]
    pub moves_left_bytes: u64,
    /// Bytes moved by the plan in a second, over the last ten.
    #[serde(default)]
    pub moved_bytes_per_second: f64,
    /// Time left for the plan at this rate; null if nothing has moved recently.
    #[serde(default)]
    pub moves_left_seconds: Option<f64>,
}

/// Place of a byte of the volume, with the reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExplainReport {
    /// The volume.
    pub name: String,
    /// The byte in question.
    pub offset_bytes: u64,
    /// The number of its extent.
    pub extent: u32,
    /// The home, if any.
    pub home: Option<CopyReport>,
    /// The second required copy, if any.
    pub second: Option<CopyReport>,
    /// The extra copy of the byte's block, if any.
    pub extra: Option<CopyReport>,
    /// True if the byte was written since its extent was allocated; otherwise the byte reads as zero.
    pub written: bool,
    /// True if the memory cache holds the extent.
    pub cached: bool,
    /// The policy.
    pub policy: String,
    /// The policy's reason, with numbers.
    pub reason: String,
}

/// One copy of a byte.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyReport {
    /// The device's place in the volume: `d0`.
    pub device: String,
    /// `ssd` or `hdd`.
    pub class: String,
    /// The device's path, or `memory`.
    pub path: String,
    /// Offset of the byte on the device; null for extra copies.
    pub device_offset_bytes: Option<u64>,
    /// `current`, `behind` (a stale second copy), `clean` or `dirty` (extra copies).
    pub copy_state: String,
}
