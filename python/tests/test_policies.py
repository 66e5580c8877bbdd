"""Policies in Python: what they are asked and told, what they may answer, and what ends a simulation."""

import textwrap
from collections import Counter

import numpy as np
import pytest

import braid
import braid.policies

VOLUME = {"ssd": "64MiB,model=x25-m", "hdd": "1GB,model=mba3073", "cache": 0}
ZIPF = {**VOLUME, "workload": "zipf,theta=1.2,clients=2,span=256MiB,size=4KiB,read=70%,requests=4000", "verify": True}
SSD, DISK = 0, 1


class Nothing(braid.Policy):
    pass


class Cache(braid.Policy):
    """Reads leave copies on the SSD, and writes are dirty there until a plan writes them back."""

    period = 0.2

    def extra_share(self, device):
        return 0.5 if device.is_ssd else 0.0

    def place(self, occasion, view):
        if occasion.kind == "new":
            return braid.Placement.on(DISK)
        if occasion.kind == "write" and occasion.length == view.block_size:
            return braid.Placement.write_back(SSD)
        if occasion.kind == "read-miss":
            return braid.Placement.cached(SSD)
        return None

    def plan(self, view):
        return [
            braid.Move.write_back(block * view.block_size, view.block_size)
            for block, (device, dirty) in view.extras.items()
            if dirty
        ]


def figures(run):
    return {name: value for name, value in run.items() if "wall" not in name}


def test_what_a_policy_places_lies_there():
    class OnDisk(braid.Policy):
        def place(self, occasion, view):
            assert occasion.kind in ("new", "write", "read-miss")
            assert (occasion.kind == "new") == (occasion.home is None) or occasion.kind == "read-miss"
            assert occasion.start // view.extent_size == occasion.extent
            assert (occasion.start + occasion.length - 1) // view.block_size == occasion.first_block + occasion.blocks - 1
            return braid.Placement.on(DISK)

    run = braid.simulate(**{**ZIPF, "prefill": "none"}, policy=OnDisk)
    assert run["policy"] == "OnDisk"
    assert run["devices"]["requests_share"][SSD] == 0


def test_a_cache_in_python_reads_what_was_written_and_evicts():
    told = Counter()

    class Told(Cache):
        def extra_changed(self, block, before, now):
            told["made" if before is None else "gone" if now is None else "changed"] += 1

        def completed(self, device, direction, length, latency, is_probe):
            assert device in (SSD, DISK) and latency >= 0 and not is_probe
            told[direction] += 1

        def done(self, move, outcome):
            assert outcome in ("finished", "stopped")
            told[outcome] += 1

    small = {**ZIPF, "ssd": "8MiB,model=x25-m"}
    run = braid.simulate(**small, policy=Told, prefill_policy="hdd-only")
    assert run["background"]["promoted_bytes"] > 0 and run["background"]["written_back_bytes"] > 0
    assert told["made"] > told["gone"] > 0 and told["changed"] > 0
    assert told["read"] > 0 and told["write"] > 0 and told["finished"] > 0


def test_a_policy_chooses_what_leaves_a_cache():
    class Newest(Cache):
        def __init__(self):
            self.clean = {}

        def extra_changed(self, block, before, now):
            self.clean.pop(block, None)
            if now is not None and not now[1]:
                self.clean[block] = now[0]

        def evict(self, device):
            return next(reversed(self.clean), None)

    small = {**ZIPF, "ssd": "8MiB,model=x25-m", "prefill_policy": "hdd-only"}
    oldest, newest = braid.sweep(**small, policy=[Cache, Newest])
    assert oldest["all"]["latency_ns_mean"] != newest["all"]["latency_ns_mean"]


