"""How far simulations are."""

from __future__ import annotations

import sys
from typing import Callable, NamedTuple, Optional, Union


class Progress(NamedTuple):
    """How far simulations are."""

    finished: int
    """Simulations that have ended."""
    total: int
    """Simulations in all."""
    requests: int
    """Requests begun, of all simulations together."""
    simulated_seconds: float
    """Simulated time, of all simulations together."""
    share: Optional[float]
    """The part that is done, 0 to 1; None where a load's length is not known."""
    elapsed_seconds: float
    """Since the simulations began."""


Watcher = Union[None, bool, Callable[[Progress], object]]
"""What ``progress=`` takes: a function that is called about ten times a second, or True for a line on standard error."""


def listener(progress: Watcher) -> Optional[Callable[..., None]]:
    """What the native part calls for a ``progress=`` argument."""
    if progress is None or progress is False:
        return None
    show = print_line if progress is True else progress

    def listen(*figures: object) -> None:
        show(Progress(*figures))  # type: ignore[arg-type]

    return listen


def print_line(progress: Progress) -> None:
    """Rewrites a line on standard error."""
    done = "" if progress.share is None else f", {progress.share:.0%}"
    millions, end = progress.requests / 1e6, "\n" if progress.finished == progress.total else ""
    text = f"\r{progress.finished} of {progress.total} done{done}, {millions:.1f} M requests"
    print(text, end=end, file=sys.stderr, flush=True)
