"""Simulations and sweeps: columns, the same figures everywhere, errors, Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import braid
from braid.results import Background, Devices, IntervalDevices, Intervals, Operation, in_columns

DEVICES = {"ssd": "1GiB,model=x25-m", "hdd": "4GB,model=mba3073,count=2"}
SHORT = {**DEVICES, "workload": "random,span=128MiB,requests=3000"}
LONG = {**DEVICES, "workload": "random,span=128MiB,requests=100000000000"}


def figures(run):
    """What must be the same on every machine."""
    return {name: value for name, value in run.items() if "wall" not in name}


def same(one, two):
    np.testing.assert_equal(figures(one), figures(two))


def test_a_run_has_the_fields_that_its_type_lists():
    run = braid.simulate(**SHORT, policy="wardrop")
    described = [
        (run, braid.Run),
        (run["all"], Operation),
        (run["background"], Background),
        (run["devices"], Devices),
        (run["intervals"], Intervals),
        (run["intervals"]["devices"], IntervalDevices),
    ]
    for found, expected in described:
        assert set(found) == set(expected.__annotations__), "braid/results.py lists the fields of outcome.rs"
    assert run["all"]["requests"] == 3000
    assert list(run["devices"]["class"]) == ["ssd", "hdd", "hdd"]
    rows = len(run["intervals"]["start_seconds"])
    assert run["intervals"]["devices"]["utilisation"].shape == (rows, 3)
    assert run["intervals"]["requests"].sum() == 3000


def glossary():
    """The names of fields in docs/json.md."""
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name.strip(" `") for row in rows for name in row.split(",")}


def names(value):
    """All names of fields, at any depth; those of figures are a policy's own."""
    if isinstance(value, dict):
        inner = [names(part) for name, part in value.items() if name != "policy_figures"]
        return set(value).union(*inner)
    return set()


def test_the_glossary_has_every_field(tmp_path):
    path = tmp_path / "small.spc"
    path.write_bytes(b"0,8,4096,R,0.0\n")
    for found in (braid.simulate(**SHORT), braid.read_trace(path)):
        assert not names(found) - glossary()


def test_the_same_seed_gives_the_same_columns_on_any_number_of_threads():
    compared = {**SHORT, "policy": ["wardrop", "stripe"], "seed": [1, 2]}
    alone = braid.sweep(**compared, threads=1)
    for threads in (2, 4):
        for one, two in zip(alone, braid.sweep(**compared, threads=threads)):
            same(one, two)
    same(alone[0], braid.simulate(**SHORT, policy="wardrop"))
    assert alone["all.latency_ns_mean"][0] != alone["all.latency_ns_mean"][1], "another seed"


def test_a_model_may_be_a_file_and_a_device_a_group(tmp_path):
    with pytest.raises(braid.SetupError, match="none.toml"):
        braid.simulate(**{**SHORT, "hdd": f"4GB,model={tmp_path}/none.toml"})
    runs = braid.sweep(**{**SHORT, "hdd": [["4GB,model=mba3073"], ["4GB,model=mba3073,raid0=2"]]})
    assert [run["devices"]["model"][1] for run in runs] == ["mba3073", "raid0 of 2 mba3073"]


def test_the_command_line_gives_the_same_figures():
    programme = os.environ.get("BRAID") or shutil.which("braid")
    if not programme:
        pytest.skip("needs the programme braid: name it in BRAID")
    words = ["--ssd", DEVICES["ssd"], "--hdd", DEVICES["hdd"], "--workload", SHORT["workload"]]
    words += ["--clients", "1,4", "--policy", "wardrop", "--policy", "stripe", "--size", "256MiB", "--verify"]
    output = subprocess.run([programme, "simulate", "--json", *words], check=True, capture_output=True)
    runs = braid.sweep(**SHORT, clients=[1, 4], policy=["wardrop", "stripe"], size=256 << 20, verify=True)
    for ours, theirs in zip(runs, json.loads(output.stdout)["runs"]):
        given = theirs.pop("given")
        assert ours["load"].endswith(f"clients={given['clients']}")
        same(ours, in_columns(theirs))
    assert all(runs["verified_bytes"] > 0)


