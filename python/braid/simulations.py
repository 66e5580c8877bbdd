"""One simulation, and every combination of arguments."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union, overload

import numpy as np

from . import _native, errors
from .policies import Policy
from .progress import Watcher, listener
from .results import Run, in_columns

Devices = Union[str, Sequence[str]]
PolicyMaker = Callable[[], Policy]
Given = Tuple[List[str], List[str], Dict[str, str], Optional[PolicyMaker]]


def simulate(
    *,
    ssd: Devices = (),
    hdd: Devices = (),
    network: Optional[str] = None,
    policy: Union[None, str, PolicyMaker] = None,
    workload: Optional[str] = None,
    trace: Union[None, str, "os.PathLike[str]"] = None,
    clients: Optional[int] = None,
    think: Optional[str] = None,
    processors: Optional[int] = None,
    speed: Optional[float] = None,
    outstanding: Optional[int] = None,
    seed: Optional[int] = None,
    beyond: Optional[str] = None,
    strict: bool = False,
    compact: bool = True,
    repeat: Optional[int] = None,
    max_gap: Optional[str] = None,
    size: Union[None, int, str] = None,
    extent: Union[None, int, str] = None,
    block: Union[None, int, str] = None,
    copies: Optional[int] = None,
    cache: Optional[int] = None,
    readahead: Optional[str] = None,
    ahead: Union[None, int, str] = None,
    dram: Union[None, int, str] = None,
    prefill: Optional[str] = None,
    prefill_policy: Optional[str] = None,
    warm_up: Optional[str] = None,
    duration: Optional[str] = None,
    requests: Optional[int] = None,
    interval: Optional[str] = None,
    verify: bool = False,
    progress: Watcher = None,
) -> Run:
    """Simulates a volume on modelled devices under a load, in virtual time.

    The arguments are the options of ``braid simulate``, whose ``--help`` says more; None stands for their default.

    :param ssd: SSDs of a model, ``"80GiB,model=x25-m,count=2"``; several in a list. A model may be a file, ``model=mine.toml``,
        and a device a group, ``raid0=4,unit=64KiB`` or ``raid1=2``.
    :param hdd: Hard disks of a model, likewise.
    :param network: What joins nodes that devices are on (``node=0-3``): ``"10Gbit,latency=50us"``.
    :param policy: What decides where data lies, ``"equi,mode=auto"`` (the default) or ``"static,ssd=80%"``; or a class derived
        from ``Policy``.
    :param workload: A generated load, ``"zipf,clients=16"``; or
    :param trace: a recorded one, a file in any of the formats that ``read_trace`` reads.
    :param clients: Clients that each wait for their last request (closed loop).
    :param think: How long a client waits before each request, ``"5ms"``.
    :param processors: Processors that all clients share while they wait like this or compute; None for one for each.
    :param speed: How much faster requests come than their times say (open loop).
    :param outstanding: Requests in the volume at the same time, at most (open loop).
    :param seed: Seed of workload and devices.
    :param beyond: What becomes of requests beyond the volume's end: ``"refuse"``, ``"wrap"`` or ``"drop"``.
    :param strict: End at a line of a trace that cannot be read, instead of counting it.
    :param compact: Number the extents that a trace touches without the gaps between them.
    :param repeat: How often a trace is played; only the last time is measured.
    :param max_gap: The longest time between two requests of a trace, ``"10s"``; longer ones are cut to it.
    :param size: The volume's size, ``"1GiB"`` or a number of bytes.
    :param extent: The unit of placement.
    :param block: The unit of caching.
    :param copies: Required copies of everything.
    :param cache: Extents in the memory cache.
    :param readahead: At which miss a read brings all of its extent there: ``"first"``, ``"second"`` (the default) or ``"off"``.
    :param ahead: Memory for what is read ahead of streams, such as ``"32MiB"``; 0 (the default) for none.
    :param dram: A write-back cache of protected memory before the volume, such as ``"512MiB"``; 0 (the default) for none.
    :param prefill: What holds bytes before the load begins: ``"none"``, ``"used"`` or ``"all"``.
    :param prefill_policy: The policy that places what is filled before; ``"own"`` for the one that is simulated.
    :param warm_up: How far the load runs before anything is measured: ``"30s"``, ``"10000req"``, or ``"50%"`` of its requests.
    :param duration: How long it is measured then.
    :param requests: Requests after which the load ends, warm-up included.
    :param interval: Length of an interval of the time series.
    :param verify: Verify that every read returns the last write.
    :param progress: True for a line on standard error, or a function that takes a ``Progress``. An exception that it
        raises ends the simulation.
    :returns: The fields of ``braid simulate --json``; ``devices`` and ``intervals`` are dicts of NumPy arrays.
    :raises SetupError: where devices, policy and load do not exist or do not fit together.
    :raises TraceError: where the trace cannot be read.
    """
    arguments = {name: value for name, value in locals().items() if name != "progress"}
    [result] = outcomes([arguments], 1, progress)
    if isinstance(result, errors.Error):
        raise result
    return result


def sweep(*, threads: Optional[int] = None, progress: Watcher = None, **arguments: Any) -> Runs:
    """Simulates every combination of arguments, on all cores.

    Takes the arguments of ``simulate``. Each may be a list of values to compare; since ``ssd`` and ``hdd`` are lists already
    where a volume has devices of several kinds, a list of lists compares there.

    The last argument varies fastest, and ``Runs.shape`` has an axis for each list, in the order in which they are given. A
    simulation that fails does not keep the others from running: it is warned of, and its figures are NaN. Where all fail, the
    first one's exception is raised.

    :param threads: Simulations at the same time; as many as there are cores unless given. It changes no figure.
    """
    axes = {name: list(value) for name, value in arguments.items() if is_axis(name, value)}
    values = [axes.get(name, [value]) for name, value in arguments.items()]
    given = [dict(zip(arguments, combination)) for combination in itertools.product(*values)]
    if not given:
        empty = ", ".join(name for name, axis in axes.items() if not axis)
        raise errors.SetupError(f"{empty}=[]: nothing to compare; give at least one value")
    results = outcomes(given, threads, progress)
    failed = [(place, result) for place, result in enumerate(results) if isinstance(result, errors.Error)]
    if len(failed) == len(results):
        raise failed[0][1]
    for place, error in failed:
        which = ", ".join(f"{name}={given[place][name]}" for name in axes)
        warnings.warn(f"{which}: {error}", RuntimeWarning, stacklevel=2)
    return Runs(given, results, axes)


class Runs(Sequence[Run]):
    """Simulations side by side: a sequence of what ``simulate`` returns, and columns over all of them.

    ``runs[3]``, ``runs[2:5]``                         one simulation; some
    ``runs["clients"]``                                what each was given
    ``runs["throughput_bytes_per_second"]``            what came out of each
    ``runs["read.latency_ns_p99"]``                    fields within fields, with a dot
    ``runs["devices.d0.requests_share"]``              of one device
    ``runs["intervals.latency_ns_mean"]``              columns within it, each of a length of its own
    ``runs["throughput_bytes_per_second"].reshape(runs.shape)``   with an axis for each argument that was a list

    An argument hides a field of the same name: ``runs["policy"]`` is the policy as it was given, ``runs[0]["policy"]`` the
    policy with all its settings.
    """

    def __init__(
        self,
        given: List[Dict[str, Any]],
        results: List[Union[Run, errors.Error]],
        axes: Dict[str, List[Any]],
    ) -> None:
        self.given = given
        """The arguments of each simulation."""
        self.axes = axes
        """The arguments that vary, with their values."""
        self._results = results

    @property
    def shape(self) -> Tuple[int, ...]:
        """How many values each of ``axes`` has."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def failures(self) -> Dict[int, errors.Error]:
        """What failed, by place."""
        numbered = enumerate(self._results)
        return {place: result for place, result in numbered if isinstance(result, errors.Error)}

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, key: int) -> Run: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    @overload
    def __getitem__(self, key: str) -> np.ndarray: ...
    def __getitem__(self, key: Union[int, slice, str]) -> Union[Run, Runs, np.ndarray]:
        if isinstance(key, str):
            return self._column(key)
        if isinstance(key, slice):
            return self._some(range(len(self))[key], {"run": list(range(len(self))[key])})
        result = self._results[key]
        if isinstance(result, errors.Error):
            raise result
        return result

    def where(self, **values: Any) -> Runs:
        """Those that were given these values."""
        for name, value in values.items():
            if not any(given.get(name) == value for given in self.given):
                raise KeyError(f"no simulation was given {name}={value!r}")
        fits = [all(given.get(name) == value for name, value in values.items()) for given in self.given]
        axes = {name: axis for name, axis in self.axes.items() if name not in values}
        return self._some([place for place, fit in enumerate(fits) if fit], axes)

    def columns(self, *names: str) -> Dict[str, np.ndarray]:
        """Columns by name, as ``pandas.DataFrame`` takes them; without names what varies, and all plain figures."""
        plain = [name for name, value in self._done().items() if not isinstance(value, (dict, list))]
        return {name: self[name] for name in names or dict.fromkeys([*self.axes, *plain])}

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={values!r}" for name, values in self.axes.items())
        return f"<braid.Runs of {len(self)}: {axes}>"

    def _some(self, places: Iterable[int], axes: Dict[str, List[Any]]) -> Runs:
        places = list(places)
        return Runs([self.given[place] for place in places], [self._results[place] for place in places], axes)

    def _done(self) -> Run:
        return next(result for result in self._results if not isinstance(result, errors.Error))

    def _column(self, name: str) -> np.ndarray:
        if any(name in given for given in self.given):
            return np.array([plain(given.get(name)) for given in self.given])
        nan = float("nan")
        return array([nan if isinstance(result, errors.Error) else field(result, name) for result in self._results])


