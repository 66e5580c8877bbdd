"""Simulate hybrid volumes of SSDs and hard disks; results come as NumPy columns.

A study in a few lines::

    import braid

    runs = braid.sweep(
        ssd="80GiB,model=x25-m", hdd="73GB,model=mba3073,count=4", workload="netapp-like",
        clients=[1, 2, 4, 8], policy=["wardrop", "ssd-only", "stripe"], duration="60s",
    )
    for policy in ["wardrop", "ssd-only", "stripe"]:
        part = runs.where(policy=policy)
        plt.plot(part["clients"], part["throughput_bytes_per_second"] / 1e6, label=policy)

The engine that serves volumes runs here in virtual time over models of devices. Names of fields, arguments and their
defaults are those of ``braid simulate``; the same arguments give the same figures, in Python, on the command line, and on
every machine. While simulations run, other threads of Python run too, and Ctrl-C ends them.

``simulate``    one simulation: a dict of figures and columns
``sweep``       every combination of arguments, on all cores: ``Runs``
``Policy``      a policy of your own, in Python
``lab``         experiments of papers, and of your own
``read_trace``  a block trace in any of the usual formats, as columns

What fails raises ``SetupError``, ``TraceError``, ``VolumeError`` or ``WrongDataError``, all of which are ``Error``.
"""

from . import lab
from ._native import Move, Placement, __version__
from .errors import Error, SetupError, TraceError, VolumeError, WrongDataError
from .policies import Policy
from .progress import Progress
from .results import Run
from .simulations import Runs, simulate, sweep
from .traces import Op, Trace, read_trace

__all__ = [
    "Error",
    "Move",
    "Op",
    "Placement",
    "Policy",
    "Progress",
    "Run",
    "Runs",
    "SetupError",
    "Trace",
    "TraceError",
    "VolumeError",
    "WrongDataError",
    "__version__",
    "lab",
    "read_trace",
    "simulate",
    "sweep",
]
