"""Traces as columns."""

from __future__ import annotations

import enum
import os
from typing import List, Optional, TypedDict, Union

import numpy as np

from . import _native

Column = np.ndarray


class Op(enum.IntEnum):
    """What a request asks for: ``trace["op"] == braid.Op.READ``."""

    READ = 0
    WRITE = 1
    FLUSH = 2
    DISCARD = 3


class TraceDevices(TypedDict):
    """A column for each field, with a row for each device."""

    trace_device: List[str]
    """The trace's own name for it."""
    requests: Column
    base_bytes: Column
    """Where a simulation of the whole trace lays the device in the volume."""
    span_bytes: Column
    """The room that it has there."""


class Trace(TypedDict):
    """A trace: a column for each field of a record, in order of time, and what there is to say of the whole."""

    at_ns: Column
    """Time since the first request (int64)."""
    op: Column
    """As ``braid.Op`` has it (uint8)."""
    offset_bytes: Column
    """Where it begins on its device (int64)."""
    length_bytes: Column
    """(int64)"""
    trace_device_row: Column
    """The row of its device in ``trace_devices`` (uint16)."""
    trace_devices: TraceDevices
    format: str
    compression: str
    records: int
    bad_records: int
    """Records that could not be read."""
    other_devices_records: int
    """Records of devices that were not asked for."""
    reordered_records: int
    """Records that were put into order of time."""
    late_records: int
    """Records that came too late for that, and have the time of the one before."""
    problem_texts: List[str]
    """The first bad records in words."""


def read_trace(
    path: Union[str, "os.PathLike[str]"],
    *,
    limit: Optional[int] = None,
    format: Optional[str] = None,
    time_unit: Optional[str] = None,
    block: Union[None, int, str] = None,
    speed: Optional[float] = None,
    device: Union[None, int, str] = None,
    event: Optional[str] = None,
    window: Optional[int] = None,
    strict: bool = False,
) -> Trace:
    """Reads a block trace into columns.

    Formats are told apart by content, and so is compression (gzip, xz, zstd): SPC, MSR Cambridge, blktrace, blkparse, fio's
    iolog, DiskSim, SSDSim, CloudPhysics, ARC, oracleGeneral, and braid's own. A record takes 27 bytes of memory.

    :param path: The file.
    :param limit: Read so many records at most.
    :param format: The format, where it is not to be told by content.
    :param time_unit: One unit of time, for a format that counts in units, ``"1ms"``.
    :param block: One unit of address, for a format that counts in blocks, ``512`` or ``"4KiB"``.
    :param speed: Times are divided by it.
    :param device: Only this device.
    :param event: Which event of a block trace counts as the request: ``"queue"``, ``"issue"`` or ``"complete"``.
    :param window: How many records are held back to put into order what arrives out of order.
    :param strict: Raise at the first bad record, instead of counting it.
    :raises TraceError: where the trace cannot be read, or not further.
    """
    options = {
        "format": format,
        "time_unit": time_unit,
        "block": block,
        "speed": speed,
        "device": device,
        "event": event,
        "window": window,
        "strict": strict,
    }
    texts = {name: str(value) for name, value in options.items() if value is not None}
    return _native.read_trace(os.fspath(path), limit, texts)
