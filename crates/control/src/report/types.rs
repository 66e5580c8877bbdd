//! What status and explain say: the stable JSON of `--json` and of the admin socket, and what tables and
//! dashboards are made from. Units stand in the names: `_bytes`, `_ns` (nanoseconds), `_seconds`; a `_share`
//! is from 0 to 1; what has no unit is a count. Counters begin at 0 when the daemon starts. Fields may be
//! added; none changes its meaning.

use crate::volume::check::LostRange;
use crate::{DeviceRecord, Error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A served volume at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// The name that it is served by.
    pub name: String,
    /// True: tells it from a [`RestingReport`].
    pub served: bool,
    /// Its identity.
    pub uuid: String,
    /// The daemon's process.
    pub process_id: u32,
    /// How long the daemon serves it.
    pub uptime_seconds: f64,
    /// The URIs of its NBD exports.
    pub nbd_uris: Vec<String>,
    /// NBD connections that are open.
    pub nbd_connections: u64,
    /// Who they are, the first 100: addresses, or processes of this machine.
    #[serde(default)]
    pub nbd_clients: Vec<String>,
    /// The file that is the volume, where it is attached.
    pub attached_file: Option<PathBuf>,
    /// The policy with its settings, as `name,key=value,…`.
    pub policy: String,
    /// What the guard of `equi,mode=auto` knows; null of a policy without a choice.
    #[serde(default)]
    pub guard: Option<GuardReport>,
    /// What the guest sees.
    pub size_bytes: u64,
    /// The unit of placement.
    pub extent_bytes: u64,
    /// The unit of caching.
    pub block_bytes: u64,
    /// Required copies of each extent.
    pub copies: u8,
    /// Extents that have a home, in bytes of the volume.
    pub mapped_bytes: u64,
    /// Lost bytes: reads fail until the guest writes whole parts of their extents, or discards them.
    pub lost_bytes: u64,
    /// The first of their ranges, 1,000 at most.
    pub lost: Vec<LostRange>,
    /// Blocks with an extra copy, in bytes.
    pub extra_bytes: u64,
    /// Of these dirty: newer than any required copy.
    pub dirty_bytes: u64,
    /// What the memory cache holds.
    pub cache_bytes: u64,
    /// What it may hold.
    pub cache_limit_bytes: u64,
    /// Memory that the map takes.
    pub map_memory_bytes: u64,
    /// What recovery would have to read.
    pub journal_bytes: u64,
    /// Bytes that a copy lacks after missed writes or an unclean stop: to be resynchronised.
    pub behind_bytes: u64,
    /// Bytes resynchronised in a second, over the last ten; guests' writes meanwhile count against it.
    #[serde(default)]
    pub caught_up_bytes_per_second: f64,
    /// Time left at this rate; null if nothing is behind, or nothing was resynchronised of late.
    #[serde(default)]
    pub behind_left_seconds: Option<f64>,
    /// Which class of devices the policy needs and has none of any more, if that is so: it uses what there
    /// is.
    #[serde(default)]
    pub policy_lacks: Option<String>,
    /// Bytes of the volume that a copy lacks because the policy duplicates them later: what the loss of the
    /// other copy would cost now.
    pub deferred_bytes: u64,
    /// Beside that, what the disk has in its journal of epochs, and not in its place yet.
    #[serde(default)]
    pub journaled_bytes: u64,
    /// The newest epoch of which the disk that keeps epochs alone is the volume; null if no disk does, or it
    /// is not a state of the volume yet.
    pub epoch: Option<u64>,
    /// Why no epoch can end, if that is so: then that disk may lack more than `max-lag`.
    pub epoch_failure: Option<String>,
    /// After a recovery, bytes of the volume that the disk has in its journal of epochs, and not in its place
    /// yet; null once all is there. Until then nothing else is moved or copied.
    #[serde(default)]
    pub unapplied_bytes: Option<u64>,
    /// Why they could not be written there last.
    #[serde(default)]
    pub unapplied_failure: Option<String>,
    /// Bytes of the volume that would be resynchronised after an unclean stop, in whole spans; with one
    /// required copy, those whose clean extra copies would be forgotten.
    pub written_lately_bytes: u64,
    /// Map pages that are older than the journal.
    pub stale_pages: u64,
    /// Changes that wait for a commit.
    pub pending_changes: u64,
    /// The file in memory with the changes that are in no journal yet: what a crash of the daemon leaves.
    /// Null if there is none.
    #[serde(default)]
    pub pending_log: Option<PathBuf>,
    /// Why there is none, unless the volume ends with the daemon.
    #[serde(default)]
    pub pending_log_failure: Option<String>,
    /// What a flush survives.
    pub durability: Durability,
    /// Why no flush can succeed any more, if that is so: the volume must be served anew.
    pub failure: Option<String>,
    /// By how much its files may outgrow what their file systems have free.
    #[serde(default)]
    pub over_committed_bytes: u64,
    /// What guests did.
    pub guests: GuestReport,
    /// What happened behind the scenes.
    pub background: BackgroundReport,
    /// The devices, by their place in the volume.
    pub devices: Vec<DeviceReport>,
}

