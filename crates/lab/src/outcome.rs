//! Results of a simulation: plain data, the same for the same setup, with units in the names.

use crate::block_costs::CostCurves;
use braid_base::{Bytes, DeviceClass};
use braid_engine::Latency;
use braid_trace::measure::Burstiness;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::ops::Range;

/// Measurements of a simulation, from the end of the warm-up on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The policy with all its settings.
    pub policy: String,
    /// The policy that placed the prefilled data, with all its settings; `None` if nothing was prefilled.
    /// `listed` if the setup lists the ranges on SSDs.
    pub prefill_policy: Option<String>,
    /// The workload as given, or the trace's file.
    pub load: String,
    /// The seed.
    pub seed: u64,
    /// The volume's size.
    pub volume_bytes: u64,
    /// The unit of placement.
    pub extent_bytes: u64,
    /// Measured time of the simulation.
    pub measured_seconds: f64,
    /// Time of the simulation before measuring.
    pub warm_up_seconds: f64,
    /// Requests begun before measuring.
    pub warm_up_requests: u64,
    /// Total time that clients of a closed loop waited by themselves before requests, or computed, including
    /// waits for a shared processor.
    pub think_seconds: f64,
    /// Bytes read and written by guests, per second.
    pub throughput_bytes_per_second: f64,
    /// Reads and writes per second.
    pub requests_per_second: f64,
    /// Reads and writes together.
    pub all: Operation,
    /// Reads.
    pub read: Operation,
    /// Writes.
    pub write: Operation,
    /// Flushes.
    pub flush: Operation,
    /// Discards.
    pub discard: Operation,
    /// Counts of the clients' programmes; `None` if the load has no such programme.
    pub programme: Option<Programme>,
    /// Time from the load's beginning, warm-up included, after which throughput stayed within a tenth of the
    /// measured mean. `None` if throughput was not within a tenth at the end.
    pub settled_seconds: Option<f64>,
    /// Requests beyond the volume's end, left out.
    pub dropped_requests: u64,
    /// Unreadable records of the trace.
    pub bad_records: u64,
    /// Layout of the trace's addresses in the volume; `None` under a workload.
    pub trace: Option<TraceOutcome>,
    /// Share of reads served by the memory cache.
    pub cache_hit_ratio: f64,
    /// Pieces of reads served by the memory cache.
    pub cache_hits: u64,
    /// Pieces of reads not served by the memory cache.
    pub cache_misses: u64,
    /// Background work.
    pub background: Background,
    /// Data that has a home.
    pub mapped_bytes: u64,
    /// Bytes of the volume missing from a copy, on average over the ends of all intervals.
    pub behind_mean_bytes: f64,
    /// Most bytes missing from a copy at the end of an interval.
    pub behind_highest_bytes: u64,
    /// Burstiness of reads and writes; `None` unless the setup says `burstiness`.
    #[serde(skip)]
    pub burstiness: Option<Burstiness>,
    /// Cost of blocks; `None` unless the setup says `block_costs`.
    #[serde(skip)]
    pub block_costs: Option<CostCurves>,
    /// Extents with homes on SSDs at the end, in order; `None` unless the setup says `list_homes`.
    #[serde(skip)]
    pub ssd_homes: Option<Vec<Range<Bytes>>>,
    /// Reads and writes by arrival time; empty unless the setup says `batches`.
    #[serde(skip)]
    pub batches: Vec<BatchSum>,
    /// Memory of the map.
    pub map_memory_bytes: u64,
    /// Memory of the policy, approximately.
    pub policy_memory_bytes: u64,
    /// Bytes read and compared with the last write; zero unless the setup says `verify`.
    pub verified_bytes: u64,
    /// The devices, by id.
    pub devices: Vec<DeviceOutcome>,
    /// Traffic of the network; `None` if all devices are the host's.
    pub network: Option<NetworkOutcome>,
    /// Caveats for the reader, in sentences.
    pub notes: Vec<String>,
    /// Switches of the policy between its modes.
    pub mode_switches: Vec<ModeSwitch>,
    /// Development over time: intervals of equal length, except the last.
    pub intervals: Vec<Interval>,
}

/// A switch of the policy to another of its modes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModeSwitch {
    /// Time from the beginning of the load, warm-up included.
    pub seconds: f64,
    /// The policy in the new mode.
    pub policy: String,
}