def test_the_example_of_the_module_runs_beside_built_in_policies():
    example = braid.policies.__doc__.split("::\n", 1)[1].split("\nA simulation with", 1)[0]
    example = textwrap.dedent(example)
    assert "braid.sweep(" in example
    example = example.replace("braid.sweep(", "runs = braid.sweep(").replace("1GiB", "64MiB").replace("4GB", "1GB")
    example = example.replace('"zipf", duration="60s"', '"zipf,clients=2,requests=endless", duration="5s", warm_up="5s"')
    scope = {}
    exec(example, scope)
    runs = scope["runs"]
    assert list(runs["policy"]) == ["wardrop", "cache", "Hottest"]
    assert runs["background.migrations"][2] > 0
    still = braid.simulate(**runs.given[2] | {"policy": Nothing})
    assert runs["all.latency_ns_mean"][2] < still["all"]["latency_ns_mean"]


def test_the_same_policy_gives_the_same_figures_on_any_number_of_threads():
    compared = {**ZIPF, "policy": [Cache, "cache"], "seed": [1, 2]}
    one, four = braid.sweep(**compared, threads=1), braid.sweep(**compared, threads=4)
    for first, second in zip(one, four):
        np.testing.assert_equal(figures(first), figures(second))
    assert one.where(policy=Cache).shape == (2,)


def test_a_policy_that_places_the_fill_begins_with_its_own_layout():
    assert braid.simulate(**ZIPF, policy=Cache, prefill_policy="own")["prefill_policy"] == "Cache"


class Answers(braid.Policy):
    """Gives one answer to each question."""

    def __init__(self, place=None, plan=None):
        self.answers = place, plan

    def place(self, occasion, view):
        return self.answers[0]

    def plan(self, view):
        return self.answers[1]


@pytest.mark.parametrize(
    "error, answers",
    [
        (ValueError, {"place": braid.Placement.on(7)}),
        (ValueError, {"place": braid.Placement.cached(2)}),
        (TypeError, {"place": 1}),
        (TypeError, {"plan": ["migrate"]}),
        (TypeError, {"plan": 7}),
        (ValueError, {"plan": [braid.Move.migrate(0, 9)]}),
        (ValueError, {"plan": [braid.Move.migrate(1 << 31, DISK)]}),
        (ValueError, {"plan": [braid.Move.promote(1 << 62, 4096, SSD)]}),
        (ValueError, {"plan": [braid.Move.demote(0, 0)]}),
        (ValueError, {"plan": [braid.Move.probe(2)]}),
    ],
)
def test_an_answer_that_cannot_be_is_an_exception(error, answers):
    with pytest.raises(error):
        braid.simulate(**ZIPF, policy=lambda: Answers(**answers))


def test_what_a_policy_raises_ends_the_sweep_and_is_raised():
    class Fails(Cache):
        def place(self, occasion, view):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        braid.sweep(**{**ZIPF, "workload": "zipf,requests=endless", "duration": "1000000s"}, policy=[Fails, "stripe"])


def test_what_is_no_policy_is_refused():
    for wrong in (dict, lambda: braid.Policy, lambda: 1 / 0):
        with pytest.raises((TypeError, ZeroDivisionError)):
            braid.simulate(**ZIPF, policy=wrong)
    for period in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="period"):
            braid.simulate(**ZIPF, policy=type("Wrong", (Nothing,), {"period": period}))
    with pytest.raises(ValueError, match="share"):
        braid.simulate(**ZIPF, policy=type("Wrong", (Nothing,), {"extra_share": lambda self, device: 2.0}))
    with pytest.raises(ValueError, match="no copy"):
        wrong = type("Wrong", (Cache,), {"evict": lambda self, device: 1 << 40})
        braid.simulate(**{**ZIPF, "ssd": "8MiB,model=x25-m"}, policy=wrong, prefill_policy="hdd-only")


def test_a_range_beyond_all_addresses_is_refused():
    with pytest.raises(ValueError):
        braid.Move.promote(2**64 - 1, 4096, SSD)
    with pytest.raises(OverflowError):
        braid.Move.migrate(-1, SSD)
