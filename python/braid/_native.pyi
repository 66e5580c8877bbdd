"""The native part, which the modules beside it wrap."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from .traces import Trace

__version__: str

def sweep(
    setups: List[Tuple[List[str], List[str], Dict[str, str], Optional[Callable[[], Any]]]],
    threads: Optional[int],
    progress: Optional[Callable[..., object]],
) -> List[Tuple[Optional[str], str]]:
    """Simulates setups: for each, None and JSON, or the name of an exception's class and its text."""

class Placement:
    """Where bytes go."""

    @staticmethod
    def on(device: int) -> Placement: ...
    @staticmethod
    def cached(device: int) -> Placement: ...
    @staticmethod
    def write_back(device: int) -> Placement: ...
    @staticmethod
    def alone() -> Placement: ...

class Move:
    """A piece of background work."""

    extent: Optional[int]

    @staticmethod
    def migrate(extent: int, target: int) -> Move: ...
    @staticmethod
    def promote(start: int, length: int, target: int) -> Move: ...
    @staticmethod
    def demote(start: int, length: int) -> Move: ...
    @staticmethod
    def write_back(start: int, length: int) -> Move: ...
    @staticmethod
    def probe(device: int) -> Move: ...

def lab_experiments() -> str:
    """Declarations of all experiments, as JSON."""

def lab_run(
    names: List[str],
    declared: List[str],
    given: Tuple[int, Optional[int], bool, Optional[int], Optional[str], bool],
    progress: Optional[Callable[[int, int, float], object]],
) -> str:
    """Runs experiments by name, and those declared in JSON; gives their studies as JSON."""

def read_trace(path: str, limit: Optional[int], options: Dict[str, str]) -> Trace:
    """Reads a trace into columns."""