impl StatusReport {
    /// Whether each device holds what it should: else a further failure may cost data.
    pub fn is_whole(&self) -> bool {
        self.behind_bytes == 0
            && self.epoch_failure.is_none()
            && self.devices.iter().all(|d| matches!(d.state.as_str(), "active" | "draining"))
    }

    /// The exit status that says so to scripts: 0 all is well, 3 no flush can succeed, or a copy is missing.
    pub fn exit_status(&self) -> u8 {
        if self.failure.is_none() && self.is_whole() && self.lost_bytes == 0 { 0 } else { 3 }
    }
}

/// A volume that nobody serves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RestingReport {
    /// Its name.
    pub name: String,
    /// False: tells it from a [`StatusReport`].
    pub served: bool,
    /// Its identity.
    pub uuid: String,
    /// Made by `serve --temporary`, whose daemon died.
    pub temporary: bool,
    /// Whether its last daemon ended without closing the volume: it was killed, or the machine failed.
    #[serde(default)]
    pub ended_unclean: bool,
    /// The file in memory that this daemon left, with what it acknowledged and did not flush.
    #[serde(default)]
    pub pending_log: Option<PathBuf>,
    /// Block devices that this daemon left behind: every request to one fails.
    #[serde(default)]
    pub dead_block_devices: Vec<PathBuf>,
    /// What is mounted on these, and the dead file beneath them.
    #[serde(default)]
    pub dead_mounts: Vec<PathBuf>,
    /// Its devices, by place, as they were when it was noted.
    pub devices: Vec<DeviceRecord>,
}

impl RestingReport {
    /// Whether a daemon that ended has left mounts or block devices behind.
    pub fn is_attached_dead(&self) -> bool {
        !self.dead_block_devices.is_empty() || !self.dead_mounts.is_empty()
    }

    /// The exit status that says so to scripts: 3 if what was mounted from the volume is dead.
    pub fn exit_status(&self) -> u8 {
        if self.is_attached_dead() { 3 } else { 0 }
    }
}

/// A volume whose daemon does not answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SilentReport {
    /// Its name.
    pub name: String,
    /// True: a process has the volume.
    pub served: bool,
    /// This process; none if its lock file does not say.
    pub process_id: Option<u32>,
    /// `stopped` (by a signal), `traced`, `in_kernel`, `opening` (the volume), `running` or `unknown`.
    pub process_state: String,
    /// Why nothing more is told, and what to do.
    pub error: Error,
}

impl SilentReport {
    /// Whether it can be expected to answer soon.
    pub fn is_opening(&self) -> bool {
        self.process_state == "opening"
    }
}

/// A volume, served or not: `served` tells which, and `error` a daemon that does not answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VolumeReport {
    /// It is served.
    Served(Box<StatusReport>),
    /// It is, by a daemon that does not answer.
    Silent(SilentReport),
    /// It is not.
    Resting(RestingReport),
}

/// What a flush that succeeded survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut.
    PowerCut,
    /// The death of the daemon, but no power cut: a device is emulated on a file.
    DaemonCrash,
    /// Nothing: a device is memory.
    None,
}