/// Reads and writes that arrived within a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchSum {
    /// Completed requests.
    pub requests: u64,
    /// The sum of their latencies.
    pub latency_ns_sum: u64,
}

/// The network between nodes, and its traffic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NetworkOutcome {
    /// Bytes of moves between machines.
    pub moved_bytes: u64,
    /// Links of the nodes with devices, then the host's link, if the host has a rate.
    pub links: Vec<LinkOutcome>,
}

/// Traffic of a machine's link.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LinkOutcome {
    /// The node; none for the host.
    pub node: Option<String>,
    /// Bytes sent by the machine, moves included.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Share of the time spent sending.
    pub send_utilisation: f64,
    /// Share of the time spent receiving.
    pub receive_utilisation: f64,
}

/// Facts about a simulated trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TraceOutcome {
    /// Address space of the trace's devices, one after another.
    pub span_bytes: u64,
    /// Size of the touched extents, if numbered without gaps: the address space of the simulation.
    pub compacted_bytes: Option<u64>,
    /// Number of times that the trace was played; the last time was measured.
    pub passes: u32,
}

/// Requests of one kind. In JSON the times are flat: `latency_ns_mean`, `queue_ns_p99` and so on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Operation {
    /// Requests completed.
    pub requests: u64,
    /// Bytes read or written by the requests.
    pub bytes: u64,
    /// From arrival to completion.
    pub latency: Distribution,
    /// From arrival until the volume took the request.
    pub queue: Distribution,
    /// In the volume.
    pub service: Distribution,
}

/// Counts of the clients' programmes. The volume sees less: a page cache answers some operations, gathers
/// some, and drops some.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Programme {
    /// Completed operations.
    pub operations: u64,
    /// Bytes read or written by the operations.
    pub programme_bytes: u64,
    /// From the end of the client's last operation to the end of the operation: computing, the wait for a
    /// processor, and waits for requests, if any. In JSON flat: `operation_ns_mean` and so on.
    #[serde(flatten, serialize_with = "serialize_operation")]
    pub operation: Distribution,
    /// 90th percentile of an operation's time: the percentile limited by TPC-C.
    pub operation_ns_p90: u64,
}

/// Times in nanoseconds. Mean and maximum are exact, percentiles within 1 per cent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Distribution {
    /// The mean.
    pub mean: f64,
    /// 50th percentile.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// Bytes moved in the background, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Background {
    /// Extents moved to a new home.
    pub migrations: u64,
    /// Migrations that gave way to a write or found no room.
    pub migrations_stopped: u64,
    /// Bytes copied by migrations.
    pub migrated_bytes: u64,
    /// Bytes copied for second copies.
    pub mirrored_bytes: u64,
    /// Bytes written for extra copies.
    pub promoted_bytes: u64,
    /// Bytes written back from dirty extra copies.
    pub written_back_bytes: u64,
    /// Probes of devices without guests.
    pub probes: u64,
    /// Bytes of probes.
    pub probed_bytes: u64,
    /// Commits of the journal.
    pub commits: u64,
    /// Bytes written to the journal.
    pub journal_written_bytes: u64,
    /// Checkpoints of the map.
    pub checkpoints: u64,
    /// Bytes of map pages written.
    pub map_written_bytes: u64,
}

/// Work of a device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceOutcome {
    /// Id of the device in the volume.
    pub device: String,
    /// Node of the device; `None` for the host.
    pub node: Option<String>,
    /// `ssd` or `hdd`.
    pub class: String,
    /// The model of its timing.
    pub model: String,
    /// Its size.
    pub size_bytes: u64,
    /// Share of the time with a request on the device.
    pub utilisation: f64,
    /// Mean number of requests on the device, background included.
    pub queue_depth_mean: f64,
    /// Share of the guests' requests that reached a device.
    pub requests_share: f64,
    /// Share of the guests' bytes that reached a device.
    pub bytes_share: f64,
    /// Share of the data, by extent, at the end.
    pub data_share: f64,
    /// Guests' reads.
    pub guest_read_requests: u64,
    /// Guests' writes.
    pub guest_write_requests: u64,
    /// Bytes read for guests.
    pub guest_read_bytes: u64,
    /// Bytes written for guests.
    pub guest_written_bytes: u64,
    /// Bytes read and written for background work, metadata and probes.
    pub background_bytes: u64,
    /// All bytes read.
    pub device_read_bytes: u64,
    /// All bytes written: the wear of an SSD.
    pub device_written_bytes: u64,
    /// All bytes written, in device sizes per day.
    pub drive_writes_per_day: f64,
    /// Bytes programmed into flash, including collection and merges; `None` for a model without flash, or if
    /// nothing was programmed.
    pub flash_written_bytes: Option<u64>,
    /// Bytes programmed for each byte written: write amplification.
    pub write_amplification: Option<f64>,
    /// Flash blocks erased.
    pub erases: Option<u64>,
    /// Flushes.
    pub flushes: u64,
    /// Response times of guests' requests. In JSON flat: `response_ns_mean` and so on.
    #[serde(flatten, serialize_with = "serialize_response")]
    pub response: Distribution,
    /// The policy's figures for the device at the end: names with units, and numbers.
    #[serde(serialize_with = "serialize_pairs")]
    pub policy_figures: Vec<(String, f64)>,
}

