"""Traces as columns."""

import gzip
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import braid

SPC = b"""\
0,8,4096,R,0.0
1,16,512,w,0.5
0,24,8192,W,0.75
not a record
0,32,1024,r,2
"""


def test_a_trace_comes_as_columns(tmp_path):
    path = tmp_path / "small.spc"
    path.write_bytes(SPC)
    trace = braid.read_trace(path)
    assert trace["format"] == "spc" and trace["compression"] == "plain"
    assert list(trace["at_ns"]) == [0, 500_000_000, 750_000_000, 2_000_000_000]
    assert list(trace["op"] == braid.Op.READ) == [True, False, False, True]
    assert list(trace["offset_bytes"]) == [4096, 8192, 12288, 16384]
    assert list(trace["length_bytes"]) == [4096, 512, 8192, 1024]
    assert list(trace["trace_device_row"]) == [0, 1, 0, 0] and trace["trace_devices"]["trace_device"] == ["0", "1"]
    assert list(trace["trace_devices"]["requests"]) == [3, 1]
    assert (trace["records"], trace["bad_records"]) == (4, 1)
    assert "line 4" in trace["problem_texts"][0]
    types = {name: trace[name].dtype for name in ("at_ns", "op", "offset_bytes", "length_bytes", "trace_device_row")}
    assert list(types.values()) == [np.int64, np.uint8, np.int64, np.int64, np.uint16]
    assert np.diff(trace["offset_bytes"][::-1]).min() == -4096, "differences may be negative"


def test_compressed_it_is_the_same(tmp_path):
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(SPC)
    packed.write_bytes(gzip.compress(SPC))
    one, two = braid.read_trace(plain), braid.read_trace(str(packed))
    assert two.pop("compression") == "gzip" and one.pop("compression") == "plain"
    np.testing.assert_equal(one, two)


def test_a_part_of_a_trace(tmp_path):
    path = tmp_path / "small.spc"
    path.write_bytes(SPC)
    assert list(braid.read_trace(path, limit=2)["at_ns"]) == [0, 500_000_000]
    second = braid.read_trace(path, device=1)
    assert list(second["offset_bytes"]) == [8192] and list(second["trace_device_row"]) == [0]
    assert second["trace_devices"]["trace_device"] == ["1"] and second["other_devices_records"] == 3
    assert list(braid.read_trace(path, speed=2)["at_ns"]) == [0, 250_000_000, 375_000_000, 1_000_000_000]


def test_what_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "small.spc"
    path.write_bytes(SPC)
    with pytest.raises(braid.TraceError, match="small.spc, line 4: "):
        braid.read_trace(path, strict=True)
    with pytest.raises(braid.TraceError, match="missing"):
        braid.read_trace(tmp_path / "missing")
    with pytest.raises(braid.SetupError, match="'tape'"):
        braid.read_trace(path, format="tape")
    (tmp_path / "rubbish").write_bytes(bytes(range(256)) * 16)
    with pytest.raises(braid.TraceError, match="rubbish: "):
        braid.read_trace(tmp_path / "rubbish")


def test_ctrl_c_ends_the_reading_of_an_endless_trace(tmp_path):
    path = tmp_path / "endless"
    os.mkfifo(path)

    def write():
        with open(path, "wb", buffering=0) as pipe:
            try:
                while True:
                    pipe.write(b"0,8,4096,R,0.0\n" * 1000)
            except BrokenPipeError:
                pass

    threading.Thread(target=write).start()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        braid.read_trace(path)
    assert time.monotonic() - begun < 5


def test_real_traces_are_read():
    here = Path(__file__).resolve()
    folder = next((up / "shared" / "traces" for up in here.parents if (up / "shared" / "traces").is_dir()), None)
    if folder is None:
        pytest.skip("needs ../shared/traces")
    trace = braid.read_trace(folder / "financial1-first10000.spc.zst")
    assert trace["records"] == len(trace["at_ns"]) == 10_000
    assert (np.diff(trace["at_ns"]) >= 0).all()
    ends = trace["offset_bytes"] + trace["length_bytes"]
    assert (ends <= trace["trace_devices"]["span_bytes"][trace["trace_device_row"]]).all()