def is_axis(name: str, value: Any) -> bool:
    """Whether an argument of a sweep has several values to compare."""
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        return False
    return name not in ("ssd", "hdd") or any(not isinstance(part, str) for part in value)


def plain(value: Any) -> Any:
    """An argument as an element of an array."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        return getattr(value, "__name__", repr(value))
    return ", ".join(value) if isinstance(value, (list, tuple)) else value


def array(values: List[Any]) -> np.ndarray:
    """Values as an array; of objects, where they are not plain or not of one shape."""
    if any(isinstance(value, dict) for value in values) or len({np.shape(value) for value in values}) > 1:
        objects = np.empty(len(values), dtype=object)
        objects[:] = values
        return objects
    return np.array(values)


def field(run: Mapping[str, Any], name: str) -> Any:
    """A field within fields."""
    found: Any = run
    for part in name.split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, dict) and part in (ids := list(found.get("device", ()))):
            found = {key: values[ids.index(part)] for key, values in found.items()}
        else:
            raise KeyError(name)
    return found


def outcomes(
    given: List[Dict[str, Any]], threads: Optional[int], progress: Watcher
) -> List[Union[Run, errors.Error]]:
    """What came of each simulation."""
    results = _native.sweep([as_texts(**arguments) for arguments in given], threads, listener(progress))
    return [
        in_columns(json.loads(text)) if failure is None else getattr(errors, failure)(text)
        for failure, text in results
    ]


def as_texts(ssd: Devices = (), hdd: Devices = (), policy: Union[None, str, PolicyMaker] = None, **others: Any) -> Given:
    """Arguments as the command line would take them; what is None is left out."""
    kinds = [[text] if isinstance(text, str) else list(text or ()) for text in (ssd, hdd)]
    made, named = (policy, None) if callable(policy) else (None, policy)
    texts = {name: str(value) for name, value in {**others, "policy": named}.items() if value is not None}
    return kinds[0], kinds[1], texts, made