/// Activity in an interval.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Beginning of the interval, from the end of the warm-up.
    pub start_seconds: f64,
    /// Length of the interval.
    pub length_seconds: f64,
    /// Completed reads and writes.
    pub requests: u64,
    /// Reads and writes per second.
    pub requests_per_second: f64,
    /// Bytes of the reads and writes, per second.
    pub throughput_bytes_per_second: f64,
    /// Mean time from arrival to completion.
    pub latency_ns_mean: f64,
    /// Bytes migrated.
    pub migrated_bytes: u64,
    /// The devices, by id.
    pub devices: Vec<IntervalDevice>,
}

/// Activity of a device in an interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct IntervalDevice {
    /// Share of the guests' requests that reached a device.
    pub requests_share: f64,
    /// Share of the guests' bytes that reached a device.
    pub bytes_share: f64,
    /// Share of the data at the end of the interval.
    pub data_share: f64,
    /// Guests' bytes, per second.
    pub throughput_bytes_per_second: f64,
    /// Mean response time of guests' requests; zero if there was no request.
    pub response_ns_mean: f64,
    /// Share of the time with a request on the device.
    pub utilisation: f64,
    /// Mean number of requests on the device.
    pub queue_depth_mean: f64,
}

impl DeviceOutcome {
    /// True if the device is of this class.
    pub fn is(&self, class: DeviceClass) -> bool {
        self.class == class.to_string()
    }
}

impl Distribution {
    pub(crate) fn of(times: &Latency) -> Distribution {
        let quantile = |share| times.quantile(share).0;
        Distribution {
            mean: times.mean(),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: times.max().0,
        }
    }

    fn write<M: SerializeMap>(&self, map: &mut M, names: [&'static str; 6]) -> Result<(), M::Error> {
        let [mean, p50, p95, p99, p999, max] = names;
        map.serialize_entry(mean, &self.mean)?;
        map.serialize_entry(p50, &self.p50)?;
        map.serialize_entry(p95, &self.p95)?;
        map.serialize_entry(p99, &self.p99)?;
        map.serialize_entry(p999, &self.p999)?;
        map.serialize_entry(max, &self.max)
    }
}

macro_rules! names {
    ($of:literal) => {
        [
            concat!($of, "_ns_mean"),
            concat!($of, "_ns_p50"),
            concat!($of, "_ns_p95"),
            concat!($of, "_ns_p99"),
            concat!($of, "_ns_p999"),
            concat!($of, "_ns_max"),
        ]
    };
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(20))?;
        map.serialize_entry("requests", &self.requests)?;
        map.serialize_entry("bytes", &self.bytes)?;
        self.latency.write(&mut map, names!("latency"))?;
        self.queue.write(&mut map, names!("queue"))?;
        self.service.write(&mut map, names!("service"))?;
        map.end()
    }
}

fn serialize_operation<S: Serializer>(operation: &Distribution, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(6))?;
    operation.write(&mut map, names!("operation"))?;
    map.end()
}

fn serialize_response<S: Serializer>(response: &Distribution, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(6))?;
    response.write(&mut map, names!("response"))?;
    map.end()
}

fn serialize_pairs<S: Serializer>(pairs: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_flat_json_fields_with_units_in_names() {
        let operation = Operation {
            requests: 3,
            queue: Distribution { p999: 7, ..Default::default() },
            ..Default::default()
        };
        let json = serde_json::to_value(&operation).unwrap();
        assert_eq!((json["requests"].as_u64(), json["queue_ns_p999"].as_u64()), (Some(3), Some(7)));
        assert_eq!(json.as_object().unwrap().len(), 20);
    }
}
