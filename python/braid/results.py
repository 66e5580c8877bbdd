"""What comes out of a simulation: the fields of ``braid simulate --json``, with lists of objects turned into columns."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

import numpy as np

Column = np.ndarray


class Operation(TypedDict):
    """Requests of one kind. Latency is queue (waiting outside the volume) and service (in it) together."""

    requests: int
    bytes: int
    latency_ns_mean: float
    latency_ns_p50: int
    latency_ns_p95: int
    latency_ns_p99: int
    latency_ns_p999: int
    latency_ns_max: int
    queue_ns_mean: float
    queue_ns_p50: int
    queue_ns_p95: int
    queue_ns_p99: int
    queue_ns_p999: int
    queue_ns_max: int
    service_ns_mean: float
    service_ns_p50: int
    service_ns_p95: int
    service_ns_p99: int
    service_ns_p999: int
    service_ns_max: int


class Background(TypedDict):
    """What happened behind the scenes."""

    migrations: int
    migrations_stopped: int
    migrated_bytes: int
    mirrored_bytes: int
    promoted_bytes: int
    written_back_bytes: int
    probes: int
    probed_bytes: int
    commits: int
    journal_written_bytes: int
    checkpoints: int
    map_written_bytes: int


Classes = TypedDict("Classes", {"class": Column})
"""The field of devices whose name is a word of Python's: ``ssd`` or ``hdd``."""


class Devices(Classes):
    """A column for each field, with a row for each device."""

    device: Column
    node: Column
    model: Column
    size_bytes: Column
    utilisation: Column
    queue_depth_mean: Column
    requests_share: Column
    bytes_share: Column
    data_share: Column
    guest_read_requests: Column
    guest_write_requests: Column
    guest_read_bytes: Column
    guest_written_bytes: Column
    background_bytes: Column
    device_read_bytes: Column
    device_written_bytes: Column
    drive_writes_per_day: Column
    flash_written_bytes: Column
    write_amplification: Column
    erases: Column
    flushes: Column
    response_ns_mean: Column
    response_ns_p50: Column
    response_ns_p95: Column
    response_ns_p99: Column
    response_ns_p999: Column
    response_ns_max: Column
    policy_figures: List[Dict[str, float]]


class Links(TypedDict):
    """A column for each field, with a row for each machine that has a link; ``node`` is None for the host."""

    node: Column
    sent_bytes: Column
    received_bytes: Column
    send_utilisation: Column
    receive_utilisation: Column


class Network(TypedDict):
    """What joins the nodes that devices are on."""

    moved_bytes: int
    links: Links


class IntervalDevices(TypedDict):
    """Columns of two dimensions: interval, device."""

    requests_share: Column
    bytes_share: Column
    data_share: Column
    throughput_bytes_per_second: Column
    response_ns_mean: Column
    utilisation: Column
    queue_depth_mean: Column


class Intervals(TypedDict):
    """How it changed over time: a column for each field, with a row for each interval."""

    start_seconds: Column
    length_seconds: Column
    requests: Column
    requests_per_second: Column
    throughput_bytes_per_second: Column
    latency_ns_mean: Column
    migrated_bytes: Column
    devices: IntervalDevices


class Programme(TypedDict):
    """What the clients' programmes count themselves, where the volume sees less of it."""

    operations: int
    programme_bytes: int
    operation_ns_mean: float
    operation_ns_p50: int
    operation_ns_p95: int
    operation_ns_p99: int
    operation_ns_p999: int
    operation_ns_max: int
    operation_ns_p90: int


class ModeSwitches(TypedDict, total=False):
    """When the policy went on in another of its modes; empty if it never did."""

    seconds: Column
    policy: Column


class Trace(TypedDict):
    """How the addresses of a trace lie in the volume."""

    span_bytes: int
    compacted_bytes: Optional[int]
    passes: int


class Run(TypedDict):
    """A simulation that has ended. All but the last two fields are the same on every machine."""

    policy: str
    prefill_policy: Optional[str]
    load: str
    seed: int
    volume_bytes: int
    extent_bytes: int
    measured_seconds: float
    warm_up_seconds: float
    warm_up_requests: int
    think_seconds: float
    throughput_bytes_per_second: float
    requests_per_second: float
    all: Operation
    read: Operation
    write: Operation
    flush: Operation
    discard: Operation
    programme: Optional[Programme]
    settled_seconds: Optional[float]
    dropped_requests: int
    bad_records: int
    trace: Optional[Trace]
    cache_hit_ratio: float
    cache_hits: int
    cache_misses: int
    background: Background
    mapped_bytes: int
    behind_mean_bytes: float
    behind_highest_bytes: int
    map_memory_bytes: int
    policy_memory_bytes: int
    verified_bytes: int
    devices: Devices
    network: Optional[Network]
    notes: List[str]
    mode_switches: ModeSwitches
    intervals: Intervals
    wall_seconds: float
    requests_per_wall_second: float


def in_columns(value: Any) -> Any:
    """Turns what JSON gave into dicts of columns, at any depth."""
    if isinstance(value, dict):
        return {name: part if name == "notes" else in_columns(part) for name, part in value.items()}
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return table(value)
    return value


def table(rows: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Columns of rows that all have the fields of the first one."""
    return {name: column([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def column(values: List[Any]) -> Any:
    """Plain values as an array; lists of rows as columns of one more dimension; what has fields of its own as it is."""
    first = values[0]
    if isinstance(first, dict):
        return values
    if isinstance(first, list):
        tables = [table(rows) for rows in values]
        return {name: np.array([inner[name] for inner in tables]) for name in tables[0]}
    return np.array(values)