def test_a_sweep_has_an_axis_for_each_list():
    runs = braid.sweep(**SHORT, clients=[1, 4], policy=("wardrop", "stripe"))
    assert runs.shape == (2, 2) and len(runs) == 4
    assert list(runs["clients"]) == [1, 1, 4, 4]
    assert list(runs["policy"]) == ["wardrop", "stripe"] * 2
    throughput = runs["throughput_bytes_per_second"].reshape(runs.shape)
    assert (throughput[1] > throughput[0]).all(), "more clients, more throughput"
    stripe = runs.where(policy="stripe")
    assert stripe.shape == (2,) and list(stripe["throughput_bytes_per_second"]) == list(throughput[:, 1])
    share = runs["devices.d0.requests_share"]
    assert share.shape == (4,) and share[0] == runs[0]["devices"]["requests_share"][0]
    assert [part.sum() for part in runs["intervals.requests"]] == [3000] * 4
    assert runs["all"][0] == runs[0]["all"]
    assert list(runs.columns("clients", "read.latency_ns_p99")) == ["clients", "read.latency_ns_p99"]
    assert {"clients", "policy", "requests_per_second"} < set(runs.columns())
    assert len(runs[1:3]) == 2 and runs[-1]["policy"] == "stripe"
    for missing in ("nothing", "devices.d9.model"):
        with pytest.raises(KeyError):
            runs[missing]
    with pytest.raises(KeyError, match="clients=3"):
        runs.where(clients=3)


def test_a_sweep_compares_hardware():
    load = {"workload": SHORT["workload"], "policy": "hdd-only"}
    one, four = "4GB,model=mba3073", "4GB,model=mba3073,count=4"
    runs = braid.sweep(ssd=DEVICES["ssd"], hdd=[[one], [four], [one, one]], clients=8, **load)
    assert runs.shape == (3,) and list(runs["hdd"]) == [one, four, f"{one}, {one}"]
    assert [len(run["devices"]["device"]) for run in runs] == [2, 5, 3]
    assert runs["requests_per_second"][1] > runs["requests_per_second"][0]


def test_one_failure_among_others_is_warned_of():
    with pytest.warns(RuntimeWarning, match="policy=balance: .*'balance'"):
        runs = braid.sweep(**SHORT, policy=["stripe", "balance"])
    assert np.isnan(runs["requests_per_second"][1]) and runs["requests_per_second"][0] > 0
    assert list(runs.failures) == [1]
    with pytest.raises(braid.SetupError, match="wardrop"):
        runs[1]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"policy": "balance"}, "'balance'"),
        ({"workload": "randam"}, "'randam'"),
        ({"workload": None}, "workload"),
        ({"trace": "x.csv"}, "trace"),
        ({"ssd": "1GiB,model=x99"}, "'x99'"),
        ({"ssd": (), "hdd": ()}, "ssd"),
        ({"size": "1TiB"}, "1 TiB"),
        ({"clients": -1}, "clients=-1"),
        ({"duration": 5}, "5ms"),
        ({"prefill": "some"}, "none, used, all"),
        ({"threads": 0}, "threads=0"),
        ({"policy": []}, r"policy=\[\]"),
        ({"turbo": True}, "turbo=True"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(wrong, expected):
    with pytest.raises(braid.SetupError, match=expected) as raised:
        braid.sweep(**{**SHORT, **wrong})
    assert isinstance(raised.value, (braid.Error, ValueError))


def test_ctrl_c_ends_a_long_simulation():
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        braid.sweep(**LONG, policy=["wardrop", "stripe", "ssd-only"])
    assert time.monotonic() - begun < 5


def test_other_threads_run_meanwhile():
    turns = 0

    def look(progress):
        nonlocal turns
        turns += 1
        assert progress.total == 1 and progress.requests >= 0
        if progress.elapsed_seconds > 0.6:
            raise TimeoutError("enough")

    beats = []
    stop = threading.Event()

    def beat():
        while not stop.wait(0.01):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(TimeoutError, match="enough"):
            braid.simulate(**LONG, progress=look)
    finally:
        stop.set()
        thread.join()
    assert turns >= 3 and len(beats) >= 10


def test_progress_is_a_line_on_standard_error(capfd):
    braid.simulate(**SHORT, progress=True)
    assert "1 of 1 done, 100%" in capfd.readouterr().err