/// A device of the volume.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its place in the volume: `d0`.
    pub device: String,
    /// Its path, or `memory`.
    pub path: String,
    /// `ssd` or `hdd`.
    pub class: String,
    /// `active`, `missing`, `failed`, `draining`, `slow` or `returning` (being brought up to date).
    pub state: String,
    /// Whether data lies on it at its own addresses (layout=tail, or adopted).
    #[serde(default)]
    pub keeps_addresses: bool,
    /// Whether it was there before with data on it, and is the volume byte for byte.
    #[serde(default)]
    pub adopted: bool,
    /// The model that it emulates.
    pub model: Option<String>,
    /// Its identity.
    pub uuid: String,
    /// Its size.
    pub size_bytes: u64,
    /// Room for extents.
    pub slots_bytes: u64,
    /// Of that in use; nothing on a device that is missing or failed.
    pub used_bytes: u64,
    /// Bytes of the volume that its loss would cost now, at most: written bytes that lie on no other device,
    /// and bytes that the second copy lacks. Exact unless more than 16,384 pieces of extents are behind.
    #[serde(default)]
    pub loss_bytes: u64,
    /// Its share of all that is in use.
    pub data_share: f64,
    /// Its share of the guests' requests to devices.
    pub requests_share: f64,
    /// Guests' requests that it is serving now.
    pub in_flight: u32,
    /// The share of its time that moves of the plan may take now.
    #[serde(default)]
    pub move_share: f64,
    /// While it is slow, though it answers in time: how many times longer than usual requests take; null
    /// else.
    #[serde(default)]
    pub times_slower: Option<f64>,
    /// While it drains: what has still to be moved off it, in whole slots; null else.
    #[serde(default)]
    pub drain_left_bytes: Option<u64>,
    /// While it drains: bytes moved off it in a second, of the last ten; null else.
    #[serde(default)]
    pub drained_bytes_per_second: Option<f64>,
    /// While it drains: how long the rest takes at this rate; null if nothing has moved of late.
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
    /// All bytes written to it, metadata included: what wears an SSD.
    #[serde(default)]
    pub device_written_bytes: u64,
    /// These in sizes of the device, by the time that the daemon runs; null within its first hour, which says
    /// nothing of a day.
    #[serde(default)]
    pub drive_writes_per_day: Option<f64>,
    /// Of an SSD under `wear`: how long it lasts at this rate if it is rated for what `wear` says over five
    /// years; null while the rate is not known.
    #[serde(default)]
    pub ssd_life_days: Option<f64>,
    /// Flushes.
    pub flushes: u64,
    /// How long a flush took on average.
    #[serde(default)]
    pub flush_response_ns_mean: u64,
    /// Requests that failed.
    pub errors: u64,
    /// What the last of these said.
    pub last_error: Option<String>,
    /// Response times of guests' requests.
    #[serde(flatten)]
    pub response: ResponseReport,
    /// Of an emulated device: requests of which lateness was measured, background included.
    #[serde(default)]
    pub lateness_requests: Option<u64>,
    /// Of an emulated device: how much later than its model these requests completed, on average.
    pub lateness_ns_mean: Option<u64>,
    /// The latest of all.
    pub lateness_ns_max: Option<u64>,
    /// What the policy knows of it, by names with units.
    pub policy_figures: BTreeMap<String, f64>,
}

/// How long guests' requests took, from the request to the reply, since the daemon started. The histogram
/// behind it has two digits.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatencyReport {
    /// The mean; 0 if nothing was measured, as all of these.
    pub latency_ns_mean: u64,
    /// Half of all requests took no longer.
    pub latency_ns_p50: u64,
    /// 95 % took no longer.
    pub latency_ns_p95: u64,
    /// 99 % took no longer.
    pub latency_ns_p99: u64,
    /// 99.9 % took no longer.
    pub latency_ns_p999: u64,
    /// The longest.
    pub latency_ns_max: u64,
}

/// How long a device took for guests' requests, its queue included, since the daemon started; otherwise as
/// [`LatencyReport`].
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResponseReport {
    /// The mean; 0 if nothing was measured, as all of these.
    pub response_ns_mean: u64,
    /// Half of all requests took no longer.
    pub response_ns_p50: u64,
    /// 95 % took no longer.
    pub response_ns_p95: u64,
    /// 99 % took no longer.
    pub response_ns_p99: u64,
    /// 99.9 % took no longer.
    pub response_ns_p999: u64,
    /// The longest.
    pub response_ns_max: u64,
}

