"""Tables and figures of papers, reproduced; and experiments of your own.

An experiment is a declaration: a dict with the fields of a file that ``braid lab run FILE.toml`` reads. Those that are built in can be looked at, changed
and run::

    import braid.lab

    mine = braid.lab.experiments()["wardrop/fig6"]
    mine["id"], mine["paper"]["system"] = "mine/fig6", "mine"
    mine["series"].append({**mine["series"][0], "label": "cache", "policy": "cache"})
    study = braid.lab.run(mine, seeds=3)[0]
    study.values("throughput")             # an array: a row for each series, a column for each place
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np

from . import _native

Declaration = Dict[str, Any]
Watcher = Optional[Callable[[int, int, float], object]]


def experiments() -> Dict[str, Declaration]:
    """All experiments that are built in, by id. Each call gives new dicts, which may be changed."""
    return {declaration["id"]: declaration for declaration in json.loads(_native.lab_experiments())}


def run(
    *experiments: Union[str, "os.PathLike[str]", Declaration],
    seed: int = 1,
    seeds: Optional[int] = None,
    quick: bool = False,
    threads: Optional[int] = None,
    results: Union[None, str, "os.PathLike[str]"] = None,
    fresh: bool = False,
    progress: Watcher = None,
) -> List[Study]:
    """Runs experiments on all cores, and judges their claims, as ``braid lab run`` does.

    :param experiments: Ids as ``braid lab list`` names them, systems for all of theirs, files that end in ``.toml``, or declarations.
    :param seed: The first seed.
    :param seeds: How many; None for as many as verdicts need, 3 to 10 (1 if quick).
    :param quick: Runs of a twentieth of their length: to see that they work, not to compare.
    :param threads: Simulations at the same time; as many as there are cores unless given. It changes no figure.
    :param results: A folder in which the values of each seed are kept, and are used again as long as program and experiment are the same.
    :param fresh: Run all again, and replace what is kept.
    :param progress: Called about ten times a second with simulations that have ended, simulations in all, and seconds left. An
        exception that it raises ends the simulations.
    :returns: A study for each, those that are built in first.
    :raises SetupError: where an experiment is unknown, or declares what cannot be.
    """
    names = [os.fspath(name) for name in experiments if not isinstance(name, dict)]
    declared = [json.dumps(declaration) for declaration in experiments if isinstance(declaration, dict)]
    folder = None if results is None else os.fspath(results)
    given = (seed, seeds, quick, threads, folder, fresh)
    return [Study(study) for study in json.loads(_native.lab_run(names, declared, given, progress))]


class Study(Dict[str, Any]):
    """An experiment that has been run: the fields of a study of ``braid lab run --json``, and its tables as arrays."""

    @property
    def labels(self) -> List[str]:
        """What the series are called: the rows of ``values``."""
        return [series["label"] for series in self["series"]]

    @property
    def places(self) -> np.ndarray:
        """The values on the axis: the columns of ``values``."""
        return np.array(self["axis_values"])

    def values(self, measure: str) -> np.ndarray:
        """The means over all seeds, a row for each series; NaN where a run did not reach what is measured."""
        return np.array(self._table(measure)["values"], dtype=float)

    def half_widths(self, measure: str) -> np.ndarray:
        """Half the widths of the 95 % confidence intervals of ``values``."""
        return np.array(self._table(measure)["half_widths"], dtype=float)

    def rulings(self) -> Dict[str, Optional[str]]:
        """What is to be said of each claim, for the system as published."""
        return {claim["claim"]: claim["verdicts"][0]["ruling"] for claim in self["claims"]}

    def _table(self, measure: str) -> Dict[str, Any]:
        for table in self["tables"]:
            if table["measure"] == measure:
                return table
        measures = ", ".join(table["measure"] for table in self["tables"])
        raise KeyError(f"no measure {measure!r}: use one of {measures}")