/// What guests did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GuestReport {
    /// Reads.
    pub read: OperationReport,
    /// Writes.
    pub write: OperationReport,
    /// Flushes; they have no bytes.
    pub flush: OperationReport,
    /// Requests to discard or write zeros.
    pub discard_requests: u64,
    /// Pieces of reads that the memory cache served.
    pub cache_hits: u64,
    /// Pieces of reads that it did not.
    pub cache_misses: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Response times of reads, writes and flushes together: pairs of a time in nanoseconds and how many
    /// requests took about that long. The difference of two moments gives the percentiles between them.
    #[serde(default)]
    pub latency_ns_counts: Vec<(u64, u64)>,
}

/// One kind of request.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// How many.
    pub requests: u64,
    /// How much in all.
    pub bytes: u64,
    /// How long they took.
    #[serde(flatten)]
    pub latency: LatencyReport,
}

/// What happened behind the scenes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct BackgroundReport {
    /// Extents that got a new home.
    pub migrations: u64,
    /// Migrations that gave way to a guest's write, or found no room.
    pub migrations_stopped: u64,
    /// Bytes that migrations copied.
    pub migrated_bytes: u64,
    /// Second required copies made.
    pub mirrors: u64,
    /// Extra copies made.
    pub promotions: u64,
    /// Blocks that got none, as no room for them was free yet.
    pub promotions_skipped: u64,
    /// Dirty blocks written back.
    pub write_backs: u64,
    /// Measurements of devices without guests.
    pub probes: u64,
    /// Commits of the journal.
    pub commits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Moves of the policy's plan that have not ended.
    #[serde(default)]
    pub moves_left: u64,
    /// The bytes that they concern.
    #[serde(default)]
    pub moves_left_bytes: u64,
    /// Bytes that moves of the plan have moved in a second, of the last ten.
    #[serde(default)]
    pub moved_bytes_per_second: f64,
    /// How long the rest of the plan takes at this rate; none if nothing has moved of late.
    #[serde(default)]
    pub moves_left_seconds: Option<f64>,
}

/// Where a byte of the volume lies, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExplainReport {
    /// The volume.
    pub name: String,
    /// The byte that was asked for.
    pub offset_bytes: u64,
    /// The number of its extent.
    pub extent: u32,
    /// The home, where the extent has one.
    pub home: Option<CopyReport>,
    /// The second required copy, where there is one.
    pub second: Option<CopyReport>,
    /// The extra copy of its block, where there is one.
    pub extra: Option<CopyReport>,
    /// Whether the byte was written since its extent was allocated; else it reads as zero.
    pub written: bool,
    /// Whether the memory cache holds the extent.
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
    /// Where on the device the byte lies; not told of extra copies.
    pub device_offset_bytes: Option<u64>,
    /// `current`, `behind` (a second copy that is older), `clean` or `dirty` (extra copies).
    pub copy_state: String,
}

/// What simulations beside a volume say of the modes of its policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GuardReport {
    /// The policy in the present mode.
    pub mode: String,
    /// How often the mode was switched since the daemon started.
    pub switches: u64,
    /// When it was switched last.
    pub switched_seconds_ago: Option<f64>,
    /// What requests of the last batch took on average in the volume; far from what the present mode's
    /// simulation says, a model is wrong.
    pub measured_ns_mean: Option<u64>,
    /// All modes.
    pub modes: Vec<ModeReport>,
    /// Ghosts have one part of the volume in so many; 0 if there are none.
    pub one_in: u32,
    /// The share of a processor that the ghosts took for the last batch.
    pub processor_share: f64,
    /// Devices that were measured while they served guests, for they have no model otherwise: by what factor
    /// response times of the model that was made are off, on average.
    pub measured_models_off: BTreeMap<String, f64>,
    /// Why there are none, or not of all modes.
    pub problem: Option<String>,
}

/// A mode of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModeReport {
    /// The policy in this mode.
    pub mode: String,
    /// What requests of the last batch took on average in the simulation; null if that is not known.
    pub latency_ns_mean: Option<u64>,
}
